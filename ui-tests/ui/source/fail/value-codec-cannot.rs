use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "counts", key = UserId, value = u64, value_codec = Utf8)]
struct Counts;

fn main() {}
