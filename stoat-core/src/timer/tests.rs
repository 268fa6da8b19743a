use std::sync::Arc;

use proptest::prelude::*;

use super::field::TimerOps;
use super::pending::NEAR;
use super::{Foreign, Timer, Timers};
use crate::codec::Utf8;
use crate::engine::tag::{Path, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, Generation, StoreId};
use crate::operator::harness::{OneLane, TestStore, current, processor, sink, source};
use crate::operator::{Field, ForeignTimer, PendingTimers};
use crate::processor::{Context, Entered, FieldDecl, FieldOptions, FieldSeed, Fired, Handlers, StateField};
use crate::record::Record;
use crate::store::{Batch, ByteStore, Row, StoreKind};
use crate::time::{TimeDomain, Timestamp};
use crate::topology::Topology;
use crate::topology::lane_state::Lane;

type One = Timer<String, Utf8, Foreign>;
type Many = Timers<String>;

fn seed<F: StateField>(bytes: Arc<dyn ByteStore>) -> FieldSeed {
    let options = FieldOptions { name: None, clock: TimeDomain::Event };
    FieldSeed {
        decl: FieldDecl::of::<F>("idle", options),
        owner: "P".into(),
        index: 0,
        store: StoreId(3),
        bytes,
        lane: 0,
        lanes: 1,
        cache: 1 << 20,
        affinity: None,
        reencode: None,
    }
}

fn at<F: StateField, R>(field: &mut F, number: u64, key: &str, call: impl FnOnce(&mut F) -> R) -> R {
    let key = current(key.as_bytes(), true);
    field.enter(&Entered {
        key: &key,
        timestamp: Timestamp(1000 + number as i64),
        number,
        path: &Path::default(),
        undo: false,
    });
    let result = call(field);
    field.leave(0).unwrap();
    result
}

fn text(key: &[u8]) -> String {
    String::from_utf8(key.to_vec()).unwrap()
}

/// All pending timers, near and far, in firing order.
fn pending<T: TimerOps>(field: &T) -> Vec<(i64, String)> {
    let mut all: Vec<_> = field.pending().all().into_iter().map(|(t, k)| (t.0, text(&k))).collect();
    all.sort();
    all
}

/// What fires next.
fn fire(field: &mut impl PendingTimers, upto: i64) -> Option<(i64, String)> {
    let (time, key) = field.first(Timestamp(upto)).unwrap().map(|(t, k)| (t.0, text(k)))?;
    field.take_first();
    Some((time, key))
}

fn frozen(field: &mut impl Field) -> Vec<Row> {
    let mut rows = Vec::new();
    field.freeze(Epoch(1), &mut rows).unwrap();
    rows.sort_by(|a, b| a.key.cmp(&b.key));
    rows
}

fn foreign(number: u64, key: &str, time: Option<i64>) -> ForeignTimer {
    ForeignTimer {
        store: StoreId(3),
        key: key.into(),
        time: time.map(Timestamp),
        cancel: None,
        tag: Tag::record(number),
        index: 0,
    }
}

#[test]
fn a_later_set_replaces_the_earlier_one() {
    let mut timer = One::make(seed::<One>(TestStore::new(StoreKind::Timer)));
    at(&mut timer, 1, "b", |t| t.set(Timestamp(50))).unwrap();
    at(&mut timer, 2, "a", |t| t.set(Timestamp(50))).unwrap();
    at(&mut timer, 3, "b", |t| {
        t.set(Timestamp(60)).unwrap();
        t.set(Timestamp(40)).unwrap();
        assert_eq!(t.get().unwrap(), Some(Timestamp(40)));
    });
    assert_eq!(pending(&timer), [(40, "b".into()), (50, "a".into())]);
    at(&mut timer, 4, "b", Timer::cancel).unwrap();
    assert_eq!(pending(&timer), [(50, "a".into())]);
    let rows = frozen(&mut timer);
    let row = |r: &Row| (r.key.clone(), r.lane_key, r.value.clone(), r.timestamp.0);
    assert_eq!(
        rows.iter().map(row).collect::<Vec<_>>(),
        [(b"a".to_vec(), 1, Some(50_i64.to_be_bytes().to_vec()), 1002), (b"b".to_vec(), 1, None, 1004)]
    );
}

