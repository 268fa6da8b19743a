//! Tags: the place of everything in ingest order.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::id::SubTopologyId;
use crate::record::pool::Pool;
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

/// The tags of a lane's outputs, in rising order. Most have no path, and those take 8 bytes each.
#[derive(Clone, Debug, Default)]
pub struct Tags {
    numbers: Vec<u64>,
    /// Those that have a path, by place.
    paths: Vec<(u32, Path)>,
    /// Bytes of paths that are too long to lie in place.
    spilled: usize,
    /// Where the buffer goes in the end.
    home: Option<Arc<Pool<u64>>>,
}

impl Drop for Tags {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.put((Vec::new(), std::mem::take(&mut self.numbers)));
        }
    }
}

impl Tags {
    /// Makes an empty list of a used buffer, which goes back in the end.
    pub(crate) fn reusing(home: &Arc<Pool<u64>>) -> Self {
        Self { numbers: home.take().1, paths: Vec::new(), spilled: 0, home: Some(Arc::clone(home)) }
    }

    /// Appends a tag.
    #[inline]
    pub fn push(&mut self, number: u64, path: &Path) {
        if !path.is_root() {
            self.spilled += path.spilled();
            self.paths.push((self.numbers.len() as u32, path.clone()));
        }
        self.numbers.push(number);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Bytes held.
    pub fn weight(&self) -> usize {
        self.numbers.len() * size_of::<u64>() + self.paths.len() * size_of::<(u32, Path)>() + self.spilled
    }

    /// All of them, one after the other.
    pub fn iter(&self) -> impl Iterator<Item = Tag> {
        let mut at = self.cursor();
        std::iter::from_fn(move || {
            let tag = Tag { number: at.number()?, path: at.path().cloned().unwrap_or_default() };
            at.advance();
            Some(tag)
        })
    }

    /// The tag of the `i`-th output.
    pub fn get(&self, i: usize) -> Option<Tag> {
        let number = *self.numbers.get(i)?;
        let path = self.paths.binary_search_by_key(&(i as u32), |(at, _)| *at);
        Some(Tag { number, path: path.map_or_else(|_| Path::default(), |p| self.paths[p].1.clone()) })
    }

    /// Begins at the first.
    pub fn cursor(&self) -> TagCursor<'_> {
        TagCursor { tags: self, at: 0, path: 0 }
    }
}

/// A place in [`Tags`].
#[derive(Clone, Copy, Debug)]
pub struct TagCursor<'a> {
    tags: &'a Tags,
    at: usize,
    path: usize,
}

impl<'a> TagCursor<'a> {
    /// Which tag it is at.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// The number; `None` behind the last.
    #[inline]
    pub fn number(&self) -> Option<u64> {
        self.tags.numbers.get(self.at).copied()
    }

    /// The path; `None` is the root, which comes before all others.
    #[inline]
    pub fn path(&self) -> Option<&'a Path> {
        self.tags.paths.get(self.path).filter(|(i, _)| *i as usize == self.at).map(|(_, p)| p)
    }

    /// Goes to the next.
    #[inline]
    pub fn advance(&mut self) {
        if self.path().is_some() {
            self.path += 1;
        }
        self.at += 1;
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

    /// Bytes that do not lie in place.
    fn spilled(&self) -> usize {
        if self.0.spilled() { self.0.len() } else { 0 }
    }

    /// Whether this is the path of a record as ingest dispatched it.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }
}
