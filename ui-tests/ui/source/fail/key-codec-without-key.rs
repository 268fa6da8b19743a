use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key_codec = Utf8, value = Event)]
struct Clicks;

fn main() {}
