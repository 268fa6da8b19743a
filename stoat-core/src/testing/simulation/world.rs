//! A world to run an engine in: a simulated broker, a disk that forgets, clocks that jump. What happens follows from a seed.

use std::collections::VecDeque;
use std::task::Waker;

use crate::broker::sim::{Faults, LogRecord, SimCluster};
use crate::config::Config;
use crate::engine::core::{Engine, EngineParts, State};
use crate::engine::net::recording::Recording;
use crate::engine::net::{DeterministicNet, NetBuild, NetSettings, build_lanes};
use crate::engine::writer::{StoreWriter, WriteJob};
#[cfg(test)]
use crate::error::Error;
use crate::error::Result;
use crate::id::TopicPartition;
use crate::store::twin::{Kept, TwinDisk};
use crate::time::Timestamp;
use crate::topology::graph::Graph;

#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % n
    }

    pub(crate) fn one_of<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

pub(crate) fn config(lanes: u32) -> Config {
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

/// Writes at some later poll, and now and then one store before the others. What an old engine left may so be written while a new one runs, even behind what that one
/// writes, as by a thread that slept meanwhile.
pub(crate) struct SlowWriter {
    /// Each with how many of its batches are written already.
    jobs: VecDeque<(WriteJob, usize)>,
    /// Left by old engines, and still to be written.
    stale: Vec<(WriteJob, usize)>,
    random: Random,
}

impl StoreWriter for SlowWriter {
    fn submit(&mut self, job: WriteJob) {
        let old = self.jobs.iter().take_while(|(j, _)| j.generation < job.generation).count();
        self.stale.extend(self.jobs.drain(..old));
        self.jobs.push_back((job, 0));
    }

    fn poll(&mut self, out: &mut Vec<(u64, Result<()>)>) {
        while !self.jobs.is_empty() && self.random.below(4) > 0 {
            let (job, written) = self.jobs.pop_front().expect("there is one");
            out.push((job.id, job.run_from(written)));
        }
        if let Some((job, written)) = self.jobs.front_mut()
            && let Some((store, batch)) = job.batches.get(*written)
            && store.apply(job.generation, batch).is_ok()
        {
            *written += 1;
        }
        while !self.stale.is_empty() && self.random.below(20) == 0 {
            let (job, written) = self.stale.remove(0);
            out.push((job.id, job.run_from(written)));
        }
    }

    fn notify(&self, waker: Waker) {
        waker.wake();
    }
}

pub(crate) const START: i64 = 1_000_000;

pub(crate) fn wall(now: u64) -> Timestamp {
    Timestamp(START + now as i64)
}

/// A process that was suspended comes back behind every time-out.
pub(crate) const SUSPENDED: u64 = 200_000;

pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) cluster: SimCluster,
    /// The topics that are read.
    pub(crate) sources: Vec<String>,
    pub(crate) disk: TwinDisk,
    pub(crate) recording: Recording,
    pub(crate) now: u64,
    /// How far the wall clock is off.
    pub(crate) skew: i64,
    pub(crate) ids: u64,
    pub(crate) random: Random,
    /// Settings of every engine, beside [`config`].
    pub(crate) settings: Vec<(&'static str, String)>,
    /// Topics that are compacted now and then; tombstones stay.
    pub(crate) compacted: &'static [&'static str],
    /// Whether the topology has schedules: then it never comes to rest by itself.
    scheduled: bool,
    /// In some runs the application is paused now and then, by a randomness of its own, so that other runs are what they were.
    pub(crate) pauses: Option<Random>,
}

