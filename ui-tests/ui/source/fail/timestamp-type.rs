use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Event, timestamp = |r| i64::from(r.value.count))]
struct Clicks;

fn main() {}
