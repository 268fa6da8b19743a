//! What every implementation does, run on each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::{KINDS, all, batch, delete, put, scan, stamp};
use crate::error::ErrorKind;
use crate::id::Generation;
use crate::store::memory::MemoryStoreSet;
use crate::store::twin::TwinDisk;
use crate::store::{Batch, ByteStore, Row, StoreKind, StoreSet};
use crate::time::Timestamp;

/// Where sets are opened on: sees to it that the one before is closed.
trait Place {
    fn open(&mut self) -> Box<dyn StoreSet>;
    /// Whether what was flushed is there after [`Place::open`].
    fn durable(&self) -> bool;
}

struct Memory;

impl Place for Memory {
    fn open(&mut self) -> Box<dyn StoreSet> {
        Box::new(MemoryStoreSet::new())
    }
    fn durable(&self) -> bool {
        false
    }
}

struct Twin(TwinDisk);

impl Place for Twin {
    fn open(&mut self) -> Box<dyn StoreSet> {
        self.0.crash();
        Box::new(self.0.open_set())
    }
    fn durable(&self) -> bool {
        true
    }
}

#[cfg(feature = "rocksdb")]
struct Rocks(tempfile::TempDir);

#[cfg(feature = "rocksdb")]
impl Place for Rocks {
    fn open(&mut self) -> Box<dyn StoreSet> {
        use crate::store::rocks::{RocksConfig, RocksStoreSet};
        Box::new(
            RocksStoreSet::open(&RocksConfig { memory: 4 << 20, ..RocksConfig::new(self.0.path(), "suite") }).unwrap(),
        )
    }
    fn durable(&self) -> bool {
        true
    }
}

