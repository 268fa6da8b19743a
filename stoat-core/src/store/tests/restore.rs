use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{all, put};
use crate::broker::{Bounds, Fetched, TopicInfo};
use crate::error::ErrorKind;
use crate::hash::partition_for;
use crate::id::{Epoch, Generation, TopicPartition};
use crate::record::{Headers, RecordBatch};
use crate::store::layout::split_local;
use crate::store::restore::{
    ChangelogFacts, FoundChangelog, Placement, RebuildReason, RecordedChangelog, RefuseReason, Replay, RestoreDecision,
    decide, rows,
};
use crate::store::twin::{Kept, TwinDisk};
use crate::store::{Batch, ByteStore, Stamp, StoreKind, StoreSet};
use crate::time::Timestamp;

const HOUR: Duration = Duration::from_hours(1);
const MINUTE: Duration = Duration::from_mins(1);
const T0: Timestamp = Timestamp(1_700_000_000_000);
/// How old a stamp may be: a day less the margin.
const LIMIT: Duration = Duration::from_mins(24 * 60 - 1);
const TOPIC: &str = "app-s-changelog";

fn bounds(start: i64, end: i64) -> Bounds {
    Bounds { start, end }
}

fn facts() -> ChangelogFacts {
    ChangelogFacts {
        topic: TOPIC.into(),
        recorded: Some(RecordedChangelog { topic_id: "id-1".into(), ends: [(0, 100), (1, 50)].into() }),
        found: Some(FoundChangelog {
            topic_id: "id-1".into(),
            bounds: [(0, bounds(10, 101)), (1, bounds(0, 51))].into(),
            delete_retention: Some(24 * HOUR),
        }),
    }
}

fn stamped(offsets: &[(i32, i64)]) -> Stamp {
    Stamp { epoch: Epoch(3), time: T0, topic_id: "id-1".into(), offsets: offsets.iter().copied().collect() }
}

fn tail(from: &[(i32, i64)]) -> RestoreDecision {
    RestoreDecision::Tail { from: from.iter().copied().collect() }
}

fn rebuild(reason: RebuildReason) -> RestoreDecision {
    RestoreDecision::Rebuild { reason }
}

fn refuse(reason: RefuseReason) -> RestoreDecision {
    RestoreDecision::Refuse { reason }
}

#[track_caller]
fn check(facts: &ChangelogFacts, stamp: Option<&Stamp>, now: Timestamp, want: RestoreDecision) {
    // Twice: a decision has no memory.
    for _ in 0..2 {
        assert_eq!(decide(stamp, facts, now, MINUTE), want);
    }
}

#[test]
fn i11_a_stamp_within_the_log_is_gone_on_from() {
    check(&facts(), Some(&stamped(&[(0, 90), (1, 51)])), T0 + HOUR, tail(&[(0, 90), (1, 51)]));
    // The bounds themselves are within.
    check(&facts(), Some(&stamped(&[(0, 10), (1, 0)])), T0, tail(&[(0, 10), (1, 0)]));
    check(&facts(), Some(&stamped(&[(0, 101), (1, 51)])), T0, tail(&[(0, 101), (1, 51)]));
}

#[test]
fn i11_a_partition_that_the_stamp_does_not_name_is_read_from_its_beginning() {
    check(&facts(), Some(&stamped(&[(1, 51)])), T0, tail(&[(0, 10), (1, 51)]));
}

#[test]
fn i11_a_lost_directory_is_rebuilt() {
    check(&facts(), None, T0, rebuild(RebuildReason::Empty));
}

#[test]
fn i11_a_stamp_of_another_topic_is_rebuilt() {
    let mut stamp = stamped(&[(0, 90)]);
    stamp.topic_id = "id-0".into();
    let reason = RebuildReason::OtherTopic { stamped: "id-0".into(), found: "id-1".into() };
    check(&facts(), Some(&stamp), T0, rebuild(reason));
    // A stamp from a time when the broker told no id proves nothing.
    stamp.topic_id = String::new();
    let reason = RebuildReason::OtherTopic { stamped: String::new(), found: "id-1".into() };
    check(&facts(), Some(&stamp), T0, rebuild(reason));
}

