use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[processor(output = Session)]
struct P;

fn main() {}
