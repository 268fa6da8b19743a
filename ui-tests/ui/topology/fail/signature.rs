use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: Topology) -> u8 {
    0
}

fn main() {}
