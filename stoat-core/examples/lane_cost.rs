//! What lanes cost: nanoseconds of CPU per record for a pass-through, for count → re-key → count, and for a processor that
//! writes state and a timer, with and without keeping what it overwrites for an error gate.
//!
//! `cargo run --release -p stoat-core --no-default-features --example lane_cost -- [records] [lanes ..]`

#![allow(clippy::disallowed_methods, reason = "it measures")]

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Instant;

use stoat_core::Result;
use stoat_core::engine::message::{Control, LaneBatch, LaneItem, LaneNet, LaneSource, NetEvent};
use stoat_core::engine::net::{NetBuild, NetSettings, TokioNet, build_lanes, places};
use stoat_core::engine::tag::Tag;
use stoat_core::gate::{Deciders, Decision, Gates};
use stoat_core::hash::{lane_hash, lane_of};
use stoat_core::id::{Epoch, LaneId, LaneIdx, NodeId, SubTopologyId};
use stoat_core::operator::{Child, HandBatch, LaneCx, Operator, Outbound, take};
use stoat_core::prelude::{Be, Context, Duration, Keyed, Timer, Topology, Utf8, handlers, processor, source};
use stoat_core::record::{Headers, Origin, RawRecord, Record, RecordBatch};
use stoat_core::store::ByteStore;
use stoat_core::store::memory::MemoryStore;
use stoat_core::time::{Timestamp, WatermarkStrategy};
use stoat_core::topology::graph::{Factory, Graph, LaneKey, Node, NodeKind, SourceDecl};

type Rec = Record<u64, u64>;

struct Source(Child);

impl Operator for Source {
    fn push(&mut self, _: &mut dyn Any, _: &mut LaneCx<'_>) -> Result<()> {
        unreachable!("nothing feeds a source")
    }

    fn push_raw(&mut self, r: RawRecord<'_>, cx: &mut LaneCx<'_>) -> Result<()> {
        let key = u64::from_be_bytes(r.key.unwrap_or_default().try_into()?);
        cx.forward(self.0, Record::new(key, key, r.timestamp))
    }
}

/// Counts by key.
struct Count {
    counts: Vec<u64>,
    child: Option<Child>,
}

impl Operator for Count {
    fn push(&mut self, r: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let r = take::<u64, u64>(r);
        let n = &mut self.counts[r.key as usize % 1024];
        *n += 1;
        match self.child {
            Some(c) => {
                let n = *n;
                cx.forward(c, r.with_value(n))
            }
            None => Ok(()),
        }
    }
}

struct End;

impl Operator for End {
    fn push(&mut self, r: &mut dyn Any, _: &mut LaneCx<'_>) -> Result<()> {
        std::hint::black_box(take::<u64, u64>(r));
        Ok(())
    }
}

#[derive(Default)]
struct Hand {
    tags: Vec<Tag>,
    records: Vec<(Option<Rec>, u64, Option<Origin>)>,
}

impl HandBatch for Hand {
    fn len(&self) -> usize {
        self.tags.len()
    }

    fn tag(&self, i: usize) -> &Tag {
        &self.tags[i]
    }

    fn weight(&self) -> usize {
        self.tags.len() * 128
    }

    fn deliver(&mut self, i: usize, entry: Child, cx: &mut LaneCx<'_>) -> Result<()> {
        let (record, hash, origin) = &mut self.records[i];
        let record = record.take().expect("each record is given once");
        cx.number = self.tags[i].number;
        cx.path.clone_from(&self.tags[i].path);
        cx.origin = *origin;
        cx.key.bytes.clear();
        cx.key.bytes.extend_from_slice(&record.key.to_be_bytes());
        cx.key.hash = *hash;
        cx.key.present = true;
        cx.forward(entry, record)
    }
}

/// Re-keys and hands over.
struct HandOver(Vec<Hand>);

impl Operator for HandOver {
    fn push(&mut self, r: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let r = take::<u64, u64>(r);
        let key = (r.key + r.value) % 1024;
        let hash = lane_hash(&key.to_be_bytes());
        let lanes = self.0.len() as u32;
        let b = &mut self.0[lane_of(hash, lanes) as usize];
        b.tags.push(cx.tag());
        b.records.push((Some(r.with_key(key)), hash, cx.origin));
        Ok(())
    }

