use stoat_core::prelude::*;
use stoat_ui_tests::*;

struct Opaque;

#[source(topic = "clicks", key = UserId, value = Opaque)]
struct Clicks;

fn main() {}