macro_rules! on_each_implementation {
    ($($test:ident),* $(,)?) => {
        mod memory {
            $(#[test] fn $test() { super::$test(&mut super::Memory); })*
        }
        mod twin {
            $(#[test] fn $test() { super::$test(&mut super::Twin(super::TwinDisk::new())); })*
        }
        #[cfg(feature = "rocksdb")]
        mod rocks {
            $(#[test] fn $test() { super::$test(&mut super::Rocks(tempfile::tempdir().unwrap())); })*
        }
    };
}

on_each_implementation!(
    a_row_is_as_the_last_batch_left_it,
    of_two_rows_of_one_key_in_a_batch_the_last_wins,
    a_scan_visits_keys_in_order_within_its_bounds,
    a_scan_ends_when_the_visitor_says_so,
    a_scan_sees_the_rows_as_of_its_beginning,
    odd_keys_and_values_are_kept,
    a_timestamped_value_bears_its_timestamp_in_front,
    a_stamp_keeps_offsets_that_a_batch_does_not_name,
    a_batch_of_nothing_renews_the_stamp,
    i09_a_write_of_an_older_generation_changes_nothing,
    i09_an_announcement_of_an_older_generation_changes_nothing,
    i09_no_older_write_lands_once_a_newer_generation_is_announced,
    a_cleared_store_is_empty_and_takes_new_rows,
    stores_are_apart_and_listed_by_name,
    a_store_of_another_kind_is_refused,
    i11_what_was_flushed_is_there_after_a_reopen,
    i11_a_cleared_store_stays_empty_after_a_reopen,
    agrees_with_a_map,
    timers_are_given_by_time_and_key,
    a_store_that_holds_no_timers_gives_none,
);

fn open(place: &mut dyn Place, kind: StoreKind) -> Arc<dyn ByteStore> {
    place.open().open("s", kind).unwrap()
}

fn pairs(rows: &[(&[u8], &[u8])]) -> super::Pairs {
    rows.iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect()
}

fn a_row_is_as_the_last_batch_left_it(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    assert_eq!(store.get(b"a").unwrap(), None);
    assert_eq!(store.stamp().unwrap(), None);
    store.apply(Generation(1), &batch(1, vec![put(b"a", b"1"), put(b"b", b"2")])).unwrap();
    store.apply(Generation(1), &batch(2, vec![put(b"a", b"3"), delete(b"b"), delete(b"absent")])).unwrap();
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"3"[..]));
    assert_eq!(store.get(b"b").unwrap(), None);
    assert_eq!(store.stamp().unwrap(), Some(stamp(2, &[(0, 20)])));
}

fn of_two_rows_of_one_key_in_a_batch_the_last_wins(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    let rows = vec![put(b"a", b"1"), delete(b"a"), put(b"b", b"1"), put(b"a", b"2"), delete(b"b")];
    store.apply(Generation(1), &batch(1, rows)).unwrap();
    assert_eq!(all(&*store), pairs(&[(b"a", b"2")]));
}

fn a_scan_visits_keys_in_order_within_its_bounds(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    let keys: [&[u8]; 6] = [b"b", b"ab", b"a", b"\xff\xff", b"c", b"\xff"];
    store.apply(Generation(1), &batch(1, keys.iter().map(|k| put(k, b"v")).collect())).unwrap();
    let keys = |from: Option<&[u8]>, to: Option<&[u8]>| -> Vec<Vec<u8>> {
        scan(&*store, from, to).into_iter().map(|(k, _)| k).collect()
    };
    assert_eq!(keys(None, None), [&b"a"[..], b"ab", b"b", b"c", b"\xff", b"\xff\xff"]);
    assert_eq!(keys(Some(b"ab"), Some(b"c")), [&b"ab"[..], b"b"]);
    assert_eq!(keys(Some(b"aa"), None), [&b"ab"[..], b"b", b"c", b"\xff", b"\xff\xff"]);
    assert_eq!(keys(None, Some(b"ab")), [b"a"]);
    assert_eq!(keys(Some(b"\xff"), Some(b"\xff\xff")), [b"\xff"]);
    assert_eq!(keys(Some(b"b"), Some(b"b")), Vec::<Vec<u8>>::new());
    assert_eq!(keys(Some(b"c"), Some(b"a")), Vec::<Vec<u8>>::new());
    assert_eq!(keys(None, Some(b"")), Vec::<Vec<u8>>::new());
}

fn a_scan_ends_when_the_visitor_says_so(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    store.apply(Generation(1), &batch(1, vec![put(b"a", b""), put(b"b", b""), put(b"c", b"")])).unwrap();
    let mut seen = Vec::new();
    let visited = store.scan(None, None, &mut |key, _| {
        seen.push(key.to_vec());
        seen.len() < 2
    });
    visited.unwrap();
    assert_eq!(seen, [b"a", b"b"]);
}

fn a_scan_sees_the_rows_as_of_its_beginning(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    store.apply(Generation(1), &batch(1, vec![put(b"a", b"1"), put(b"b", b"1")])).unwrap();
    let mut seen = Vec::new();
    let visited = store.scan(None, None, &mut |key, value| {
        if seen.is_empty() {
            store.apply(Generation(1), &batch(2, vec![put(b"b", b"2"), put(b"c", b"2")])).unwrap();
            assert_eq!(store.get(b"b").unwrap().as_deref(), Some(&b"2"[..]), "a get sees the new row meanwhile");
        }
        seen.push((key.to_vec(), value.to_vec()));
        true
    });
    visited.unwrap();
    assert_eq!(seen, pairs(&[(b"a", b"1"), (b"b", b"1")]));
    assert_eq!(all(&*store), pairs(&[(b"a", b"1"), (b"b", b"2"), (b"c", b"2")]));
}

fn odd_keys_and_values_are_kept(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    let long = vec![0xab_u8; 300];
    let large = vec![0x5a_u8; 2 << 20];
    // Keys that look like the rows RocksDB keeps of its own.
    let rows = vec![put(b"", b"empty key"), put(b"\0kind", b""), put(b"\0stamp", b"x"), put(&long, &large)];
    store.apply(Generation(1), &batch(1, rows)).unwrap();
    assert_eq!(store.get(b"").unwrap().as_deref(), Some(&b"empty key"[..]));
    assert_eq!(store.get(b"\0kind").unwrap().as_deref(), Some(&b""[..]), "an empty value is a value");
    assert_eq!(store.get(&long).unwrap(), Some(large));
    assert_eq!(all(&*store).len(), 4);
    assert_eq!(store.stamp().unwrap(), Some(stamp(1, &[(0, 10)])));
}

fn a_timestamped_value_bears_its_timestamp_in_front(place: &mut dyn Place) {
    let store = open(place, StoreKind::TimestampedKeyValue);
    let row = Row { timestamp: Timestamp(0x0102), ..put(b"k", b"v") };
    store.apply(Generation(1), &batch(1, vec![row])).unwrap();
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"\0\0\0\0\0\0\x01\x02v"[..]));
    assert_eq!(all(&*store), pairs(&[(b"k", b"\0\0\0\0\0\0\x01\x02v")]));
}

