use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};

use super::fixture::{Cut, KEYS, Kind, Oracle, SHAPES, SINK_PARTITIONS, Shape, TestStore, graph, node, shape};
use super::{DeterministicNet, Lanes, NetBuild, NetSettings, TokioNet, build_lanes, places};
use crate::engine::message::{
    Control, Frozen, LaneBatch, LaneItem, LaneNet, LaneSource, Mark, NetEvent, Position, Tick,
};
use crate::error::Error;
use crate::hash::{lane_hash, lane_of};
use crate::id::{Epoch, Generation, LaneId, LaneIdx, SubTopologyId};
use crate::operator::{Child, ForeignTimer};
use crate::record::{Headers, RecordBatch};
use crate::store::{Batch, ByteStore, Stamp};
use crate::time::{Timestamp, Watermark};
use crate::topology::graph::Graph;

/// splitmix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// What ingest dispatched, in order; numbers count from 1. The same for every number of lanes.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Record { topic: usize, key: &'static str, value: String, time: i64 },
    Mark(Arc<Mark>),
    Tick(i64),
    Barrier(Epoch),
    Applied(Epoch),
}

/// A random ingest order. Marks with limits are repeated until the oracle has nothing due, with no record between.
fn events(shape: &Shape, random: &mut Random, length: usize) -> Vec<Event> {
    let g = graph(shape);
    let mut oracle = Oracle::new(shape);
    let mut all = Vec::new();
    let (mut time, mut wall, mut epoch, mut unapplied) = (0, 0, 0, false);
    let mut watermarks = vec![i64::MIN; g.subs as usize];
    let topics: Vec<&str> = g.sources.iter().map(|s| s.topic.as_str()).collect();
    let mut serial = 0;
    while all.len() < length {
        match random.below(24) {
            0..=14 => {
                for _ in 0..random.below(6) {
                    time += random.below(2) as i64;
                    serial += 1;
                    let topic = random.below(topics.len());
                    let (key, value) = (random.one(&KEYS), serial.to_string());
                    let at = time + random.below(5) as i64 - 3;
                    oracle.record(topics[topic], key, &value, at);
                    all.push(Event::Record { topic, key, value, time: at });
                }
            }
            15..=18 => {
                for (sub, w) in watermarks.iter_mut().enumerate() {
                    if g.sources.iter().any(|s| g.nodes[s.node.0 as usize].sub.0 as usize == sub) {
                        *w = (*w).max(time - 2 - random.below(3) as i64);
                    }
                }
                for round in 0.. {
                    let limits = (0..watermarks.len()).map(|_| {
                        (round < 3 && random.below(2) == 0).then(|| Position {
                            time: Timestamp(time - 2 - random.below(4) as i64),
                            key: random.one(&KEYS).into(),
                        })
                    });
                    let mark = Arc::new(Mark {
                        limits: limits.collect(),
                        watermarks: watermarks.iter().map(|w| Timestamp(*w)).collect(),
                    });
                    oracle.mark(&mark);
                    all.push(Event::Mark(mark));
                    if !oracle.more_due() {
                        break;
                    }
                    if random.below(3) == 0 {
                        barrier(random, &mut all, &mut epoch, &mut unapplied, &mut oracle);
                    }
                }
            }
            19 | 20 => {
                wall += random.below(4) as i64;
                oracle.tick(wall);
                all.push(Event::Tick(wall));
            }
            _ => barrier(random, &mut all, &mut epoch, &mut unapplied, &mut oracle),
        }
    }
    if unapplied {
        all.push(Event::Applied(Epoch(epoch)));
    }
    all.push(Event::Barrier(Epoch(epoch + 1)));
    all.push(Event::Applied(Epoch(epoch + 1)));
    all
}

/// The epoch before is applied first, here or earlier: at most one is frozen.
fn barrier(random: &mut Random, all: &mut Vec<Event>, epoch: &mut u64, unapplied: &mut bool, oracle: &mut Oracle<'_>) {
    if std::mem::take(unapplied) {
        all.push(Event::Applied(Epoch(*epoch)));
        if random.below(2) == 0 {
            return;
        }
    }
    *epoch += 1;
    *unapplied = true;
    oracle.barrier();
    all.push(Event::Barrier(Epoch(*epoch)));
}

