use stoat_core::prelude::*;
use stoat_ui_tests::*;

struct Opaque;

#[sink(topic = "out", key = UserId, value = Opaque)]
struct Out;

fn main() {}