    fn outbound(&mut self) -> Option<&mut dyn Outbound> {
        Some(self)
    }
}

impl Outbound for HandOver {
    fn take(&mut self, out: &mut Vec<(LaneIdx, Box<dyn HandBatch>)>) {
        for (i, b) in self.0.iter_mut().enumerate() {
            if !b.tags.is_empty() {
                out.push((LaneIdx(i as u32), Box::new(std::mem::take(b))));
            }
        }
    }
}

fn graph(nodes: Vec<(NodeKind, u32, Factory)>) -> Graph {
    let mut g = Graph { subs: nodes.last().map_or(0, |n| n.1 + 1), ..Graph::default() };
    let last = nodes.len() as u32 - 1;
    for (i, (kind, sub, factory)) in (0..).zip(nodes) {
        g.nodes.push(Node {
            id: NodeId(i),
            name: format!("n{i}"),
            kind,
            sub: SubTopologyId(sub),
            parents: i.checked_sub(1).map(NodeId).into_iter().collect(),
            children: (i < last).then_some(NodeId(i + 1)).into_iter().collect(),
            stores: vec![],
            factory,
        });
    }
    g.sources.push(SourceDecl {
        node: NodeId(0),
        topic: "in".into(),
        lane_key: LaneKey::Raw,
        watermark: WatermarkStrategy::default(),
        key_codec: String::new(),
        value_codec: String::new(),
    });
    g
}

fn source() -> (NodeKind, u32, Factory) {
    (NodeKind::Source(0), 0, Arc::new(|b| Ok(Box::new(Source(b.children[0])))))
}

fn count(sub: u32) -> (NodeKind, u32, Factory) {
    let factory: Factory =
        Arc::new(|b| Ok(Box::new(Count { counts: vec![0; 1024], child: b.children.first().copied() })));
    (NodeKind::Aggregate, sub, factory)
}

#[source(topic = "in", key = u64, value = String, value_codec = Utf8)]
struct Values;

/// Changes one value in place, replaces another, sets a timer.
#[processor(input = (u64, String))]
struct Writes {
    #[state(codec = Be)]
    n: Keyed<u64>,
    #[state(codec = Utf8)]
    last: Keyed<String>,
    #[timer]
    soon: Timer,
}

#[handlers]
impl Writes {
    #[process]
    fn on_record(&mut self, r: Record<u64, String>, _cx: &mut Context<Self>) -> Result<()> {
        let n = self.n.update(|| 0, |n| std::mem::replace(n, *n + 1))?;
        self.last.put(r.value)?;
        self.soon.set(r.timestamp + Duration::from_millis(1_000 + n % 2))
    }

    #[on_timer(soon)]
    fn on_soon(&mut self, _fired: stoat_core::processor::Fired<u64>, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn writes() -> Result<Graph> {
    let mut t = Topology::new("writes");
    t.source::<Values>().process::<Writes>().discard();
    t.build()
}

struct Unpark(Thread, AtomicBool);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.1.store(true, Ordering::SeqCst);
        self.0.unpark();
    }
}

fn wait(net: &mut TokioNet) {
    let bell = Arc::new(Unpark(std::thread::current(), AtomicBool::new(false)));
    net.notify(Waker::from(bell.clone()));
    while !bell.1.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// How many lanes have frozen since the last call.
fn poll(net: &mut TokioNet) -> Result<u32> {
    let mut events = Vec::new();
    net.poll(&mut events);
    let mut frozen = 0;
    for e in events {
        match e {
            NetEvent::Fault { error, .. } => return Err(error),
            NetEvent::Frozen(_) => frozen += 1,
            _ => {}
        }
    }
    Ok(frozen)
}

/// CPU of the whole process, in ns. Ended threads count; the kernel counts in steps of 10 ms.
fn cpu() -> u128 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks: u128 = fields.skip(11).take(2).filter_map(|t| t.parse::<u128>().ok()).sum();
    ticks * 10_000_000
}

