//! What only a directory can do: formats, locks, damage, crashes of real processes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use rocksdb::{BottommostLevelCompaction, CompactOptions, DBWithThreadMode, IteratorMode, MultiThreaded, Options};

use super::{Pairs, all, batch, delete, put, stamp};
use crate::error::{Error, ErrorKind};
use crate::id::{Epoch, Generation};
use crate::store::rocks::{RocksConfig, RocksStoreSet, failure};
use crate::store::{Batch, ByteStore, Row, Stamp, StoreKind, StoreSet};
use crate::time::Timestamp;

fn config(dir: &Path) -> RocksConfig {
    RocksConfig { memory: 1 << 20, ..RocksConfig::new(dir, "word-count") }
}

fn open(dir: &Path) -> RocksStoreSet {
    RocksStoreSet::open(&config(dir)).unwrap()
}

#[track_caller]
fn refused(dir: &Path, kind: ErrorKind, parts: &[&str]) {
    let Err(e) = RocksStoreSet::open(&config(dir)) else { panic!("`{}` is taken", dir.display()) };
    said(&e, kind, dir, parts);
}

#[track_caller]
fn said(e: &Error, kind: ErrorKind, dir: &Path, parts: &[&str]) {
    assert_eq!(e.kind(), kind, "{e}");
    let text = e.to_string();
    for part in parts.iter().copied().chain([dir.to_str().unwrap()]) {
        assert!(text.contains(part), "`{part}` is not said: {text}");
    }
}

/// The directory of a store that has some rows on disk.
fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).open("s", StoreKind::KeyValue).unwrap();
    let rows =
        (0_u32..2_000).map(|i| put(&i.to_be_bytes(), &i.wrapping_mul(0x9e37_79b9).to_be_bytes().repeat(8))).collect();
    store.apply(Generation(1), &batch(1, rows)).unwrap();
    store.flush().unwrap();
    dir
}

fn raw(dir: &Path, families: &[&str]) -> DBWithThreadMode<MultiThreaded> {
    DBWithThreadMode::open_cf(&Options::default(), dir.join("rocksdb"), families).unwrap()
}

fn fixture(name: &str) -> PathBuf {
    fixture_of("v1", name)
}

fn fixture_of(version: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version).join(name)
}

#[test]
fn i13_the_format_file_has_the_golden_bytes() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    assert_eq!(fs::read(dir.path().join("FORMAT")).unwrap(), fs::read(fixture("state-FORMAT")).unwrap());
    // And what was written by the first version is opened by this one.
    fs::copy(fixture("state-FORMAT"), dir.path().join("FORMAT")).unwrap();
    drop(open(dir.path()));
}

/// The stores of the golden rows: one of each kind, written and deleted.
fn golden_batches() -> [(&'static str, StoreKind, Vec<Row>); 4] {
    let time = 1_700_000_060_000_i64.to_be_bytes();
    let timers = |key: &[u8]| [key, &time].concat();
    [
        ("counts", StoreKind::KeyValue, vec![put(b"ant", b"7"), put(b"", b""), put(b"bee", b"1"), delete(b"bee")]),
        (
            "table",
            StoreKind::TimestampedKeyValue,
            vec![put(b"ant", b"7"), Row { timestamp: Timestamp(-1), ..put(b"\xff", b"") }],
        ),
        ("idle", StoreKind::Timer, vec![put(b"ant", &time)]),
        ("many", StoreKind::Timers, vec![put(&timers(b"ant"), b""), put(&timers(b"\0"), b"")]),
    ]
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut s, b| {
        write!(s, "{b:02x}").expect("text takes all");
        s
    })
}

