use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use proptest::prelude::*;

use super::KeyValueStore;
use crate::affinity::{Affinity, LaneChecks, LanePlace, Watched};
use crate::codec::{Json, Utf8};
use crate::engine::tag::Path;
use crate::error::ErrorKind;
use crate::hash::{lane_hash, lane_of};
use crate::id::{Epoch, Generation, StoreId};
use crate::operator::harness::{TestStore, current};
use crate::processor::{Entered, FieldDecl, FieldOptions, FieldSeed, StateField};
use crate::store::{Batch, ByteStore, Stamp, StoreKind};
use crate::time::{TimeDomain, Timestamp};

type Store = KeyValueStore<String, u32>;

fn seed(bytes: Arc<dyn ByteStore>, lane: u32, lanes: u32) -> FieldSeed {
    FieldSeed {
        decl: FieldDecl::of::<Store>("by_day", FieldOptions { name: None, clock: TimeDomain::Event }),
        owner: "Daily".into(),
        index: 0,
        store: StoreId(0),
        bytes,
        lane,
        lanes,
        cache: 1 << 20,
        affinity: (lanes > 1).then(|| {
            let place = LanePlace::new(lane, lanes, LaneChecks::default());
            Affinity::new(Arc::new(place), Arc::new(Watched::new("Daily".into())))
        }),
        reencode: None,
    }
}

fn inside<R>(store: &mut Store, key: &str, call: impl FnOnce(&mut Store) -> R) -> R {
    let key = current(key.as_bytes(), true);
    store.enter(&Entered { key: &key, timestamp: Timestamp(7), number: 1, path: &Path::default(), undo: false });
    let result = call(store);
    // What is wrong for good is told once more at the end (I-10).
    if let Err(e) = store.leave(0) {
        assert!(matches!(e.kind(), ErrorKind::Lane | ErrorKind::State), "{e}");
    }
    result
}

fn commit(store: &mut Store, bytes: &dyn ByteStore) {
    let mut batch = Batch { rows: Vec::new(), stamp: Stamp::default() };
    store.as_field().freeze(Epoch(1), &mut batch.rows).unwrap();
    bytes.apply(Generation(0), &batch).unwrap();
    store.as_field().applied(Epoch(1));
}

#[test]
fn the_current_key_is_fresh_and_every_other_key_as_of_the_last_commit() {
    let bytes = TestStore::new(StoreKind::KeyValue);
    let mut store = Store::make(seed(bytes.clone(), 0, 1));
    inside(&mut store, "a", |s| s.put(&"a".into(), 1)).unwrap();
    inside(&mut store, "b", |s| {
        assert_eq!(s.get(&"a".into()).unwrap(), None, "not committed yet");
        s.put(&"b".into(), 2).unwrap();
        assert_eq!(s.get(&"b".into()).unwrap(), Some(&2));
    });
    commit(&mut store, &*bytes);
    inside(&mut store, "a", |s| s.update(&"a".into(), || 0, |v| *v += 10)).unwrap();
    inside(&mut store, "b", |s| {
        assert_eq!(s.get(&"a".into()).unwrap(), Some(&1), "as of the commit");
        assert_eq!(s.range(..).unwrap(), [("a".into(), 1), ("b".into(), 2)]);
        s.remove(&"b".into()).unwrap();
        assert_eq!(s.range(..).unwrap(), [("a".into(), 1)]);
    });
    inside(&mut store, "a", |s| {
        assert_eq!(s.range(..).unwrap(), [("a".into(), 11), ("b".into(), 2)]);
    });
}

#[test]
fn i16_a_write_to_a_key_of_another_lane_is_an_error_that_names_the_field_and_ends_the_handler() {
    let lanes = 4;
    let key = |i: u32| format!("key {i}");
    let lane = |i: u32| lane_of(lane_hash(key(i).as_bytes()), lanes);
    let other = (1..1000).find(|i| lane(*i) != lane(0)).unwrap();
    let same = (1..1000).find(|i| lane(*i) == lane(0)).unwrap();
    let mut store = Store::make(seed(TestStore::new(StoreKind::KeyValue), lane(0), lanes));
    let current = current(key(0).as_bytes(), true);
    store.enter(&Entered { key: &current, timestamp: Timestamp(7), number: 1, path: &Path::default(), undo: false });
    store.put(&key(0), 1).unwrap();
    store.put(&key(same), 1).unwrap();
    assert_eq!(store.get(&key(other)).unwrap(), None, "reading is allowed");
    let e = store.put(&key(other), 1).unwrap_err();
    // Whatever the handler makes of it, its end says so again.
    for e in [e, store.leave(0).unwrap_err()] {
        assert_eq!(e.kind(), ErrorKind::TimerLaneAffinity);
        assert!(e.to_string().contains("a write of field `by_day` of `Daily`"), "{e}");
    }
    let mut rows = Vec::new();
    store.as_field().freeze(Epoch(1), &mut rows).unwrap();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|r| r.timestamp == Timestamp(7)), "rows have the time of the record");
}