fn a_stamp_keeps_offsets_that_a_batch_does_not_name(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    let apply = |stamp| {
        let rows = Vec::new();
        store.apply(Generation(1), &Batch { rows, stamp }).unwrap();
    };
    apply(stamp(1, &[(0, 5), (1, 7)]));
    apply(stamp(2, &[(1, 9), (2, 1)]));
    assert_eq!(store.stamp().unwrap(), Some(stamp(2, &[(0, 5), (1, 9), (2, 1)])));
    let mut other = stamp(3, &[(1, 2)]);
    other.topic_id = "another".into();
    apply(other.clone());
    assert_eq!(store.stamp().unwrap(), Some(other), "offsets of another topic mean nothing");
}

fn a_batch_of_nothing_renews_the_stamp(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    store.apply(Generation(1), &batch(1, vec![put(b"a", b"1")])).unwrap();
    store.apply(Generation(1), &batch(9, Vec::new())).unwrap();
    assert_eq!(store.stamp().unwrap(), Some(stamp(9, &[(0, 90)])));
    assert_eq!(all(&*store), pairs(&[(b"a", b"1")]));
}

fn i09_a_write_of_an_older_generation_changes_nothing(place: &mut dyn Place) {
    let mut set = place.open();
    let old = set.open("s", StoreKind::KeyValue).unwrap();
    old.apply(Generation(3), &batch(1, vec![put(b"a", b"1")])).unwrap();
    let new = set.open("s", StoreKind::KeyValue).unwrap();
    new.begin(Generation(4));
    old.apply(Generation(3), &batch(2, vec![put(b"a", b"late"), put(b"b", b"late")])).unwrap();
    assert_eq!(all(&*new), pairs(&[(b"a", b"1")]));
    assert_eq!(new.stamp().unwrap(), Some(stamp(1, &[(0, 10)])));
    new.apply(Generation(4), &batch(2, vec![put(b"a", b"2")])).unwrap();
    assert_eq!(all(&*old), pairs(&[(b"a", b"2")]));
}

