//! What the user declares.

pub mod graph;
