//! Scheduled sources: each tick once under crashes, whatever the lanes; downtime; stops; failing emitters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::shapes::Chain;
use super::*;
use crate::broker::{Broker, Command, Event, OpId};
use crate::schedule::{Emit, Missed, Schedule, Tick, When};

const EVERY: i64 = 10;

/// A schedule of ten milliseconds: for each of five keys its time, then once more for the first.
macro_rules! beats {
    ($name:ident, $when:expr, $missed:expr) => {
        pub(super) struct $name;
        impl Schedule for $name {
            type Key = String;
            type Value = String;
            type KeyCodec = Utf8;
            type ValueCodec = Utf8;
            const NAME: &'static str = stringify!($name);
            fn when() -> When {
                $when
            }
            fn missed() -> Missed {
                $missed
            }
            fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
                for n in [0, 1, 2, 3, 4, 0] {
                    out.record(&format!("k{n}"), &tick.time.to_string())?;
                }
                Ok(())
            }
        }
    };
}

beats!(Once, When::every(Duration::from_millis(10)), Missed::Once);
beats!(Each, When::every(Duration::from_millis(10)), Missed::Each);
beats!(Skip, When::every(Duration::from_millis(10)), Missed::Skip);
beats!(SkipRare, When::every(Duration::from_secs(1)), Missed::Skip);
beats!(ByEvent, When::every_event_time(Duration::from_millis(10)), Missed::Once);

fn beating<S: Schedule<Key = String, Value = String, KeyCodec = Utf8>>(t: &mut Topology) {
    let beats = t.scheduled::<S>();
    let records = t.source::<In>();
    records.merge(beats).process::<Chain>().sink::<Out>();
}

/// Writes what it gets.
pub(super) fn only<S: Schedule<Key = String, Value = String, KeyCodec = Utf8>>(t: &mut Topology) {
    t.scheduled::<S>().sink::<Out>();
}

/// The ticks that were written, in order, each checked to be whole.
pub(super) fn ticks(world: &World) -> Vec<i64> {
    let mut by_tick: BTreeMap<i64, Vec<String>> = BTreeMap::new();
    for r in world.records("out") {
        let tick: i64 = string(r.value.as_ref()).parse().unwrap();
        assert_eq!(r.timestamp.0, tick);
        by_tick.entry(tick).or_default().push(string(r.key.as_ref()));
    }
    for (tick, keys) in &mut by_tick {
        keys.sort();
        assert_eq!(keys.join(","), "k0,k0,k1,k2,k3,k4", "tick {tick}");
        assert_eq!(tick % EVERY, 0);
    }
    by_tick.into_keys().collect()
}

/// Runs for so many turns, stops, and waits for the end.
fn run_for(world: &mut World, mut engine: Engine, turns: u64) {
    for _ in 0..turns {
        world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
    }
    engine.stop();
    for _ in 0..20_000 {
        world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
        if engine.status().state == State::Stopped {
            return;
        }
    }
    panic!("it does not stop: {:?}", engine.status());
}

/// Ticks that each life of a process commits at least.
const EACH_LIFE: usize = 12;

/// Ticks of which all is committed.
fn committed(world: &World) -> usize {
    world.records("out").len() / 6
}

/// Runs `S` alone under faults and crashes with changing lanes. Each process lives until ticks of its own are committed.
fn crashes<S: Schedule<Key = String, Value = String, KeyCodec = Utf8>>(seed: u64) -> World {
    let graph = graph_of(only::<S>);
    let mut world = World::new(seed);
    world.cluster.set_faults(faults(seed));
    for _ in 0..4 {
        let lanes = world.lanes();
        let mut engine = world.engine(&graph, lanes);
        let enough = committed(&world) + EACH_LIFE;
        let mut turns = 0;
        while committed(&world) < enough {
            for _ in 0..20 {
                world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
            }
            turns += 20;
            assert!(turns < 50_000, "ticks are not committed: {:?}", engine.status());
        }
        // It ends anywhere, not just behind a commit.
        for _ in 0..world.random.below(60) {
            world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
        }
        drop(engine);
        world.crash();
        // Down for a while.
        world.now += 60;
    }
    world.cluster.set_faults(Faults::default());
    world.cluster.deliver_late();
    let engine = world.engine(&graph, 3);
    run_for(&mut world, engine, 200);
    world.check(&graph);
    world
}

