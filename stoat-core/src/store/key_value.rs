#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

use super::StoreKind;
use super::current::Current;
use super::merge::{Merged, after_prefix, merged};
use super::overlay::Slot;
use super::values::Values;
use crate::codec::{Codec, Decode, Encode, Json, codec_id};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{lane_hash, lane_of};
use crate::key::{Key, Types};
use crate::operator::Field;
use crate::processor::{Entered, FieldSeed, StateField};
use crate::topology::graph::ValueDecl;

/// A store with explicit keys: a `#[store]` field of a processor, for scans and for other keys than the current one.
/// `C` is the codec of the values, `KC` that of the keys, which must be the lane's.
///
/// The current key is read as it was last written. Every other key, and every other row of a scan, is read as of the last
/// commit: so a result does not depend on which keys share a lane. A write to a key of another lane is an error.
pub struct KeyValueStore<K: Key, V, C = Json, KC = <K as Key>::Codec> {
    values: Values<V, C>,
    current: Current,
    lane: u32,
    lanes: u32,
    /// The key that a method was called with, encoded.
    key: Vec<u8>,
    /// A value as of the last commit, while the caller looks at it.
    committed: Option<V>,
    types: Types<(K, KC)>,
}

impl<K: Key, V: Clone, C: Encode<V> + Decode<V>, KC: Encode<K> + Decode<K>> KeyValueStore<K, V, C, KC> {
    /// All rows whose key's bytes lie in the range of these keys' bytes, in the order of the bytes. The order is that of
    /// the keys for codecs that keep it: UTF-8, bytes, unsigned big-endian integers.
    ///
    /// # Errors
    /// Outside a handler, or when local state cannot be read or decoded.
    pub fn range(&self, range: impl RangeBounds<K>) -> Result<Vec<(K, V)>> {
        let from = match range.start_bound() {
            Bound::Unbounded => None,
            Bound::Included(k) => Some(self.encoded(k)?),
            Bound::Excluded(k) => Some(next(self.encoded(k)?)),
        };
        let to = match range.end_bound() {
            Bound::Unbounded => None,
            Bound::Excluded(k) => Some(self.encoded(k)?),
            Bound::Included(k) => Some(next(self.encoded(k)?)),
        };
        let mut rows = Vec::new();
        self.scan(from.as_deref(), to.as_deref(), |k, v| {
            rows.push((k, v));
            true
        })?;
        Ok(rows)
    }

    /// All rows whose key's bytes begin with `prefix`, in the order of the bytes.
    ///
    /// # Errors
    /// As [`KeyValueStore::range`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Vec<(K, V)>> {
        let mut rows = Vec::new();
        self.scan(Some(prefix), after_prefix(prefix).as_deref(), |k, v| {
            rows.push((k, v));
            true
        })?;
        Ok(rows)
    }

    /// Visits all rows with `from <= bytes of the key < to`, in the order of the bytes, until the visitor says `false`.
    ///
    /// # Errors
    /// As [`KeyValueStore::range`].
    pub fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, mut visit: impl FnMut(K, V) -> bool) -> Result<()> {
        self.current.inside()?;
        if let (Some(f), Some(t)) = (from, to)
            && f >= t
        {
            return Ok(());
        }
        let own = |k: &[u8]| k == self.current.key.as_slice();
        merged(&self.values.overlay, own, &*self.values.bytes, from, to, |key, value| {
            let key = KC::decode(key).map_err(|e| {
                Error::new(ErrorKind::State, format!("key in {} ({}): {e}", self.current.place(), KC::NAME))
            })?;
            let value = match value {
                Merged::Decoded(v) => v.clone(),
                Merged::Stored(b) => self.values.decode(b)?,
            };
            Ok(visit(key, value))
        })
    }
}

