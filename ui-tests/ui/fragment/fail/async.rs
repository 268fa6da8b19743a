use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[fragment]
async fn valid<L: 'static>(events: Stream<UserId, Event, L>) -> Stream<UserId, Event, L> {
    events
}

fn main() {}