/// What the oracle makes of an ingest order, epoch by epoch.
fn expected(shape: &Shape, events: &[Event]) -> Vec<Cut> {
    let g = graph(shape);
    let mut oracle = Oracle::new(shape);
    let mut cuts = Vec::new();
    for e in events {
        match e {
            Event::Record { topic, key, value, time } => oracle.record(&g.sources[*topic].topic, key, value, *time),
            Event::Mark(m) => oracle.mark(m),
            Event::Tick(w) => oracle.tick(*w),
            Event::Barrier(_) => cuts.push(oracle.barrier()),
            Event::Applied(_) => {}
        }
    }
    cuts
}

/// A waker that tests wait for.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    ring: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap() = true;
        self.ring.notify_all();
    }
}

/// A net that a test can wait for.
pub(super) trait Driven: LaneNet {
    /// Lets the lanes work a little.
    fn nudge(&mut self, random: &mut Random);

    /// Lets the lanes work; returns when something may have changed.
    fn work(&mut self, random: &mut Random);

    /// Appends what happened, and does nothing else.
    fn take(&mut self, out: &mut Vec<NetEvent>);
}

impl Driven for DeterministicNet {
    fn nudge(&mut self, random: &mut Random) {
        for _ in 0..=random.below(20) {
            if !self.step() {
                break;
            }
        }
    }

    fn work(&mut self, random: &mut Random) {
        self.nudge(random);
    }

    fn take(&mut self, out: &mut Vec<NetEvent>) {
        out.append(&mut self.events);
    }
}

impl Driven for TokioNet {
    fn nudge(&mut self, _: &mut Random) {}

    fn take(&mut self, out: &mut Vec<NetEvent>) {
        self.poll(out);
    }

    fn work(&mut self, _: &mut Random) {
        let bell = Arc::new(Bell::default());
        self.notify(Waker::from(bell.clone()));
        let mut rung = bell.rung.lock().unwrap();
        while !*rung {
            let (guard, wait) = bell.ring.wait_timeout(rung, std::time::Duration::from_mins(1)).unwrap();
            rung = guard;
            assert!(!wait.timed_out(), "nothing happens any more: deadlock");
        }
    }
}

/// Number, source, key, value, time.
type Pending = (u64, usize, &'static str, String, i64);

/// The control side: dispatches an ingest order, collects and applies epochs.
pub(super) struct Ingest<'a> {
    graph: &'a Graph,
    counts: Vec<u32>,
    stores: Vec<Arc<dyn ByteStore>>,
    places: Vec<Child>,
    pending: BTreeMap<LaneId, Vec<Pending>>,
    frozen: BTreeMap<Epoch, Vec<Frozen>>,
    exchanges: BTreeMap<(SubTopologyId, Epoch), Vec<Vec<ForeignTimer>>>,
    pub(super) cuts: Vec<Cut>,
    pub(super) faults: Vec<(Option<crate::record::Origin>, Error)>,
    marked: BTreeMap<u64, Vec<(LaneId, bool, Option<Position>)>>,
    random: Random,
    next: u64,
}

impl<'a> Ingest<'a> {
    pub(super) fn new(graph: &'a Graph, counts: &[u32], stores: Vec<Arc<dyn ByteStore>>, seed: u64) -> Self {
        Self {
            graph,
            counts: counts.to_vec(),
            stores,
            places: places(graph),
            pending: BTreeMap::new(),
            frozen: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            cuts: Vec::new(),
            faults: Vec::new(),
            marked: BTreeMap::new(),
            random: Random(seed),
            next: 1,
        }
    }

