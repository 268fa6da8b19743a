use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "events", key = UserId, key_codec = Json, value = Event)]
struct Raw;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().discard();
    t.source::<Raw>().discard();
}

fn main() {}
