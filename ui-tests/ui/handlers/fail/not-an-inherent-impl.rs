use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(input = (UserId, Event), output = Session)]
struct P;

#[handlers]
impl Clone for P {}

fn main() {}
