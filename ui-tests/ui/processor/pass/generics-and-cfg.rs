//! Generic processors, and fields and handlers behind `#[cfg(..)]`.

use std::marker::PhantomData;

use serde::Serialize;
use serde::de::DeserializeOwned;
use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (K, V), output = V)]
struct Latest<K, V>
where
    K: Key,
    V: Clone + Send + Serialize + DeserializeOwned + 'static,
{
    #[state]
    last: Keyed<V>,
    #[timer]
    idle: Timer,
    #[local]
    key: PhantomData<fn() -> K>,
}

#[handlers]
impl<K, V> Latest<K, V>
where
    K: Key,
    V: Clone + Send + Serialize + DeserializeOwned + 'static,
{
    #[process]
    fn on_record(&mut self, r: Record<K, V>, cx: &mut Context<Self>) -> Result<()> {
        self.idle.set(r.timestamp)?;
        self.last.put(r.value)
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<K>, cx: &mut Context<Self>) -> Result<()> {
        match self.last.take()? {
            Some(v) => cx.forward(v),
            None => Ok(()),
        }
    }
}

#[processor(input = (UserId, Event), output = Session)]
struct Optional {
    #[cfg(any())]
    #[state]
    never: Keyed<NoSuchType>,
    #[cfg(all())]
    #[state]
    open: Keyed<Session>,
    #[cfg(any())]
    #[timer]
    idle: Timer,
    #[cfg(any())]
    limit: NoSuchType,
    #[timer]
    other: Timer,
}

#[handlers]
impl Optional {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.other.set(event.timestamp)?;
        self.open.put(Session::default())
    }

    #[cfg(any())]
    #[on_timer(idle)]
    fn never(&mut self, fired: Fired<NoSuchType>, cx: &mut Context<Self>) -> Result<()> {}

    #[on_timer(other)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(Session::default())
    }
}

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    let latest = events.process::<Latest<UserId, Event>>();
    let sessions = latest.process::<Optional>();
    sessions.sink::<Sessions>();
}

fn main() {
    let graph = pipeline::build().expect("the topology is valid");
    let stores: Vec<&str> = graph.stores.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(stores, ["last", "idle", "open", "other"]);
}