    /// What is dispatched next is the number `next`; batches may be held back until then.
    fn dispatch(&mut self, net: &mut dyn Driven, event: &Event) {
        let number = self.next;
        self.next += 1;
        let control = match event {
            Event::Record { topic, key, value, time } => {
                let sub = self.graph.nodes[self.graph.sources[*topic].node.0 as usize].sub;
                let lane = LaneIdx(lane_of(lane_hash(key.as_bytes()), self.counts[sub.0 as usize]));
                let batch = self.pending.entry(LaneId { sub, lane }).or_default();
                batch.push((number, *topic, key, value.clone(), *time));
                if self.random.below(4) == 0 {
                    self.flush(net);
                    net.publish(self.next);
                }
                return;
            }
            Event::Mark(m) => Control::Mark(m.clone()),
            Event::Tick(w) => {
                Control::Tick(Arc::new(Tick { wall: Timestamp(*w), limits: vec![None; self.counts.len()] }))
            }
            Event::Barrier(e) => Control::Barrier(*e),
            Event::Applied(e) => {
                self.wait(net, |c| {
                    let lanes = c.counts.iter().sum::<u32>() as usize;
                    c.frozen.get(e).is_some_and(|f| f.len() == lanes) || !c.faults.is_empty()
                });
                if !self.faults.is_empty() {
                    return;
                }
                self.apply(*e);
                Control::Applied(*e)
            }
        };
        self.flush(net);
        net.control(number, control);
        net.publish(self.next);
    }

    fn flush(&mut self, net: &mut dyn Driven) {
        while let Some((lane, records)) = self.pending.pop_first() {
            if !net.has_room(lane) && self.faults.is_empty() {
                // Also while it waits, ingest says how far it is.
                let others = self.pending.values().map(|r| r[0].0).min().unwrap_or(u64::MAX);
                net.publish(others.min(records[0].0));
                let room = |_: &mut Self, net: &mut dyn Driven| net.has_room(lane);
                self.wait_for(net, room);
            }
            let mut batch = LaneBatch::default();
            for (number, topic, key, value, time) in records {
                let mut raw = RecordBatch::default();
                raw.push(
                    number as i64,
                    Timestamp(time),
                    Some(key.as_bytes()),
                    Some(value.as_bytes()),
                    Headers::default(),
                );
                batch.sources.push(LaneSource {
                    batch: Arc::new(raw),
                    partition: topic as u32,
                    entry: self.places[self.graph.sources[topic].node.0 as usize],
                });
                batch.items.push(LaneItem {
                    number,
                    source: batch.sources.len() as u32 - 1,
                    index: 0,
                    hash: lane_hash(key.as_bytes()),
                    key: None,
                });
            }
            net.send(lane, batch);
        }
    }

    fn wait(&mut self, net: &mut dyn Driven, until: impl Fn(&Self) -> bool) {
        self.wait_for(net, |c, _| until(c));
    }

    fn wait_for(&mut self, net: &mut dyn Driven, until: impl Fn(&mut Self, &mut dyn Driven) -> bool) {
        let mut idle = 0;
        while !until(self, net) && self.faults.is_empty() {
            let before = net.lowest();
            net.work(&mut self.random);
            idle = if self.collect(net) || net.lowest() != before { 0 } else { idle + 1 };
            assert!(idle < 10_000, "nothing moves any more: deadlock at {}", net.lowest());
        }
    }

    fn collect(&mut self, net: &mut dyn Driven) -> bool {
        let mut events = Vec::new();
        net.take(&mut events);
        let any = !events.is_empty();
        for e in events {
            match e {
                NetEvent::Frozen(f) => self.frozen.entry(f.epoch).or_default().push(*f),
                NetEvent::Exchange { lane, epoch, writes } => {
                    let all = self.exchanges.entry((lane.sub, epoch)).or_default();
                    all.push(writes);
                    if all.len() == self.counts[lane.sub.0 as usize] as usize {
                        let mut writes: Vec<_> = all.drain(..).flatten().collect();
                        writes.sort_by(|a, b| (&a.tag, a.index).cmp(&(&b.tag, b.index)));
                        net.exchange(lane.sub, epoch, Arc::new(writes));
                    }
                }
                NetEvent::Marked { lane, number, more_due, nth, .. } => {
                    self.marked.entry(number).or_default().push((lane, more_due, nth));
                }
                NetEvent::Ticked { .. } => {}
                NetEvent::Fault { origin, error, .. } => self.faults.push((origin, error)),
            }
        }
        any
    }

