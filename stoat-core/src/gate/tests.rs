use super::verdict::bytes;
use super::{Decision, Dropped, Gate, Tally, Verdict, Verdicts};
use crate::engine::tag::Path;
use crate::error::ErrorKind;
use crate::id::SinkId;
use crate::metrics::Counters;
use crate::prelude::*;
use crate::record::Origin;
use crate::testing::{Options, TestDriver};
use crate::topology::graph::Graph;

#[source(topic = "in", key = String, value = u64, value_codec = Json, out_of_orderness = "0s")]
struct In;

#[source(topic = "maybe", key = Option<String>, value = Option<String>, value_codec = Utf8)]
struct Maybe;

#[sink(topic = "out", key = String, value = u64, value_codec = Json)]
struct Out;

#[sink(topic = "texts", key = String, value = String, value_codec = Utf8)]
struct Texts;

fn graph(declare: impl FnOnce(&mut Topology)) -> Graph {
    let mut t = Topology::new("test");
    declare(&mut t);
    t.build().expect("the test's topology is right")
}

fn all(decision: Decision) -> Options {
    Options {
        decode_error: Some(decision),
        process_error: Some(decision),
        produce_error: Some(decision),
        dead_letters: Some("letters".to_owned()),
        ..Options::default()
    }
}

fn driver(graph: Graph, options: Options) -> TestDriver {
    TestDriver::with_options(graph, options).expect("the topology has a source")
}

/// What a dead letter says: value, then headers.
fn letters(d: &mut TestDriver) -> Vec<String> {
    let text = |v: Option<&[u8]>| v.map_or("-".to_owned(), |v| String::from_utf8_lossy(v).into_owned());
    let all = d.read_raw("letters").unwrap().into_iter();
    all.map(|r| {
        let named = ["topic", "partition", "offset"].map(|n| text(r.headers.last(&format!("__streams.errors.{n}"))));
        let own = ["gate", "node"].map(|n| text(r.headers.last(&format!("__stoat.errors.{n}"))));
        format!("{}={} {} {}", text(r.key.as_deref()), text(r.value.as_deref()), named.join(" "), own.join(" "))
    })
    .collect()
}

#[test]
fn t25_between_two_good_records_a_bad_one_is_left_out_and_kept_as_a_dead_letter() {
    for (decision, want) in [(Decision::DeadLetter, 1), (Decision::Skip, 0)] {
        let mut d = driver(graph(|t| t.source::<In>().sink::<Out>()), all(decision));
        let mut headers = Headers::default();
        headers.push("own", Some(b"kept".to_vec()));
        for value in [&b"1"[..], b"\xff", b"2"] {
            d.pipe_raw("in", Some(b"k"), Some(value), 5, headers.clone()).unwrap();
        }
        let values: Vec<u64> = d.read::<Out>().unwrap().into_iter().map(|r| r.value).collect();
        assert_eq!(values, [1, 2]);
        let found = d.read_raw("letters").unwrap();
        assert_eq!(found.len(), want);
        for letter in found {
            assert_eq!((letter.key.as_deref(), letter.value.as_deref()), (Some(&b"k"[..]), Some(&b"\xff"[..])));
            assert_eq!(letter.timestamp, Timestamp::from_millis(5));
            let says = |name: &str| String::from_utf8(letter.headers.last(name).unwrap().to_vec()).unwrap();
            assert_eq!(says("own"), "kept");
            assert_eq!(says("__streams.errors.exception"), "Codec");
            assert!(
                says("__streams.errors.message").contains("value of In (Json)"),
                "{}",
                says("__streams.errors.message")
            );
            assert_eq!((says("__streams.errors.topic"), says("__streams.errors.partition")), ("in".into(), "0".into()));
            assert_eq!(says("__streams.errors.offset"), "1");
        }
    }
}

#[test]
fn n6_a_record_without_a_timestamp_goes_to_the_decode_gate() {
    let mut d = driver(graph(|t| t.source::<In>().sink::<Out>()), all(Decision::DeadLetter));
    d.pipe_raw("in", Some(b"k"), Some(b"1"), -1, Headers::default()).unwrap();
    assert_eq!(letters(&mut d), ["k=1 in 0 0 decode In"]);
    assert!(d.read::<Out>().unwrap().is_empty());
}

/// Does all that a handler can do, then fails at 13 and at the time 13.
#[processor(input = (String, u64), output = u64)]
struct Unlucky {
    #[state]
    list: Keyed<Vec<u64>>,
    #[store(codec = Be)]
    counts: KeyValueStore<String, u64>,
    #[timer]
    once: Timer,
    #[timer]
    often: Timers,
    #[timer(foreign)]
    others: Timer,
}

