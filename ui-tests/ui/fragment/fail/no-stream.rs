use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[fragment]
fn valid(limit: u32) -> u32 {
    limit
}

fn main() {}
