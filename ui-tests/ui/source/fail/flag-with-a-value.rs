use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "old", key = UserId, key_codec = Legacy, value = Event, decode_only = true)]
struct Old;

fn main() {}