impl World {
    /// A cluster without topics, an empty disk.
    pub(crate) fn empty(seed: u64) -> Self {
        Self {
            seed,
            cluster: SimCluster::new(seed),
            sources: Vec::new(),
            disk: TwinDisk::new(),
            recording: Recording::default(),
            now: 0,
            skew: 0,
            ids: 0,
            random: Random(seed.wrapping_mul(77) | 1),
            // In some runs an answer may come too late.
            settings: if seed.is_multiple_of(5) {
                let short = |key| (key, "300ms".to_owned());
                vec![short("stoat.commit.timeout"), short("stoat.kafka.transaction-timeout")]
            } else {
                Vec::new()
            },
            compacted: &[],
            scheduled: false,
            pauses: (seed % 4 == 1).then(|| Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)),
        }
    }

    pub(crate) fn wall(&self) -> Timestamp {
        Timestamp(wall(self.now).0 + self.skew)
    }

    pub(crate) fn set(&mut self, key: &'static str, value: &str) {
        self.settings.push((key, value.to_owned()));
    }

    pub(crate) fn config(&self, lanes: u32) -> Config {
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

    pub(crate) fn engine(&mut self, graph: &Graph, lanes: u32) -> Engine {
        let disk = self.disk.clone();
        self.engine_on(&disk, graph, lanes)
    }

    pub(crate) fn engine_on(&mut self, disk: &TwinDisk, graph: &Graph, lanes: u32) -> Engine {
        let parts = self.parts(disk, graph, lanes);
        Engine::new(parts, self.now)
    }

    pub(crate) fn parts(&mut self, disk: &TwinDisk, graph: &Graph, lanes: u32) -> EngineParts {
        self.ids += 1;
        self.scheduled = !graph.schedules.is_empty();
        let config = self.config(lanes);
        let seed = (self.seed ^ (self.ids << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let settings = NetSettings {
            credit: 1 + self.random.below(3) as u32,
            step_records: 1 + self.random.below(6) as usize,
            timers_per_mark: 1 + self.random.below(4) as usize,
            emit: config.emit_mode,
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
                let net = DeterministicNet::new(build_lanes(&build)?, seed).lazy(per_poll).impatient(100);
                Ok(recording.wrap(Box::new(net), &build))
            }),
            config,
            incarnation: format!("i{}", self.ids),
            seed,
        }
    }

    pub(crate) fn lanes(&mut self) -> u32 {
        self.random.one_of(&[1, 2, 3, 16])
    }

    /// One turn of an engine, a little later. One that is paused takes nothing.
    pub(crate) fn turn(&mut self, engine: &mut Engine) -> Result<()> {
        self.now += 1 + self.random.below(3);
        let (before, taken) = (engine.status().state, self.recording.taken());
        engine.advance(self.now, self.wall())?;
        if before == State::Paused && engine.status().state == State::Paused {
            assert_eq!(self.recording.taken(), taken, "records, marks or ticks while it is paused");
        }
        Ok(())
    }

    /// Pauses an engine and lets it go on, both at any moment; one that is paused is restarted in place now and then.
    fn pause_or_resume(&mut self, engine: &mut Engine) {
        let Some(random) = &mut self.pauses else { return };
        let (now, state, chance) = (self.now, engine.status().state, random.below(400));
        let wall = self.wall();
        let done = match state {
            State::Running if chance < 12 => engine.pause(now),
            State::Draining | State::Paused if chance < 12 => engine.resume(now, wall),
            State::Starting | State::Restoring if engine.is_pausing() && chance < 4 => engine.resume(now, wall),
            State::Draining | State::Paused if chance < 15 => {
                engine.restart();
                Ok(())
            }
            _ => Ok(()),
        };
        done.expect("it may be done in this state");
    }

    /// Clocks jump, and processes are suspended.
    pub(crate) fn jump(&mut self) {
        match self.random.below(300) {
            0 | 1 => self.skew += self.random.below(600) as i64 - 300,
            2 => self.now += SUSPENDED,
            _ => {}
        }
    }

    /// Between two runs a broker forgets a group's offsets, and retention deletes what was processed.
    pub(crate) fn forget(&mut self) {
        for topic in self.sources.clone() {
            let topic = topic.as_str();
            let p = self.random.below(self.cluster.partitions(topic).max(1) as u64) as i32;
            let tp = TopicPartition::new(topic, p);
            match self.random.below(8) {
                0 => self.cluster.set_committed("app", &tp, None),
                1 => {
                    if let Some(next) = self.cluster.committed("app", &tp) {
                        self.cluster.delete_before(topic, p, next);
                    }
                }
                _ => {}
            }
        }
    }

    pub(crate) fn crash(&mut self) {
        let batches = self.random.below(4) as usize;
        let torn_rows = self.random.below(3) as usize;
        self.disk.crash_keeping(|_, _| Kept { batches, torn_rows });
        if self.random.below(5) == 0 {
            self.disk = TwinDisk::new();
        }
    }

    /// Runs it while `records` are fed, with crashes, restarts with other lane counts and faults in between; then lets it
    /// come to rest. `feed` is told the number of the record.
    pub(crate) fn torment_with(
        &mut self,
        graph: &Graph,
        records: u64,
        faults: Faults,
        mut feed: impl FnMut(&mut Self, u64),
    ) {
        self.cluster.set_faults(faults);
        let lanes = self.lanes();
        let mut running = self.engine(graph, lanes);
        let (mut done, mut turns) = (0, 0);
        while done < records || turns < records {
            turns += 1;
            if done < records && self.random.below(2) == 0 {
                feed(self, done);
                done += 1;
            }
            if faults.outage > 0 {
                self.jump();
            }
            self.pause_or_resume(&mut running);
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
                if faults.outage > 0 {
                    self.forget();
                }
                let lanes = self.lanes();
                running = self.engine(graph, lanes);
            }
        }
        self.cluster.set_faults(Faults::default());
        self.cluster.deliver_late();
        self.finish(running);
    }

    /// Whether all input is processed and committed.
    fn is_read(&self) -> bool {
        let partitions = self.sources.iter().flat_map(|t| (0..self.cluster.partitions(t)).map(move |p| (t, p)));
        partitions.into_iter().all(|(topic, p)| {
            let end = self.cluster.log(topic, p).len() as i64;
            end == 0 || self.cluster.committed("app", &TopicPartition::new(topic.as_str(), p)) == Some(end)
        })
    }

    /// Runs an engine until it has settled and stopped; every error is a failure. Where schedules tick for ever, it is stopped
    /// some ticks after all input was processed.
    pub(crate) fn finish(&mut self, mut engine: Engine) {
        // What was fed last may not have been heard of yet.
        let (mut settled, mut turns) = (0, 0);
        while engine.status().state != State::Stopped {
            self.now += 1;
            if let Err(e) = engine.advance(self.now, self.wall()) {
                panic!("{e}");
            }
            let status = engine.status();
            if engine.is_pausing() {
                let _ = engine.resume(self.now, self.wall());
            }
            if status.state == State::Running {
                let rests = if self.scheduled { self.is_read() } else { status.run.settled };
                settled = if rests { settled + 1 } else { 0 };
                if settled > if self.scheduled { 300 } else { 50 } {
                    engine.stop();
                }
            }
            turns += 1;
            assert!(turns < 100_000, "no progress: {status:?}");
        }
    }

    /// Starts an engine, lets it work everything off, and stops it.
    #[cfg(test)]
    pub(crate) fn run(&mut self, graph: &Graph, lanes: u32) {
        let engine = self.engine(graph, lanes);
        self.finish(engine);
    }

    #[cfg(test)]
    pub(crate) fn run_to_error(&mut self, engine: &mut Engine) -> Error {
        for _ in 0..20_000 {
            self.now += 1;
            if let Err(e) = engine.advance(self.now, self.wall()) {
                return e;
            }
        }
        panic!("it did not end: {:?}", engine.status());
    }

    pub(crate) fn records(&self, topic: &str) -> Vec<LogRecord> {
        let all = 0..self.cluster.partitions(topic);
        all.flat_map(|p| self.cluster.log(topic, p)).filter(|r| !r.marker).collect()
    }
}

/// Every fault, some of them often.
pub(crate) const FAULTS: Faults = Faults {
    lost_answer: 20,
    lost_request: 20,
    late_request: 20,
    timed_out: 20,
    aborted: 20,
    init_failed: 100,
    slow: 300,
    retriable: 10,
    fatal: 5,
    expired: 5,
    again_failed: 200,
    late_answer: 10,
    ask_failed: 100,
    outage: 200,
};

#[cfg(test)]
/// None for each third seed: there is only what crashes do.
pub(crate) fn faults(seed: u64) -> Faults {
    if seed.is_multiple_of(3) { Faults::default() } else { FAULTS }
}
