//! Local state as bytes: a cache of the changelogs.
//!
//! A store is written only by [`ByteStore::apply`], one atomic batch per epoch, each with the stamp that says what the
//! store then holds. What survives a crash is the state of *some* applied batch; the changelog's tail does the rest.

#[cfg(feature = "rocksdb")]
mod directory;
pub mod layout;
pub mod memory;
pub mod restore;
#[cfg(feature = "rocksdb")]
pub mod rocks;
#[cfg(any(test, feature = "testing"))]
pub mod twin;

pub(crate) mod current;
mod estimate;
mod key_value;
mod keyed;
pub(crate) mod merge;
pub(crate) mod overlay;
#[cfg(test)]
mod tests;
mod timers;
pub(crate) mod values;

pub use key_value::KeyValueStore;
pub use keyed::Keyed;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::id::{Epoch, Generation, NextOffset};
use crate::time::Timestamp;

/// What a store's rows look like in its changelog and on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StoreKind {
    /// Key → value. As Kafka Streams' plain key-value store.
    KeyValue,
    /// Key → value with timestamp: the changelog has the value alone and the timestamp as the record's; locally 8 bytes
    /// of big-endian timestamp stand in front of the value. As Kafka Streams' timestamped key-value store.
    TimestampedKeyValue,
    /// Key → 8 bytes of big-endian time: one pending timer per key. Our own.
    Timer,
    /// Key and 8 bytes of big-endian time → nothing: many pending timers per key. Our own.
    Timers,
}

/// A write: what one changelog record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key as in the changelog.
    pub key: Vec<u8>,
    /// How many of the key's first bytes are the lane key: they choose the changelog's partition.
    pub lane_key: usize,
    /// The value as in the changelog; `None` deletes.
    pub value: Option<Vec<u8>>,
    /// The changelog record's timestamp.
    pub timestamp: Timestamp,
}

/// What a store holds: which epoch, up to which changelog offsets, when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// The epoch of the last batch.
    pub epoch: Epoch,
    /// Wall clock when the batch was applied, in ms: see I-11 for why a stamp grows too old.
    pub time: Timestamp,
    /// The broker's id of the changelog topic that the offsets belong to.
    pub topic_id: String,
    /// The next changelog offset, by partition.
    pub offsets: BTreeMap<i32, NextOffset>,
}

impl Stamp {
    /// This stamp as it stands after a batch: offsets of partitions that it does not name are those of before, unless
    /// they belong to another topic.
    #[must_use]
    pub fn over(&self, before: Option<&Self>) -> Self {
        let mut after = self.clone();
        if let Some(before) = before.filter(|b| b.topic_id == self.topic_id) {
            for (&partition, &offset) in &before.offsets {
                after.offsets.entry(partition).or_insert(offset);
            }
        }
        after
    }
}

/// One atomic write of a store.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Rows in the order of writing; the last one of a key wins.
    pub rows: Vec<Row>,
    /// What the store holds afterwards; offsets of partitions that are not named stay as they are.
    pub stamp: Stamp,
}

/// One store's bytes. Reads are concurrent, writes come one at a time.
pub trait ByteStore: Send + Sync {
    /// Reads the value of a key, in the local layout (see [`StoreKind`]).
    ///
    /// # Errors
    /// When local state cannot be read.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Visits all rows with `from <= key < to` (`None`: no bound) in key order, until the visitor says `false`.
    ///
    /// # Errors
    /// When local state cannot be read.
    fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()>;

    /// Visits the pending timers from (`time`, `key`) on, in the order of time, then key, until the visitor says `false`;
    /// of a store of another kind none. The visitor must not use the store.
    ///
    /// # Errors
    /// When local state cannot be read.
    fn due(&self, time: Timestamp, key: &[u8], visit: &mut dyn FnMut(Timestamp, &[u8]) -> bool) -> Result<()>;

    /// Applies a batch, unless a newer generation has been announced: then it changes nothing.
    ///
    /// # Errors
    /// When local state cannot be written.
    fn apply(&self, generation: Generation, batch: &Batch) -> Result<()>;

    /// Announces the newest engine generation: writes of older ones are ignored from now on.
    fn begin(&self, generation: Generation);

    /// What the store holds; `None`: nothing yet.
    ///
    /// # Errors
    /// When local state cannot be read or has an unknown format.
    fn stamp(&self) -> Result<Option<Stamp>>;

    /// Makes what was applied survive a crash.
    ///
    /// # Errors
    /// When local state cannot be written.
    fn flush(&self) -> Result<()>;

    /// Drops all rows and the stamp: the store is to be rebuilt from the changelog's beginning.
    ///
    /// # Errors
    /// When local state cannot be written.
    fn clear(&self) -> Result<()>;
}

/// All stores of one application: a directory, or memory.
pub trait StoreSet: Send {
    /// Opens a store, makes it if it is new. `name` is the store's stable name.
    ///
    /// # Errors
    /// When the directory cannot be read or written, or holds the store in another kind or an unknown format.
    fn open(&mut self, name: &str, kind: StoreKind) -> Result<Arc<dyn ByteStore>>;

    /// Names of stores that the directory holds.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn names(&self) -> Result<Vec<String>>;
}
