//! Tags: the place of everything in ingest order.

use smallvec::SmallVec;

use crate::id::SubTopologyId;
use crate::time::Timestamp;

/// Ingest number, then the path of emission. Every sender sends in rising order of tags; a lane with several inputs
/// and the committer take them in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tag {
    /// The ingest number of the record, mark, tick or barrier that all this comes from.
    pub number: u64,
    /// The path of emission below that number.
    pub path: Path,
}

impl Tag {
    /// The tag of a record as ingest dispatches it.
    pub fn record(number: u64) -> Self {
        Self { number, path: Path::default() }
    }

    /// The tag of a mark, tick, barrier or applied epoch itself: the last of its number.
    pub fn control(number: u64) -> Self {
        Self { number, path: Path::end() }
    }
}

/// A path of emission, as bytes that compare as the path does.
///
/// What a record causes: one 4-byte ordinal per emission that needs telling apart. What a mark, tick or barrier causes
/// begins with stage, time, key and count. The control message itself comes last.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path(SmallVec<[u8; 16]>);

impl Path {
    /// Behind every other path of its number.
    pub fn end() -> Self {
        Self(SmallVec::from_slice(&[0xff]))
    }

    /// The smallest path of what a mark, tick or barrier causes in a stage.
    pub fn stage(stage: SubTopologyId) -> Self {
        Self(SmallVec::from_slice(&stage.0.to_be_bytes()))
    }

    /// What a timer causes: the stage of its sub-topology, its time (or that of the timer that set it, where that is
    /// later), its key, the how-manyth firing of that key under this number.
    pub fn fired(stage: SubTopologyId, time: Timestamp, key: &[u8], count: u32) -> Self {
        let mut p = Self::default();
        p.set_fired(stage, time, key, count);
        p
    }

    /// Makes this [`Path::fired`], in the memory that it has.
    pub fn set_fired(&mut self, stage: SubTopologyId, time: Timestamp, key: &[u8], count: u32) {
        self.0.clear();
        self.0.extend_from_slice(&stage.0.to_be_bytes());
        self.0.extend_from_slice(&((time.0 as u64) ^ (1 << 63)).to_be_bytes());
        self.key(key);
        self.0.extend_from_slice(&count.to_be_bytes());
    }

    /// What a punctuator causes, once per key and behind all timers of its tick.
    pub fn punctuated(stage: SubTopologyId, key: &[u8], node: u32, which: u32) -> Self {
        let mut p = Self::stage(stage);
        p.0.extend_from_slice(&u64::MAX.to_be_bytes());
        p.key(key);
        p.0.extend_from_slice(&node.to_be_bytes());
        p.0.extend_from_slice(&which.to_be_bytes());
        p
    }

    /// What a barrier makes a node emit for a key.
    pub fn on_barrier(stage: SubTopologyId, node: u32, key: &[u8]) -> Self {
        let mut p = Self::stage(stage);
        p.0.extend_from_slice(&node.to_be_bytes());
        p.key(key);
        p
    }

    /// A key, escaped so that a key that is a prefix of another sorts before it whatever follows.
    fn key(&mut self, key: &[u8]) {
        for &b in key {
            self.0.push(b);
            if b == 0 {
                self.0.push(0xff);
            }
        }
        self.0.extend_from_slice(&[0, 0]);
    }

    /// Goes one emission down; returns what [`Path::truncate`] needs to come back.
    #[inline]
    pub fn descend(&mut self, ordinal: u32) -> usize {
        let len = self.0.len();
        self.0.extend_from_slice(&ordinal.to_be_bytes());
        len
    }

    /// Comes back from [`Path::descend`].
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Whether this is the path of a record as ingest dispatched it.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}
