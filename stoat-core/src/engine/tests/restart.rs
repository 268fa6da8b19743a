//! Restarts in place: graceful and after faults, with the stores open all the time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use super::counts::{Counts, counts, line};
use super::*;
use crate::broker::BrokerErrorKind;
use crate::broker::sim::SimCall;
use crate::store::{ByteStore, StoreKind, StoreSet};

/// Counts how often a store is opened.
struct Counting {
    set: Box<dyn StoreSet>,
    opened: Arc<AtomicU32>,
}

impl StoreSet for Counting {
    fn open(&mut self, name: &str, kind: StoreKind) -> Result<Arc<dyn ByteStore>> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        self.set.open(name, kind)
    }

    fn names(&self) -> Result<Vec<String>> {
        self.set.names()
    }
}

#[test]
fn i09_restarts_in_place_keep_the_stores_open_and_lose_nothing() {
    let graph = graph_of(counts);
    for seed in seeds(8_500, 12) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        // A restart that was asked for is no fault.
        let graceful = seed % 2 == 0;
        world.set("stoat.restart.max-faults", if graceful { "0" } else { "1000" });
        let disk = world.disk.clone();
        let mut parts = world.parts(&disk, &graph, 3);
        let opened = Arc::new(AtomicU32::new(0));
        parts.stores = Box::new(Counting { set: parts.stores, opened: opened.clone() });
        let mut engine = Engine::new(parts, world.now);
        let mut asked = 0;
        let mut n = 0;
        // Some turns, and at least until one was asked for.
        while n < 400 || asked == 0 {
            n += 1;
            assert!(n < 20_000, "the engine never runs");
            if n % 2 == 0 {
                let record = line(&mut world.random, n);
                world.feed(&record);
            }
            world.turn(&mut engine).unwrap();
            let status = engine.status();
            let now = world.random.below(40) == 0;
            if status.state == State::Running && status.run.commits > 0 && now {
                if graceful {
                    engine.restart();
                    assert_eq!(engine.status().state, State::Stopping);
                    asked += 1;
                } else if world.cluster.failures_left() == 0 {
                    world.cluster.fail_next(SimCall::Transact, BrokerErrorKind::Abort);
                    asked += 1;
                }
            }
        }
        // A failure that has happened may still be on its way to the engine.
        let behind = |e: &Engine| e.status().state != State::Running || e.status().restarts < asked;
        for _ in 0..20_000 {
            if !behind(&engine) && world.cluster.failures_left() == 0 {
                break;
            }
            let record = line(&mut world.random, 400);
            world.feed(&record);
            world.turn(&mut engine).unwrap();
        }
        assert_eq!(engine.status().restarts, asked, "each restart came");
        assert_eq!(opened.load(Ordering::SeqCst), graph.stores.len() as u32, "opened once, at the start");
        let restore = engine.status().restore;
        assert!(!graceful || restore.replayed == 0, "after a last commit there is nothing to replay: {restore:?}");
        world.finish(engine);
        world.check_model(&graph, Counts::default());
    }
}

/// Keeps the next job to itself once it is told to, as a thread that falls asleep.
struct Sleepy {
    writer: Box<dyn StoreWriter>,
    armed: Arc<AtomicU32>,
    kept: Arc<Mutex<Option<WriteJob>>>,
}

