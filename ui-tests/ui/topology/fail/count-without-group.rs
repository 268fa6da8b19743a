use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let counts = t.source::<Events>().count();
    counts.to_stream().discard();
}

fn main() {}
