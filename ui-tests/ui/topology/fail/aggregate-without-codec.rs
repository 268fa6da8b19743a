use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    let moved = events.select_key(|_, e| Region(e.region.clone()));
    let counts = moved.group_by_key().count();
    counts.to_stream().discard();
}

fn main() {}