#[test]
fn i03_each_tick_takes_effect_once_under_crashes_and_none_is_left_out_where_each_is_asked_for() {
    for seed in seeds(11_000, 10) {
        let _seed = Seed(seed);
        let world = crashes::<Each>(seed);
        let ticks = ticks(&world);
        assert!(ticks.len() >= 4 * EACH_LIFE, "{ticks:?}");
        assert!(ticks.windows(2).all(|w| w[1] == w[0] + EVERY), "{ticks:?}");
    }
}

#[test]
fn i03_no_tick_comes_twice_where_missed_ones_come_once_or_are_skipped() {
    for seed in seeds(11_100, 10) {
        let _seed = Seed(seed);
        // That each tick is whole, `ticks` has checked.
        let (once, skip) = (ticks(&crashes::<Once>(seed)), ticks(&crashes::<Skip>(seed)));
        assert!(once.len() >= 4 * EACH_LIFE && skip.len() >= 4 * EACH_LIFE, "{once:?} {skip:?}");
    }
}

#[test]
fn after_downtime_ticks_are_skipped_come_once_or_each() {
    fn down<S: Schedule<Key = String, Value = String, KeyCodec = Utf8>>() -> (Vec<i64>, i64, i64) {
        let graph = graph_of(only::<S>);
        let mut world = World::new(11_200);
        let engine = world.engine(&graph, 2);
        run_for(&mut world, engine, 100);
        let stopped = wall(world.now).0;
        let before = ticks(&world).len();
        world.now += 500;
        let started = wall(world.now).0;
        let engine = world.engine(&graph, 2);
        run_for(&mut world, engine, 100);
        let ticks = ticks(&world).split_off(before);
        (ticks, stopped, started)
    }
    let in_downtime = |(ticks, stopped, started): &(Vec<i64>, i64, i64)| {
        ticks.iter().filter(|t| **t > *stopped + EVERY && **t <= *started).count()
    };
    let (skip, once, each) = (down::<Skip>(), down::<Once>(), down::<Each>());
    assert_eq!(in_downtime(&skip), 0, "{skip:?}");
    assert!(in_downtime(&once) <= 1, "{once:?}");
    assert!(once.0[0] < skip.0[0], "the last that was missed comes at the start: {once:?}, {skip:?}");
    assert!(in_downtime(&each) >= 48, "{each:?}");
    for (ticks, ..) in [skip, once, each] {
        assert!(ticks.len() > 5, "regular ones follow: {ticks:?}");
    }
}

#[test]
fn i06_ticks_between_records_give_the_same_with_any_number_of_lanes() {
    let graph = graph_of(beating::<Each>);
    for seed in seeds(11_300, 8) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.cluster.set_faults(faults(seed));
        let lanes = world.lanes();
        let mut engine = world.engine(&graph, lanes);
        for n in 0..200 {
            if n % 2 == 0 {
                let key = format!("k{}", world.random.below(5));
                world.feed(&fed(key, format!("v{n}"), START + n));
            }
            world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
            if n == 120 {
                drop(engine);
                world.crash();
                let lanes = world.lanes();
                engine = world.engine(&graph, lanes);
            }
        }
        world.cluster.set_faults(Faults::default());
        world.cluster.deliver_late();
        // Some of these engines give a commit up and begin it anew first.
        run_for(&mut world, engine, 1_000);
        // Replays with 1, 2, 3 and 16 lanes.
        world.check(&graph);
        assert!(world.records("out").len() > 200);
    }
}