#[test]
fn i13_the_rows_of_each_kind_have_the_golden_bytes() {
    let dir = tempfile::tempdir().unwrap();
    {
        let mut set = open(dir.path());
        for (name, kind, rows) in golden_batches() {
            let stamp = Stamp { epoch: Epoch(12), ..stamp(12, &[(0, 34), (1, 56)]) };
            set.open(name, kind).unwrap().apply(Generation(1), &Batch { rows, stamp }).unwrap();
        }
    }
    let mut found = String::new();
    for (name, ..) in golden_batches() {
        let family = format!("store.{name}");
        let db = raw(dir.path(), &["default", "store.counts", "store.idle", "store.many", "store.table"]);
        let rows = db.iterator_cf(&db.cf_handle(&family).unwrap(), IteratorMode::Start);
        for (key, value) in rows.map(Result::unwrap) {
            writeln!(found, "{family} {} {}", hex(&key), hex(&value)).unwrap();
        }
    }
    assert_eq!(found, fs::read_to_string(fixture_of("v2", "state-rows.txt")).unwrap(), "found:\n{found}");
}

#[test]
fn i13_the_golden_rows_of_each_version_are_read() {
    for version in ["v1", "v2"] {
        golden_rows_are_read(&fixture_of(version, "state-rows.txt"));
    }
}

fn golden_rows_are_read(golden: &Path) {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    {
        let db = raw(dir.path(), &["default"]);
        let unhex = |text: &str| -> Vec<u8> {
            (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
        };
        for line in fs::read_to_string(golden).unwrap().lines() {
            let [family, key, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("`{line}`") };
            if db.cf_handle(family).is_none() {
                db.create_cf(family, &Options::default()).unwrap();
            }
            db.put_cf(&db.cf_handle(family).unwrap(), unhex(key), unhex(value)).unwrap();
        }
    }
    let mut set = open(dir.path());
    assert_eq!(set.names().unwrap(), ["counts", "idle", "many", "table"]);
    for (name, kind, rows) in golden_batches() {
        let store = set.open(name, kind).unwrap();
        assert_eq!(store.stamp().unwrap(), Some(stamp(12, &[(0, 34), (1, 56)])), "{name}");
        let mut want = crate::store::memory::MemoryStoreSet::new();
        let want = want.open(name, kind).unwrap();
        want.apply(Generation(1), &Batch { rows, ..Batch::default() }).unwrap();
        assert_eq!(all(&*store), all(&*want), "{name}");
        assert_eq!(due(&*store), due(&*want), "{name}: by time, which version 1 did not know");
        assert_eq!(due(&*store).is_empty(), !kind.is_timers(), "{name}");
    }
    // Made once, they are kept: the second start finds them.
    drop(set);
    let mut set = open(dir.path());
    assert_eq!(due(&*set.open("many", StoreKind::Timers).unwrap()).len(), 2);
    assert_eq!(due(&*set.open("idle", StoreKind::Timer).unwrap()).len(), 1);
}

fn due(store: &dyn ByteStore) -> Vec<(Timestamp, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = &mut |time, key: &[u8]| {
        found.push((time, key.to_vec()));
        true
    };
    store.due(Timestamp::MIN, b"", visit).unwrap();
    found
}

#[test]
fn i13_a_crash_while_old_timers_are_put_in_order_leaves_them_to_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let time = |n: u32| i64::from(n.wrapping_mul(0x9e37_79b9) % 1_000).to_be_bytes();
    {
        let store = open(dir.path()).open("idle", StoreKind::Timer).unwrap();
        let rows = (0..25_000_u32).map(|n| put(&n.to_be_bytes(), &time(n))).collect();
        store.apply(Generation(1), &batch(1, rows)).unwrap();
        store.flush().unwrap();
    }
    let want = due(&*open(dir.path()).open("idle", StoreKind::Timer).unwrap());
    assert_eq!(want.len(), 25_000);
    {
        // As version 1 left it, but for some rows by time.
        let db = raw(dir.path(), &["default", "store.idle"]);
        let family = db.cf_handle("store.idle").unwrap();
        db.delete_range_cf(&family, &[2_u8, 0x80, 0, 0, 0, 0, 0, 0, 100][..], &[3_u8][..]).unwrap();
        db.put_cf(&family, b"\0kind", b"STKD\x01timer").unwrap();
    }
    assert_eq!(due(&*open(dir.path()).open("idle", StoreKind::Timer).unwrap()), want);
}

