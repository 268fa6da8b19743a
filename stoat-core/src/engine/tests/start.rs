//! Where a start begins, and what it refuses.

use std::task::Waker;

use super::counts::counts;
use super::*;
use crate::broker::{Broker, BrokerError, BrokerErrorKind, Command, Event, NewTopic, OpId};
use crate::engine::writer::InlineWriter;
use crate::id::TopicPartition;

#[test]
fn n1_offsets_that_a_group_lost_are_written_again_and_foreign_ones_stop_the_start() {
    let graph = graph_of(counts);
    let mut world = World::new(5);
    for n in 0..30 {
        world.cluster.append("in", n % 3, b"k", b"x", START + i64::from(n));
    }
    world.run(&graph, 2);
    let tp = TopicPartition::new("in", 1);
    world.cluster.set_committed("app", &tp, None);
    world.run(&graph, 2);
    assert_eq!(world.cluster.committed("app", &tp), Some(10), "written again from the epoch record");
    assert_eq!(world.records("counts").len(), 30, "nothing twice");
    world.cluster.set_committed("app", &tp, Some(3));
    let mut third = world.engine(&graph, 2);
    let error = world.run_to_error(&mut third).to_string();
    assert!(error.contains("in-1: epoch record 10, group 3") && error.contains("stoat.start.offsets"), "{error}");
    world.cluster.delete("app-stoat-epochs");
    world.cluster.set_committed("app", &tp, Some(10));
    let mut fourth = world.engine(&graph, 2);
    let error = world.run_to_error(&mut fourth).to_string();
    assert!(error.contains("app-counted-changelog") && error.contains("stoat.start.take-over"), "{error}");
}

#[test]
fn n1_foreign_offsets_are_followed_or_overruled_on_request() {
    let graph = graph_of(counts);
    for (choice, outputs) in [("record", 30), ("group", 37)] {
        let mut world = World::new(5);
        for n in 0..30 {
            world.cluster.append("in", n % 3, b"k", b"x", START + i64::from(n));
        }
        world.run(&graph, 2);
        world.cluster.set_committed("app", &TopicPartition::new("in", 1), Some(3));
        world.set("stoat.start.offsets", choice);
        world.run(&graph, 2);
        assert_eq!(world.records("counts").len(), outputs, "{choice}");
    }
}

#[test]
fn n18_a_missing_or_deleted_topic_is_named_with_its_nearest() {
    let graph = graph_of(counts);
    let mut world = World::new(9);
    world.cluster.delete("in");
    world.cluster.create("inn", 1);
    let mut e = world.engine(&graph, 2);
    let error = world.run_to_error(&mut e).to_string();
    assert!(error.contains("topic `in` does not exist: did you mean `inn`?"), "{error}");
    assert!(world.now < 10_000, "it is said soon");
    assert_eq!(world.cluster.partitions("in"), 0, "it is not made");
    let mut world = World::new(9);
    world.cluster.delete("counts");
    world.cluster.create("count", 1);
    let mut e = world.engine(&graph, 2);
    let error = world.run_to_error(&mut e).to_string();
    assert!(error.contains("topic `counts` does not exist: did you mean `count`?"), "{error}");
    assert_eq!(world.cluster.partitions("counts"), 0, "nor is a sink");
    let mut world = World::new(9);
    let mut e = world.engine(&graph, 2);
    for _ in 0..200 {
        world.turn(&mut e).unwrap();
    }
    assert_eq!(e.status().state, State::Running);
    world.cluster.delete("in");
    let error = world.run_to_error(&mut e).to_string();
    assert!(error.contains("`in` was deleted while"), "{error}");
}

