use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let [a, _] = t.source::<Events>().fan_out();
    a.discard();
}

fn main() {}
