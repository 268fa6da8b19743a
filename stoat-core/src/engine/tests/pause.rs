//! Pauses: what was taken commits, then nothing happens, neither clock moves, and all goes on where it stood.
//!
//! The random runs of the other tests pause as well, one seed in four; here is what a pause itself promises.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::counts::{Counts, counts, line};
use super::schedules::{Each, Once, Skip, SkipRare, held_engine, only, ticks};
use super::time::{Running, idle_soon};
use super::*;
use crate::broker::sim::SimCall;
use crate::broker::{Broker, BrokerErrorKind, Command, Event, OpId};
use crate::error::ErrorKind;
use crate::metrics::{Counters, LATE_RECORDS};
use crate::schedule::Schedule;

fn run_to(world: &mut World, engine: &mut Engine, state: State) {
    for _ in 0..20_000 {
        if engine.status().state == state {
            return;
        }
        world.turn(engine).unwrap_or_else(|e| panic!("{e}"));
    }
    panic!("it does not come to {state:?}: {:?}", engine.status());
}

fn pause(world: &World, engine: &mut Engine) {
    engine.pause(world.now).unwrap();
    assert_eq!(engine.status().state, State::Draining);
}

fn resume(world: &World, engine: &mut Engine) {
    engine.resume(world.now, world.wall()).unwrap();
    assert_eq!(engine.status().state, State::Running);
}

/// Lets an engine that is paused be so for a while.
fn stay(world: &mut World, engine: &mut Engine, turns: u32) {
    for _ in 0..turns {
        world.turn(engine).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(engine.status().state, State::Paused);
    }
}

/// Records whose offsets are committed.
fn read(world: &World) -> u64 {
    let partitions = (0..PARTITIONS).map(|p| TopicPartition::new("in", p));
    partitions.filter_map(|p| world.cluster.committed("app", &p)).sum::<i64>() as u64
}

/// An engine that has committed something and runs.
fn running(world: &mut World, graph: &Graph) -> Engine {
    let mut engine = world.engine(graph, 2);
    for n in 0..10 {
        let record = line(&mut world.random, n);
        world.feed(&record);
    }
    while !engine.status().run.settled {
        world.turn(&mut engine).unwrap();
    }
    engine
}

#[test]
fn a_pause_or_its_end_in_a_wrong_state_is_an_error_that_names_the_state_and_changes_nothing() {
    let graph = graph_of(counts);
    let mut world = World::new(15_000);
    let mut engine = world.engine(&graph, 2);
    let refused = |world: &World, engine: &mut Engine, pause: bool, resume: bool| {
        let state = engine.status().state;
        let wanted = format!("in the state {state:?}:");
        for (refused, result) in [
            (pause, if pause { engine.pause(world.now) } else { Ok(()) }),
            (resume, if resume { engine.resume(world.now, world.wall()) } else { Ok(()) }),
        ] {
            if refused {
                let error = result.expect_err("the state is wrong");
                assert_eq!(error.kind(), ErrorKind::Lifecycle);
                assert!(error.to_string().contains(&wanted), "{error}");
            }
        }
        assert_eq!(engine.status().state, state);
    };
    let mut before = Vec::new();
    while engine.status().state != State::Running {
        before.push(engine.status().state);
        refused(&world, &mut engine, true, true);
        world.turn(&mut engine).unwrap();
    }
    assert!(before.contains(&State::Starting) && before.contains(&State::Restoring), "{before:?}");
    refused(&world, &mut engine, false, true);
    pause(&world, &mut engine);
    refused(&world, &mut engine, true, false);
    run_to(&mut world, &mut engine, State::Paused);
    refused(&world, &mut engine, true, false);
    resume(&world, &mut engine);
    // Its end before it is reached.
    pause(&world, &mut engine);
    resume(&world, &mut engine);
    engine.stop();
    refused(&world, &mut engine, true, true);
    run_to(&mut world, &mut engine, State::Stopped);
    refused(&world, &mut engine, true, true);
    // An engine that has failed.
    world.set("stoat.restart.max-faults", "0");
    let mut engine = running(&mut world, &graph);
    world.cluster.fail_next(SimCall::Transact, BrokerErrorKind::Abort);
    world.feed(&fed("k".to_owned(), "v".to_owned(), START));
    world.run_to_error(&mut engine);
    assert_eq!(engine.status().state, State::Failed);
    refused(&world, &mut engine, true, true);
}

