use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn events(t: &mut Topology) {
    let events = t.source(Events);
    let sessions = events.process(Sessionize);
    sessions.sink(Sessions);
}

fn main() {}
