use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    let moved = events.select_key(|_, e| UserId(e.region.clone()));
    moved.process::<Sessionize>().sink::<Sessions>();
}

fn main() {}