#[test]
fn a_schedule_of_event_time_ticks_when_records_move_the_watermark_and_not_by_the_clock() {
    fn apart(t: &mut Topology) {
        t.scheduled::<ByEvent>().sink::<Out>();
        t.source::<In>().discard();
    }
    let graph = graph_of(apart);
    let mut world = World::new(11_400);
    let mut engine = world.engine(&graph, 2);
    let mut pass = |world: &mut World, n| {
        for _ in 0..n {
            world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
        }
    };
    pass(&mut world, 300);
    assert_eq!(ticks(&world), [0; 0], "no watermark yet");
    let move_to = |world: &World, time: i64| {
        for p in 0..PARTITIONS {
            world.cluster.append("in", p, b"k", b"v", time);
        }
    };
    // The watermark is 5 ms behind; the first reading begins.
    move_to(&world, START + 7);
    pass(&mut world, 300);
    assert_eq!(ticks(&world), [0; 0]);
    move_to(&world, START + 16);
    pass(&mut world, 300);
    assert_eq!(ticks(&world), [START + 10]);
    // Several at once: the last of them.
    move_to(&world, START + 49);
    pass(&mut world, 300);
    assert_eq!(ticks(&world), [START + 10, START + 40]);
    drop(engine);
    let mut engine = world.engine(&graph, 2);
    for _ in 0..300 {
        world.turn(&mut engine).unwrap();
    }
    assert_eq!(ticks(&world), [START + 10, START + 40], "not again after a restart");
    move_to(&world, START + 55);
    run_for(&mut world, engine, 300);
    assert_eq!(ticks(&world), [START + 10, START + 40, START + 50]);
}

/// Closes what a schedule opened: event time behind a schedule follows its ticks.
#[test]
fn behind_a_schedule_alone_event_time_is_that_of_its_ticks() {
    #[processor(input = (String, String), output = String)]
    struct Later {
        #[timer]
        due: Timers,
    }
    #[handlers]
    impl Later {
        #[process]
        fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
            self.due.set(r.timestamp + Duration::from_millis(15))
        }
        #[on_timer(due)]
        fn on_due(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
            assert!(cx.watermark() >= fired.time);
            cx.forward("due".to_owned())
        }
    }
    fn later(t: &mut Topology) {
        t.scheduled::<Each>().process::<Later>().sink::<Out>();
    }
    let graph = graph_of(later);
    let mut world = World::new(11_500);
    let engine = world.engine(&graph, 3);
    run_for(&mut world, engine, 200);
    assert!(world.records("out").len() > 50, "{}", world.records("out").len());
    world.check(&graph);
}

/// Keeps back what became of transactions while it is told to.
struct Held {
    broker: Box<dyn Broker>,
    hold: Arc<AtomicBool>,
    transactions: BTreeSet<OpId>,
    kept: Vec<Event>,
}

impl Broker for Held {
    fn submit(&mut self, op: OpId, command: Command) {
        if matches!(command, Command::Transact(_)) {
            self.transactions.insert(op);
        }
        self.broker.submit(op, command);
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        let mut events = std::mem::take(&mut self.kept);
        self.broker.poll(&mut events);
        let hold = self.hold.load(Ordering::SeqCst);
        for event in events {
            match event {
                Event::Done { op, .. } if hold && self.transactions.contains(&op) => self.kept.push(event),
                _ => out.push(event),
            }
        }
    }

    fn notify(&self, waker: Waker) {
        self.broker.notify(waker);
    }
}

/// An engine whose commits end when the test says so.
pub(super) fn held_engine(world: &mut World, graph: &Graph, lanes: u32) -> (Engine, Arc<AtomicBool>) {
    let disk = world.disk.clone();
    let mut parts = world.parts(&disk, graph, lanes);
    let hold = Arc::new(AtomicBool::new(false));
    parts.broker =
        Box::new(Held { broker: parts.broker, hold: hold.clone(), transactions: BTreeSet::new(), kept: Vec::new() });
    (Engine::new(parts, world.now), hold)
}

