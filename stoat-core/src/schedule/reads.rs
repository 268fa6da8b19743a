//! Stores that a schedule reads, as of the last commit that was applied.

use std::any::TypeId;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use crate::__private::same;
use crate::codec::{Codec, Decode, Encode, codec_id};
use crate::error::{Error, ErrorKind, Result};
use crate::store::merge::after_prefix;
use crate::store::values::state_error;
use crate::store::{ByteStore, StoreKind};
use crate::topology::graph::{StoreDecl, ValueDecl};

/// A store that a [`Schedule`](super::Schedule) reads: its name, and the types and codecs that it is declared with where it
/// is written. They are compared when the topology is built.
///
/// # Examples
/// See [`Emit::store`](super::Emit::store).
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which store is read",
    label = "not a store to read",
    note = "write `impl ReadStore for {Self}` with the store's name, types and codecs"
)]
pub trait ReadStore: 'static {
    /// The type of the keys.
    type Key: 'static;
    /// The type of the values.
    type Value: 'static;
    /// The codec of the keys: that of the lanes where the store is.
    type KeyCodec: Encode<Self::Key> + Decode<Self::Key>;
    /// The codec of the values.
    type ValueCodec: Decode<Self::Value>;
    /// The name, as its changelog has it: of the field of a processor (or what its `name = ".."` says), or of the stream that
    /// an aggregation makes; in a fragment below the name of its place.
    const STORE: &'static str;
}

/// One entry of [`Schedule::READS`](super::Schedule::READS).
#[derive(Clone, Copy)]
pub struct Reads {
    store: &'static str,
    of: fn() -> TypeId,
    key_codec: fn() -> String,
    value: fn() -> ValueDecl,
}

impl Reads {
    /// The store that `R` says.
    pub const fn of<R: ReadStore>() -> Self {
        Self {
            store: R::STORE,
            of: TypeId::of::<R>,
            key_codec: codec_id::<R::KeyCodec>,
            value: ValueDecl::of::<R::Value, R::ValueCodec>,
        }
    }

    /// The store's name.
    pub const fn store(&self) -> &'static str {
        self.store
    }

    /// Its place among the stores of a topology.
    ///
    /// # Errors
    /// The text of what is wrong: there is no such store, or it holds something else.
    pub(crate) fn find(&self, stores: &[StoreDecl]) -> Result<usize, String> {
        let name = self.store;
        let Some(at) = stores.iter().position(|s| s.name == name) else {
            let near = stores
                .iter()
                .map(|s| (&s.name, strsim::normalized_damerau_levenshtein(&s.name, name)))
                .filter(|(_, score)| *score > 0.6)
                .max_by(|a, b| a.1.total_cmp(&b.1));
            let known: Vec<String> = stores.iter().map(|s| format!("`{}`", s.name)).collect();
            return Err(match near {
                Some((near, _)) => format!("there is no store `{name}`: did you mean `{near}`?"),
                None if known.is_empty() => format!("there is no store `{name}`: this topology has none"),
                None => format!("there is no store `{name}`; there are {}", known.join(", ")),
            });
        };
        let decl = &stores[at];
        let Some(value) = &decl.value else {
            return Err(format!(
                "`{name}` holds timers, not values: a schedule reads `Keyed`, `KeyValueStore` or tables"
            ));
        };
        let (key_codec, own) = ((self.key_codec)(), (self.value)());
        if key_codec != decl.key_codec {
            return Err(format!(
                "it reads the keys of store `{name}` with {key_codec}, but they are written with {}",
                decl.key_codec
            ));
        }
        if own != *value {
            return Err(format!("it reads `{name}` as a store of {own}, but it is one of {value}"));
        }
        Ok(at)
    }
}

impl fmt::Debug for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Reads").field(&self.store).finish()
    }
}

/// Whether a store stands among `reads`; for the compiler.
pub(super) const fn names(reads: &[Reads], store: &str) -> bool {
    let mut i = 0;
    while i < reads.len() {
        if same(reads[i].store, store) {
            return true;
        }
        i += 1;
    }
    false
}

/// The bytes of the stores that a schedule reads, in the order of its `READS`.
#[derive(Clone, Default)]
pub struct Reading {
    stores: Vec<(Arc<dyn ByteStore>, StoreKind)>,
}

impl Reading {
    /// Those of `stores` that stand at these places.
    pub(crate) fn new(at: &[crate::id::StoreId], decls: &[StoreDecl], stores: &[Arc<dyn ByteStore>]) -> Self {
        let one = |id: &crate::id::StoreId| (stores[id.0 as usize].clone(), decls[id.0 as usize].kind);
        Self { stores: at.iter().map(one).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.stores.is_empty()
    }
}

/// What went wrong with local state while an emitter ran: it may not swallow that.
pub(super) type Damage = RefCell<Option<Error>>;

/// A store as of the last commit that was applied; see [`Emit::store`](super::Emit::store).
pub struct Committed<'a, R> {
    bytes: &'a dyn ByteStore,
    stamped: bool,
    damage: &'a Damage,
    store: PhantomData<fn() -> R>,
}