#[test]
fn many_timers_of_a_key_are_deduplicated_by_time() {
    let mut timers = Many::make(seed::<Many>(TestStore::new(StoreKind::Timers)));
    at(&mut timers, 1, "a", |t| {
        t.set(Timestamp(5)).unwrap();
        t.set(Timestamp(5)).unwrap();
        t.set(Timestamp(3)).unwrap();
        t.set(Timestamp(4)).unwrap();
        t.cancel(Timestamp(4)).unwrap();
    });
    assert_eq!(pending(&timers), [(3, "a".into()), (5, "a".into())]);
    assert_eq!(fire(&mut timers, 3), Some((3, "a".into())));
    let key = |time: i64| [b"a".as_slice(), &time.to_be_bytes()].concat();
    let rows = frozen(&mut timers);
    let row = |r: &Row| (r.key.clone(), r.lane_key, r.value.clone());
    assert_eq!(
        rows.iter().map(row).collect::<Vec<_>>(),
        [(key(3), 1, None), (key(4), 1, None), (key(5), 1, Some(Vec::new()))]
    );
    assert_eq!(Field::keys(&timers, &|_| true).unwrap(), [b"a".to_vec()]);
}

#[test]
fn outside_a_handler_each_method_is_an_error_that_names_the_field() {
    let mut timer = One::make(seed::<One>(TestStore::new(StoreKind::Timer)));
    let mut many = Many::make(seed::<Many>(TestStore::new(StoreKind::Timers)));
    for e in [
        timer.set(Timestamp(1)).unwrap_err(),
        timer.cancel().unwrap_err(),
        timer.get().map(drop).unwrap_err(),
        timer.set_for(&"a".into(), Timestamp(1)).unwrap_err(),
        timer.cancel_for(&"a".into()).unwrap_err(),
        many.set(Timestamp(1)).unwrap_err(),
        many.cancel(Timestamp(1)).unwrap_err(),
    ] {
        assert_eq!(e.kind(), ErrorKind::Lane);
        assert!(e.to_string().contains("field `idle` of `P` was used outside a handler"), "{e}");
    }
}

#[test]
fn i15_a_foreign_write_waits_for_the_end_of_the_epoch_and_the_own_key_does_not() {
    let mut timer = One::make(seed::<One>(TestStore::new(StoreKind::Timer)));
    at(&mut timer, 7, "a", |t| {
        t.set_for(&"a".into(), Timestamp(10)).unwrap();
        t.set_for(&"b".into(), Timestamp(20)).unwrap();
        t.cancel_for(&"c".into()).unwrap();
    });
    assert_eq!(pending(&timer), [(10, "a".into())]);
    let writes = timer.take_foreign();
    assert!(timer.take_foreign().is_empty(), "each write is taken once");
    let text: Vec<_> =
        writes.iter().map(|w| (String::from_utf8(w.key.clone()).unwrap(), w.time, w.tag.number)).collect();
    assert_eq!(text, [("b".into(), Some(Timestamp(20)), 7), ("c".into(), None, 7)]);
    assert!(writes.is_sorted_by(|a, b| (&a.tag, a.index) < (&b.tag, b.index)));
    for w in &writes {
        PendingTimers::apply_foreign(&mut timer, w).unwrap();
    }
    assert_eq!(pending(&timer), [(10, "a".into()), (20, "b".into())]);
    assert_eq!(frozen(&mut timer).len(), 2);
}

#[test]
fn i15_of_several_writes_the_one_later_in_ingest_order_wins() {
    let mut timer = One::make(seed::<One>(TestStore::new(StoreKind::Timer)));
    at(&mut timer, 5, "a", |t| t.set(Timestamp(50))).unwrap();
    PendingTimers::apply_foreign(&mut timer, &foreign(4, "a", Some(40))).unwrap();
    assert_eq!(pending(&timer), [(50, "a".into())], "the own write is later");
    PendingTimers::apply_foreign(&mut timer, &foreign(6, "a", Some(60))).unwrap();
    PendingTimers::apply_foreign(&mut timer, &foreign(7, "a", Some(70))).unwrap();
    assert_eq!(pending(&timer), [(70, "a".into())], "the last foreign write is later");
    frozen(&mut timer);
    PendingTimers::apply_foreign(&mut timer, &foreign(1, "a", None)).unwrap();
    assert_eq!(pending(&timer), [], "own writes of earlier epochs do not count");
}

#[test]
fn i15_a_firing_is_not_a_write() {
    let mut timer = One::make(seed::<One>(TestStore::new(StoreKind::Timer)));
    at(&mut timer, 1, "a", |t| t.set(Timestamp(10))).unwrap();
    frozen(&mut timer);
    assert_eq!(fire(&mut timer, 10), Some((10, "a".into())));
    PendingTimers::apply_foreign(&mut timer, &foreign(1, "a", Some(10))).unwrap();
    assert_eq!(pending(&timer), [(10, "a".into())], "set from elsewhere, it is pending again");
}

