use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[fragment]
struct Valid;

fn main() {}
