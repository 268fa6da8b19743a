//! Watermarks in a whole engine: idle and slow partitions, silence, late and future records, records without a time.

use std::collections::BTreeMap;

use super::super::message::Control;
use super::super::net::recording::Entry;
use super::timers::{Close, Closing, even};
use super::*;
use crate::id::{Epoch, TopicPartition};
use crate::metrics::{Counters, DROPPED_RECORDS, FUTURE_RECORDS, LATE_RECORDS};

const WINDOW: i64 = 1_000;

/// Counts in windows of a second without grace: forwards `start=count` once, when the watermark reaches a window's end, and
/// drops what comes for a window that is closed.
#[processor(input = (String, String), output = String)]
struct PerSecond {
    #[state]
    open: Keyed<BTreeMap<i64, u64>>,
    #[timer]
    ends: Timers,
}

#[handlers]
impl PerSecond {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let start = r.timestamp.0.div_euclid(WINDOW) * WINDOW;
        let end = Timestamp(start + WINDOW);
        if end <= cx.watermark() {
            return Ok(());
        }
        self.open.update(BTreeMap::new, |open| *open.entry(start).or_default() += 1)?;
        self.ends.set(end)
    }

    #[on_timer(ends)]
    fn on_end(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let start = fired.time.0 - WINDOW;
        let counted = self.open.update(BTreeMap::new, |open| open.remove(&start))?;
        match counted {
            Some(n) => cx.forward(format!("{start}={n}")),
            None => Ok(()),
        }
    }
}

/// A graph that counts per second what a source gives.
macro_rules! per_second {
    ($name:ident, $($option:tt)*) => {
        pub(super) fn $name() -> Graph {
            #[source(topic = "in", key = String, value = String, value_codec = Utf8, $($option)*)]
            struct Seconds;
            graph_of(|t| t.source::<Seconds>().process::<PerSecond>().sink::<Out>())
        }
    };
}

per_second!(idle_soon, out_of_orderness = "0s", idleness = "200ms");
per_second!(closes_on_idle, monotonic, idleness = "50ms", close_on_idle = "1s");
per_second!(fails_without_time, out_of_orderness = "0s", idleness = "50ms");
per_second!(skips_without_time, out_of_orderness = "0s", idleness = "50ms", no_timestamp = skip);
per_second!(far_behind, out_of_orderness = "60s", idleness = "50ms");

/// An engine that runs, and what it counts.
pub(super) struct Running {
    pub(super) world: World,
    pub(super) engine: Engine,
    pub(super) counters: Counters,
}

impl Running {
    pub(super) fn start(mut world: World, graph: &Graph) -> Self {
        let counters = Counters::default();
        let engine = counters.during(|| world.engine(graph, 3));
        Self { world, engine, counters }
    }

    pub(super) fn append(&mut self, partition: i32, key: &str, time: i64) {
        self.world.cluster.append("in", partition, key.as_bytes(), b"x", time);
    }

    /// Lets so much time pass.
    pub(super) fn pass(&mut self, millis: u64) {
        let until = self.world.now + millis;
        while self.world.now < until {
            self.counters.during(|| self.world.turn(&mut self.engine)).unwrap_or_else(|e| panic!("{e}"));
        }
    }

    /// Lets time pass until this is committed.
    pub(super) fn until(&mut self, outputs: &[&str]) {
        for _ in 0..20_000 {
            if self.outputs() == outputs {
                return;
            }
            self.pass(1);
        }
        assert_eq!(self.outputs(), outputs, "{:?}", self.engine.status());
    }

    /// Lets time pass until everything that is there was dispatched, and nothing is open.
    pub(super) fn until_read(&mut self) {
        let total: usize = (0..PARTITIONS).map(|p| self.world.cluster.log("in", p).len()).sum();
        for _ in 0..20_000 {
            let committed = (0..PARTITIONS)
                .map(|p| self.world.cluster.committed("app", &TopicPartition::new("in", p)).unwrap_or_default());
            if committed.sum::<i64>() as usize == total {
                return;
            }
            self.pass(1);
        }
        panic!("it is not read: {:?}", self.engine.status());
    }

    pub(super) fn outputs(&self) -> Vec<String> {
        let mut all: Vec<String> = self
            .world
            .records("out")
            .iter()
            .map(|r| format!("{} {}", string(r.key.as_ref()), string(r.value.as_ref())))
            .collect();
        all.sort();
        all
    }

    pub(super) fn count(&self, name: &str) -> u64 {
        self.counters.get(name).expect("all are there from the start")
    }

    /// The same application, killed and started again.
    fn restart(self, graph: &Graph) -> Self {
        let Self { world, engine, .. } = self;
        drop(engine);
        Self::start(world, graph)
    }
}