#[test]
fn i11_a_stamp_outside_the_log_is_rebuilt() {
    for (partition, offset, found) in
        [(0, 9, Some(bounds(10, 101))), (0, 102, Some(bounds(10, 101))), (1, 52, Some(bounds(0, 51))), (2, 0, None)]
    {
        let reason = RebuildReason::OutOfLog { partition, offset, bounds: found };
        check(&facts(), Some(&stamped(&[(partition, offset)])), T0, rebuild(reason));
    }
}

#[test]
fn i11_a_stamp_older_than_tombstones_live_less_the_margin_is_rebuilt() {
    let stamp = stamped(&[(0, 90), (1, 51)]);
    let limit = LIMIT;
    check(&facts(), Some(&stamp), T0 + limit, tail(&[(0, 90), (1, 51)]));
    let age = limit + Duration::from_millis(1);
    check(&facts(), Some(&stamp), T0 + age, rebuild(RebuildReason::TooOld { age, limit }));
    // Retention below the margin: only a stamp of this very moment would do.
    let mut short = facts();
    short.found.as_mut().unwrap().delete_retention = Some(Duration::from_secs(1));
    let age = Duration::from_millis(1);
    check(&short, Some(&stamp), T0 + age, rebuild(RebuildReason::TooOld { age, limit: Duration::ZERO }));
    // Without compaction tombstones stay.
    let mut kept = facts();
    kept.found.as_mut().unwrap().delete_retention = None;
    check(&kept, Some(&stamp), T0 + 10_000 * HOUR, tail(&[(0, 90), (1, 51)]));
}

#[test]
fn i11_a_clock_that_went_backwards_is_a_rebuild() {
    let stamp = stamped(&[(0, 90), (1, 51)]);
    check(&facts(), Some(&stamp), T0 - MINUTE, tail(&[(0, 90), (1, 51)]));
    let by = MINUTE + Duration::from_millis(1);
    check(&facts(), Some(&stamp), T0 - by, rebuild(RebuildReason::ClockWentBack { by }));
    // Also where tombstones stay: a clock that jumps says nothing about ages.
    let mut kept = facts();
    kept.found.as_mut().unwrap().delete_retention = None;
    check(&kept, Some(&stamp), T0 - by, rebuild(RebuildReason::ClockWentBack { by }));
    // The extremes do not overflow.
    assert!(matches!(
        decide(Some(&stamp), &facts(), Timestamp::MAX, MINUTE),
        RestoreDecision::Rebuild { reason: RebuildReason::TooOld { .. } }
    ));
    assert!(matches!(
        decide(Some(&stamp), &facts(), Timestamp::MIN, MINUTE),
        RestoreDecision::Rebuild { reason: RebuildReason::ClockWentBack { .. } }
    ));
}

#[test]
fn i11_a_store_that_the_plan_does_not_know_is_new() {
    let mut facts = facts();
    facts.recorded = None;
    check(&facts, None, T0, rebuild(RebuildReason::New));
    check(&facts, Some(&stamped(&[(0, 90)])), T0, rebuild(RebuildReason::New));
    facts.found = None;
    check(&facts, None, T0, rebuild(RebuildReason::New));
}

#[test]
fn i11_a_known_changelog_that_is_missing_is_refused_whatever_is_local() {
    let mut facts = facts();
    facts.found = None;
    for stamp in [None, Some(&stamped(&[(0, 100), (1, 50)]))] {
        check(&facts, stamp, T0, refuse(RefuseReason::Missing { topic: TOPIC.into() }));
    }
}

#[test]
fn i11_a_known_changelog_of_another_id_is_refused() {
    let mut facts = facts();
    facts.found.as_mut().unwrap().topic_id = "id-2".into();
    let reason = RefuseReason::OtherTopic { topic: TOPIC.into(), recorded: "id-1".into(), found: "id-2".into() };
    check(&facts, Some(&stamped(&[(0, 90)])), T0, refuse(reason));
    // A broker that tells no ids is believed; the stamp decides then.
    facts.found.as_mut().unwrap().topic_id = String::new();
    let reason = RebuildReason::OtherTopic { stamped: "id-1".into(), found: String::new() };
    check(&facts, Some(&stamped(&[(0, 90)])), T0, rebuild(reason));
}

