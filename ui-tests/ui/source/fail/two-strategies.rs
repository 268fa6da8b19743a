use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Event, monotonic, out_of_orderness = "10s")]
struct Clicks;

#[source(topic = "other", key = UserId, value = Event, monotonic = true, close_on_idle = "0s", no_timestamp = skpi)]
struct Others;

fn main() {}
