//! Complaints of users about such engines, as tests that carry their numbers.

use super::counts::{Counts, counts, line};
use super::*;
use crate::broker::{Broker, Command, Event, OpId};
use crate::engine::writer::InlineWriter;

/// Starts an engine and lets it come to run.
fn restored(world: &mut World, graph: &Graph) -> Engine {
    let mut engine = world.engine(graph, 2);
    while engine.status().state != State::Running {
        world.turn(&mut engine).unwrap();
    }
    engine
}

#[test]
fn t1_after_crash_upon_crash_only_the_tail_is_replayed_and_nothing_is_wiped() {
    let graph = graph_of(counts);
    let mut world = World::new(9_001);
    let mut fed = 0;
    for round in 0..6 {
        let mut engine = restored(&mut world, &graph);
        let report = engine.status().restore;
        assert_eq!(report.rebuilt, if round == 0 { report.rebuilt } else { 0 }, "round {round}: never a wipe");
        if round > 0 {
            assert!(report.replayed < report.in_changelogs / 2 + 40, "round {round}: {report:?}");
        }
        for _ in 0..60 {
            let record = line(&mut world.random, fed);
            fed += 1;
            world.feed(&record);
            for _ in 0..6 {
                world.turn(&mut engine).unwrap();
            }
        }
        drop(engine);
        // All that was not flushed is lost.
        world.disk.crash();
    }
    world.run(&graph, 3);
    world.check_model(&graph, Counts::default());
}

#[test]
fn t4_a_restore_ends_in_an_empty_changelog_at_a_marker_and_where_nothing_is_new() {
    let graph = graph_of(counts);
    let mut world = World::new(9_002);
    let engine = restored(&mut world, &graph);
    assert_eq!(engine.status().restore.in_changelogs, 0, "nothing is there yet");
    drop(engine);
    world.feed(&fed("k".to_owned(), "one".to_owned(), START));
    world.run(&graph, 2);
    // The changelog's last offset is a marker; on an empty disk it has to be read up to there.
    world.disk = TwinDisk::new();
    let engine = restored(&mut world, &graph);
    assert!(engine.status().restore.replayed > 0);
    world.finish(engine);
    let engine = restored(&mut world, &graph);
    assert_eq!(engine.status().restore.replayed, 0, "the store is at the end already");
    world.finish(engine);
    world.check_model(&graph, Counts::default());
}

#[test]
fn n11_a_key_that_lies_in_another_partition_ends_the_restore_and_the_last_one_does_not_win() {
    let graph = graph_of(counts);
    let mut world = World::new(9_005);
    world.feed(&fed("k".to_owned(), "one".to_owned(), START));
    world.run(&graph, 2);
    let changelog = "app-counted-changelog";
    let partitions = world.cluster.partitions(changelog);
    let right = crate::hash::partition_for(b"one", partitions);
    let wrong = (right + 1) % partitions;
    // As a producer with another hash would write it.
    world.cluster.append(changelog, wrong, b"one", &7_u64.to_be_bytes(), START);
    let place = format!("{changelog}-{wrong}@{}", world.cluster.log(changelog, wrong).len() - 1);
    world.feed(&fed("k".to_owned(), "one".to_owned(), START + 1));
    world.disk = TwinDisk::new();
    let mut engine = world.engine(&graph, 2);
    let error = world.run_to_error(&mut engine).to_string();
    assert!(error.contains(&place) && error.contains(&format!("partition {right} of {partitions}")), "{error}");
    assert_eq!(world.records("counts").len(), 1, "nothing was counted on");
}

/// Loses the answer of one transaction for good.
struct Silent {
    inner: Box<dyn Broker>,
    transactions: u32,
    lost: Option<OpId>,
}

/// The claim is the first; this one is an epoch's.
const LOST: u32 = 4;

impl Broker for Silent {
    fn submit(&mut self, op: OpId, command: Command) {
        if matches!(command, Command::Transact(_)) {
            self.transactions += 1;
            if self.transactions == LOST {
                self.lost = Some(op);
            }
        }
        self.inner.submit(op, command);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        self.inner.poll(out);
        out.retain(|e| !matches!(e, Event::Done { op, .. } if Some(*op) == self.lost));
    }

    fn notify(&self, waker: Waker) {
        self.inner.notify(waker);
    }
}

#[test]
fn t36_i08_an_answer_that_never_comes_is_waited_for_no_longer_than_the_limit() {
    let mut world = World::new(9_004);
    let mut config = config(2);
    config.set("stoat.commit.timeout", "2s").unwrap();
    config.set("stoat.kafka.transaction-timeout", "1s").unwrap();
    let inner = Box::new(world.cluster.client("app", "app"));
    let parts = EngineParts {
        graph: graph_of(counts),
        config,
        broker: Box::new(Silent { inner, transactions: 0, lost: None }),
        stores: Box::new(world.disk.open_set()),
        writer: Box::new(InlineWriter::default()),
        net: {
            let recording = world.recording.clone();
            Box::new(move |build| {
                let net = DeterministicNet::new(build_lanes(build)?, 1);
                Ok(recording.wrap(Box::new(net), build))
            })
        },
        incarnation: "patient".to_owned(),
        seed: 1,
    };
    let mut engine = Engine::new(parts, world.now);
    let (mut fed, mut last, mut longest) = (0, world.now, 0);
    let mut commits = 0;
    while engine.status().restarts == 0 || fed < 400 {
        let record = line(&mut world.random, fed);
        fed += 1;
        world.feed(&record);
        for _ in 0..10 {
            world.turn(&mut engine).unwrap();
        }
        let now = engine.status().run.commits;
        if now != commits {
            longest = longest.max(world.now - last);
            (commits, last) = (now, world.now);
        }
        assert!(fed < 5_000, "it never went on: {:?}", engine.status());
    }
    assert!((3_000..4_000).contains(&longest), "{longest} ms passed without a commit; the limits are 2 s and 1 s");
    world.finish(engine);
    world.check_model(&graph_of(counts), Counts::default());
}
