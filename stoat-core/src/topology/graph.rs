//! The declared graph: plain data that the builder writes and the plan reads.

use std::fmt;
use std::sync::Arc;

use crate::codec::{Codec, CodecError, Decode, Encode, codec_id};
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Deciders;
use crate::id::{LaneIdx, NodeId, SinkId, StoreId, SubTopologyId};
use crate::operator::{Child, Operator};
use crate::schedule::{Emitter, Reads, Timetable};
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
    /// The scheduled sources, in the order of declaration.
    pub schedules: Vec<ScheduleDecl>,
    /// The sinks, by [`SinkId`].
    pub sinks: Vec<SinkDecl>,
    /// The stores, by [`StoreId`].
    pub stores: Vec<StoreDecl>,
    /// What the topology decides about records that fail.
    pub handlers: Deciders,
    /// The number of sub-topologies; ids are stages: feeders have smaller numbers.
    pub subs: u32,
    /// The nodes that fragments have made, each with the name of its fragment's place.
    pub fragments: Vec<(NodeId, String)>,
    /// Stores whose keys may be written anew at start.
    pub reencode: Vec<Reencode>,
}

impl Graph {
    /// Lets the next start write the keys of a store anew with the codec that it is declared with, where they were written
    /// with `Old`; see [`App::reencode`](crate::app::App::reencode).
    ///
    /// # Errors
    /// When there is no such store, or its keys are not declared with `New`.
    pub fn reencode<K: 'static, Old: Decode<K>, New: Encode<K>>(&mut self, store: &str) -> Result<()> {
        let error = |text| Err(Error::new(ErrorKind::Topology, text));
        let Some(decl) = self.stores.iter().find(|s| s.name == store) else {
            let names: Vec<&str> = self.stores.iter().map(|s| s.name.as_str()).collect();
            return error(format!("there is no store `{store}` to re-encode; there are: {}", names.join(", ")));
        };
        if decl.key_codec != codec_id::<New>() {
            return error(format!(
                "the keys of store `{store}` are written with {}, but they are to be re-encoded with {}: name the codec of \
                 the topology's key type second",
                decl.key_codec,
                codec_id::<New>()
            ));
        }
        self.reencode.push(Reencode {
            store: store.to_owned(),
            from: codec_id::<Old>(),
            key: |old, new| New::encode(&Old::decode(old)?, new),
        });
        Ok(())
    }
}

/// How the keys of a store that another codec wrote are written anew.
#[derive(Clone)]
pub struct Reencode {
    /// The store.
    pub store: String,
    /// The identity of the codec that wrote them.
    pub from: String,
    /// Reads a key of that codec and appends it as the declared codec writes it.
    pub key: fn(&[u8], &mut Vec<u8>) -> Result<(), CodecError>,
}

impl fmt::Debug for Reencode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reencode").field("store", &self.store).field("from", &self.from).finish_non_exhaustive()
    }
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
    /// Emits by the clock; the place in [`Graph::schedules`].
    Schedule(u32),
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

/// A source without a topic.
#[derive(Clone, Debug)]
pub struct ScheduleDecl {
    /// The node.
    pub node: NodeId,
    /// The name under which its last tick is kept.
    pub name: String,
    /// When it ticks.
    pub timetable: Timetable,
    /// The stores that it reads, as it says.
    pub reads: &'static [Reads],
    /// The same by [`StoreId`], once the graph is built.
    pub stores: Vec<StoreId>,
    /// Emits the records of a tick.
    pub emit: Emitter,
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
    /// What its values are; `None`: it holds timers.
    pub value: Option<ValueDecl>,
    /// Whether timers of other keys are written (`#[timer(foreign)]`).
    pub foreign: bool,
    /// Whether other keys are read (`KeyValueStore`).
    pub peeks: bool,
}

/// What a store's values are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueDecl {
    /// Their type.
    pub ty: &'static str,
    /// The codec's identity.
    pub codec: String,
}

impl ValueDecl {
    /// Values of type `V`, written by `C`.
    pub fn of<V, C: Codec>() -> Self {
        Self { ty: std::any::type_name::<V>(), codec: codec_id::<C>() }
    }
}

impl fmt::Display for ValueDecl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` with {}", self.ty, self.codec)
    }
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
    /// Bytes that the lane may keep in memory beside what is not committed.
    pub cache: usize,
    /// The lane's place, for the checks of [`affinity`](crate::affinity); `None`: the only lane.
    pub place: Option<&'a Arc<crate::affinity::LanePlace>>,
    /// Whether aggregations hand on what has changed at barriers only.
    pub on_barrier: bool,
}
