use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let [a, b] = t.source::<Events>().fan_out();
    a.process::<Sessionize>().sink::<Sessions>();
    b.process::<Sessionize>().sink::<Sessions>();
}

fn main() {}
