use std::fmt;
use std::marker::PhantomData;

use super::field::TimerOps;
use super::one::encode_key;
use super::pending::{NO_TIME, Pending, TimerRow};
use super::{Own, Reach, SetsOthers};
use crate::codec::{Codec, Encode, codec_id};
use crate::error::Result;
use crate::hash::lane_hash;
use crate::key::{Key, Types};
use crate::operator::{Field, ForeignTimer};
use crate::processor::{Entered, FieldSeed, StateField, TimerField};
use crate::store::StoreKind;
use crate::store::overlay::KeyBytes;
use crate::time::Timestamp;

/// Many pending times per key: a `#[timer]` field of a processor. Setting one key and time twice is setting it once.
///
/// Each fires once, on the lane of its key, when the watermark (with `clock = wall`: the wall clock) reaches its time.
pub struct Timers<K: Key, C = <K as Key>::Codec, S = Own> {
    pending: Pending<()>,
    /// A row's key: the key's bytes, then the time.
    row: KeyBytes,
    types: Types<(K, C, S)>,
}

impl<K: Key, C, S> Timers<K, C, S> {
    fn write(&mut self, time: Timestamp, there: bool) -> Result<()> {
        self.replace(time, there).map_err(|e| self.pending.current.note(e))
    }

    fn replace(&mut self, time: Timestamp, there: bool) -> Result<()> {
        let p = &mut self.pending;
        p.current.keyed()?;
        p.current.guard_own()?;
        <()>::row(&p.current.key, time, &mut self.row);
        p.change(&self.row, time, there, p.current.timestamp)?;
        p.wrote(&self.row);
        Ok(())
    }

    /// Sets a timer of the current key.
    ///
    /// # Errors
    /// Outside a handler, or when local state cannot be read.
    pub fn set(&mut self, at: Timestamp) -> Result<()> {
        self.write(at, true)
    }

    /// Cancels the timer of the current key for this time, if there is one.
    ///
    /// # Errors
    /// As [`Timers::set`].
    pub fn cancel(&mut self, at: Timestamp) -> Result<()> {
        self.write(at, false)
    }
}

impl<K: Key, C: Encode<K>, S> Timers<K, C, S> {
    /// Sets a timer of any key. For another key than the current one it takes effect at the end of the epoch.
    ///
    /// # Errors
    /// As [`Timers::set`], or when the key cannot be encoded.
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
        self.pending.current.guard_other(&bytes)?;
        self.pending.write_foreign(bytes, there.then_some(at), (!there).then_some(at));
        Ok(())
    }
}

impl Pending<()> {
    /// Sets or cancels the timer of a row; what changes nothing is no write.
    fn change(&mut self, row: &[u8], time: Timestamp, there: bool, at: Timestamp) -> Result<()> {
        let slot = self.row(lane_hash(row), row)?;
        if self.rows.value(slot).is_some() != there {
            self.write(slot, there.then_some(time), at);
        }
        Ok(())
    }
}

impl<K: Key, C: Codec, S: Reach> TimerOps for Timers<K, C, S> {
    type Row = ();

    fn pending(&self) -> &Pending<()> {
        &self.pending
    }

    fn pending_mut(&mut self) -> &mut Pending<()> {
        &mut self.pending
    }

    fn apply_foreign(&mut self, write: &ForeignTimer) -> Result<()> {
        for (time, there) in [(write.cancel, false), (write.time, true)] {
            let Some(time) = time else { continue };
            <()>::row(&write.key, time, &mut self.row);
            if !self.pending.beats(&self.row, write) {
                self.pending.change(&self.row, time, there, NO_TIME)?;
            }
        }
        Ok(())
    }
}

impl<K: Key, C: Codec, S: Reach> StateField for Timers<K, C, S> {
    const KIND: StoreKind = StoreKind::Timers;
    const FOREIGN: bool = S::FOREIGN;

    fn key_codec() -> Option<String> {
        Some(codec_id::<C>())
    }

    fn make(seed: FieldSeed) -> Self {
        Self { pending: Pending::new(seed, S::FOREIGN), row: KeyBytes::new(), types: PhantomData }
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

impl<K: Key, C: Codec, S: Reach> TimerField for Timers<K, C, S> {}

impl<K: Key, C, S> fmt::Debug for Timers<K, C, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timers")
            .field("field", &self.pending.current.place())
            .field("near", &self.pending.near())
            .finish_non_exhaustive()
    }
}
