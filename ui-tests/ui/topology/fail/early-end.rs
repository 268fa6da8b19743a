use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let events = t.source::<Events>();
    events.discard();
    if cfg!(debug_assertions) {
        return;
    }
    t.source::<Orders>().discard();
}

fn main() {}
