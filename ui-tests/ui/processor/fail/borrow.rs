use stoat_core::prelude::*;

#[processor(input = (String, u64), output = u64)]
struct P<'a> {
    name: &'a str,
}

fn main() {}
