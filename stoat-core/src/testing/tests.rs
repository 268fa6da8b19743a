use std::panic::catch_unwind;

use super::{Options, TestDriver, assert_records};
use crate::config::EmitMode;
use crate::error::ErrorKind;
use crate::prelude::*;
use crate::topology::graph::Graph;

#[source(topic = "in", key = String, value = String, value_codec = Utf8, out_of_orderness = "5ms")]
struct In;

#[source(topic = "in2", key = String, value = String, value_codec = Utf8, out_of_orderness = "0s")]
struct In2;

#[source(topic = "in", key = String, value = u64, value_codec = Be)]
struct InAsNumbers;

#[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
struct Out;

#[sink(topic = "in2", key = String, value = String, value_codec = Utf8)]
struct BackIn;

#[sink(topic = "counts", key = String, value = u64, value_codec = Be)]
struct Counts;

fn graph(declare: impl FnOnce(&mut Topology)) -> Graph {
    let mut t = Topology::new("test");
    declare(&mut t);
    t.build().expect("the test's topology is right")
}

fn driver(declare: impl FnOnce(&mut Topology)) -> TestDriver {
    TestDriver::new(graph(declare)).expect("the topology has a source")
}

fn s(text: &str) -> String {
    text.to_owned()
}

/// Keeps a value for 100 ms of the wall clock; `fail` is an error, `panic` a panic.
#[processor(input = (String, String), output = String)]
struct Expiring {
    #[state(codec = Utf8)]
    kept: Keyed<String>,
    #[timer(clock = wall)]
    ttl: Timer,
}

#[handlers]
impl Expiring {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        assert!(r.value != "panic", "told to panic");
        if r.value == "fail" {
            return Err(Error::handler("told to fail"));
        }
        self.kept.put(r.value.clone())?;
        self.ttl.set(cx.wall_clock() + Duration::from_millis(100))?;
        cx.forward(r.value)
    }

    #[on_timer(ttl)]
    fn gone(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.kept.remove()?;
        cx.forward_at(fired.time, s("gone"))
    }
}

fn expiring(t: &mut Topology) {
    t.source::<In>().process::<Expiring>().sink::<Out>();
}

/// Keeps the values of a key until the watermark is 10 ms behind them.
#[processor(input = (String, String), output = String)]
struct Delayed {
    #[state(codec = Json)]
    waiting: Keyed<Vec<String>>,
    #[timer]
    due: Timers,
}

#[handlers]
impl Delayed {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.due.set(r.timestamp + Duration::from_millis(10))?;
        self.waiting.update(Vec::new, |all| all.push(r.value))
    }

    #[on_timer(due)]
    fn release(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        for value in self.waiting.take()?.unwrap_or_default() {
            cx.forward(value)?;
        }
        Ok(())
    }
}

fn delayed(t: &mut Topology) {
    let moved = t.source::<In>().select_key(|_, v: &String| v.clone()).repartition();
    moved.process::<Delayed>().sink::<Out>();
}

#[test]
fn n14_a_time_to_live_ends_by_the_drivers_clock_and_no_other() {
    for _ in 0..100 {
        let mut d = driver(expiring);
        d.pipe_now::<In>(&s("k"), &s("v")).unwrap();
        let start = Options::default().start.as_millis();
        assert_eq!(d.stored::<Utf8, _, String>("kept", &s("k")).unwrap(), Some(s("v")));
        d.advance_wall_clock(Duration::from_millis(99)).unwrap();
        assert_records(&d.read::<Out>().unwrap(), &[("k", "v", start)]);
        assert_eq!(d.pending_timers::<String>("ttl").unwrap(), [(s("k"), Timestamp(start + 100))]);
        d.advance_wall_clock(Duration::from_millis(2)).unwrap();
        assert_records(&d.read::<Out>().unwrap(), &[("k", "gone", start + 100)]);
        assert_eq!(d.stored::<Utf8, _, String>("kept", &s("k")).unwrap(), None);
        assert!(d.pending_timers::<String>("ttl").unwrap().is_empty() && d.store("kept").unwrap().is_empty());
    }
}

#[test]
fn n14_many_drivers_of_one_topology_run_at_once() {
    std::thread::scope(|scope| {
        for i in 0..64 {
            scope.spawn(move || {
                let mut d = driver(expiring);
                d.pipe::<In>(&s("k"), &i.to_string(), i).unwrap();
                assert_records(&d.read::<Out>().unwrap(), &[("k", i.to_string(), i)]);
            });
        }
    });
}

