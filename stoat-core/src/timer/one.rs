use std::fmt;
use std::marker::PhantomData;

use super::pending::{NO_TIME, Pending};
use super::{Own, Reach, SetsOthers};
use crate::codec::{Codec, Encode, codec_id};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::lane_hash;
use crate::id::{Epoch, StoreId};
use crate::key::{Key, Types};
use crate::operator::{Field, ForeignTimer, PendingTimers, Weight};
use crate::processor::{Entered, FieldSeed, StateField, TimerField};
use crate::store::current::Current;
use crate::store::overlay::KeyBytes;
use crate::store::{Row, StoreKind};
use crate::time::{TimeDomain, Timestamp};

/// One pending time per key: a `#[timer]` field of a processor. A later [`Timer::set`] replaces the earlier one.
///
/// It fires once, on the lane of its key, when the watermark (with `clock = wall`: the wall clock) reaches its time; a time
/// that has been reached already fires at the next advance. `C` is the key's codec, which must be the lane's.
pub struct Timer<K: Key, C = <K as Key>::Codec, S = Own> {
    pending: Pending<Timestamp>,
    types: Types<(K, C, S)>,
}

pub(super) fn decode_time(current: &Current, bytes: &[u8]) -> Result<Timestamp> {
    let bytes = bytes.try_into().map_err(|_| {
        Error::new(
            ErrorKind::State,
            format!("timer {}: {} bytes where a time has 8; rebuild the state directory", current.place(), bytes.len()),
        )
    })?;
    Ok(Timestamp::from_millis(i64::from_be_bytes(bytes)))
}

impl<K: Key, C, S> Timer<K, C, S> {
    fn write(&mut self, time: Option<Timestamp>) -> Result<()> {
        self.replace(time).map_err(|e| self.pending.current.note(e))
    }

    fn replace(&mut self, time: Option<Timestamp>) -> Result<()> {
        let p = &mut self.pending;
        p.current.keyed()?;
        // The key leaves the field while the field's other parts change; it is at most a short copy in place.
        let key = std::mem::take(&mut p.current.key);
        let slot = match p.current.slot {
            Some(slot) => Ok(slot),
            None => p.row(p.current.hash, &key),
        };
        if let Ok(slot) = slot {
            p.current.slot = Some(slot);
            p.replace(slot, &key, time, p.current.timestamp);
            p.wrote(&key);
        }
        p.current.key = key;
        slot.map(drop)
    }

    /// Sets the timer of the current key.
    ///
    /// # Errors
    /// Outside a handler, or when local state cannot be read.
    pub fn set(&mut self, at: Timestamp) -> Result<()> {
        self.write(Some(at))
    }

    /// Cancels the timer of the current key, if there is one.
    ///
    /// # Errors
    /// As [`Timer::set`].
    pub fn cancel(&mut self) -> Result<()> {
        self.write(None)
    }

    /// The pending time of the current key.
    ///
    /// # Errors
    /// As [`Timer::set`].
    pub fn get(&mut self) -> Result<Option<Timestamp>> {
        let p = &mut self.pending;
        p.current.keyed()?;
        let key = p.current.key.clone();
        let slot = p.row(p.current.hash, &key)?;
        p.current.slot = Some(slot);
        Ok(p.rows.value(slot).copied())
    }
}

impl<K: Key, C: Encode<K>, S> Timer<K, C, S> {
    /// Sets the timer of any key. For another key than the current one it takes effect at the end of the epoch.
    ///
    /// # Errors
    /// As [`Timer::set`], or when the key cannot be encoded.
    pub fn set_for(&mut self, key: &K, at: Timestamp) -> Result<()>
    where
        S: SetsOthers,
    {
        self.write_for(key, Some(at))
    }

    /// Cancels the timer of any key. For another key than the current one it takes effect at the end of the epoch.
    ///
    /// # Errors
    /// As [`Timer::set_for`].
    pub fn cancel_for(&mut self, key: &K) -> Result<()>
    where
        S: SetsOthers,
    {
        self.write_for(key, None)
    }

    fn write_for(&mut self, key: &K, time: Option<Timestamp>) -> Result<()> {
        self.pending.current.inside()?;
        let bytes = encode_key::<K, C>(&self.pending.current, key)?;
        if bytes.as_slice() == self.pending.current.key.as_slice() && self.pending.current.keyed().is_ok() {
            return self.write(time);
        }
        self.pending.write_foreign(bytes, time, None);
        Ok(())
    }
}

pub(super) fn encode_key<K, C: Encode<K>>(current: &Current, key: &K) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    C::encode(key, &mut bytes)
        .map_err(|e| Error::new(ErrorKind::Codec, format!("key of timer {} ({}): {e}", current.place(), C::NAME)))?;
    Ok(bytes)
}

impl<K: Key, C: Codec, S: Reach> Field for Timer<K, C, S> {
    fn store(&self) -> StoreId {
        self.pending.store
    }

    fn freeze(&mut self, _epoch: Epoch, rows: &mut Vec<Row>) -> Result<()> {
        self.pending.epoch_ends();
        self.pending.rows.freeze(rows, |_, time, out| {
            out.extend_from_slice(&time.as_millis().to_be_bytes());
            Ok(())
        })
    }

    fn applied(&mut self, _epoch: Epoch) {
        self.pending.rows.applied();
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
        Ok(keys)
    }

    fn timers(&mut self) -> Option<&mut dyn PendingTimers> {
        Some(self)
    }
}

impl<K: Key, C: Codec, S: Reach> PendingTimers for Timer<K, C, S> {
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
        self.pending.take_first().map(|(t, k)| (t, k.into_vec()))
    }

    fn take_foreign(&mut self) -> Vec<ForeignTimer> {
        std::mem::take(&mut self.pending.foreign)
    }

    fn apply_foreign(&mut self, write: &ForeignTimer) {
        if self.pending.beats(&write.key, write) {
            return;
        }
        let key = KeyBytes::from_slice(&write.key);
        let slot = self.pending.row(lane_hash(&key), &key).expect(
            "the store was read when the lane was built: a row that it cannot read now is found by the next start",
        );
        self.pending.replace(slot, &key, write.time, NO_TIME);
    }
}

impl<K: Key, C: Codec, S: Reach> StateField for Timer<K, C, S> {
    const KIND: StoreKind = StoreKind::Timer;
    const FOREIGN: bool = S::FOREIGN;

    fn key_codec() -> Option<String> {
        Some(codec_id::<C>())
    }

    fn make(seed: FieldSeed) -> Self {
        Self { pending: Pending::new(seed, S::FOREIGN), types: PhantomData }
    }

    #[inline]
    fn enter(&mut self, at: &Entered<'_>) {
        self.pending.enter(at);
    }

    fn undo(&mut self) -> Result<()> {
        self.pending.undo()
    }

    #[inline]
    fn leave(&mut self, index: usize) -> Result<()> {
        self.pending.leave(index)
    }
}

impl<K: Key, C: Codec, S: Reach> TimerField for Timer<K, C, S> {}

impl<K: Key, C, S> fmt::Debug for Timer<K, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer")
            .field("field", &self.pending.current.place())
            .field("pending", &self.pending.due.len())
            .finish_non_exhaustive()
    }
}
