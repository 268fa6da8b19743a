use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::current::Current;
use super::merge::merged;
use super::overlay::{Overlay, Slot};
use super::{ByteStore, Row, StoreKind};
use crate::codec::{CodecError, Decode, Encode, Json};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, StoreId};
use crate::operator::{Field, Weight};
use crate::processor::{Entered, FieldSeed, StateField};
use crate::topology::graph::ValueDecl;

/// State of the current key: a `#[state]` field of a processor. `C` is the codec of its values.
///
/// Values are kept decoded; what was written is encoded once per epoch. All methods work inside handlers only and return an
/// error that names the field elsewhere.
pub struct Keyed<V, C = Json> {
    store: StoreId,
    bytes: Arc<dyn ByteStore>,
    overlay: Overlay<V>,
    current: Current,
    codec: PhantomData<fn() -> C>,
}

/// What is wrong with bytes of the own state.
pub(crate) fn state_error(what: &str, codec: &str, e: &CodecError) -> Error {
    Error::new(
        ErrorKind::State,
        format!("value of {what} ({codec}): {e}; was the type or the codec of this state changed?"),
    )
}

/// What is wrong with a value that is to be stored.
pub(crate) fn encode_error(what: &str, codec: &str, e: &CodecError) -> Error {
    Error::new(ErrorKind::Codec, format!("value of {what} ({codec}): {e}"))
}

fn encode<V, C: Encode<V>>(current: &Current, value: &V, out: &mut Vec<u8>) -> Result<()> {
    C::encode(value, out).map_err(|e| encode_error(&current.place(), C::NAME, &e))
}

impl<V, C: Encode<V> + Decode<V>> Keyed<V, C> {
    #[inline]
    fn slot(&mut self) -> Result<Slot> {
        if let Some(slot) = self.current.slot {
            return Ok(slot);
        }
        self.find().map_err(|e| self.current.note(e))
    }

    fn find(&mut self) -> Result<Slot> {
        self.current.keyed()?;
        let slot = match self.overlay.find(self.current.hash, &self.current.key) {
            Some(slot) => slot,
            None => self.load()?,
        };
        self.current.slot = Some(slot);
        Ok(slot)
    }

    fn load(&mut self) -> Result<Slot> {
        let (value, encoded) = match self.bytes.get(&self.current.key)? {
            None => (None, 0),
            Some(b) => {
                let value = C::decode(&b).map_err(|e| state_error(&self.current.place(), C::NAME, &e))?;
                (Some(value), b.len())
            }
        };
        let c = &self.current;
        Ok(self.overlay.insert(c.hash, &c.key, value, c.timestamp, encoded))
    }

    /// The value of the current key.
    ///
    /// # Errors
    /// Outside a handler, or when local state cannot be read or decoded.
    pub fn get(&mut self) -> Result<Option<&V>> {
        let slot = self.slot()?;
        Ok(self.overlay.value(slot))
    }

    /// Whether the current key has a value.
    ///
    /// # Errors
    /// As [`Keyed::get`].
    pub fn is_present(&mut self) -> Result<bool> {
        Ok(self.get()?.is_some())
    }

    /// Writes the value of the current key.
    ///
    /// # Errors
    /// As [`Keyed::get`].
    #[rustfmt::skip] // The comment behind the signature is part of what rustc shows.
    pub fn put(&mut self, value: V) -> Result<()> { // of the current key; for keys that are named: a `#[store]` field
        let slot = self.slot()?;
        // Null in the changelog deletes, so a value that is written as null is none here too.
        self.overlay.replace(slot, self.current.timestamp, Some(value).filter(|v| !C::is_null(v)));
        Ok(())
    }

    /// Changes the value of the current key in place; `init` makes it where there is none.
    ///
    /// # Errors
    /// As [`Keyed::get`].
    pub fn update<R>(&mut self, init: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> R) -> Result<R> {
        let slot = self.slot()?;
        let current = &self.current;
        let keep = |v: &V, out: &mut Vec<u8>| encode::<V, C>(current, v, out);
        let value = self.overlay.change(slot, current.timestamp, keep)?;
        let result = change(value.get_or_insert_with(init));
        value.take_if(|v| C::is_null(v));
        Ok(result)
    }

    /// As [`Keyed::update`], with a closure that may fail: then what it returned is returned, and the handler should end
    /// with it.
    ///
    /// # Errors
    /// As [`Keyed::get`], and what `change` returns.
    pub fn try_update<R>(&mut self, init: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> Result<R>) -> Result<R> {
        self.update(init, change)?
    }

    /// Removes and returns the value of the current key.
    ///
    /// # Errors
    /// As [`Keyed::get`].
    pub fn take(&mut self) -> Result<Option<V>> {
        let slot = self.slot()?;
        if self.overlay.value(slot).is_none() {
            return Ok(None);
        }
        let current = &self.current;
        let keep = |v: &V, out: &mut Vec<u8>| encode::<V, C>(current, v, out);
        Ok(self.overlay.change(slot, current.timestamp, keep)?.take())
    }

    /// Removes the value of the current key.
    ///
    /// # Errors
    /// As [`Keyed::get`].
    pub fn remove(&mut self) -> Result<()> {
        let slot = self.slot()?;
        if self.overlay.value(slot).is_some() {
            self.overlay.replace(slot, self.current.timestamp, None);
        }
        Ok(())
    }
}

impl<V: Send + 'static, C: Encode<V> + Decode<V>> Field for Keyed<V, C> {
    fn store(&self) -> StoreId {
        self.store
    }

    fn freeze(&mut self, _epoch: Epoch, rows: &mut Vec<Row>) -> Result<()> {
        let current = &self.current;
        self.overlay.freeze(rows, |_, value, out| encode::<V, C>(current, value, out))
    }

    fn applied(&mut self, _epoch: Epoch) {
        self.overlay.applied();
    }

    fn weight(&self) -> Weight {
        self.overlay.weight()
    }

    fn sample(&mut self) {
        let current = &self.current;
        self.overlay.sample(|value, out| encode::<V, C>(current, value, out));
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

impl<V: Send + 'static, C: Encode<V> + Decode<V>> StateField for Keyed<V, C> {
    const KIND: StoreKind = StoreKind::KeyValue;

    fn key_codec() -> Option<String> {
        None
    }

    fn value() -> Option<ValueDecl> {
        Some(ValueDecl::of::<V, C>())
    }

    fn make(seed: FieldSeed) -> Self {
        Self {
            store: seed.store,
            current: Current::new(&seed),
            bytes: seed.bytes,
            overlay: Overlay::default(),
            codec: PhantomData,
        }
    }

    #[inline]
    fn enter(&mut self, at: &Entered<'_>) {
        self.current.enter(at);
        self.overlay.begin(at.undo);
    }

    fn undo(&mut self) -> Result<()> {
        let current = &self.current;
        let decode = |b: &[u8]| C::decode(b).map_err(|e| state_error(&current.place(), C::NAME, &e));
        self.overlay.undo(decode, |_, _, _| {})
    }

    #[inline]
    fn leave(&mut self, index: usize) -> Result<()> {
        self.overlay.keep();
        self.current.leave(index)
    }
}

impl<V, C> fmt::Debug for Keyed<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("field", &self.current.place()).finish_non_exhaustive()
    }
}
