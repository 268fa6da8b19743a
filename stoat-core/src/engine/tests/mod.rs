//! The whole engine on the simulated broker: seeded faults, crashes, lane counts, against models.
//!
//! `STOAT_SIM_SEEDS=n` runs n times as many seeds of each test. A failure names its seed; `STOAT_SIM_SEED=s` runs that one only.

mod affinity;
mod check;
mod counts;
mod faults;
mod gates;
mod model;
mod money;
mod owners;
mod remedies;
mod restart;
mod schedules;
mod shapes;
mod stalls;
mod start;
mod stores;
mod time;
mod timers;

use std::collections::VecDeque;
use std::task::Waker;

use super::core::{Engine, EngineParts, State};
use super::net::recording::Recording;
use super::net::{DeterministicNet, NetBuild, NetSettings, build_lanes};
use super::writer::{StoreWriter, WriteJob};
use crate::broker::sim::{Faults, LogRecord, SimCluster};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::prelude::*;
use crate::store::twin::{Kept, TwinDisk};
use crate::topology::graph::Graph;

#[source(topic = "in", key = String, value = String, value_codec = Utf8, out_of_orderness = "5ms", idleness = "0s")]
struct In;

#[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
struct Out;

fn graph_of(declare: fn(&mut Topology)) -> Graph {
    let mut t = Topology::new("test");
    declare(&mut t);
    t.build().expect("a test's topology is right")
}

/// The seeds of a test: `n` of them from `first`, or as many times that as `STOAT_SIM_SEEDS` says.
fn seeds(first: u64, n: u64) -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("STOAT_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => first..first + n * number("STOAT_SIM_SEEDS").unwrap_or(1),
    }
}

/// Says which seed a panic belongs to.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing seed: {} (STOAT_SIM_SEED={} runs it alone)", self.0, self.0);
        }
    }
}

#[derive(Clone)]
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
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

/// Writes at some later poll. What an old engine left may so be written while a new one runs, even behind what that one
/// writes, as by a thread that slept meanwhile.
struct SlowWriter {
    jobs: VecDeque<WriteJob>,
    /// Left by old engines, and still to be written.
    stale: Vec<WriteJob>,
    random: Random,
}

impl StoreWriter for SlowWriter {
    fn submit(&mut self, job: WriteJob) {
        let old = self.jobs.iter().take_while(|j| j.generation < job.generation).count();
        self.stale.extend(self.jobs.drain(..old));
        self.jobs.push_back(job);
    }

    fn poll(&mut self, out: &mut Vec<(u64, Result<()>)>) {
        while !self.jobs.is_empty() && self.random.below(4) > 0 {
            let job = self.jobs.pop_front().expect("there is one");
            out.push((job.id, job.run()));
        }
        while !self.stale.is_empty() && self.random.below(20) == 0 {
            let job = self.stale.remove(0);
            out.push((job.id, job.run()));
        }
    }

    fn notify(&self, waker: Waker) {
        waker.wake();
    }
}

const START: i64 = 1_000_000;

fn wall(now: u64) -> Timestamp {
    Timestamp(START + now as i64)
}

/// An input record.
struct Fed {
    topic: &'static str,
    key: String,
    value: String,
    time: i64,
}

fn fed(key: String, value: String, time: i64) -> Fed {
    Fed { topic: "in", key, value, time }
}

const PARTITIONS: i32 = 3;

struct World {
    seed: u64,
    cluster: SimCluster,
    disk: TwinDisk,
    recording: Recording,
    now: u64,
    ids: u64,
    random: Random,
    /// Settings of every engine, beside [`config`].
    settings: Vec<(&'static str, String)>,
    /// Topics that are compacted now and then; tombstones stay.
    compacted: &'static [&'static str],
}

impl World {
    fn new(seed: u64) -> Self {
        let cluster = SimCluster::new(seed);
        for topic in ["in", "in2"] {
            cluster.create(topic, PARTITIONS);
        }
        for topic in ["out", "counts", "late", "letters"] {
            cluster.create(topic, 2);
        }
        Self {
            seed,
            cluster,
            disk: TwinDisk::new(),
            recording: Recording::default(),
            now: 0,
            ids: 0,
            random: Random(seed.wrapping_mul(77) | 1),
            settings: Vec::new(),
            compacted: &[],
        }
    }

    fn set(&mut self, key: &'static str, value: &str) {
        self.settings.push((key, value.to_owned()));
    }

    fn config(&self, lanes: u32) -> Config {
        let mut config = config(lanes);
        for (k, v) in &self.settings {
            if *k == "stoat.memory.budget" {
                // Smaller ones than a user may choose.
                config.memory_budget = v.parse().unwrap();
            } else {
                config.set(k, v).unwrap();
            }
        }
        config
    }

    fn engine(&mut self, graph: &Graph, lanes: u32) -> Engine {
        let disk = self.disk.clone();
        self.engine_on(&disk, graph, lanes)
    }

    fn engine_on(&mut self, disk: &TwinDisk, graph: &Graph, lanes: u32) -> Engine {
        let parts = self.parts(disk, graph, lanes);
        Engine::new(parts, self.now)
    }