#[test]
fn n14_the_call_that_fails_says_where_and_every_later_call_says_that_the_driver_failed() {
    let mut d = driver(expiring);
    d.pipe::<In>(&s("a"), &s("fine"), 1).unwrap();
    let e = d.pipe::<In>(&s("b"), &s("fail"), 2).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Handler);
    assert_eq!(e.to_string(), "in-0@1: Expiring: told to fail");
    for later in [
        d.pipe::<In>(&s("c"), &s("fine"), 3).unwrap_err(),
        d.pipe_raw("in", None, None, 3, Headers::default()).unwrap_err(),
        d.advance_watermark(100).unwrap_err(),
        d.advance_wall_clock(Duration::ZERO).unwrap_err(),
        d.read::<Out>().unwrap_err(),
        d.store("kept").unwrap_err(),
        d.commit().unwrap_err(),
    ] {
        assert_eq!(later.kind(), ErrorKind::Handler);
        assert!(later.to_string().contains("has failed before") && later.to_string().contains("in-0@1"), "{later}");
    }
}

#[test]
fn a_panic_of_a_handler_is_an_error_of_its_record() {
    let mut d = driver(expiring);
    let e = d.pipe::<In>(&s("b"), &s("panic"), 2).unwrap_err();
    assert!(e.to_string().starts_with("in-0@0: ") && e.to_string().contains("told to panic"), "{e}");
}

#[test]
fn t42_bytes_that_the_codec_refuses_are_an_error_of_their_record() {
    let mut d = driver(expiring);
    d.pipe_raw("in", Some(b"k"), Some(b"v"), 1, Headers::default()).unwrap();
    let e = d.pipe_raw("in", Some(b"k"), Some(b"\xff"), 1, Headers::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Codec);
    assert!(e.to_string().starts_with("in-0@1: "), "{e}");
    let mut d = driver(expiring);
    let e = d.pipe_raw("in", Some(b"k"), Some(b"v"), -1, Headers::default()).unwrap_err();
    assert!(e.to_string().contains("in-0@0") && e.to_string().contains("no timestamp"), "{e}");
}

#[test]
fn a_mistake_in_a_call_changes_nothing() {
    let mut d = driver(expiring);
    let e = d.pipe::<In2>(&s("k"), &s("v"), 1).unwrap_err().to_string();
    assert_eq!(e, "topology `test` reads no topic `in2`; it reads `in`");
    let e = d.pipe::<InAsNumbers>(&s("k"), &1, 1).unwrap_err().to_string();
    assert!(e.contains("`InAsNumbers` has the codecs Utf8 ") && e.contains("reads `in` with"), "{e}");
    let e = d.read::<Counts>().unwrap_err().to_string();
    assert_eq!(e, "topology `test` writes to no topic `counts`; it writes to `out`");
    let e = d.store("nothing").unwrap_err().to_string();
    assert_eq!(e, "topology `test` has no store `nothing`; it has `kept`, `ttl`");
    assert!(d.pending_timers::<String>("kept").unwrap_err().to_string().contains("holds values, not timers"));
    d.pipe::<In>(&s("k"), &s("v"), 1).unwrap();
    assert_records(&d.read::<Out>().unwrap(), &[("k", "v", 1)]);
    assert!(TestDriver::with_lanes(graph(expiring), 0).is_err());
}

#[test]
fn t42_the_watermark_follows_the_largest_timestamp_less_the_bound_of_its_source() {
    let mut d = driver(|t| {
        let moved = t.source::<In>().select_key(|_, v: &String| v.clone()).repartition();
        moved.merge(t.source::<In2>()).process::<Delayed>().sink::<Out>();
    });
    assert_eq!(d.watermark(), Timestamp::MIN);
    d.pipe::<In>(&s("k"), &s("v"), 100).unwrap();
    assert_eq!(d.watermark(), Timestamp(95));
    d.pipe::<In2>(&s("k"), &s("w"), 80).unwrap();
    assert_eq!(d.watermark(), Timestamp(95), "a topic that is behind holds nothing back, and moves nothing");
    assert!(d.read::<Out>().unwrap().is_empty(), "a timer for the past waits for the next move of the watermark");
    d.pipe::<In2>(&s("j"), &s("x"), 110).unwrap();
    assert_eq!(d.watermark(), Timestamp(110));
    assert_records(&d.read::<Out>().unwrap(), &[("k", "w", 90), ("v", "v", 110)]);
    d.advance_watermark(50).unwrap();
    assert_eq!(d.watermark(), Timestamp(110), "it only moves forward");
    d.advance_watermark(120).unwrap();
    assert_records(&d.read::<Out>().unwrap(), &[("j", "x", 120)]);
    let beyond = d.wall_clock() + Duration::from_hours(2);
    d.pipe::<In>(&s("k"), &s("y"), beyond.as_millis()).unwrap();
    assert_eq!(d.watermark(), Timestamp(120), "a record far ahead of the wall clock does not move it");
}

