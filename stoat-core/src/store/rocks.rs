//! Stores in RocksDB: one database per application directory, one column family per store.
//!
//! RocksDB keeps no log of its own: the changelog is the log. A batch and its stamp are one atomic write of one column
//! family, so what is on disk after a crash is, per store, the state of some applied batch with its own stamp.
//!
//! Rows of a column family:
//!
//! | key | value |
//! |---|---|
//! | `00` `kind` | `STKD`, version byte, the kind's name: how the rows below are laid out ([`layout`]) |
//! | `00` `stamp` | `STSP`, version byte 1, the [`Stamp`] as JSON |
//! | `01` key | value in the local layout |
//! | `02` time, key | nothing: the rows of a store of timers by time ([`layout::due_key`]) |
//!
//! The kind's version is 1, for stores of timers 2: version 1 had no rows by time. They are made when such a store is
//! opened, then the version is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rocksdb::{
    BlockBasedIndexType, BlockBasedOptions, BoundColumnFamily, Cache, ColumnFamilyDescriptor, DBCompressionType,
    DBWithThreadMode, LogLevel, LruCacheOptions, MultiThreaded, Options, ReadOptions, WriteBatch, WriteBufferManager,
    WriteOptions,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::directory::StateDirectory;
use super::memory::check_kind;
use super::{Batch, ByteStore, Row, Stamp, StoreKind, StoreSet, layout};
use crate::error::{Error, ErrorKind, Result};
use crate::id::Generation;
use crate::time::Timestamp;

type Db = DBWithThreadMode<MultiThreaded>;

const DATA: u8 = 0x01;
/// Behind all data rows.
const DATA_END: u8 = 0x02;
/// In front of rows by time.
const DUE: u8 = 0x02;
/// Behind all rows by time.
const DUE_END: u8 = 0x03;
const KIND_KEY: &[u8] = b"\0kind";
/// What a row takes in a batch beside key and value, at most.
const ROW: usize = 28;
const STAMP_KEY: &[u8] = b"\0stamp";
const KIND_MAGIC: &[u8; 4] = b"STKD";
const STAMP_MAGIC: &[u8; 4] = b"STSP";
const VERSION: u8 = 1;
/// Of the kind of a store that has rows by time.
const DUE_VERSION: u8 = 2;
/// Rows of an old store of timers that are put in order at once.
const ORDER_BATCH: usize = 10_000;
/// In front of a store's name: RocksDB has a column family `default` of its own, and a store may bear that name.
const FAMILY: &str = "store.";

/// What [`RocksStoreSet::open`] needs to know.
#[derive(Clone, Debug)]
pub struct RocksConfig {
    /// The application's state directory; made if it is not there.
    pub dir: PathBuf,
    /// The application's id: a directory of another one is refused.
    pub application_id: String,
    /// Bytes for block cache and memtables of all stores together; at most half of them for memtables.
    pub memory: usize,
    /// Threads for flushes and compactions.
    pub background_threads: u16,
    /// How many files may be open at once.
    pub max_open_files: u16,
}

impl RocksConfig {
    /// 16 MiB, 2 background threads, 256 open files.
    pub fn new(dir: impl Into<PathBuf>, application_id: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            application_id: application_id.into(),
            memory: 16 << 20,
            // A flush must not wait behind a long compaction; more than that only takes cores from the lanes.
            background_threads: 2,
            max_open_files: 256,
        }
    }
}

/// All stores of one application in one directory, locked for this process until the set *and* its stores are dropped.
///
/// # Examples
///
/// ```no_run
/// use stoat_core::store::rocks::{RocksConfig, RocksStoreSet};
/// use stoat_core::store::{StoreKind, StoreSet};
///
/// let mut stores = RocksStoreSet::open(&RocksConfig::new("/var/lib/word-count", "word-count"))?;
/// let counts = stores.open("counts", StoreKind::TimestampedKeyValue)?;
/// # Ok::<(), stoat_core::Error>(())
/// ```
pub struct RocksStoreSet {
    shared: Arc<Shared>,
    /// All stores of the directory; those that were opened in this process have a value.
    stores: BTreeMap<String, Option<Arc<RocksStore>>>,
}

