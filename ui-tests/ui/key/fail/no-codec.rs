use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct UserId(String);

fn main() {}
