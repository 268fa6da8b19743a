use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[fragment]
fn valid<L: 'static>(events: Stream<UserId, Event, L>) {
    events.filter(|_, e| e.count > 0);
}

fn main() {}
