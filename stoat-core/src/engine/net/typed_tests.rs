//! Real topologies, as users write them, on one lane and on many.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::tests::{Event, Ingest, Random, Setup, compare};
use super::{DeterministicNet, TokioNet, places};
use crate::__private as p;
use crate::engine::message::{LaneBatch, LaneItem, LaneNet, LaneSource, Mark};
use crate::hash::lane_hash;
use crate::id::{Epoch, LaneId, LaneIdx, SubTopologyId};
use crate::prelude::*;
use crate::record::RecordBatch;
use crate::store::ByteStore;
use crate::store::memory::MemoryStore;
use crate::time::TimeDomain;
use crate::topology::graph::Graph;

#[source(topic = "in", key = String, value = String, value_codec = Utf8)]
struct In;

#[sink(topic = "out", key = String, value = u64, value_codec = Be)]
struct Counts;

#[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
struct Closed;

fn words(t: &mut Topology) {
    let words = t
        .source::<In>()
        .flat_map_values(|v: String| v.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .group_by(|_key, word: &String| word.clone());
    words.count().named("counted").to_stream().sink::<Counts>();
}

/// Joins the values of a key; closes 20 ms after the last one; says every 50 ms of event time what is open. As the macros
/// expand it.
struct Close {
    open: Keyed<String>,
    idle: Timer<String>,
}

impl p::Processor for Close {
    type InKey = String;
    type InValue = String;
    type OutKey = String;
    type OutValue = String;
    type Mode = p::Keep;
    const NAME: &'static str = "Close";
    const FIELDS: &'static [p::FieldDecl] = &[
        p::FieldDecl::of::<Keyed<String>>("open", p::FieldOptions { name: None, clock: TimeDomain::Event }),
        p::FieldDecl::of::<Timer<String>>("idle", p::FieldOptions { name: None, clock: TimeDomain::Event }),
    ];

    fn visit_fields<V: p::FieldVisitor<Self>>(&mut self, visitor: &mut V) {
        visitor.visit(&mut self.open);
        visitor.visit(&mut self.idle);
    }
}

impl<K, L> p::FitsLane<K, L> for Close
where
    L: p::FitsField<Self, Keyed<String>>,
    L: p::FitsField<Self, Timer<String>>,
{
}

impl p::Unconfigured for Close {
    fn init() -> p::Init<Self> {
        p::Init::new(move |build| Self { open: build.field(0), idle: build.field(1) })
    }
}

impl p::Handlers for Close {
    const ON_TIMER: &'static [&'static str] = &["idle"];
    const PUNCTUATORS: &'static [p::Punctuator] =
        &[p::Punctuator { every: Duration::from_millis(50), domain: TimeDomain::Event, over: Some(0) }];

    fn process(&mut self, record: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        let open = self.open.take()?;
        self.open.put(open.map_or(record.value.clone(), |o| format!("{o},{}", record.value)))?;
        self.idle.set(record.timestamp + Duration::from_millis(20))
    }

    fn fire(&mut self, field: usize, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        assert_eq!(field, 1);
        match self.open.take()? {
            Some(open) => cx.forward(open),
            None => Ok(()),
        }
    }

    fn punctuate(&mut self, _which: usize, cx: &mut Context<Self>) -> Result<()> {
        let open = self.open.get()?.cloned();
        cx.forward(format!("open: {}", open.unwrap_or_default()))
    }
}

fn closes(t: &mut Topology) {
    let closed = t.source::<In>().process::<Close>();
    closed.sink::<Closed>();
}

fn graph(declare: fn(&mut Topology)) -> Graph {
    let mut t = Topology::new("test");
    declare(&mut t);
    t.build().unwrap()
}

