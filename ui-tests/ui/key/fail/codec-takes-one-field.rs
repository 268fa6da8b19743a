use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash)]
#[key(codec = Utf8)]
struct Place {
    city: String,
    street: String,
}

fn main() {}
