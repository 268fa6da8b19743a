use std::fmt;
use std::marker::PhantomData;

use super::one::encode_key;
use super::pending::{NO_TIME, Pending};
use super::{Own, Reach, SetsOthers};
use crate::codec::{Codec, Encode, codec_id};
use crate::error::Result;
use crate::hash::lane_hash;
use crate::id::{Epoch, StoreId};
use crate::key::{Key, Types};
use crate::operator::{Field, ForeignTimer, PendingTimers, Weight};
use crate::processor::{Entered, FieldSeed, StateField, TimerField};
use crate::store::overlay::KeyBytes;
use crate::store::{Row, StoreKind};
use crate::time::{TimeDomain, Timestamp};

/// Many pending times per key: a `#[timer]` field of a processor. Setting one key and time twice is setting it once.
///
/// Each fires once, on the lane of its key, when the watermark (with `clock = wall`: the wall clock) reaches its time.
pub struct Timers<K: Key, C = <K as Key>::Codec, S = Own> {
    pending: Pending<()>,
    /// A row's key: the key's bytes, then the time.
    row: KeyBytes,
    /// What the handler that runs has set and cancelled, where it may be undone.
    changed: Vec<(Timestamp, KeyBytes, bool)>,
    types: Types<(K, C, S)>,
}

impl<K: Key, C, S> Timers<K, C, S> {
    fn set_row(&mut self, key: &[u8], time: Timestamp) {
        self.row.clear();
        self.row.extend_from_slice(key);
        self.row.extend_from_slice(&time.as_millis().to_be_bytes());
    }

    /// Writes the row that [`Timers::set_row`] named.
    fn write_row(&mut self, there: bool, at: Timestamp) {
        let hash = lane_hash(&self.row);
        let slot = match self.pending.rows.find(hash, &self.row) {
            Some(slot) => slot,
            None => self.pending.rows.insert(hash, &self.row, None, at, 0),
        };
        self.pending.rows.replace(slot, at, there.then_some(()));
    }

    fn write(&mut self, time: Timestamp, there: bool) -> Result<()> {
        self.pending.current.keyed().map_err(|e| self.pending.current.note(e))?;
        let key = std::mem::take(&mut self.pending.current.key);
        self.set_row(&key, time);
        self.change(&key, time, there, self.pending.current.timestamp);
        self.pending.wrote(&self.row);
        self.pending.current.key = key;
        Ok(())
    }

    fn change(&mut self, key: &KeyBytes, time: Timestamp, there: bool, at: Timestamp) {
        let due = &mut self.pending.due;
        let changed = if there { due.insert((time, key.clone())) } else { due.remove(&(time, key.clone())) };
        if changed {
            self.write_row(there, at);
            if self.pending.undo {
                self.changed.push((time, key.clone(), there));
            }
        }
    }

    /// Sets a timer of the current key.
    ///
    /// # Errors
    /// Outside a handler.
    pub fn set(&mut self, at: Timestamp) -> Result<()> {
        self.write(at, true)
    }

    /// Cancels the timer of the current key for this time, if there is one.
    ///
    /// # Errors
    /// Outside a handler.
    pub fn cancel(&mut self, at: Timestamp) -> Result<()> {
        self.write(at, false)
    }
}

impl<K: Key, C: Encode<K>, S> Timers<K, C, S> {
    /// Sets a timer of any key. For another key than the current one it takes effect at the end of the epoch.
    ///
    /// # Errors
    /// Outside a handler, or when the key cannot be encoded.
    pub fn set_for(&mut self, key: &K, at: Timestamp) -> Result<()>
    where
        S: SetsOthers,
    {
        self.write_for(key, at, true)
    }

    /// Cancels a timer of any key. For another key than the current one it takes effect at the end of the epoch.
    ///
    /// # Errors
    /// As [`Timers::set_for`].
    pub fn cancel_for(&mut self, key: &K, at: Timestamp) -> Result<()>
    where
        S: SetsOthers,
    {
        self.write_for(key, at, false)
    }