fn events(random: &mut Random, subs: u32) -> Vec<Event> {
    let mut all = Vec::new();
    // No record may be older than 1970.
    let (mut time, mut epoch) = (10, 0);
    for i in 0..600 {
        time += random.below(4) as i64;
        all.push(Event::Record {
            topic: 0,
            key: random.one(&["a", "b", "c", "d", "e", "f", "g"]),
            value: format!("v{i} w{} w{}", random.below(9), random.below(9)),
            time: time - random.below(5) as i64,
        });
        if random.below(12) == 0 {
            let mut watermarks = vec![Timestamp::MIN; subs as usize];
            watermarks[0] = Timestamp(time - 5);
            all.push(Event::Mark(Arc::new(Mark { watermarks, limits: vec![None; subs as usize] })));
        }
        if random.below(40) == 0 {
            epoch += 1;
            all.push(Event::Barrier(Epoch(epoch)));
            all.push(Event::Applied(Epoch(epoch)));
        }
    }
    all.push(Event::Mark(Arc::new(Mark {
        watermarks: (0..subs).map(|s| if s == 0 { Timestamp(time + 1000) } else { Timestamp::MIN }).collect(),
        limits: vec![None; subs as usize],
    })));
    all.push(Event::Barrier(Epoch(epoch + 1)));
    all.push(Event::Applied(Epoch(epoch + 1)));
    all
}

fn stores(g: &Graph) -> Vec<Arc<dyn ByteStore>> {
    let one = |kind| Arc::new(MemoryStore::new(kind)) as Arc<dyn ByteStore>;
    g.stores.iter().map(|s| one(s.kind)).collect()
}

/// Runs with one lane, then with more, on both nets; returns the outputs of all epochs.
fn run(declare: fn(&mut Topology)) -> Vec<(i32, String, Vec<u8>, i64)> {
    let g = graph(declare);
    let mut result = Vec::new();
    for seed in 0..10 {
        let events = events(&mut Random(seed), g.subs);
        let mut want = None;
        for lanes in [1, 2, 16] {
            let setup = Setup::new(&g, lanes, 2);
            let s = stores(&g);
            let mut net = DeterministicNet::new(setup.build(&g, &s), seed + u64::from(lanes));
            let mut ingest = Ingest::new(&g, &setup.counts, s, seed);
            ingest.run(&mut net, &events);
            assert!(ingest.faults.is_empty(), "{:?}", ingest.faults);
            let want = want.get_or_insert_with(|| ingest.cuts.clone());
            compare(&format!("seed {seed}, {lanes} lanes"), &ingest.cuts, want);

            let s = stores(&g);
            let mut net = TokioNet::start(setup.build(&g, &s), 2).unwrap();
            let mut ingest = Ingest::new(&g, &setup.counts, s, seed);
            ingest.run(&mut net, &events);
            assert!(ingest.faults.is_empty(), "{:?}", ingest.faults);
            compare(&format!("seed {seed}, {lanes} lanes on tokio"), &ingest.cuts, want);
        }
        result = want.into_iter().flatten().flat_map(|c| c.outputs).collect();
    }
    result
}

#[test]
fn i06_words_counted_behind_a_re_key_are_the_same_on_every_number_of_lanes() {
    let mut counts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (_, word, n, _) in run(words) {
        counts.entry(word).or_default().push(u64::from_be_bytes(n.try_into().unwrap()));
    }
    assert_eq!(counts.values().map(Vec::len).sum::<usize>(), 1800);
    for (word, n) in counts {
        assert!(n.iter().copied().eq(1..=n.len() as u64), "{word}: {n:?}");
    }
}

#[test]
fn i06_i15_sessions_closed_by_timers_are_the_same_on_every_number_of_lanes() {
    let closed = run(closes);
    let (open, closed): (Vec<_>, Vec<_>) = closed.iter().partition(|c| c.2.starts_with(b"open: "));
    let values: usize = closed.iter().map(|c| c.2.split(|b| *b == b',').count()).sum();
    assert!(closed.len() > 20 && open.len() > 20, "{} closed, {} open", closed.len(), open.len());
    assert_eq!(values, 600, "each record is in one session");
}

/// Whether the handler has begun, and whether it may go on.
static GATE: (Mutex<(bool, bool)>, Condvar) = (Mutex::new((false, false)), Condvar::new());

fn hangs(t: &mut Topology) {
    t.source::<In>().for_each(|_key, _value| {
        let mut gate = GATE.0.lock().unwrap();
        gate.0 = true;
        GATE.1.notify_all();
        drop(GATE.1.wait_while(gate, |gate| !gate.1).unwrap());
    });
}

