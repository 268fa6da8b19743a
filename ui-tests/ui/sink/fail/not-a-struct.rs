use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[sink(topic = "sessions", key = UserId, value = Session)]
fn sessions() {}

fn main() {}
