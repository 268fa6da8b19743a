use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P<'a> {
    name: &'a str,
}

fn main() {}
