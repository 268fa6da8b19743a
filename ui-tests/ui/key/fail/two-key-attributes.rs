use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
#[key(codec = Utf8)]
struct UserId(String);

fn main() {}
