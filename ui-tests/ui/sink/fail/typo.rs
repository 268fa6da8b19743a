use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[sink(topic = "out", key = UserId, valeu = Event)]
struct Out;

fn main() {}
