//! A process ends before, between and after its durable writes: each transaction, each initialisation of the producer, each
//! batch of a store, each flush. And what the broker deletes in the meantime.

use super::counts::{Counts, counts, line};
use super::model::Model;
use super::timers::{Closing, closes};
use super::*;
use crate::broker::sim::Fuse;

impl World {
    /// Starts an engine whose process ends with its `writes`-th durable write; `true`: it came to its end before.
    fn burn(&mut self, graph: &Graph, fuse: &Fuse, writes: u64, feed: &mut dyn FnMut(&mut Self) -> bool) -> bool {
        self.cluster.set_fuse(fuse.clone());
        self.disk.set_fuse(fuse.clone());
        fuse.set(Some(writes));
        let lanes = self.lanes();
        let mut engine = self.engine(graph, lanes);
        let (mut settled, mut stopped, mut turns) = (0, false, 0);
        while !fuse.blown() && !stopped {
            turns += 1;
            assert!(turns < 100_000, "no progress: {:?}", engine.status());
            let more = turns % 4 == 0 && feed(self);
            let result = self.turn(&mut engine);
            if let Err(e) = result
                && !fuse.blown()
            {
                panic!("{e}");
            }
            let status = engine.status();
            settled = if status.state == State::Running && status.run.settled && !more { settled + 1 } else { 0 };
            if settled > 50 {
                engine.stop();
            }
            stopped = status.state == State::Stopped;
        }
        let ended = !fuse.blown();
        drop(engine);
        fuse.set(None);
        ended
    }
}

/// Ends a process at each of its durable writes, and the next one at one of its first; what is left on disk differs too.
fn at_each_write<M: Model>(
    graph: &Graph,
    first: u64,
    model: fn() -> M,
    mut record: impl FnMut(&mut Random, u64) -> Fed,
) {
    for seed in seeds(first, 2) {
        let _seed = Seed(seed);
        let mut writes = 0;
        loop {
            let mut world = World::new(seed);
            let mut fed = 0;
            let mut feed = |world: &mut World| {
                if fed < 60 {
                    let record = record(&mut world.random, fed);
                    world.feed(&record);
                    fed += 1;
                }
                fed < 60
            };
            let fuse = Fuse::default();
            let ended = world.burn(graph, &fuse, writes, &mut feed);
            if !ended {
                // Nothing that was not flushed, or all of it, or a part and a torn batch.
                let kept = [
                    Kept::default(),
                    Kept { batches: usize::MAX, torn_rows: 0 },
                    Kept { batches: writes as usize % 4, torn_rows: 1 },
                ][writes as usize % 3];
                world.disk.crash_keeping(|_, _| kept);
                if !world.burn(graph, &fuse, writes % 7, &mut feed) {
                    world.disk.crash_keeping(|_, _| kept);
                }
            }
            while feed(&mut world) {}
            world.run(graph, 3);
            world.check_model(graph, model());
            for p in 0..PARTITIONS {
                let end = world.cluster.log("in", p).len() as i64;
                let committed = world.cluster.committed("app", &TopicPartition::new("in", p));
                assert_eq!(committed.unwrap_or(0), end, "all input was processed, after {writes} writes");
            }
            if ended {
                break;
            }
            writes += 1;
        }
        assert!(writes > 15, "only {writes} durable writes");
    }
}

#[test]
fn i03_i11_a_process_that_ends_at_any_durable_write_loses_and_doubles_nothing() {
    at_each_write(&graph_of(counts), 7_000, Counts::default, line);
}

#[test]
fn t28_i15_timers_fire_once_whatever_write_a_process_ends_at() {
    at_each_write(&graph_of(closes), 7_050, Closing::default, |r, n| {
        fed(format!("k{}", r.below(5)), n.to_string(), START + (n * 6) as i64)
    });
}

#[test]
fn i02_i11_input_that_was_deleted_before_it_was_processed_is_refused_and_named() {
    let graph = graph_of(counts);
    let mut world = World::new(7_101);
    for n in 0..30 {
        world.cluster.append("in", n % 3, b"k", b"x", START + i64::from(n));
    }
    world.run(&graph, 2);
    for n in 30..60 {
        world.cluster.append("in", n % 3, b"k", b"x", START + i64::from(n));
    }
    // Up to what was processed nothing is missed.
    world.cluster.delete_before("in", 1, 10);
    let engine = world.engine(&graph, 2);
    drop(engine);
    world.cluster.delete_before("in", 1, 12);
    let mut engine = world.engine(&graph, 2);
    let error = world.run_to_error(&mut engine).to_string();
    assert!(error.contains("in-1") && error.contains("10"), "{error}");
    assert_eq!(
        world.cluster.committed("app", &TopicPartition::new("in", 1)),
        Some(10),
        "nothing was committed behind it"
    );
}

#[test]
fn i02_partitions_that_are_added_are_read_from_their_beginning_after_a_restart() {
    let graph = graph_of(counts);
    for seed in seeds(7_200, 6) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let mut fed = 0;
        for round in 0..4 {
            let partitions = PARTITIONS + round;
            world.cluster.add_partitions("in", partitions);
            for _ in 0..20 {
                let p = world.random.below(partitions as u64) as i32;
                world.cluster.append("in", p, b"k", b"x", START + fed);
                fed += 1;
            }
            world.cluster.set_faults(faults(seed));
            let mut engine = world.engine(&graph, 1 + round as u32);
            for _ in 0..world.random.below(300) {
                world.turn(&mut engine).unwrap();
            }
            drop(engine);
            world.crash();
        }
        world.cluster.set_faults(Faults::default());
        world.cluster.deliver_late();
        world.run(&graph, 3);
        let mut counts: Vec<u64> = world
            .records("counts")
            .iter()
            .map(|r| u64::from_be_bytes(r.value.clone().unwrap().try_into().unwrap()))
            .collect();
        counts.sort_unstable();
        assert_eq!(counts, (1..=fed as u64).collect::<Vec<_>>(), "nothing lost, nothing doubled");
    }
}