    fn apply(&mut self, epoch: Epoch) {
        let mut cut = Cut { watermarks: vec![Timestamp::MIN; self.counts.len()], ..Cut::default() };
        let mut tagged = Vec::new();
        let mut rows = BTreeMap::new();
        let mut frozen = self.frozen.remove(&epoch).expect("waited for");
        frozen.sort_by_key(|f| f.lane);
        for f in frozen {
            assert!(f.outputs.tags.iter().is_sorted(), "a lane's outputs are in ingest order");
            for (tag, r) in f.outputs.tags.iter().zip(f.outputs.batch.iter()) {
                let key = String::from_utf8(r.key.unwrap_or_default().to_vec()).unwrap();
                let value = r.value.unwrap_or_default().to_vec();
                tagged.push((tag, (r.partition, key, value, r.timestamp.0)));
            }
            for (store, all) in f.stores {
                for row in all {
                    let old = cut.rows.insert((store.0, row.key.clone()), row.value.clone());
                    assert!(old.is_none(), "one row per key and epoch");
                    rows.entry(store.0 as usize).or_insert_with(Vec::new).push(row);
                }
            }
            let w = &mut cut.watermarks[f.lane.sub.0 as usize];
            assert!(f.lane.lane.0 == 0 || *w == f.watermark, "lanes agree on their watermark");
            *w = f.watermark;
        }
        tagged.sort();
        cut.outputs = tagged.into_iter().map(|(_, o)| o).collect();
        self.cuts.push(cut);
        for (store, rows) in rows {
            let stamp = Stamp::default();
            self.stores[store].apply(Generation(1), &Batch { rows, stamp }).unwrap();
        }
    }

    pub(super) fn run(&mut self, net: &mut dyn Driven, events: &[Event]) {
        for e in events {
            if self.faults.is_empty() {
                self.dispatch(net, e);
            }
            if self.random.below(3) == 0 {
                net.nudge(&mut self.random);
                self.collect(net);
            }
        }
    }
}

pub(super) struct Setup {
    pub(super) counts: Vec<u32>,
    pub(super) settings: NetSettings,
    watermarks: Vec<Watermark>,
    wall: i64,
    cache_budget: usize,
}

impl Setup {
    pub(super) fn new(g: &Graph, lanes: u32, credit: u32) -> Self {
        Self {
            counts: vec![lanes; g.subs as usize],
            settings: NetSettings { credit, step_records: 4, timers_per_mark: 2, ..NetSettings::default() },
            watermarks: vec![Timestamp::MIN; g.subs as usize],
            wall: 0,
            cache_budget: 300,
        }
    }

    pub(super) fn build(&self, g: &Graph, stores: &[Arc<dyn ByteStore>]) -> Lanes {
        build_lanes(&NetBuild {
            graph: g,
            lane_counts: &self.counts,
            stores,
            sink_topics: Arc::new(["out".into()]),
            sink_partitions: Arc::new([SINK_PARTITIONS]),
            watermarks: &self.watermarks,
            punctuated: &self.watermarks,
            wall: Timestamp(self.wall),
            cache_budget: self.cache_budget,
            gates: Arc::default(),
            settings: self.settings,
        })
        .expect("the graph is right")
    }
}

fn stores(g: &Graph) -> Vec<Arc<dyn ByteStore>> {
    g.stores.iter().map(|_| Arc::new(TestStore::default()) as Arc<dyn ByteStore>).collect()
}

fn random_shape(random: &mut Random) -> (&'static str, Shape) {
    let name = random.one(&SHAPES);
    let mut keys = Random(random.next());
    let mut ops = Random(random.next());
    (name, shape(name, &mut || ops.one(&Kind::STATEFUL), &mut || keys.one(&[Kind::Rekey, Kind::Fan])))
}