#[test]
fn t7_an_empty_partition_is_idle_and_so_is_one_that_was_at_its_end_when_the_engine_began() {
    let graph = idle_soon();
    let mut r = Running::start(World::new(10_000), &graph);
    r.append(0, "a", 0);
    r.append(0, "a", 10_000);
    r.until_read();
    assert!(r.outputs().is_empty(), "the other partitions may have something yet");
    r.until(&["a 0=1"]);
    r.append(1, "b", 10_100);
    r.until_read();
    let mut r = r.restart(&graph);
    r.append(0, "a", 12_000);
    r.until(&["a 0=1", "a 10000=1", "b 10000=1"]);
    assert_eq!(r.count(LATE_RECORDS), 0);
}

#[test]
fn t8_slow_is_not_idle_though_its_fetch_takes_three_times_as_long() {
    let graph = idle_soon();
    let mut r = Running::start(World::new(10_100), &graph);
    r.append(0, "a", 0);
    r.append(1, "b", 100);
    r.append(2, "c", 50_000);
    r.until_read();
    let slow = TopicPartition::new("in", 1);
    r.world.cluster.hold(&slow, true);
    for time in [200, 300, 400, 500, 600] {
        r.append(1, "b", time);
    }
    for n in 0..60 {
        // The others are not idle, and far ahead.
        r.append(0, "a", 5_000 + n);
        r.append(2, "c", 50_000 + n);
        r.pass(10);
    }
    assert!(r.outputs().is_empty(), "partition 1 has a lag of 5: {:?}", r.outputs());
    r.world.cluster.hold(&slow, false);
    r.pass(2_000);
    assert_eq!(r.outputs(), ["a 0=1", "a 5000=60", "b 0=6"], "nothing is lost");
    assert_eq!(r.count(LATE_RECORDS), 0);
    // Idle again, then back with an old record: that one is late, and the watermark stands.
    r.append(1, "b", 700);
    r.until_read();
    r.pass(100);
    assert_eq!((r.count(LATE_RECORDS), r.outputs().len()), (1, 3));
    r.world.check(&graph);
}

#[test]
fn t8_partitions_of_which_nothing_comes_are_not_idle_while_there_is_more() {
    let graph = idle_soon();
    let mut r = Running::start(World::new(10_150), &graph);
    r.append(0, "a", 0);
    r.append(1, "b", 100);
    r.append(2, "c", 50_000);
    r.until_read();
    for p in 0..PARTITIONS {
        r.world.cluster.hold(&TopicPartition::new("in", p), true);
    }
    r.append(1, "b", 200);
    r.append(0, "a", 6_000);
    r.pass(1_000);
    assert!(r.outputs().is_empty(), "{:?}", r.outputs());
    for p in 0..PARTITIONS {
        r.world.cluster.hold(&TopicPartition::new("in", p), false);
    }
    // Then all are idle, and none holds back the one that is farthest.
    r.until(&["a 0=1", "a 6000=1", "b 0=2"]);
    assert_eq!(r.count(LATE_RECORDS), 0);
}

#[test]
fn t9_the_last_window_closes_once_after_silence_where_the_source_says_so() {
    let graph = closes_on_idle();
    let mut r = Running::start(World::new(10_200), &graph);
    r.append(0, "a", 0);
    r.append(0, "a", 500);
    r.until_read();
    r.pass(800);
    assert!(r.outputs().is_empty(), "silent for less than a second: {:?}", r.outputs());
    r.pass(4_200);
    assert_eq!(r.outputs(), ["a 0=2"]);
    assert_eq!(r.count(LATE_RECORDS), 0);
    let commits = r.engine.status().run.commits;
    r.pass(5_000);
    assert_eq!(r.engine.status().run.commits, commits, "nothing waits, so nothing is written");
    r.append(0, "a", 700);
    r.until_read();
    assert_eq!(r.count(LATE_RECORDS), 1);
    // A restart forgets the silence, not how far time has come.
    let mut r = r.restart(&graph);
    r.pass(3_000);
    assert_eq!(r.outputs(), ["a 0=2"], "no second result");
    r.append(0, "a", 800);
    r.until_read();
    assert_eq!((r.count(LATE_RECORDS), r.outputs().len()), (1, 1));
    r.world.check(&graph);
}

#[test]
fn t9_without_that_the_last_window_waits_for_the_next_record() {
    let graph = idle_soon();
    let mut r = Running::start(World::new(10_250), &graph);
    r.append(0, "a", 0);
    r.append(0, "a", 500);
    r.pass(5_000);
    assert!(r.outputs().is_empty());
    r.append(0, "a", 1_500);
    r.until(&["a 0=2"]);
}

#[test]
fn t14_a_restart_accepts_no_record_that_was_late_before() {
    let graph = idle_soon();
    let mut r = Running::start(World::new(10_300), &graph);
    r.append(0, "a", 0);
    r.append(0, "a", 10_000);
    r.until(&["a 0=1"]);
    r.append(0, "a", 100);
    r.until_read();
    assert_eq!(r.count(LATE_RECORDS), 1);
    let mut r = r.restart(&graph);
    r.append(0, "a", 100);
    r.until_read();
    assert_eq!(r.count(LATE_RECORDS), 1, "late again");
    r.append(0, "a", 20_000);
    r.until(&["a 0=1", "a 10000=1"]);
}

