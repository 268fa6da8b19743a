//! `async` handlers: futures that wait, in an order that the seed chooses.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::Poll;

use super::super::message::Mark;
use super::model::{Model, Output, Stored};
use super::timers::{Closing, end, even, length_key};
use super::*;
use crate::error::ErrorKind;

static WAITED: AtomicU64 = AtomicU64::new(0);

/// Waits for as many polls as the text says: mostly none.
fn slow(text: &str) -> impl Future<Output = ()> + use<> {
    let mut left = text.bytes().map(u64::from).sum::<u64>().wrapping_mul(7) % 11;
    left = left.saturating_sub(5);
    std::future::poll_fn(move |cx| {
        if left == 0 {
            return Poll::Ready(());
        }
        left -= 1;
        WAITED.fetch_add(1, Ordering::Relaxed);
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

/// Closes what was open 20 ms after the last record of a key; waits before, between and after it uses its state.
#[processor(input = (String, String), output = String)]
struct Close {
    #[state(codec = Utf8)]
    open: Keyed<String>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl Close {
    #[process]
    async fn on_record(&mut self, record: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        slow(&record.value).await;
        let open = self.open.take()?;
        slow(&record.key).await;
        self.open.put(open.map_or(record.value.clone(), |o| format!("{o},{}", record.value)))?;
        self.idle.set(record.timestamp + Duration::from_millis(20))
    }

    #[on_timer(idle)]
    async fn close(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        slow(&fired.time.to_string()).await;
        if let Some(open) = self.open.take()? {
            cx.forward(open.clone())?;
            slow(&open).await;
        }
        Ok(())
    }
}

/// The same behind a re-key, with a handler that never waits.
#[processor(input = (String, String), output = String)]
struct Close2 {
    #[state(codec = Utf8)]
    open2: Keyed<String>,
    #[timer]
    idle2: Timer,
}

#[handlers]
impl Close2 {
    #[process]
    async fn on_record(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(format!("+{}", record.value))?;
        slow(&record.value).await;
        let open = self.open2.take()?;
        self.open2.put(open.map_or(record.value.clone(), |o| format!("{o};{}", record.value)))?;
        self.idle2.set(record.timestamp + Duration::from_millis(10))
    }

    #[on_timer(idle2)]
    fn close(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(open) = self.open2.take()? {
            cx.forward(open)?;
        }
        Ok(())
    }
}

fn closes(t: &mut Topology) {
    t.source::<In>().process::<Close>().sink::<Out>();
}

fn closes_twice(t: &mut Topology) {
    let closed = t.source::<In>().process::<Close>();
    let by_length = closed.select_key(|_, v: &String| length_key(v)).repartition();
    by_length.process::<Close2>().sink::<Out>();
}

/// The model of the synchronous twins: a processor that may wait begins a sub-topology, so all stages come one later.
struct Behind(Closing);

impl Model for Behind {
    fn record(&mut self, topic: &str, key: &str, value: &str, time: i64) {
        self.0.record(topic, key, value, time);
    }

    fn mark(&mut self, mark: &Mark) {
        self.0.mark(&Mark { watermarks: mark.watermarks.clone(), limits: mark.limits[1..].to_vec() });
    }

    fn outputs(&mut self) -> Vec<Output> {
        self.0.outputs()
    }

    fn state(&self) -> Stored {
        self.0.state()
    }
}

#[test]
fn a_processor_that_may_wait_is_the_entry_of_a_sub_topology() {
    let graph = graph_of(closes_twice);
    assert_eq!(graph.subs, 3);
    let names: Vec<(&str, u32)> = graph.nodes.iter().map(|n| (n.name.as_str(), n.sub.0)).collect();
    assert_eq!(
        names,
        [
            ("In", 0),
            ("Close-repartition", 0),
            ("Close", 1),
            ("Close.select_key", 1),
            ("Close.select_key.repartition", 1),
            ("Close2", 2),
            ("Out", 2)
        ]
    );
}

#[test]
fn i06_i15_slow_futures_change_no_result_and_no_order_under_crashes() {
    for (declare, twice, first) in [(closes as fn(&mut Topology), false, 8_000), (closes_twice, true, 8_100)] {
        let graph = graph_of(declare);
        for seed in seeds(first, 12) {
            let _seed = Seed(seed);
            let mut world = World::new(seed);
            world.torment(&graph, 160, faults(seed), even);
            end(&mut world);
            world.run(&graph, 3);
            world.check_model(&graph, Behind(Closing::new(twice)));
        }
    }
    assert!(WAITED.load(Ordering::Relaxed) > 1_000, "handlers have waited");
}

/// On both clocks: a wall-clock timer and two punctuators, all of which wait.
#[processor(input = (String, String), output = String)]
struct Report {
    #[state(codec = Utf8)]
    last: Keyed<String>,
    #[timer(clock = wall)]
    later: Timer,
    ticks: Arc<AtomicU32>,
}

#[handlers]
impl Report {
    #[process]
    async fn on_record(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        slow(&record.value).await;
        self.last.put(record.value)?;
        self.later.set(cx.wall_clock() + Duration::from_millis(40))
    }

    #[on_timer(later)]
    async fn forget(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        slow(&fired.time.to_string()).await;
        let last = self.last.take()?.unwrap_or_default();
        cx.forward(format!("gone {last}"))
    }

    #[punctuate(every = "30ms", clock = wall, over = last)]
    async fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
        let last = self.last.get()?.cloned().unwrap_or_default();
        slow(&last).await;
        let key = cx.key()?.clone();
        cx.forward(format!("{key} has {last}"))
    }

    #[punctuate(every = "50ms")]
    async fn tick(&mut self, cx: &mut Context<Self>) -> Result<()> {
        slow(&cx.watermark().to_string()).await;
        self.ticks.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn i06_punctuators_and_wall_clock_timers_that_wait_do_so_alike_on_every_number_of_lanes() {
    let ticks = Arc::new(AtomicU32::new(0));
    let graph = {
        let mut t = Topology::new("reports");
        let ticks = ticks.clone();
        t.source::<In>().process_with(move || Report::init(ticks.clone())).sink::<Out>();
        t.build().unwrap()
    };
    let mut kinds = [0, 0];
    for seed in seeds(8_200, 12) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 160, faults(seed), even);
        // Each committed cut is replayed with 1, 2, 3 and 16 lanes and compared.
        world.check(&graph);
        for r in world.records("out") {
            kinds[usize::from(string(r.value.as_ref()).starts_with("gone"))] += 1;
        }
    }
    assert!(kinds.iter().all(|n| *n > 50) && ticks.load(Ordering::Relaxed) > 50, "{kinds:?}, {ticks:?}");
}

/// Waits for ever at a record `stuck`, as long as `left` says so.
#[processor(input = (String, String), output = String)]
struct Stuck {
    left: Arc<AtomicU32>,
    #[state(codec = Utf8)]
    seen: Keyed<String>,
}

#[handlers]
impl Stuck {
    #[process]
    async fn on_record(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        self.seen.put(record.value.clone())?;
        cx.forward(record.value.clone())?;
        slow(&record.value).await;
        if record.value == "stuck"
            && self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
        {
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

fn stuck(left: &Arc<AtomicU32>) -> Graph {
    let mut t = Topology::new("stuck");
    let left = left.clone();
    t.source::<In>().process_with(move || Stuck::init(left.clone())).sink::<Out>();
    t.build().unwrap()
}

#[test]
fn i08_a_handler_that_waits_too_long_is_a_fault_and_leaves_no_trace() {
    let mut given_up = 0;
    for seed in seeds(8_300, 8) {
        let _seed = Seed(seed);
        let left = Arc::new(AtomicU32::new(3));
        let graph = stuck(&left);
        let mut world = World::new(seed);
        world.torment(&graph, 120, Faults { slow: 200, ..Faults::default() }, |r, n| {
            let value = if r.below(20) == 0 { "stuck".to_owned() } else { format!("v{n}") };
            fed(format!("k{}", r.below(5)), value, START + n as i64)
        });
        world.check(&graph);
        let outs = world.records("out").len();
        assert_eq!(outs, world.records("in").len(), "each record once");
        given_up += 3 - left.load(Ordering::SeqCst);
    }
    assert!(given_up > 8, "{given_up}");
}

#[test]
fn i08_a_handler_that_waits_again_and_again_spends_the_budget_and_is_named() {
    let left = Arc::new(AtomicU32::new(u32::MAX));
    let graph = stuck(&left);
    let mut world = World::new(9);
    world.set("stoat.restart.max-faults", "2");
    world.set("stoat.handler.timeout", "7s");
    let mut engine = world.engine(&graph, 3);
    world.feed(&fed("k".to_owned(), "fine".to_owned(), START));
    world.feed(&fed("k".to_owned(), "stuck".to_owned(), START + 1));
    let error = world.run_to_error(&mut engine);
    assert_eq!(error.kind(), ErrorKind::FaultBudget);
    let text = error.to_string();
    let partition = crate::hash::partition_for(b"k", PARTITIONS);
    assert!(text.contains(&format!("in-{partition}@1")), "{text}");
    assert!(text.contains("node `Stuck`") && text.contains("`stoat.handler.timeout`"), "{text}");
}

/// A future that is dropped is not polled again: what waits when an engine ends goes with it.
struct Guarded(Arc<AtomicU32>);

impl Drop for Guarded {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[processor(input = (String, String))]
struct Waits {
    dropped: Arc<AtomicU32>,
}

#[handlers]
impl Waits {
    #[process]
    async fn on_record(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let _guard = Guarded(self.dropped.clone());
        let forever: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(std::future::pending());
        forever.await;
        Ok(())
    }
}

#[test]
fn i10_what_waits_when_a_process_crashes_is_dropped_and_processed_again() {
    let dropped = Arc::new(AtomicU32::new(0));
    let graph = {
        let mut t = Topology::new("waits");
        let dropped = dropped.clone();
        t.source::<In>().process_with(move || Waits::init(dropped.clone())).discard();
        t.build().unwrap()
    };
    let mut world = World::new(3);
    let mut engine = world.engine(&graph, 2);
    world.feed(&fed("k".to_owned(), "v".to_owned(), START));
    for _ in 0..60 {
        world.turn(&mut engine).unwrap();
    }
    assert_eq!(dropped.load(Ordering::SeqCst), 0);
    drop(engine);
    assert_eq!(dropped.load(Ordering::SeqCst), 1);
    assert!(
        world.cuts(&graph).iter().all(|c| c.record.inputs.values().flat_map(BTreeMap::values).all(|i| i.next == 0)),
        "I-2"
    );
}
