use std::marker::PhantomData;
use std::sync::Arc;

use super::merge::merged;
use super::overlay::{Overlay, Slot};
use super::{ByteStore, Row};
use crate::codec::{CodecError, Decode, Encode};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, StoreId};
use crate::operator::{Field, Weight};
use crate::time::Timestamp;

/// One lane's values of one store, decoded over its bytes: what state fields and aggregations are made of. `C` is the codec
/// of the values.
pub(crate) struct Values<V, C> {
    /// Whose they are, for messages.
    place: Arc<str>,
    store: StoreId,
    pub(crate) bytes: Arc<dyn ByteStore>,
    pub(crate) overlay: Overlay<V>,
    /// Whether rows begin with the time of their last write, see [`StoreKind::TimestampedKeyValue`](super::StoreKind).
    timestamped: bool,
    /// Bytes that the owner holds beside, until the epoch ends.
    pub(crate) beside: usize,
    codec: PhantomData<fn() -> C>,
}

impl<V, C> Values<V, C> {
    pub(crate) fn new(place: impl Into<Arc<str>>, store: StoreId, bytes: Arc<dyn ByteStore>) -> Self {
        Self {
            place: place.into(),
            store,
            bytes,
            overlay: Overlay::default(),
            timestamped: false,
            beside: 0,
            codec: PhantomData,
        }
    }

    /// As [`Values::new`], for a store whose rows begin with a time.
    pub(crate) fn timestamped(place: impl Into<Arc<str>>, store: StoreId, bytes: Arc<dyn ByteStore>) -> Self {
        Self { timestamped: true, ..Self::new(place, store, bytes) }
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }
}

impl<V, C: Decode<V>> Values<V, C> {
    /// A value as the store has it, behind its time where it has one.
    pub(crate) fn decode(&self, bytes: &[u8]) -> Result<V> {
        decode::<V, C>(&self.place, bytes)
    }

    /// The entry of a key, read from the store where it is not here; `now` is its time where the row has none.
    #[inline]
    pub(crate) fn entry(&mut self, hash: u64, key: &[u8], now: Timestamp) -> Result<Slot> {
        match self.overlay.find(hash, key) {
            Some(slot) => Ok(slot),
            None => self.load(hash, key, now),
        }
    }

    fn load(&mut self, hash: u64, key: &[u8], now: Timestamp) -> Result<Slot> {
        let Some(stored) = self.bytes.get(key)? else {
            return Ok(self.overlay.insert(hash, key, None, now, 0));
        };
        let (time, value) = if self.timestamped { self.split(&stored)? } else { (now, stored.as_slice()) };
        let decoded = self.decode(value)?;
        Ok(self.overlay.insert(hash, key, Some(decoded), time, value.len()))
    }

    fn split<'a>(&self, stored: &'a [u8]) -> Result<(Timestamp, &'a [u8])> {
        let (time, value) = stored.split_first_chunk::<8>().ok_or_else(|| {
            Error::new(
                ErrorKind::State,
                format!(
                    "store {}: a row of {} bytes has no timestamp; rebuild the state directory",
                    self.place,
                    stored.len()
                ),
            )
        })?;
        Ok((Timestamp::from_millis(i64::from_be_bytes(*time)), value))
    }

    /// Takes back what the handler that ends now wrote.
    pub(crate) fn undo(&mut self) -> Result<()> {
        let place = &self.place;
        self.overlay.undo(|bytes| decode::<V, C>(place, bytes), |_, _, _| {})
    }
}

impl<V, C: Encode<V>> Values<V, C> {
    /// Writes a value. Null in the changelog deletes, so a value that is written as null is none here too.
    pub(crate) fn put(&mut self, slot: Slot, now: Timestamp, value: V) {
        self.overlay.replace(slot, now, Some(value).filter(|v| !C::is_null(v)));
    }

    /// Changes a value in place; `init` makes it where there is none.
    pub(crate) fn update<R>(
        &mut self,
        slot: Slot,
        now: Timestamp,
        init: impl FnOnce() -> V,
        change: impl FnOnce(&mut V) -> R,
    ) -> Result<R> {
        let value = self.change(slot, now)?;
        let result = change(value.get_or_insert_with(init));
        value.take_if(|v| C::is_null(v));
        Ok(result)
    }

    /// Removes and returns a value.
    pub(crate) fn take(&mut self, slot: Slot, now: Timestamp) -> Result<Option<V>> {
        if self.overlay.value(slot).is_none() {
            return Ok(None);
        }
        Ok(self.change(slot, now)?.take())
    }

    /// Removes a value.
    pub(crate) fn remove(&mut self, slot: Slot, now: Timestamp) {
        if self.overlay.value(slot).is_some() {
            self.overlay.replace(slot, now, None);
        }
    }

    fn change(&mut self, slot: Slot, now: Timestamp) -> Result<&mut Option<V>> {
        let place = &self.place;
        self.overlay.change(slot, now, |value, out| encode::<V, C>(place, value, out))
    }
}

impl<V: Send, C: Encode<V> + Decode<V>> Field for Values<V, C> {
    fn store(&self) -> StoreId {
        self.store
    }

    fn freeze(&mut self, _epoch: Epoch, rows: &mut Vec<Row>) -> Result<()> {
        let place = &self.place;
        self.overlay.freeze(rows, |_, value, out| encode::<V, C>(place, value, out))
    }

    fn applied(&mut self, _epoch: Epoch) {
        self.overlay.applied();
    }

    fn weight(&self) -> Weight {
        let Weight { uncommitted, total } = self.overlay.weight();
        Weight { uncommitted: uncommitted + self.beside, total: total + self.beside }
    }

    fn sample(&mut self) {
        let place = &self.place;
        self.overlay.sample(|value, out| encode::<V, C>(place, value, out));
    }

    fn trim(&mut self, bytes: usize) {
        self.overlay.trim(bytes);
    }

    fn keys(&self, of_lane: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        merged(
            &self.overlay,
            |_| true,
            &*self.bytes,
            None,
            None,
            |key, _| {
                if of_lane(key) {
                    keys.push(key.to_vec());
                }
                Ok(true)
            },
        )?;
        Ok(keys)
    }
}

fn decode<V, C: Decode<V>>(place: &str, bytes: &[u8]) -> Result<V> {
    C::decode(bytes).map_err(|e| state_error(place, C::NAME, &e))
}

fn encode<V, C: Encode<V>>(place: &str, value: &V, out: &mut Vec<u8>) -> Result<()> {
    C::encode(value, out).map_err(|e| Error::new(ErrorKind::Codec, format!("value of {place} ({}): {e}", C::NAME)))
}

/// What is wrong with bytes of the own state.
pub(crate) fn state_error(what: &str, codec: &str, e: &CodecError) -> Error {
    Error::new(
        ErrorKind::State,
        format!("value of {what} ({codec}): {e}; was the type or the codec of this state changed?"),
    )
}
