//! Waits that would never end (I-8): found in time, named, and ended by a restart in place. The engine is called only at
//! the times that it asked for, as by an executor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::message::{Control, LaneBatch, LaneNet, NetEvent};
use super::super::net::NetSettings;
use super::counts::{Counts, counts, line};
use super::schedules::held_engine;
use super::*;
use crate::broker::{Broker, Command, Event, OpId};
use crate::error::ErrorKind;
use crate::id::{Epoch, LaneId, LaneIdx, SubTopologyId};
use crate::operator::ForeignTimer;

const LANE: LaneId = LaneId { sub: SubTopologyId(1), lane: LaneIdx(1) };

/// Swallows one thing, once it is told to.
#[derive(Clone, Default)]
struct Trap {
    set: Arc<AtomicBool>,
}

impl Trap {
    fn springs(&self) -> bool {
        self.set.swap(false, Ordering::SeqCst)
    }
}

/// A lane does not come to the barrier.
struct DeafLane {
    net: Box<dyn LaneNet>,
    trap: Trap,
    deaf: bool,
}

impl LaneNet for DeafLane {
    fn has_room(&self, lane: LaneId) -> bool {
        self.net.has_room(lane)
    }
    fn send(&mut self, lane: LaneId, batch: LaneBatch) {
        self.net.send(lane, batch);
    }
    fn control(&mut self, number: u64, control: Control) {
        self.deaf |= matches!(control, Control::Barrier(_)) && self.trap.springs();
        self.net.control(number, control);
    }
    fn publish(&mut self, next: u64) {
        self.net.publish(next);
    }
    fn exchange(&mut self, sub: SubTopologyId, epoch: Epoch, writes: Arc<Vec<ForeignTimer>>) {
        self.net.exchange(sub, epoch, writes);
    }
    fn uncommitted(&self) -> usize {
        self.net.uncommitted()
    }
    fn lowest(&self) -> u64 {
        self.net.lowest()
    }
    fn wants_ticks(&self) -> bool {
        self.net.wants_ticks()
    }
    fn poll(&mut self, out: &mut Vec<NetEvent>) {
        self.net.poll(out);
        if self.deaf {
            out.retain(|e| !matches!(e, NetEvent::Frozen(f) if f.lane == LANE));
        }
    }
    fn notify(&self, waker: Waker) {
        self.net.notify(waker);
    }
    fn stop(&mut self) -> bool {
        self.net.stop()
    }
}

/// A transaction is never answered, though it is applied.
struct DeafBroker {
    broker: Box<dyn Broker>,
    trap: Trap,
    swallowed: Option<OpId>,
}

impl Broker for DeafBroker {
    fn submit(&mut self, op: OpId, command: Command) {
        if matches!(command, Command::Transact(_)) && self.trap.springs() {
            self.swallowed = Some(op);
        }
        self.broker.submit(op, command);
    }
    fn poll(&mut self, out: &mut Vec<Event>) {
        self.broker.poll(out);
        out.retain(|e| !matches!(e, Event::Done { op, .. } if Some(*op) == self.swallowed));
    }
    fn notify(&self, waker: Waker) {
        self.broker.notify(waker);
    }
}

/// A write never ends.
struct DeafWriter {
    writer: Box<dyn StoreWriter>,
    trap: Trap,
}

impl StoreWriter for DeafWriter {
    fn submit(&mut self, job: WriteJob) {
        if !self.trap.springs() {
            self.writer.submit(job);
        }
    }
    fn poll(&mut self, out: &mut Vec<(u64, Result<()>)>) {
        self.writer.poll(out);
    }
    fn notify(&self, waker: Waker) {
        self.writer.notify(waker);
    }
}

#[derive(Clone, Copy, Debug)]
enum Who {
    Lane,
    Broker,
    Writer,
}