#[test]
fn i08_a_handler_that_does_not_return_does_not_hang_the_stop() {
    let g = graph(hangs);
    let setup = Setup::new(&g, 1, 2);
    let mut net = TokioNet::start(setup.build(&g, &[]), 1).unwrap();
    net.stop_wait = Duration::from_millis(50);
    let mut records = RecordBatch::default();
    records.push(0, Timestamp(1), Some(b"k"), Some(b"v"), Headers::default());
    let source = LaneSource { batch: Arc::new(records), partition: 0, entry: places(&g)[0] };
    let item = LaneItem { number: 1, source: 0, index: 0, hash: lane_hash(b"k"), key: None };
    let lane = LaneId { sub: SubTopologyId(0), lane: LaneIdx(0) };
    net.send(lane, LaneBatch { sources: vec![source], items: vec![item], ..LaneBatch::default() });
    net.publish(2);
    drop(GATE.1.wait_while(GATE.0.lock().unwrap(), |gate| !gate.0).unwrap());
    assert!(!net.stop(), "the handler still runs");
    GATE.0.lock().unwrap().1 = true;
    GATE.1.notify_all();
}

/// Waits, on tokio's clock, 0 to 3 ms: by the text.
#[processor(input = (String, String), output = String)]
struct CloseLater {
    #[state]
    open: Keyed<String>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl CloseLater {
    #[process]
    async fn on_record(&mut self, record: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        let open = self.open.take()?;
        sleep(&record.value, 30).await;
        self.open.put(open.map_or(record.value.clone(), |o| format!("{o},{}", record.value)))?;
        self.idle.set(record.timestamp + Duration::from_millis(20))
    }

    #[on_timer(idle)]
    async fn close(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        sleep(&fired.time.to_string(), 10).await;
        self.open.take()?.map_or(Ok(()), |open| cx.forward(open))
    }
}

/// Now and then.
async fn sleep(text: &str, one_in: u64) {
    let n = text.bytes().map(u64::from).sum::<u64>();
    if n.is_multiple_of(one_in) {
        // sleep: the time is what the handler waits for
        ::tokio::time::sleep(Duration::from_millis(n % 3)).await;
    } else if n % 2 == 0 {
        ::tokio::task::yield_now().await;
    }
}

fn closes_later(t: &mut Topology) {
    let closed = t.source::<In>().process::<CloseLater>();
    closed.sink::<Closed>();
}

#[test]
fn i06_i15_handlers_that_wait_change_no_result_on_any_number_of_lanes() {
    let g = graph(closes_later);
    for seed in 0..4 {
        let events = events(&mut Random(seed), g.subs);
        let mut want = None;
        for lanes in [1, 2, 16] {
            let setup = Setup::new(&g, lanes, 2);
            let s = stores(&g);
            let mut net = TokioNet::start(setup.build(&g, &s), 2).unwrap();
            let mut ingest = Ingest::new(&g, &setup.counts, s, seed);
            ingest.run(&mut net, &events);
            assert!(ingest.faults.is_empty(), "{:?}", ingest.faults);
            let want = want.get_or_insert_with(|| ingest.cuts.clone());
            compare(&format!("seed {seed}, {lanes} lanes"), &ingest.cuts, want);
        }
        let outputs: usize = want.iter().flatten().map(|c| c.outputs.len()).sum();
        assert!(outputs > 20, "{outputs}");
    }
}

/// Waits at the value `wait` until it is let go on; says what it has begun.
#[processor(input = (String, String), output = String)]
struct Gated {
    go: Arc<::tokio::sync::Notify>,
    begun: std::sync::mpsc::Sender<String>,
}

#[handlers]
impl Gated {
    #[process]
    async fn on_record(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        self.begun.send(record.value.clone()).unwrap();
        if record.value == "wait" {
            self.go.notified().await;
        }
        cx.forward(record.value)
    }
}

struct Gates {
    net: TokioNet,
    graph: Graph,
    lanes: u32,
    go: Arc<::tokio::sync::Notify>,
    begun: std::sync::mpsc::Receiver<String>,
}

/// Lanes on one thread.
fn gates(timeout: Duration) -> Gates {
    let go = Arc::new(::tokio::sync::Notify::new());
    let (sender, begun) = std::sync::mpsc::channel();
    let mut t = Topology::new("gates");
    let (g, s) = (go.clone(), Mutex::new(sender));
    t.source::<In>().process_with(move || Gated::init(g.clone(), s.lock().unwrap().clone())).sink::<Closed>();
    let graph = t.build().unwrap();
    let mut setup = Setup::new(&graph, 2, 2);
    setup.settings.handler_timeout = timeout;
    Gates { net: TokioNet::start(setup.build(&graph, &[]), 1).unwrap(), graph, lanes: 2, go, begun }
}

impl Gates {
    fn send(&mut self, number: u64, key: &str, value: &str) {
        let mut records = RecordBatch::default();
        records.push(number as i64, Timestamp(1), Some(key.as_bytes()), Some(value.as_bytes()), Headers::default());
        let source = LaneSource { batch: Arc::new(records), partition: 0, entry: places(&self.graph)[0] };
        let hash = lane_hash(key.as_bytes());
        let item = LaneItem { number, source: 0, index: 0, hash, key: None };
        let lane = LaneIdx(crate::hash::lane_of(hash, self.lanes));
        let lane = LaneId { sub: SubTopologyId(0), lane };
        self.net.send(lane, LaneBatch { sources: vec![source], items: vec![item], ..LaneBatch::default() });
        self.net.publish(number + 1);
    }

