use stoat_core::prelude::*;
use stoat_ui_tests::*;

fn helper<S>(_: S) {}

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    helper(events);
}

fn main() {}
