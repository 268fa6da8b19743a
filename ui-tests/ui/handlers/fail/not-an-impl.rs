use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[handlers]
struct P;

fn main() {}