struct Shared {
    // Fields are dropped in this order: the lock outlives the database.
    db: Db,
    family: Options,
    cache: Cache,
    memtables: WriteBufferManager,
    /// A write that leaves the memtables larger than this flushes its own.
    memtables_limit: usize,
    read: ReadOptions,
    write: WriteOptions,
    directory: StateDirectory,
}

impl RocksStoreSet {
    /// Opens the directory: locks it, checks its format, opens the database.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`] when another process uses the directory; [`ErrorKind::State`] when it cannot be read or
    /// written, is damaged, belongs to another application, or has a format that this version does not know.
    pub fn open(config: &RocksConfig) -> Result<Self> {
        let directory = StateDirectory::open(&config.dir, &config.application_id)?;
        let cache = block_cache(config.memory);
        // Memtables are charged to the cache: both together stay within its capacity. RocksDB begins to flush some when
        // three quarters of the memtables' share are spent. Where writes come faster, they flush themselves (see
        // `apply`): RocksDB's own stall has no end and no error while the disk is broken, and holds the commit path.
        let limit = config.memory / 2;
        let share = limit / 4 * 3;
        let memtables = WriteBufferManager::new_write_buffer_manager_with_cache(share, false, cache.clone());
        let family = family_options(config.memory, &cache);
        let options = database_options(config, &family, &memtables);

        let path = directory.rocksdb();
        let fail = |e: rocksdb::Error| failure(directory.path(), "opened", e.as_ref());
        let families =
            if path.join("CURRENT").exists() { Db::list_cf(&options, &path).map_err(fail)? } else { Vec::new() };
        let stores = families.iter().filter_map(|f| f.strip_prefix(FAMILY)).map(|n| (n.to_owned(), None)).collect();
        let descriptors = families.iter().map(|f| ColumnFamilyDescriptor::new(f, family.clone()));
        let db = Db::open_cf_descriptors(&options, &path, descriptors).map_err(fail)?;

        let mut write = WriteOptions::default();
        write.disable_wal(true);
        let read = ReadOptions::default();
        Ok(Self {
            shared: Arc::new(Shared { db, family, cache, memtables, memtables_limit: limit, read, write, directory }),
            stores,
        })
    }

    /// The application's state directory.
    pub fn dir(&self) -> &Path {
        self.shared.directory.path()
    }

    /// Bytes that block cache and memtables hold now.
    pub fn memory_used(&self) -> usize {
        self.shared.cache.get_usage()
    }

    /// Bytes that the memtables hold now; part of [`RocksStoreSet::memory_used`].
    pub fn memtables_used(&self) -> usize {
        self.shared.memtables.get_usage()
    }

    /// Removes a store and its rows from the directory; none of that name: nothing happens. Who still holds it gets
    /// errors from then on.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn drop_store(&mut self, name: &str) -> Result<()> {
        if self.stores.contains_key(name) {
            self.shared.db.drop_cf(&family_name(name)).map_err(|e| self.shared.failure("written", &e))?;
            self.stores.remove(name);
        }
        Ok(())
    }
}

impl StoreSet for RocksStoreSet {
    fn open(&mut self, name: &str, kind: StoreKind) -> Result<Arc<dyn ByteStore>> {
        // The same store for the same name: so an older engine's handle meets the newer one's generation.
        if let Some(Some(store)) = self.stores.get(name) {
            check_kind(name, store.kind, kind)?;
            return Ok(Arc::clone(store) as _);
        }
        if name.is_empty() || name.contains('\0') {
            return Err(Error::new(ErrorKind::State, format!("`{}` cannot be a store's name", name.escape_debug())));
        }
        let family = family_name(name);
        if !self.stores.contains_key(name) {
            let made = self.shared.db.create_cf(&family, &self.shared.family);
            made.map_err(|e| self.shared.failure("written", &e))?;
            self.stores.insert(name.to_owned(), None);
        }
        let store = RocksStore {
            name: name.to_owned(),
            family,
            kind,
            shared: Arc::clone(&self.shared),
            writer: Mutex::default(),
        };
        store.check_kind()?;
        store.writer().stamp = store.read_stamp()?;
        let store = Arc::new(store);
        self.stores.insert(name.to_owned(), Some(Arc::clone(&store)));
        Ok(store)
    }