pub(super) fn compare(what: &str, got: &[Cut], want: &[Cut]) {
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        for (j, (go, wo)) in g.outputs.iter().zip(&w.outputs).enumerate() {
            assert_eq!(go, wo, "{what}: epoch {}, output {j}", i + 1);
        }
        assert_eq!(g.outputs.len(), w.outputs.len(), "{what}: epoch {}: outputs", i + 1);
        for (row, value) in &w.rows {
            assert_eq!(g.rows.get(row), Some(value), "{what}: epoch {}, row {row:?}", i + 1);
        }
        assert_eq!(g, w, "{what}: epoch {}", i + 1);
    }
    assert_eq!(got.len(), want.len(), "{what}");
}

fn deterministic_agrees(
    seed: u64,
    lanes: u32,
    credit: u32,
    schedule: u64,
    shape: &Shape,
    events: &[Event],
    want: &[Cut],
) {
    let what = format!("seed {seed}, lanes {lanes}, credit {credit}, schedule {schedule}");
    let g = graph(shape);
    let stores = stores(&g);
    let setup = Setup::new(&g, lanes, credit);
    let mut net = DeterministicNet::new(setup.build(&g, &stores), schedule);
    let mut ingest = Ingest::new(&g, &setup.counts, stores, schedule);
    ingest.run(&mut net, events);
    if let Some((_, e)) = ingest.faults.first() {
        panic!("{what}: {e}");
    }
    compare(&what, &ingest.cuts, want);
    net.run_to_rest();
    assert_eq!(net.lowest(), u64::MAX, "{what}: all is taken in the end");
    assert_eq!(net.queued, 0, "{what}");
}

fn check_seed(seed: u64) {
    let mut random = Random(seed);
    let (_, shape) = random_shape(&mut random);
    let events = events(&shape, &mut random, 120);
    let want = expected(&shape, &events);
    for lanes in [1, 2, 3, 16] {
        let credit = 1 + random.below(3) as u32;
        let schedule = if random.below(8) == 0 { 0 } else { random.next() };
        deterministic_agrees(seed, lanes, credit, schedule, &shape, &events, &want);
    }
}

