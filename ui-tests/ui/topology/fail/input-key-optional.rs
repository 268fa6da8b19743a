use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "events", key = Option<UserId>, value = Event)]
struct Some;

#[topology]
fn events(t: &mut Topology) {
    let events = t.source::<Some>();
    events.process::<Sessionize>().sink::<Sessions>();
}

fn main() {}
