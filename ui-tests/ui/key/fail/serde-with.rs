use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
struct Place {
    #[serde(serialize_with = "trimmed")]
    city: String,
}

fn trimmed<S: serde::Serializer>(s: &str, out: S) -> std::result::Result<S::Ok, S::Error> {
    out.serialize_str(s.trim())
}

fn main() {}