#[handlers]
impl Unlucky {
    #[process]
    fn on_record(&mut self, r: Record<String, u64>, cx: &mut Context<Self>) -> Result<()> {
        self.list.update(Vec::new, |l| l.push(r.value))?;
        self.list.update(Vec::new, |l| l.push(0))?;
        self.counts.update(&r.key, || 0, |n| *n += 1)?;
        self.once.set(r.timestamp + Duration::from_secs(1))?;
        self.often.set(r.timestamp + Duration::from_secs(2))?;
        self.often.cancel(Timestamp::from_millis(2_001))?;
        self.others.set_for(&"o".to_owned(), r.timestamp + Duration::from_secs(3))?;
        cx.forward(r.value)?;
        if r.value == 13 { Err(Error::handler("13")) } else { Ok(()) }
    }

    #[on_timer(once)]
    fn on_once(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.list.take()?;
        cx.forward(1)?;
        if fired.time.as_millis() == 1_013 { Err(Error::handler("13")) } else { Ok(()) }
    }

    #[on_timer(often)]
    fn on_often(&mut self, _: Fired<String>, _: &mut Context<Self>) -> Result<()> {
        Ok(())
    }

    #[on_timer(others)]
    fn on_others(&mut self, _: Fired<String>, _: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn unlucky(t: &mut Topology) {
    t.source::<In>().process::<Unlucky>().sink::<Out>();
}

fn state(d: &TestDriver) -> String {
    let mut all: Vec<String> = ["list", "counts"].iter().map(|n| format!("{:?}", d.store(n).unwrap())).collect();
    all.extend(["once", "often", "others"].iter().map(|n| format!("{:?}", d.pending_timers_raw(n).unwrap())));
    all.join("\n")
}

#[test]
fn what_a_handler_did_before_its_error_is_undone() {
    // In an epoch of its own, and in one where all entries are dirty already.
    for commit_each in [true, false] {
        let options = || Options { commit_each, ..all(Decision::Skip) };
        let pipe = |d: &mut TestDriver, values: &[u64]| {
            for v in values {
                d.pipe::<In>(&"k".to_owned(), v, *v as i64).unwrap();
            }
            d.commit().unwrap();
        };
        let mut with = driver(graph(unlucky), options());
        pipe(&mut with, &[1, 13, 2, 13]);
        let mut without = driver(graph(unlucky), options());
        pipe(&mut without, &[1, 2]);
        assert_eq!(state(&with), state(&without), "commit_each: {commit_each}");
        let read = |d: &mut TestDriver| d.read::<Out>().unwrap().into_iter().map(|r| r.value).collect::<Vec<_>>();
        assert_eq!(read(&mut with), read(&mut without));
    }
    // As the first of all: nothing was there.
    let mut d = driver(graph(unlucky), all(Decision::Skip));
    let nothing = state(&d);
    d.pipe::<In>(&"k".to_owned(), &13, 0).unwrap();
    assert_eq!(state(&d), nothing);
}

#[test]
fn a_timer_that_fails_stays_fired_and_what_its_handler_did_is_undone() {
    let mut d = driver(graph(unlucky), all(Decision::DeadLetter));
    d.pipe::<In>(&"k".to_owned(), &7, 13).unwrap();
    let list = format!("{:?}", d.store("list").unwrap());
    d.advance_watermark(1_100).unwrap();
    assert_eq!(format!("{:?}", d.store("list").unwrap()), list);
    assert!(d.pending_timers_raw("once").unwrap().is_empty());
    assert_eq!(letters(&mut d), ["k=- - - - process Unlucky"]);
    let values: Vec<u64> = d.read::<Out>().unwrap().into_iter().map(|r| r.value).collect();
    assert_eq!(values, [7]);
}

#[test]
fn behind_a_new_key_the_dead_letter_is_the_source_record() {
    let declare = |t: &mut Topology| {
        let texts = t
            .source::<In>()
            .map_values(|n| n.to_string())
            .flat_map(|k, v: String| vec![(format!("{k}a"), v.clone()), (format!("{k}b"), v)]);
        let counted = texts.repartition().try_map_values(|v| if v == "13" { Err(Error::handler("13")) } else { Ok(v) });
        counted.sink::<Texts>();
    };
    let mut d = driver(graph(declare), all(Decision::DeadLetter));
    for n in [12, 13, 14] {
        d.pipe::<In>(&"k".to_owned(), &n, 0).unwrap();
    }
    assert_eq!(letters(&mut d), vec!["k=13 in 0 1 process try_map_values"; 2]);
    assert_eq!(d.read::<Texts>().unwrap().len(), 4);
}

#[test]
fn i10_a_fatal_error_passes_the_gates_by_and_cannot_be_swallowed() {
    /// Writes a key of another lane, and looks away.
    #[processor(input = (String, u64), output = u64)]
    struct LooksAway {
        #[store(codec = Be)]
        counts: KeyValueStore<String, u64>,
    }

    #[handlers]
    impl LooksAway {
        #[process]
        fn on_record(&mut self, r: Record<String, u64>, cx: &mut Context<Self>) -> Result<()> {
            for n in 0..r.value {
                drop(self.counts.put(&format!("{n}"), n));
            }
            cx.forward(1)?;
            Err(Error::handler("something else"))
        }
    }

    let mut d = driver(graph(|t| t.source::<In>().process::<LooksAway>().sink::<Out>()), all(Decision::Skip));
    d.pipe::<In>(&"k".to_owned(), &0, 0).unwrap();
    let e = d.pipe::<In>(&"k".to_owned(), &50, 0).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::TimerLaneAffinity, "{e}");
    assert!(e.to_string().contains("in-0@1"), "{e}");
}

#[test]
fn t24_records_that_operators_leave_out_are_counted_by_reason_and_dead_lettered_on_request() {
    let declare = |t: &mut Topology| t.source::<Maybe>().with_key().with_value().sink::<Texts>();
    let mut d = driver(graph(declare), all(Decision::Fail));
    d.pipe_raw("maybe", None, Some(b"x"), 0, Headers::default()).unwrap();
    d.pipe_raw("maybe", Some(b"k"), None, 0, Headers::default()).unwrap();
    d.pipe_raw("maybe", Some(b"k"), Some(b"x"), 0, Headers::default()).unwrap();
    assert_eq!(letters(&mut d), ["-=x maybe 0 0 dropped null_key", "k=- maybe 0 1 dropped null_value"]);
    assert_eq!(d.read::<Texts>().unwrap().len(), 1);
    let tally = d.tally();
    assert_eq!((tally.dropped, tally.letters), ([1, 1, 0], 2));
}

#[test]
fn t24_late_records_are_dropped_counted_and_dead_lettered_where_the_topology_says_so() {
    let declare = |t: &mut Topology| {
        t.source::<In>().drop_late().map_values(|n| n + 1).sink::<Out>();
    };
    let count = |d: &TestDriver| d.counter(crate::metrics::LATE_RECORDS);
    for dead_letters in [Some("letters".to_owned()), None] {
        let asked = dead_letters.is_some();
        let mut d = TestDriver::with_options(graph(declare), Options { dead_letters, ..Options::default() }).unwrap();
        // What lies at the watermark is not late.
        for time in [20_000, 20_000, 19_999, 20_001] {
            d.pipe::<In>(&"k".to_owned(), &(time as u64), time).unwrap();
        }
        let got: Vec<u64> = d.read::<Out>().unwrap().into_iter().map(|r| r.value).collect();
        assert_eq!(got, [20_001, 20_001, 20_002]);
        let tally = d.tally();
        assert_eq!((tally.dropped, tally.letters, count(&d)), ([0, 0, 1], u64::from(asked), 1));
        if asked {
            let letter = letters(&mut d);
            assert!(letter.len() == 1 && letter[0].ends_with("in 0 2 dropped late"), "{letter:?}");
        }
    }
}

#[test]
fn what_the_topology_decides_holds_until_the_configuration_says_otherwise() {
    let declare = |t: &mut Topology| {
        t.on_decode_error(|f| {
            assert_eq!((f.gate, f.node, f.timestamp.as_millis()), (Gate::Decode, "In", 3));
            assert_eq!(f.source.map(|(tp, o)| (tp.to_string(), o)), Some(("in-0".to_owned(), 0)));
            if f.value == Some(b"skip") { Decision::Skip } else { Decision::DeadLetter }
        });
        t.on_process_error(|f| if f.value == Some(b"1") { Decision::Skip } else { Decision::Fail });
        t.source::<In>().try_map_values(|_| Err::<u64, _>(Error::handler("no"))).sink::<Out>();
    };
    let options = || Options { dead_letters: Some("letters".to_owned()), ..Options::default() };
    for (value, want) in [(&b"skip"[..], 0), (b"letter", 1)] {
        let mut d = driver(graph(declare), options());
        d.pipe_raw("in", Some(b"k"), Some(value), 3, Headers::default()).unwrap();
        assert_eq!(letters(&mut d).len(), want);
    }
    let mut d = driver(graph(declare), options());
    d.pipe::<In>(&"k".to_owned(), &1, 3).unwrap();
    let e = d.pipe::<In>(&"k".to_owned(), &2, 3).unwrap_err();
    assert!(e.to_string().starts_with("in-0@1: ") && e.kind() == ErrorKind::Handler, "{e}");
    let mut d = driver(graph(declare), all(Decision::Fail));
    assert!(d.pipe::<In>(&"k".to_owned(), &1, 3).is_err(), "the configuration goes first");
    let declare = |t: &mut Topology| {
        t.on_decode_error(|_| panic!("told to"));
        t.source::<In>().sink::<Out>();
    };
    let mut d = driver(graph(declare), options());
    let e = d.pipe_raw("in", Some(b"k"), Some(b"\xff"), 3, Headers::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Codec, "a handler that panics decides to fail: {e}");
}

#[test]
fn a_punctuator_without_a_key_has_no_record_to_leave_out() {
    #[processor(input = (String, u64))]
    struct Fails {
        #[state]
        seen: Keyed<u64>,
    }

    #[handlers]
    impl Fails {
        #[process]
        fn on_record(&mut self, r: Record<String, u64>, _: &mut Context<Self>) -> Result<()> {
            self.seen.put(r.value)
        }

        #[punctuate(every = "1s", clock = wall)]
        fn tick(&mut self, _: &mut Context<Self, End>) -> Result<()> {
            Err(Error::handler("no"))
        }
    }

    let mut d = driver(graph(|t| drop(t.source::<In>().process::<Fails>())), all(Decision::Skip));
    let e = d.advance_wall_clock(Duration::from_secs(2)).unwrap_err();
    assert!(e.to_string().contains("punctuator"), "{e}");
}

#[test]
fn a_verdict_holds_for_the_same_bytes_of_the_same_cause_until_its_record_is_committed() {
    let origin = |offset| Some(Origin { partition: 1, offset });
    let hash = |v: &[u8]| bytes(Some(b"k"), Some(v), Timestamp::from_millis(1), &Headers::default());
    let verdict = |origin, v: &[u8]| Verdict {
        origin,
        path: Path::default(),
        sink: SinkId(0),
        bytes: hash(v),
        decision: Decision::Skip,
        kind: ErrorKind::Refused,
        text: String::new(),
    };
    let mut v = Verdicts::default();
    assert!(v.add(verdict(origin(4), b"a")) && !v.add(verdict(origin(4), b"a")), "once");
    assert!(v.find(origin(4), &Path::default(), SinkId(0), hash(b"a")).is_some());
    assert!(v.find(origin(4), &Path::default(), SinkId(0), hash(b"b")).is_none(), "other bytes are tried");
    assert!(v.find(origin(5), &Path::default(), SinkId(0), hash(b"a")).is_none());
    assert!(v.find(origin(4), &Path::default(), SinkId(1), hash(b"a")).is_none());
    v.committed(|_| Some(4));
    assert!(!v.is_empty(), "4 is not committed yet");
    v.committed(|_| Some(5));
    assert!(v.is_empty());
    assert!(v.add(verdict(None, b"a")), "of a timer: for some epochs");
    (0..16).for_each(|_| v.committed(|_| Some(99)));
    assert!(!v.is_empty());
    v.committed(|_| Some(99));
    assert!(v.is_empty());
    assert!(v.add(verdict(origin(9), b"a")), "of a schedule: for some epochs, too");
    (0..16).for_each(|_| v.committed(|_| None));
    assert!(!v.is_empty());
    v.committed(|_| None);
    assert!(v.is_empty());
    assert!(v.refused_blindly() && !v.refused_blindly(), "the second time in a row is no news");
    v.committed(|_| Some(0));
    assert!(v.refused_blindly());
}

#[test]
fn counters_exist_at_zero_and_count_what_has_committed() {
    let counters = Counters::default();
    let value =
        |reason: &str| counters.all().get(&format!("stoat.dropped.records.total{{reason={reason:?}}}")).copied();
    counters.during(|| {
        Tally::describe();
        for reason in ["null_key", "null_value", "late", "decode", "process", "produce"] {
            assert_eq!(value(reason), Some(0), "{reason}");
        }
        let mut tally = Tally::default();
        assert!(tally.is_empty());
        tally.dropped[Dropped::NullValue as usize] = 2;
        tally.failed[Gate::Produce as usize] = 3;
        tally.publish();
        assert_eq!((value("null_value"), value("produce")), (Some(2), Some(3)));
    });
}
