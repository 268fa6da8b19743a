use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
#[serde(untagged)]
enum Id {
    Number(u64),
    Other(u64),
}

fn main() {}
