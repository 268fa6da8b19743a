//! The whole engine on the simulated broker: seeded faults, crashes, lane counts, against models.

use std::collections::BTreeMap;
use std::time::Duration;

use super::core::{Engine, EngineParts, State};
use super::message::LaneNet;
use super::net::{DeterministicNet, NetBuild, NetSettings, build_lanes};
use super::writer::InlineWriter;
use crate::broker::sim::{Faults, LogRecord, SimCluster};
use crate::config::Config;
use crate::error::ErrorKind;
use crate::id::TopicPartition;
use crate::prelude::*;
use crate::store::twin::{Kept, TwinDisk};
use crate::topology::graph::Graph;

#[source(topic = "in", key = String, value = String, value_codec = Utf8, out_of_orderness = "5ms", idleness = "0s")]
struct In;

#[sink(topic = "counts", key = String, value = u64, value_codec = Be)]
struct CountsOut;

#[sink(topic = "sessions", key = String, value = String, value_codec = Utf8)]
struct SessionsOut;

/// Words of the value, counted behind a re-key.
fn counts(t: &mut Topology) {
    let lines = t.source::<In>();
    let words = lines
        .flat_map_values(|v: String| v.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .group_by(|_key, word: &String| word.clone());
    let counted = words.count().named("counted");
    counted.to_stream().sink::<CountsOut>();
}

/// Closes what was open 20 ms after the last record of a key.
#[processor(input = (String, String), output = String)]
struct Close {
    #[state(codec = Utf8)]
    open: Keyed<String>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl Close {
    #[process]
    fn on_record(&mut self, record: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        let open = self.open.take()?;
        self.open.put(open.map_or(record.value.clone(), |o| format!("{o},{}", record.value)))?;
        self.idle.set(record.timestamp + Duration::from_millis(20))
    }

    #[on_timer(idle)]
    fn close(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(open) = self.open.take()? {
            cx.forward(open)?;
        }
        Ok(())
    }
}

fn closes(t: &mut Topology) {
    let records = t.source::<In>();
    let closed = records.process::<Close>();
    closed.sink::<SessionsOut>();
}

fn graph_of(declare: fn(&mut Topology)) -> Result<Graph> {
    let mut t = Topology::new("test");
    declare(&mut t);
    t.build()
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }
}

fn config(lanes: u32) -> Config {
    let mut c = Config::default();
    for (k, v) in [
        ("stoat.application-id", "app"),
        ("stoat.commit.interval", "20ms"),
        ("stoat.watermark.interval", "7ms"),
        ("stoat.state.flush-epochs", "3"),
        ("stoat.restart.max-faults", "1000"),
        ("stoat.kafka.connect-timeout", "1h"),
    ] {
        c.set(k, v).unwrap();
    }
    c.lanes = Some(lanes);
    c
}

fn engine(cluster: &SimCluster, disk: &TwinDisk, graph: Graph, config: Config, id: u64, now: u64) -> Engine {
    let seed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    Engine::new(
        EngineParts {
            graph,
            broker: Box::new(cluster.client("app", "app")),
            stores: Box::new(disk.open_set()),
            writer: Box::new(InlineWriter::default()),
            net: Box::new(move |build: &NetBuild<'_>| {
                let settings = NetSettings { credit: 2, step_records: 5, timers_per_mark: 3 };
                let build = NetBuild { settings, ..build.clone() };
                Ok(Box::new(DeterministicNet::new(build_lanes(&build)?, seed)) as Box<dyn LaneNet>)
            }),
            config,
            incarnation: format!("i{id}"),
            seed,
        },
        now,
    )
}

const START: i64 = 1_000_000;

fn wall(now: u64) -> Timestamp {
    Timestamp(START + now as i64)
}

/// Runs an engine until it has settled and stopped; every error is a failure.
fn finish(engine: &mut Engine, now: &mut u64, what: &str) {
    let (mut settled, mut turns) = (false, 0);
    while engine.status().state != State::Stopped {
        *now += 1;
        engine.advance(*now, wall(*now)).unwrap_or_else(|e| panic!("{what}: {e}"));
        if engine.status().run.settled && !settled {
            settled = true;
            engine.stop();
        }
        turns += 1;
        assert!(turns < 200_000, "{what}: no progress: {:?}", engine.status());
    }
}