    fn names(&self) -> Result<Vec<String>> {
        Ok(self.stores.keys().cloned().collect())
    }
}

struct RocksStore {
    name: String,
    family: String,
    kind: StoreKind,
    shared: Arc<Shared>,
    /// Held while a batch is written: writes come one at a time, and no older generation's slips in.
    writer: Mutex<Writer>,
}

#[derive(Default)]
struct Writer {
    newest: Generation,
    /// What the stamp row says.
    stamp: Option<Stamp>,
}

impl RocksStore {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn family(&self) -> Result<Arc<BoundColumnFamily<'_>>> {
        self.shared
            .db
            .cf_handle(&self.family)
            .ok_or_else(|| self.at(Error::new(ErrorKind::State, "the store was dropped; nothing may use it any more")))
    }

    fn at(&self, e: Error) -> Error {
        e.at(format!("store `{}`", self.name))
    }

    fn failure(&self, done: &str, e: &rocksdb::Error) -> Error {
        self.at(self.shared.failure(done, e))
    }

    fn read_row(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.shared.db.get_pinned_cf_opt(&self.family()?, key, &self.shared.read);
        Ok(value.map_err(|e| self.failure("read", &e))?.map(|v| v.to_vec()))
    }

    /// Takes magic and version off a row of our own.
    fn open_row<'a>(&self, what: &str, magic: [u8; 4], newest: u8, row: &'a [u8]) -> Result<(u8, &'a [u8])> {
        let dir = self.shared.directory.path().display();
        match row.split_first_chunk::<4>() {
            Some((m, [version, rest @ ..])) if *m == magic && (1..=newest).contains(version) => Ok((*version, rest)),
            Some((m, [version, ..])) if *m == magic => Err(self.at(Error::new(
                ErrorKind::State,
                format!(
                    "its {what} in `{dir}` has format version {version}, but this program knows versions up to {newest}: \
                     upgrade the program, or delete the directory (it is a cache and is rebuilt from the changelogs)"
                ),
            ))),
            _ => Err(self.damaged(&format!("its {what} is not one"))),
        }
    }

    fn damaged(&self, how: &str) -> Error {
        self.at(Error::new(ErrorKind::State, damaged_text(self.shared.directory.path(), how)))
    }

    /// Compares the recorded kind; records it where the store is new.
    fn check_kind(&self) -> Result<()> {
        if let Some(row) = self.read_row(KIND_KEY)? {
            let (version, name) = self.open_row("kind", *KIND_MAGIC, self.kind_version(), &row)?;
            let name = String::from_utf8_lossy(name);
            let found = StoreKind::from_name(&name).ok_or_else(|| {
                self.at(Error::new(
                    ErrorKind::State,
                    format!(
                        "in `{}` it is of kind `{name}`, which this program does not know: upgrade the program, or \
                         delete the directory (it is a cache and is rebuilt from the changelogs)",
                        self.shared.directory.path().display()
                    ),
                ))
            })?;
            check_kind(&self.name, found, self.kind)
                .map_err(|e| e.at(format!("state directory `{}`", self.shared.directory.path().display())))?;
            return if version < self.kind_version() { self.order_by_time() } else { Ok(()) };
        }
        // The kind is the first row ever written, and rows reach the disk in order: without it there is nothing.
        let mut empty = true;
        self.scan(None, None, &mut |_, _| {
            empty = false;
            false
        })?;
        if !empty || self.read_row(STAMP_KEY)?.is_some() {
            return Err(self.damaged("it has rows but no kind"));
        }
        self.write_kind()
    }

    fn kind_version(&self) -> u8 {
        if self.kind.is_timers() { DUE_VERSION } else { VERSION }
    }

    fn write_kind(&self) -> Result<()> {
        let row = closed_row(*KIND_MAGIC, self.kind_version(), self.kind.name().as_bytes());
        let written = self.shared.db.put_cf_opt(&self.family()?, KIND_KEY, row, &self.shared.write);
        written.map_err(|e| self.failure("written", &e))
    }

    /// Makes the rows by time of a store of timers that has none, or some of them. The version comes last, and rows reach
    /// the disk in order: what a crash leaves is made again.
    fn order_by_time(&self) -> Result<()> {
        let family = self.family()?;
        let mut rows = WriteBatch::default();
        let mut written = Ok(());
        self.scan(None, None, &mut |key, value| {
            if let Some(entry) = layout::due_of(self.kind, key, value) {
                rows.put_cf(&family, due_row(&entry), b"");
            }
            if rows.len() >= ORDER_BATCH {
                written = self.shared.db.write_opt(std::mem::take(&mut rows), &self.shared.write);
            }
            written.is_ok()
        })?;
        written
            .and_then(|()| self.shared.db.write_opt(rows, &self.shared.write))
            .map_err(|e| self.failure("written", &e))?;
        self.write_kind()
    }

    /// What is written in place of the rows by time of a batch on a store with one timer per key: the times that its rows
    /// had before are not in the batch.
    fn reorder(&self, batch: &Batch, family: &Arc<BoundColumnFamily<'_>>, writes: &mut WriteBatch) -> Result<()> {
        let mut last: FxHashMap<&[u8], &Row> = FxHashMap::default();
        last.extend(batch.rows.iter().map(|row| (row.key.as_slice(), row)));
        // In the order of the batch: a batch is the same bytes each time.
        for row in &batch.rows {
            let Some(new) = last.remove(row.key.as_slice()) else { continue };
            let old = self.read_row(&data_key(&row.key))?;
            let old = old.and_then(|v| layout::due_of(self.kind, &row.key, &v));
            let new = new.value.as_deref().and_then(|v| layout::due_of(self.kind, &row.key, v));
            if old == new {
                continue;
            }
            if let Some(old) = old {
                writes.delete_cf(family, due_row(&old));
            }
            if let Some(new) = new {
                writes.put_cf(family, due_row(&new), b"");
            }
        }
        Ok(())
    }

    fn read_stamp(&self) -> Result<Option<Stamp>> {
        let Some(row) = self.read_row(STAMP_KEY)? else {
            return Ok(None);
        };
        let (_, json) = self.open_row("stamp", *STAMP_MAGIC, VERSION, &row)?;
        serde_json::from_slice(json).map(Some).map_err(|e| self.damaged(&format!("its stamp cannot be read: {e}")))
    }
}

