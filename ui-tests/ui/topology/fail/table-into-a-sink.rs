use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn events(t: &mut Topology) {
    let events = t.source::<Events>();
    let counts = events.group_by_key().count();
    counts.sink::<Sessions>();
}

fn main() {}
