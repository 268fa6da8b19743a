use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "events", key = UserId, value = Event, value_codec = Be)]
struct Counts;

fn main() {}