struct World {
    cluster: SimCluster,
    disk: TwinDisk,
    now: u64,
    ids: u64,
    random: Random,
}

impl World {
    fn new(seed: u64) -> Self {
        let cluster = SimCluster::new(seed);
        cluster.create("in", 3);
        cluster.create("counts", 2);
        cluster.create("sessions", 2);
        Self { cluster, disk: TwinDisk::new(), now: 0, ids: 0, random: Random(seed.wrapping_mul(77) | 1) }
    }

    fn engine(&mut self, graph: Graph, lanes: u32) -> Engine {
        self.ids += 1;
        engine(&self.cluster, &self.disk, graph, config(lanes), self.ids, self.now)
    }

    /// Feeds `records`, with crashes, restarts with other lane counts and faults in between; then lets it come to rest.
    fn torment(
        &mut self,
        graph: &Graph,
        records: u64,
        faults: Faults,
        mut record: impl FnMut(&mut Random, u64) -> (String, String, i64),
        seed: u64,
    ) {
        self.cluster.set_faults(faults);
        let lanes = [1, 2, 3, 16][self.random.below(4) as usize];
        let mut running = self.engine(graph.clone(), lanes);
        let mut fed = 0;
        let mut turns = 0;
        while fed < records || turns < 300 {
            turns += 1;
            self.now += 1 + self.random.below(3);
            if fed < records && self.random.below(3) == 0 {
                let (key, value, time) = record(&mut self.random, fed);
                let partition = crate::hash::partition_for(key.as_bytes(), 3);
                self.cluster.append("in", partition, key.as_bytes(), value.as_bytes(), time);
                fed += 1;
            }
            if let Err(e) = running.advance(self.now, wall(self.now)) {
                panic!("seed {seed}: {e}");
            }
            if self.random.below(150) == 0 {
                self.cluster.deliver_late();
            }
            if self.random.below(120) == 0 {
                drop(running);
                let batches = self.random.below(4) as usize;
                let torn_rows = self.random.below(3) as usize;
                self.disk.crash_keeping(|_, _| Kept { batches, torn_rows });
                if self.random.below(5) == 0 {
                    self.disk = TwinDisk::new();
                }
                let lanes = [1, 2, 3, 16][self.random.below(4) as usize];
                running = self.engine(graph.clone(), lanes);
            }
        }
        self.cluster.set_faults(Faults::default());
        self.cluster.deliver_late();
        finish(&mut running, &mut self.now, &format!("seed {seed}"));
    }

    fn input(&self) -> Vec<Vec<LogRecord>> {
        (0..3).map(|p| self.cluster.log("in", p)).collect()
    }
}

fn string(bytes: &Option<Vec<u8>>) -> String {
    String::from_utf8(bytes.clone().expect("there is one")).expect("UTF-8")
}

const FAULTS: Faults =
    Faults { lost_answer: 20, lost_request: 20, late_request: 20, timed_out: 20, aborted: 20, init_failed: 100 };

#[test]
fn i03_i09_counts_are_exact_under_crashes_lost_answers_and_other_lane_counts() {
    let graph = graph_of(counts).unwrap();
    for seed in 0..60 {
        let mut world = World::new(seed);
        let faults = if seed % 3 == 0 { Faults::default() } else { FAULTS };
        let line = |r: &mut Random, n: u64| {
            let words: Vec<String> = (0..=r.below(3)).map(|_| format!("w{}", r.below(7))).collect();
            (format!("k{}", r.below(10)), words.join(" "), START + n as i64)
        };
        world.torment(&graph, 300, faults, line, seed);
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        for record in world.input().iter().flatten() {
            for word in string(&record.value).split(' ') {
                *model.entry(word.to_owned()).or_default() += 1;
            }
        }
        let mut seen: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for record in (0..2).flat_map(|p| world.cluster.log("counts", p)).filter(|r| !r.marker) {
            let n = u64::from_be_bytes(record.value.clone().unwrap().try_into().unwrap());
            seen.entry(string(&record.key)).or_default().push(n);
        }
        let want: BTreeMap<_, Vec<u64>> = model.iter().map(|(w, n)| (w.clone(), (1..=*n).collect())).collect();
        assert_eq!(seen, want, "seed {seed}: each word's updates are 1, 2, 3 and so on");
        let mut state = BTreeMap::new();
        let log = "app-counted-changelog";
        for record in (0..world.cluster.partitions(log)).flat_map(|p| world.cluster.log(log, p)).filter(|r| !r.marker) {
            state.insert(string(&record.key), u64::from_be_bytes(record.value.unwrap().try_into().unwrap()));
        }
        assert_eq!(state, model, "seed {seed}: the changelog holds the state");
        for p in 0..3 {
            let tp = TopicPartition::new("in", p);
            assert_eq!(world.cluster.committed("app", &tp), Some(world.cluster.log("in", p).len() as i64));
        }
    }
}

