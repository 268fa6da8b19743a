use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[fragment]
fn valid<L: 'static>(events: Stream<UserId, Event, L>) -> u32 {
    events.discard();
    1
}

fn main() {}