#[test]
fn i06_any_number_of_lanes_gives_what_one_thread_gives() {
    let seeds = std::env::var("STOAT_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(40);
    for seed in 0..seeds {
        check_seed(seed);
    }
}

#[test]
fn i06_lanes_on_tokio_give_what_one_thread_gives() {
    for seed in 1000..1012 {
        let mut random = Random(seed);
        let (name, shape) = random_shape(&mut random);
        let events = events(&shape, &mut random, 300);
        let want = expected(&shape, &events);
        for lanes in [1, 3, 16] {
            let g = graph(&shape);
            let stores = stores(&g);
            let setup = Setup::new(&g, lanes, 1 + random.below(3) as u32);
            let mut net = TokioNet::start(setup.build(&g, &stores), 3).unwrap();
            let mut ingest = Ingest::new(&g, &setup.counts, stores, seed);
            ingest.run(&mut net, &events);
            assert!(ingest.faults.is_empty(), "{:?}", ingest.faults);
            compare(&format!("seed {seed} ({name}), {lanes} lanes on tokio"), &ingest.cuts, &want);
            net.stop();
        }
    }
}

#[test]
fn i11_a_restart_with_other_lanes_goes_on_from_the_stores() {
    for seed in 2000..2020 {
        let mut random = Random(seed);
        let (_, shape) = random_shape(&mut random);
        let all = events(&shape, &mut random, 200);
        let want = expected(&shape, &all);
        let g = graph(&shape);
        let stores = stores(&g);
        let mut cuts: Vec<Cut> = Vec::new();
        let mut wall = 0;
        // A life ends where an epoch has just been applied and nothing lies behind its barrier.
        let mut from = 0;
        while from < all.len() {
            let end = (from + 1..all.len())
                .find(|&i| {
                    i > from + 40 && matches!((&all[i - 1], &all[i]), (Event::Barrier(a), Event::Applied(b)) if a == b)
                })
                .unwrap_or(all.len() - 1);
            let mut setup = Setup::new(&g, random.one(&[1, 2, 3, 16]), 2);
            setup.wall = wall;
            if let Some(cut) = cuts.last() {
                setup.watermarks.clone_from(&cut.watermarks);
            }
            let mut net = DeterministicNet::new(setup.build(&g, &stores), random.next());
            let mut ingest = Ingest::new(&g, &setup.counts, stores.clone(), random.next());
            ingest.run(&mut net, &all[from..=end]);
            assert!(ingest.faults.is_empty(), "{:?}", ingest.faults);
            cuts.append(&mut ingest.cuts);
            for e in &all[from..=end] {
                if let Event::Tick(w) = e {
                    wall = *w;
                }
            }
            from = end + 1;
        }
        compare(&format!("seed {seed}, restarts"), &cuts, &want);
    }
}

/// Runs one order of events on any shape; epochs are applied at once.
fn run(shape: &Shape, lanes: u32, events: &[Event]) -> (Vec<Cut>, Vec<(Option<crate::record::Origin>, Error)>) {
    let g = graph(shape);
    let stores = stores(&g);
    let setup = Setup::new(&g, lanes, 2);
    let mut net = DeterministicNet::new(setup.build(&g, &stores), 5);
    let mut ingest = Ingest::new(&g, &setup.counts, stores, 5);
    ingest.run(&mut net, events);
    (ingest.cuts, ingest.faults)
}

fn record(key: &'static str, value: &str, time: i64) -> Event {
    Event::Record { topic: 0, key, value: value.into(), time }
}

fn mark(shape: &Shape, watermark: i64, limit: Option<(i64, &str)>) -> Event {
    let subs = graph(shape).subs as usize;
    let limit = limit.map(|(time, key)| Position { time: Timestamp(time), key: key.into() });
    Event::Mark(Arc::new(Mark {
        watermarks: (0..subs).map(|s| Timestamp(if s == 0 { watermark } else { i64::MIN })).collect(),
        limits: (0..subs).map(|s| limit.clone().filter(|_| s == 0)).collect(),
    }))
}

fn end(epoch: u64) -> [Event; 2] {
    [Event::Barrier(Epoch(epoch)), Event::Applied(Epoch(epoch))]
}

#[test]
fn i01_records_of_a_key_keep_their_order_on_every_number_of_lanes() {
    let shape: Shape = vec![node("p", 0, Kind::Pass, &["A"])];
    let mut events: Vec<Event> = (0..200).map(|i| record(KEYS[i % 6], &format!("{i:04}"), 0)).collect();
    events.extend(end(1));
    for lanes in [1, 2, 3, 16] {
        let (cuts, _) = run(&shape, lanes, &events);
        for key in KEYS {
            let values: Vec<_> = cuts[0].outputs.iter().filter(|o| o.1 == key).map(|o| &o.2).collect();
            assert!(values.len() > 30 && values.is_sorted(), "{key} on {lanes} lanes");
        }
    }
}

#[test]
fn i15_a_timer_for_another_key_takes_effect_at_the_end_of_the_epoch() {
    // The mark comes in the epoch of the writes: nothing fires there. In the next epoch all that is due fires.
    let shape: Shape = vec![node("p", 0, Kind::Foreign, &["A"])];
    let mut events: Vec<Event> = (0..40).map(|i| record(KEYS[i % 6], &i.to_string(), 5)).collect();
    events.push(mark(&shape, 1000, None));
    events.extend(end(1));
    events.push(mark(&shape, 1000, None));
    events.extend(end(2));
    let want = expected(&shape, &events);
    assert!(!want[1].outputs.is_empty());
    for lanes in [1, 2, 3, 16] {
        let (cuts, faults) = run(&shape, lanes, &events);
        assert!(faults.is_empty());
        compare(&format!("{lanes} lanes"), &cuts, &want);
    }
}

#[test]
fn a_mark_fires_up_to_its_limit_and_a_repeated_one_the_rest() {
    let shape: Shape = vec![node("p", 0, Kind::Session, &["A"])];
    let mut all = vec![record("a", "1", 1), record("b", "1", 1), record("c", "1", 2), record("d", "1", 50)];
    all.push(mark(&shape, 10, Some((4, "a"))));
    all.extend(end(1));
    all.push(mark(&shape, 10, None));
    all.extend(end(2));
    for lanes in [1, 2, 16] {
        let (cuts, _) = run(&shape, lanes, &all);
        let keys = |c: &Cut| c.outputs.iter().map(|o| o.1.clone()).collect::<Vec<_>>();
        assert_eq!(keys(&cuts[0]), ["a"], "{lanes} lanes");
        assert_eq!(keys(&cuts[1]), ["b", "c"], "{lanes} lanes");
    }
}

#[test]
fn a_later_sub_topology_stays_where_it_is_while_a_feeding_lane_holds() {
    let shape: Shape = vec![
        node("p", 0, Kind::Session, &["A"]),
        node("k", 0, Kind::Rekey, &["p"]),
        node("q", 1, Kind::Concat, &["k"]),
    ];
    let mut all = vec![record("a", "1", 1), record("b", "1", 1)];
    all.push(mark(&shape, 10, Some((4, "a"))));
    all.extend(end(1));
    all.push(mark(&shape, 10, None));
    all.extend(end(2));
    for lanes in [1, 2, 16] {
        let (cuts, _) = run(&shape, lanes, &all);
        assert_eq!(cuts[0].watermarks, [Timestamp(10), Timestamp::MIN], "{lanes} lanes");
        assert_eq!(cuts[1].watermarks, [Timestamp(10), Timestamp(10)], "{lanes} lanes");
    }
}

#[test]
fn lanes_report_the_position_of_their_nth_timer_and_what_is_due() {
    let shape: Shape = vec![node("p", 0, Kind::Session, &["A"])];
    let g = graph(&shape);
    let stores = stores(&g);
    let setup = Setup::new(&g, 1, 2);
    let mut net = DeterministicNet::new(setup.build(&g, &stores), 0);
    let mut ingest = Ingest::new(&g, &setup.counts, stores, 0);
    let mut events = vec![record("a", "1", 1), record("b", "1", 2), record("c", "1", 3)];
    events.push(mark(&shape, 2, None));
    events.push(mark(&shape, 5, Some((4, "z"))));
    events.push(mark(&shape, 5, None));
    ingest.run(&mut net, &events);
    net.run_to_rest();
    ingest.collect(&mut net);
    let reports: Vec<_> = ingest.marked.into_values().flatten().map(|(_, due, nth)| (due, nth)).collect();
    let at = |time, key: &str| Some(Position { time: Timestamp(time), key: key.into() });
    // Two timers per mark (see `Setup`).
    assert_eq!(reports, [(false, at(5, "b")), (true, at(6, "c")), (false, None)]);
}

#[test]
fn a_panic_is_a_fault_that_names_the_record_the_node_and_the_text() {
    let shape: Shape = vec![node("first", 0, Kind::Pass, &["A"]), node("broken", 0, Kind::Panics, &["first"])];
    let (_, faults) = run(&shape, 2, &[record("a", "v1", 0), end(1)[0].clone(), end(1)[1].clone()]);
    let (origin, error) = &faults[0];
    assert_eq!(origin.map(|o| o.offset), Some(1));
    assert_eq!(error.to_string(), "node `broken`: the code panicked: no v1 today");
}

#[test]
fn an_error_is_a_fault_also_behind_a_hand_over() {
    let shape: Shape = vec![
        node("p", 0, Kind::Pass, &["A"]),
        node("k", 0, Kind::Rekey, &["p"]),
        node("broken", 1, Kind::Fails, &["k"]),
    ];
    for lanes in [1, 16] {
        let (_, faults) = run(&shape, lanes, &[record("a", "v1", 0), end(1)[0].clone(), end(1)[1].clone()]);
        let (origin, error) = &faults[0];
        assert_eq!(origin.map(|o| o.offset), Some(1));
        assert_eq!(error.to_string(), "no v1 today");
    }
}

#[test]
fn a_record_without_a_key_runs_on_the_lane_it_was_given_and_keeps_its_partition() {
    let shape: Shape = vec![node("p", 0, Kind::Pass, &["A"])];
    let g = graph(&shape);
    let setup = Setup::new(&g, 2, 2);
    let mut net = DeterministicNet::new(setup.build(&g, &stores(&g)), 0);
    let mut raw = RecordBatch::default();
    raw.push(7, Timestamp(1), None, Some(b"x"), Headers::default());
    let lane = LaneId { sub: SubTopologyId(0), lane: LaneIdx(1) };
    let mut batch = LaneBatch::default();
    batch.sources.push(LaneSource {
        batch: Arc::new(raw),
        partition: 3,
        entry: places(&g)[g.sources[0].node.0 as usize],
    });
    batch.items.push(LaneItem { number: 1, source: 0, index: 0, hash: u64::MAX, key: None });
    net.send(lane, batch);
    net.control(2, Control::Barrier(Epoch(1)));
    net.publish(3);
    let mut events = Vec::new();
    net.poll(&mut events);
    let out: Vec<_> = events
        .iter()
        .filter_map(|e| match e {
            NetEvent::Frozen(f) => {
                Some((f.lane, f.outputs.batch.iter().map(|r| (r.partition, r.key)).collect::<Vec<_>>()))
            }
            _ => None,
        })
        .filter(|(_, o)| !o.is_empty())
        .collect();
    assert_eq!(out, [(lane, vec![(3 % SINK_PARTITIONS, None)])]);
}

#[test]
fn a_lane_has_room_for_as_many_batches_as_its_credit_says_and_again_when_it_used_one() {
    let shape: Shape = vec![node("p", 0, Kind::Pass, &["A"])];
    let g = graph(&shape);
    let setup = Setup::new(&g, 1, 2);
    let mut net = DeterministicNet::new(setup.build(&g, &stores(&g)), 0);
    let mut ingest = Ingest::new(&g, &setup.counts, stores(&g), 0);
    let lane = LaneId { sub: SubTopologyId(0), lane: LaneIdx(0) };
    for (i, room) in [(1, true), (2, true), (3, false)] {
        assert_eq!(net.has_room(lane), room, "batch {i}");
        if room {
            ingest.dispatch(&mut net, &record("a", "1", 0));
            ingest.flush(&mut net);
        }
    }
    net.publish(3);
    net.run_to_rest();
    assert!(net.has_room(lane));
}

#[test]
fn uncommitted_bytes_fall_when_an_epoch_is_applied_and_clean_entries_are_dropped() {
    let shape: Shape = vec![node("p", 0, Kind::Concat, &["A"])];
    let g = graph(&shape);
    let stores = stores(&g);
    let mut setup = Setup::new(&g, 1, 8);
    setup.cache_budget = 16;
    let mut net = DeterministicNet::new(setup.build(&g, &stores), 0);
    let mut ingest = Ingest::new(&g, &setup.counts, stores, 0);
    let mut events: Vec<Event> = KEYS.iter().map(|k| record(k, "1", 0)).collect();
    events.push(Event::Barrier(Epoch(1)));
    ingest.run(&mut net, &events);
    net.run_to_rest();
    // Decoded, as a row, as a changelog record.
    assert_eq!(net.uncommitted(), 3 * 60, "outputs are the committer's now, state is not applied yet");
    ingest.dispatch(&mut net, &Event::Applied(Epoch(1)));
    net.run_to_rest();
    assert_eq!(net.uncommitted(), 0);
    let mut clean = 0;
    net.lanes.workers[0].lane.each(|f| clean += f.weight().total);
    assert!(clean <= 16, "{clean} bytes are left");
}

#[test]
fn a_stopped_net_on_tokio_has_dropped_its_lanes() {
    let shape: Shape = vec![node("p", 0, Kind::Concat, &["A"])];
    let g = graph(&shape);
    let stores = stores(&g);
    let setup = Setup::new(&g, 4, 2);
    let mut net = TokioNet::start(setup.build(&g, &stores), 2).unwrap();
    assert!(Arc::strong_count(&stores[0]) > 4);
    net.stop();
    assert_eq!(Arc::strong_count(&stores[0]), 1);
}
