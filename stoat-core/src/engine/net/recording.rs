//! The ingest order of a run, recorded, and run again with any number of lanes (I-6).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::super::epoch::merge;
use super::super::message::{Control, Frozen, LaneBatch, LaneItem, LaneNet, LaneSource, Mark, NetEvent};
use super::{DeterministicNet, NetBuild, NetSettings, build_lanes};
use crate::affinity::LaneChecks;
use crate::config::EmitMode;
use crate::error::Result;
use crate::gate::Gates;
use crate::hash::lane_of;
use crate::id::{Epoch, Generation, LaneId, LaneIdx, SubTopologyId};
use crate::operator::{Child, ForeignTimer};
use crate::record::{Headers, RecordBatch};
use crate::store::twin::TwinDisk;
use crate::store::{Batch, ByteStore, StoreSet};
use crate::time::{Timestamp, Watermark};
use crate::topology::graph::Graph;

/// A record as ingest dispatched it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispatched {
    /// The sub-topology.
    pub sub: SubTopologyId,
    /// The source operator.
    pub entry: Child,
    /// The place of its partition in the plan.
    pub partition: u32,
    /// Its offset.
    pub offset: i64,
    /// Its time.
    pub timestamp: Timestamp,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its lane key, where that was encoded anew.
    pub lane_key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Headers,
    /// Its lane hash.
    pub hash: u64,
}

/// One ingest number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A record.
    Record(Box<Dispatched>),
    /// A mark, tick, barrier or applied epoch.
    Control(Control),
}

/// What was dispatched in one epoch, in ingest order, its barrier included.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Whether an engine generation began with it.
    pub begins: bool,
    /// By rising number.
    pub entries: Vec<Entry>,
}

#[derive(Default)]
struct Tape {
    /// By epoch. What was dropped at a fault is written over by what came instead.
    segments: BTreeMap<Epoch, Segment>,
    open: Vec<(u64, Entry)>,
    begins: bool,
    wall: Option<Timestamp>,
    /// The most bytes that were uncommitted.
    peak: usize,
    /// Records, marks and ticks so far.
    taken: u64,
}

/// The ingest order of an application, over all its generations and processes; clones are handles.
#[derive(Clone, Default)]
pub struct Recording(Arc<Mutex<Tape>>);

impl Recording {
    fn lock(&self) -> MutexGuard<'_, Tape> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records what a new generation's lanes are given.
    pub fn wrap(&self, net: Box<dyn LaneNet>, build: &NetBuild<'_>) -> Box<dyn LaneNet> {
        let mut tape = self.lock();
        tape.open.clear();
        tape.begins = true;
        tape.wall.get_or_insert(build.wall);
        drop(tape);
        Box::new(RecordingNet { net, tape: self.clone() })
    }

    /// The epochs up to `last`, each with what it was made of.
    pub fn history(&self, last: Epoch) -> BTreeMap<Epoch, Segment> {
        let tape = self.lock();
        tape.segments.range(..=last).map(|(e, s)| (*e, s.clone())).collect()
    }

    /// The most bytes that were uncommitted at any look.
    pub fn peak(&self) -> usize {
        self.lock().peak
    }

    /// How many records, marks and ticks the lanes were given, those of epochs that were lost included.
    pub fn taken(&self) -> u64 {
        self.lock().taken
    }

    /// Begins to look for [`Recording::peak`] anew.
    pub fn forget_peak(&self) {
        self.lock().peak = 0;
    }

    /// The wall clock that the first generation began with.
    pub fn wall(&self) -> Timestamp {
        self.lock().wall.unwrap_or(Timestamp::MIN)
    }
}

struct RecordingNet {
    net: Box<dyn LaneNet>,
    tape: Recording,
}

impl LaneNet for RecordingNet {
    fn has_room(&self, lane: LaneId) -> bool {
        self.net.has_room(lane)
    }

