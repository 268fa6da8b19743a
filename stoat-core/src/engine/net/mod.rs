//! The network of lanes: built from the graph, driven by a seeded scheduler or by tokio.

mod deterministic;
mod tokio;

pub use deterministic::DeterministicNet;
pub use tokio::TokioNet;

use std::sync::Arc;

use crate::error::Result;
use crate::operator::Child;
use crate::store::ByteStore;
use crate::time::{Timestamp, Watermark};
use crate::topology::graph::Graph;

/// What lanes are built from.
#[derive(Clone)]
pub struct NetBuild<'a> {
    /// The declared graph.
    pub graph: &'a Graph,
    /// The number of lanes of each sub-topology; at least one each.
    pub lane_counts: &'a [u32],
    /// All stores' bytes, by store id; restored: pending timers are loaded from them.
    pub stores: &'a [Arc<dyn ByteStore>],
    /// The sinks' topics, by sink id.
    pub sink_topics: Arc<[Arc<str>]>,
    /// The sinks' partition counts, by sink id.
    pub sink_partitions: Arc<[i32]>,
    /// The watermark that each sub-topology had reached at the last committed cut.
    pub watermarks: &'a [Watermark],
    /// The wall clock of the last tick before the start.
    pub wall: Timestamp,
    /// Bytes that all lanes together may keep in caches of clean entries.
    pub cache_budget: usize,
    /// Bounds and sizes.
    pub settings: NetSettings,
}

/// Bounds of a network of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetSettings {
    /// Batches that one sender may have outstanding at one receiving lane before it pauses.
    pub credit: u32,
    /// Records that a lane takes in one step, at most.
    pub step_records: usize,
    /// A lane reports the position of its pending event timer of this number (from 1) with each mark.
    pub timers_per_mark: usize,
}

impl Default for NetSettings {
    /// 8 batches, 256 records, 10,000 timers.
    fn default() -> Self {
        Self {
            credit: 8,
            step_records: 256,
            timers_per_mark: 10_000,
        }
    }
}

/// The place of each node, by node id, in the arena of its sub-topology's lanes. The plan puts a source's place into
/// [`LaneSource::entry`](crate::engine::message::LaneSource).
pub fn places(graph: &Graph) -> Vec<Child> {
    let mut next = vec![0; graph.subs as usize];
    graph
        .nodes
        .iter()
        .map(|n| {
            let place = &mut next[n.sub.0 as usize];
            *place += 1;
            Child(*place - 1)
        })
        .collect()
}

/// Lanes that are built and not yet driven.
pub struct Lanes {}

/// Builds the lanes of all sub-topologies: calls the factories and loads the pending timers.
///
/// # Errors
/// When a factory fails, a store cannot be read, or the graph is not what the builder makes.
pub fn build_lanes(_build: &NetBuild<'_>) -> Result<Lanes> {
    todo!()
}