#[test]
fn i11_i15_timers_close_each_session_once_under_crashes() {
    let graph = graph_of(closes).unwrap();
    for seed in 1_000..1_060 {
        let mut world = World::new(seed);
        let faults = if seed % 3 == 0 { Faults::default() } else { FAULTS };
        // Event time runs evenly, up to 5 ms out of order; the last records of each partition push the time on.
        let record = |r: &mut Random, n: u64| {
            let time = START + (n * 4) as i64 - r.below(5) as i64;
            (format!("k{}", r.below(12)), format!("v{n}"), time)
        };
        world.torment(&graph, 300, faults, record, seed);
        for p in 0..3 {
            world.cluster.append("in", p, format!("end{p}").as_bytes(), b"end", START + 1_000_000);
        }
        let mut last = world.engine(graph.clone(), 3);
        finish(&mut last, &mut world.now, &format!("seed {seed}"));
        // Each key's records as they lie in its partition; a session ends where the watermark, which no record of this
        // key can hold back by more than the other partitions do, has passed it. What is certain whatever the
        // interleaving: every value once, in order, and no session with a gap of more than 20 + 5 ms inside.
        let mut want: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for r in world.input().iter().flatten() {
            let key = string(&r.key);
            if !key.starts_with("end") {
                want.entry(key).or_default().push(string(&r.value));
            }
        }
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for r in (0..2).flat_map(|p| world.cluster.log("sessions", p)).filter(|r| !r.marker) {
            seen.entry(string(&r.key)).or_default().extend(string(&r.value).split(',').map(str::to_owned));
        }
        assert_eq!(seen, want, "seed {seed}");
    }
}

#[test]
fn i10_of_two_processes_exactly_one_goes_on() {
    let graph = graph_of(counts).unwrap();
    for seed in 0..100 {
        let mut world = World::new(seed);
        let disk = TwinDisk::new();
        let mut a = world.engine(graph.clone(), 2);
        let mut b = engine(&world.cluster, &disk, graph.clone(), config(3), 99, 0);
        let (mut ended_a, mut ended_b) = (None, None);
        let mut fed = 0;
        for turn in 0..4_000 {
            world.now += 1;
            if turn % 5 == 0 && fed < 200 {
                world.cluster.append("in", fed % 3, format!("k{fed}").as_bytes(), b"x", START + i64::from(fed));
                fed += 1;
            }
            if ended_a.is_none() && world.random.below(3) > 0 {
                ended_a = a.advance(world.now, wall(world.now)).err();
            }
            if turn > 100 + seed * 5 && ended_b.is_none() && world.random.below(3) > 0 {
                ended_b = b.advance(world.now, wall(world.now)).err();
            }
        }
        let ended: Vec<_> = [&ended_a, &ended_b].into_iter().flatten().collect();
        assert_eq!(ended.len(), 1, "seed {seed}: {ended:?}");
        assert_eq!(ended[0].kind(), ErrorKind::Fenced, "seed {seed}: {}", ended[0]);
        assert_eq!(ended[0].exit_code(), 3);
        let mut winner = if ended_a.is_some() { b } else { a };
        finish(&mut winner, &mut world.now, &format!("seed {seed}"));
        let mut seen = Vec::new();
        for r in (0..2).flat_map(|p| world.cluster.log("counts", p)).filter(|r| !r.marker) {
            seen.push(u64::from_be_bytes(r.value.unwrap().try_into().unwrap()));
        }
        seen.sort_unstable();
        assert_eq!(seen, (1..=200).collect::<Vec<_>>(), "seed {seed}: nothing lost, nothing doubled");
    }
}

