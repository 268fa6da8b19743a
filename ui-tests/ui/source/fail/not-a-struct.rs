use stoat_core::prelude::*;

#[source(topic = "clicks", key = UserId, value = Event)]
enum Clicks {}

fn main() {}
