use std::io;
use std::sync::{Arc, Mutex};

use super::*;
use crate::codec::{Codec, CodecError, Decode, Encode};
use crate::prelude::*;
use crate::testing::{Options, TestDriver};
use crate::topology::graph::Graph;

/// Reads keys in quotes and writes them without, and says that it is canonical.
#[derive(Debug, Clone, Copy)]
struct Unquoting;

impl Codec for Unquoting {
    const NAME: &'static str = "Unquoting";
    const CANONICAL: bool = true;
}

impl Encode<Name> for Unquoting {
    fn encode(key: &Name, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(key.0.as_bytes());
        Ok(())
    }
}

impl Decode<Name> for Unquoting {
    fn decode(bytes: &[u8]) -> Result<Name, CodecError> {
        let text = std::str::from_utf8(bytes).map_err(|e| CodecError::new(e.to_string()))?;
        Ok(Name(text.trim_matches('"').to_owned()))
    }
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
#[key(codec = Unquoting)]
struct Name(String);

#[source(topic = "in", key = Name, value = String, value_codec = Utf8, out_of_orderness = "0s")]
struct In;

#[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
struct Out;

/// Does with its timers and its store what the value says.
#[processor(input = (Name, String), output = (String, String))]
struct Does {
    #[timer]
    one: Timer,
    #[timer]
    many: Timers,
    #[timer(foreign)]
    others: Timer,
    #[store(codec = Utf8)]
    kept: KeyValueStore<Name, String>,
}

const SOON: Timestamp = Timestamp(50);

#[handlers]
impl Does {
    #[process]
    fn on_record(&mut self, r: Record<Name, String>, cx: &mut Context<Self>) -> Result<()> {
        let done = match &*r.value {
            "set" | "swallowed" | "replaced" | "unwrapped" => self.one.set(SOON),
            "cancel" => self.one.cancel(),
            "set many" => self.many.set(SOON),
            "cancel many" => self.many.cancel(SOON),
            "set by value" => self.others.set_for(&r.key, SOON),
            "cancel by value" => self.others.cancel_for(&r.key),
            "set for another" => self.others.set_for(&Name("another".to_owned()), SOON),
            "put" => self.kept.put(&r.key, "kept".to_owned()),
            _ => Ok(()),
        };
        match &*r.value {
            "swallowed" => {}
            "replaced" if done.is_err() => return Err(Error::handler("something else")),
            "unwrapped" => done.unwrap(),
            _ => done?,
        }
        cx.forward(r.key.0, r.value)
    }

    #[on_timer(one)]
    fn on_one(&mut self, fired: Fired<Name>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(fired.key.0, "one".to_owned())
    }

    #[on_timer(many)]
    fn on_many(&mut self, fired: Fired<Name>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(fired.key.0, "many".to_owned())
    }

