use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
struct Place {
    city: String,
    #[serde(flatten)]
    more: std::collections::BTreeMap<String, String>,
}

fn main() {}