#[test]
fn what_is_read_does_not_depend_on_the_lanes() {
    let mut all = Vec::new();
    for lanes in [1, 2, 16] {
        let mut d = TestDriver::with_lanes(graph(delayed), lanes).unwrap();
        for i in 0..50_i64 {
            d.pipe::<In>(&format!("k{}", i % 7), &format!("v{}", i % 11), i).unwrap();
        }
        d.advance_watermark(1_000).unwrap();
        all.push((d.read::<Out>().unwrap(), d.store("waiting").unwrap(), d.pending_timers_raw("due").unwrap()));
    }
    assert_eq!(all[0].0.len(), 50);
    assert!(all[0] == all[1] && all[1] == all[2]);
}

#[test]
fn t42_without_commits_of_its_own_the_driver_shows_nothing_before_a_commit() {
    let options = Options { commit_each: false, ..Options::default() };
    let mut d = TestDriver::with_options(graph(expiring), options).unwrap();
    d.pipe::<In>(&s("k"), &s("v"), 1).unwrap();
    assert!(d.read::<Out>().unwrap().is_empty() && d.store("kept").unwrap().is_empty());
    d.commit().unwrap();
    assert_records(&d.read::<Out>().unwrap(), &[("k", "v", 1)]);
    assert_eq!(d.store("kept").unwrap().len(), 1);
}

#[test]
fn a_topic_that_is_written_and_read_is_read_again() {
    let mut d = driver(|t| {
        let [out, back] = t.source::<In>().fan_out();
        out.sink::<Out>();
        back.sink::<BackIn>();
        let counts = t.source::<In2>().group_by_key().count().named("n");
        counts.to_stream().sink::<Counts>();
    });
    d.pipe::<In>(&s("k"), &s("v"), 1).unwrap();
    d.pipe::<In>(&s("k"), &s("v"), 2).unwrap();
    assert_records(&d.read::<Counts>().unwrap(), &[("k", 1, 1), ("k", 2, 2)]);
    assert_eq!(d.stored::<Be, _, u64>("n", &s("k")).unwrap(), Some(2));
    assert_eq!(d.store("n").unwrap()[0].timestamp, Some(Timestamp(2)));
    d.pipe::<In2>(&s("j"), &s("v"), 3).unwrap();
    d.pipe::<In2>(&s("j"), &s("v"), 3).unwrap();
    assert_eq!(d.read_map::<Counts>().unwrap(), [(s("j"), 2)].into());
}

#[test]
fn a_topology_that_feeds_itself_for_ever_is_an_error_and_not_a_hang() {
    let mut d = driver(|t| t.source::<In2>().sink::<BackIn>());
    let e = d.pipe::<In2>(&s("k"), &s("v"), 1).unwrap_err();
    assert!(e.to_string().contains("does not come to rest"), "{e}");
}

/// Loses a field on the way through its codec.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Forgetful {
    kept: u64,
    #[serde(skip)]
    lost: u64,
}

#[processor(input = (String, String), output = String)]
struct Forgetting {
    #[state]
    state: Keyed<Forgetful>,
}

#[handlers]
impl Forgetting {
    #[process]
    fn on_record(&mut self, _r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let text = self.state.update(Forgetful::default, |f| {
            (f.kept, f.lost) = (f.kept + 1, f.lost + 1);
            format!("{} {}", f.kept, f.lost)
        })?;
        cx.forward(text)
    }
}

#[test]
fn t42_what_a_codec_loses_is_lost_in_the_driver_too() {
    let mut d = driver(|t| t.source::<In>().process::<Forgetting>().sink::<Out>());
    for _ in 0..2 {
        d.pipe::<In>(&s("k"), &s("v"), 1).unwrap();
    }
    assert_records(&d.read::<Out>().unwrap(), &[("k", "1 1", 1), ("k", "2 1", 1)]);
}

