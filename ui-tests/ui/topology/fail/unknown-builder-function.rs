use stoat_core::prelude::*;
use stoat_ui_tests::*;

fn more(_: &mut Topology) {}

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    events.discard();
    more(t);
}

fn main() {}
