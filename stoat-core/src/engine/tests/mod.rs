//! The whole engine on the simulated broker: seeded faults, crashes, lane counts, against models.
//!
//! `STOAT_SIM_SEEDS=n` runs n times as many seeds of each test, `STOAT_SIM_BASE=b` others than those that always run. A
//! failure names its seed; `STOAT_SIM_SEED=s` runs that one only. What ever failed stands in [`failed`] and runs always.

mod affinity;
mod check;
mod complaints;
mod counts;
mod failed;
mod faults;
mod gates;
mod model;
mod money;
mod owners;
mod pause;
mod random;
mod remedies;
mod restart;
mod schedule_reads;
mod schedules;
mod shapes;
mod stalls;
mod start;
mod stores;
mod time;
mod timers;
mod waiting;
mod writes;

use std::task::Waker;

use super::core::{Engine, EngineParts, State};
use super::net::{DeterministicNet, NetBuild, build_lanes};
use super::writer::{StoreWriter, WriteJob};
use crate::broker::sim::Faults;
use crate::error::{Error, Result};
use crate::id::TopicPartition;
use crate::prelude::*;
use crate::store::twin::{Kept, TwinDisk};
use crate::testing::simulation::world::{Random, START, World, config, faults, wall};
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

/// So many seeds apart are those of two bases.
const BASE: u64 = 1_000_000;

/// The seeds of a test: those that ever failed, and `n` from `first`, or as many times that as `STOAT_SIM_SEEDS` says.
fn seeds(first: u64, n: u64) -> std::vec::IntoIter<u64> {
    let number = |name| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    if let Some(seed) = number("STOAT_SIM_SEED") {
        return vec![seed].into_iter();
    }
    let start = first + number("STOAT_SIM_BASE").unwrap_or(0) * BASE;
    let open = if number("STOAT_SIM_OPEN").is_some() { failed::OPEN } else { &[] };
    let failed = failed::FAILED.iter().chain(open).filter(|(test, _)| *test == first).map(|(_, seed)| *seed);
    let all: Vec<u64> = failed.chain(start..start + n * number("STOAT_SIM_SEEDS").unwrap_or(1)).collect();
    // Counted by `cargo xtask sim`.
    eprintln!("seeds: {first} {}", all.len());
    all.into_iter()
}

/// Says which seed a panic belongs to.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let test = std::thread::current().name().unwrap_or_default().to_owned();
            eprintln!("failing seed: {} (STOAT_SIM_SEED={} runs it alone in {test})", self.0, self.0);
        }
    }
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

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self::empty(seed);
        for topic in ["in", "in2"] {
            world.cluster.create(topic, PARTITIONS);
            world.sources.push(topic.to_owned());
        }
        for topic in ["out", "counts", "late", "letters"] {
            world.cluster.create(topic, 2);
        }
        world
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

    /// As [`World::torment_with`], of records that `record` makes.
    fn torment(
        &mut self,
        graph: &Graph,
        records: u64,
        faults: Faults,
        mut record: impl FnMut(&mut Random, u64) -> Fed,
    ) {
        self.torment_with(graph, records, faults, |world, n| {
            let record = record(&mut world.random, n);
            world.feed(&record);
        });
    }
}

fn string(bytes: Option<&Vec<u8>>) -> String {
    String::from_utf8(bytes.expect("there is one").clone()).expect("UTF-8")
}