    fn send(&mut self, lane: LaneId, batch: LaneBatch) {
        let mut tape = self.tape.lock();
        tape.taken += batch.items.len() as u64;
        for item in &batch.items {
            let source = &batch.sources[item.source as usize];
            let r = source.batch.get(item.index as usize);
            let lane_key = item.key.map(|(at, n)| batch.keys[at as usize..(at + n) as usize].to_vec());
            let record = Dispatched {
                sub: lane.sub,
                entry: source.entry,
                partition: source.partition,
                offset: r.offset,
                timestamp: r.timestamp,
                key: r.key.map(<[u8]>::to_vec),
                lane_key,
                value: r.value.map(<[u8]>::to_vec),
                headers: r.headers.clone(),
                hash: item.hash,
            };
            tape.open.push((item.number, Entry::Record(Box::new(record))));
        }
        drop(tape);
        self.net.send(lane, batch);
    }

    fn control(&mut self, number: u64, control: Control) {
        let mut tape = self.tape.lock();
        tape.open.push((number, Entry::Control(control.clone())));
        tape.taken += u64::from(matches!(control, Control::Mark(_) | Control::Tick(_)));
        if let Control::Barrier(epoch) = control {
            let mut entries = std::mem::take(&mut tape.open);
            entries.sort_by_key(|(n, _)| *n);
            let segment = Segment {
                begins: std::mem::take(&mut tape.begins),
                entries: entries.into_iter().map(|(_, e)| e).collect(),
            };
            tape.segments.insert(epoch, segment);
        }
        drop(tape);
        self.net.control(number, control);
    }

    fn publish(&mut self, next: u64) {
        self.net.publish(next);
    }

    fn exchange(&mut self, sub: SubTopologyId, epoch: Epoch, writes: Arc<Vec<ForeignTimer>>) {
        self.net.exchange(sub, epoch, writes);
    }

    fn uncommitted(&self) -> usize {
        let now = self.net.uncommitted();
        let mut tape = self.tape.lock();
        tape.peak = tape.peak.max(now);
        now
    }

    fn lowest(&self) -> u64 {
        self.net.lowest()
    }

    fn wants_ticks(&self) -> bool {
        self.net.wants_ticks()
    }

    fn poll(&mut self, out: &mut Vec<NetEvent>) {
        self.net.poll(out);
    }

    fn notify(&self, waker: Waker) {
        self.net.notify(waker);
    }

    fn stop(&mut self) -> bool {
        self.net.stop()
    }
}

/// A record as it was written: key, value, time.
pub type Written = (Option<Vec<u8>>, Option<Vec<u8>>, Timestamp);

/// Changelog rows of one store: by key, value and time.
pub type Rows = BTreeMap<Vec<u8>, (Option<Vec<u8>>, Timestamp)>;

/// What one epoch came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochResult {
    /// Sinks: by topic and partition, in order.
    pub outputs: BTreeMap<(String, i32), Vec<Written>>,
    /// Changelog rows: by store's name, then key.
    pub rows: BTreeMap<String, Rows>,
    /// The watermark that each sub-topology has reached.
    pub watermarks: Vec<Watermark>,
}

/// What a replay needs to know.
pub struct Replay<'a> {
    /// The topology.
    pub graph: &'a Graph,
    /// The sinks' partition counts, by sink.
    pub sink_partitions: &'a [i32],
    /// Lanes of each sub-topology.
    pub lanes: u32,
    /// The schedule of the lanes, and how records are batched.
    pub seed: u64,
    /// The wall clock at the beginning.
    pub wall: Timestamp,
    /// When aggregations hand on what has changed.
    pub emit: EmitMode,
    /// What becomes of records that fail.
    pub gates: Arc<Gates>,
}

struct Replayer {
    net: DeterministicNet,
    next: u64,
    lanes: u32,
    random: u64,
    stores: Vec<Arc<dyn ByteStore>>,
    /// Frozen and not yet applied.
    waiting: Option<(Epoch, Vec<Frozen>)>,
    /// What the lanes said and nobody has looked at yet.
    events: Vec<NetEvent>,
}

