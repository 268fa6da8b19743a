//! A disk that forgets: stores in memory that lose at a crash what RocksDB may lose.
//!
//! After a crash each store holds, on its own, the state of *some* batch between its last flush and its last write
//! ([`TwinDisk::crash`], [`TwinDisk::crash_keeping`]). Rows without their stamp ([`Kept::torn_rows`]) are more than
//! RocksDB does to us; replaying the changelog from the stamp heals them too, because rows are absolute.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::memory::{State, check_kind};
use super::{Batch, ByteStore, Row, Stamp, StoreKind, StoreSet};
use crate::broker::sim::Fuse;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Generation;
use crate::time::Timestamp;

/// The disk: outlives the sets that are opened on it, as a directory outlives a process.
#[derive(Clone, Debug, Default)]
pub struct TwinDisk(Arc<Mutex<Disk>>);

#[derive(Debug, Default)]
struct Disk {
    stores: BTreeMap<String, Durable>,
    /// Counts crashes: handles from before one are those of a dead process.
    life: u64,
    broken: Option<String>,
    fuse: Fuse,
}

#[derive(Debug)]
struct Durable {
    kind: StoreKind,
    newest: Generation,
    flushed: State,
    now: Arc<State>,
    /// What was written since the flush.
    unflushed: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    Batch(Batch),
    Clear,
}

/// What a crash leaves of a store's writes since its last flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// So many batches, from the oldest.
    pub batches: usize,
    /// Of the batch behind them: so many rows, from the first, without the stamp.
    pub torn_rows: usize,
}

impl TwinDisk {
    /// Makes an empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the directory, as a process does at its start: generations are those of a process, and begin anew.
    pub fn open_set(&self) -> TwinStoreSet {
        let mut disk = self.lock();
        for store in disk.stores.values_mut() {
            store.newest = Generation::default();
        }
        TwinStoreSet { disk: self.clone(), life: disk.life }
    }

    /// Ends the process that has the directory open; each store forgets all that was applied since its last flush.
    pub fn crash(&self) {
        self.crash_keeping(|_, _| Kept::default());
    }

    /// Ends the process that has the directory open; `keep` says what is left, given a store's name and the number of
    /// its writes since the last flush. Stores come in the order of their names.
    pub fn crash_keeping(&self, mut keep: impl FnMut(&str, usize) -> Kept) {
        let mut disk = self.lock();
        disk.life += 1;
        for (name, store) in &mut disk.stores {
            let changes = std::mem::take(&mut store.unflushed);
            let kept = keep(name, changes.len());
            let mut state = std::mem::take(&mut store.flushed);
            let mut rest = changes.iter();
            for change in rest.by_ref().take(kept.batches) {
                change.replay(store.kind, &mut state);
            }
            if let Some(Change::Batch(torn)) = rest.next() {
                state.apply_rows(store.kind, &torn.rows[..kept.torn_rows.min(torn.rows.len())]);
            }
            store.newest = Generation::default();
            store.flushed = state.clone();
            store.now = Arc::new(state);
        }
    }

    /// From now on every write fails with this reason (a full disk, say), until [`TwinDisk::repair`].
    pub fn break_writes(&self, reason: impl Into<String>) {
        self.lock().broken = Some(reason.into());
    }

    /// The process that has the directory open ends with this fuse: its writes burn it.
    pub fn set_fuse(&self, fuse: Fuse) {
        self.lock().fuse = fuse;
    }

    /// Writes work again.
    pub fn repair(&self) {
        self.lock().broken = None;
    }

    /// How many writes of a store a crash could lose.
    pub fn unflushed(&self, name: &str) -> usize {
        self.lock().stores.get(name).map_or(0, |s| s.unflushed.len())
    }
}

impl Change {
    fn replay(&self, kind: StoreKind, state: &mut State) {
        match self {
            Self::Batch(batch) => state.apply(kind, batch),
            Self::Clear => *state = State::default(),
        }
    }
}

/// One process' view of a [`TwinDisk`].
#[derive(Debug)]
pub struct TwinStoreSet {
    disk: TwinDisk,
    life: u64,
}

impl StoreSet for TwinStoreSet {
    fn open(&mut self, name: &str, kind: StoreKind) -> Result<Arc<dyn ByteStore>> {
        let mut disk = self.disk.lock();
        let store = disk.stores.entry(name.to_owned()).or_insert_with(|| Durable {
            kind,
            newest: Generation::default(),
            flushed: State::default(),
            now: Arc::default(),
            unflushed: Vec::new(),
        });
        check_kind(name, store.kind, kind)?;
        Ok(Arc::new(TwinStore { disk: self.disk.clone(), life: self.life, name: name.to_owned() }))
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.disk.lock().stores.keys().cloned().collect())
    }
}

#[derive(Debug)]
struct TwinStore {
    disk: TwinDisk,
    life: u64,
    name: String,
}

impl TwinStore {
    fn with<T>(&self, act: impl FnOnce(&mut Durable) -> Result<T>) -> Result<T> {
        let mut disk = self.disk.lock();
        if disk.life != self.life {
            return Err(self.error("the process that opened it has crashed"));
        }
        match disk.stores.get_mut(&self.name) {
            Some(store) => act(store),
            None => Err(self.error("it was dropped")),
        }
    }

    fn write(&self, act: impl FnOnce(&mut Durable)) -> Result<()> {
        if let Some(reason) = self.disk.lock().broken.clone() {
            return Err(self.error(&reason));
        }
        if !self.disk.lock().fuse.burn() {
            return Err(self.error("the process has ended"));
        }
        self.with(|store| {
            act(store);
            Ok(())
        })
    }

    fn error(&self, what: &str) -> Error {
        Error::new(ErrorKind::State, format!("store `{}`: {what}", self.name))
    }
}

impl ByteStore for TwinStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.with(|store| Ok(store.now.get(store.kind, key)))
    }

    fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        let (kind, state) = self.with(|store| Ok((store.kind, Arc::clone(&store.now))))?;
        state.scan(kind, from, to, visit);
        Ok(())
    }

    fn due(&self, time: Timestamp, key: &[u8], visit: &mut dyn FnMut(Timestamp, &[u8]) -> bool) -> Result<()> {
        let state = self.with(|store| Ok(Arc::clone(&store.now)))?;
        state.due(time, key, visit);
        Ok(())
    }

    fn apply(&self, generation: Generation, batch: &Batch) -> Result<()> {
        self.write(|store| {
            if generation < store.newest {
                return;
            }
            store.newest = generation;
            Arc::make_mut(&mut store.now).apply(store.kind, batch);
            let rows: Vec<Row> = batch.rows.clone();
            store.unflushed.push(Change::Batch(Batch { rows, stamp: batch.stamp.clone() }));
        })
    }

    fn begin(&self, generation: Generation) {
        // A dead process' announcement reaches nobody.
        let _ = self.with(|store| {
            store.newest = generation.max(store.newest);
            Ok(())
        });
    }

    fn stamp(&self) -> Result<Option<Stamp>> {
        self.with(|store| Ok(store.now.stamp.clone()))
    }

    fn flush(&self) -> Result<()> {
        self.write(|store| {
            store.unflushed.clear();
            store.flushed = State::clone(&store.now);
        })
    }

    fn clear(&self) -> Result<()> {
        self.write(|store| {
            store.now = Arc::default();
            store.unflushed.push(Change::Clear);
        })
    }
}