/// The smallest byte string above `key`.
fn next(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

impl<K: Key, V, C: Encode<V> + Decode<V>, KC: Encode<K>> KeyValueStore<K, V, C, KC> {
    fn encoded(&self, key: &K) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        self.encode_into(key, &mut out)?;
        Ok(out)
    }

    fn encode_into(&self, key: &K, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        KC::encode(key, out)
            .map_err(|e| Error::new(ErrorKind::Codec, format!("key of {} ({}): {e}", self.current.place(), KC::NAME)))
    }

    /// Encodes the key and says whether it is the current one.
    fn set_key(&mut self, key: &K) -> Result<bool> {
        self.current.inside()?;
        let mut bytes = std::mem::take(&mut self.key);
        let done = self.encode_into(key, &mut bytes);
        self.key = bytes;
        done?;
        Ok(self.key.as_slice() == self.current.key.as_slice())
    }

    fn slot(&mut self, current: bool) -> Result<Slot> {
        if current && let Some(slot) = self.current.slot {
            return Ok(slot);
        }
        self.find(current).map_err(|e| self.current.note(e))
    }

    fn find(&mut self, current: bool) -> Result<Slot> {
        let hash = if current { self.current.hash } else { lane_hash(&self.key) };
        if !current && self.lanes > 1 && lane_of(hash, self.lanes) != self.lane {
            self.current.write_other(&self.key)?;
        }
        let slot = self.values.entry(hash, &self.key, self.current.timestamp)?;
        if current {
            self.current.slot = Some(slot);
        }
        Ok(slot)
    }

    fn read(&self) -> Result<Option<V>> {
        self.values.bytes.get(&self.key)?.map(|b| self.values.decode(&b)).transpose()
    }

    /// The value of a key: as last written where it is the current key, else as of the last commit.
    ///
    /// # Errors
    /// Outside a handler, or when local state cannot be read or decoded.
    pub fn get(&mut self, key: &K) -> Result<Option<&V>> {
        if self.set_key(key)? {
            let slot = self.slot(true)?;
            return Ok(self.values.overlay.value(slot));
        }
        self.committed = self.read().map_err(|e| self.current.note(e))?;
        Ok(self.committed.as_ref())
    }

    /// Writes the value of a key.
    ///
    /// # Errors
    /// Outside a handler, when local state cannot be read or decoded, or for a key of another lane.
    pub fn put(&mut self, key: &K, value: V) -> Result<()> {
        let current = self.set_key(key)?;
        let slot = self.slot(current)?;
        self.values.put(slot, self.current.timestamp, value);
        Ok(())
    }

    /// Changes the value of a key in place; `init` makes it where there is none.
    ///
    /// # Errors
    /// As [`KeyValueStore::put`].
    pub fn update<R>(&mut self, key: &K, init: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> R) -> Result<R> {
        let current = self.set_key(key)?;
        let slot = self.slot(current)?;
        self.values.update(slot, self.current.timestamp, init, change)
    }

    /// Removes the value of a key.
    ///
    /// # Errors
    /// As [`KeyValueStore::put`].
    pub fn remove(&mut self, key: &K) -> Result<()> {
        let current = self.set_key(key)?;
        let slot = self.slot(current)?;
        self.values.remove(slot, self.current.timestamp);
        Ok(())
    }
}

impl<K, V, C, KC> StateField for KeyValueStore<K, V, C, KC>
where
    K: Key,
    V: Send + 'static,
    C: Encode<V> + Decode<V>,
    KC: Encode<K> + Decode<K>,
{
    const KIND: StoreKind = StoreKind::KeyValue;
    const PEEKS: bool = true;

    fn key_codec() -> Option<String> {
        Some(codec_id::<KC>())
    }

    fn value() -> Option<ValueDecl> {
        Some(ValueDecl::of::<V, C>())
    }

    fn make(seed: FieldSeed) -> Self {
        let current = Current::new(&seed);
        Self {
            values: Values::new(current.place(), seed.store, seed.bytes),
            current,
            lane: seed.lane,
            lanes: seed.lanes,
            key: Vec::new(),
            committed: None,
            types: PhantomData,
        }
    }

    fn as_field(&mut self) -> &mut dyn Field {
        &mut self.values
    }

    #[inline]
    fn enter(&mut self, at: &Entered<'_>) {
        self.current.enter(at);
        self.values.overlay.begin(at.undo);
    }

    fn undo(&mut self) -> Result<()> {
        self.values.undo()
    }

    #[inline]
    fn leave(&mut self, index: usize) -> Result<()> {
        self.committed = None;
        self.values.overlay.keep();
        self.current.leave(index)
    }
}

impl<K: Key, V, C, KC: Codec> fmt::Debug for KeyValueStore<K, V, C, KC> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValueStore").field("field", &self.current.place()).finish_non_exhaustive()
    }
}