    #[on_timer(others)]
    fn on_others(&mut self, fired: Fired<Name>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(fired.key.0, "others".to_owned())
    }
}

fn graph() -> Graph {
    let mut t = Topology::new("names");
    t.source::<In>().process::<Does>().sink::<Out>();
    t.build().unwrap()
}

const LANES: u32 = 8;

/// The first keys whose two encodings are on one lane of eight (`same`), or not.
fn names(same: bool) -> impl Iterator<Item = String> {
    let lane = |bytes: &[u8]| lane_of(lane_hash(bytes), LANES);
    let all = (0..).map(|n| format!("k{n}"));
    all.filter(move |k| (lane(k.as_bytes()) == lane(quoted(k).as_bytes())) == same)
}

fn quoted(name: &str) -> String {
    format!("\"{name}\"")
}

fn driver(checks: LaneChecks) -> TestDriver {
    TestDriver::with_options(graph(), Options { lanes: LANES, lane_checks: checks, ..Options::default() }).unwrap()
}

fn pipe(driver: &mut TestDriver, name: &str, value: &str, time: i64) -> Result<()> {
    driver.pipe_raw("in", Some(quoted(name).as_bytes()), Some(value.as_bytes()), time, Headers::default())
}

fn only(guard: Verdict, sampled: Verdict) -> LaneChecks {
    LaneChecks { guard, sampled, ..LaneChecks::each() }
}

fn counted(driver: &TestDriver) -> u64 {
    driver.counter(crate::metrics::LANE_MISMATCHES)
}

const GUARDED: &[&str] = &[
    "set",
    "cancel",
    "set many",
    "cancel many",
    "set by value",
    "cancel by value",
    "swallowed",
    "replaced",
    "unwrapped",
];

#[test]
fn i16_a_timer_of_the_current_key_on_another_lane_ends_the_application_whatever_user_code_makes_of_it() {
    for did in GUARDED {
        let mut driver = driver(only(Verdict::Error, Verdict::Off));
        let split = names(false).next().unwrap();
        for same in names(true).take(5) {
            pipe(&mut driver, &same, did, 1).unwrap_or_else(|e| panic!("{did} of a control key: {e}"));
        }
        assert_eq!(driver.read::<Out>().unwrap().len(), 5, "{did}");
        let error = pipe(&mut driver, &split, did, 2).expect_err(did);
        assert_eq!(error.kind(), ErrorKind::TimerLaneAffinity, "{did}: {error}");
        let field = if did.contains("many") {
            "many"
        } else if did.contains("value") {
            "others"
        } else {
            "one"
        };
        let text = error.to_string();
        for part in
            ["in-0@5: ", "TimerLaneAffinity", &format!("`{field}` of `Does`"), &format!("`{split}`"), "CANONICAL"]
        {
            assert!(text.contains(part), "{did}: `{part}` is not in: {text}");
        }
        assert!(pipe(&mut driver, &names(true).next().unwrap(), "none", 3).is_err(), "{did}: it has failed for good");
    }
}

#[test]
fn i16_a_timer_for_a_key_that_is_not_processed_is_no_split() {
    let mut driver = driver(only(Verdict::Error, Verdict::Off));
    for split in names(false).take(20) {
        pipe(&mut driver, &split, "set for another", 1).unwrap();
    }
    driver.advance_watermark(50).unwrap();
    let fired = driver.read::<Out>().unwrap().into_iter().filter(|r| r.value == "others").count();
    assert_eq!(fired, 1);
}

#[test]
fn i16_warn_lets_it_through_and_counts_it_and_off_does_not_look() {
    for (verdict, want) in [(Verdict::Warn, 3), (Verdict::Off, 0)] {
        let mut driver = driver(only(verdict, Verdict::Off));
        assert_eq!(counted(&driver), 0);
        for name in names(false).take(3).chain(names(true).take(2)) {
            pipe(&mut driver, &name, "set", 1).unwrap();
        }
        driver.read::<Out>().unwrap();
        driver.advance_watermark(50).unwrap();
        assert_eq!(driver.read::<Out>().unwrap().len(), 5, "all of them fire");
        assert_eq!(counted(&driver), want, "{verdict:?}");
    }
}

#[test]
fn i16_a_write_of_a_store_for_a_key_of_another_lane_gets_the_same_verdicts() {
    let split = names(false).next().unwrap();
    let mut refusing = driver(only(Verdict::Error, Verdict::Off));
    pipe(&mut refusing, &names(true).next().unwrap(), "put", 1).unwrap();
    let error = pipe(&mut refusing, &split, "put", 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimerLaneAffinity, "{error}");
    assert!(error.to_string().contains("`kept` of `Does` for a key of lane"), "{error}");
    for (verdict, want) in [(Verdict::Warn, 1), (Verdict::Off, 0)] {
        let mut driver = driver(only(verdict, Verdict::Off));
        pipe(&mut driver, &split, "put", 1).unwrap();
        assert_eq!(driver.stored::<Utf8, _, String>("kept", &Name(split.clone())).unwrap().as_deref(), Some("kept"));
        assert_eq!(counted(&driver), want, "{verdict:?}");
    }
}

#[test]
fn i17_the_sampled_check_refuses_on_request_before_the_handler_runs() {
    let mut driver = driver(LaneChecks::strict());
    pipe(&mut driver, &names(true).next().unwrap(), "none", 1).unwrap();
    let error = pipe(&mut driver, &names(false).next().unwrap(), "unwrapped", 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimerLaneAffinity, "{error}");
    let text = error.to_string();
    assert!(
        text.contains("in-0@1: Does: TimerLaneAffinity: the key of a record") && text.contains("Unquoting"),
        "{text}"
    );
}

#[test]
fn i17_64_records_of_a_lane_are_looked_at_then_one_of_4096() {
    let lane_checks = LaneChecks { guard: Verdict::Off, ..LaneChecks::default() };
    let options = Options { lanes: LANES, lane_checks, commit_each: false, ..Options::default() };
    let mut driver = TestDriver::with_options(graph(), options).unwrap();
    // Two keys on two lanes: each lane counts for itself.
    let lane = |k: &String| lane_of(lane_hash(quoted(k).as_bytes()), LANES);
    let first = names(false).next().unwrap();
    let other = names(false).find(|k| lane(k) != lane(&first)).unwrap();
    let mut piped = 0;
    for (n, want) in [(63, 63), (64, 64), (64 + 4095, 64), (64 + 4096, 65)] {
        while piped < n {
            pipe(&mut driver, &first, "none", 1).unwrap();
            piped += 1;
        }
        assert_eq!(counted(&driver), want, "after {n} records");
    }
    pipe(&mut driver, &other, "none", 1).unwrap();
    assert_eq!(counted(&driver), 66);
}

#[test]
fn i17_the_sampled_check_warns_once_per_processor_and_off_does_not_look() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);
    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for (verdict, warned, want) in [(Verdict::Warn, 1, 30), (Verdict::Off, 0, 0)] {
        let log = Log::default();
        let to = log.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || to.clone()).finish();
        tracing::subscriber::with_default(subscriber, || {
            let mut driver = driver(only(Verdict::Off, verdict));
            for name in names(false).take(30) {
                pipe(&mut driver, &name, "none", 1).unwrap();
            }
            assert_eq!(counted(&driver), want);
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.matches("Unquoting").count(), warned, "{text}");
    }
}

