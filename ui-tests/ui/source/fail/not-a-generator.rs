use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[derive(Default)]
struct Punctuated;

#[source(topic = "clicks", key = UserId, value = Event, watermark = Punctuated)]
struct Clicks;

fn main() {}
