use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "old", key = UserId, key_codec = Legacy, value = Event, decode_only)]
struct Old;

#[topology]
fn pipeline(t: &mut Topology) {
    let counts = t.source::<Old>().group_by_key().count();
    counts.to_stream().discard();
}

fn main() {}