#[test]
fn headers_go_through() {
    let mut d = driver(expiring);
    let mut headers = Headers::default();
    headers.push("trace", Some(b"7".to_vec()));
    d.pipe_with_headers::<In>(&s("k"), &s("v"), 1, headers.clone()).unwrap();
    assert_eq!(d.read::<Out>().unwrap()[0].headers, headers);
}

#[test]
fn t31_the_result_of_an_aggregation_has_the_headers_of_the_last_record_that_went_into_it() {
    fn trace(n: u8) -> Headers {
        let mut headers = Headers::default();
        headers.push("traceparent", Some(vec![n]));
        headers
    }
    let traces = |d: &mut TestDriver| -> Vec<(String, String, Headers)> {
        d.read::<Out>().unwrap().into_iter().map(|r| (r.key, r.value, r.headers)).collect()
    };
    for (lanes, emit) in [1, 16].into_iter().flat_map(|l| [(l, EmitMode::Eager), (l, EmitMode::OnBarrier)]) {
        let graph = graph(|t| {
            let counts = t.source::<In>().group_by(|_, v: &String| v.clone()).count().named("counts");
            counts.to_stream().map_values(|n| n.to_string()).sink::<Out>();
        });
        let options = Options { lanes, emit, commit_each: false, ..Options::default() };
        let mut d = TestDriver::with_options(graph, options).unwrap();
        for n in [1, 2] {
            d.pipe_with_headers::<In>(&s("k"), &s("a"), 1, trace(n)).unwrap();
        }
        d.commit().unwrap();
        let all = traces(&mut d);
        let updates = if emit == EmitMode::Eager { 2 } else { 1 };
        assert_eq!(all.len(), updates);
        assert_eq!(all.last(), Some(&(s("a"), s("2"), trace(2))), "behind a re-key, too");
        if updates == 2 {
            assert_eq!(all[0].2, trace(1));
        }
        // The last one wins also where it has none: headers of older records do not come back from the state.
        d.pipe::<In>(&s("k"), &s("a"), 1).unwrap();
        d.commit().unwrap();
        assert_eq!(traces(&mut d), [(s("a"), s("3"), Headers::default())]);
    }
}

#[test]
fn records_that_differ_are_shown_line_by_line() {
    let got = [(s("a"), 1), (s("b"), 2), (s("c"), 3)].map(|(k, v)| Record::new(k, v, Timestamp(v)));
    assert_records(&got, &[("a", 1, 1), ("b", 2, 2), ("c", 3, 3)]);
    let failed = catch_unwind(|| assert_records(&got, &[("a", 1, 1), ("x", 2, 2), ("c", 3, 3), ("d", 4, 4)]));
    let text = *failed.unwrap_err().downcast::<String>().unwrap();
    let want = "the records differ (- missing, + not expected):
    \"a\" 1 @1
  - \"x\" 2 @2
  + \"b\" 2 @2
    \"c\" 3 @3
  - \"d\" 4 @4
";
    assert_eq!(text, want);
    assert!(
        catch_unwind(|| assert_records(&got, &[("a", 1, 1), ("b", 2, 3), ("c", 3, 3)])).is_err(),
        "timestamps count"
    );
}

/// Tells another key's timer.
#[processor(input = (String, String), output = String)]
struct Telling {
    #[timer(foreign)]
    told: Timer,
}

#[handlers]
impl Telling {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.told.set_for(&r.value, r.timestamp + Duration::from_millis(10))
    }

    #[on_timer(told)]
    fn fire(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(fired.key)
    }
}

#[test]
fn a_timer_for_another_key_is_pending_when_the_call_returns() {
    for lanes in [1, 16] {
        let mut d =
            TestDriver::with_lanes(graph(|t| t.source::<In>().process::<Telling>().sink::<Out>()), lanes).unwrap();
        for to in ["x", "y", "z"] {
            d.pipe::<In>(&s("k"), &s(to), 5).unwrap();
        }
        let pending = ["x", "y", "z"].map(|k| (s(k), Timestamp(15)));
        assert_eq!(d.pending_timers::<String>("told").unwrap(), pending, "{lanes} lanes");
        d.advance_watermark(15).unwrap();
        assert_records(&d.read::<Out>().unwrap(), &["x", "y", "z"].map(|k| (k, k, 15)));
    }
}

#[source(topic = "in", key = Option<String>, value = Option<String>, value_codec = Utf8)]
struct Nullable;

#[topology]
fn keyed_values(t: &mut Topology) {
    let records = t.source::<Nullable>();
    let n = records.with_key().with_value().group_by_key().count();
    n.to_stream().sink::<Counts>();
}

