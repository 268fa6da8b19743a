use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "events", key = UserId, value = Event)]
struct Again;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().discard();
    t.source::<Again>().discard();
}

fn main() {}
