use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Event, out_of_orderness = "10 parsecs")]
struct Clicks;

fn main() {}
