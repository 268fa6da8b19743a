use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>().named("input");
    let orders = t.source::<Orders>().named("input");
    events.discard();
    orders.discard();
}

fn main() {}
