use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
struct Pipeline;

fn main() {}
