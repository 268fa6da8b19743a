use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    let later;
    later = events;
    later.discard();
}

fn main() {}