processor!(Session, (String, String) => Keep(String, String), { idle: Timer<String>, alarm: Timers<String> = Wall });

impl Handlers for Session {
    const ON_TIMER: &'static [&'static str] = &["idle", "alarm"];
    fn process(&mut self, record: Record<String, String>, _: &mut Context<Self>) -> Result<()> {
        match record.value.parse::<i64>() {
            Ok(wall) => self.alarm.set(Timestamp(wall)),
            Err(_) => self.idle.set(Timestamp(record.timestamp.0 + 10)),
        }
    }
    fn fire(&mut self, field: usize, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        if fired.key == "broken" {
            return Err(Error::handler("refused"));
        }
        cx.forward(format!("{} {}", ["idle", "alarm"][field], fired.time))?;
        if fired.key == "again" && fired.time.0 < 20 {
            self.idle.set(Timestamp(fired.time.0 + 3))?;
        }
        Ok(())
    }
}
source!(In, "in", String, String, Utf8, Utf8, Lane<Utf8>);
sink!(Out, "out", String, String, Utf8, Utf8);

fn sessions() -> crate::topology::graph::Graph {
    let mut t = Topology::new("test");
    t.source::<In>().process::<Session>().sink::<Out>();
    t.build().unwrap()
}

fn shown(lane: &mut OneLane) -> Vec<String> {
    lane.outputs().into_iter().map(|(_, k, v, t)| format!("{k}: {v} @{t}")).collect()
}

#[test]
fn timers_fire_once_in_order_of_time_and_key_up_to_the_watermark() {
    let mut lane = OneLane::new(sessions());
    for (k, t) in [("b", 5), ("a", 5), ("c", 1), ("late", 90)] {
        lane.pipe("in", Some(k.as_bytes()), Some(b"x"), t).unwrap();
    }
    lane.advance(10).unwrap();
    assert_eq!(shown(&mut lane), [] as [&str; 0]);
    lane.advance(15).unwrap();
    assert_eq!(shown(&mut lane), ["c: idle 11 @11", "a: idle 15 @15", "b: idle 15 @15"]);
    lane.advance(20).unwrap();
    assert_eq!(shown(&mut lane), [] as [&str; 0]);
}

#[test]
fn a_timer_that_a_timer_sets_fires_in_the_same_advance_when_it_is_due() {
    let mut lane = OneLane::new(sessions());
    lane.pipe("in", Some(b"again"), Some(b"x"), 1).unwrap();
    lane.advance(100).unwrap();
    let times = [11, 14, 17, 20].map(|t| format!("again: idle {t} @{t}"));
    assert_eq!(shown(&mut lane), times);
}

#[test]
fn wall_clock_timers_follow_ticks_and_not_the_watermark() {
    let mut lane = OneLane::new(sessions());
    lane.pipe("in", Some(b"a"), Some(b"500"), 1).unwrap();
    lane.advance(10_000).unwrap();
    lane.tick(499).unwrap();
    assert_eq!(shown(&mut lane), [] as [&str; 0]);
    lane.tick(500).unwrap();
    assert_eq!(shown(&mut lane), ["a: alarm 500 @500"]);
}

#[test]
fn i11_pending_timers_of_the_committed_epoch_are_there_after_a_restart() {
    let mut lane = OneLane::new(sessions());
    for (k, v, t) in [("a", "x", 1), ("b", "x", 2), ("a", "700", 3), ("fired", "x", 0)] {
        lane.pipe("in", Some(k.as_bytes()), Some(v.as_bytes()), t).unwrap();
    }
    lane.advance(10).unwrap();
    let rows = lane.freeze();
    lane.apply(&rows);
    lane.pipe("in", Some(b"lost"), Some(b"x"), 4).unwrap();
    shown(&mut lane);

    let mut next = OneLane::with_stores(sessions(), lane.stores.clone());
    next.advance(1000).unwrap();
    next.tick(1000).unwrap();
    assert_eq!(shown(&mut next), ["a: idle 11 @11", "b: idle 12 @12", "a: alarm 700 @700"]);
    let rows = next.freeze();
    assert_eq!(rows["idle"].iter().filter(|r| r.value.is_none()).count(), 2, "what fired is deleted");
}

#[test]
fn an_error_of_a_timer_handler_names_node_and_timer() {
    let mut lane = OneLane::new(sessions());
    lane.pipe("in", Some(b"broken"), Some(b"x"), 0).unwrap();
    let e = lane.advance(10).unwrap_err();
    assert_eq!(e.to_string(), "timer idle at 10: Session: refused");
}

