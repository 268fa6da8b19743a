use std::fmt;

use super::StoreKind;
use super::current::Current;
use super::overlay::Slot;
use super::values::Values;
use crate::codec::{Decode, Encode, Json};
use crate::error::Result;
use crate::operator::Field;
use crate::processor::{Entered, FieldSeed, StateField};
use crate::topology::graph::ValueDecl;

/// State of the current key: a `#[state]` field of a processor. `C` is the codec of its values.
///
/// Values are kept decoded; what was written is encoded once per epoch. All methods work inside handlers only and return an
/// error that names the field elsewhere.
pub struct Keyed<V, C = Json> {
    values: Values<V, C>,
    current: Current,
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
        let c = &mut self.current;
        let slot = self.values.entry(c.hash, &c.key, c.timestamp)?;
        c.slot = Some(slot);
        Ok(slot)
    }

    /// The value of the current key.
    ///
    /// # Errors
    /// Outside a handler, or when local state cannot be read or decoded.
    pub fn get(&mut self) -> Result<Option<&V>> {
        let slot = self.slot()?;
        Ok(self.values.overlay.value(slot))
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
        self.values.put(slot, self.current.timestamp, value);
        Ok(())
    }

    /// Changes the value of the current key in place; `init` makes it where there is none.
    ///
    /// # Errors
    /// As [`Keyed::get`].
    pub fn update<R>(&mut self, init: impl FnOnce() -> V, change: impl FnOnce(&mut V) -> R) -> Result<R> {
        let slot = self.slot()?;
        self.values.update(slot, self.current.timestamp, init, change)
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
        self.values.take(slot, self.current.timestamp)
    }

    /// Removes the value of the current key.
    ///
    /// # Errors
    /// As [`Keyed::get`].
    pub fn remove(&mut self) -> Result<()> {
        let slot = self.slot()?;
        self.values.remove(slot, self.current.timestamp);
        Ok(())
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
        let current = Current::new(&seed);
        Self { values: Values::new(current.place(), seed.store, seed.bytes), current }
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
        self.values.overlay.keep();
        self.current.leave(index)
    }
}

impl<V, C> fmt::Debug for Keyed<V, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyed").field("field", &self.current.place()).finish_non_exhaustive()
    }
}