#[test]
fn i02_i03_a_pause_in_the_midst_of_a_commit_waits_for_it_and_takes_nothing_more() {
    let graph = graph_of(counts);
    for seed in seeds(15_100, 8) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let (mut engine, hold) = held_engine(&mut world, &graph, 3);
        for n in 0..20 {
            let record = line(&mut world.random, n);
            world.feed(&record);
        }
        run_to(&mut world, &mut engine, State::Running);
        hold.store(true, Ordering::SeqCst);
        for _ in 0..60 {
            world.turn(&mut engine).unwrap();
        }
        pause(&world, &mut engine);
        let dispatched = engine.status().run.records;
        for n in 20..40 {
            let record = line(&mut world.random, n);
            world.feed(&record);
            world.turn(&mut engine).unwrap();
            assert_eq!(engine.status().state, State::Draining, "the commit is not answered");
        }
        hold.store(false, Ordering::SeqCst);
        run_to(&mut world, &mut engine, State::Paused);
        stay(&mut world, &mut engine, 300);
        assert_eq!(engine.status().run.records, dispatched);
        assert_eq!(read(&world), dispatched, "what was taken is committed, and nothing else");
        resume(&world, &mut engine);
        world.finish(engine);
        world.check_model(&graph, Counts::default());
    }
}

#[test]
fn i02_i03_a_pause_that_is_asked_for_anew_while_the_first_ones_commit_is_under_way_waits_for_one_of_its_own() {
    let graph = graph_of(counts);
    let mut world = World::new(15_150);
    let (mut engine, hold) = held_engine(&mut world, &graph, 3);
    let feed = |world: &mut World, n: std::ops::Range<u64>| {
        for n in n {
            let record = line(&mut world.random, n);
            world.feed(&record);
        }
    };
    feed(&mut world, 0..10);
    while engine.status().run.commits == 0 || !engine.status().run.settled {
        world.turn(&mut engine).unwrap();
    }
    hold.store(true, Ordering::SeqCst);
    pause(&world, &mut engine);
    for _ in 0..60 {
        world.turn(&mut engine).unwrap();
    }
    resume(&world, &mut engine);
    feed(&mut world, 10..20);
    while engine.status().run.records < 20 {
        world.turn(&mut engine).unwrap();
    }
    pause(&world, &mut engine);
    hold.store(false, Ordering::SeqCst);
    run_to(&mut world, &mut engine, State::Paused);
    assert_eq!(read(&world), 20, "what was taken between the two pauses is committed");
    resume(&world, &mut engine);
    world.finish(engine);
    world.check_model(&graph, Counts::default());
}

#[test]
fn i10_a_paused_engine_keeps_its_claim_renews_it_and_yields_to_another_owner() {
    let graph = graph_of(counts);
    let mut world = World::new(15_200);
    let mut engine = running(&mut world, &graph);
    pause(&world, &mut engine);
    run_to(&mut world, &mut engine, State::Paused);
    let commits = engine.status().run.commits;
    let keep_alive = world.config(2).keep_alive.as_millis() as u64;
    for n in 1..=3 {
        world.now += keep_alive;
        stay(&mut world, &mut engine, 60);
        assert_eq!(engine.status().run.commits, commits + n, "the keep-alive, once each time");
    }
    // A fault of it: paused again afterwards.
    world.cluster.fail_next(SimCall::Transact, BrokerErrorKind::Abort);
    world.now += keep_alive;
    run_to(&mut world, &mut engine, State::Starting);
    run_to(&mut world, &mut engine, State::Paused);
    assert_eq!(engine.status().restarts, 1);
    // Another process takes over.
    let disk = TwinDisk::new();
    let mut other = world.engine_on(&disk, &graph, 1);
    let mut ended = None;
    for _ in 0..20_000 {
        other.advance(world.now, world.wall()).unwrap();
        ended = world.turn(&mut engine).err();
        if ended.is_some() {
            break;
        }
    }
    assert_eq!(ended.expect("it is fenced").exit_code(), 3);
    world.finish(other);
}