/// What a test does to a timer field.
#[derive(Clone, Debug)]
enum Op {
    Set(u8, i64),
    Cancel(u8, i64),
    /// A handler that sets and cancels, and is undone.
    Undo(u8, Vec<(i64, bool)>),
    Foreign(u8, i64, bool),
    Get(u8),
    Fire(i64),
    Freeze,
    Apply,
    Trim(usize),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    let (key, time) = (0..9_u8, 0..30_i64);
    prop_oneof![
        6 => (key.clone(), time.clone()).prop_map(|(k, t)| Op::Set(k, t)),
        2 => (key.clone(), time.clone()).prop_map(|(k, t)| Op::Cancel(k, t)),
        2 => (key.clone(), proptest::collection::vec((time.clone(), any::<bool>()), 1..4))
            .prop_map(|(k, writes)| Op::Undo(k, writes)),
        1 => (key.clone(), time.clone(), any::<bool>()).prop_map(|(k, t, set)| Op::Foreign(k, t, set)),
        1 => key.prop_map(Op::Get),
        3 => time.prop_map(Op::Fire),
        2 => Just(Op::Freeze),
        2 => Just(Op::Apply),
        2 => (0..6_usize).prop_map(|n| Op::Trim(n * NEAR)),
        1 => Just(Op::Restart),
    ]
}

/// Both kinds of fields behind one face; the model is a set of (key, time).
trait Ops: TimerOps + StateField {
    const ONE: bool;
    fn set_at(&mut self, time: Timestamp) -> Result<()>;
    fn cancel_at(&mut self, time: Timestamp) -> Result<()>;
    fn got(&mut self) -> Result<Option<Timestamp>>;
}

impl Ops for One {
    const ONE: bool = true;
    fn set_at(&mut self, time: Timestamp) -> Result<()> {
        self.set(time)
    }
    fn cancel_at(&mut self, _: Timestamp) -> Result<()> {
        self.cancel()
    }
    fn got(&mut self) -> Result<Option<Timestamp>> {
        self.get()
    }
}

impl Ops for Many {
    const ONE: bool = false;
    fn set_at(&mut self, time: Timestamp) -> Result<()> {
        self.set(time)
    }
    fn cancel_at(&mut self, time: Timestamp) -> Result<()> {
        self.cancel(time)
    }
    fn got(&mut self) -> Result<Option<Timestamp>> {
        Ok(None)
    }
}

/// A key that is longer than others with the same beginning, now and then.
fn name(k: u8) -> String {
    if k.is_multiple_of(3) { format!("same beginning {k}") } else { format!("k{k}") }
}

