//! What timers cost: nanoseconds of CPU per set, set again, cancel and fire, with so many pending; bytes per pending timer.
//!
//! `timer_cost [--pending 1000,100000,10000000] [--store memory,rocksdb] [--kind timer,timers] [--budget-mib 64]`
//!
//! One lane runs on one thread: records that set a timer of their key, a barrier every so many, the rows applied to the
//! store, marks that fire. `engine` is the lane's CPU (handler, freeze, what follows the commit), less what the same records
//! cost where the handler does nothing; `store` is the CPU of writing the rows, which another thread does in production.
//! RocksDB's background threads are in neither. Times of timers are spread evenly and at random over the keys; the caches
//! get what `stoat.memory.budget` gives them.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clap::Parser;
use stoat_core::config::Config;
use stoat_core::engine::message::{Control, Frozen, LaneBatch, LaneItem, LaneNet, LaneSource, Mark, NetEvent};
use stoat_core::engine::net::{DeterministicNet, NetBuild, NetSettings, build_lanes, places};
use stoat_core::hash::lane_hash;
use stoat_core::id::{Epoch, Generation, LaneId, LaneIdx, SubTopologyId};
use stoat_core::prelude::*;
use stoat_core::record::{Headers, RecordBatch};
use stoat_core::store::memory::MemoryStoreSet;
use stoat_core::store::rocks::{RocksConfig, RocksStoreSet};
use stoat_core::store::{Batch, ByteStore, StoreSet};
use stoat_core::topology::graph::Graph;

/// Records of one batch to the lane.
const BATCH: u64 = 1_000;
/// Writes of one epoch, at most.
const EPOCH: u64 = 20_000;
/// Operations that are measured at least, where there are fewer timers: then in rounds.
const LEAST: u64 = 200_000;
/// Operations of one phase, at most, the first filling aside.
const MOST: u64 = 1_000_000;
/// The time of the first timer.
const FIRST: u64 = 1_000_000;
/// In a value: cancel instead of set.
const CANCEL: u64 = 1 << 62;

#[source(topic = "in", key = u64, value = u64, value_codec = Be)]
struct In;

/// One timer per key.
#[processor(input = (u64, u64))]
struct Single {
    #[timer]
    one: Timer,
}

#[handlers]
impl Single {
    #[process]
    fn on_record(&mut self, record: Record<u64, u64>, _cx: &mut Context<Self>) -> Result<()> {
        match record.value {
            0 => Ok(()),
            v if v & CANCEL != 0 => self.one.cancel(),
            v => self.one.set(Timestamp(v as i64)),
        }
    }