/// A schedule that also notes each tick that is handled, committed or not.
macro_rules! logged {
    ($name:ident, $handled:ident, $missed:expr) => {
        static $handled: Mutex<Vec<i64>> = Mutex::new(Vec::new());
        struct $name;
        impl Schedule for $name {
            type Key = String;
            type Value = String;
            type KeyCodec = Utf8;
            type ValueCodec = Utf8;
            const NAME: &'static str = stringify!($name);
            fn when() -> When {
                When::every(Duration::from_millis(10))
            }
            fn missed() -> Missed {
                $missed
            }
            fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
                handled(&$handled).push(tick.time.0);
                out.record(&"k".to_owned(), &tick.time.to_string())
            }
        }
    };
}

fn handled(ticks: &Mutex<Vec<i64>>) -> MutexGuard<'_, Vec<i64>> {
    ticks.lock().expect("no emitter panics")
}

logged!(StopsOnce, STOPS_ONCE, Missed::Once);
logged!(StopsEach, STOPS_EACH, Missed::Each);
logged!(FullOnce, FULL_ONCE, Missed::Once);
logged!(FullEach, FULL_EACH, Missed::Each);

#[test]
fn no_tick_is_handled_while_the_engine_stops_and_the_next_start_says_what_becomes_of_them() {
    fn stops<S>(ticks: &Mutex<Vec<i64>>, restart: bool, seed: u64) -> (Vec<i64>, Vec<i64>)
    where
        S: Schedule<Key = String, Value = String, KeyCodec = Utf8>,
    {
        handled(ticks).clear();
        let graph = graph_of(only::<S>);
        let mut world = World::new(seed);
        let (mut engine, hold) = held_engine(&mut world, &graph, 2);
        while handled(ticks).len() < 10 {
            world.turn(&mut engine).unwrap();
        }
        // The last commit takes its time.
        hold.store(true, Ordering::SeqCst);
        if restart {
            engine.restart();
        } else {
            engine.stop();
        }
        let before = handled(ticks).clone();
        for _ in 0..100 {
            world.turn(&mut engine).unwrap();
            assert_eq!(engine.status().state, State::Stopping);
        }
        hold.store(false, Ordering::SeqCst);
        while engine.status().state == State::Stopping {
            world.turn(&mut engine).unwrap();
        }
        assert_eq!(*handled(ticks), before, "ticks while it stopped");
        if !restart {
            (engine, _) = held_engine(&mut world, &graph, 3);
        }
        while handled(ticks).len() < before.len() + 40 {
            world.turn(&mut engine).unwrap();
        }
        run_for(&mut world, engine, 50);
        world.check(&graph);
        // All of them are committed, each once.
        let mut written: Vec<i64> = world.records("out").iter().map(|r| r.timestamp.0).collect();
        written.sort_unstable();
        assert_eq!(written, *handled(ticks));
        let after = handled(ticks).split_off(before.len());
        (before, after)
    }
    for (restart, seed) in [(false, 11_901), (true, 11_902)] {
        let (before, after) = stops::<StopsEach>(&STOPS_EACH, restart, seed);
        let all = [before, after].concat();
        assert!(all.windows(2).all(|w| w[1] == w[0] + EVERY), "none is left out: {all:?}");
        let (before, after) = stops::<StopsOnce>(&STOPS_ONCE, restart, seed);
        // At least 100 ms passed meanwhile.
        assert!(after[0] >= before.last().unwrap() + 10 * EVERY, "the last one comes: {before:?}, {after:?}");
    }
}

