//! The rows of a store of timers in memory: each by its key, and all by time.
//!
//! A row is found by a hash. In a tree of ten million each level is a cache miss, and a timer that is cancelled or set anew
//! is looked for two or three times. In the order of keys rows are needed seldom; they are sorted then.

use std::collections::BTreeSet;
use std::ops::Bound;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use smallvec::SmallVec;

use super::memory::Bytes;
use super::{StoreKind, layout};
use crate::hash::lane_hash;
use crate::time::Timestamp;

/// How many tables the rows are spread over: each grows on its own, so that no write waits until all rows have moved.
const TABLES: usize = 256;

/// A time, or nothing.
type Value = SmallVec<[u8; 8]>;

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    /// None before the first row.
    rows: Vec<HashTable<(Bytes, Value)>>,
    /// See [`layout::due_key`].
    due: BTreeSet<Bytes>,
}

impl Timers {
    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let hash = lane_hash(key);
        let found = self.rows.get(table(hash))?.find(hash, |(k, _)| k.as_slice() == key)?;
        Some(&found.1)
    }

    /// Writes a row (`None` deletes it).
    pub(super) fn put(&mut self, kind: StoreKind, key: &[u8], value: Option<&[u8]>) {
        let new = value.and_then(|v| layout::due_of(kind, key, v));
        let old = self.replace(key, value.map(Value::from_slice));
        let old = old.and_then(|v| layout::due_of(kind, key, &v));
        if old != new {
            if let Some(old) = old {
                self.due.remove(old.as_slice());
            }
            self.due.extend(new.map(|n| Bytes::from_slice(&n)));
        }
    }

    fn replace(&mut self, key: &[u8], value: Option<Value>) -> Option<Value> {
        if self.rows.is_empty() {
            self.rows.resize(TABLES, HashTable::new());
        }
        let hash = lane_hash(key);
        let entry = self.rows[table(hash)].entry(hash, |(k, _)| k.as_slice() == key, |(k, _)| lane_hash(k));
        match (entry, value) {
            (Entry::Occupied(mut row), Some(value)) => Some(std::mem::replace(&mut row.get_mut().1, value)),
            (Entry::Occupied(row), None) => Some(row.remove().0.1),
            (Entry::Vacant(place), Some(value)) => {
                place.insert((Bytes::from_slice(key), value));
                None
            }
            (Entry::Vacant(_), None) => None,
        }
    }

    /// See [`ByteStore::due`](super::ByteStore::due).
    pub(super) fn due(&self, time: Timestamp, key: &[u8], visit: &mut dyn FnMut(Timestamp, &[u8]) -> bool) {
        let from = layout::due_key(time, key);
        for entry in self.due.range::<[u8], _>((Bound::Included(from.as_slice()), Bound::Unbounded)) {
            let (time, key) = layout::split_due(entry).expect("only such entries are kept");
            if !visit(time, key) {
                return;
            }
        }
    }

    /// See [`ByteStore::scan`](super::ByteStore::scan).
    pub(super) fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) {
        let inside = |k: &[u8]| from.is_none_or(|f| f <= k) && to.is_none_or(|t| k < t);
        let mut rows: Vec<_> = self.rows.iter().flatten().filter(|(k, _)| inside(k)).collect();
        rows.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        for (key, value) in rows {
            if !visit(key, value) {
                return;
            }
        }
    }
}

/// By bits that choose nothing inside a table.
fn table(hash: u64) -> usize {
    (hash >> 32) as usize % TABLES
}