#[test]
fn with_key_and_with_value_drop_what_has_none() {
    let mut d = TestDriver::new(<keyed_values as crate::topology::TopologyFn>::build().unwrap()).unwrap();
    for (key, value) in [(None, Some("v")), (Some("k"), None), (Some("k"), Some("")), (Some("k"), Some("v"))] {
        d.pipe::<Nullable>(&key.map(s), &value.map(s), 1).unwrap();
    }
    assert_records(&d.read::<Counts>().unwrap(), &[("k", 1, 1), ("k", 2, 1)]);
}

/// Keeps what may be null, under a codec with a place for it.
#[processor(input = (String, String), output = String)]
struct Forgets {
    #[state(codec = crate::codec::Nullable<Utf8>)]
    last: Keyed<Option<String>>,
}

#[handlers]
impl Forgets {
    #[process]
    fn on_record(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let last = self.last.get()?.cloned();
        cx.forward(format!("{last:?}"))?;
        self.last.put(Some(record.value).filter(|v| v != "null"))
    }
}

#[test]
fn a_value_that_is_written_as_null_is_none_before_and_after_a_commit() {
    for commit_each in [true, false] {
        let options = Options { commit_each, ..Options::default() };
        let g = graph(|t| t.source::<In>().process::<Forgets>().sink::<Out>());
        let mut driver = TestDriver::with_options(g, options).expect("the topology has a source");
        for value in ["a", "null", "b"] {
            driver.pipe::<In>(&s("k"), &s(value), 0).expect("the handler takes it");
        }
        driver.commit().expect("there is nothing in its way");
        let read: Vec<String> = driver.read::<Out>().expect("it decodes").into_iter().map(|r| r.value).collect();
        assert_eq!(read, ["None", "Some(Some(\"a\"))", "None"], "commit_each: {commit_each}");
    }
}

#[source(topic = "in", key = String, value = String, value_codec = Utf8, monotonic, close_on_idle = "1s", timestamp = |r| r.value.parse().ok().map(Timestamp))]
struct Said;

/// Tells of each record whether it is late.
#[processor(input = (String, String), output = String)]
struct Judges {}

#[handlers]
impl Judges {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(format!("{} {}", r.value, if cx.is_late() { "late" } else { "fresh" }))
    }
}

#[test]
fn n6_the_time_that_a_source_takes_from_its_records_moves_the_watermark_and_tells_who_is_late() {
    let mut d = driver(|t| t.source::<Said>().process::<Judges>().sink::<Out>());
    for value in ["100", "50", "100"] {
        // Kafka's time says otherwise.
        d.pipe::<Said>(&s("k"), &s(value), 7_000).unwrap();
    }
    assert_records(
        &d.read::<Out>().unwrap(),
        &[("k", "100 fresh", 100), ("k", "50 late", 50), ("k", "100 fresh", 100)],
    );
    assert_eq!(d.watermark(), Timestamp(100));
    assert_eq!(d.counter(crate::metrics::LATE_RECORDS), 1);
    let error = d.pipe::<Said>(&s("k"), &s("no time"), 7_000).unwrap_err().to_string();
    assert!(error.contains("in-0@3") && error.contains("no timestamp"), "{error}");
}

#[test]
fn t9_silence_by_the_drivers_clock_closes_what_a_source_wants_closed() {
    let mut d = driver(|t| t.source::<Said>().process::<Judges>().sink::<Out>());
    d.pipe::<Said>(&s("k"), &s("500"), 0).unwrap();
    d.advance_wall_clock(Duration::from_millis(999)).unwrap();
    assert_eq!(d.watermark(), Timestamp(500));
    d.advance_wall_clock(Duration::from_millis(4_001)).unwrap();
    assert_eq!(d.watermark(), Timestamp(5_500));
    d.pipe::<Said>(&s("k"), &s("700"), 0).unwrap();
    assert_records(&d.read::<Out>().unwrap()[1..], &[("k", "700 late", 700)]);
}

#[topology]
fn late_apart(t: &mut Topology) {
    let [fresh, late] = t.source::<In2>().split_late();
    let marked = late.map_values(|v: String| format!("late {v}"));
    fresh.merge(marked).sink::<Out>();
}

#[test]
fn late_records_can_be_kept_apart() {
    let mut d = TestDriver::new(<late_apart as crate::topology::TopologyFn>::build().unwrap()).unwrap();
    for (value, time) in [("a", 10), ("b", 9), ("c", 10), ("d", 11)] {
        d.pipe::<In2>(&s("k"), &s(value), time).unwrap();
    }
    let want = [("k", "a", 10), ("k", "late b", 9), ("k", "c", 10), ("k", "d", 11)];
    assert_records(&d.read::<Out>().unwrap(), &want);
}