impl ByteStore for RocksStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_row(&data_key(key))
    }

    fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            return Ok(());
        }
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(data_key(from.unwrap_or_default()).into_vec());
        options.set_iterate_upper_bound(to.map_or_else(|| vec![DATA_END], |to| data_key(to).into_vec()));
        let family = self.family()?;
        let mut rows = self.shared.db.raw_iterator_cf_opt(&family, options);
        rows.seek_to_first();
        while let Some((key, value)) = rows.item() {
            if !visit(&key[1..], value) {
                return Ok(());
            }
            rows.next();
        }
        rows.status().map_err(|e| self.failure("read", &e))
    }

    fn due(&self, time: Timestamp, key: &[u8], visit: &mut dyn FnMut(Timestamp, &[u8]) -> bool) -> Result<()> {
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(due_row(&layout::due_key(time, key)).into_vec());
        options.set_iterate_upper_bound(vec![DUE_END]);
        let family = self.family()?;
        let mut rows = self.shared.db.raw_iterator_cf_opt(&family, options);
        rows.seek_to_first();
        while let Some(row) = rows.key() {
            let Some((time, key)) = layout::split_due(&row[1..]) else {
                return Err(self.damaged("a row by time is none"));
            };
            if !visit(time, key) {
                return Ok(());
            }
            rows.next();
        }
        rows.status().map_err(|e| self.failure("read", &e))
    }

    fn apply(&self, generation: Generation, batch: &Batch) -> Result<()> {
        let mut writer = self.writer();
        if generation < writer.newest {
            return Ok(());
        }
        writer.newest = generation;
        let family = self.family()?;
        let stamp = batch.stamp.over(writer.stamp.as_ref());
        // Its buffer would double as it grows, and hold both halves while it does.
        let bytes = batch.rows.iter().map(|r| r.key.len() + r.value.as_ref().map_or(0, Vec::len) + ROW).sum();
        let mut rows = WriteBatch::with_capacity_bytes(bytes);
        for row in &batch.rows {
            let key = data_key(&row.key);
            match layout::local_value(self.kind, row) {
                Some(value) => rows.put_cf(&family, key, value),
                None => rows.delete_cf(&family, key),
            }
            if self.kind == StoreKind::Timers
                && let Some(entry) = layout::due_of(self.kind, &row.key, &[])
            {
                match row.value {
                    Some(_) => rows.put_cf(&family, due_row(&entry), b""),
                    None => rows.delete_cf(&family, due_row(&entry)),
                }
            }
        }
        if self.kind == StoreKind::Timer {
            self.reorder(batch, &family, &mut rows)?;
        }
        rows.put_cf(&family, STAMP_KEY, stamp_row(&stamp));
        self.shared.db.write_opt(rows, &self.shared.write).map_err(|e| self.failure("written", &e))?;
        writer.stamp = Some(stamp);
        if self.shared.memtables.get_usage() > self.shared.memtables_limit {
            // Frees at least what this batch took, so the limit holds, one batch aside, whatever the other stores do.
            self.shared.db.flush_cf(&family).map_err(|e| self.failure("written", &e))?;
        }
        Ok(())
    }

    fn begin(&self, generation: Generation) {
        let mut writer = self.writer();
        writer.newest = generation.max(writer.newest);
    }

    fn stamp(&self) -> Result<Option<Stamp>> {
        Ok(self.writer().stamp.clone())
    }

    fn flush(&self) -> Result<()> {
        self.shared.db.flush_cf(&self.family()?).map_err(|e| self.failure("written", &e))
    }

    fn clear(&self) -> Result<()> {
        let mut writer = self.writer();
        let family = self.family()?;
        let mut rows = WriteBatch::default();
        rows.delete_range_cf(&family, [DATA], [DUE_END]);
        rows.delete_cf(&family, STAMP_KEY);
        let done = self.shared.db.write_opt(rows, &self.shared.write).and_then(|()| {
            writer.stamp = None;
            // Whole files go at once; but only after the stamp's end is on disk: a crash in between must not find the
            // stamp without the rows.
            self.shared.db.flush_cf(&family)?;
            self.shared.db.delete_file_in_range_cf(&family, [DATA], [DUE_END])
        });
        done.map_err(|e| self.failure("written", &e))
    }
}

