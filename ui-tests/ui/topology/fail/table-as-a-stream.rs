use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let counts = t.source::<Events>().group_by_key().count();
    counts.discard();
}

fn main() {}
