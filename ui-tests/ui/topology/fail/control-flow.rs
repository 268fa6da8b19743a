use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    if cfg!(debug_assertions) {
        events.discard();
    } else {
        events.for_each(|_, _| {});
    }
}

fn main() {}