#[test]
fn i16_i17_with_one_lane_nothing_is_looked_at() {
    let options = Options { lanes: 1, lane_checks: LaneChecks::strict(), ..Options::default() };
    let mut driver = TestDriver::with_options(graph(), options).unwrap();
    for did in GUARDED.iter().chain(&["put"]) {
        for name in names(false).take(3) {
            pipe(&mut driver, &name, did, 1).unwrap();
        }
    }
    assert_eq!(counted(&driver), 0);
}

#[test]
fn i17_codecs_that_are_what_they_say_are_never_found() {
    #[source(topic = "in", key = String, key_codec = Json, value = String, value_codec = Utf8)]
    struct Quoted;
    #[processor(input = (String, String), output = String)]
    struct Sets {
        #[timer]
        idle: Timer<String, Json>,
    }
    #[handlers]
    impl Sets {
        #[process]
        fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
            self.idle.set(r.timestamp)?;
            cx.forward(r.value)
        }
        #[on_timer(idle)]
        fn idle(&mut self, _fired: Fired<String>, _cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }
    let mut t = Topology::new("quoted");
    t.source::<Quoted>().process::<Sets>().sink::<Out>();
    let options = Options { lane_checks: LaneChecks::strict(), ..Options::default() };
    let mut driver = TestDriver::with_options(t.build().unwrap(), options).unwrap();
    for n in 0..100 {
        // Spacing and escapes differ, the key does not: one lane.
        for key in [format!("\"k{n}\""), format!(" \"k{n}\" "), format!("\"\\u006b{n}\"")] {
            driver.pipe_raw("in", Some(key.as_bytes()), Some(b"v"), 1, Headers::default()).unwrap();
        }
    }
    assert_eq!(driver.read::<Out>().unwrap().len(), 300);
}
