use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().group_by_key().count().named("counts");
}

fn main() {}
