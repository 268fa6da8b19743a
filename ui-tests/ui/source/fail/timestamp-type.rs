use stoat_core::prelude::*;
use stoat_ui_tests::*;

fn seconds(r: &Record<UserId, Event>) -> u64 {
    7
}

#[source(topic = "clicks", key = UserId, value = Event, timestamp = seconds)]
struct Clicks;

fn of_another(r: &Record<UserId, String>) -> Timestamp {
    r.timestamp
}

#[source(topic = "others", key = UserId, value = Event, timestamp = of_another)]
struct Others;

fn main() {}