#[topology]
fn rekeyed(t: &mut Topology) {
    let delayed = t.source::<In2>().process::<Delayed>();
    let by_value = delayed.select_key(|_, v: &String| v.clone()).repartition();
    by_value.process::<Expiring>().sink::<Out>();
}

#[test]
fn t42_neither_lanes_nor_their_turns_change_a_result() {
    let run = |lanes, seed| {
        let graph = <rekeyed as crate::topology::TopologyFn>::build().unwrap();
        let mut d = TestDriver::with_options(graph, Options { lanes, seed, ..Options::default() }).unwrap();
        for n in 0..60 {
            d.pipe::<In2>(&format!("k{}", n % 7), &format!("v{}", n % 5), n * 3).unwrap();
        }
        d.advance_wall_clock(Duration::from_secs(1)).unwrap();
        (d.read_raw("out").unwrap(), d.store("kept").unwrap(), d.pending_timers_raw("due").unwrap())
    };
    let one = run(1, 0);
    assert!(one.0.len() > 50, "{}", one.0.len());
    for seed in 0..12 {
        for lanes in [2, 16] {
            assert_eq!(run(lanes, seed), one, "{lanes} lanes, seed {seed}");
        }
    }
}

mod schedules {
    use super::*;
    use crate::schedule::{Emit, Missed, Schedule, Tick, When};

    macro_rules! minutes {
        ($name:ident, $when:expr, $missed:ident) => {
            struct $name;
            impl Schedule for $name {
                type Key = String;
                type Value = String;
                type KeyCodec = Utf8;
                type ValueCodec = Utf8;
                const NAME: &'static str = stringify!($name);
                fn when() -> When {
                    $when
                }
                fn missed() -> Missed {
                    Missed::$missed
                }
                fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
                    out.record(&s("tick"), &format!("at {}", tick.time))
                }
            }
        };
    }
    minutes!(Minutes, When::every(Duration::from_mins(1)), Once);
    minutes!(AllMinutes, When::every(Duration::from_mins(1)), Each);
    minutes!(EventMinutes, When::every_event_time(Duration::from_mins(1)), Once);

    fn of<S: Schedule<Key = String, Value = String, KeyCodec = Utf8>>(lanes: u32) -> TestDriver {
        let graph = graph(|t| {
            let ticks = t.scheduled::<S>();
            t.source::<In2>().merge(ticks).sink::<Out>();
        });
        let start = Timestamp(0);
        TestDriver::with_options(graph, Options { lanes, start, ..Options::default() }).unwrap()
    }

    fn ticks(d: &mut TestDriver) -> Vec<i64> {
        d.read::<Out>().unwrap().into_iter().filter(|r| r.key == "tick").map(|r| r.timestamp.0 / 60_000).collect()
    }

    #[test]
    fn a_schedule_of_the_wall_clock_ticks_when_the_drivers_clock_moves() {
        for lanes in [1, 16] {
            let mut d = of::<Minutes>(lanes);
            d.advance_wall_clock(Duration::from_secs(59)).unwrap();
            assert_eq!(ticks(&mut d), [0; 0]);
            d.advance_wall_clock(Duration::from_secs(1)).unwrap();
            assert_eq!(ticks(&mut d), [1]);
            d.advance_wall_clock(Duration::from_secs(200)).unwrap();
            assert_eq!(ticks(&mut d), [4], "of several at once the last");
            d.pipe::<In2>(&s("k"), &s("v"), 1).unwrap();
            assert_eq!(d.read::<Out>().unwrap().len(), 1, "no tick without the clock");
            let mut d = of::<AllMinutes>(lanes);
            d.advance_wall_clock(Duration::from_secs(200)).unwrap();
            assert_eq!(ticks(&mut d), [1, 2, 3]);
        }
    }

    #[test]
    fn a_schedule_of_event_time_ticks_when_the_watermark_moves() {
        let mut d = of::<EventMinutes>(16);
        d.advance_wall_clock(Duration::from_hours(1)).unwrap();
        d.pipe::<In2>(&s("k"), &s("v"), 30_000).unwrap();
        assert_eq!(ticks(&mut d), [0; 0], "the first watermark begins");
        d.pipe::<In2>(&s("k"), &s("v"), 61_000).unwrap();
        d.advance_watermark(130_000).unwrap();
        assert_eq!(ticks(&mut d), [1, 2]);
    }

    #[test]
    fn a_test_fires_a_schedule_when_it_likes() {
        let mut d = of::<Minutes>(16);
        d.advance_wall_clock(Duration::from_secs(7)).unwrap();
        d.fire::<Minutes>().unwrap();
        assert_records(&d.read::<Out>().unwrap(), &[("tick", "at 7000", 7_000)]);
        d.advance_wall_clock(Duration::from_secs(53)).unwrap();
        assert_eq!(ticks(&mut d), [1], "its own times stay");
        let error = d.fire::<AllMinutes>().unwrap_err().to_string();
        assert!(error.contains("no schedule `AllMinutes`; it has: Minutes"), "{error}");
        d.fire::<Minutes>().expect("a mistake in a call changes nothing");
    }

    #[test]
    fn what_cannot_be_a_schedule_is_a_problem_of_the_topology() {
        minutes!(Never, When::every(Duration::ZERO), Once);
        let mut t = Topology::new("t");
        t.scheduled::<Never>().sink::<Out>();
        t.scheduled::<Minutes>().sink::<Out>();
        t.scheduled::<Minutes>().sink::<Out>();
        let text = t.build().unwrap_err().to_string();
        assert!(text.contains("schedule `Never`") && text.contains("two schedules are called `Minutes`"), "{text}");
    }
}

