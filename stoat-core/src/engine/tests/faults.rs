//! Handlers that fail, code that panics, records that cannot be decoded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::message::Mark;
use super::model::{Model, Output, Stored, numbers, times, within};
use super::*;
use crate::error::ErrorKind;
use crate::id::TopicPartition;

/// Counts; at a record `bad` it fails, at `panic` it panics, as long as `left` says so, after it has done all else.
#[processor(input = (String, String), output = String)]
struct Fails {
    left: Arc<AtomicU32>,
    #[state(codec = Be)]
    n: Keyed<u64>,
    #[timer]
    soon: Timer,
}

impl Fails {
    fn fail(&self) -> bool {
        self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
    }
}

#[handlers]
impl Fails {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let n = self.n.update(
            || 0,
            |n| {
                *n += 1;
                *n
            },
        )?;
        self.soon.set(r.timestamp)?;
        cx.forward(n.to_string())?;
        match r.value.as_str() {
            "bad" if self.fail() => Err(Error::handler("no luck")),
            "panic" if self.fail() => panic!("no luck"),
            _ => Ok(()),
        }
    }

    #[on_timer(soon)]
    fn fired(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        if fired.key == "timer" && self.fail() {
            return Err(Error::handler("no luck"));
        }
        cx.forward("fired".to_owned())
    }
}

fn fails(left: &Arc<AtomicU32>) -> Graph {
    let mut t = Topology::new("fails");
    let left = left.clone();
    t.source::<In>().process_with(move || Fails::init(left.clone())).sink::<Out>();
    t.build().unwrap()
}

#[derive(Default)]
struct Counted {
    n: BTreeMap<String, u64>,
    soon: BTreeMap<String, i64>,
    reached: i64,
    out: Vec<Output>,
}

impl Model for Counted {
    fn record(&mut self, _topic: &str, key: &str, _value: &str, time: i64) {
        let n = self.n.entry(key.to_owned()).or_default();
        *n += 1;
        self.out.push(("out", key.as_bytes().to_vec(), n.to_string().into_bytes(), time));
        self.soon.insert(key.to_owned(), time);
    }

    fn mark(&mut self, mark: &Mark) {
        self.reached = self.reached.max(mark.watermarks[0].0);
        while let Some((time, key)) = self.soon.iter().map(|(k, t)| (*t, k.clone())).min() {
            if !within(mark.limits[0].as_ref(), self.reached, i64::MIN, time, &key) {
                break;
            }
            self.soon.remove(&key);
            self.out.push(("out", key.into_bytes(), b"fired".to_vec(), time));
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let mut all = numbers("n", &self.n);
        all.extend(times("soon", &self.soon));
        all
    }
}

#[test]
fn i04_i09_a_handler_that_fails_within_the_budget_leaves_no_trace() {
    let mut failed = 0;
    for seed in seeds(5_000, 12) {
        let _seed = Seed(seed);
        let left = Arc::new(AtomicU32::new(5));
        let graph = fails(&left);
        let mut world = World::new(seed);
        world.set("stoat.restart.max-faults", "5");
        let what = ["bad", "panic", "timer"][seed as usize % 3];
        world.torment(&graph, 120, Faults { slow: 200, ..Faults::default() }, |r, n| {
            let special = r.below(10) == 0;
            let key = if special && what == "timer" { what.to_owned() } else { format!("k{}", r.below(5)) };
            fed(key, if special { what } else { "x" }.to_owned(), START + n as i64)
        });
        world.check_model(&graph, Counted::default());
        failed += 5 - left.load(Ordering::SeqCst);
    }
    assert!(failed > 0, "it did fail");
}

#[test]
fn i09_a_handler_that_goes_on_failing_spends_the_budget_and_its_record_stays_unprocessed() {
    for what in ["bad", "panic"] {
        let left = Arc::new(AtomicU32::new(u32::MAX));
        let graph = fails(&left);
        let mut world = World::new(7);
        world.set("stoat.restart.max-faults", "5");
        for n in 0..20 {
            let value: &[u8] = if n == 13 { what.as_bytes() } else { b"x" };
            world.cluster.append("in", 1, b"k", value, START + n);
        }
        let mut engine = world.engine(&graph, 2);
        let error = world.run_to_error(&mut engine);
        assert_eq!(error.kind(), ErrorKind::FaultBudget, "{error}");
        assert_eq!(error.exit_code(), 4);
        assert_eq!(engine.status().restarts, 5, "five faults are borne, the sixth is not");
        let text = error.to_string();
        assert!(text.contains("in-1@13") && text.contains("no luck") && text.contains("Fails"), "{text}");
        drop(engine);
        let committed = world.cluster.committed("app", &TopicPartition::new("in", 1));
        assert!(committed.is_some_and(|o| o <= 13), "{committed:?}");
        // Once the code is mended, nothing is missing.
        left.store(0, Ordering::SeqCst);
        world.run(&graph, 3);
        world.check_model(&graph, Counted::default());
        assert_eq!(world.cluster.committed("app", &TopicPartition::new("in", 1)), Some(20));
    }
}

#[test]
fn i02_a_record_that_cannot_be_decoded_ends_the_process_and_names_its_place() {
    let left = Arc::new(AtomicU32::new(0));
    let graph = fails(&left);
    for seed in seeds(5_100, 6) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        for n in 0..60 {
            let value: &[u8] = if n == 40 { b"\xff" } else { b"x" };
            world.cluster.append("in", n % 3, b"k", value, START + i64::from(n));
        }
        for _ in 0..2 {
            let mut engine = world.engine(&graph, 2);
            let error = world.run_to_error(&mut engine);
            assert_eq!(error.kind(), ErrorKind::Codec, "{error}");
            assert!(error.to_string().contains("in-1@13"), "{error}");
            let committed = world.cluster.committed("app", &TopicPartition::new("in", 1));
            assert!(committed.is_some_and(|o| o <= 13), "{committed:?}");
            drop(engine);
            world.crash();
        }
        world.check_model(&graph, Counted::default());
    }
}

#[test]
fn a_topic_that_is_written_to_and_deleted_is_named() {
    let left = Arc::new(AtomicU32::new(0));
    let graph = fails(&left);
    let mut world = World::new(8);
    let mut engine = world.engine(&graph, 2);
    for _ in 0..200 {
        world.turn(&mut engine).unwrap();
    }
    world.cluster.delete("out");
    world.cluster.append("in", 0, b"k", b"x", START);
    let error = world.run_to_error(&mut engine);
    assert!(error.to_string().contains("out"), "{error}");
}

#[test]
fn i08_a_disk_that_takes_no_writes_ends_the_process_and_loses_nothing() {
    let left = Arc::new(AtomicU32::new(0));
    let graph = fails(&left);
    for seed in seeds(5_200, 4) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let mut engine = world.engine(&graph, 2);
        let feed = |world: &World, n: i32| {
            world.cluster.append("in", n % 3, b"k", b"x", START + i64::from(n));
        };
        (0..30).for_each(|n| feed(&world, n));
        while engine.status().run.commits == 0 {
            world.turn(&mut engine).unwrap();
        }
        world.disk.break_writes("no space left");
        (30..60).for_each(|n| feed(&world, n));
        let error = world.run_to_error(&mut engine).to_string();
        assert!(error.contains("no space left"), "{error}");
        drop(engine);
        world.disk.repair();
        world.crash();
        world.run(&graph, 3);
        world.check_model(&graph, Counted::default());
        assert_eq!(world.cluster.committed("app", &TopicPartition::new("in", 1)), Some(20));
    }
}
