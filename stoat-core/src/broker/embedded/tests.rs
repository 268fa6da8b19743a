use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;

use super::format::{self, Chunk, CommitParts, ENTRY_HEADER, FILE_HEADER, GroupOffset};
use super::{ClientConfig, EmbeddedBroker, EmbeddedConfig, Fsync};
use crate::broker::contract::{Factory, Seen, Session, batch, transaction};
use crate::broker::{Bounds, Broker, BrokerErrorKind, Transaction};
use crate::error::ErrorKind;
use crate::id::TopicPartition;
use crate::record::{Headers, ProduceBatch};
use crate::time::Timestamp;

const PATIENCE: Duration = Duration::from_mins(1);

impl Factory for EmbeddedBroker {
    fn client(&self, transactional_id: Option<&str>, group_id: Option<&str>) -> Box<dyn Broker> {
        Box::new(self.client(ClientConfig {
            transactional_id: transactional_id.map(str::to_owned),
            group_id: group_id.map(str::to_owned),
            ..ClientConfig::default()
        }))
    }
}

mod in_memory {
    use super::*;
    crate::broker_contract!(EmbeddedBroker::open(EmbeddedConfig::memory()).expect("memory"));
}

mod on_disk {
    use super::*;

    struct OnDisk(EmbeddedBroker, #[expect(dead_code, reason = "removes the directory behind the broker")] TempDir);

    impl Factory for OnDisk {
        fn client(&self, transactional_id: Option<&str>, group_id: Option<&str>) -> Box<dyn Broker> {
            Factory::client(&self.0, transactional_id, group_id)
        }
    }

    fn broker() -> OnDisk {
        let dir = TempDir::new().expect("a directory");
        // Small files, so that the contract also runs over several.
        let config = EmbeddedConfig { file_bytes: 1 << 10, ..EmbeddedConfig::new(dir.path()) };
        OnDisk(EmbeddedBroker::open(config).expect("opened"), dir)
    }

    crate::broker_contract!(broker());
}

fn dir() -> TempDir {
    TempDir::new().expect("a directory")
}

fn config(dir: &Path) -> EmbeddedConfig {
    EmbeddedConfig { fsync: Fsync::Off, ..EmbeddedConfig::new(dir) }
}

fn open(dir: &Path) -> EmbeddedBroker {
    EmbeddedBroker::open(config(dir)).expect("the broker opens")
}

fn session(broker: &EmbeddedBroker) -> Session {
    Session::new(Factory::client(broker, Some("app"), Some("group")), PATIENCE)
}

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// The directory as a crash would leave it now.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("made");
    for entry in fs::read_dir(from).expect("listed") {
        let entry = entry.expect("listed");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("copied");
    }
}

fn journal_files(dir: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(dir).expect("listed").map(|e| e.expect("listed").path());
    let mut files: Vec<_> = all.filter(|p| p.extension().is_some_and(|e| e == "journal")).collect();
    files.sort();
    files
}

fn last_file(dir: &Path) -> PathBuf {
    journal_files(dir).pop().expect("there is a file")
}

/// Where the entries of a file begin, and its end.
fn entry_starts(bytes: &[u8]) -> Vec<usize> {
    let mut at = FILE_HEADER;
    let mut starts = vec![at];
    while at < bytes.len() {
        at += ENTRY_HEADER + format::unframe(&bytes[at..]).expect("whole").body.len();
        starts.push(at);
    }
    starts
}

/// A broker with topic `t` and these values committed one by one.
fn with_values(dir: &Path, values: &[&str]) {
    let broker = open(dir);
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    s.init();
    for value in values {
        let t = Transaction {
            batches: vec![batch("t", &[(0, "k", value), (0, "k", value)])],
            offsets: vec![(tp("t", 0), value.len() as i64)],
            ..Transaction::default()
        };
        s.transact(t).expect("committed");
    }
}

fn values(dir: &Path) -> Vec<String> {
    let broker = open(dir);
    let mut s = session(&broker);
    let end = s.bounds(&tp("t", 0)).end;
    s.texts(&tp("t", 0), end)
}

#[test]
fn i13_version_1_of_the_journal_is_read_and_its_bytes_are_golden() {
    let golden = include_bytes!("fixtures/v1/0000000000-0000000000-0000.journal");
    let mut headers = Headers::default();
    headers.push("h", Some(b"x".to_vec()));
    headers.push("n", None);
    let mut all = format::file_header().to_vec();
    let mut entry = Vec::new();
    let mut put = |body: &dyn Fn(&mut Vec<u8>)| {
        format::begin_entry(&mut entry);
        body(&mut entry);
        format::finish_entry(&mut entry, all.len() as u64).expect("small");
        all.extend_from_slice(&entry);
    };
    put(&|out| format::put_created(out, 0, 2, "t", "an-id", &[("cleanup.policy".into(), "compact,delete".into())]));
    put(&|out| format::put_created(out, 1, 1, "gone", "other-id", &[]));
    put(&|out| format::put_producer(out, "app", 3));
    let mut first = Chunk::new(0, 1, 0, 1_700_000_000_123);
    first.push(0, Timestamp(1_700_000_000_000), Some(b"key"), Some(b"value"), &headers);
    first.push(1, Timestamp(1_699_999_999_999), Some(b""), None, &Headers::default());
    first.head.next = 3;
    let mut second = Chunk::new(1, 0, 0, 1_700_000_000_123);
    second.push(0, Timestamp(-1), None, Some(&[0xff; 200]), &Headers::default());
    second.head.next = 2;
    let offsets = [
        GroupOffset { group: "group", topic: 0, partition: 0, next: 7 },
        GroupOffset { group: "group", topic: 0, partition: 1, next: 1 << 40 },
    ];
    let chunks = [first.clone(), second];
    put(&|out| {
        let time = 1_700_000_000_123;
        let parts = CommitParts { kept: false, time, producer: ("app", 3), offsets: &offsets, chunks: &chunks };
        format::put_commit(out, &parts);
    });
    put(&|out| format::put_deleted(out, 1));
    let mut kept = Chunk::new(0, 0, 4, 1_700_000_000_123);
    kept.head.flags = format::COMPACTED;
    kept.head.horizon = 1_800_000_000_000;
    kept.push(5, Timestamp(5), Some(b"k"), None, &Headers::default());
    kept.head.next = 9;
    put(&|out| {
        let chunks = [kept.clone()];
        let parts = CommitParts { kept: true, time: 1, producer: ("", 0), offsets: &offsets[..1], chunks: &chunks };
        format::put_commit(out, &parts);
    });
    put(&|out| format::put_log_start(out, 0, 1, 1));
    if let Ok(path) = std::env::var("STOAT_BLESS_JOURNAL") {
        fs::write(path, &all).expect("blessed");
    }
    assert!(all == golden, "the bytes that are written are not those of version 1");

    let dir = dir();
    fs::write(dir.path().join("0000000000-0000000000-0000.journal"), golden).expect("written");
    let broker = open(dir.path());
    let mut s = session(&broker);
    let t = s.describe("t").expect("there");
    assert_eq!((t.id.as_str(), t.partitions, t.setting("cleanup.policy")), ("an-id", 2, Some("compact,delete")));
    assert_eq!(s.describe("gone"), None);
    assert_eq!(s.group(&[tp("t", 0), tp("t", 1)]).offsets, [Some(7), Some(1 << 40)]);
    assert_eq!(s.bounds(&tp("t", 1)), Bounds { start: 1, end: 3 });
    let (seen, position) = s.read_from(&tp("t", 1), 1, 3);
    let row = Seen { offset: 1, timestamp: 1_699_999_999_999, key: Some(vec![]), value: None, headers: vec![] };
    assert_eq!((seen, position), (vec![row], 3));
    let (seen, position) = s.read_from(&tp("t", 0), 0, 9);
    let row = Seen { offset: 5, timestamp: 5, key: Some(b"k".to_vec()), value: None, headers: vec![] };
    assert_eq!((seen, position), (vec![row], 9));
    s.init();
    s.create("next", 1, &[]);
}

