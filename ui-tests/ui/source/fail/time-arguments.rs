use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "other", key = UserId, value = Event, monotonic = true, no_timestamp = skpi)]
struct Others;

fn main() {}
