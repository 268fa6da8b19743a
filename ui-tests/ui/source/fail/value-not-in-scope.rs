use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[source(topic = "clicks", key = UserId, value = Vec<Clik>, value_codec = Json)]
struct Clicks;

fn main() {}
