//! The network of lanes: built from the graph, driven by a seeded scheduler or by tokio.

mod deterministic;
#[cfg(test)]
mod fixture;
#[cfg(any(test, feature = "testing"))]
pub mod recording;
#[cfg(test)]
mod tests;
mod tokio;
#[cfg(test)]
mod typed_tests;
mod wiring;

pub use deterministic::DeterministicNet;
pub use tokio::TokioNet;

use std::sync::Arc;
use std::time::Duration;

use self::wiring::{Edge, Wiring, Worker};
use super::lane::{Lane, LaneParts};
use crate::affinity::{LaneChecks, LanePlace};
use crate::config::EmitMode;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Gates;
use crate::id::{LaneId, LaneIdx, SubTopologyId};
use crate::operator::Child;
use crate::store::ByteStore;
use crate::time::{Now, Timestamp, Watermark};
use crate::topology::graph::{Graph, LaneBuild, Node, NodeKind};

/// What lanes are built from.
#[derive(Clone)]
pub struct NetBuild<'a> {
    /// The declared graph.
    pub graph: &'a Graph,
    /// The number of lanes of each sub-topology; at least one each.
    pub lane_counts: &'a [u32],
    /// All stores' bytes, by store id; restored.
    pub stores: &'a [Arc<dyn ByteStore>],
    /// The sinks' topics, by sink id.
    pub sink_topics: Arc<[Arc<str>]>,
    /// The sinks' partition counts, by sink id.
    pub sink_partitions: Arc<[i32]>,
    /// The watermark that each sub-topology had reached at the last committed cut.
    pub watermarks: &'a [Watermark],
    /// Up to which watermark each sub-topology's event-time punctuators had been called there.
    pub punctuated: &'a [Watermark],
    /// The wall clock of the last tick before the start.
    pub wall: Timestamp,
    /// Bytes that all lanes together may keep in caches of clean entries.
    pub cache_budget: usize,
    /// What becomes of records that fail.
    pub gates: Arc<Gates>,
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
    /// The checks of lane affinity.
    pub checks: LaneChecks,
    /// When aggregations hand on what has changed.
    pub emit: EmitMode,
    /// How long a handler may wait.
    pub handler_timeout: Duration,
}

impl Default for NetSettings {
    /// 8 batches, 256 records, 10,000 timers, updates at once, 30 s.
    fn default() -> Self {
        Self {
            credit: 8,
            step_records: 256,
            timers_per_mark: 10_000,
            checks: LaneChecks::default(),
            emit: EmitMode::Eager,
            handler_timeout: Duration::from_secs(30),
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
pub struct Lanes {
    workers: Vec<Worker>,
    /// The first lane of each sub-topology in `workers`; behind the last their number.
    first: Vec<usize>,
    settings: NetSettings,
    /// Whether any lane follows the wall clock.
    ticks: bool,
}

/// Builds the lanes of all sub-topologies.
///
/// # Errors
/// When a factory fails, or the graph is not what the builder makes.
pub fn build_lanes(build: &NetBuild<'_>) -> Result<Lanes> {
    let graph = build.graph;
    let subs = graph.subs as usize;
    if build.lane_counts.len() != subs
        || build.watermarks.len() != subs
        || build.punctuated.len() != subs
        || build.lane_counts.contains(&0)
    {
        return Err(defect(format!(
            "{subs} sub-topologies, but lane counts {:?} and watermarks {:?}",
            build.lane_counts, build.watermarks
        )));
    }
    let wiring = Wiring::new(graph, build.lane_counts)?;
    let places = places(graph);
    let all: u32 = build.lane_counts.iter().sum();
    let mut workers = Vec::with_capacity(all as usize);
    for sub in 0..subs {
        let nodes: Vec<&Node> = graph.nodes.iter().filter(|n| n.sub.0 as usize == sub).collect();
        let names: Arc<[String]> = nodes.iter().map(|n| n.name.clone()).collect();
        let edges: Vec<&Edge> = wiring.edges.iter().filter(|e| e.from == sub).collect();
        for lane in 0..build.lane_counts[sub] {
            let lanes = build.lane_counts[sub];
            let place = (lanes > 1).then(|| Arc::new(LanePlace::new(lane, lanes, build.settings.checks)));
            let mut arena = Vec::with_capacity(nodes.len());
            for node in &nodes {
                let hand_over = node.kind == NodeKind::HandOver;
                let children =
                    if hand_over { Vec::new() } else { node.children.iter().map(|c| places[c.0 as usize]).collect() };
                let receiving = wiring.edges.iter().find(|e| e.node == node.id);
                let operator = (node.factory)(&LaneBuild {
                    node,
                    lane: LaneIdx(lane),
                    lanes: build.lane_counts[sub],
                    children,
                    receiving_lanes: receiving.map_or(0, |e| build.lane_counts[e.to]),
                    stores: build.stores,
                    cache: build.cache_budget / all as usize,
                    place: place.as_ref(),
                    on_barrier: build.settings.emit == EmitMode::OnBarrier,
                })
                .map_err(|e| e.at(format!("node `{}`", node.name)))?;
                arena.push(Some(operator));
            }
            let lane = Lane::new(LaneParts {
                id: LaneId { sub: SubTopologyId(sub as u32), lane: LaneIdx(lane) },
                lanes: build.lane_counts[sub],
                nodes: arena,
                names: names.clone(),
                outbounds: edges.iter().map(|e| places[e.node.0 as usize].0 as usize).collect(),
                sink_topics: build.sink_topics.clone(),
                sink_partitions: build.sink_partitions.clone(),
                now: Now { watermark: build.watermarks[sub], wall: build.wall },
                punctuated: build.punctuated[sub],
                foreign: graph.stores.iter().any(|s| s.foreign && s.sub.0 as usize == sub),
                timers_per_mark: build.settings.timers_per_mark,
                place,
                cache_budget: build.cache_budget / all as usize,
                gates: build.gates.clone(),
            });
            workers.push(wiring.worker(lane));
        }
    }
    Ok(Lanes {
        ticks: workers.iter_mut().any(|w: &mut Worker| w.lane.wants_ticks()),
        workers,
        first: wiring.first,
        settings: build.settings,
    })
}

impl Lanes {
    fn flat(&self, lane: LaneId) -> usize {
        self.first[lane.sub.0 as usize] + lane.lane.0 as usize
    }
}

fn defect(text: String) -> Error {
    Error::new(ErrorKind::Internal, text)
}
