use stoat_core::prelude::*;

#[derive(Key, Clone, Copy)]
#[key(codec = Json)]
union Id {
    number: u32,
    bytes: [u8; 4],
}

fn main() {}