#[test]
fn i13_a_store_with_rows_by_time_is_refused_by_a_program_that_knows_none() {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()).open("idle", StoreKind::Timer).unwrap());
    let db = raw(dir.path(), &["default", "store.idle"]);
    let family = db.cf_handle("store.idle").unwrap();
    // It reads `kind` as every version did, and finds a version that it does not know.
    assert_eq!(db.get_cf(&family, b"\0kind").unwrap().unwrap(), b"STKD\x02timer");
    db.put_cf(&family, b"\0kind", b"STKD\x03timer").unwrap();
    drop(family);
    drop(db);
    let Err(e) = open(dir.path()).open("idle", StoreKind::Timer) else { panic!("version 3 is taken") };
    said(&e, ErrorKind::State, dir.path(), &["store `idle`", "kind", "format version 3", "up to 2", "upgrade"]);
}

#[test]
fn i13_a_directory_of_another_format_is_refused() {
    let dir = filled();
    let format = dir.path().join("FORMAT");
    let ours = fs::read_to_string(&format).unwrap();
    for (found, parts) in [
        (
            ours.replace("version 1", "version 2"),
            &["format version 2", "version 1", "upgrade the program", "delete"][..],
        ),
        (ours.replace("word-count", "other"), &["`other`", "`word-count`", "a directory of its own"]),
        (ours.replace("stoat-state", "steady-state"), &["`steady-state`", "`stoat-state`", "choose another directory"]),
        (ours.replace("version 1", "version one"), &["`stoat-state`"]),
        (ours.replace("application", "app"), &["`stoat-state`"]),
        (format!("{ours}more\n"), &["`stoat-state`"]),
        (String::new(), &["begins with ``"]),
        ("\u{fffd}\0".to_owned(), &["choose another directory"]),
    ] {
        fs::write(&format, &found).unwrap();
        refused(dir.path(), ErrorKind::State, parts);
        assert_eq!(fs::read_to_string(&format).unwrap(), found, "a refused directory is left as it is");
    }
    fs::remove_file(&format).unwrap();
    refused(dir.path(), ErrorKind::State, &["no `FORMAT` file", "`stoat-state`, version 1, application `word-count`"]);
    fs::write(&format, ours).unwrap();
    assert_eq!(all(&*open(dir.path()).open("s", StoreKind::KeyValue).unwrap()).len(), 2_000);
}

#[test]
fn an_application_id_cannot_forge_the_format_file() {
    let dir = tempfile::tempdir().unwrap();
    for id in ["a\"\nversion 7\n", "ünïcode", "a"] {
        let config = RocksConfig::new(dir.path().join(id.len().to_string()), id);
        drop(RocksStoreSet::open(&config).unwrap());
        drop(RocksStoreSet::open(&config).unwrap());
    }
}

#[test]
fn i13_rows_of_our_own_in_another_format_are_refused() {
    for (key, value, parts) in [
        (&b"\0stamp"[..], &b"STSP\x02{}"[..], &["store `s`", "stamp", "format version 2", "upgrade", "delete"][..]),
        (b"\0stamp", b"STSP\x01{", &["store `s`", "stamp", "damaged", "delete the directory"]),
        (b"\0stamp", b"", &["stamp", "damaged", "delete the directory"]),
        (b"\0kind", b"STKD\x02key-value", &["kind", "format version 2", "upgrade", "delete"]),
        (b"\0kind", b"STKD\x01window", &["`window`", "upgrade", "delete"]),
        (b"\0kind", b"KIND\x01key-value", &["kind", "damaged", "delete the directory"]),
    ] {
        let dir = filled();
        {
            let db = raw(dir.path(), &["default", "store.s"]);
            db.put_cf(&db.cf_handle("store.s").unwrap(), key, value).unwrap();
        }
        let e = open(dir.path()).open("s", StoreKind::KeyValue).err().expect("it is refused");
        said(&e, ErrorKind::State, dir.path(), parts);
    }
    let dir = filled();
    {
        let db = raw(dir.path(), &["default", "store.s"]);
        db.delete_cf(&db.cf_handle("store.s").unwrap(), b"\0kind").unwrap();
    }
    let e = open(dir.path()).open("s", StoreKind::KeyValue).err().expect("rows without a kind are refused");
    said(&e, ErrorKind::State, dir.path(), &["rows but no kind", "delete the directory"]);
}