/// Asks something that takes its time; sums what it was told.
#[processor(input = (String, String), output = String)]
struct Asks {
    #[state]
    told: Keyed<u64>,
    #[timer]
    later: Timer,
}

async fn ask(question: &str) -> u64 {
    // sleep: the time is what the handler waits for
    tokio::time::sleep(Duration::from_millis(2)).await;
    question.len() as u64
}

#[handlers]
impl Asks {
    #[process]
    async fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        let answer = ask(&r.value).await;
        let told = self.told.get()?.copied().unwrap_or(0) + answer;
        self.told.put(told)?;
        if r.value == "fail" {
            return Err(Error::handler("no answer"));
        }
        self.later.set(r.timestamp + Duration::from_millis(10))
    }

    #[on_timer(later)]
    async fn say(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let answer = ask(&fired.key).await;
        let told = self.told.take()?.unwrap_or(0);
        cx.forward(format!("{told}+{answer}"))
    }
}

#[test]
fn async_handlers_run_to_rest_on_a_runtime_of_the_driver() {
    for lanes in [1, 16] {
        let graph = graph(|t| t.source::<In>().process::<Asks>().sink::<Out>());
        let mut d = TestDriver::with_lanes(graph, lanes).unwrap();
        for (key, value, time) in [("a", "12", 0), ("bb", "345", 1), ("a", "6", 2)] {
            d.pipe::<In>(&s(key), &s(value), time).unwrap();
        }
        assert!(d.read::<Out>().unwrap().is_empty());
        d.advance_watermark(100).unwrap();
        let out: Vec<_> =
            d.read::<Out>().unwrap().into_iter().map(|r| (r.key, r.value, r.timestamp.as_millis())).collect();
        assert_eq!(out, [(s("bb"), s("3+2"), 11), (s("a"), s("3+1"), 12)], "{lanes} lanes");
        let e = d.pipe::<In>(&s("a"), &s("fail"), 200).unwrap_err();
        assert!(e.to_string().contains("in-0@3: Asks: no answer"), "{e}");
    }
}

mod pause {
    use super::*;
    use crate::schedule::{Emit, Missed, Schedule, Tick, When};