#[test]
fn i11_a_known_changelog_that_ends_before_the_recorded_end_is_refused() {
    for (partition, end) in [(0, 99), (1, 49)] {
        let mut facts = facts();
        let recorded = facts.recorded.as_ref().unwrap().ends[&partition];
        facts.found.as_mut().unwrap().bounds.insert(partition, bounds(0, end));
        let reason = RefuseReason::Short { topic: TOPIC.into(), partition, recorded, found: Some(end) };
        check(&facts, Some(&stamped(&[])), T0, refuse(reason));
    }
    let mut exact = facts();
    exact.found.as_mut().unwrap().bounds = [(0, bounds(0, 100)), (1, bounds(0, 50))].into();
    check(&exact, Some(&stamped(&[(0, 100)])), T0, tail(&[(0, 100), (1, 0)]));
    let mut gone = facts();
    gone.found.as_mut().unwrap().bounds.remove(&1);
    let reason = RefuseReason::Short { topic: TOPIC.into(), partition: 1, recorded: 50, found: None };
    check(&gone, Some(&stamped(&[])), T0, refuse(reason));
}

#[test]
fn reasons_say_what_where_and_what_to_do() {
    let reason = RefuseReason::Short { topic: TOPIC.into(), partition: 1, recorded: 50, found: Some(7) };
    let e = reason.into_error();
    assert_eq!(e.kind(), ErrorKind::Topic);
    assert_eq!(
        e.to_string(),
        "changelog `app-s-changelog-1` ends at offset 7, but the application committed up to 50: state is lost. Bring the \
         topic back, or begin anew under another application id or with all of the application's internal topics deleted"
    );
    let reason = RebuildReason::TooOld { age: 25 * HOUR, limit: 23 * HOUR };
    assert_eq!(
        reason.to_string(),
        "local state is 90000 s old, deletes are certain to be in the changelog for 82800 s only"
    );
}

#[test]
fn a_topics_description_says_how_long_tombstones_live() {
    let retention = |config: &[(&str, &str)]| {
        let config = config.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let topic = TopicInfo { name: TOPIC.into(), id: "x".into(), partitions: 1, config };
        FoundChangelog::new(&topic, BTreeMap::new()).delete_retention
    };
    assert_eq!(retention(&[("cleanup.policy", "compact"), ("delete.retention.ms", "604800000")]), Some(168 * HOUR));
    assert_eq!(retention(&[("cleanup.policy", "compact,delete")]), Some(24 * HOUR), "Kafka's default");
    assert_eq!(retention(&[("cleanup.policy", "delete"), ("delete.retention.ms", "1")]), None);
    assert_eq!(retention(&[]), Some(24 * HOUR), "nothing told: as careful as if it were compacted");
}

// Rows.

fn one(key: Option<&[u8]>, value: Option<&[u8]>) -> RecordBatch {
    let mut batch = RecordBatch::default();
    batch.push(41, T0, key, value, Headers::default());
    batch
}

fn timers_key(key: &[u8], time: i64) -> Vec<u8> {
    [key, &time.to_be_bytes()].concat()
}

