use stoat_core::prelude::*;
use stoat_ui_tests::*;

struct Plain;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().process::<Plain>().sink::<Sessions>();
}

fn main() {}