fn i09_an_announcement_of_an_older_generation_changes_nothing(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    store.begin(Generation(5));
    store.begin(Generation(4));
    store.apply(Generation(4), &batch(1, vec![put(b"a", b"late")])).unwrap();
    assert_eq!(store.get(b"a").unwrap(), None);
    assert_eq!(store.stamp().unwrap(), None);
    // A write proves that its generation has begun.
    store.apply(Generation(6), &batch(1, vec![put(b"a", b"1")])).unwrap();
    store.apply(Generation(5), &batch(2, vec![put(b"a", b"late")])).unwrap();
    assert_eq!(store.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
}

fn i09_no_older_write_lands_once_a_newer_generation_is_announced(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    let stop = AtomicBool::new(false);
    let (started, has_started) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 1_u64.. {
                store.apply(Generation(1), &batch(i, vec![put(b"a", &i.to_be_bytes())])).unwrap();
                if i == 20 {
                    started.send(()).unwrap();
                }
                if i > 20 && stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        has_started.recv().unwrap();
        store.begin(Generation(2));
        let (row, stamp) = (store.get(b"a").unwrap(), store.stamp().unwrap());
        for _ in 0..200 {
            assert_eq!((store.get(b"a").unwrap(), store.stamp().unwrap()), (row.clone(), stamp.clone()));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

fn a_cleared_store_is_empty_and_takes_new_rows(place: &mut dyn Place) {
    let mut set = place.open();
    let store = set.open("s", StoreKind::KeyValue).unwrap();
    let other = set.open("other", StoreKind::KeyValue).unwrap();
    let rows = || vec![put(b"", b"0"), put(b"a", b"1"), put(b"\xff\xff", b"2")];
    store.apply(Generation(1), &batch(1, rows())).unwrap();
    other.apply(Generation(1), &batch(1, rows())).unwrap();
    store.flush().unwrap();
    store.apply(Generation(1), &batch(2, vec![put(b"b", b"1")])).unwrap();
    store.clear().unwrap();
    assert_eq!(all(&*store), pairs(&[]));
    assert_eq!(store.get(b"a").unwrap(), None);
    assert_eq!(store.stamp().unwrap(), None);
    store.apply(Generation(1), &Batch { rows: vec![put(b"c", b"1")], stamp: stamp(3, &[(1, 4)]) }).unwrap();
    assert_eq!(all(&*store), pairs(&[(b"c", b"1")]));
    assert_eq!(store.stamp().unwrap(), Some(stamp(3, &[(1, 4)])), "offsets from before are gone");
    assert_eq!(all(&*other).len(), 3);
}

fn stores_are_apart_and_listed_by_name(place: &mut dyn Place) {
    let mut set = place.open();
    assert_eq!(set.names().unwrap(), Vec::<String>::new());
    // `default` is a name that RocksDB uses itself.
    for name in ["default", "b", "a", "Zähler"] {
        let store = set.open(name, StoreKind::KeyValue).unwrap();
        store.apply(Generation(1), &batch(1, vec![put(b"name", name.as_bytes())])).unwrap();
    }
    assert_eq!(set.names().unwrap(), ["Zähler", "a", "b", "default"]);
    for name in set.names().unwrap() {
        let store = set.open(&name, StoreKind::KeyValue).unwrap();
        assert_eq!(all(&*store), pairs(&[(b"name", name.as_bytes())]));
    }
}

fn a_store_of_another_kind_is_refused(place: &mut dyn Place) {
    let refused = |set: &mut dyn StoreSet| {
        let e = set.open("s", StoreKind::TimestampedKeyValue).err().expect("another kind is refused");
        assert_eq!(e.kind(), ErrorKind::State);
        let text = e.to_string();
        for part in ["`s`", "`key-value`", "`timestamped-key-value`"] {
            assert!(text.contains(part), "{text}");
        }
    };
    let mut set = place.open();
    drop(set.open("s", StoreKind::KeyValue).unwrap());
    refused(&mut *set);
    set.open("s", StoreKind::KeyValue).unwrap().flush().unwrap();
    if place.durable() {
        drop(set);
        let mut set = place.open();
        refused(&mut *set);
        set.open("s", StoreKind::KeyValue).unwrap();
    }
}

fn i11_what_was_flushed_is_there_after_a_reopen(place: &mut dyn Place) {
    if !place.durable() {
        return;
    }
    for round in 1..=10_u64 {
        let mut set = place.open();
        let store = set.open("s", StoreKind::KeyValue).unwrap();
        assert_eq!(all(&*store).len() as u64, round - 1);
        assert_eq!(store.stamp().unwrap().map(|s| s.epoch.0), (round > 1).then(|| round - 1));
        // Generations count anew in each process.
        store.begin(Generation(1));
        store.apply(Generation(1), &batch(round, vec![put(&round.to_be_bytes(), b"v")])).unwrap();
        store.flush().unwrap();
    }
}

fn i11_a_cleared_store_stays_empty_after_a_reopen(place: &mut dyn Place) {
    if !place.durable() {
        return;
    }
    let store = open(place, StoreKind::Timer);
    store.apply(Generation(1), &batch(1, vec![put(b"k", &7_i64.to_be_bytes())])).unwrap();
    store.flush().unwrap();
    store.clear().unwrap();
    store.flush().unwrap();
    drop(store);
    let store = open(place, StoreKind::Timer);
    assert_eq!((all(&*store), store.stamp().unwrap()), (pairs(&[]), None));
}

#[derive(Clone, Debug)]
enum Step {
    Apply(Vec<(Vec<u8>, Option<Vec<u8>>, i64)>),
    Clear,
    Flush,
    Reopen,
    Scan(Option<Vec<u8>>, Option<Vec<u8>>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    // Few and short keys of few bytes, so that they meet.
    let key = || prop::collection::vec(prop::sample::select(vec![0_u8, 1, b'k', 0xff]), 0..4);
    let row = (key(), prop::option::of(prop::collection::vec(any::<u8>(), 0..9)), any::<i64>());
    let step = prop_oneof![
        8 => prop::collection::vec(row, 0..12).prop_map(Step::Apply),
        1 => Just(Step::Clear),
        2 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        4 => (prop::option::of(key()), prop::option::of(key())).prop_map(|(from, to)| Step::Scan(from, to)),
    ];
    prop::collection::vec(step, 1..40)
}

fn agrees_with_a_map(place: &mut dyn Place) {
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 32, ..ProptestConfig::default() });
    let place = std::cell::RefCell::new(place);
    runner
        .run(&(steps(), prop::sample::select(KINDS.to_vec())), |(steps, kind)| {
            run_against_map(&mut **place.borrow_mut(), kind, steps);
            Ok(())
        })
        .unwrap();
}

/// Pending timers from a place on.
fn due(store: &dyn ByteStore, time: i64, key: &[u8]) -> Vec<(i64, Vec<u8>)> {
    let mut found = Vec::new();
    store
        .due(Timestamp(time), key, &mut |t, k| {
            found.push((t.0, k.to_vec()));
            true
        })
        .unwrap();
    found
}

fn a_store_that_holds_no_timers_gives_none(place: &mut dyn Place) {
    let store = open(place, StoreKind::KeyValue);
    store.apply(Generation(1), &batch(1, vec![put(b"k", &5_i64.to_be_bytes())])).unwrap();
    assert_eq!(due(&*store, i64::MIN, b""), []);
}

fn timers_are_given_by_time_and_key(place: &mut dyn Place) {
    let mut random = 7_u64;
    let mut below = |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    let times = [i64::MIN, -1_000, -1, 0, 1, 255, 256, 1_700_000_000_000, i64::MAX];
    for kind in [StoreKind::Timer, StoreKind::Timers] {
        let mut set = place.open();
        let mut store = set.open(kind.name(), kind).unwrap();
        let mut pending: BTreeMap<Vec<u8>, i64> = BTreeMap::new();
        for epoch in 1..60 {
            let mut rows = Vec::new();
            for _ in 0..below(8) {
                let key =
                    [&b""[..], b"a", b"a\0", b"ab", b"\xff", b"a longer key of more than 24 bytes"][below(6) as usize];
                let time = times[below(9) as usize];
                let (row, value) = match kind {
                    StoreKind::Timer => (key.to_vec(), time.to_be_bytes().to_vec()),
                    _ => ([key, &time.to_be_bytes()].concat(), Vec::new()),
                };
                if below(3) == 0 {
                    pending.remove(&row);
                    rows.push(delete(&row));
                } else {
                    pending.insert(row.clone(), time);
                    rows.push(put(&row, &value));
                }
            }
            store.apply(Generation(1), &batch(epoch, rows)).unwrap();
            match below(9) {
                0 => store.flush().unwrap(),
                1 if place.durable() => {
                    store.flush().unwrap();
                    drop((store, set));
                    set = place.open();
                    store = set.open(kind.name(), kind).unwrap();
                }
                2 => {
                    store.clear().unwrap();
                    pending.clear();
                }
                _ => {}
            }
            let key =
                |row: &Vec<u8>| if kind == StoreKind::Timer { row.clone() } else { row[..row.len() - 8].to_vec() };
            let mut want: Vec<(i64, Vec<u8>)> = pending.iter().map(|(row, time)| (*time, key(row))).collect();
            want.sort();
            assert_eq!(due(&*store, i64::MIN, b""), want, "{kind:?}, epoch {epoch}");
            let from = (times[below(9) as usize], b"a\0".to_vec());
            want.retain(|w| *w >= from);
            assert_eq!(due(&*store, from.0, &from.1), want, "{kind:?}, epoch {epoch}, from {from:?}");
        }
    }
}

fn run_against_map(place: &mut dyn Place, kind: StoreKind, steps: Vec<Step>) {
    // Implementations go on with the directory of the case before: begin with a cleared store of the kind.
    let name = kind.name();
    let mut set = place.open();
    let mut store = set.open(name, kind).unwrap();
    store.clear().unwrap();
    let mut map: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let mut want_stamp = None;
    for (n, step) in (1_u64..).zip(steps) {
        match step {
            Step::Apply(rows) => {
                let rows: Vec<Row> = rows
                    .into_iter()
                    .map(|(key, value, time)| Row { lane_key: key.len(), key, value, timestamp: Timestamp(time) })
                    .collect();
                for row in &rows {
                    match &row.value {
                        None => map.remove(&row.key),
                        Some(v) if kind == StoreKind::TimestampedKeyValue => {
                            map.insert(row.key.clone(), [&row.timestamp.0.to_be_bytes()[..], v].concat())
                        }
                        Some(v) => map.insert(row.key.clone(), v.clone()),
                    };
                }
                let batch = batch(n, rows);
                store.apply(Generation(1), &batch).unwrap();
                want_stamp = Some(batch.stamp);
            }
            Step::Clear => {
                store.clear().unwrap();
                map.clear();
                want_stamp = None;
            }
            Step::Flush => store.flush().unwrap(),
            Step::Reopen if place.durable() => {
                store.flush().unwrap();
                drop((store, set));
                set = place.open();
                store = set.open(name, kind).unwrap();
            }
            Step::Reopen => {}
            Step::Scan(from, to) => {
                let want: Vec<_> = map
                    .iter()
                    .filter(|(k, _)| from.as_ref().is_none_or(|f| f <= k) && to.as_ref().is_none_or(|t| *k < t))
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect();
                assert_eq!(scan(&*store, from.as_deref(), to.as_deref()), want);
            }
        }
        assert_eq!(store.stamp().unwrap(), want_stamp);
        for key in map.keys() {
            assert_eq!(store.get(key).unwrap().as_ref(), map.get(key));
        }
        assert_eq!(all(&*store).len(), map.len());
    }
}
