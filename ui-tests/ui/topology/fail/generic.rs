use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline<S: Source>(t: &mut Topology) {
    t.source::<S>().discard();
}

fn main() {}
