//! Other attributes stay, in either order; strict lints stay quiet.

#![forbid(unsafe_code)]
#![deny(missing_docs, unreachable_pub, unused_qualifications, unused, warnings)]

use stoat_core::prelude::*;
use stoat_ui_tests::*;

/// With a document.
#[processor(input = (UserId, Event), output = Session)]
#[derive(Debug)]
pub struct P {
    /// State.
    #[state(name = "sessions")]
    open: Keyed<Session>,
    /// A timer.
    #[timer(clock = wall)]
    idle: Timer,
    /// By day.
    #[store]
    by_user: KeyValueStore<UserId, u64>,
    /// Not restored.
    #[local(Vec::with_capacity(4))]
    buffer: Vec<u8>,
    /// A limit.
    limit: u32,
}

#[handlers]
impl P {
    #[inline]
    #[process]
    #[must_use]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.open.update(Session::default, |s| s.count += self.limit)?;
        self.buffer.push(1);
        self.by_user.put(&event.key, 1)?;
        self.idle.set(event.timestamp)
    }

    #[on_timer(idle)]
    #[cold]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(Session::default())
    }

    #[punctuate(every = "1m")]
    fn report(&mut self, cx: &mut Context<Self, End>) -> Result<()> {
        let _ = self.helper();
        Ok(())
    }

    fn helper(&self) -> usize {
        self.buffer.len()
    }
}

/// A topology.
#[topology]
pub fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    let sessions = events.process_with(|| P::init(1));
    sessions.sink::<Sessions>();
}

/// Runs.
pub fn main() {
    assert_eq!(pipeline::build().expect("the topology is valid").stores[0].name, "sessions");
}
