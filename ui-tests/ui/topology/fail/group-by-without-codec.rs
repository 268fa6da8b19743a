use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().group_by(|r| Region(r.value.region.clone())).count().discard();
}

fn main() {}
