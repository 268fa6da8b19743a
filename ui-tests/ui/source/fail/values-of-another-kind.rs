use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, key_codec = "utf-8", value = Event, value_codec = "json", idleness = 10)]
struct Clicks;

fn main() {}
