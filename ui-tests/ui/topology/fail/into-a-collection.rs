use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let mut all = Vec::new();
    let events = t.source::<Events>();
    all.push(events);
}

fn main() {}
