use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, key_codec = Be, value = Event)]
struct Clicks;

fn main() {}
