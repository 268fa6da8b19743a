use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[sink(topic = "counts", key = UserId, value = u64, value_codec = Utf8)]
struct Counts;

fn main() {}
