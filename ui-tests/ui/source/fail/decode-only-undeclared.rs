use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, key_codec = Legacy, value = Event)]
struct Clicks;

fn main() {}