#[test]
fn i10_a_directory_is_for_one_process_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let mut set = open(dir.path());
    let pid = std::process::id().to_string();
    refused(dir.path(), ErrorKind::Fenced, &["in use by process", &pid, "stop it first"]);
    let Err(e) = RocksStoreSet::open(&config(dir.path())) else { panic!("it is locked") };
    assert_eq!(e.exit_code(), 3);
    // A store that is still held keeps the directory.
    let store = set.open("s", StoreKind::KeyValue).unwrap();
    drop(set);
    refused(dir.path(), ErrorKind::Fenced, &["in use by process", &pid]);
    drop(store);
    drop(open(dir.path()));
}

#[test]
fn a_directory_that_cannot_be_made_or_written_is_an_error_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"not a directory").unwrap();
    refused(&file, ErrorKind::State, &["cannot be made"]);
    refused(&file.join("below"), ErrorKind::State, &["cannot be made"]);
    fs::create_dir_all(dir.path().join("LOCK")).unwrap();
    refused(dir.path(), ErrorKind::State, &["cannot be written"]);
}

#[test]
fn damage_is_an_error_that_says_to_delete_the_directory() {
    let files = |dir: &Path, what: &str| -> Vec<PathBuf> {
        let all = fs::read_dir(dir.join("rocksdb")).unwrap().map(|f| f.unwrap().path());
        all.filter(|p| p.file_name().unwrap().to_str().unwrap().contains(what)).collect()
    };
    let flip = |path: &Path| {
        let mut bytes = fs::read(path).unwrap();
        bytes.iter_mut().skip(40).step_by(61).for_each(|b| *b ^= 0x55);
        fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path| fs::File::options().write(true).open(path).unwrap().set_len(40).unwrap();
    let remove = |path: &Path| fs::remove_file(path).unwrap();
    let garbage = |path: &Path| fs::write(path, b"garbage\n").unwrap();
    type Damage<'a> = (&'a str, &'a str, &'a dyn Fn(&Path));
    let damages: [Damage<'_>; 7] = [
        ("a flipped table", ".sst", &flip),
        ("a cut table", ".sst", &cut),
        ("a missing table", ".sst", &remove),
        ("a flipped manifest", "MANIFEST", &flip),
        ("a cut manifest", "MANIFEST", &cut),
        ("a missing manifest", "MANIFEST", &remove),
        ("garbage in CURRENT", "CURRENT", &garbage),
    ];
    for (what, file, damage) in damages {
        let dir = filled();
        let hit = files(dir.path(), file);
        assert!(!hit.is_empty(), "{what}");
        for path in &hit {
            damage(path);
        }
        // Where it is noticed is RocksDB's affair: when it is opened, or when the rows are read.
        let read = RocksStoreSet::open(&config(dir.path())).and_then(|mut set| {
            let store = set.open("s", StoreKind::KeyValue)?;
            store.scan(None, None, &mut |_, _| true)?;
            Ok(store.stamp()?.map(|s| s.epoch))
        });
        match read {
            Err(e) => said(&e, ErrorKind::State, dir.path(), &["delete the directory", "rebuilt from the changelogs"]),
            Ok(stamp) => panic!("{what} goes unnoticed: {stamp:?}"),
        }
        // The advice helps.
        fs::remove_dir_all(dir.path()).unwrap();
        assert_eq!(open(dir.path()).open("s", StoreKind::KeyValue).unwrap().stamp().unwrap(), None);
    }
}