#[test]
fn a_paused_engine_is_restarted_in_place_to_a_pause_and_stops_at_once() {
    let graph = graph_of(counts);
    let mut world = World::new(15_300);
    world.set("stoat.restart.max-faults", "0");
    let mut engine = running(&mut world, &graph);
    pause(&world, &mut engine);
    // The first from `Draining`.
    for n in 1..=3 {
        engine.restart();
        assert_eq!(engine.status().state, State::Stopping);
        run_to(&mut world, &mut engine, State::Draining);
        run_to(&mut world, &mut engine, State::Paused);
        assert_eq!(engine.status().restarts, n);
    }
    // Its end while the new generation starts.
    engine.restart();
    run_to(&mut world, &mut engine, State::Starting);
    engine.resume(world.now, world.wall()).unwrap();
    run_to(&mut world, &mut engine, State::Running);
    pause(&world, &mut engine);
    run_to(&mut world, &mut engine, State::Paused);
    for n in 10..20 {
        let record = line(&mut world.random, n);
        world.feed(&record);
    }
    stay(&mut world, &mut engine, 50);
    engine.stop();
    run_to(&mut world, &mut engine, State::Stopped);
    assert_eq!(engine.status().run.records, 10, "what came meanwhile is for the next start");
    world.run(&graph, 3);
    world.check_model(&graph, Counts::default());
}

#[test]
fn i11_a_process_that_ends_while_it_is_paused_has_lost_nothing_and_the_next_one_runs() {
    let graph = graph_of(counts);
    for seed in seeds(15_400, 8) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let mut engine = running(&mut world, &graph);
        for n in 10..20 {
            let record = line(&mut world.random, n);
            world.feed(&record);
        }
        for _ in 0..world.random.below(30) {
            world.turn(&mut engine).unwrap();
        }
        pause(&world, &mut engine);
        // Anywhere on the way to it, and behind it.
        for _ in 0..world.random.below(60) {
            world.turn(&mut engine).unwrap();
        }
        drop(engine);
        world.crash();
        let mut engine = world.engine(&graph, 3);
        run_to(&mut world, &mut engine, State::Running);
        world.finish(engine);
        world.check_model(&graph, Counts::default());
    }
}

#[test]
fn t8_no_partition_becomes_idle_by_the_time_spent_paused() {
    let graph = idle_soon();
    let mut r = Running::start(World::new(15_500), &graph);
    for (partition, time) in [(0, 0), (1, 100), (0, 10_000)] {
        r.append(partition, "a", time);
    }
    r.until_read();
    // Idle after 200 ms of silence, of which this is a part.
    r.pass(80);
    pause(&r.world, &mut r.engine);
    run_to(&mut r.world, &mut r.engine, State::Paused);
    stay(&mut r.world, &mut r.engine, 2_000);
    assert!(r.outputs().is_empty(), "no time has passed: {:?}", r.outputs());
    resume(&r.world, &mut r.engine);
    r.pass(60);
    assert!(r.outputs().is_empty(), "nor is it made up for: {:?}", r.outputs());
    let before = r.world.now;
    r.until(&["a 0=2"]);
    assert!(r.world.now - before < 130, "the silence before the pause counts: {} ms", r.world.now - before);
}

/// Keeps what the broker answers about the ends of partitions for as long as `hold` says.
struct Silent {
    broker: Box<dyn Broker>,
    hold: Arc<AtomicBool>,
    questions: Arc<Mutex<BTreeSet<OpId>>>,
    kept: Vec<Event>,
}

impl Broker for Silent {
    fn submit(&mut self, op: OpId, command: Command) {
        if matches!(command, Command::Bounds { .. }) && self.hold.load(Ordering::SeqCst) {
            self.questions.lock().unwrap().insert(op);
        }
        self.broker.submit(op, command);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        let mut events = std::mem::take(&mut self.kept);
        self.broker.poll(&mut events);
        let hold = self.hold.load(Ordering::SeqCst);
        for event in events {
            match event {
                Event::Done { op, .. } if hold && self.questions.lock().unwrap().contains(&op) => self.kept.push(event),
                _ => out.push(event),
            }
        }
    }

    fn notify(&self, waker: Waker) {
        self.broker.notify(waker);
    }
}

