use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Event, close_on_idle = "0s")]
struct Clicks;

fn main() {}