#[test]
fn rocksdbs_messages_become_advice() {
    let dir = Path::new("state/dir");
    for (message, parts) in [
        ("IO error: No space left on device: While appending to file: x.sst", &["disk is full", "free space"][..]),
        ("IO error: Read-only file system: While open a file", &["make the directory writable"]),
        (
            "IO error: While open a file for random read: 7.sst: No such file or directory",
            &["damaged", "delete the directory"],
        ),
        ("Corruption: block checksum mismatch", &["damaged", "delete the directory"]),
        ("Not implemented: unknown compression", &["another version", "upgrade", "delete the directory"]),
        ("IO error: Input/output error", &["check the disk"]),
    ] {
        said(&failure(dir, "read", message), ErrorKind::State, dir, &[parts, &[message]].concat());
    }
}

#[test]
fn a_dropped_store_is_gone_for_good() {
    let dir = filled();
    let mut set = open(dir.path());
    let held = set.open("s", StoreKind::KeyValue).unwrap();
    set.open("t", StoreKind::KeyValue).unwrap();
    set.drop_store("s").unwrap();
    set.drop_store("s").unwrap();
    assert_eq!(set.names().unwrap(), ["t"]);
    let e = held.get(b"a").unwrap_err();
    assert!(e.to_string().contains("store `s`: the store was dropped"), "{e}");
    assert_eq!(held.apply(Generation(1), &batch(1, vec![])).unwrap_err().kind(), ErrorKind::State);
    drop((held, set));
    let mut set = open(dir.path());
    assert_eq!(set.names().unwrap(), ["t"]);
    // The name is free for another kind.
    let store = set.open("s", StoreKind::Timer).unwrap();
    assert_eq!((all(&*store), store.stamp().unwrap()), (Pairs::new(), None));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let mut set = open(dir.path());
    for name in ["", "a\0b"] {
        assert_eq!(set.open(name, StoreKind::KeyValue).err().expect("it is refused").kind(), ErrorKind::State);
    }
    assert_eq!(set.names().unwrap(), Vec::<String>::new());
}

#[test]
fn t38_i07_block_cache_and_memtables_of_many_stores_stay_within_their_share() {
    const MEMORY: usize = 8 << 20;
    let dir = tempfile::tempdir().unwrap();
    let mut set = RocksStoreSet::open(&RocksConfig { memory: MEMORY, ..config(dir.path()) }).unwrap();
    let stores: Vec<_> = (0..50).map(|i| set.open(&format!("s{i}"), StoreKind::KeyValue).unwrap()).collect();
    let mut most = 0;
    // 50 MB in batches of 50 kB, which the memtables must flush on the way.
    for n in 0..20_u64 {
        for store in &stores {
            let rows = (0..50_u64).map(|i| put(&(n * 7919 + i * 104_729).to_be_bytes(), &[n as u8; 1_000])).collect();
            store.apply(Generation(1), &batch(n + 1, rows)).unwrap();
            most = most.max(set.memory_used()).max(set.memtables_used());
        }
    }
    for store in &stores {
        assert_eq!(all(&**store).len(), 1_000);
        most = most.max(set.memory_used());
    }
    // Memtables that are being flushed may overshoot for a moment.
    assert!(most < MEMORY * 3 / 2, "{most} of {MEMORY}");
    assert!(set.memory_used() <= MEMORY + (1 << 20), "{} at rest", set.memory_used());
}

// Processes that die.