impl Shared {
    fn failure(&self, done: &str, e: &rocksdb::Error) -> Error {
        failure(self.directory.path(), done, e.as_ref())
    }
}

fn family_name(store: &str) -> String {
    format!("{FAMILY}{store}")
}

fn data_key(key: &[u8]) -> SmallVec<[u8; 64]> {
    let mut row = SmallVec::with_capacity(1 + key.len());
    row.push(DATA);
    row.extend_from_slice(key);
    row
}

fn due_row(entry: &[u8]) -> SmallVec<[u8; 64]> {
    let mut row = SmallVec::with_capacity(1 + entry.len());
    row.push(DUE);
    row.extend_from_slice(entry);
    row
}

fn closed_row(magic: [u8; 4], version: u8, content: &[u8]) -> Vec<u8> {
    let mut row = Vec::with_capacity(5 + content.len());
    row.extend_from_slice(&magic);
    row.push(version);
    row.extend_from_slice(content);
    row
}

fn stamp_row(stamp: &Stamp) -> Vec<u8> {
    let json = serde_json::to_vec(stamp).expect("a stamp is numbers and text: JSON can hold each");
    closed_row(*STAMP_MAGIC, VERSION, &json)
}

fn block_cache(memory: usize) -> Cache {
    // Shards of at least 4 MiB. RocksDB's own choice is 512 KiB, and what is larger than a shard is never kept: with
    // 16 MiB for 500,000 rows each get read a filter anew, at 280 µs.
    let shards = (memory >> 22).clamp(1, 64);
    let mut options = LruCacheOptions::default();
    options.set_capacity(memory);
    options.set_num_shard_bits(shards.ilog2() as i32);
    Cache::new_lru_cache_opts(&options)
}

