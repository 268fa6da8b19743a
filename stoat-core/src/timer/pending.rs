use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::engine::tag::Tag;
use crate::error::Result;
use crate::hash::lane_hash;
use crate::id::StoreId;
use crate::operator::{ForeignTimer, Weight};
use crate::processor::{Entered, FieldSeed};
use crate::store::ByteStore;
use crate::store::current::Current;
use crate::store::overlay::{KeyBytes, Overlay, Slot};
use crate::time::{TimeDomain, Timestamp};

/// Where in ingest order a write was made.
type Place = (Tag, u32);

/// What both kinds of timer fields have: the pending times in firing order, the rows that were written, and the writes for
/// other keys.
pub(super) struct Pending<V> {
    pub(super) store: StoreId,
    pub(super) clock: TimeDomain,
    pub(super) bytes: Arc<dyn ByteStore>,
    pub(super) current: Current,
    /// All pending timers of the lane.
    pub(super) due: BTreeSet<(Timestamp, KeyBytes)>,
    /// Rows by the store's key.
    pub(super) rows: Overlay<V>,
    /// Writes for other keys, since they were last taken.
    pub(super) foreign: Vec<ForeignTimer>,
    /// The last own write of this epoch, by the store's key; kept only where foreign writes exist.
    own: Option<FxHashMap<KeyBytes, Place>>,
    /// The place of the handler that runs; kept only where foreign writes exist.
    tag: Tag,
    /// The number of writes of the handler that runs.
    index: u32,
    /// What the handler that runs has replaced in `own`, and how long `foreign` was before it; where it may be undone.
    own_before: Vec<(KeyBytes, Option<Place>)>,
    foreign_before: usize,
    pub(super) undo: bool,
}

/// A pending timer weighs this beside a long key: its place in the ordered set.
const PENDING: usize = size_of::<(Timestamp, KeyBytes)>() + 16;

/// Timers that another key's handler set have no record's time. The time they are set for may lie far ahead, which brokers
/// refuse in a record.
pub(super) const NO_TIME: Timestamp = Timestamp::from_millis(0);

impl<V> Pending<V> {
    pub(super) fn new(seed: FieldSeed, foreign: bool) -> Self {
        Self {
            store: seed.store,
            clock: seed.decl.clock,
            current: Current::new(&seed),
            bytes: seed.bytes,
            due: BTreeSet::new(),
            rows: Overlay::default(),
            foreign: Vec::new(),
            own: foreign.then(FxHashMap::default),
            tag: Tag::record(0),
            index: 0,
            own_before: Vec::new(),
            foreign_before: 0,
            undo: false,
        }
    }

    #[inline]
    pub(super) fn enter(&mut self, at: &Entered<'_>) {
        self.current.enter(at);
        self.undo = at.undo;
        self.rows.begin(at.undo);
        if self.own.is_some() {
            self.foreign_before = self.foreign.len();
            self.tag = Tag { number: at.number, path: at.path.clone() };
            self.index = 0;
        }
    }

    /// Remembers an own write to the row `key`.
    #[inline]
    pub(super) fn wrote(&mut self, key: &[u8]) {
        if let Some(own) = &mut self.own {
            let before = own.insert(KeyBytes::from_slice(key), (self.tag.clone(), self.index));
            if self.undo {
                self.own_before.push((KeyBytes::from_slice(key), before));
            }
            self.index += 1;
        }
    }

    /// The handler has ended.
    #[inline]
    pub(super) fn leave(&mut self, index: usize) -> Result<()> {
        self.undo = false;
        self.rows.keep();
        self.own_before.clear();
        self.current.leave(index)
    }

    /// Takes back what the handler that ends now wrote for other keys, and that it wrote for its own at all.
    pub(super) fn undo_places(&mut self) {
        if let Some(own) = &mut self.own {
            self.foreign.truncate(self.foreign_before);
            for (key, before) in self.own_before.drain(..).rev() {
                match before {
                    Some(place) => own.insert(key, place),
                    None => own.remove(&key),
                };
            }
        }
    }

    /// Keeps a write for another key.
    pub(super) fn write_foreign(&mut self, key: Vec<u8>, time: Option<Timestamp>, cancel: Option<Timestamp>) {
        self.foreign.push(ForeignTimer {
            store: self.store,
            key,
            time,
            cancel,
            tag: self.tag.clone(),
            index: self.index,
        });
        self.index += 1;
    }

    /// Whether an own write of this epoch to the row `key` comes later than a foreign one.
    pub(super) fn beats(&self, key: &[u8], write: &ForeignTimer) -> bool {
        self.own
            .as_ref()
            .and_then(|own| own.get(key))
            .is_some_and(|(tag, index)| (tag, *index) > (&write.tag, write.index))
    }

    /// The epoch ends: later foreign writes meet no own write of it.
    pub(super) fn epoch_ends(&mut self) {
        if let Some(own) = &mut self.own {
            own.clear();
        }
    }

    pub(super) fn first(&self) -> Option<(Timestamp, &[u8])> {
        self.due.first().map(|(t, k)| (*t, k.as_slice()))
    }

    pub(super) fn nth(&self, n: usize) -> Option<(Timestamp, Vec<u8>)> {
        self.due.iter().nth(n).map(|(t, k)| (*t, k.to_vec()))
    }

    pub(super) fn weight(&self) -> Weight {
        let rows = self.rows.weight();
        Weight {
            uncommitted: rows.uncommitted + self.foreign.len() * size_of::<ForeignTimer>(),
            total: rows.total + self.due.len() * PENDING + self.foreign.len() * size_of::<ForeignTimer>(),
        }
    }
}

impl Pending<Timestamp> {
    /// The row of a key, read from the store where it is not in memory.
    pub(super) fn row(&mut self, hash: u64, key: &[u8]) -> Result<Slot> {
        if let Some(slot) = self.rows.find(hash, key) {
            return Ok(slot);
        }
        let time = match self.bytes.get(key)? {
            None => None,
            Some(b) => Some(super::one::decode_time(&self.current, &b)?),
        };
        Ok(self.rows.insert(hash, key, time, Timestamp::MIN, 8))
    }

    /// Sets or cancels the one timer of a key.
    pub(super) fn replace(&mut self, slot: Slot, key: &KeyBytes, time: Option<Timestamp>, at: Timestamp) {
        let old = self.rows.value(slot).copied();
        if old == time {
            return;
        }
        if let Some(old) = old {
            self.due.remove(&(old, key.clone()));
        }
        if let Some(time) = time {
            self.due.insert((time, key.clone()));
        }
        self.rows.replace(slot, at, time);
    }

    /// Takes back what the handler that ends now wrote.
    pub(super) fn undo(&mut self) -> Result<()> {
        self.undo_places();
        let (current, due) = (&self.current, &mut self.due);
        let decode = |bytes: &[u8]| super::one::decode_time(current, bytes);
        self.rows.undo(decode, |key, written, before| {
            if let Some(time) = written {
                due.remove(&(*time, key.clone()));
            }
            if let Some(time) = before {
                due.insert((*time, key.clone()));
            }
        })
    }

    pub(super) fn take_first(&mut self) -> Option<(Timestamp, KeyBytes)> {
        let (time, key) = self.due.pop_first()?;
        let hash = lane_hash(&key);
        let slot = match self.rows.find(hash, &key) {
            Some(slot) => slot,
            None => self.rows.insert(hash, &key, Some(time), time, 8),
        };
        *self.rows.write(slot, time) = None;
        Some((time, key))
    }
}