    #[on_timer(one)]
    fn fire(&mut self, _fired: Fired<u64>, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

/// Many timers per key.
#[processor(input = (u64, u64))]
struct Many {
    #[timer]
    many: Timers,
}

#[handlers]
impl Many {
    #[process]
    fn on_record(&mut self, record: Record<u64, u64>, _cx: &mut Context<Self>) -> Result<()> {
        match record.value {
            0 => Ok(()),
            v if v & CANCEL != 0 => self.many.cancel(Timestamp((v & !CANCEL) as i64)),
            v => self.many.set(Timestamp(v as i64)),
        }
    }

    #[on_timer(many)]
    fn fire(&mut self, _fired: Fired<u64>, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn single(t: &mut Topology) {
    let records = t.source::<In>();
    records.process::<Single>();
}

#[topology]
fn many(t: &mut Topology) {
    let records = t.source::<In>();
    records.process::<Many>();
}

#[derive(Parser)]
struct Args {
    #[arg(long, value_delimiter = ',', default_value = "1000,100000,10000000")]
    pending: Vec<u64>,
    #[arg(long, value_delimiter = ',', default_value = "memory,rocksdb")]
    store: Vec<String>,
    #[arg(long, value_delimiter = ',', default_value = "timer,timers")]
    kind: Vec<String>,
    #[arg(long, default_value_t = 64)]
    budget_mib: usize,
}

fn main() -> std::result::Result<(), Box<dyn Error + Send + Sync>> {
    let args = Args::parse();
    println!("ns of CPU per operation: engine + store; budget {} MiB, one lane", args.budget_mib);
    println!(
        "{:<8} {:<8} {:>10}  {:>14} {:>14} {:>14} {:>14}  {:>9} {:>9} {:>8}",
        "kind", "store", "pending", "set", "set again", "cancel", "fire", "RSS B", "store B", "wall s"
    );
    for pending in &args.pending {
        for kind in &args.kind {
            for store in &args.store {
                run(kind, store, *pending, args.budget_mib).map_err(stoat_core::Error::into_std)?;
            }
        }
    }
    Ok(())
}

/// A directory that ends with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("stoat-timer-cost-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it; what is left lies in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(kind: &str, place: &str, pending: u64, budget: usize) -> Result<()> {
    let graph = if kind == "timer" { single::build()? } else { many::build()? };
    let mut config = Config::default();
    config.set("stoat.memory.budget", &format!("{budget}MiB"))?;
    let shares = config.shares();
    let scratch = Scratch::new().expect("a temporary directory can be made");
    let mut set: Box<dyn StoreSet> = if place == "memory" {
        Box::new(MemoryStoreSet::new())
    } else {
        Box::new(RocksStoreSet::open(&RocksConfig {
            memory: shares.rocksdb,
            ..RocksConfig::new(&scratch.0, "timer-cost")
        })?)
    };
    let store = set.open(&graph.stores[0].name, graph.stores[0].kind)?;
    let (rss, begin) = (resident(), Instant::now());
    let mut bench = Bench::new(&graph, store.clone(), shares.cache)?;
    let plain = bench.idle(LEAST)?;

    // Where timer `i` is, and when; numbers are spread so that neighbours in key are none in time.
    let time = |i: u64, round: u64| FIRST + (2 * round) * pending + mixed(i ^ round << 40) % pending;
    let many = kind == "timers";
    let each = pending.min(MOST);
    let (mut sets, mut again, mut cancels, mut fires) = <(Cost, Cost, Cost, Cost)>::default();
    let (mut bytes, mut stored) = (0, 0);
    for round in 0..(LEAST / pending).max(1) {
        bench.records(pending, &mut sets, |i| (i, time(i, round)))?;
        if round == 0 {
            bytes = resident().saturating_sub(rss);
            store.flush()?;
            stored = if place == "memory" { 0 } else { size_of_dir(&scratch.0) };
        }
        // Distinct timers in no order of key or time: set again to a little later, cancelled.
        let pick = |i: u64, of: u64| (i * 7_368_787 + of) % pending;
        if many {
            // Another time of the same key; taken back at once, so that as many stay pending.
            bench.records(each, &mut again, |i| (pick(i, 1), time(pick(i, 1), round) + pending))?;
            let mut rest = Cost::default();
            bench.records(each, &mut rest, |i| (pick(i, 1), CANCEL | (time(pick(i, 1), round) + pending)))?;
        } else {
            bench.records(each, &mut again, |i| (pick(i, 1), time(pick(i, 1), round) + pending / 2))?;
        }
        let half = (each / 2).max(1);
        bench.records(half, &mut cancels, |i| (pick(i, 1), CANCEL | time(pick(i, 1), round)))?;
        let from = FIRST + 2 * round * pending;
        // Until as many have fired as are measured; a round of few fires all.
        let mut to = from;
        while fires.count < (round + 1) * (pending - half).min(MOST / 2) && to < from + 2 * pending {
            to += (pending / 20).clamp(1_000, 10_000);
            bench.fire(to, &mut fires)?;
        }
        if pending <= MOST {
            bench.fire(from + 2 * pending, &mut fires)?;
        }
    }
    let shown = |c: &Cost, less: f64| {
        let per = |ns: u64| ns as f64 / c.count.max(1) as f64;
        format!("{:.0} + {:.0}", (per(c.engine) - less).max(0.0), per(c.store))
    };
    println!(
        "{kind:<8} {place:<8} {pending:>10}  {:>14} {:>14} {:>14} {:>14}  {:>9} {:>9} {:>8.1}",
        shown(&sets, plain),
        shown(&again, plain),
        shown(&cancels, plain),
        shown(&fires, 0.0),
        bytes / pending,
        stored / pending,
        begin.elapsed().as_secs_f64()
    );
    Ok(())
}

/// What an operation has cost, in ns.
#[derive(Default)]
struct Cost {
    engine: u64,
    store: u64,
    count: u64,
}

/// One lane and its store.
struct Bench {
    net: DeterministicNet,
    store: Arc<dyn ByteStore>,
    entry: stoat_core::operator::Child,
    next: u64,
    epoch: u64,
    events: Vec<NetEvent>,
}

impl Bench {
    fn new(graph: &Graph, store: Arc<dyn ByteStore>, cache_budget: usize) -> Result<Self> {
        let build = NetBuild {
            graph,
            lane_counts: &[1],
            stores: std::slice::from_ref(&store),
            sink_topics: Arc::new([]),
            sink_partitions: Arc::new([]),
            watermarks: &[Timestamp::MIN],
            punctuated: &[Timestamp::MIN],
            wall: Timestamp::MIN,
            gates: Arc::default(),
            cache_budget,
            settings: NetSettings { credit: 1_000, ..NetSettings::default() },
        };
        let entry = places(graph)[graph.sources[0].node.0 as usize];
        Ok(Self {
            net: DeterministicNet::new(build_lanes(&build)?, 0),
            store,
            entry,
            next: 1,
            epoch: 1,
            events: Vec::new(),
        })
    }

    /// Nanoseconds of a record whose handler does nothing.
    fn idle(&mut self, count: u64) -> Result<f64> {
        let mut cost = Cost::default();
        self.records(count, &mut cost, |i| (i % 1_000, 0))?;
        Ok(cost.engine as f64 / cost.count as f64)
    }

    /// Gives the lane so many records, and ends epochs in between and behind.
    fn records(&mut self, count: u64, cost: &mut Cost, record: impl Fn(u64) -> (u64, u64)) -> Result<()> {
        let mut open = 0;
        for first in (0..count).step_by(BATCH as usize) {
            let last = count.min(first + BATCH);
            let batch = self.batch((first..last).map(&record));
            let lane = LaneId { sub: SubTopologyId(0), lane: LaneIdx(0) };
            cost.engine += spent(|| {
                self.net.send(lane, batch);
                self.net.publish(self.next);
                self.net.poll(&mut self.events);
            });
            open += last - first;
            if open >= EPOCH || last == count {
                self.commit(cost)?;
                open = 0;
            }
        }
        cost.count += count;
        Ok(())
    }

    fn batch(&mut self, records: impl Iterator<Item = (u64, u64)>) -> LaneBatch {
        let mut batch = RecordBatch::default();
        let mut items = Vec::new();
        for (index, (key, value)) in (0..).zip(records) {
            let key = key.to_be_bytes();
            batch.push(0, Timestamp(1), Some(&key), Some(&value.to_be_bytes()), Headers::default());
            items.push(LaneItem { number: self.next, source: 0, index, hash: lane_hash(&key), key: None });
            self.next += 1;
        }
        let source = LaneSource { batch: Arc::new(batch), partition: 0, entry: self.entry };
        LaneBatch { sources: vec![source], items, ..LaneBatch::default() }
    }

    fn control(&mut self, control: Control) {
        self.net.control(self.next, control);
        self.next += 1;
        self.net.publish(self.next);
        self.net.poll(&mut self.events);
    }

    /// Moves the watermark; what was due has fired, and its rows are committed.
    fn fire(&mut self, to: u64, cost: &mut Cost) -> Result<()> {
        let mark = Mark { watermarks: vec![Timestamp(to as i64)], limits: vec![None] };
        cost.engine += spent(|| self.control(Control::Mark(Arc::new(mark))));
        cost.count += self.commit(cost)?;
        Ok(())
    }

    /// Ends the epoch; returns how many rows it wrote.
    fn commit(&mut self, cost: &mut Cost) -> Result<u64> {
        let epoch = Epoch(self.epoch);
        self.epoch += 1;
        cost.engine += spent(|| self.control(Control::Barrier(epoch)));
        let mut written = 0;
        for event in std::mem::take(&mut self.events) {
            match event {
                NetEvent::Frozen(frozen) => {
                    let Frozen { stores, .. } = *frozen;
                    for (_, rows) in stores {
                        written += rows.len() as u64;
                        let batch = Batch { rows, ..Batch::default() };
                        let mut applied = Ok(());
                        cost.store += spent(|| applied = self.store.apply(Generation(1), &batch));
                        applied?;
                    }
                }
                NetEvent::Fault { error, .. } => return Err(error),
                _ => {}
            }
        }
        cost.engine += spent(|| self.control(Control::Applied(epoch)));
        Ok(written)
    }
}

/// Spreads numbers one to one (splitmix64's finaliser).
fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Nanoseconds of CPU that this thread spends on it.
fn spent(act: impl FnOnce()) -> u64 {
    static LOOK: OnceLock<u64> = OnceLock::new();
    // What a look at the clock itself takes.
    let look = *LOOK.get_or_init(|| {
        let before = cpu();
        for _ in 0..1_000 {
            std::hint::black_box(cpu());
        }
        cpu().saturating_sub(before) / 1_000
    });
    let before = cpu();
    act();
    cpu().saturating_sub(before + look)
}

/// CPU time of this thread as Linux counts it; zero elsewhere.
fn cpu() -> u64 {
    // Linux brings the count up to date when the thread offers its place.
    std::thread::yield_now();
    let stat = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    stat.split(' ').next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Bytes of resident memory.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) << 10
}

fn size_of_dir(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|e| match e.metadata() {
            Ok(m) if m.is_dir() => size_of_dir(&e.path()),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}
