use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "old", key = UserId, key_codec = Legacy, value = Event, decode_only)]
struct Old;

#[topology]
fn pipeline(t: &mut Topology) {
    t.source::<Old>().process::<Sessionize>().sink::<Sessions>();
}

fn main() {}