#[test]
fn n11_i12_a_key_in_another_partition_than_its_lane_keys_hash_is_an_error() {
    let timers = timers_key(b"ant", 77);
    let right = partition_for(b"ant", 7);
    let (whole, wrong) = (partition_for(&timers, 7), (right + 1) % 7);
    assert_ne!(whole, right, "the test's key tells the lane key's hash from the whole key's");
    let at = |p| TopicPartition::new(TOPIC, p);
    let hash = Placement::LaneKey { partitions: 7 };
    for (kind, key, value) in [
        (StoreKind::KeyValue, &b"ant"[..], &b"v"[..]),
        (StoreKind::TimestampedKeyValue, b"ant", b"v"),
        (StoreKind::Timer, b"ant", &[0; 8]),
        (StoreKind::Timers, &timers, b""),
    ] {
        for value in [Some(value), None] {
            let found = rows(kind, &at(right), hash, &one(Some(key), value)).unwrap();
            assert_eq!(found.len(), 1);
            assert_eq!((&found[0].key[..], found[0].lane_key, found[0].value.as_deref()), (key, 3, value));
            assert_eq!(found[0].timestamp, T0);
            let e = rows(kind, &at(wrong), hash, &one(Some(key), value)).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Topic);
            let text = e.to_string();
            assert!(
                text.contains(&format!("{TOPIC}-{wrong}@41")) && text.contains(&format!("partition {right} of 7")),
                "{text}"
            );
            // A taken-over changelog keeps the partitions that Kafka Streams chose.
            rows(kind, &at(wrong), Placement::Source, &one(Some(key), value)).unwrap();
        }
    }
}

#[test]
fn a_record_that_no_store_of_the_kind_writes_is_an_error() {
    let at = TopicPartition::new(TOPIC, 0);
    for (kind, key, value) in [
        (StoreKind::KeyValue, None, Some(&b"v"[..])),
        (StoreKind::Timer, Some(&b"ant"[..]), Some(&b"1234567"[..])),
        (StoreKind::Timers, Some(b"1234567"), Some(b"")),
        (StoreKind::Timers, Some(b"12345678"), Some(b"x")),
    ] {
        let e = rows(kind, &at, Placement::Source, &one(key, value)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Topic, "{kind:?}");
        assert!(e.to_string().contains("app-s-changelog-0@41"), "{e}");
    }
}

// Replaying.

type Logged = (i64, Timestamp, Vec<u8>, Option<Vec<u8>>);

/// A changelog in memory: what is there of each offset, and where it ends.
#[derive(Clone, Debug, Default)]
struct Log {
    partitions: Vec<Vec<Logged>>,
    ends: Vec<i64>,
}