impl Replayer {
    fn below(&mut self, n: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    fn control(&mut self, control: Control) {
        self.net.control(self.next, control);
        self.next += 1;
        self.net.publish(self.next);
    }

    /// Sends records in batches that say nothing about lanes.
    fn records(&mut self, records: &[&Dispatched]) {
        let mut batches: BTreeMap<LaneId, LaneBatch> = BTreeMap::new();
        for r in records {
            let lane = LaneId { sub: r.sub, lane: LaneIdx(lane_of(r.hash, self.lanes)) };
            let to = batches.entry(lane).or_default();
            let mut batch = RecordBatch::default();
            batch.push(r.offset, r.timestamp, r.key.as_deref(), r.value.as_deref(), r.headers.clone());
            to.sources.push(LaneSource { batch: Arc::new(batch), partition: r.partition, entry: r.entry });
            let key = r.lane_key.as_ref().map(|k| {
                to.keys.extend_from_slice(k);
                ((to.keys.len() - k.len()) as u32, k.len() as u32)
            });
            to.items.push(LaneItem {
                number: self.next,
                source: to.sources.len() as u32 - 1,
                index: 0,
                hash: r.hash,
                key,
            });
            self.next += 1;
        }
        for (lane, batch) in batches {
            self.net.send(lane, batch);
        }
        self.net.publish(self.next);
    }

    /// Sends a mark; whether it was cut and left something due, so that its repetition must come before any record.
    fn mark(&mut self, mark: Arc<Mark>) -> bool {
        let cut = mark.limits.iter().any(Option::is_some);
        self.control(Control::Mark(mark));
        let first = self.events.len();
        self.net.poll(&mut self.events);
        let left = |e: &NetEvent| matches!(e, NetEvent::Marked { more_due: true, .. });
        cut && self.events[first..].iter().any(left)
    }

    fn apply(&mut self) -> Result<()> {
        let Some((epoch, frozen)) = self.waiting.take() else {
            return Ok(());
        };
        for (store, rows) in frozen.into_iter().flat_map(|f| f.stores) {
            let batch = Batch { rows, ..Batch::default() };
            self.stores[store.0 as usize].apply(Generation(1), &batch)?;
        }
        self.control(Control::Applied(epoch));
        Ok(())
    }

    /// Runs the lanes to the barrier.
    fn freeze(&mut self, epoch: Epoch, lanes: usize) -> Result<()> {
        let mut frozen = Vec::new();
        let mut exchange: BTreeMap<SubTopologyId, (u32, Vec<ForeignTimer>)> = BTreeMap::new();
        let mut events = std::mem::take(&mut self.events);
        while frozen.len() < lanes {
            self.net.poll(&mut events);
            assert!(!events.is_empty(), "the lanes do not come to the barrier of epoch {epoch}");
            for event in events.drain(..) {
                match event {
                    NetEvent::Frozen(f) => frozen.push(*f),
                    NetEvent::Exchange { lane, mut writes, .. } => {
                        let at = exchange.entry(lane.sub).or_default();
                        at.0 += 1;
                        at.1.append(&mut writes);
                        if at.0 == self.lanes {
                            let mut all = std::mem::take(&mut at.1);
                            all.sort_by(|a, b| (&a.tag, a.index).cmp(&(&b.tag, b.index)));
                            self.net.exchange(lane.sub, epoch, Arc::new(all));
                        }
                    }
                    NetEvent::Marked { .. } | NetEvent::Ticked { .. } => {}
                    NetEvent::Fault { error, .. } => return Err(error),
                }
            }
        }
        self.waiting = Some((epoch, frozen));
        Ok(())
    }
}

/// Runs a recorded ingest order again, from nothing, with other lanes.
///
/// # Errors
/// What the lanes return.
///
/// # Panics
/// When the lanes come to no end.
pub fn replay(history: &BTreeMap<Epoch, Segment>, with: &Replay<'_>) -> Result<BTreeMap<Epoch, EpochResult>> {
    let graph = with.graph;
    let mut set = TwinDisk::new().open_set();
    let stores = graph.stores.iter().map(|s| set.open(&s.name, s.kind));
    let stores = stores.collect::<Result<Vec<_>>>()?;
    let subs = graph.subs as usize;
    let (counts, watermarks) = (vec![with.lanes; subs], vec![Timestamp::MIN; subs]);
    let build = NetBuild {
        graph,
        lane_counts: &counts,
        stores: &stores,
        sink_topics: graph
            .sinks
            .iter()
            .map(|s| Arc::from(s.topic.as_str()))
            .chain(with.gates.letters.iter().map(|l| l.topic.clone()))
            .collect(),
        sink_partitions: with.sink_partitions.into(),
        watermarks: &watermarks,
        punctuated: &watermarks,
        wall: with.wall,
        cache_budget: 0,
        gates: with.gates.clone(),
        settings: NetSettings {
            credit: 1 + (with.seed % 3) as u32,
            step_records: 1 + (with.seed % 7) as usize,
            timers_per_mark: 1,
            checks: LaneChecks::off(),
            emit: with.emit,
            ..NetSettings::default()
        },
    };
    let mut r = Replayer {
        net: DeterministicNet::new(build_lanes(&build)?, with.seed),
        next: 1,
        lanes: with.lanes,
        random: with.seed,
        stores: stores.clone(),
        waiting: None,
        events: Vec::new(),
    };
    let (mut results, mut due) = (BTreeMap::new(), false);
    for (&epoch, segment) in history {
        if segment.begins {
            r.apply()?;
        }
        let mut run = Vec::new();
        for entry in &segment.entries {
            match entry {
                Entry::Record(record) => {
                    assert!(!due, "epoch {epoch}: a record is dispatched before a mark that was cut is repeated");
                    run.push(&**record);
                    if r.below(6) == 0 {
                        r.records(&std::mem::take(&mut run));
                    }
                }
                Entry::Control(control) => {
                    r.records(&std::mem::take(&mut run));
                    match control {
                        Control::Applied(_) => {
                            // All lanes go over to it here: until then the bytes are those of before.
                            r.net.run_to_rest();
                            r.apply()?;
                        }
                        Control::Barrier(epoch) => {
                            r.net.run_to_rest();
                            r.apply()?;
                            r.control(Control::Barrier(*epoch));
                        }
                        Control::Mark(mark) => due = r.mark(mark.clone()),
                        other @ Control::Tick(_) => r.control(other.clone()),
                    }
                }
            }
        }
        r.freeze(epoch, subs * with.lanes as usize)?;
        let frozen = r.waiting.as_mut().map(|(_, f)| f).expect("it was just frozen");
        frozen.sort_by_key(|f| f.lane);
        results.insert(epoch, result(graph, frozen, subs));
    }
    Ok(results)
}

fn result(graph: &Graph, frozen: &mut [Frozen], subs: usize) -> EpochResult {
    let mut result = EpochResult { watermarks: vec![Timestamp::MAX; subs], ..EpochResult::default() };
    let outputs: Vec<_> = frozen.iter_mut().map(|f| std::mem::take(&mut f.outputs)).collect();
    for (lane, i) in merge(&outputs) {
        let r = outputs[lane as usize].batch.get(i as usize);
        let at = (r.topic.to_string(), r.partition);
        let record = (r.key.map(<[u8]>::to_vec), r.value.map(<[u8]>::to_vec), r.timestamp);
        result.outputs.entry(at).or_default().push(record);
    }
    for f in frozen {
        let w = &mut result.watermarks[f.lane.sub.0 as usize];
        *w = (*w).min(f.watermark);
        for (store, rows) in &f.stores {
            let all = result.rows.entry(graph.stores[store.0 as usize].name.clone()).or_default();
            for row in rows {
                let twice = all.insert(row.key.clone(), (row.value.clone(), row.timestamp));
                assert!(twice.is_none(), "two rows of one key in one epoch");
            }
        }
    }
    result
}