    fn parts(&mut self, disk: &TwinDisk, graph: &Graph, lanes: u32) -> EngineParts {
        self.ids += 1;
        let config = self.config(lanes);
        let seed = (self.seed ^ (self.ids << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let settings = NetSettings {
            credit: 1 + self.random.below(3) as u32,
            step_records: 1 + self.random.below(6) as usize,
            timers_per_mark: 1 + self.random.below(4) as usize,
            ..NetSettings::default()
        };
        // Lanes that are always at rest, that lag a little, that lag far behind.
        let per_poll = self.random.one_of(&[0, 12, 40, 200]);
        let cache = [0, 2 << 10, 16 << 10, usize::MAX, usize::MAX, usize::MAX][(seed / 2 % 6) as usize];
        let recording = self.recording.clone();
        EngineParts {
            graph: graph.clone(),
            broker: Box::new(self.cluster.client("app", "app")),
            stores: Box::new(disk.open_set()),
            writer: Box::new(SlowWriter { jobs: VecDeque::new(), stale: Vec::new(), random: Random(seed) }),
            net: Box::new(move |build: &NetBuild<'_>| {
                let build = NetBuild {
                    settings: NetSettings { checks: build.settings.checks, ..settings },
                    // Now and then nothing clean is kept, or little, so that reads go to the store, and timers that are
                    // not the next two of a lane are far.
                    cache_budget: build.cache_budget.min(cache),
                    ..build.clone()
                };
                let net = DeterministicNet::new(build_lanes(&build)?, seed).lazy(per_poll);
                Ok(recording.wrap(Box::new(net), &build))
            }),
            config,
            incarnation: format!("i{}", self.ids),
            seed,
        }
    }

    fn lanes(&mut self) -> u32 {
        self.random.one_of(&[1, 2, 3, 16])
    }

    fn feed(&mut self, record: &Fed) {
        let partition = crate::hash::partition_for(record.key.as_bytes(), PARTITIONS);
        let mut value = record.value.as_bytes().to_vec();
        if let Some(rest) = record.value.strip_prefix('\u{fffd}') {
            // What cannot be decoded.
            value = [b"\xff", rest.as_bytes()].concat();
        }
        self.cluster.append(record.topic, partition, record.key.as_bytes(), &value, record.time);
    }

    /// One turn of an engine, a little later.
    fn turn(&mut self, engine: &mut Engine) -> Result<()> {
        self.now += 1 + self.random.below(3);
        engine.advance(self.now, wall(self.now)).map(drop)
    }

    fn crash(&mut self) {
        let batches = self.random.below(4) as usize;
        let torn_rows = self.random.below(3) as usize;
        self.disk.crash_keeping(|_, _| Kept { batches, torn_rows });
        if self.random.below(5) == 0 {
            self.disk = TwinDisk::new();
        }
    }

    /// Feeds `records`, with crashes, restarts with other lane counts and faults in between; then lets it come to rest.
    fn torment(
        &mut self,
        graph: &Graph,
        records: u64,
        faults: Faults,
        mut record: impl FnMut(&mut Random, u64) -> Fed,
    ) {
        self.cluster.set_faults(faults);
        let lanes = self.lanes();
        let mut running = self.engine(graph, lanes);
        let (mut done, mut turns) = (0, 0);
        while done < records || turns < records {
            turns += 1;
            if done < records && self.random.below(2) == 0 {
                let record = record(&mut self.random, done);
                self.feed(&record);
                done += 1;
            }
            if let Err(e) = self.turn(&mut running) {
                panic!("{e}");
            }
            if self.random.below(100) == 0 {
                self.cluster.deliver_late();
            }
            if self.random.below(40) == 0 {
                for topic in self.compacted {
                    self.cluster.compact(topic, false);
                }
            }
            if self.random.below(100) == 0 {
                drop(running);
                self.crash();
                let lanes = self.lanes();
                running = self.engine(graph, lanes);
            }
        }
        self.cluster.set_faults(Faults::default());
        self.cluster.deliver_late();
        self.finish(running);
    }

    /// Runs an engine until it has settled and stopped; every error is a failure.
    fn finish(&mut self, mut engine: Engine) {
        // What was fed last may not have been heard of yet.
        let (mut settled, mut turns) = (0, 0);
        while engine.status().state != State::Stopped {
            self.now += 1;
            if let Err(e) = engine.advance(self.now, wall(self.now)) {
                panic!("{e}");
            }
            let status = engine.status();
            if status.state == State::Running {
                settled = if status.run.settled { settled + 1 } else { 0 };
                if settled > 50 {
                    engine.stop();
                }
            }
            turns += 1;
            assert!(turns < 100_000, "no progress: {status:?}");
        }
    }

    /// Starts an engine, lets it work everything off, and stops it.
    fn run(&mut self, graph: &Graph, lanes: u32) {
        let engine = self.engine(graph, lanes);
        self.finish(engine);
    }

    fn run_to_error(&mut self, engine: &mut Engine) -> Error {
        for _ in 0..20_000 {
            self.now += 1;
            if let Err(e) = engine.advance(self.now, wall(self.now)) {
                return e;
            }
        }
        panic!("it did not end: {:?}", engine.status());
    }

    fn records(&self, topic: &str) -> Vec<LogRecord> {
        let all = 0..self.cluster.partitions(topic);
        all.flat_map(|p| self.cluster.log(topic, p)).filter(|r| !r.marker).collect()
    }
}

fn string(bytes: Option<&Vec<u8>>) -> String {
    String::from_utf8(bytes.expect("there is one").clone()).expect("UTF-8")
}

const FAULTS: Faults = Faults {
    lost_answer: 20,
    lost_request: 20,
    late_request: 20,
    timed_out: 20,
    aborted: 20,
    init_failed: 100,
    slow: 300,
};

/// None for each third seed: there is only what crashes do.
fn faults(seed: u64) -> Faults {
    if seed.is_multiple_of(3) { Faults::default() } else { FAULTS }
}