fn engine(world: &mut World, graph: &Graph, who: Who, trap: &Trap) -> Engine {
    let disk = world.disk.clone();
    let mut parts = world.parts(&disk, graph, 2);
    match who {
        Who::Lane => {
            let (mut net, trap) = (parts.net, trap.clone());
            parts.net = Box::new(move |build: &NetBuild<'_>| {
                Ok(Box::new(DeafLane { net: net(build)?, trap: trap.clone(), deaf: false }) as Box<dyn LaneNet>)
            });
        }
        Who::Broker => {
            parts.broker = Box::new(DeafBroker { broker: parts.broker, trap: trap.clone(), swallowed: None });
        }
        Who::Writer => parts.writer = Box::new(DeafWriter { writer: parts.writer, trap: trap.clone() }),
    }
    Engine::new(parts, world.now)
}

/// Calls the engine until it asks for a later time, then goes to that time.
fn until_asked(world: &mut World, engine: &mut Engine) -> Result<()> {
    let mut next = None;
    // What has happened is heard of within a few calls; that is when wakers wake.
    for _ in 0..40 {
        next = engine.advance(world.now, wall(world.now))?;
    }
    let next = next.expect("an engine that runs asks for a time");
    assert!(next > world.now, "it would spin: {:?}", engine.status());
    world.now = next;
    Ok(())
}

#[test]
fn i08_a_wait_on_the_commit_path_that_never_ends_is_found_in_time_and_named() {
    let graph = graph_of(counts);
    for (i, who) in [Who::Lane, Who::Broker, Who::Writer].into_iter().enumerate() {
        for faults in [0, 1] {
            let _seed = Seed(i as u64);
            let mut world = World::new(8_900 + i as u64);
            world.set("stoat.commit.timeout", "10s");
            world.set("stoat.kafka.transaction-timeout", "5s");
            world.set("stoat.restart.max-faults", if faults == 0 { "0" } else { "1" });
            let trap = Trap::default();
            let mut engine = engine(&mut world, &graph, who, &trap);
            let feed = |world: &mut World| {
                for n in 0..20 {
                    let record = line(&mut world.random, n);
                    world.feed(&record);
                }
            };
            feed(&mut world);
            while engine.status().run.commits == 0 {
                world.turn(&mut engine).unwrap();
            }
            trap.set.store(true, Ordering::SeqCst);
            feed(&mut world);
            let since = world.now;
            let mut ended = None;
            while engine.status().restarts == 0 && ended.is_none() {
                ended = until_asked(&mut world, &mut engine).err();
                assert!(world.now < since + 60_000, "{who:?}: nobody noticed: {:?}", engine.status());
            }
            let after = world.now - since;
            let limit = if let Who::Broker = who { 15_000 } else { 10_000 };
            assert!((limit..limit + 1_000).contains(&after), "{who:?}: found after {after} ms");
            if let Some(e) = ended {
                assert_eq!((faults, e.kind()), (0, ErrorKind::FaultBudget), "{e}");
                let (text, lane) = (e.to_string(), LANE.to_string());
                let says = match who {
                    Who::Lane => ["have not reached the barrier", lane.as_str()],
                    Who::Broker => ["the transaction is not committed", "stalls"],
                    Who::Writer => ["the stores are not written", "stalls"],
                };
                assert!(says.iter().all(|s| text.contains(s)), "{text}");
            } else {
                assert_eq!(faults, 1, "it was borne");
                world.finish(engine);
            }
            world.crash();
            world.run(&graph, 3);
            world.check_model(&graph, Counts::default());
        }
    }
}