/// What batch `k` of the child does: 20 puts, 10 deletes.
fn child_batch(k: u64) -> Batch {
    let key = |i: u64| ((k * 7 + i) % 200).to_be_bytes();
    let value = [&k.to_be_bytes()[..], &[0xa5; 500]].concat();
    let rows = (0..20).map(|i| put(&key(i), &value)).chain((100..110).map(|i| delete(&key(i)))).collect();
    batch(k, rows)
}

fn child_state(epoch: u64) -> Pairs {
    let mut state = BTreeMap::new();
    for row in (1..=epoch).flat_map(|k| child_batch(k).rows) {
        match row.value {
            Some(value) => state.insert(row.key, value),
            None => state.remove(&row.key),
        };
    }
    state.into_iter().collect()
}

const FLUSHED: u64 = 40;
const LAST: u64 = 500;

/// Not a test: what the tests below run as a process of its own.
#[test]
#[ignore = "runs as a child of other tests"]
fn child() {
    let Ok(dir) = std::env::var("STOAT_TEST_STATE_DIR") else {
        return;
    };
    let mode = std::env::var("STOAT_TEST_MODE").unwrap();
    let say = |text: String| {
        let mut out = std::io::stdout().lock();
        writeln!(out, "child: {text}").and_then(|()| out.flush()).expect("the parent listens");
    };
    // Memtables of 1 MiB fill several times on the way, and RocksDB flushes them when it likes; `limit`: soon.
    let memory = if mode == "limit" { 1 << 20 } else { 4 << 20 };
    let mut set = RocksStoreSet::open(&RocksConfig { memory, ..config(Path::new(&dir)) }).unwrap();
    let stores: Vec<Arc<dyn ByteStore>> =
        ["a", "b"].iter().map(|n| set.open(n, StoreKind::KeyValue).unwrap()).collect();
    for k in 1.. {
        for store in &stores {
            let done = store.apply(Generation(1), &child_batch(k)).and_then(|()| match k {
                FLUSHED => store.flush(),
                _ => Ok(()),
            });
            if let Err(e) = done {
                say(format!("error {:?} {e}", e.kind()));
                return;
            }
        }
        say(format!("applied {k}"));
        if k == LAST && mode == "abort" {
            std::process::abort();
        }
    }
}

fn spawn_child(dir: &Path, mode: &str, shell: &str) -> (Child, impl Iterator<Item = String>) {
    let mut child = Command::new("sh")
        .args(["-c", &format!("{shell} exec \"$0\" \"$@\"")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "store::tests::rocks::child", "--ignored", "--nocapture"])
        .env("STOAT_TEST_STATE_DIR", dir)
        .env("STOAT_TEST_MODE", mode)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let said = lines.filter_map(|line| line.unwrap().split_once("child: ").map(|(_, said)| said.to_owned()));
    (child, said)
}

/// The last batch that the child has said it applied.
fn applied(line: &str) -> u64 {
    line.strip_prefix("applied ").unwrap_or_else(|| panic!("the child says `{line}`")).parse().unwrap()
}

fn check_what_is_left(dir: &Path, at_least: u64, at_most: u64) {
    let mut set = open(dir);
    for name in ["a", "b"] {
        let store = set.open(name, StoreKind::KeyValue).unwrap();
        let left = store.stamp().unwrap().expect("a flushed stamp is left");
        assert!((at_least..=at_most).contains(&left.epoch.0), "store {name}: {left:?}");
        assert_eq!(left, child_batch(left.epoch.0).stamp);
        assert!(all(&*store) == child_state(left.epoch.0), "store {name} is not the state of epoch {}", left.epoch);
        // It takes writes from there on.
        store.apply(Generation(1), &child_batch(left.epoch.0 + 1)).unwrap();
        assert!(all(&*store) == child_state(left.epoch.0 + 1));
    }
}