    fn write_for(&mut self, key: &K, at: Timestamp, there: bool) -> Result<()> {
        self.pending.current.inside()?;
        let bytes = encode_key::<K, C>(&self.pending.current, key)?;
        if bytes.as_slice() == self.pending.current.key.as_slice() && self.pending.current.keyed().is_ok() {
            return self.write(at, there);
        }
        self.pending.write_foreign(bytes, there.then_some(at), (!there).then_some(at));
        Ok(())
    }
}

impl<K: Key, C: Codec, S: Reach> Field for Timers<K, C, S> {
    fn store(&self) -> StoreId {
        self.pending.store
    }

    fn freeze(&mut self, _epoch: Epoch, rows: &mut Vec<Row>) -> Result<()> {
        self.pending.epoch_ends();
        let first = rows.len();
        self.pending.rows.freeze(rows, |_, (), _| Ok(()))?;
        for row in &mut rows[first..] {
            row.lane_key -= size_of::<i64>();
        }
        Ok(())
    }

    fn applied(&mut self, _epoch: Epoch) {
        self.pending.rows.applied();
        // What is pending is known without rows: those that the store has need not stay.
        self.pending.rows.trim(0);
    }

    fn weight(&self) -> Weight {
        self.pending.weight()
    }

    fn trim(&mut self, bytes: usize) {
        self.pending.rows.trim(bytes);
    }

    fn keys(&self, _of_lane: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
        // All pending timers are of this lane.
        let mut keys: Vec<Vec<u8>> = self.pending.due.iter().map(|(_, k)| k.to_vec()).collect();
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    fn timers(&mut self) -> Option<&mut dyn PendingTimers> {
        Some(self)
    }
}

impl<K: Key, C: Codec, S: Reach> PendingTimers for Timers<K, C, S> {
    fn domain(&self) -> TimeDomain {
        self.pending.clock
    }

    fn load(&mut self, key: &[u8], time: Timestamp) {
        self.pending.due.insert((time, KeyBytes::from_slice(key)));
    }

    fn first(&self) -> Option<(Timestamp, &[u8])> {
        self.pending.first()
    }

    fn nth(&self, n: usize) -> Option<(Timestamp, Vec<u8>)> {
        self.pending.nth(n)
    }

    fn take_first(&mut self) -> Option<(Timestamp, Vec<u8>)> {
        let (time, key) = self.pending.due.pop_first()?;
        self.set_row(&key, time);
        self.write_row(false, time);
        Some((time, key.into_vec()))
    }

    fn take_foreign(&mut self) -> Vec<ForeignTimer> {
        std::mem::take(&mut self.pending.foreign)
    }

    fn apply_foreign(&mut self, write: &ForeignTimer) {
        let key = KeyBytes::from_slice(&write.key);
        for (time, there) in [(write.cancel, false), (write.time, true)] {
            let Some(time) = time else { continue };
            self.set_row(&key, time);
            if !self.pending.beats(&self.row, write) {
                self.change(&key, time, there, NO_TIME);
            }
        }
    }
}

impl<K: Key, C: Codec, S: Reach> StateField for Timers<K, C, S> {
    const KIND: StoreKind = StoreKind::Timers;
    const FOREIGN: bool = S::FOREIGN;

    fn key_codec() -> Option<String> {
        Some(codec_id::<C>())
    }

    fn make(seed: FieldSeed) -> Self {
        Self { pending: Pending::new(seed, S::FOREIGN), row: KeyBytes::new(), changed: Vec::new(), types: PhantomData }
    }

    #[inline]
    fn enter(&mut self, at: &Entered<'_>) {
        self.pending.enter(at);
    }

    fn undo(&mut self) -> Result<()> {
        for (time, key, there) in self.changed.drain(..).rev() {
            let due = &mut self.pending.due;
            if there {
                due.remove(&(time, key))
            } else {
                due.insert((time, key))
            };
        }
        self.pending.undo_places();
        self.pending.rows.undo(|_| Ok(()), |_, _, _| {})
    }

    #[inline]
    fn leave(&mut self, index: usize) -> Result<()> {
        self.changed.clear();
        self.pending.leave(index)
    }
}

impl<K: Key, C: Codec, S: Reach> TimerField for Timers<K, C, S> {}

impl<K: Key, C, S> fmt::Debug for Timers<K, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("field", &self.pending.current.place())
            .field("pending", &self.pending.due.len())
            .finish_non_exhaustive()
    }
}