#[test]
fn i07_no_tick_is_handled_while_there_is_no_room_and_what_was_due_comes_once_or_each_afterwards() {
    /// The ticks until there is no room, and those afterwards.
    fn fills<S>(ticks: &Mutex<Vec<i64>>, seed: u64) -> (Vec<i64>, Vec<i64>, Vec<i64>)
    where
        S: Schedule<Key = String, Value = String, KeyCodec = Utf8>,
    {
        let graph = graph_of(|t| {
            t.source::<In>().sink::<Out>();
            t.scheduled::<S>().map_values(|v| format!("tick {v}")).repartition().process::<Chain>().discard();
        });
        let mut world = World::new(seed);
        world.set("stoat.memory.budget", "16384");
        let (mut engine, hold) = held_engine(&mut world, &graph, 2);
        while handled(ticks).len() < 10 {
            world.turn(&mut engine).unwrap();
        }
        hold.store(true, Ordering::SeqCst);
        for n in 0..40 {
            world.feed(&fed(format!("q{n}"), "x".repeat(500), START + n));
        }
        let mut quiet = 0;
        while quiet < 50 {
            let n = handled(ticks).len();
            world.turn(&mut engine).unwrap();
            quiet = if handled(ticks).len() == n { quiet + 1 } else { 0 };
            assert!(world.now < 30_000, "it never fills");
        }
        let before = handled(ticks).clone();
        for _ in 0..300 {
            world.turn(&mut engine).unwrap();
        }
        assert_eq!(*handled(ticks), before, "there is no room");
        assert!(engine.status().run.records < 40, "nor for records: {:?}", engine.status());
        let due: Vec<i64> = (before.last().unwrap() + EVERY..=world.wall().0).step_by(EVERY as usize).collect();
        hold.store(false, Ordering::SeqCst);
        while handled(ticks).len() < before.len() + due.len() + 5 {
            world.turn(&mut engine).unwrap();
        }
        world.finish(engine);
        world.check(&graph);
        assert_eq!(world.records("out").len(), 40, "nothing is lost");
        let after = handled(ticks).split_off(before.len());
        (before, due, after)
    }
    let (_, due, after) = fills::<FullEach>(&FULL_EACH, 11_951);
    assert!(due.len() > 30 && after.starts_with(&due), "each comes: {due:?}, {after:?}");
    let (_, due, after) = fills::<FullOnce>(&FULL_ONCE, 11_951);
    assert!(after[0] >= *due.last().unwrap(), "the last comes: {due:?}, {after:?}");
    assert!(after.is_sorted_by(|a, b| a < b), "{after:?}");
}

static BROKEN: AtomicBool = AtomicBool::new(false);

struct Breaks;

impl Schedule for Breaks {
    type Key = String;
    type Value = u64;
    type KeyCodec = Utf8;
    type ValueCodec = Be;
    const NAME: &'static str = "Breaks";
    fn when() -> When {
        When::every(Duration::from_millis(10))
    }
    fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
        out.record(&"k".to_owned(), &(tick.time.0 as u64))?;
        assert!(!BROKEN.load(Ordering::Relaxed), "told to panic");
        Ok(())
    }
}

#[test]
fn a_failing_emitter_is_a_fault_that_names_schedule_and_tick_and_the_tick_comes_again() {
    fn breaks(t: &mut Topology) {
        t.scheduled::<Breaks>().map_values(|n| n.to_string()).sink::<Out>();
    }
    let graph = graph_of(breaks);
    let mut world = World::new(11_600);
    BROKEN.store(true, Ordering::Relaxed);
    world.set("stoat.restart.max-faults", "3");
    let mut engine = world.engine(&graph, 2);
    let error = world.run_to_error(&mut engine);
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::FaultBudget, "{text}");
    assert!(text.contains("schedule `Breaks`, tick at ") && text.contains("told to panic"), "{text}");
    assert!(world.records("out").is_empty(), "nothing of a tick that failed is committed");
    BROKEN.store(false, Ordering::Relaxed);
    let engine = world.engine(&graph, 2);
    run_for(&mut world, engine, 100);
    assert!(world.records("out").len() > 3);
}
