use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Event, topic = "more")]
struct Clicks;

fn main() {}