    macro_rules! minutes {
        ($name:ident, $missed:ident) => {
            struct $name;
            impl Schedule for $name {
                type Key = String;
                type Value = String;
                type KeyCodec = Utf8;
                type ValueCodec = Utf8;
                const NAME: &'static str = stringify!($name);
                fn when() -> When {
                    When::every(Duration::from_mins(1))
                }
                fn missed() -> Missed {
                    Missed::$missed
                }
                fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
                    out.record(&s(stringify!($name)), &(tick.time.0 / 60_000).to_string())
                }
            }
        };
    }
    minutes!(Skips, Skip);
    minutes!(Takes, Once);
    minutes!(All, Each);

    #[source(topic = "in3", key = String, value = String, value_codec = Utf8, monotonic, close_on_idle = "1m")]
    struct In3;

    /// Says what it gets, a minute of either clock after it got something, and on each minute of the wall clock.
    #[processor(input = (String, String), output = String)]
    struct Echoes {
        #[state(codec = Utf8)]
        last: Keyed<String>,
        #[timer]
        event: Timer,
        #[timer(clock = wall)]
        wall: Timer,
    }

    #[handlers]
    impl Echoes {
        #[process]
        fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
            self.event.set(r.timestamp + Duration::from_mins(1))?;
            self.wall.set(cx.wall_clock() + Duration::from_mins(1))?;
            self.last.put(r.value.clone())?;
            cx.forward(r.value)
        }

        #[on_timer(event)]
        fn on_event(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
            cx.forward(s("event"))
        }

        #[on_timer(wall)]
        fn on_wall(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
            cx.forward(s("wall"))
        }

        #[punctuate(every = "1m", clock = wall, over = last)]
        fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
            cx.forward(s("report"))
        }
    }

    fn driver(lanes: u32, commit_each: bool) -> TestDriver {
        let graph = graph(|t| {
            let (skips, takes, all) = (t.scheduled::<Skips>(), t.scheduled::<Takes>(), t.scheduled::<All>());
            let echoes = t.source::<In3>().process::<Echoes>();
            echoes.merge(skips).merge(takes).merge(all).sink::<Out>();
        });
        let options = Options { lanes, commit_each, start: Timestamp(0), ..Options::default() };
        TestDriver::with_options(graph, options).unwrap()
    }

    fn said(d: &mut TestDriver) -> Vec<String> {
        d.read::<Out>().unwrap().into_iter().map(|r| format!("{} {}", r.key, r.value)).collect()
    }

    #[test]
    fn a_paused_driver_does_what_was_asked_for_when_it_goes_on_and_neither_clock_has_moved() {
        for (lanes, commit_each) in [(1, true), (16, true), (16, false)] {
            let mut d = driver(lanes, commit_each);
            d.pipe::<In3>(&s("k"), &s("a"), 1).unwrap();
            d.pause().unwrap();
            assert!(d.is_paused());
            assert_eq!(said(&mut d), ["k a"], "what was taken is committed");
            d.pipe::<In3>(&s("k"), &s("b"), 2).unwrap();
            d.advance_watermark(100_000).unwrap();
            d.pipe_raw("in3", Some(b"k"), Some(b"c"), 200_000, Headers::default()).unwrap();
            d.advance_wall_clock(Duration::from_secs(3 * 60 + 50)).unwrap();
            d.commit().unwrap();
            assert_eq!((said(&mut d), d.watermark()), (vec![], Timestamp(1)), "nothing happens");
            d.resume().unwrap();
            d.commit().unwrap();
            assert!(!d.is_paused());
            // The wall clock first, ticks as each schedule says; no minute of silence was heard.
            let clock = ["k wall", "k report", "Takes 3", "All 1", "All 2", "All 3"];
            assert_eq!(said(&mut d), [&clock[..], &["k b", "k event", "k c"]].concat());
            d.advance_wall_clock(Duration::from_secs(15)).unwrap();
            d.commit().unwrap();
            assert_eq!(said(&mut d).iter().filter(|l| !l.starts_with('k')).count(), 3, "all tick again");
        }
    }

    #[test]
    fn silence_before_a_pause_counts_and_that_within_it_does_not() {
        let mut d = driver(16, true);
        d.pipe::<In3>(&s("k"), &s("a"), 1).unwrap();
        d.advance_wall_clock(Duration::from_secs(40)).unwrap();
        d.pause().unwrap();
        d.advance_wall_clock(Duration::from_mins(10)).unwrap();
        d.resume().unwrap();
        assert_eq!(d.watermark(), Timestamp(1));
        d.advance_wall_clock(Duration::from_secs(25)).unwrap();
        assert_eq!(d.watermark(), Timestamp(65_001), "65 s of silence");
    }

    #[test]
    fn a_pause_or_its_end_at_the_wrong_time_is_an_error_and_changes_nothing() {
        let mut d = driver(16, true);
        let text = |r: Result<()>| r.unwrap_err().to_string();
        assert_eq!(text(d.resume()), "the application cannot be resumed in the state Running: nothing is paused");
        d.pause().unwrap();
        assert_eq!(text(d.pause()), "the application cannot be paused in the state Paused: it is already");
        assert!(text(d.fire::<All>()).contains("`All` cannot be fired in the state Paused"));
        d.resume().unwrap();
        d.fire::<All>().unwrap();
        assert_eq!(said(&mut d), ["All 0"]);
    }
}
