use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = clicks, key = UserId, value = Event)]
struct Clicks;

fn main() {}