fn measure(name: &str, g: &Graph, lanes: u32, records: usize, gates: &Arc<Gates>) -> Result<()> {
    let counts = vec![lanes; g.subs as usize];
    let stores: Vec<Arc<dyn ByteStore>> =
        g.stores.iter().map(|s| Arc::new(MemoryStore::new(s.kind)) as Arc<dyn ByteStore>).collect();
    let build = NetBuild {
        graph: g,
        lane_counts: &counts,
        stores: &stores,
        sink_topics: Arc::new([]),
        sink_partitions: Arc::new([]),
        watermarks: &vec![Timestamp::MIN; g.subs as usize],
        punctuated: &vec![Timestamp::MIN; g.subs as usize],
        wall: Timestamp(0),
        cache_budget: 1 << 20,
        gates: gates.clone(),
        settings: NetSettings::default(),
    };
    let mut net = TokioNet::start(build_lanes(&build)?, 2)?;
    let entry = places(g)[0];
    let size = 4096;
    let mut raw = RecordBatch::with_capacity(size, size * 16);
    for i in 0..size {
        let key = (i as u64 * 7919) % 1024;
        raw.push(i as i64, Timestamp(0), Some(&key.to_be_bytes()), Some(b"value"), Headers::default());
    }
    let raw = Arc::new(raw);
    let (start, used) = (Instant::now(), cpu());
    let mut number = 0;
    for _ in 0..records / size {
        let mut batches: Vec<LaneBatch> = (0..lanes).map(|_| LaneBatch::default()).collect();
        for i in 0..size {
            number += 1;
            let hash = lane_hash(raw.get(i).key.unwrap_or_default());
            let lane = lane_of(hash, lanes);
            batches[lane as usize].items.push(LaneItem { number, source: 0, index: i as u32, hash, key: None });
            // Batches of 256 on the average.
            if (i + 1) % (256 * lanes as usize) == 0 || i + 1 == size {
                for at in 0..lanes {
                    let lane = LaneId { sub: SubTopologyId(0), lane: LaneIdx(at) };
                    while !net.has_room(lane) {
                        let unsent = batches.iter().filter_map(|b| b.items.first());
                        net.publish(unsent.map(|i| i.number).min().unwrap_or(number + 1));
                        wait(&mut net);
                        poll(&mut net)?;
                    }
                    let mut batch = std::mem::take(&mut batches[at as usize]);
                    if !batch.items.is_empty() {
                        batch.sources.push(LaneSource { batch: raw.clone(), partition: 0, entry });
                        net.send(lane, batch);
                    }
                }
                net.publish(number + 1);
            }
        }
    }
    net.control(number + 1, Control::Barrier(Epoch(1)));
    net.publish(number + 2);
    let mut frozen = 0;
    while frozen < counts.iter().sum::<u32>() {
        wait(&mut net);
        frozen += poll(&mut net)?;
    }
    let (wall, cpu) = (start.elapsed().as_nanos(), cpu() - used);
    let n = u128::from(number);
    println!("{name:24} {lanes:3} lanes: {:5} ns CPU, {:5} ns elapsed per record", cpu / n, wall / n);
    net.stop();
    Ok(())
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1).filter_map(|a| a.parse::<usize>().ok());
    let records = args.next().unwrap_or(4_000_000);
    let mut lanes: Vec<u32> = args.map(|n| n as u32).collect();
    if lanes.is_empty() {
        lanes = vec![1, 2, 4, 8, 16];
    }
    let end: Factory = Arc::new(|_| Ok(Box::new(End)));
    let pass = graph(vec![source(), (NodeKind::ForEach, 0, end)]);
    let hand: Factory = Arc::new(|b| Ok(Box::new(HandOver((0..b.receiving_lanes).map(|_| Hand::default()).collect()))));
    let rekey = graph(vec![source(), count(0), (NodeKind::HandOver, 0, hand), count(1)]);
    let fail = Arc::default();
    for &n in &lanes {
        measure("pass", &pass, n, records, &fail)?;
    }
    for &n in &lanes {
        measure("count, re-key, count", &rekey, n, records, &fail)?;
    }
    let graph = writes()?;
    let skip = Arc::new(Gates::new([Some(Decision::Skip); 3], &Deciders::default()));
    for &n in &lanes {
        measure("processor, gates fail", &graph, n, records, &fail)?;
        measure("processor, gates skip", &graph, n, records, &skip)?;
    }
    Ok(())
}