impl Log {
    fn new(partitions: usize) -> Self {
        Self { partitions: vec![Vec::new(); partitions], ends: vec![0; partitions] }
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> (i32, i64) {
        let p = partition_for(key, self.ends.len() as i32);
        let offset = self.ends[p as usize];
        self.partitions[p as usize].push((offset, T0, key.to_vec(), value.map(<[u8]>::to_vec)));
        self.ends[p as usize] += 1;
        (p, offset)
    }

    /// Ends a transaction: a marker in each partition.
    fn mark(&mut self) {
        self.ends.iter_mut().for_each(|e| *e += 1);
    }

    /// Leaves the last record of each key; `tombstones`: also those without a value.
    fn compact(&mut self, tombstones: bool) {
        for records in &mut self.partitions {
            let last: BTreeMap<_, _> = records.iter().map(|(o, _, k, _)| (k.clone(), *o)).collect();
            records.retain(|(o, _, k, v)| last[k] == *o && (tombstones || v.is_some()));
        }
    }

    fn found(&self) -> FoundChangelog {
        let bounds = self.ends.iter().enumerate().map(|(p, &end)| (p as i32, bounds(0, end)));
        FoundChangelog { topic_id: "id-1".into(), bounds: bounds.collect(), delete_retention: Some(24 * HOUR) }
    }

    fn facts(&self) -> ChangelogFacts {
        let ends = self.ends.iter().enumerate().map(|(p, &end)| (p as i32, end));
        let recorded = RecordedChangelog { topic_id: "id-1".into(), ends: ends.collect() };
        ChangelogFacts { topic: TOPIC.into(), recorded: Some(recorded), found: Some(self.found()) }
    }

    /// What a fetch from an offset gives, at most `max` records.
    fn fetch(&self, p: i32, from: i64, max: usize) -> Fetched {
        let mut batch = RecordBatch::default();
        let mut rest = self.partitions[p as usize].iter().filter(|(o, ..)| *o >= from);
        for (offset, time, key, value) in rest.by_ref().take(max) {
            batch.push(*offset, *time, Some(key), value.as_deref(), Headers::default());
        }
        let position = rest.next().map_or(self.ends[p as usize], |(o, ..)| *o);
        let caught_up = position == self.ends[p as usize];
        Fetched { partition: TopicPartition::new(TOPIC, p), batch, position, caught_up }
    }

    fn state(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut state = BTreeMap::new();
        for (_, _, key, value) in self.partitions.iter().flatten() {
            match value {
                Some(value) => state.insert(key.clone(), value.clone()),
                None => state.remove(key),
            };
        }
        state
    }
}

/// Does what an engine does at start. Gives the number of records that were read.
fn restore(store: &dyn ByteStore, log: &Log, now: Timestamp) -> (RestoreDecision, usize) {
    let stamp = store.stamp().unwrap();
    let decision = decide(stamp.as_ref(), &log.facts(), now, MINUTE);
    let kept = match &decision {
        RestoreDecision::Tail { .. } => stamp.as_ref(),
        RestoreDecision::Rebuild { .. } => {
            store.clear().unwrap();
            None
        }
        RestoreDecision::Refuse { reason } => panic!("{reason}"),
    };
    let placement = Placement::LaneKey { partitions: log.ends.len() as i32 };
    let mut replay = Replay::new(StoreKind::KeyValue, TOPIC, &log.found(), placement, kept, now);
    let mut read = 0;
    while !replay.is_caught_up() {
        for (partition, position) in replay.positions().collect::<Vec<_>>() {
            let fetched = log.fetch(partition.partition, position, 3);
            read += fetched.batch.len();
            let batch = replay.batch(&fetched, now).unwrap();
            store.apply(Generation(1), &batch).unwrap();
        }
    }
    store.apply(Generation(1), &replay.finish(Epoch(9))).unwrap();
    (decision, read)
}

#[test]
fn n2_a_key_that_was_deleted_elsewhere_does_not_come_back_from_an_old_directory() {
    for (later, tombstone_gone) in [(25 * HOUR, true), (HOUR, false)] {
        let mut log = Log::new(1);
        let disk = TwinDisk::new();
        // A: put k=1, commit, stop, keep directory D.
        let d = disk.open_set().open("s", StoreKind::KeyValue).unwrap();
        log.write(b"k", Some(b"1"));
        log.mark();
        let stamp = Stamp { time: T0, epoch: Epoch(1), topic_id: "id-1".into(), offsets: [(0, 1)].into() };
        d.apply(Generation(1), &Batch { rows: vec![put(b"k", b"1")], stamp }).unwrap();
        d.flush().unwrap();
        // B on an empty directory: delete k, put j=1, commit, stop. Then the clock goes on, and compaction runs.
        log.write(b"k", None);
        log.write(b"j", Some(b"1"));
        log.mark();
        log.compact(!tombstone_gone);
        // Start with D.
        let (decision, read) = restore(&*d, &log, T0 + later);
        assert_eq!(d.get(b"k").unwrap(), None);
        assert_eq!(all(&*d), [(b"j".to_vec(), b"1".to_vec())]);
        if tombstone_gone {
            let reason = RebuildReason::TooOld { age: 25 * HOUR, limit: LIMIT };
            assert_eq!((decision, read), (rebuild(reason), 1));
        } else {
            assert_eq!((decision, read), (tail(&[(0, 1)]), 2));
        }
        // Started again: nothing left to read.
        assert_eq!(restore(&*d, &log, T0 + later + MINUTE), (tail(&[(0, 5)]), 0));
    }
}

#[test]
fn n2_an_interrupted_restore_does_not_make_an_old_store_look_fresh() {
    let mut log = Log::new(1);
    for key in [b"a", b"b", b"c", b"d", b"e"] {
        log.write(key, Some(b"1"));
    }
    log.mark();
    let kept = stamped(&[(0, 0)]);
    let placement = Placement::LaneKey { partitions: 1 };
    let mut replay = Replay::new(StoreKind::KeyValue, TOPIC, &log.found(), placement, Some(&kept), T0 + 20 * HOUR);
    let half = replay.batch(&log.fetch(0, 0, 2), T0 + 20 * HOUR).unwrap();
    assert_eq!((half.stamp.time, half.stamp.offsets[&0]), (T0, 2), "still as old as before");
    let whole = replay.batch(&log.fetch(0, 2, 9), T0 + 21 * HOUR).unwrap();
    assert_eq!((whole.stamp.time, whole.stamp.offsets[&0]), (T0 + 21 * HOUR, 6), "the end: as fresh as can be");
    // A rebuild's age counts from when it began to read.
    let mut replay = Replay::new(StoreKind::KeyValue, TOPIC, &log.found(), placement, None, T0 + 20 * HOUR);
    assert_eq!(replay.batch(&log.fetch(0, 0, 2), T0 + 23 * HOUR).unwrap().stamp.time, T0 + 20 * HOUR);
}

#[test]
fn n2_a_store_is_as_old_as_its_oldest_partition() {
    let mut log = Log::new(2);
    let keys: Vec<Vec<u8>> = (0_u8..40).map(|i| vec![i]).collect();
    for key in &keys {
        log.write(key, Some(b"1"));
    }
    log.mark();
    let placement = Placement::LaneKey { partitions: 2 };
    let mut standby = Replay::new(StoreKind::KeyValue, TOPIC, &log.found(), placement, Some(&stamped(&[])), T0);
    standby.batch(&log.fetch(0, 0, 100), T0 + HOUR).unwrap();
    assert_eq!(standby.finish(Epoch(4)).stamp.time, T0, "partition 1 has read nothing yet");
    standby.batch(&log.fetch(1, 0, 100), T0 + 2 * HOUR).unwrap();
    assert_eq!(standby.finish(Epoch(4)).stamp.time, T0 + HOUR);
    // Nothing new is written: the keep-alive's look at the bounds says that the standby is still at the end.
    standby.renew(&log.found().bounds, T0 + 30 * HOUR);
    assert_eq!(standby.finish(Epoch(4)).stamp.time, T0 + 30 * HOUR);
    // Records that the standby has not read end that.
    let (p, _) = log.write(&keys[0], None);
    standby.renew(&log.found().bounds, T0 + 60 * HOUR);
    assert!(!standby.is_caught_up());
    assert_eq!(standby.finish(Epoch(4)).stamp.time, T0 + 30 * HOUR);
    // Paused for 25 h, then promoted: its stamp tells.
    let at = standby.finish(Epoch(4)).stamp;
    let decision = decide(Some(&at), &log.facts(), T0 + 55 * HOUR, MINUTE);
    assert!(matches!(decision, RestoreDecision::Rebuild { reason: RebuildReason::TooOld { .. } }), "{p}: {decision:?}");
}

#[test]
fn n2_reading_up_to_the_end_that_was_known_counts_as_of_when_it_was_known() {
    let mut log = Log::new(1);
    log.write(b"a", Some(b"1"));
    log.mark();
    let placement = Placement::LaneKey { partitions: 1 };
    let kept = stamped(&[(0, 0)]);
    let found = log.found();
    let mut replay = Replay::new(StoreKind::KeyValue, TOPIC, &found, placement, Some(&kept), T0 + HOUR);
    log.write(b"b", Some(b"1"));
    log.write(b"c", Some(b"1"));
    let fetched = log.fetch(0, 0, 2);
    assert!(!fetched.caught_up && fetched.position >= found.bounds[&0].end);
    assert_eq!(replay.batch(&fetched, T0 + 2 * HOUR).unwrap().stamp.time, T0 + HOUR);
    assert!(replay.is_caught_up(), "as far as is known");
}

#[test]
fn i12_a_changelog_that_kafka_streams_wrote_is_restored() {
    // Kafka Streams writes into the partition of its source task, so the placement is the source's.
    let text = include_str!("../../../tests/fixtures/kafka-streams-4.4.0/kv-timestamped-counts-changelog.txt");
    let unhex = |hex: &str| -> Option<Vec<u8>> {
        let digits = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).expect("the fixture is in hex");
        (hex != "null").then(|| (0..hex.len()).step_by(2).map(digits).collect())
    };
    let mut batches: BTreeMap<i32, RecordBatch> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let [partition, offset, time, key, value] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("`{line}`") };
        let (key, value) = (unhex(key), unhex(value));
        let (offset, time) = (offset.parse().unwrap(), Timestamp(time.parse().unwrap()));
        let batch = batches.entry(partition.parse().unwrap()).or_default();
        batch.push(offset, time, key.as_deref(), value.as_deref(), Headers::default());
    }
    let mut misplaced = 0;
    let mut counts = Vec::new();
    for (partition, batch) in &batches {
        let at = TopicPartition::new("kv-timestamped-counts-changelog", *partition);
        let rows_of = |placement| rows(StoreKind::TimestampedKeyValue, &at, placement, batch);
        misplaced += i32::from(rows_of(Placement::LaneKey { partitions: 3 }).is_err());
        // A store for each, as Kafka Streams has it: `a` is in two partitions.
        let store = TwinDisk::new().open_set().open("counts", StoreKind::TimestampedKeyValue).unwrap();
        let rows = rows_of(Placement::Source).unwrap();
        store.apply(Generation(1), &Batch { rows, ..Batch::default() }).unwrap();
        for (key, local) in all(&*store) {
            let (time, count) = split_local(StoreKind::TimestampedKeyValue, &local).unwrap();
            let count = i64::from_be_bytes(count.try_into().unwrap());
            counts.push((*partition, String::from_utf8(key).unwrap(), time.unwrap().0 - 1_700_000_000_000, count));
        }
    }
    assert!(misplaced > 0, "the fixture has keys where the hash would not put them");
    let want = [(0, "a", 3_100, 4), (1, "b", 2_600, 3), (2, "", 2_900, 1), (2, "a", 3_200, 1), (2, "é", 1_500, 1)];
    assert_eq!(counts, want.map(|(p, key, time, count)| (p, key.to_owned(), time, count)));
}

