//! Handlers that may wait, beside others.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

use std::time::Duration;

#[processor(input = (UserId, Event), output = Session)]
struct Enrich<T: Send + Sync + 'static> {
    client: T,
    #[state]
    open: Keyed<Session>,
    #[timer]
    idle: Timer,
    #[timer(clock = wall)]
    later: Timer,
}

async fn look_up<T>(_client: &T, event: &Event) -> std::result::Result<u32, std::io::Error> {
    std::future::ready(()).await;
    Ok(event.count)
}

#[handlers]
impl<T: Send + Sync + 'static> Enrich<T> {
    /// Doc comments stay.
    #[process]
    async fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        let count = look_up(&self.client, &event.value).await.map_err(|e| stoat_core::Error::handler(e.to_string()))?;
        self.open.update(Session::default, |s| s.count += count)?;
        self.idle.set(event.timestamp + Duration::from_secs(1))?;
        cx.forward(Session { count })
    }

    #[on_timer(idle)]
    fn close(&mut self, _fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        self.open.take()?.map_or(Ok(()), |s| cx.forward(s))
    }

    #[on_timer(later)]
    async fn later(&mut self, _fired: Fired<UserId>, _cx: &mut Context<Self>) -> Result<()> {
        std::future::ready(Ok(())).await
    }

    #[punctuate(every = "10s", over = open)]
    async fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
        let count = self.open.get()?.map_or(0, |s| s.count);
        cx.forward(Session { count })
    }

    #[punctuate(every = "1m", clock = wall)]
    async fn tick(&mut self, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }

    #[cfg(any())]
    #[punctuate(every = "1m")]
    async fn not_there(&mut self, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn enriched(t: &mut Topology) {
    let events = t.source::<Events>();
    let enriched = events.process_with(|| Enrich::init(1_u8));
    enriched.sink::<Sessions>();
}

fn main() {
    let graph = enriched::build().unwrap();
    assert_eq!(graph.subs, 2, "what may wait begins a sub-topology");
    assert_eq!(enriched::GRAPH.nodes.len(), 3);
}