#[test]
fn n18_a_changelog_that_is_deleted_by_age_is_refused() {
    let mut world = World::new(9);
    let topic = NewTopic {
        name: "app-counted-changelog".into(),
        partitions: PARTITIONS,
        replication: 1,
        config: vec![("cleanup.policy".to_owned(), "delete".to_owned())],
    };
    let mut client = world.cluster.client("operator", "operator");
    client.submit(OpId(1), Command::CreateTopics { topics: vec![topic] });
    let mut events = Vec::new();
    while events.is_empty() {
        client.poll(&mut events);
    }
    let mut e = world.engine(&graph_of(counts), 2);
    let error = world.run_to_error(&mut e).to_string();
    let told = ["`app-counted-changelog`", "cleanup.policy=delete", "set cleanup.policy=compact"];
    assert!(told.iter().all(|part| error.contains(part)), "{error}");
}

#[test]
fn n9_latest_applies_once_and_a_new_partition_starts_at_its_beginning() {
    let graph = graph_of(counts);
    let mut world = World::new(3);
    world.set("stoat.start.reset", "latest");
    for n in 0..5 {
        world.cluster.append("in", 0, b"k", b"old", START + n);
    }
    world.run(&graph, 2);
    for n in 5..10 {
        world.cluster.append("in", 0, b"k", b"new", START + n);
    }
    world.cluster.add_partitions("in", PARTITIONS + 2);
    world.cluster.append("in", PARTITIONS + 1, b"k", b"new", START + 10);
    world.run(&graph, 2);
    let keys: Vec<String> = world.records("counts").iter().map(|r| string(r.key.as_ref())).collect();
    assert_eq!(keys, vec!["new"; 6]);
    assert_eq!(world.cluster.partitions("app-counted-changelog"), PARTITIONS, "a changelog keeps its count");
}

#[test]
fn a_source_topic_that_was_made_anew_is_refused() {
    let graph = graph_of(counts);
    let mut world = World::new(4);
    world.cluster.append("in", 0, b"k", b"x", START);
    world.run(&graph, 2);
    world.cluster.delete("in");
    world.cluster.create("in", PARTITIONS);
    world.cluster.append("in", 0, b"k", b"x", START);
    let mut e = world.engine(&graph, 2);
    let error = world.run_to_error(&mut e).to_string();
    assert!(error.contains("deleted and made anew"), "{error}");
}

/// Cannot tell a group's offsets before the producer is initialised: so Kafka answers (`UNSTABLE_OFFSET_COMMIT`) while a
/// transaction that holds offsets is open, until it times out.
struct Unstable {
    inner: Box<dyn Broker>,
    initialised: bool,
    refused: Vec<OpId>,
}

impl Broker for Unstable {
    fn submit(&mut self, op: OpId, command: Command) {
        match &command {
            Command::InitProducer => self.initialised = true,
            Command::Group { partitions } if !partitions.is_empty() && !self.initialised => {
                self.refused.push(op);
                return;
            }
            _ => {}
        }
        self.inner.submit(op, command);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        let unstable = || Err(BrokerError::new(BrokerErrorKind::Retriable, "unstable offsets"));
        out.extend(self.refused.drain(..).map(|op| Event::Done { op, result: unstable() }));
        self.inner.poll(out);
    }

    fn notify(&self, waker: Waker) {
        self.inner.notify(waker);
    }
}

#[test]
fn a_start_after_a_kill_in_the_middle_of_a_commit_does_not_wait_for_the_transactions_time_out() {
    let mut world = World::new(6);
    for n in 0..30 {
        world.cluster.append("in", n % 3, b"k", b"x", START + i64::from(n));
    }
    let inner = Box::new(world.cluster.client("app", "app"));
    let parts = EngineParts {
        graph: graph_of(counts),
        config: config(2),
        broker: Box::new(Unstable { inner, initialised: false, refused: Vec::new() }),
        stores: Box::new(world.disk.open_set()),
        writer: Box::new(InlineWriter::default()),
        net: Box::new(|build| Ok(Box::new(DeterministicNet::new(build_lanes(build)?, 1)))),
        incarnation: "after-a-kill".to_owned(),
        seed: 1,
    };
    let engine = Engine::new(parts, world.now);
    world.finish(engine);
    assert_eq!(world.records("counts").len(), 30);
}
