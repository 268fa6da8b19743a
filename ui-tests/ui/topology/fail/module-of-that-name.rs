use stoat_core::prelude::*;
use stoat_ui_tests::*;

mod pipeline {}

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().discard();
}

fn main() {}