#[test]
fn a_fetch_of_another_topic_is_an_error() {
    let log = Log::new(1);
    let mut replay = Replay::new(StoreKind::KeyValue, "app-other-changelog", &log.found(), Placement::Source, None, T0);
    assert_eq!(replay.batch(&log.fetch(0, 0, 1), T0).unwrap_err().kind(), ErrorKind::Internal);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// Epochs of writes; then a crash that keeps of the unflushed ones what it likes, torn rows included; then the tail.
    #[test]
    fn i11_whatever_a_crash_leaves_the_tail_makes_it_the_state_of_the_log(
        epochs in prop::collection::vec((prop::collection::vec((0_u8..12, prop::option::of(any::<u8>())), 0..8), any::<bool>()), 1..12),
        lives in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 1..4),
        compacted in any::<bool>(),
    ) {
        let mut log = Log::new(3);
        let disk = TwinDisk::new();
        let open = || -> Arc<dyn ByteStore> { disk.open_set().open("s", StoreKind::KeyValue).unwrap() };
        let mut store = open();
        let mut epochs = (1..).zip(epochs);
        for (batches, torn_rows) in lives {
            for (epoch, (writes, flush)) in epochs.by_ref().take(4) {
                let mut batch = Batch { rows: Vec::new(), stamp: Stamp { epoch: Epoch(epoch), time: T0, topic_id: "id-1".into(), offsets: BTreeMap::new() } };
                for (key, value) in writes {
                    let key = [key; 3];
                    let value = value.map(|v| [v]);
                    let value = value.as_ref().map(|v| &v[..]);
                    let (p, offset) = log.write(&key, value);
                    batch.stamp.offsets.insert(p, offset + 1);
                    let value = value.map(<[u8]>::to_vec);
                    batch.rows.push(crate::store::Row { value, ..put(&key, b"") });
                }
                log.mark();
                store.apply(Generation(1), &batch).unwrap();
                if flush {
                    store.flush().unwrap();
                }
            }
            if compacted {
                log.compact(true);
            }
            disk.crash_keeping(|_, unflushed| Kept { batches: batches.index(unflushed + 1), torn_rows: torn_rows.index(9) });
            store = open();
            restore(&*store, &log, T0 + HOUR);
            prop_assert_eq!(all(&*store).into_iter().collect::<BTreeMap<_, _>>(), log.state());
        }
    }
}
