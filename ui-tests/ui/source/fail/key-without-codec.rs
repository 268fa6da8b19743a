use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = Region, value = Event)]
struct Clicks;

fn main() {}