#[test]
fn i13_a_journal_of_another_version_is_refused() {
    let dir = dir();
    with_values(dir.path(), &["a"]);
    let path = last_file(dir.path());
    let mut bytes = fs::read(&path).expect("read");
    bytes[8] = 2;
    let crc = crc32fast::hash(&bytes[..12]).to_le_bytes();
    bytes[12..16].copy_from_slice(&crc);
    fs::write(&path, bytes).expect("written");
    let e = EmbeddedBroker::open(config(dir.path())).expect_err("version 2");
    assert_eq!(e.kind(), ErrorKind::State);
    let text = e.to_string();
    assert!(
        text.contains("version 2") && text.contains("version 1") && text.contains(&*path.to_string_lossy()),
        "{text}"
    );
}

#[test]
fn reopened_ten_times_it_has_everything_and_goes_on() {
    let dir = dir();
    let p = tp("t", 0);
    for round in 0..10 {
        let broker = open(dir.path());
        let mut s = session(&broker);
        s.create("t", 1, &[]);
        let expect: Vec<String> = (0..round).map(|i| format!("v{i}")).collect();
        assert_eq!(s.texts(&p, 2 * round), expect);
        assert_eq!(s.bounds(&p), Bounds { start: 0, end: 2 * round });
        assert_eq!(s.group(std::slice::from_ref(&p)).offsets, [(round > 0).then_some(round)]);
        s.init();
        let t = Transaction {
            batches: vec![batch("t", &[(0, "k", &format!("v{round}"))])],
            offsets: vec![(p.clone(), round + 1)],
            ..Transaction::default()
        };
        s.transact(t).expect("committed");
    }
}