#[test]
fn an_engine_that_is_called_only_when_it_asks_works_everything_off() {
    let graph = graph_of(counts);
    for seed in seeds(8_950, 10) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.cluster.set_faults(Faults { slow: 300, ..Faults::default() });
        let mut engine = world.engine(&graph, 2);
        for n in 0..60 {
            let record = line(&mut world.random, n);
            world.feed(&record);
            if engine.status().state == State::Running {
                until_asked(&mut world, &mut engine).unwrap();
            } else {
                world.turn(&mut engine).unwrap();
            }
        }
        let since = world.now;
        while !engine.status().run.settled {
            if engine.status().state == State::Running {
                until_asked(&mut world, &mut engine).unwrap();
            } else {
                world.turn(&mut engine).unwrap();
            }
            assert!(world.now < since + 60_000, "{:?}", engine.status());
        }
        engine.stop();
        while engine.status().state != State::Stopped {
            for _ in 0..40 {
                engine.advance(world.now, wall(world.now)).unwrap();
            }
            world.now += 1;
            assert!(world.now < since + 120_000, "{:?}", engine.status());
        }
        world.check_model(&graph, Counts::default());
    }
}

/// An engine whose lanes work off a record in about two milliseconds.
fn slow_engine(world: &mut World, graph: &Graph, lanes: u32) -> Engine {
    let disk = world.disk.clone();
    let mut parts = world.parts(&disk, graph, lanes);
    let (seed, recording) = (parts.seed, world.recording.clone());
    parts.net = Box::new(move |build: &NetBuild<'_>| {
        let settings = NetSettings { step_records: 1, ..build.settings };
        let build = NetBuild { settings, ..build.clone() };
        let net = DeterministicNet::new(build_lanes(&build)?, seed).lazy(1);
        Ok(recording.wrap(Box::new(net), &build))
    });
    Engine::new(parts, world.now)
}

#[test]
fn i08_where_handlers_are_slow_what_lanes_have_before_them_stays_so_small_that_epochs_commit() {
    // One lane, and one behind a re-key; what credits allow takes seconds.
    let apart: fn(&mut Topology) = |t| t.source::<In>().sink::<Out>();
    for (topology, output) in [(apart, "out"), (counts as fn(&mut Topology), "counts")] {
        let graph = graph_of(topology);
        let mut world = World::new(8_970);
        world.set("stoat.commit.timeout", "300ms");
        world.set("stoat.kafka.transaction-timeout", "300ms");
        for n in 0..800 {
            let record = line(&mut world.random, n);
            world.feed(&record);
        }
        let mut engine = slow_engine(&mut world, &graph, 1);
        let since = world.now;
        while world.records(output).len() < 800 {
            world.turn(&mut engine).unwrap_or_else(|e| panic!("{output}: {e}"));
            assert!(world.now < since + 60_000, "{output}: no progress: {:?}", engine.status());
        }
        // It had to learn.
        assert!(engine.status().restarts <= 3, "{output}: {:?}", engine.status());
        world.finish(engine);
        world.check(&graph);
    }
}

#[test]
fn i07_where_a_commit_takes_long_what_is_known_of_the_records_behind_it_is_bounded_though_they_leave_nothing() {
    let graph = graph_of(|t| t.source::<In>().filter(|_, v: &String| v == "kept").sink::<Out>());
    let mut world = World::new(8_981);
    world.set("stoat.memory.budget", "16384");
    let (mut engine, hold) = held_engine(&mut world, &graph, 2);
    // Of one partition after another, by time.
    let feed = |world: &mut World, n: u64| {
        for n in 0..n {
            let value = if n.is_multiple_of(100) { "kept" } else { "" };
            world.feed(&fed(format!("k{n}"), value.to_owned(), START + n as i64));
        }
    };
    feed(&mut world, 100);
    while engine.status().run.commits < 2 {
        world.turn(&mut engine).unwrap();
    }
    hold.store(true, Ordering::SeqCst);
    feed(&mut world, 3_000);
    let since = world.now;
    while world.now < since + 3_000 {
        world.turn(&mut engine).unwrap();
    }
    assert!(engine.status().run.records < 1_000, "{:?}", engine.status());
    hold.store(false, Ordering::SeqCst);
    world.finish(engine);
    world.check(&graph);
    assert_eq!(world.records("out").len(), 31);
}
