use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[sink(topic = "out", key = UserId, value = Event, idleness = "1s")]
struct Out;

fn main() {}
