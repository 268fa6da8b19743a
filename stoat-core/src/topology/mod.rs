//! What the user declares.
//!
//! A [`Topology`] collects nodes while the user's function runs; [`Topology::build`] checks it and makes the plain
//! [`Graph`](graph::Graph) of it. Nothing here runs records.

mod builder;
mod describe;
mod fragment;
pub mod graph;
mod grouped;
pub mod lane_state;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub use builder::{StaticGraph, StaticNode, Topology, TopologyFn};
pub use fragment::{Fragment, Streams};
#[doc(hidden)]
pub use fragment::{enter, leave};
pub use grouped::Grouped;
pub use stream::{Bind, Processed, Stream, bind_each};
pub use table::Table;

pub use crate::operator::fan_out::Branch;
