//! Newtypes of the engine's vocabulary.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// One slice of a topic's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Names a partition.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.topic, self.partition)
    }
}

/// The position of one record in its partition.
pub type Offset = i64;

/// The first position that is *not yet* processed; this is what is committed.
pub type NextOffset = i64;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

id!(
    /// The work between two barriers; counts from 1 over the life of the application id.
    Epoch(u64)
);
id!(
    /// One life of the engine inside one process; stores take writes only from the newest.
    Generation(u64)
);
id!(
    /// A node of the topology, in the order of declaration.
    NodeId(u32)
);
id!(
    /// A store of the topology, in the order of declaration.
    StoreId(u32)
);
id!(
    /// A part of the graph between two boundaries. Its number is its *stage*: feeders have smaller numbers.
    SubTopologyId(u32)
);
id!(
    /// One lane of one sub-topology, from 0.
    LaneIdx(u32)
);
id!(
    /// A sink of the topology, in the order of declaration.
    SinkId(u32)
);

/// A lane's name: `{sub-topology}_{lane}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneId {
    /// The sub-topology.
    pub sub: SubTopologyId,
    /// The lane in it.
    pub lane: LaneIdx,
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.sub, self.lane)
    }
}
