use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Event, decode_only)]
struct Clicks;

fn main() {}