/// Runs operations on a field whose loads read two timers, and compares each step with a set.
fn check<F: Ops>(ops: Vec<Op>, lanes: u32) {
    let store: Arc<dyn ByteStore> = TestStore::new(F::KIND);
    // Only the keys of one lane reach it, as in production.
    let lane = 0;
    let made = || F::make(FieldSeed { cache: 0, lane, lanes, ..seed::<F>(store.clone()) });
    let mut other = std::collections::BTreeSet::new();
    if lanes > 1 {
        // Timers of other lanes lie between.
        let keys = (0..40_u8).map(|i| format!("other {i}"));
        let others = keys.filter(|k| crate::hash::lane_of(crate::hash::lane_hash(k.as_bytes()), lanes) != lane);
        let mut rows = Vec::new();
        for (i, key) in others.enumerate() {
            let time = (i as i64 % 30).to_be_bytes();
            let (row, value) = if F::ONE {
                (key.clone().into_bytes(), time.to_vec())
            } else {
                ([key.as_bytes(), &time].concat(), Vec::new())
            };
            other.insert((i as i64 % 30, key.clone()));
            rows.push(Row { lane_key: key.len(), key: row, value: Some(value), timestamp: Timestamp(0) });
        }
        store.apply(Generation(0), &Batch { rows, ..Batch::default() }).unwrap();
    }
    let mine = |k: u8| crate::hash::lane_of(crate::hash::lane_hash(name(k).as_bytes()), lanes) == lane;
    let mut field = made();
    let mut model: std::collections::BTreeSet<(i64, String)> = std::collections::BTreeSet::new();
    let mut committed = model.clone();
    let mut frozen_model = model.clone();
    let mut waiting: Option<Vec<Row>> = None;
    for (n, op) in ops.into_iter().enumerate() {
        let n = n as u64;
        match op {
            Op::Set(k, t) if mine(k) => {
                at(&mut field, n, &name(k), |f| f.set_at(Timestamp(t))).unwrap();
                if F::ONE {
                    model.retain(|(_, key)| *key != name(k));
                }
                model.insert((t, name(k)));
            }
            Op::Cancel(k, t) if mine(k) => {
                at(&mut field, n, &name(k), |f| f.cancel_at(Timestamp(t))).unwrap();
                model.retain(|(time, key)| *key != name(k) || (!F::ONE && *time != t));
            }
            Op::Undo(k, writes) if mine(k) => {
                let uncommitted = field.weight().uncommitted;
                let key = current(name(k).as_bytes(), true);
                let (timestamp, path) = (Timestamp(1000 + n as i64), Path::default());
                field.enter(&Entered { key: &key, timestamp, number: n, path: &path, undo: true });
                for (t, set) in writes {
                    if set { field.set_at(Timestamp(t)).unwrap() } else { field.cancel_at(Timestamp(t)).unwrap() }
                }
                field.undo().unwrap();
                field.leave(0).unwrap();
                assert_eq!(field.weight().uncommitted, uncommitted, "nothing is left to be committed");
            }
            Op::Foreign(k, t, set) if mine(k) => {
                let cancel = (!F::ONE && !set).then_some(Timestamp(t));
                let write = ForeignTimer { cancel, ..foreign(n, &name(k), set.then_some(t)) };
                TimerOps::apply_foreign(&mut field, &write).unwrap();
                model.retain(|(time, key)| *key != name(k) || (!F::ONE && *time != t));
                model.extend(set.then(|| (t, name(k))));
            }
            Op::Get(k) if F::ONE && mine(k) => {
                let want = model.iter().find(|(_, key)| *key == name(k)).map(|(t, _)| Timestamp(*t));
                assert_eq!(at(&mut field, n, &name(k), F::got).unwrap(), want);
            }
            Op::Fire(upto) => {
                let want = model.first().filter(|(t, _)| *t <= upto).cloned();
                assert_eq!(fire(&mut field, upto), want);
                if let Some(fired) = want {
                    model.remove(&fired);
                }
            }
            Op::Freeze if waiting.is_none() => {
                waiting = Some(frozen(&mut field));
                frozen_model.clone_from(&model);
            }
            Op::Apply => {
                if let Some(rows) = waiting.take() {
                    store.apply(Generation(0), &Batch { rows, ..Batch::default() }).unwrap();
                    field.applied(Epoch(1));
                    committed.clone_from(&frozen_model);
                    let fresh = made();
                    let mut stored = committed.clone();
                    stored.extend(other.iter().cloned());
                    assert_eq!(pending(&fresh), stored.into_iter().collect::<Vec<_>>(), "what the store holds");
                }
            }
            Op::Trim(bytes) => {
                field.trim(bytes);
                let w = field.weight();
                assert!(w.total <= w.uncommitted.max(bytes) + 8 * NEAR, "{w:?} after a trim to {bytes}");
            }
            Op::Restart => {
                field = made();
                waiting = None;
                model.clone_from(&committed);
            }
            _ => {}
        }
        field.pending().check();
        let found: Vec<_> = pending(&field).into_iter().filter(|f| !other.contains(f)).collect();
        assert_eq!(found, model.iter().cloned().collect::<Vec<_>>());
        let first = model.first().cloned();
        if let Some((time, key)) = PendingTimers::nth(&mut field, 2).unwrap() {
            // Where nothing is near, the place is that up to which the store was looked through.
            let near = field.pending().near() > 0;
            assert!(!near || first.is_none_or(|f| f <= (time.0, text(&key))), "a mark that goes there fires something");
        } else {
            assert!(model.len() <= 2, "three are pending, but nothing is said");
        }
    }
    while let Some(fired) = fire(&mut field, 1_000) {
        assert_eq!(Some(fired), model.pop_first());
    }
    assert!(model.is_empty(), "left: {model:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn i15_a_timer_field_is_a_map_from_key_to_time_near_and_far_before_and_after_a_restart(
        ops in proptest::collection::vec(op(), 1..120), lanes in 1..3_u32,
    ) {
        check::<One>(ops, lanes);
    }

    #[test]
    fn i15_a_field_of_many_timers_is_a_set_of_keys_and_times_near_and_far_before_and_after_a_restart(
        ops in proptest::collection::vec(op(), 1..120), lanes in 1..3_u32,
    ) {
        check::<Many>(ops, lanes);
    }
}