fn family_options(memory: usize, cache: &Cache) -> Options {
    let mut blocks = BlockBasedOptions::default();
    blocks.set_block_cache(cache);
    // 10 bits a key: 1 % of the reads of absent keys go to a block for nothing.
    blocks.set_bloom_filter(10.0, false);
    // Index and filters count against the budget as well; in pieces, so that what is hot of them can stay.
    blocks.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
    blocks.set_partition_filters(true);
    blocks.set_metadata_block_size(4 << 10);
    blocks.set_pin_top_level_index_and_filter(true);
    blocks.set_cache_index_and_filter_blocks(true);
    blocks.set_cache_index_and_filter_blocks_with_high_priority(true);
    blocks.set_pin_l0_filter_and_index_blocks_in_cache(true);

    let mut family = Options::default();
    family.set_block_based_table_factory(&blocks);
    // Two memtables of a busy store fill the memtables' half of the budget: one is written while the other is flushed.
    family.set_write_buffer_size((memory / 4).clamp(256 << 10, 32 << 20));
    // More than that RocksDB would hold writes back without end while the disk is broken; with this many allowed, `apply`
    // reaches its limit first, flushes and gets the error.
    family.set_max_write_buffer_number(4);
    // A memtable takes at least one such block: the default (an eighth of its size) times many quiet stores would
    // alone eat the budget.
    family.set_arena_block_size(64 << 10);
    // Level 0 is rewritten soon: packing it would cost more than it saves.
    let mut levels = [DBCompressionType::Lz4; 7];
    levels[0] = DBCompressionType::None;
    family.set_compression_per_level(&levels);
    family.set_num_levels(7);
    family
}

fn database_options(config: &RocksConfig, family: &Options, memtables: &WriteBufferManager) -> Options {
    // The column family `default` gets these too; nothing is written to it.
    let mut options = family.clone();
    options.create_if_missing(true);
    options.set_write_buffer_manager(memtables);
    options.set_max_background_jobs(i32::from(config.background_threads.max(1)));
    options.set_max_open_files(i32::from(config.max_open_files.max(32)));
    options.set_skip_stats_update_on_db_open(true);
    // RocksDB's own log file: warnings, and at most 2 MiB of them.
    options.set_log_level(LogLevel::Warn);
    options.set_max_log_file_size(1 << 20);
    options.set_keep_log_file_num(2);
    options.set_stats_dump_period_sec(0);
    options.set_stats_persist_period_sec(0);
    // The manifest grows with every flush of every store; begin a new one from time to time.
    options.set_max_manifest_file_size(4 << 20);
    options
}

fn damaged_text(dir: &Path, how: &str) -> String {
    format!(
        "the local state in `{}` is damaged ({how}): delete the directory; it is a cache and is rebuilt from the changelogs",
        dir.display()
    )
}

/// Says what RocksDB's message means for the directory.
pub(super) fn failure(dir: &Path, done: &str, message: &str) -> Error {
    let text = if message.starts_with("Corruption") || message.contains("No such file or directory") {
        damaged_text(dir, message)
    } else if message.contains("No space left on device") || message.contains("Disk quota exceeded") {
        format!(
            "the local state in `{}` cannot be {done}: the disk is full ({message}): free space, then start again",
            dir.display()
        )
    } else if message.contains("Permission denied") || message.contains("Read-only file system") {
        format!(
            "the local state in `{}` cannot be {done} ({message}): make the directory writable for this user, or \
             choose another one",
            dir.display()
        )
    } else if message.starts_with("Not implemented") || message.starts_with("Invalid argument") {
        format!(
            "the local state in `{}` cannot be {done}: it was written by another version of RocksDB or is damaged \
             ({message}): upgrade the program, or delete the directory (it is a cache and is rebuilt from the changelogs)",
            dir.display()
        )
    } else {
        format!(
            "the local state in `{}` cannot be {done} ({message}): check the disk; if it is sound, delete the directory \
             (it is a cache and is rebuilt from the changelogs)",
            dir.display()
        )
    };
    Error::new(ErrorKind::State, text)
}
