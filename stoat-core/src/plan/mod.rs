//! The plan: the declared graph, made executable. Pure; golden-tested.
//!
//! It numbers the input partitions, groups the sub-topologies whose sources wait for each other, counts lanes and gives
//! each store its changelog.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::id::{NodeId, SinkId, StoreId, SubTopologyId, TopicPartition};
use crate::store::StoreKind;
use crate::topology::graph::{Graph, NodeKind};

/// An executable plan.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The application id, which names changelogs and the epoch topic.
    pub application_id: String,
    /// All input partitions; everything else names them by their place here.
    pub inputs: Vec<Input>,
    /// The sub-topologies, by id.
    pub subs: Vec<SubPlan>,
    /// The changelogs, by [`StoreId`].
    pub changelogs: Vec<Changelog>,
    /// The sinks' topics, by [`crate::id::SinkId`].
    pub sink_topics: Arc<[Arc<str>]>,
    /// The sinks' partition counts.
    pub sink_partitions: Vec<i32>,
    /// The sizes above which the broker refuses a sink's records, by [`crate::id::SinkId`]; empty: none is known.
    pub sink_limits: Vec<usize>,
    /// The place of the dead-letter topic among the sinks' topics, behind the sinks.
    pub letters: Option<SinkId>,
    /// Whether a handler may read other keys than its own: all lanes must then see stores change at one ingest number.
    pub peeks: bool,
}

/// One input partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its name.
    pub partition: TopicPartition,
    /// The place of its source in [`Graph::sources`].
    pub source: u32,
    /// The source's node.
    pub node: NodeId,
    /// The sub-topology it feeds.
    pub sub: SubTopologyId,
    /// Partitions of one group wait for each other: they feed one sub-topology, directly or not.
    pub group: u32,
}

/// One sub-topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubPlan {
    /// A stable name: that of its first node.
    pub name: String,
    /// The number of lanes.
    pub lanes: u32,
    /// Sub-topologies that hand over to it.
    pub feeders: Vec<SubTopologyId>,
    /// Whether ingest feeds it.
    pub has_sources: bool,
    /// Whether its lanes exchange timers for other keys at a barrier.
    pub foreign: bool,
}

/// The log of one store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changelog {
    /// The store.
    pub store: StoreId,
    /// The store's name.
    pub name: String,
    /// The store's layout.
    pub kind: StoreKind,
    /// The topic: `<application id>-<store>-changelog`.
    pub topic: Arc<str>,
    /// Its partition count when this application creates it: the largest count among the source topics upstream.
    pub partitions: i32,
    /// The key codec's identity.
    pub key_codec: String,
}

/// The topic of the epoch record.
pub fn epoch_topic(application_id: &str) -> Arc<str> {
    format!("{application_id}-stoat-epochs").into()
}

