use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>().map_values(|_| Order { cents: 1 });
    events.process::<Sessionize>().sink::<Sessions>();
}

fn main() {}