#[test]
fn a_producer_of_before_a_reopen_cannot_come_back_with_its_epoch() {
    let dir = dir();
    let epoch = |broker: &EmbeddedBroker| {
        let mut s = session(broker);
        s.init();
        s
    };
    let broker = open(dir.path());
    let first = epoch(&broker);
    drop((first, broker));
    let bytes = fs::read(last_file(dir.path())).expect("read");
    let broker = open(dir.path());
    drop((epoch(&broker), broker));
    let after = fs::read(last_file(dir.path())).expect("read");
    let body = &format::unframe(&after[bytes.len()..]).expect("whole").body;
    assert!(matches!(format::read_entry(body), Ok(format::Entry::Producer { epoch: 1, id: "app" })));
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_and_the_commits_before_it_stay() {
    let origin = dir();
    with_values(origin.path(), &["a", "b", "c"]);
    let name = last_file(origin.path()).file_name().expect("a name").to_owned();
    let whole = fs::read(last_file(origin.path())).expect("read");
    let starts = entry_starts(&whole);
    let last = starts[starts.len() - 2];
    let check = |bytes: &[u8], what: &str| {
        let dir = dir();
        fs::write(dir.path().join(&name), bytes).expect("written");
        assert_eq!(values(dir.path()), ["a", "a", "b", "b"], "{what}");
        let broker = open(dir.path());
        let mut s = session(&broker);
        assert_eq!(s.group(&[tp("t", 0)]).offsets, [Some(1)]);
        s.init();
        s.transact(transaction(vec![batch("t", &[(0, "k", "d")])])).expect("committed");
        drop((s, broker));
        assert_eq!(values(dir.path()), ["a", "a", "b", "b", "d"], "{what}");
    };
    for cut in last..whole.len() {
        check(&whole[..cut], &format!("cut at {cut} of {last}..{}", whole.len()));
        // The length may be there while the bytes are not. (Where the last bytes are zeros anyway, nothing is torn.)
        if whole[cut..].iter().any(|b| *b != 0) {
            let mut zeros = whole[..cut].to_vec();
            zeros.resize(whole.len() + 100, 0);
            check(&zeros, &format!("zeros from {cut} on"));
        }
    }
    for flip in last..whole.len() {
        let mut bytes = whole.clone();
        bytes[flip] ^= 0x10;
        check(&bytes, &format!("damaged at {flip}"));
    }
}

#[test]
fn a_file_torn_while_it_was_made_is_made_again() {
    for cut in 0..FILE_HEADER {
        let dir = dir();
        with_values(dir.path(), &["a"]);
        let next = dir.path().join("0000000001-0000000001-0000.journal");
        fs::write(&next, &format::file_header()[..cut]).expect("written");
        assert_eq!(values(dir.path()), ["a", "a"]);
        let broker = open(dir.path());
        let mut s = session(&broker);
        s.init();
        s.transact(transaction(vec![batch("t", &[(0, "k", "b")])])).expect("committed");
        drop((s, broker));
        assert_eq!(values(dir.path()), ["a", "a", "b"]);
        assert!(fs::metadata(next).expect("there").len() > FILE_HEADER as u64, "it is appended to");
    }
}

#[test]
fn damage_before_the_tail_is_an_error_with_file_and_position() {
    for fsync in [Fsync::Commit, Fsync::Off] {
        let dir = dir();
        let broker = EmbeddedBroker::open(EmbeddedConfig { fsync, ..config(dir.path()) }).expect("opened");
        let mut s = session(&broker);
        s.create("t", 1, &[]);
        for value in ["a", "b", "c"] {
            s.produce(batch("t", &[(0, "k", value)])).expect("produced");
        }
        drop((s, broker));
        let path = last_file(dir.path());
        let mut bytes = fs::read(&path).expect("read");
        let starts = entry_starts(&bytes);
        bytes[starts[2] + ENTRY_HEADER + 30] ^= 1;
        fs::write(&path, bytes).expect("written");
        let e = EmbeddedBroker::open(config(dir.path())).expect_err("damaged");
        let text = e.to_string();
        assert_eq!(e.kind(), ErrorKind::State);
        assert!(text.contains(&format!("byte {}", starts[2])) && text.contains(&*path.to_string_lossy()), "{text}");
    }
}

#[test]
fn what_a_power_cut_left_of_unsynced_commits_is_cut_from_the_first_hole_on() {
    let (dir, crashed) = (dir(), dir());
    let fsync = Fsync::Interval(Duration::from_hours(1));
    let broker = EmbeddedBroker::open(EmbeddedConfig { fsync, ..config(dir.path()) }).expect("opened");
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    for value in ["a", "b", "c"] {
        s.produce(batch("t", &[(0, "k", value)])).expect("produced");
    }
    copy(dir.path(), crashed.path());
    let path = last_file(crashed.path());
    let mut bytes = fs::read(&path).expect("read");
    let starts = entry_starts(&bytes);
    // The pages of `b` did not reach the disk, those of `c` did.
    bytes[starts[2]..starts[3]].fill(0);
    fs::write(&path, bytes).expect("written");
    assert_eq!(values(crashed.path()), ["a"]);
}

#[test]
fn a_missing_file_is_an_error() {
    let dir = dir();
    let broker = EmbeddedBroker::open(EmbeddedConfig { file_bytes: 100, ..config(dir.path()) }).expect("opened");
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    for value in ["a", "b", "c"] {
        s.produce(batch("t", &[(0, "k", value)])).expect("produced");
    }
    drop((s, broker));
    let files = journal_files(dir.path());
    assert!(files.len() > 2);
    fs::remove_file(&files[1]).expect("removed");
    let text = EmbeddedBroker::open(config(dir.path())).expect_err("incomplete").to_string();
    assert!(text.contains("incomplete") && text.contains(&*dir.path().to_string_lossy()), "{text}");
}

#[test]
fn a_directory_in_use_is_refused_and_says_by_whom_and_is_free_after_the_last_handle() {
    let dir = dir();
    let broker = open(dir.path());
    let client = Factory::client(&broker, None, None);
    drop(broker);
    let e = EmbeddedBroker::open(config(dir.path())).expect_err("in use: a client is there");
    assert_eq!(e.kind(), ErrorKind::Fenced);
    assert!(e.to_string().contains(&format!("process {}", std::process::id())), "{e}");
    drop(client);
    open(dir.path());
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_with_its_path() {
    let dir = dir();
    let file = dir.path().join("file");
    fs::write(&file, "").expect("written");
    let e = EmbeddedBroker::open(config(&file.join("below"))).expect_err("there is a file");
    assert_eq!(e.kind(), ErrorKind::State);
    assert!(e.to_string().contains(&*file.to_string_lossy()), "{e}");
}

#[test]
fn a_full_disk_fails_the_commit_and_leaves_nothing_of_it() {
    let dir = dir();
    let left = Arc::new(AtomicU64::new(u64::MAX));
    let limited = EmbeddedConfig { disk_limit: Some(Arc::clone(&left)), ..config(dir.path()) };
    let broker = EmbeddedBroker::open(limited).expect("opened");
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    s.init();
    let commit = |s: &mut Session, value: &str| {
        s.transact(transaction(vec![batch("t", &[(0, "k", value)])])).map_err(|e| (e.kind, e.message))
    };
    commit(&mut s, "a").expect("there is room");
    for bytes in [0, 1, 30] {
        left.store(bytes, Ordering::SeqCst);
        let (kind, message) = commit(&mut s, "never").expect_err("the disk is full");
        assert_eq!(kind, BrokerErrorKind::Retriable);
        assert!(message.contains("make room") && message.contains(&*dir.path().to_string_lossy()), "{message}");
        assert_eq!(s.bounds(&tp("t", 0)).end, 2);
        entry_starts(&fs::read(last_file(dir.path())).expect("read"));
    }
    left.store(u64::MAX, Ordering::SeqCst);
    commit(&mut s, "b").expect("there is room again");
    drop((s, broker));
    assert_eq!(values(dir.path()), ["a", "b"]);
}

#[test]
fn nothing_is_written_while_nobody_commits() {
    let dir = dir();
    with_values(dir.path(), &["a", "b"]);
    let before = fs::read(last_file(dir.path())).expect("read");
    let broker = open(dir.path());
    let mut s = session(&broker);
    s.texts(&tp("t", 0), 6);
    s.group(&[tp("t", 0)]);
    s.create("t", 1, &[]);
    s.init();
    let after_init = fs::read(last_file(dir.path())).expect("read");
    s.transact(Transaction::default()).expect("committed");
    broker.maintain().expect("nothing to do");
    drop((s, broker));
    assert!(after_init.len() > before.len(), "an epoch is written");
    assert_eq!(fs::read(last_file(dir.path())).expect("read"), after_init);
    assert_eq!(journal_files(dir.path()).len(), 1);
}

#[test]
fn a_deleted_topic_is_gone_with_its_offsets_and_one_of_the_same_name_is_another() {
    let dir = dir();
    with_values(dir.path(), &["a"]);
    let broker = open(dir.path());
    let mut s = session(&broker);
    let mut reader = session(&broker);
    reader.read_from(&tp("t", 0), 0, 3);
    let old = s.describe("t").expect("there").id;
    broker.delete_topic("t").expect("deleted");
    assert_eq!(broker.delete_topic("t").expect_err("gone").kind(), ErrorKind::Topic);
    assert_eq!(s.describe("t"), None);
    s.create("t", 1, &[]);
    assert_ne!(s.describe("t").expect("there").id, old);
    assert_eq!(s.bounds(&tp("t", 0)), Bounds { start: 0, end: 0 });
    assert_eq!(s.group(&[tp("t", 0)]).offsets, [None]);
    reader.ask(&tp("t", 0), 100);
    assert_eq!(reader.fetched(&tp("t", 0)).expect_err("another topic").kind, BrokerErrorKind::UnknownTopic);
    drop((s, reader, broker));
    assert_eq!(values(dir.path()), Vec::<String>::new());
}

#[test]
fn topics_that_cannot_be_are_refused_with_the_reason() {
    let broker = EmbeddedBroker::open(EmbeddedConfig::memory()).expect("memory");
    let mut s = session(&broker);
    let mut refuse = |name: &str, partitions, config: &[(&str, &str)], expect: &str| {
        let topic = crate::broker::NewTopic {
            name: name.into(),
            partitions,
            replication: 1,
            config: config.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        };
        let e = s.call(crate::broker::Command::CreateTopics { topics: vec![topic] }).expect_err("refused");
        assert_eq!(e.kind, BrokerErrorKind::Refused(None));
        assert!(e.message.contains(expect), "{e}");
    };
    refuse("a b", 1, &[], "ASCII letters");
    refuse("", 1, &[], "ASCII letters");
    refuse("a", 0, &[], "0 partitions");
    refuse("a", 1, &[("retention.ms", "1d")], "`retention.ms` is `1d`");
    refuse("a", 1, &[("cleanup.policy", "compress")], "`compress`");
}

#[test]
fn what_kafka_would_refuse_is_refused_with_its_place() {
    let broker = EmbeddedBroker::open(EmbeddedConfig::memory()).expect("memory");
    let mut s = session(&broker);
    s.create("small", 1, &[("max.message.bytes", "100")]);
    s.create("compacted", 1, &[("cleanup.policy", "compact")]);
    // As Kafka counts: 61 for the batch, 1 for the length, 3 for what is fixed, then key, value, headers.
    let record = |n: usize| batch("small", &[(0, "k", &"x".repeat(n))]);
    s.produce(record(31)).expect("100 bytes");
    let e = s.produce(record(32)).expect_err("101 bytes");
    assert_eq!(e.kind, BrokerErrorKind::Refused(Some((0, 0))));
    assert!(e.message.contains("101") && e.message.contains("100") && e.message.contains("small-0"), "{e}");
    let mut b = ProduceBatch::new(vec![Arc::from("compacted")].into());
    b.push(0, 0, Timestamp(0), Some(b"k"), None, Headers::default());
    b.push(0, 0, Timestamp(0), None, Some(b"v"), Headers::default());
    assert_eq!(s.produce(b).expect_err("no key").kind, BrokerErrorKind::Refused(Some((0, 1))));
    assert_eq!(
        s.produce(batch("nowhere", &[(0, "k", "v")])).expect_err("no topic").kind,
        BrokerErrorKind::UnknownTopic
    );
    assert_eq!(
        s.produce(batch("small", &[(1, "k", "v")])).expect_err("no partition").kind,
        BrokerErrorKind::UnknownTopic
    );
    assert_eq!(s.bounds(&tp("compacted", 0)).end, 0);
}

/// A clock that tests move.
fn clock() -> (Arc<AtomicI64>, super::WallClock) {
    let time = Arc::new(AtomicI64::new(1_700_000_000_000));
    let clock = Arc::clone(&time);
    (time, Arc::new(move || clock.load(Ordering::SeqCst)))
}

const FILE: u64 = 4 << 10;

fn small_files(dir: Option<&Path>, now: &super::WallClock) -> EmbeddedBroker {
    with_files_of(FILE, dir, now)
}

fn with_files_of(file_bytes: u64, dir: Option<&Path>, now: &super::WallClock) -> EmbeddedBroker {
    let config = EmbeddedConfig {
        dir: dir.map(Into::into),
        fsync: Fsync::Off,
        now: Arc::clone(now),
        file_bytes,
        ..EmbeddedConfig::memory()
    };
    EmbeddedBroker::open(config).expect("opened")
}

/// Rows of a partition: offset, key, value.
type Rows = Vec<(i64, String, Option<String>)>;

fn rows(s: &mut Session, p: &TopicPartition) -> Rows {
    let bounds = s.bounds(p);
    let text = |b: &Option<Vec<u8>>| b.as_ref().map(|b| String::from_utf8(b.clone()).expect("text"));
    let (seen, position) = s.read_from(p, bounds.start, bounds.end);
    assert_eq!(position, bounds.end);
    seen.iter().map(|r| (r.offset, text(&r.key).expect("a key"), text(&r.value))).collect()
}

fn put(s: &mut Session, topic: &str, records: &[(&str, Option<&str>)]) {
    let mut b = ProduceBatch::new(vec![Arc::from(topic)].into());
    for (key, value) in records {
        let value = value.map(str::as_bytes);
        b.push(0, 0, Timestamp(1_700_000_000_000), Some(key.as_bytes()), value, Headers::default());
    }
    s.transact(transaction(vec![b])).expect("committed");
}

#[test]
fn compaction_keeps_the_last_record_of_each_key_at_its_offset_and_gives_space_back() {
    for on_disk in [false, true] {
        let dir = dir();
        let (_, now) = clock();
        let broker = small_files(on_disk.then(|| dir.path()), &now);
        let mut s = session(&broker);
        s.create("log", 1, &[("cleanup.policy", "compact")]);
        s.create("other", 1, &[]);
        s.init();
        put(&mut s, "other", &[("k", Some("stays"))]);
        let all: Vec<_> = (0..2000).map(|i| (format!("k{}", i % 10), format!("v{i}"))).collect();
        for pair in all.chunks(2) {
            let records: Vec<_> = pair.iter().map(|(k, v)| (k.as_str(), Some(v.as_str()))).collect();
            put(&mut s, "log", &records);
        }
        let p = tp("log", 0);
        let bounds = s.bounds(&p);
        let size = || journal_files(dir.path()).iter().map(|f| fs::metadata(f).expect("there").len()).sum::<u64>();
        let before = size();
        broker.maintain().expect("compacted");
        assert_eq!(s.bounds(&p), bounds, "compaction moves no bound");
        let seen = rows(&mut s, &p);
        let last: BTreeMap<_, _> = all.iter().cloned().collect();
        let read: BTreeMap<_, _> = seen.iter().map(|(_, k, v)| (k.clone(), v.clone().expect("a value"))).collect();
        assert_eq!(read, last);
        assert!(seen.len() < 200, "{} records are left", seen.len());
        for (offset, _, value) in &seen {
            // Two records and a marker for each commit.
            let i: i64 = value.as_deref().expect("a value")[1..].parse().expect("a number");
            assert_eq!(*offset, i / 2 * 3 + i % 2);
        }
        assert_eq!(rows(&mut s, &tp("other", 0)), [(0, "k".to_owned(), Some("stays".to_owned()))]);
        drop((s, broker));
        if on_disk {
            assert!(size() < before / 4, "{} of {before} bytes are left", size());
            let broker = small_files(Some(dir.path()), &now);
            let mut s = session(&broker);
            assert_eq!((rows(&mut s, &p), s.bounds(&p)), (seen, bounds));
            s.init();
            put(&mut s, "log", &[("k0", Some("new"))]);
        }
    }
}

#[test]
fn a_tombstone_stays_for_delete_retention_from_the_pass_that_removed_what_was_before_it() {
    let dir = dir();
    let (time, now) = clock();
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("log", 1, &[("cleanup.policy", "compact"), ("delete.retention.ms", "1000")]);
    s.init();
    put(&mut s, "log", &[("dead", Some("old"))]);
    put(&mut s, "log", &[("dead", None)]);
    let fill = |s: &mut Session| {
        for i in 0..200 {
            put(s, "log", &[("busy", Some(&format!("{i:0>60}")))]);
        }
    };
    let p = tp("log", 0);
    let of_dead = |s: &mut Session| {
        rows(s, &p).into_iter().filter(|(_, k, _)| k == "dead").map(|(o, _, v)| (o, v)).collect::<Vec<_>>()
    };
    // Longer than the retention ago already, but nobody was told yet that the value is gone.
    time.fetch_add(5000, Ordering::SeqCst);
    fill(&mut s);
    broker.maintain().expect("compacted");
    assert_eq!(of_dead(&mut s), [(2, None)]);
    time.fetch_add(500, Ordering::SeqCst);
    fill(&mut s);
    broker.maintain().expect("compacted");
    assert_eq!(of_dead(&mut s), [(2, None)], "its time has not come");
    time.fetch_add(600, Ordering::SeqCst);
    fill(&mut s);
    broker.maintain().expect("compacted");
    assert_eq!(of_dead(&mut s), []);
}

#[test]
fn retention_moves_the_start_and_the_space_comes_back() {
    let dir = dir();
    let (time, now) = clock();
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("old", 1, &[("retention.ms", "1000")]);
    s.create("kept", 1, &[("retention.ms", "-1")]);
    s.create("few", 1, &[("retention.ms", "-1"), ("retention.bytes", "2000")]);
    s.init();
    for topic in ["old", "kept", "few"] {
        for i in 0..100 {
            put(&mut s, topic, &[("k", Some(&format!("{i:0>100}")))]);
        }
    }
    broker.maintain().expect("done");
    assert_eq!(s.bounds(&tp("old", 0)), Bounds { start: 0, end: 200 }, "younger than its retention");
    let few = s.bounds(&tp("few", 0));
    assert!(few.end == 200 && few.start > 150 && few.start < 190, "{few:?}");
    time.fetch_add(1001, Ordering::SeqCst);
    put(&mut s, "old", &[("k", Some("young"))]);
    broker.maintain().expect("done");
    assert_eq!(s.bounds(&tp("old", 0)), Bounds { start: 200, end: 202 });
    assert_eq!(rows(&mut s, &tp("old", 0)), [(200, "k".to_owned(), Some("young".to_owned()))]);
    assert_eq!(rows(&mut s, &tp("kept", 0)).len(), 100);
    s.open(&tp("old", 0), 0);
    s.ask(&tp("old", 0), 100);
    assert_eq!(s.fetched(&tp("old", 0)).expect_err("gone").kind, BrokerErrorKind::OutOfRange);
    time.fetch_add(1001, Ordering::SeqCst);
    broker.maintain().expect("done");
    assert_eq!(s.bounds(&tp("old", 0)), Bounds { start: 202, end: 202 });
    drop((s, broker));
    let size: u64 = journal_files(dir.path()).iter().map(|f| fs::metadata(f).expect("there").len()).sum();
    assert!(size < 45_000, "{size} bytes are left of what 300 commits of 230 bytes took");
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    assert_eq!(s.bounds(&tp("old", 0)), Bounds { start: 202, end: 202 });
    assert_eq!(s.bounds(&tp("few", 0)), few);
    assert_eq!(rows(&mut s, &tp("kept", 0)).len(), 100);
}

#[test]
fn a_crash_between_the_steps_of_a_rewrite_loses_and_revives_nothing() {
    let (dir, before, after) = (dir(), dir(), dir());
    let (_, now) = clock();
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("log", 1, &[("cleanup.policy", "compact")]);
    s.create("gone", 1, &[]);
    s.create("plain", 1, &[]);
    s.init();
    for i in 0..150 {
        put(&mut s, "log", &[(&format!("k{}", i % 7), Some(&format!("{i:0>50}")))]);
        put(&mut s, "gone", &[("k", Some("x"))]);
        put(&mut s, "plain", &[("k", Some(&i.to_string()))]);
    }
    broker.delete_topic("gone").expect("deleted");
    let (log, plain) = (tp("log", 0), tp("plain", 0));
    let last = |s: &mut Session| {
        let last: BTreeMap<_, _> = rows(s, &log).into_iter().map(|(o, k, v)| (k, (o, v))).collect();
        (last, rows(s, &plain), s.bounds(&log))
    };
    let expect = last(&mut s);
    copy(dir.path(), before.path());
    broker.maintain().expect("compacted");
    copy(dir.path(), after.path());
    assert_eq!(last(&mut s), expect);
    drop((s, broker));
    let name = |p: &PathBuf| p.file_name().expect("a name").to_owned();
    let old: Vec<_> = journal_files(before.path()).iter().map(name).collect();
    let new: Vec<_> = journal_files(after.path()).iter().map(name).filter(|n| !old.contains(n)).collect();
    let removed: Vec<_> = old.iter().filter(|n| !after.path().join(n).exists()).cloned().collect();
    assert!(!new.is_empty() && removed.len() > 3, "{new:?} {removed:?}");
    let check = |what: &str, make: &dyn Fn(&Path)| {
        let crashed = self::dir();
        copy(before.path(), crashed.path());
        make(crashed.path());
        for _ in 0..2 {
            let broker = small_files(Some(crashed.path()), &now);
            let mut s = session(&broker);
            assert_eq!(last(&mut s), expect, "{what}");
            assert_eq!(s.describe("gone"), None, "{what}");
            let leftovers: Vec<_> = fs::read_dir(crashed.path())
                .expect("listed")
                .map(|e| e.expect("listed").file_name())
                .filter(|n| n.to_string_lossy().ends_with(".tmp"))
                .collect();
            assert!(leftovers.is_empty(), "{what}: {leftovers:?}");
            s.init();
            put(&mut s, "plain", &[]);
            broker.maintain().expect("goes on");
            assert_eq!(last(&mut s), expect, "{what}, after going on");
        }
    };
    for (i, file) in new.iter().enumerate() {
        let put = |dir: &Path, n: usize| {
            for f in &new[..n] {
                fs::copy(after.path().join(f), dir.join(f)).expect("copied");
            }
        };
        let whole = fs::read(after.path().join(file)).expect("read");
        for part in [0, 1, whole.len() / 2, whole.len()] {
            check(&format!("file {i} unfinished with {part} bytes"), &|dir| {
                put(dir, i);
                let tmp = format!("{}.tmp", file.to_string_lossy());
                fs::write(dir.join(tmp), &whole[..part]).expect("written");
            });
        }
        check(&format!("file {i} in place, nothing removed"), &|dir| put(dir, i + 1));
    }
    for n in 0..=removed.len() {
        check(&format!("{n} old files removed"), &|dir| {
            for f in &new {
                fs::copy(after.path().join(f), dir.join(f)).expect("copied");
            }
            for f in &removed[..n] {
                fs::remove_file(dir.join(f)).expect("removed");
            }
        });
    }
}

#[test]
fn group_offsets_and_epochs_survive_rewrites() {
    let dir = dir();
    let (time, now) = clock();
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("t", 1, &[("retention.ms", "1000")]);
    let mut other = Session::new(Factory::client(&broker, Some("other"), Some("others")), PATIENCE);
    other.init();
    let offset = |next| Transaction { offsets: vec![(tp("t", 0), next)], ..Transaction::default() };
    other.transact(offset(77)).expect("committed");
    s.init();
    s.init();
    for i in 0..300 {
        let t = Transaction { batches: vec![batch("t", &[(0, "k", &"x".repeat(50))])], ..offset(i) };
        s.transact(t).expect("committed");
    }
    time.fetch_add(2000, Ordering::SeqCst);
    broker.maintain().expect("done");
    let files = journal_files(dir.path()).len();
    assert!(files < 5, "{files} files are left of about 15");
    drop((s, other, broker));
    let broker = small_files(Some(dir.path()), &now);
    let mut other = Session::new(Factory::client(&broker, Some("other"), Some("others")), PATIENCE);
    let mut s = session(&broker);
    assert_eq!(s.group(&[tp("t", 0)]).offsets, [Some(299)]);
    assert_eq!(other.group(&[tp("t", 0)]).offsets, [Some(77)]);
    s.init();
    drop((s, other, broker));
    let all: Vec<u8> = journal_files(dir.path()).iter().flat_map(|f| fs::read(f).expect("read")).collect();
    let mut epochs = Vec::new();
    for at in 0..all.len() {
        let body = format::unframe(&all[at..]).map(|f| f.body);
        if let Some(Ok(format::Entry::Producer { id: "app", epoch })) = body.map(format::read_entry) {
            epochs.push(epoch);
        }
    }
    assert_eq!(epochs, [1, 2], "epoch 0 is dropped, 1 was the newest before the last open");
}

#[test]
fn small_commits_become_larger_pieces_and_read_the_same() {
    let dir = dir();
    let (_, now) = clock();
    let size = 200 << 10;
    let broker = with_files_of(size, Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    s.init();
    for i in 0..2500 {
        put(&mut s, "t", &[("k", Some(&i.to_string()))]);
    }
    let p = tp("t", 0);
    let expect = rows(&mut s, &p);
    assert_eq!(expect.len(), 2500);
    let chunks = |dir: &Path| {
        let chunks = |f: &PathBuf| {
            let bytes = fs::read(f).expect("read");
            let starts = entry_starts(&bytes);
            let bodies =
                starts[..starts.len() - 1].iter().map(|at| format::unframe(&bytes[*at..]).expect("whole").body);
            bodies
                .map(|b| match format::read_entry(b) {
                    Ok(format::Entry::Commit(c)) => c.chunks.len(),
                    _ => 0,
                })
                .sum::<usize>()
        };
        journal_files(dir).iter().map(chunks).sum::<usize>()
    };
    assert_eq!(chunks(dir.path()), 2500);
    broker.maintain().expect("done");
    assert_eq!(rows(&mut s, &p), expect);
    drop((s, broker));
    assert!(chunks(dir.path()) < 1300, "{} pieces are left", chunks(dir.path()));
    let broker = with_files_of(size, Some(dir.path()), &now);
    assert_eq!(rows(&mut session(&broker), &p), expect);
}

#[test]
fn commits_and_reads_go_on_while_files_are_rewritten() {
    let dir = dir();
    let (_, now) = clock();
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("log", 1, &[("cleanup.policy", "compact")]);
    s.init();
    let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let rewriting = std::thread::spawn({
        let (broker, done) = (broker.clone(), Arc::clone(&done));
        move || {
            while !done.load(Ordering::SeqCst) {
                broker.maintain().expect("done");
            }
        }
    });
    let p = tp("log", 0);
    let mut expect = BTreeMap::new();
    let last = |s: &mut Session| rows(s, &p).into_iter().map(|(o, k, v)| (k, (o, v))).collect::<BTreeMap<_, _>>();
    for i in 0..2000i64 {
        let (key, value) = (format!("k{}", i % 13), format!("{i:0>40}"));
        put(&mut s, "log", &[(&key, Some(&value))]);
        expect.insert(key, (2 * i, Some(value)));
        if i % 100 == 99 {
            assert_eq!(last(&mut s), expect);
        }
    }
    done.store(true, Ordering::SeqCst);
    rewriting.join().expect("it ends");
    drop((s, broker));
    let broker = small_files(Some(dir.path()), &now);
    assert_eq!(last(&mut session(&broker)), expect);
}

#[test]
fn commits_that_wait_share_one_sync() {
    let dir = dir();
    let syncs = Arc::new(AtomicU64::new(0));
    let (gate, opened) = std::sync::mpsc::channel::<()>();
    let opened = std::sync::Mutex::new(opened);
    let gated = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let waits = Arc::clone(&gated);
    let now = move || {
        // The first commit asks for the time and waits until all others are submitted.
        if waits.swap(false, Ordering::SeqCst) {
            opened.lock().expect("not poisoned").recv().expect("opened");
        }
        0
    };
    let config =
        EmbeddedConfig { syncs: Some(Arc::clone(&syncs)), now: Arc::new(now), ..EmbeddedConfig::new(dir.path()) };
    let broker = EmbeddedBroker::open(config).expect("opened");
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    s.init();
    let before = syncs.load(Ordering::SeqCst);
    gated.store(true, Ordering::SeqCst);
    let commit = || crate::broker::Command::Transact(Arc::new(transaction(vec![batch("t", &[(0, "k", "v")])])));
    let ops: Vec<_> = (0..100).map(|_| s.submit(commit())).collect();
    gate.send(()).expect("it waits");
    for op in ops {
        s.done(op).expect("committed");
    }
    assert_eq!(syncs.load(Ordering::SeqCst) - before, 1);
    s.call(commit()).expect("committed");
    assert_eq!(syncs.load(Ordering::SeqCst) - before, 2);
}

#[test]
fn with_an_interval_a_commit_is_synced_once_and_without_another_one() {
    let dir = dir();
    let syncs = Arc::new(AtomicU64::new(0));
    let fsync = Fsync::Interval(Duration::from_millis(1));
    let config = EmbeddedConfig { syncs: Some(Arc::clone(&syncs)), fsync, ..EmbeddedConfig::new(dir.path()) };
    let broker = EmbeddedBroker::open(config).expect("opened");
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    let deadline = std::time::Instant::now() + PATIENCE;
    while syncs.load(Ordering::SeqCst) == 0 {
        assert!(std::time::Instant::now() < deadline, "nobody syncs");
        std::thread::yield_now();
    }
    drop((s, broker));
    assert_eq!(syncs.load(Ordering::SeqCst), 1, "nothing was written in between");
}

#[test]
fn after_a_panic_every_command_is_answered_and_nothing_is_written() {
    let dir = dir();
    let panics = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let when = Arc::clone(&panics);
    let now = move || {
        assert!(!when.swap(false, Ordering::SeqCst), "as the test wants it");
        0
    };
    let config = EmbeddedConfig { now: Arc::new(now), ..config(dir.path()) };
    let broker = EmbeddedBroker::open(config).expect("opened");
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    s.init();
    s.transact(transaction(vec![batch("t", &[(0, "k", "a")])])).expect("committed");
    assert_eq!(s.texts(&tp("t", 0), 2), ["a"]);
    panics.store(true, Ordering::SeqCst);
    let e = s.transact(transaction(vec![batch("t", &[(0, "k", "b")])])).expect_err("it panics");
    assert_eq!(e.kind, BrokerErrorKind::Unknown, "{e}");
    assert_eq!(s.fetched(&tp("t", 0)).expect_err("closed").kind, BrokerErrorKind::Fatal);
    let e = s.transact(transaction(vec![batch("t", &[(0, "k", "c")])])).expect_err("broken");
    assert_eq!(e.kind, BrokerErrorKind::Fatal, "{e}");
    drop((s, broker));
    assert_eq!(values(dir.path()), ["a"]);
}

#[test]
fn the_end_of_a_log_outlives_its_last_records() {
    let dir = dir();
    let (time, now) = clock();
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("log", 2, &[("cleanup.policy", "compact"), ("delete.retention.ms", "1000")]);
    s.create("old", 1, &[("retention.ms", "1000")]);
    s.init();
    let mut b = ProduceBatch::new(vec![Arc::from("log")].into());
    b.push(0, 1, Timestamp(0), Some(b"k"), Some(b"v"), Headers::default());
    b.push(0, 1, Timestamp(0), Some(b"k"), None, Headers::default());
    s.transact(transaction(vec![b])).expect("committed");
    put(&mut s, "old", &[("k", Some("v"))]);
    for _ in 0..4 {
        for i in 0..100 {
            put(&mut s, "log", &[("busy", Some(&format!("{i:0>60}")))]);
        }
        broker.maintain().expect("done");
        time.fetch_add(1001, Ordering::SeqCst);
    }
    let bounds = |s: &mut Session| [s.bounds(&tp("log", 1)), s.bounds(&tp("old", 0))];
    let expect = [Bounds { start: 0, end: 3 }, Bounds { start: 2, end: 2 }];
    assert_eq!(bounds(&mut s), expect);
    drop((s, broker));
    let all: Vec<u8> = journal_files(dir.path()).iter().flat_map(|f| fs::read(f).expect("read")).collect();
    for at in 0..all.len() {
        let body = format::unframe(&all[at..]).map(|f| f.body);
        if let Some(Ok(format::Entry::Commit(c))) = body.map(format::read_entry) {
            let left = c.chunks.iter().filter(|(h, _)| (h.topic, h.partition) != (0, 0) && h.count > 0).count();
            assert_eq!(left, 0, "the records are gone from the files");
        }
    }
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    assert_eq!(bounds(&mut s), expect);
    assert_eq!(rows(&mut s, &tp("log", 1)), []);
    s.init();
    put(&mut s, "old", &[("k", Some("next"))]);
    assert_eq!(rows(&mut s, &tp("old", 0)), [(2, "k".to_owned(), Some("next".to_owned()))]);
}

#[test]
fn a_deleted_topic_does_not_come_back_from_an_older_file_that_stays() {
    let dir = dir();
    let (time, now) = clock();
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    s.create("gone", 1, &[]);
    s.create("kept", 1, &[("retention.ms", "-1")]);
    s.create("old", 1, &[("retention.ms", "1000")]);
    let fill = |s: &mut Session, topic: &str| {
        for i in 0..60 {
            s.produce(batch(topic, &[(0, "k", &format!("{i:0>300}"))])).expect("produced");
        }
    };
    fill(&mut s, "kept");
    fill(&mut s, "old");
    broker.delete_topic("gone").expect("deleted");
    fill(&mut s, "old");
    time.fetch_add(1001, Ordering::SeqCst);
    let first = journal_files(dir.path())[0].clone();
    broker.maintain().expect("done");
    assert!(first.exists(), "the file with the topic's creation stays as it is");
    drop((s, broker));
    let broker = small_files(Some(dir.path()), &now);
    let mut s = session(&broker);
    assert_eq!(s.describe("gone"), None);
    assert_eq!(rows(&mut s, &tp("kept", 0)).len(), 60);
}

#[test]
fn the_end_is_told_with_the_last_records_and_not_before() {
    let broker = EmbeddedBroker::open(EmbeddedConfig::memory()).expect("memory");
    let mut s = session(&broker);
    s.create("t", 1, &[]);
    s.init();
    for _ in 0..3 {
        put(&mut s, "t", &[("k", Some("a")), ("k", Some("b"))]);
    }
    let p = tp("t", 0);
    s.open(&p, 0);
    let mut told = Vec::new();
    for _ in 0..6 {
        s.ask(&p, 1);
        let f = s.fetched(&p).expect("a record");
        told.push((f.batch.len(), f.position, f.caught_up));
    }
    // The marker behind a commit's last record is passed with it.
    let expect = [(1, 1, false), (1, 3, false), (1, 4, false), (1, 6, false), (1, 7, false), (1, 9, true)];
    assert_eq!(told, expect);
}

/// What the property test does.
#[derive(Clone, Debug)]
enum Step {
    /// (partition, key, value) each; the group's offset.
    Commit(usize, Vec<(u8, u8, u8)>, Option<i64>),
    Produce(Vec<(u8, u8, u8)>),
    Init(usize),
    Reopen,
    /// Crash: so many bytes are cut off the last file, at most down to the entry before.
    Tear(u16),
    Maintain,
}

fn step() -> impl Strategy<Value = Step> {
    let records = || prop::collection::vec((0..3u8, 0..4u8, any::<u8>()), 0..8);
    prop_oneof![
        6 => (0..2usize, records(), prop::option::of(0..1000i64)).prop_map(|(c, r, o)| Step::Commit(c, r, o)),
        2 => records().prop_map(Step::Produce),
        1 => (0..2usize).prop_map(Step::Init),
        1 => Just(Step::Reopen),
        1 => any::<u16>().prop_map(Step::Tear),
        1 => Just(Step::Maintain),
    ]
}

/// What the broker should hold. Partition 2 is a compacted topic.
#[derive(Clone, Default, PartialEq, Debug)]
struct Model {
    logs: [Vec<(i64, u8, u8)>; 3],
    ends: [i64; 3],
    offset: Option<i64>,
}

impl Model {
    fn append(&mut self, records: &[(u8, u8, u8)], marker: bool) {
        let mut touched = [false; 3];
        for (p, k, v) in records {
            let p = usize::from(*p);
            self.logs[p].push((self.ends[p], *k, *v));
            self.ends[p] += 1;
            touched[p] = true;
        }
        for p in (0..3).filter(|p| marker && touched[*p]) {
            self.ends[p] += 1;
        }
    }

    fn compacted(&self) -> BTreeMap<u8, (i64, u8)> {
        self.logs[2].iter().map(|(o, k, v)| (*k, (*o, *v))).collect()
    }
}

fn model_batch(records: &[(u8, u8, u8)]) -> ProduceBatch {
    let mut b = ProduceBatch::new(vec![Arc::from("plain"), Arc::from("compacted")].into());
    for (p, k, v) in records {
        let (topic, partition) = if *p < 2 { (0, i32::from(*p)) } else { (1, 0) };
        b.push(topic, partition, Timestamp(1_700_000_000_000), Some(&[*k]), Some(&[*v; 40]), Headers::default());
    }
    b
}

fn read_model(s: &mut Session) -> Model {
    let mut model = Model::default();
    for (i, p) in [tp("plain", 0), tp("plain", 1), tp("compacted", 0)].iter().enumerate() {
        let bounds = s.bounds(p);
        assert_eq!(bounds.start, 0);
        let (seen, position) = s.read_from(p, 0, bounds.end);
        assert_eq!(position, bounds.end);
        let row = |r: &Seen| (r.offset, r.key.as_ref().expect("a key")[0], r.value.as_ref().expect("a value")[0]);
        model.logs[i] = seen.iter().map(row).collect();
        model.ends[i] = bounds.end;
    }
    model.offset = s.group(&[tp("plain", 0)]).offsets[0];
    model
}

fn same(read: &Model, model: &Model) -> bool {
    read.logs[..2] == model.logs[..2]
        && read.ends == model.ends
        && read.offset == model.offset
        && read.compacted() == model.compacted()
        && read.logs[2].iter().all(|r| model.logs[2].contains(r))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_transactions_reopens_rewrites_and_torn_tails_agree_with_the_model(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let dir = dir();
        let (_, now) = clock();
        let open = || {
            let broker = with_files_of(600, Some(dir.path()), &now);
            let clients: Vec<_> = (0..2).map(|_| session(&broker)).collect();
            (broker, clients)
        };
        let (mut broker, mut clients) = open();
        clients[0].create("plain", 2, &[]);
        clients[0].create("compacted", 1, &[("cleanup.policy", "compact")]);
        // Which client has the newest producer.
        let mut newest = None;
        let mut model = Model::default();
        // What a crash may leave: the model after each entry of the last file, with the file's length then.
        let mut history = Vec::new();
        let length = || (last_file(dir.path()), fs::metadata(last_file(dir.path())).expect("there").len());
        for step in steps {
            let before = (length(), model.clone());
            match step {
                Step::Commit(c, records, offset) => {
                    let t = Transaction {
                        batches: vec![model_batch(&records)],
                        offsets: offset.map(|o| (tp("plain", 0), o)).into_iter().collect(),
                        ..Transaction::default()
                    };
                    let result = clients[c].transact(t);
                    if newest == Some(c) {
                        prop_assert!(result.is_ok());
                        model.append(&records, true);
                        model.offset = offset.or(model.offset);
                    } else {
                        let kind = result.expect_err("not the newest producer").kind;
                        prop_assert!(matches!(kind, BrokerErrorKind::Fenced | BrokerErrorKind::Fatal));
                    }
                    history.push(before);
                }
                Step::Produce(records) => {
                    clients[0].produce(model_batch(&records)).expect("produced");
                    model.append(&records, false);
                    history.push(before);
                }
                Step::Init(c) => {
                    clients[c].init();
                    newest = Some(c);
                    history.push(before);
                }
                Step::Maintain => {
                    broker.maintain().expect("done");
                    // A rewrite relies on what it has synced: that much no crash takes away.
                    history.clear();
                }
                Step::Reopen | Step::Tear(_) => {
                    drop((broker, clients));
                    if let Step::Tear(bytes) = step {
                        let (path, len) = length();
                        // Back to the newest state whose bytes are all there.
                        let cut = len.saturating_sub(u64::from(bytes) % 300);
                        let whole = history.iter().rev().take_while(|((p, l), _)| *p == path && *l > cut).count();
                        let torn = history.iter().rev().nth(whole).filter(|((p, _), _)| *p == path && cut < len);
                        if let Some((_, state)) = torn {
                            let file = fs::OpenOptions::new().write(true).open(&path).expect("opened");
                            file.set_len(cut).expect("cut");
                            model = state.clone();
                        }
                    }
                    history.clear();
                    newest = None;
                    (broker, clients) = open();
                }
            }
            let read = read_model(&mut clients[0]);
            prop_assert!(same(&read, &model), "{read:?}\n{model:?}");
        }
    }
}