impl Plan {
    /// Makes the plan for a graph, given the partition counts of its topics.
    ///
    /// # Errors
    /// When a topic's count is missing, or the graph has no source.
    pub fn new(graph: &Graph, application_id: &str, lanes: u32, partitions: &BTreeMap<String, i32>) -> Result<Self> {
        let count = |topic: &str| {
            partitions.get(topic).copied().ok_or_else(|| {
                Error::new(ErrorKind::Topic, format!("the partition count of topic `{topic}` is not known"))
            })
        };
        if graph.sources.is_empty() && graph.schedules.is_empty() {
            return Err(Error::new(
                ErrorKind::Topology,
                format!("topology `{}` has no source: begin with `t.source::<S>()`", graph.name),
            ));
        }
        let subs = Self::subs(graph, lanes);
        let groups = Self::groups(&subs);
        let mut inputs = Vec::new();
        for (i, source) in graph.sources.iter().enumerate() {
            let sub = graph.nodes[source.node.0 as usize].sub;
            let topic: Arc<str> = source.topic.as_str().into();
            for partition in 0..count(&source.topic)? {
                inputs.push(Input {
                    partition: TopicPartition { topic: topic.clone(), partition },
                    source: i as u32,
                    node: source.node,
                    sub,
                    group: groups[sub.0 as usize],
                });
            }
        }
        let mut changelogs = Vec::new();
        for (i, store) in graph.stores.iter().enumerate() {
            let mut partitions = 1;
            for s in Self::upstream_sources(graph, store.owner) {
                partitions = partitions.max(count(&graph.sources[s as usize].topic)?);
            }
            changelogs.push(Changelog {
                store: StoreId(i as u32),
                name: store.name.clone(),
                kind: store.kind,
                topic: format!("{application_id}-{}-changelog", store.name).into(),
                partitions,
                key_codec: store.key_codec.clone(),
            });
        }
        let sink_partitions = graph.sinks.iter().map(|s| count(&s.topic)).collect::<Result<_>>()?;
        Ok(Self {
            application_id: application_id.to_owned(),
            inputs,
            subs,
            changelogs,
            sink_topics: graph.sinks.iter().map(|s| Arc::from(s.topic.as_str())).collect(),
            sink_partitions,
            sink_limits: Vec::new(),
            letters: None,
            peeks: graph.stores.iter().any(|s| s.peeks),
        })
    }

    /// Adds the topic that dead letters are written to.
    pub fn add_letters(&mut self, topic: &str, partitions: i32) {
        self.letters = Some(SinkId(self.sink_topics.len() as u32));
        self.sink_topics = self.sink_topics.iter().cloned().chain([Arc::from(topic)]).collect();
        self.sink_partitions.push(partitions);
    }

    fn subs(graph: &Graph, lanes: u32) -> Vec<SubPlan> {
        let mut subs: Vec<SubPlan> = (0..graph.subs)
            .map(|_| SubPlan {
                name: String::new(),
                lanes: lanes.max(1),
                feeders: Vec::new(),
                has_sources: false,
                foreign: false,
            })
            .collect();
        for node in &graph.nodes {
            let sub = &mut subs[node.sub.0 as usize];
            if sub.name.is_empty() {
                sub.name.clone_from(&node.name);
            }
            sub.has_sources |= matches!(node.kind, NodeKind::Source(_) | NodeKind::Schedule(_));
            sub.foreign |= node.stores.iter().any(|s| graph.stores[s.0 as usize].foreign);
            if node.kind == NodeKind::HandOver {
                for child in &node.children {
                    let to = &mut subs[graph.nodes[child.0 as usize].sub.0 as usize];
                    if !to.feeders.contains(&node.sub) {
                        to.feeders.push(node.sub);
                        to.feeders.sort_unstable();
                    }
                }
            }
        }
        subs
    }

    /// For each sub-topology, the smallest sub-topology that it is connected with by hand-overs, in either direction.
    fn groups(subs: &[SubPlan]) -> Vec<u32> {
        let mut group: Vec<u32> = (0..subs.len() as u32).collect();
        loop {
            let before = group.clone();
            for (i, sub) in subs.iter().enumerate() {
                for f in &sub.feeders {
                    let low = group[i].min(group[f.0 as usize]);
                    group[i] = low;
                    group[f.0 as usize] = low;
                }
            }
            if group == before {
                return group;
            }
        }
    }

    fn upstream_sources(graph: &Graph, node: NodeId) -> Vec<u32> {
        let (mut found, mut seen, mut todo) = (Vec::new(), vec![false; graph.nodes.len()], vec![node]);
        while let Some(n) = todo.pop() {
            if std::mem::replace(&mut seen[n.0 as usize], true) {
                continue;
            }
            let n = &graph.nodes[n.0 as usize];
            if let NodeKind::Source(s) = n.kind {
                found.push(s);
            }
            todo.extend(&n.parents);
        }
        found.sort_unstable();
        found
    }

    /// The number of lanes by sub-topology.
    pub fn lane_counts(&self) -> Vec<u32> {
        self.subs.iter().map(|s| s.lanes).collect()
    }
}