#[test]
fn outside_a_handler_each_method_is_an_error_that_names_the_field() {
    let mut store = Store::make(seed(TestStore::new(StoreKind::KeyValue), 0, 1));
    let key = "a".to_owned();
    for e in [
        store.get(&key).map(drop).unwrap_err(),
        store.put(&key, 1).unwrap_err(),
        store.update(&key, || 1, |_| ()).unwrap_err(),
        store.remove(&key).unwrap_err(),
        store.range(..).map(drop).unwrap_err(),
        store.prefix(b"").map(drop).unwrap_err(),
    ] {
        assert_eq!(e.kind(), ErrorKind::Lane);
        assert!(e.to_string().contains("field `by_day` of `Daily` was used outside a handler"), "{e}");
    }
}

#[test]
fn a_field_in_the_place_of_another_is_found_when_the_handler_ends() {
    let mut store = Store::make(seed(TestStore::new(StoreKind::KeyValue), 0, 1));
    let e = store.leave(1).unwrap_err();
    assert!(e.to_string().contains("was exchanged with another field"), "{e}");
}

#[test]
fn stored_bytes_of_another_type_are_an_error_about_the_state() {
    let bytes = TestStore::new(StoreKind::KeyValue);
    let mut other = KeyValueStore::<String, String, Json, Utf8>::make(seed(bytes.clone(), 0, 1));
    let key = current(b"a", true);
    other.enter(&Entered { key: &key, timestamp: Timestamp(0), number: 0, path: &Path::default(), undo: false });
    other.put(&"a".into(), "text".into()).unwrap();
    other.leave(0).unwrap();
    let mut batch = Batch::default();
    other.as_field().freeze(Epoch(1), &mut batch.rows).unwrap();
    bytes.apply(Generation(0), &batch).unwrap();
    let mut store = Store::make(seed(bytes, 0, 1));
    let e = inside(&mut store, "a", |s| s.get(&"a".into()).map(drop)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::State);
    assert!(e.to_string().starts_with("value of `by_day` of `Daily` (Json): "), "{e}");
}

/// What a test does to a store.
#[derive(Clone, Debug)]
enum Op {
    Put(String, u32),
    Remove(String),
    Commit,
    Trim,
    Range(Bound<String>, Bound<String>),
    Prefix(String),
}

fn key() -> impl Strategy<Value = String> {
    "[ab]{0,3}"
}

fn bound() -> impl Strategy<Value = Bound<String>> {
    prop_oneof![Just(Bound::Unbounded), key().prop_map(Bound::Included), key().prop_map(Bound::Excluded)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (key(), any::<u32>()).prop_map(|(k, v)| Op::Put(k, v)),
        2 => key().prop_map(Op::Remove),
        1 => Just(Op::Commit),
        1 => Just(Op::Trim),
        2 => (bound(), bound()).prop_map(|(a, b)| Op::Range(a, b)),
        1 => key().prop_map(Op::Prefix),
    ]
}

proptest! {
    #[test]
    fn i4_a_scan_is_the_committed_rows_with_the_current_key_as_last_written(
        ops in proptest::collection::vec(op(), 1..60),
        reader in key(),
    ) {
        let bytes = TestStore::new(StoreKind::KeyValue);
        let mut store = Store::make(seed(bytes.clone(), 0, 1));
        let mut committed = BTreeMap::new();
        let mut active = BTreeMap::new();
        for op in ops {
            // What the reader may see.
            let mut seen: BTreeMap<String, u32> = committed.clone();
            match active.get(&reader) {
                Some(v) => seen.insert(reader.clone(), *v),
                None => seen.remove(&reader),
            };
            match op {
                Op::Put(k, v) => {
                    inside(&mut store, &k, |s| s.put(&k, v)).unwrap();
                    active.insert(k, v);
                }
                Op::Remove(k) => {
                    inside(&mut store, &k, |s| s.remove(&k)).unwrap();
                    active.remove(&k);
                }
                Op::Commit => {
                    commit(&mut store, &*bytes);
                    committed.clone_from(&active);
                }
                Op::Trim => store.as_field().trim(0),
                Op::Range(from, to) => {
                    let got = inside(&mut store, &reader, |s| s.range((from.clone(), to.clone()))).unwrap();
                    let want: Vec<_> = seen.into_iter().filter(|(k, _)| {
                        (match &from { Bound::Unbounded => true, Bound::Included(f) => k >= f, Bound::Excluded(f) => k > f })
                            && (match &to { Bound::Unbounded => true, Bound::Included(t) => k <= t, Bound::Excluded(t) => k < t })
                    }).collect();
                    prop_assert_eq!(got, want);
                }
                Op::Prefix(p) => {
                    let got = inside(&mut store, &reader, |s| s.prefix(p.as_bytes())).unwrap();
                    let want: Vec<_> = seen.into_iter().filter(|(k, _)| k.starts_with(&p)).collect();
                    prop_assert_eq!(got, want);
                }
            }
            // For punctuators: all keys of the lane, fresh.
            let keys: Vec<_> = active.keys().map(|k| k.as_bytes().to_vec()).collect();
            prop_assert_eq!(store.as_field().keys(&|_| true).unwrap(), keys);
        }
    }
}

#[test]
fn a_prefix_of_largest_bytes_has_no_end() {
    assert_eq!(crate::store::merge::after_prefix(&[1, 255, 255]), Some(vec![2]));
    assert_eq!(crate::store::merge::after_prefix(&[255]), None);
    assert_eq!(crate::store::merge::after_prefix(&[]), None);
}
