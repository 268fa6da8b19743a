//! Fan-out, merge, stateless steps, ordinary Rust between them; the static description agrees with the built graph.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "raw", key = Option<UserId>, value = Event)]
struct Raw;

/// Forwards nothing, so nobody needs to consume it.
#[processor(input = (OrderId, Order))]
struct Log;

#[handlers]
impl Log {
    #[process]
    fn on_order(&mut self, order: Record<OrderId, Order>, cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn pipeline(t: &mut Topology) {
    let limit = if cfg!(debug_assertions) { 10 } else { 1_000 };
    let events = t.source::<Events>();
    let [small, large] = events.filter(|_, e| e.count > 0).fan_out();
    let sessions = small.filter(move |_, e| e.count < limit).process::<Sessionize>();
    let changed = large.map_values(|e| Session { count: e.count });
    let both = sessions.merge(changed);
    both.peek(|_, _| {}).sink::<Sessions>();
    t.source::<Orders>().process::<Log>();
    let counts = t.source::<Raw>().with_key().map_values(|e| e.count).group_by(|_, n| *n).count();
    counts.to_stream().discard();
}

fn main() {
    let graph = pipeline::build().expect("the topology is valid");
    // A hand-over follows from types, which the text does not show.
    assert_eq!(pipeline::GRAPH.difference(&graph), None);
}
