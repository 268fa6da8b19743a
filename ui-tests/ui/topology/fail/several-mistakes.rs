use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "raw", value = Event)]
struct Raw;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    let orders = t.source::<Orders>();
    t.source::<Raw>().map_values(|v| v);
}

fn main() {}
