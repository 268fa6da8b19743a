use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

#[derive(Key, Clone, PartialEq, Serialize, Deserialize)]
#[key(codec = Json)]
struct Price {
    amount: f64,
}

impl Eq for Price {}
impl std::hash::Hash for Price {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

fn main() {}
