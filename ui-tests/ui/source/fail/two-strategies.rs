use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Event, monotonic, out_of_orderness = "10s")]
struct Clicks;

fn main() {}
