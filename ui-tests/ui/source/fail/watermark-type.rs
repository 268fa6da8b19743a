use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[derive(Default)]
struct ByHour;

#[source(topic = "clicks", key = UserId, value = Event, watermark = ByHour)]
struct Clicks;

fn main() {}