    fn begun(&self) -> Option<String> {
        self.begun.recv_timeout(Duration::from_secs(20)).ok()
    }
}

/// Two keys of different lanes.
fn keys() -> [String; 2] {
    let of =
        |lane| (0..100).map(|i| format!("k{i}")).find(|k| crate::hash::lane_of(lane_hash(k.as_bytes()), 2) == lane);
    [of(0).unwrap(), of(1).unwrap()]
}

#[test]
fn i01_while_a_handler_waits_its_lane_keeps_order_and_other_lanes_go_on() {
    let [a, b] = keys();
    let mut gates = gates(Duration::from_secs(30));
    gates.send(1, &a, "wait");
    gates.send(2, &a, "behind");
    gates.send(3, &b, "elsewhere");
    gates.send(4, &b, "elsewhere too");
    let begun: Vec<_> = (0..3).filter_map(|_| gates.begun()).collect();
    assert!(begun.contains(&"elsewhere too".to_owned()) && !begun.contains(&"behind".to_owned()), "{begun:?}");
    assert_eq!(gates.net.lowest(), 1, "what waits is not done");
    gates.go.notify_one();
    assert_eq!(gates.begun().as_deref(), Some("behind"));
    assert!(gates.net.stop());
}

#[test]
fn i08_a_wait_beyond_the_timeout_is_a_fault_that_names_the_record() {
    let [a, b] = keys();
    let mut gates = gates(Duration::from_millis(30));
    gates.send(1, &b, "fine");
    gates.send(2, &a, "wait");
    let (sender, woken) = std::sync::mpsc::channel();
    struct Tell(std::sync::mpsc::Sender<()>);
    impl std::task::Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let waker = std::task::Waker::from(Arc::new(Tell(sender)));
    let mut events = Vec::new();
    while events.is_empty() {
        gates.net.notify(waker.clone());
        woken.recv_timeout(Duration::from_secs(20)).expect("the fault is told");
        gates.net.poll(&mut events);
    }
    let [crate::engine::message::NetEvent::Fault { origin: Some(origin), error, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!(origin.offset, 2);
    let text = error.to_string();
    assert!(text.contains("node `Gated`") && text.contains("waited for 30ms"), "{text}");
}

#[test]
fn i08_a_handler_that_waits_does_not_hang_the_stop() {
    let [a, _] = keys();
    let mut gates = gates(Duration::from_secs(30));
    gates.send(1, &a, "wait");
    assert_eq!(gates.begun().as_deref(), Some("wait"));
    assert!(gates.net.stop(), "its future is dropped");
}
