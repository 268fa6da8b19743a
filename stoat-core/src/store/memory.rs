//! Stores in memory: gone with the process, rebuilt from the changelogs.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use smallvec::SmallVec;

use super::timers::Timers;
use super::{Batch, ByteStore, Stamp, StoreKind, StoreSet, layout};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Generation;
use crate::time::Timestamp;

/// All stores of one application in memory.
///
/// # Examples
///
/// ```
/// use stoat_core::id::Generation;
/// use stoat_core::store::memory::MemoryStoreSet;
/// use stoat_core::store::{Batch, Row, StoreKind, StoreSet};
/// use stoat_core::time::Timestamp;
///
/// let mut stores = MemoryStoreSet::new();
/// let counts = stores.open("counts", StoreKind::KeyValue)?;
/// let row = Row { key: b"ant".to_vec(), lane_key: 3, value: Some(b"1".to_vec()), timestamp: Timestamp(0) };
/// counts.apply(Generation(1), &Batch { rows: vec![row], ..Batch::default() })?;
/// assert_eq!(counts.get(b"ant")?.as_deref(), Some(&b"1"[..]));
/// # Ok::<(), stoat_core::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct MemoryStoreSet {
    stores: BTreeMap<String, Arc<MemoryStore>>,
}

impl MemoryStoreSet {
    /// Makes an empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets a store. Who still holds it keeps it.
    pub fn drop_store(&mut self, name: &str) {
        self.stores.remove(name);
    }
}

impl StoreSet for MemoryStoreSet {
    fn open(&mut self, name: &str, kind: StoreKind) -> Result<Arc<dyn ByteStore>> {
        // The same store for the same name: so an older engine's handle meets the newer one's generation.
        let store = self.stores.entry(name.to_owned()).or_insert_with(|| Arc::new(MemoryStore::new(kind)));
        check_kind(name, store.kind, kind)?;
        Ok(Arc::clone(store) as _)
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.stores.keys().cloned().collect())
    }
}

pub(super) fn check_kind(name: &str, found: StoreKind, wanted: StoreKind) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::State,
        format!(
            "store `{name}` is there as `{}`, but the topology declares it as `{}`: give the new store another name, \
             or remove the old one and its changelog",
            found.name(),
            wanted.name()
        ),
    ))
}

/// Short ones lie in the tree itself: finding one among millions is a matter of cache misses.
pub(super) type Bytes = SmallVec<[u8; 24]>;

/// Rows and what they are.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// Of all kinds but timers.
    rows: BTreeMap<Bytes, Bytes>,
    timers: Timers,
    pub(super) stamp: Option<Stamp>,
}

impl State {
    pub(super) fn get(&self, kind: StoreKind, key: &[u8]) -> Option<Vec<u8>> {
        if kind.is_timers() { self.timers.get(key).map(<[u8]>::to_vec) } else { self.rows.get(key).map(|v| v.to_vec()) }
    }

    pub(super) fn apply(&mut self, kind: StoreKind, batch: &Batch) {
        self.apply_rows(kind, &batch.rows);
        self.stamp = Some(batch.stamp.over(self.stamp.as_ref()));
    }

    pub(super) fn apply_rows(&mut self, kind: StoreKind, rows: &[super::Row]) {
        for row in rows {
            let value = layout::local_value(kind, row);
            if kind.is_timers() {
                self.timers.put(kind, &row.key, value.as_deref());
                continue;
            }
            match value {
                Some(value) => self.rows.insert(Bytes::from_slice(&row.key), Bytes::from_slice(&value)),
                None => self.rows.remove(row.key.as_slice()),
            };
        }
    }

    pub(super) fn due(&self, time: Timestamp, key: &[u8], visit: &mut dyn FnMut(Timestamp, &[u8]) -> bool) {
        self.timers.due(time, key, visit);
    }

    pub(super) fn scan(
        &self,
        kind: StoreKind,
        from: Option<&[u8]>,
        to: Option<&[u8]>,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) {
        if kind.is_timers() {
            return self.timers.scan(from, to, visit);
        }
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            return; // `BTreeMap::range` panics on such bounds.
        }
        let bounds = (from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded));
        for (key, value) in self.rows.range::<[u8], _>(bounds) {
            if !visit(key, value) {
                return;
            }
        }
    }
}

/// One store in memory. A scan sees the rows as of its beginning.
#[derive(Debug)]
pub struct MemoryStore {
    kind: StoreKind,
    /// The newest generation that was announced; held while a batch is applied, so that no older write slips in.
    newest: Mutex<Generation>,
    /// Shared with running scans: a write that meets one copies the rows, a write that meets none does not.
    state: RwLock<Arc<State>>,
}

impl MemoryStore {
    /// Makes an empty store.
    pub fn new(kind: StoreKind) -> Self {
        Self { kind, newest: Mutex::default(), state: RwLock::default() }
    }

    fn snapshot(&self) -> Arc<State> {
        Arc::clone(&self.state.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ByteStore for MemoryStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.state.read().unwrap_or_else(PoisonError::into_inner).get(self.kind, key))
    }

    fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        // Without the lock: the visitor may read the store, and a writer does not wait for it.
        self.snapshot().scan(self.kind, from, to, visit);
        Ok(())
    }

    fn due(&self, time: Timestamp, key: &[u8], visit: &mut dyn FnMut(Timestamp, &[u8]) -> bool) -> Result<()> {
        // Under the lock: these visits are short and many, and a writer that met a shared state would copy all of it.
        self.state.read().unwrap_or_else(PoisonError::into_inner).due(time, key, visit);
        Ok(())
    }

    fn apply(&self, generation: Generation, batch: &Batch) -> Result<()> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if generation < *newest {
            return Ok(());
        }
        *newest = generation;
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut state).apply(self.kind, batch);
        Ok(())
    }

    fn begin(&self, generation: Generation) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = generation.max(*newest);
    }

    fn stamp(&self) -> Result<Option<Stamp>> {
        Ok(self.state.read().unwrap_or_else(PoisonError::into_inner).stamp.clone())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        *self.state.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        Ok(())
    }
}
