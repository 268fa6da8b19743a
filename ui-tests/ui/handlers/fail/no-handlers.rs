use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct Bare;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Events>().process::<Bare>().sink::<Sessions>();
}

fn main() {}
