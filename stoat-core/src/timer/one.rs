use std::fmt;
use std::marker::PhantomData;

use super::field::TimerOps;
use super::pending::{NO_TIME, Pending};
use super::{Own, Reach, SetsOthers};
use crate::codec::{Codec, Encode, codec_id};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::lane_hash;
use crate::key::{Key, Types};
use crate::operator::{Field, ForeignTimer};
use crate::processor::{Entered, FieldSeed, StateField, TimerField};
use crate::store::StoreKind;
use crate::store::current::Current;
use crate::time::Timestamp;

/// One pending time per key: a `#[timer]` field of a processor. A later [`Timer::set`] replaces the earlier one.
///
/// It fires once, on the lane of its key, when the watermark (with `clock = wall`: the wall clock) reaches its time; a time
/// that has been reached already fires at the next advance. `C` is the key's codec, which must be the lane's.
pub struct Timer<K: Key, C = <K as Key>::Codec, S = Own> {
    pending: Pending<Timestamp>,
    types: Types<(K, C, S)>,
}

impl<K: Key, C, S> Timer<K, C, S> {
    fn write(&mut self, time: Option<Timestamp>) -> Result<()> {
        self.replace(time).map_err(|e| self.pending.current.note(e))
    }

    fn replace(&mut self, time: Option<Timestamp>) -> Result<()> {
        let p = &mut self.pending;
        p.current.keyed()?;
        p.current.guard_own()?;
        // The key leaves the field while the field's other parts change; it is at most a short copy in place.
        let key = std::mem::take(&mut p.current.key);
        let slot = match (p.current.slot, time) {
            (Some(slot), _) => Ok(slot),
            // What is set needs not be known. What is cancelled needs: cancelling nothing is no write.
            (None, Some(_)) => Ok(p.row_unread(p.current.hash, &key)),
            (None, None) => p.row(p.current.hash, &key),
        };
        if let Ok(slot) = slot {
            p.current.slot = Some(slot);
            if time.is_some() || p.rows.value(slot).is_some() {
                p.write(slot, time, p.current.timestamp);
            }
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
        self.read().map_err(|e| self.pending.current.note(e))
    }

    fn read(&mut self) -> Result<Option<Timestamp>> {
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
        self.pending.current.guard_other(&bytes)?;
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

impl<K: Key, C: Codec, S: Reach> TimerOps for Timer<K, C, S> {
    type Row = Timestamp;

    fn pending(&self) -> &Pending<Timestamp> {
        &self.pending
    }

    fn pending_mut(&mut self) -> &mut Pending<Timestamp> {
        &mut self.pending
    }

    fn apply_foreign(&mut self, write: &ForeignTimer) -> Result<()> {
        let p = &mut self.pending;
        if p.beats(&write.key, write) {
            return Ok(());
        }
        let hash = lane_hash(&write.key);
        if write.time.is_some() {
            let slot = p.row_unread(hash, &write.key);
            p.write(slot, write.time, NO_TIME);
            return Ok(());
        }
        let slot = p.row(hash, &write.key)?;
        if p.rows.value(slot).is_some() {
            p.write(slot, None, NO_TIME);
        }
        Ok(())
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

    fn as_field(&mut self) -> &mut dyn Field {
        self
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
            .field("near", &self.pending.near())
            .finish_non_exhaustive()
    }
}