#[test]
fn n1_offsets_that_a_group_lost_are_written_again_and_foreign_ones_stop_the_start() {
    let graph = graph_of(counts).unwrap();
    let mut world = World::new(5);
    for n in 0..30 {
        world.cluster.append("in", n % 3, b"k", b"x", START + i64::from(n));
    }
    let mut first = world.engine(graph.clone(), 2);
    finish(&mut first, &mut world.now, "first");
    let tp = TopicPartition::new("in", 1);
    world.cluster.set_committed("app", &tp, None);
    let mut second = world.engine(graph.clone(), 2);
    finish(&mut second, &mut world.now, "second");
    assert_eq!(world.cluster.committed("app", &tp), Some(10), "written again from the epoch record");
    let outputs =
        |w: &World| (0..2).map(|p| w.cluster.log("counts", p).iter().filter(|r| !r.marker).count()).sum::<usize>();
    assert_eq!(outputs(&world), 30, "nothing twice");
    world.cluster.set_committed("app", &tp, Some(3));
    let mut third = world.engine(graph.clone(), 2);
    let error = run_to_error(&mut third, &mut world.now);
    assert!(error.contains("in-1: epoch record 10, group 3") && error.contains("stoat.start.offsets"), "{error}");
    world.cluster.delete("app-stoat-epochs");
    world.cluster.set_committed("app", &tp, Some(10));
    let mut fourth = world.engine(graph, 2);
    let error = run_to_error(&mut fourth, &mut world.now);
    assert!(error.contains("app-counted-changelog") && error.contains("stoat.start.take-over"), "{error}");
}

fn run_to_error(engine: &mut Engine, now: &mut u64) -> String {
    for _ in 0..10_000 {
        *now += 1;
        if let Err(e) = engine.advance(*now, wall(*now)) {
            return e.to_string();
        }
    }
    panic!("it did not end: {:?}", engine.status());
}

#[test]
fn n18_a_missing_or_deleted_topic_is_named_with_its_nearest() {
    let graph = graph_of(counts).unwrap();
    let mut world = World::new(9);
    world.cluster.delete("in");
    world.cluster.create("inn", 1);
    let mut e = world.engine(graph.clone(), 2);
    let error = run_to_error(&mut e, &mut world.now);
    assert!(error.contains("topic `in` does not exist: did you mean"), "{error}");
    let mut world = World::new(9);
    let mut e = world.engine(graph, 2);
    for _ in 0..200 {
        world.now += 1;
        e.advance(world.now, wall(world.now)).unwrap();
    }
    assert_eq!(e.status().state, State::Running);
    world.cluster.delete("in");
    let error = run_to_error(&mut e, &mut world.now);
    assert!(error.contains("`in` was deleted while"), "{error}");
}

#[test]
fn n9_latest_applies_once_and_a_new_partition_starts_at_its_beginning() {
    let graph = graph_of(counts).unwrap();
    let mut world = World::new(3);
    for n in 0..5 {
        world.cluster.append("in", 0, b"k", b"old", START + n);
    }
    let start = |world: &mut World| {
        world.ids += 1;
        let mut c = config(2);
        c.set("stoat.start.reset", "latest").unwrap();
        engine(&world.cluster, &world.disk, graph_of(counts).unwrap(), c, world.ids, world.now)
    };
    let mut first = start(&mut world);
    finish(&mut first, &mut world.now, "first");
    for n in 5..10 {
        world.cluster.append("in", 0, b"k", b"new", START + n);
    }
    let mut second = start(&mut world);
    finish(&mut second, &mut world.now, "second");
    let values: Vec<String> =
        (0..2).flat_map(|p| world.cluster.log("counts", p)).filter(|r| !r.marker).map(|r| string(&r.key)).collect();
    assert_eq!(values, vec!["new"; 5]);
    drop(graph);
}
