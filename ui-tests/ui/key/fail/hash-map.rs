use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[key(codec = Json)]
struct Tags(std::collections::HashMap<String, String>);

impl std::hash::Hash for Tags {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

fn main() {}