impl<'a, R: ReadStore> Committed<'a, R> {
    /// `None`: `reads` does not name it.
    pub(super) fn among(reads: &[Reads], reading: &'a Reading, damage: &'a Damage) -> Option<Self> {
        let at = reads.iter().position(|r| (r.of)() == TypeId::of::<R>())?;
        let (bytes, kind) = reading.stores.get(at)?;
        Some(Self { bytes: &**bytes, stamped: *kind == StoreKind::TimestampedKeyValue, damage, store: PhantomData })
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the codec cannot write the key, or local state cannot be read or decoded.
    pub fn get(&self, key: &R::Key) -> Result<Option<R::Value>> {
        let key = Self::encoded(key)?;
        let found = self.bytes.get(&key).and_then(|v| v.map(|v| self.value(&v)).transpose());
        self.noting(found)
    }

    /// All rows whose key's bytes lie in the range of these keys' bytes, in the order of the bytes: that of the keys for codecs
    /// that keep it (UTF-8, bytes, unsigned big-endian integers). `..` is all rows. They are kept in memory at once;
    /// [`Committed::scan`] shows one after the other.
    ///
    /// # Errors
    /// As [`Committed::get`].
    pub fn range(&self, range: impl RangeBounds<R::Key>) -> Result<Vec<(R::Key, R::Value)>> {
        let after = |mut key: Vec<u8>| {
            key.push(0);
            key
        };
        let from = match range.start_bound() {
            Bound::Unbounded => None,
            Bound::Included(k) => Some(Self::encoded(k)?),
            Bound::Excluded(k) => Some(after(Self::encoded(k)?)),
        };
        let to = match range.end_bound() {
            Bound::Unbounded => None,
            Bound::Excluded(k) => Some(Self::encoded(k)?),
            Bound::Included(k) => Some(after(Self::encoded(k)?)),
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
    /// As [`Committed::get`].
    pub fn prefix(&self, prefix: &[u8]) -> Result<Vec<(R::Key, R::Value)>> {
        let mut rows = Vec::new();
        self.scan(Some(prefix), after_prefix(prefix).as_deref(), |k, v| {
            rows.push((k, v));
            true
        })?;
        Ok(rows)
    }

    /// Visits all rows with `from <= bytes of the key < to` (`None`: no bound), in the order of the bytes, until the visitor
    /// says `false`.
    ///
    /// # Errors
    /// As [`Committed::get`].
    pub fn scan(
        &self,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        mut visit: impl FnMut(R::Key, R::Value) -> bool,
    ) -> Result<()> {
        if let (Some(f), Some(t)) = (from, to)
            && f >= t
        {
            return Ok(());
        }
        let mut bad = None;
        let read = self.bytes.scan(from, to, &mut |key, value| match self.row(key, value) {
            Ok((k, v)) => visit(k, v),
            Err(e) => {
                bad = Some(e);
                false
            }
        });
        self.noting(read.and_then(|()| bad.map_or(Ok(()), Err)))
    }

    fn row(&self, key: &[u8], value: &[u8]) -> Result<(R::Key, R::Value)> {
        let bad = |e| Error::new(ErrorKind::State, format!("key in store `{}` ({}): {e}", R::STORE, R::KeyCodec::NAME));
        Ok((R::KeyCodec::decode(key).map_err(bad)?, self.value(value)?))
    }

    fn value(&self, bytes: &[u8]) -> Result<R::Value> {
        let bytes = if self.stamped { bytes.get(8..).unwrap_or_default() } else { bytes };
        R::ValueCodec::decode(bytes).map_err(|e| state_error(&format!("store `{}`", R::STORE), R::ValueCodec::NAME, &e))
    }

    fn encoded(key: &R::Key) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let bad =
            |e| Error::new(ErrorKind::Codec, format!("key for store `{}` ({}): {e}", R::STORE, R::KeyCodec::NAME));
        R::KeyCodec::encode(key, &mut out).map_err(bad)?;
        Ok(out)
    }

    /// Remembers that local state is damaged, in case the emitter makes nothing of it.
    fn noting<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(e) = &result {
            self.damage.borrow_mut().get_or_insert_with(|| Error::new(e.kind(), e.to_string()));
        }
        result
    }
}

impl<R: ReadStore> fmt::Debug for Committed<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Committed").field(&R::STORE).finish()
    }
}