#[test]
fn i11_kill_9_leaves_the_state_of_a_batch_at_least_the_flushed_one() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, mut said) = spawn_child(dir.path(), "kill", "");
    let last =
        said.by_ref().map(|line| applied(&line)).find(|&k| k >= LAST).expect("the child writes until it is killed");
    let locked = RocksStoreSet::open(&config(dir.path())).err().expect("the child has the directory");
    said_by_lock(&locked, child.id());
    child.kill().unwrap();
    let last = said.map(|line| applied(&line)).last().unwrap_or(last);
    assert!(!child.wait().unwrap().success());
    // One more may have been applied than was said.
    check_what_is_left(dir.path(), FLUSHED, last + 1);
}

fn said_by_lock(e: &Error, pid: u32) {
    assert_eq!(e.kind(), ErrorKind::Fenced);
    assert!(e.to_string().contains(&format!("in use by process {pid}")), "{e}");
}

#[test]
fn i11_an_abort_leaves_the_state_of_a_batch_at_least_the_flushed_one() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, said) = spawn_child(dir.path(), "abort", "ulimit -c 0;");
    assert_eq!(said.map(|line| applied(&line)).last(), Some(LAST));
    assert!(!child.wait().unwrap().success());
    check_what_is_left(dir.path(), FLUSHED, LAST);
}

#[test]
fn i11_a_crash_after_a_clear_does_not_find_the_stamp_without_its_rows() {
    let dir = filled();
    let tables = |dir: &Path| {
        let files = fs::read_dir(dir.join("rocksdb")).unwrap().map(|f| f.unwrap().path());
        files.filter(|f| f.extension().is_some_and(|e| e == "sst")).count()
    };
    {
        // Many small tables in the last level, where a clear removes whole files.
        let mut options = Options::default();
        options.set_target_file_size_base(8 << 10);
        let families = ["default", "store.s"].map(|f| (f, options.clone()));
        let db: DBWithThreadMode<MultiThreaded> =
            DBWithThreadMode::open_cf_with_opts(&options, dir.path().join("rocksdb"), families).unwrap();
        let mut force = CompactOptions::default();
        force.set_bottommost_level_compaction(BottommostLevelCompaction::Force);
        db.compact_range_cf_opt(&db.cf_handle("store.s").unwrap(), None::<&[u8]>, None::<&[u8]>, &force);
    }
    let before = tables(dir.path());
    let store = open(dir.path()).open("s", StoreKind::KeyValue).unwrap();
    assert!(before > 3 && all(&*store).len() == 2_000);
    store.clear().unwrap();
    // What a crash at this moment would leave: the files as they are.
    let image = tempfile::tempdir().unwrap();
    fs::create_dir(image.path().join("rocksdb")).unwrap();
    fs::copy(dir.path().join("FORMAT"), image.path().join("FORMAT")).unwrap();
    for file in fs::read_dir(dir.path().join("rocksdb")).unwrap().map(Result::unwrap) {
        fs::copy(file.path(), image.path().join("rocksdb").join(file.file_name())).unwrap();
    }
    drop(store);
    assert!(tables(dir.path()) < before, "{} tables of {before} are left", tables(dir.path()));
    let store = open(image.path()).open("s", StoreKind::KeyValue).unwrap();
    assert_eq!((all(&*store), store.stamp().unwrap()), (Pairs::new(), None));
}

#[test]
fn a_disk_that_takes_no_more_is_an_error_and_not_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    // No file may grow beyond some 100 kB: smaller than a memtable.
    let (mut child, said) = spawn_child(dir.path(), "limit", "trap '' XFSZ; ulimit -f 200;");
    let last = said.last().expect("the child says something");
    let text = last.strip_prefix("error State ").unwrap_or_else(|| panic!("the child says `{last}`"));
    assert!(text.contains(dir.path().to_str().unwrap()) && text.contains("File too large"), "{text}");
    assert!(text.contains("check the disk"), "{text}");
    assert!(child.wait().unwrap().success(), "the child ends in order");
    // What is left can be used, or says that it cannot.
    drop(open(dir.path()));
}
