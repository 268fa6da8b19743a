//! The declared graph: plain data that the builder writes and the plan reads.

use std::fmt;
use std::sync::Arc;

use crate::codec::CodecError;
use crate::error::Result;
use crate::gate::Handlers;
use crate::id::{LaneIdx, NodeId, SinkId, StoreId, SubTopologyId};
use crate::operator::{Child, Operator};
use crate::store::{ByteStore, StoreKind};
use crate::time::WatermarkStrategy;

/// A topology as declared. Node ids are indices, parents have smaller ids than their children.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// The topology's name.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The sources, in the order of declaration.
    pub sources: Vec<SourceDecl>,
    /// The sinks, by [`SinkId`].
    pub sinks: Vec<SinkDecl>,
    /// The stores, by [`StoreId`].
    pub stores: Vec<StoreDecl>,
    /// What the topology decides about records that fail.
    pub handlers: Handlers,
    /// The number of sub-topologies; ids are stages: feeders have smaller numbers.
    pub subs: u32,
}

/// A node of the graph.
#[derive(Clone)]
pub struct Node {
    /// Its id.
    pub id: NodeId,
    /// Its stable name.
    pub name: String,
    /// What it is.
    pub kind: NodeKind,
    /// The sub-topology that it runs in. A hand-over runs in the sending one; its child is in the receiving one.
    pub sub: SubTopologyId,
    /// The nodes it is fed by.
    pub parents: Vec<NodeId>,
    /// The nodes it feeds.
    pub children: Vec<NodeId>,
    /// The stores it owns.
    pub stores: Vec<StoreId>,
    /// Makes the operator for one lane.
    pub factory: Factory,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("kind", &self.kind)
            .field("sub", &self.sub)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}

/// Makes one lane's instance of an operator.
pub type Factory = Arc<dyn Fn(&LaneBuild<'_>) -> Result<Box<dyn Operator>> + Send + Sync>;

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Reads a topic; the place in [`Graph::sources`].
    Source(u32),
    /// Stateless steps, fused.
    Stateless,
    /// Gives each record to several children.
    FanOut,
    /// Several inputs of one sub-topology become one.
    Merge,
    /// A user's processor.
    Processor,
    /// A built-in operator with state.
    Aggregate,
    /// Hands records over to the lanes of another sub-topology.
    HandOver,
    /// Writes a topic.
    Sink(SinkId),
    /// Ends a stream in user code.
    ForEach,
}

/// A topic that is read.
#[derive(Clone, Debug)]
pub struct SourceDecl {
    /// The node.
    pub node: NodeId,
    /// The topic.
    pub topic: String,
    /// Which bytes pick the lane.
    pub lane_key: LaneKey,
    /// How its watermark follows its records.
    pub watermark: WatermarkStrategy,
    /// The key codec's identity.
    pub key_codec: String,
    /// The value codec's identity.
    pub value_codec: String,
}

/// Which bytes of a source's key pick the lane.
#[derive(Clone, Copy)]
pub enum LaneKey {
    /// The raw bytes: the codec is canonical (or can only decode).
    Raw,
    /// Decoded and encoded again by this function, which appends to its second argument.
    Reencoded(fn(&[u8], &mut Vec<u8>) -> Result<(), CodecError>),
}

impl fmt::Debug for LaneKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Raw => "Raw",
            Self::Reencoded(_) => "Reencoded",
        })
    }
}

/// A topic that is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkDecl {
    /// The node.
    pub node: NodeId,
    /// The topic.
    pub topic: String,
    /// The key codec's identity.
    pub key_codec: String,
    /// The value codec's identity.
    pub value_codec: String,
}

/// A store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreDecl {
    /// Its stable name, which names its changelog.
    pub name: String,
    /// Its layout.
    pub kind: StoreKind,
    /// The node that owns it.
    pub owner: NodeId,
    /// The sub-topology it lives in.
    pub sub: SubTopologyId,
    /// The key codec's identity.
    pub key_codec: String,
    /// Whether timers of other keys are written (`#[timer(foreign)]`).
    pub foreign: bool,
    /// Whether other keys are read (`KeyValueStore`).
    pub peeks: bool,
}

/// What a factory knows about the lane that it builds for.
pub struct LaneBuild<'a> {
    /// The node that is built.
    pub node: &'a Node,
    /// The lane.
    pub lane: LaneIdx,
    /// The number of lanes of the node's sub-topology.
    pub lanes: u32,
    /// The places of the node's children in the arena (empty for a hand-over and for ends).
    pub children: Vec<Child>,
    /// For a hand-over: the number of lanes of the receiving sub-topology.
    pub receiving_lanes: u32,
    /// All stores' bytes, by [`StoreId`].
    pub stores: &'a [Arc<dyn ByteStore>],
}
