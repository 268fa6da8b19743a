use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash)]
#[key(codec = Utf8)]
struct Gap(std::time::Duration);

fn main() {}