#[test]
fn n15_series_are_at_zero_from_the_start_and_go_on_over_a_restart_in_place() {
    let graph = idle_soon();
    let mut r = Running::start(World::new(10_350), &graph);
    let series = r.counters.all();
    for (name, _) in crate::metrics::COUNTERS {
        assert_eq!(r.count(name), 0);
    }
    r.append(0, "a", 0);
    r.append(0, "a", 10_000);
    r.until(&["a 0=1"]);
    r.append(0, "a", 100);
    r.until_read();
    assert_eq!(r.count(LATE_RECORDS), 1);
    r.engine.restart();
    while r.engine.status().restarts == 0 || r.engine.status().state != State::Running {
        r.pass(1);
    }
    assert_eq!(r.count(LATE_RECORDS), 1, "a restart in place sets nothing back");
    r.append(0, "a", 200);
    r.until_read();
    assert_eq!(r.count(LATE_RECORDS), 2);
    assert!(r.counters.all().keys().eq(series.keys()), "no series twice, none gone: {:?}", r.counters);
}

#[test]
fn n6_one_fast_clock_moves_no_watermark_first_or_later() {
    let far = 99_999_999_999;
    let orders: [[i64; 5]; 2] = [[0, 500, far, 700, 1_500], [far, 0, 500, 700, 1_500]];
    for times in orders {
        let graph = idle_soon();
        let mut r = Running::start(World::new(10_400), &graph);
        for time in &times[..4] {
            r.append(0, "a", *time);
        }
        r.pass(1_000);
        assert!(r.outputs().is_empty(), "{:?}", r.outputs());
        r.append(0, "a", times[4]);
        r.until(&["a 0=3"]);
        assert_eq!((r.count(LATE_RECORDS), r.count(FUTURE_RECORDS)), (0, 1));
        r.world.check(&graph);
    }
}

#[test]
fn n6_a_record_without_a_timestamp_ends_the_engine_or_is_skipped() {
    let mut r = Running::start(World::new(10_500), &fails_without_time());
    r.append(0, "a", 0);
    r.append(0, "a", -1);
    let error = r.world.run_to_error(&mut r.engine).to_string();
    assert!(error.contains("in-0@1") && error.contains("no_timestamp = skip"), "{error}");
    let mut r = Running::start(World::new(10_500), &skips_without_time());
    for time in [-1, 0, -1, 500, 1_500, -1] {
        r.append(0, "a", time);
    }
    r.until(&["a 0=2"]);
    r.until_read();
    assert_eq!(r.count(DROPPED_RECORDS), 3);
    let mut r = r.restart(&skips_without_time());
    r.append(0, "a", 2_500);
    r.until(&["a 0=2", "a 1000=1"]);
    assert_eq!(r.count(DROPPED_RECORDS), 0, "what was skipped is behind us");
}

#[test]
fn n6_a_bound_that_is_longer_than_all_time_so_far_closes_nothing() {
    let mut r = Running::start(World::new(10_600), &far_behind());
    for time in [0, 500, 1_500, 59_000] {
        r.append(0, "a", time);
    }
    r.pass(1_000);
    assert!(r.outputs().is_empty());
    r.append(0, "a", 61_000);
    r.until(&["a 0=2"]);
}

#[source(topic = "in", key = String, value = String, value_codec = Utf8, out_of_orderness = "5ms", idleness = "25ms", close_on_idle = "15ms", future_bound = "1s")]
struct Impatient;

/// Some records far ahead, some far behind.
fn uneven(r: &mut Random, n: u64) -> Fed {
    let record = even(r, n);
    let time = match r.below(12) {
        0 => record.time + 1_000_000_000,
        1 => record.time - 300,
        _ => record.time,
    };
    Fed { time, ..record }
}

#[test]
fn i06_idle_slow_late_and_future_partitions_under_faults_give_what_the_model_gives() {
    let graph = graph_of(|t| t.source::<Impatient>().process::<Close>().sink::<Out>());
    let counters = Counters::default();
    for seed in seeds(10_700, 16) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        counters.during(|| world.torment(&graph, 160, faults(seed), uneven));
        world.check_model(&graph, Closing::default());
        // Marks only rise, over restarts too.
        let mut last = Timestamp::MIN;
        for segment in world.recording.history(Epoch(u64::MAX)).into_values() {
            for entry in segment.entries {
                if let Entry::Control(Control::Mark(mark)) = entry {
                    assert!(mark.watermarks[0] >= last, "{last} after {:?}", mark.watermarks);
                    last = mark.watermarks[0];
                }
            }
        }
    }
    assert!(counters.get(LATE_RECORDS) > Some(0) && counters.get(FUTURE_RECORDS) > Some(0), "{counters:?}");
}