impl StoreWriter for Sleepy {
    fn submit(&mut self, job: WriteJob) {
        if self.armed.swap(0, Ordering::SeqCst) > 0 {
            *self.kept.lock().unwrap() = Some(job);
        } else {
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

#[test]
fn i09_a_write_of_an_older_generation_that_comes_late_changes_nothing() {
    let graph = graph_of(counts);
    for seed in seeds(8_550, 6) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let disk = world.disk.clone();
        let mut parts = world.parts(&disk, &graph, 2);
        let (armed, kept) = (Arc::new(AtomicU32::new(0)), Arc::new(Mutex::new(None)));
        parts.writer = Box::new(Sleepy { writer: parts.writer, armed: armed.clone(), kept: kept.clone() });
        // Nothing clean is kept in memory: what the store holds is read.
        let mut net = parts.net;
        parts.net = Box::new(move |build: &NetBuild<'_>| net(&NetBuild { cache_budget: 0, ..build.clone() }));
        let mut engine = Engine::new(parts, world.now);
        let feed = |world: &mut World| {
            for n in 0..30 {
                let record = line(&mut world.random, n);
                world.feed(&record);
            }
        };
        let settle = |world: &mut World, engine: &mut Engine| {
            let mut settled = 0;
            while settled < 50 {
                world.turn(engine).unwrap();
                settled = if engine.status().run.settled { settled + 1 } else { 0 };
            }
        };
        feed(&mut world);
        settle(&mut world, &mut engine);
        armed.store(1, Ordering::SeqCst);
        feed(&mut world);
        while kept.lock().unwrap().is_none() {
            world.turn(&mut engine).unwrap();
        }
        // The epoch is committed and on its way to the store when the generation ends.
        world.cluster.fail_next(SimCall::Read("in".to_owned()), BrokerErrorKind::Fatal);
        while engine.status().restarts == 0 {
            world.turn(&mut engine).unwrap();
        }
        feed(&mut world);
        settle(&mut world, &mut engine);
        let late: WriteJob = kept.lock().unwrap().take().expect("it is kept");
        late.run().unwrap();
        feed(&mut world);
        settle(&mut world, &mut engine);
        world.finish(engine);
        world.check_model(&graph, Counts::default());
    }
}

#[test]
fn a_stop_while_a_restart_is_on_its_way_is_a_stop() {
    let graph = graph_of(counts);
    let mut world = World::new(8_600);
    let mut engine = world.engine(&graph, 2);
    engine.restart();
    assert_eq!(engine.status().state, State::Starting, "nothing runs that could be restarted");
    while engine.status().state != State::Running {
        world.turn(&mut engine).unwrap();
    }
    engine.restart();
    engine.stop();
    while engine.status().state != State::Stopped {
        world.turn(&mut engine).unwrap();
    }
    assert_eq!(engine.status().restarts, 0);
}

#[test]
fn i08_the_fault_budget_is_for_a_window_of_time() {
    let graph = graph_of(counts);
    for (every, borne) in [(100_000, true), (50_000, false)] {
        let mut world = World::new(8_700);
        world.set("stoat.restart.max-faults", "5");
        let mut engine = world.engine(&graph, 2);
        let mut ended = None;
        for n in 0..12 {
            let restarts = engine.status().restarts;
            while engine.status().state != State::Running {
                world.turn(&mut engine).unwrap();
            }
            world.cluster.fail_next(SimCall::Transact, BrokerErrorKind::Abort);
            let record = line(&mut world.random, n);
            world.feed(&record);
            while engine.status().restarts == restarts && ended.is_none() {
                ended = world.turn(&mut engine).err();
            }
            if ended.is_some() {
                break;
            }
            world.now += every;
        }
        assert_eq!(ended.is_none(), borne, "a fault every {every} ms: {ended:?}");
        if let Some(e) = ended {
            assert_eq!((e.exit_code(), engine.status().state), (4, State::Failed));
            assert!(e.to_string().starts_with("6 faults within 5m"), "{e}");
        }
    }
}

#[test]
fn states_lead_nowhere_but_where_the_diagram_says() {
    use State::{Draining, Failed, Paused, Restoring, Running, Starting, Stopped, Stopping};
    let all = [Starting, Restoring, Running, Draining, Paused, Stopping, Stopped, Failed];
    let shown = |s: State| all.into_iter().filter(|n| s.leads_to(*n)).collect::<Vec<_>>();
    assert_eq!(shown(Starting), [Restoring, Running, Draining, Stopping, Stopped, Failed]);
    assert_eq!(shown(Restoring), [Starting, Running, Draining, Stopping, Stopped, Failed]);
    assert_eq!(shown(Running), [Starting, Draining, Stopping, Failed]);
    assert_eq!(shown(Draining), [Starting, Running, Paused, Stopping, Failed]);
    assert_eq!(shown(Paused), [Starting, Running, Stopping, Failed]);
    assert_eq!(shown(Stopping), [Starting, Stopped, Failed]);
    assert!(shown(Stopped).is_empty() && shown(Failed).is_empty());
}