#[test]
fn t8_a_question_whether_a_partition_is_idle_that_a_pause_overtakes_makes_it_none() {
    let graph = idle_soon();
    let mut world = World::new(15_552);
    let disk = world.disk.clone();
    let mut parts = world.parts(&disk, &graph, 3);
    let (hold, questions) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(BTreeSet::new())));
    parts.broker =
        Box::new(Silent { broker: parts.broker, hold: hold.clone(), questions: questions.clone(), kept: Vec::new() });
    let counters = Counters::default();
    let engine = counters.during(|| Engine::new(parts, world.now));
    let mut r = Running { world, engine, counters };
    for (partition, time) in [(0, 0), (1, 100), (2, 10_000), (0, 10_000)] {
        r.append(partition, "a", time);
    }
    r.until_read();
    hold.store(true, Ordering::SeqCst);
    while questions.lock().unwrap().is_empty() {
        // The others go on; partition 1 does not.
        r.append(0, "a", 10_000);
        r.append(2, "a", 10_000);
        r.pass(30);
    }
    pause(&r.world, &mut r.engine);
    run_to(&mut r.world, &mut r.engine, State::Paused);
    // The answer comes, and then a record that is late if the partition was idle.
    hold.store(false, Ordering::SeqCst);
    stay(&mut r.world, &mut r.engine, 20);
    r.append(1, "a", 200);
    stay(&mut r.world, &mut r.engine, 50);
    resume(&r.world, &mut r.engine);
    r.until_read();
    assert_eq!((r.count(LATE_RECORDS), r.outputs().len()), (0, 0));
}

#[test]
fn a_tick_that_a_pause_skipped_stays_skipped_though_what_came_behind_it_is_lost() {
    let graph = graph_of(only::<SkipRare>);
    let mut world = World::new(15_650);
    let mut engine = world.engine(&graph, 2);
    while ticks(&world).is_empty() {
        world.turn(&mut engine).unwrap();
    }
    pause(&world, &mut engine);
    run_to(&mut world, &mut engine, State::Paused);
    // To the middle between two ticks.
    world.now += 2_000 + (1_000 - world.wall().0.rem_euclid(1_000) + 500) as u64;
    world.cluster.fail_next(SimCall::Transact, BrokerErrorKind::Abort);
    resume(&world, &mut engine);
    let end = world.wall().0;
    run_to(&mut world, &mut engine, State::Starting);
    while ticks(&world).len() < 3 {
        world.turn(&mut engine).unwrap();
    }
    let ticks = ticks(&world);
    assert!(ticks[1] > end && ticks[2] == ticks[1] + 1_000, "{ticks:?}, paused until {end}");
}

#[test]
fn no_tick_is_handled_in_a_pause_and_its_end_brings_the_last_each_or_none_of_those_missed() {
    /// The last tick before, the first after the pause's end and when that was.
    fn over<S: Schedule<Key = String, Value = String, KeyCodec = Utf8>>(seed: u64) -> (World, i64, i64) {
        let graph = graph_of(only::<S>);
        let mut world = World::new(seed);
        let mut engine = world.engine(&graph, 2);
        while ticks(&world).len() < 5 {
            world.turn(&mut engine).unwrap();
        }
        pause(&world, &mut engine);
        run_to(&mut world, &mut engine, State::Paused);
        let before = ticks(&world);
        stay(&mut world, &mut engine, 200);
        assert_eq!(ticks(&world), before, "ticks while it is paused");
        // Between two ticks.
        world.now += (EVERY - world.wall().0.rem_euclid(EVERY) + EVERY / 2) as u64;
        resume(&world, &mut engine);
        let end = world.wall().0;
        while ticks(&world).len() < before.len() + 5 {
            world.turn(&mut engine).unwrap();
        }
        engine.stop();
        run_to(&mut world, &mut engine, State::Stopped);
        world.check(&graph);
        (world, *before.last().unwrap(), end)
    }
    const EVERY: i64 = 10;
    let (world, last, end) = over::<Each>(15_600);
    let all = ticks(&world);
    assert!(all.windows(2).all(|w| w[1] == w[0] + EVERY), "none is left out: {all:?}");
    assert!(end - last > 20 * EVERY, "there were some");
    let first = |world: &World, last| *ticks(world).iter().find(|t| **t > last).unwrap();
    let (world, last, end) = over::<Once>(15_600);
    let first_once = first(&world, last);
    assert!((end - EVERY..end).contains(&first_once), "the last one comes: {first_once} for {end}");
    let (world, last, end) = over::<Skip>(15_600);
    assert!(first(&world, last) > end, "none of them comes: {} for {end}", first(&world, last));
}
