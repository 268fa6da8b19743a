use stoat_core::prelude::*;

#[topology]
fn pipeline(t: Topology) -> u8 {
    0
}

fn main() {}
