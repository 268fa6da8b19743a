//! One lane without an engine, for tests: records in, outputs, rows and timers out.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    unused_macros,
    missing_debug_implementations,
    reason = "part of unit tests and of integration tests, none of which uses all of it"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use stoat_core::engine::tag::{Path, Tags};
use stoat_core::error::Result;
use stoat_core::id::{Epoch, Generation, LaneIdx, SubTopologyId};
use stoat_core::operator::{Child, CurrentKey, HandBatch, LaneCx, Operator, Outputs};
use stoat_core::record::{Headers, Origin, RecordBatch};
use stoat_core::store::{Batch, ByteStore, Row, Stamp, StoreKind};
use stoat_core::time::{Now, TimeDomain, Timestamp};
use stoat_core::topology::graph::{Graph, LaneBuild, LaneKey, NodeKind};

/// A store in memory.
pub struct TestStore {
    rows: RwLock<BTreeMap<Vec<u8>, Vec<u8>>>,
    kind: StoreKind,
}

impl TestStore {
    pub fn new(kind: StoreKind) -> Arc<Self> {
        Arc::new(Self { rows: RwLock::default(), kind })
    }
}

impl ByteStore for TestStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.rows.read().unwrap().get(key).cloned())
    }

    fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        for (k, v) in self.rows.read().unwrap().iter() {
            if from.is_none_or(|f| f <= k.as_slice()) && to.is_none_or(|t| k.as_slice() < t) && !visit(k, v) {
                break;
            }
        }
        Ok(())
    }

    fn due(&self, from: Timestamp, key: &[u8], visit: &mut dyn FnMut(Timestamp, &[u8]) -> bool) -> Result<()> {
        let mut due: Vec<(Timestamp, Vec<u8>)> = Vec::new();
        for (k, v) in self.rows.read().unwrap().iter() {
            let (k, t) = if self.kind == StoreKind::Timer { (&k[..], &v[..]) } else { k.split_at(k.len() - 8) };
            due.push((Timestamp(i64::from_be_bytes(t.try_into().unwrap())), k.to_vec()));
        }
        due.sort();
        for (t, k) in due.iter().filter(|(t, k)| (*t, k.as_slice()) >= (from, key)) {
            if !visit(*t, k) {
                break;
            }
        }
        Ok(())
    }

    fn apply(&self, _: Generation, batch: &Batch) -> Result<()> {
        let mut rows = self.rows.write().unwrap();
        for row in &batch.rows {
            match &row.value {
                None => {
                    rows.remove(&row.key);
                }
                Some(v) => {
                    let mut local = Vec::new();
                    if self.kind == StoreKind::TimestampedKeyValue {
                        local.extend_from_slice(&row.timestamp.as_millis().to_be_bytes());
                    }
                    local.extend_from_slice(v);
                    rows.insert(row.key.clone(), local);
                }
            }
        }
        Ok(())
    }

    fn begin(&self, _: Generation) {}

    fn stamp(&self) -> Result<Option<Stamp>> {
        Ok(None)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn clear(&self) -> Result<()> {
        self.rows.write().unwrap().clear();
        Ok(())
    }
}

/// One output: topic, key, value, timestamp.
pub type Output = (String, String, String, i64);

/// All sub-topologies of a graph with one lane each, in one arena.
pub struct OneLane {
    pub graph: Graph,
    pub stores: Vec<Arc<dyn ByteStore>>,
    nodes: Vec<Option<Box<dyn Operator>>>,
    outputs: Outputs,
    partitions: Vec<i32>,
    number: u64,
    now: Now,
    epoch: u64,
}

impl OneLane {
    pub fn new(graph: Graph) -> Self {
        let stores = graph.stores.iter().map(|s| TestStore::new(s.kind) as Arc<dyn ByteStore>).collect();
        Self::with_stores(graph, stores)
    }

    /// As after a restart: operators are new, stores are kept.
    pub fn with_stores(graph: Graph, stores: Vec<Arc<dyn ByteStore>>) -> Self {
        let nodes: Vec<Option<Box<dyn Operator>>> = graph
            .nodes
            .iter()
            .map(|node| {
                let children = if node.kind == NodeKind::HandOver {
                    Vec::new()
                } else {
                    node.children.iter().map(|c| Child(c.0)).collect()
                };
                let build = LaneBuild {
                    node,
                    lane: LaneIdx(0),
                    lanes: 1,
                    children,
                    receiving_lanes: 1,
                    stores: &stores,
                    cache: 0,
                    place: None,
                    on_barrier: false,
                };
                Some((node.factory)(&build).unwrap())
            })
            .collect();
        let topics = graph.sinks.iter().map(|s| s.topic.as_str().into()).collect();
        Self {
            partitions: vec![1; graph.sinks.len()],
            outputs: Outputs { batch: stoat_core::record::ProduceBatch::new(topics), tags: Tags::default() },
            graph,
            stores,
            nodes,
            number: 0,
            now: Now { watermark: Timestamp::MIN, wall: Timestamp::MIN },
            epoch: 0,
        }
    }

    fn run<R>(&mut self, key: CurrentKey, call: impl FnOnce(&mut LaneCx<'_>) -> R) -> R {
        self.number += 1;
        let mut cx = LaneCx {
            nodes: &mut self.nodes,
            number: self.number,
            path: Path::default(),
            key,
            now: self.now,
            origin: Some(Origin { partition: 0, offset: self.number as i64 }),
            outputs: &mut self.outputs,
            sink_partitions: &self.partitions,
            gate: &mut stoat_core::gate::LaneGate::default(),
        };
        call(&mut cx)
    }

    /// Gives a record to the source of a topic and lets all that follows come to rest.
    pub fn pipe(&mut self, topic: &str, key: Option<&[u8]>, value: Option<&[u8]>, timestamp: i64) -> Result<()> {
        let source = self.graph.sources.iter().find(|s| s.topic == topic).unwrap();
        let mut bytes = Vec::new();
        if let Some(key) = key {
            match source.lane_key {
                LaneKey::Raw => bytes.extend_from_slice(key),
                LaneKey::Reencoded(f) => f(key, &mut bytes).unwrap(),
            }
        }
        let current = current(&bytes, key.is_some());
        let node = source.node.0 as usize;
        let mut batch = RecordBatch::default();
        batch.push(0, Timestamp(timestamp), key, value, Headers::default());
        self.run(current, |cx| {
            let mut op = cx.nodes[node].take().unwrap();
            let result = op.push_raw(batch.get(0), cx);
            cx.nodes[node] = Some(op);
            result
        })?;
        self.settle()
    }

    fn settle(&mut self) -> Result<()> {
        loop {
            let mut moved = false;
            for i in 0..self.nodes.len() {
                let Some(outbound) = self.nodes[i].as_mut().and_then(|n| n.outbound()) else {
                    continue;
                };
                let mut batches: Vec<(LaneIdx, Box<dyn HandBatch>)> = Vec::new();
                outbound.take(&mut batches);
                let entry = Child(self.graph.nodes[i].children[0].0);
                for (_, mut batch) in batches {
                    for r in 0..batch.len() {
                        moved = true;
                        self.run(CurrentKey::default(), |cx| batch.deliver(r, entry, cx))?;
                    }
                }
            }
            if !moved {
                return Ok(());
            }
        }
    }

    /// Moves the watermark and fires.
    pub fn advance(&mut self, watermark: i64) -> Result<()> {
        self.fire(TimeDomain::Event, Timestamp(watermark))?;
        self.now.watermark = Timestamp(watermark);
        Ok(())
    }

    /// Moves the wall clock, fires, and runs each wall-clock punctuator once.
    pub fn tick(&mut self, wall: i64) -> Result<()> {
        self.now.wall = Timestamp(wall);
        self.fire(TimeDomain::Wall, Timestamp(wall))?;
        for i in 0..self.nodes.len() {
            let mut node = self.nodes[i].take().unwrap();
            if let Some(state) = node.state() {
                for (which, p) in state.punctuators().to_vec().into_iter().enumerate() {
                    let mut keys: Vec<Option<Vec<u8>>> = vec![None];
                    if let Some(over) = p.over {
                        let mut at = 0;
                        state.fields(&mut |f| {
                            if at == over {
                                keys = f.keys(&|_| true).unwrap().into_iter().map(Some).collect();
                            }
                            at += 1;
                        });
                    }
                    for key in keys {
                        let key = key.map_or_else(CurrentKey::default, |k| current(&k, true));
                        self.run(key, |cx| state.punctuate(which, Timestamp(wall), cx))?;
                    }
                }
            }
            self.nodes[i] = Some(node);
        }
        self.settle()
    }

    fn fire(&mut self, domain: TimeDomain, until: Timestamp) -> Result<()> {
        loop {
            // (time, key, node, field)
            let mut next: Option<(Timestamp, Vec<u8>, usize, usize)> = None;
            for (i, node) in self.nodes.iter_mut().enumerate() {
                let Some(state) = node.as_mut().and_then(|n| n.state()) else {
                    continue;
                };
                let mut field = 0;
                state.fields(&mut |f| {
                    if let Some(t) = f.timers()
                        && t.domain() == domain
                        && let Some((time, key)) = t.first(until).unwrap()
                        && next.as_ref().is_none_or(|(nt, nk, ..)| (time, key) < (*nt, nk.as_slice()))
                    {
                        next = Some((time, key.to_vec(), i, field));
                    }
                    field += 1;
                });
            }
            let Some((time, key, i, field)) = next else {
                return self.settle();
            };
            let mut node = self.nodes[i].take().unwrap();
            let state = node.state().unwrap();
            let mut at = 0;
            state.fields(&mut |f| {
                if at == field {
                    f.timers().unwrap().take_first();
                }
                at += 1;
            });
            let result = self.run(current(&key, true), |cx| {
                cx.path = Path::fired(SubTopologyId(0), time, &key, 0);
                state.fire(field, time, cx)
            });
            self.nodes[i] = Some(node);
            result?;
            self.settle()?;
        }
    }

    /// Ends the epoch: rows by store name, sorted by key. They are not applied.
    pub fn freeze(&mut self) -> BTreeMap<String, Vec<Row>> {
        self.epoch += 1;
        let epoch = Epoch(self.epoch);
        let mut rows: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for node in self.nodes.iter_mut().flatten() {
            let Some(state) = node.state() else { continue };
            let mut foreign = Vec::new();
            state.fields(&mut |f| {
                if let Some(t) = f.timers() {
                    foreign.extend(t.take_foreign());
                }
            });
            foreign.sort_by(|a, b| (&a.tag, a.index).cmp(&(&b.tag, b.index)));
            state.fields(&mut |f| {
                let store = f.store();
                for w in foreign.iter().filter(|w| w.store == store) {
                    f.timers().unwrap().apply_foreign(w).unwrap();
                }
                let name = &self.graph.stores[store.0 as usize].name;
                let mut out = Vec::new();
                f.freeze(epoch, &mut out).unwrap();
                out.sort_by(|a, b| a.key.cmp(&b.key));
                rows.insert(name.clone(), out);
            });
        }
        rows
    }

    /// The committed rows of an epoch reach the stores.
    pub fn apply(&mut self, rows: &BTreeMap<String, Vec<Row>>) {
        for (i, decl) in self.graph.stores.iter().enumerate() {
            let batch = Batch { rows: rows.get(&decl.name).cloned().unwrap_or_default(), stamp: Stamp::default() };
            self.stores[i].apply(Generation(0), &batch).unwrap();
        }
        let epoch = Epoch(self.epoch);
        for state in self.nodes.iter_mut().flatten().filter_map(|n| n.state()) {
            state.fields(&mut |f| f.applied(epoch));
        }
    }

    /// Takes what went to sinks.
    pub fn outputs(&mut self) -> Vec<Output> {
        let topics = self.outputs.batch.topics().clone();
        let batch = std::mem::replace(&mut self.outputs.batch, stoat_core::record::ProduceBatch::new(topics));
        let tags = std::mem::take(&mut self.outputs.tags);
        assert!(tags.iter().is_sorted(), "a lane emits in rising order of tags");
        let text = |b: Option<&[u8]>| b.map_or_else(|| "null".to_owned(), |b| String::from_utf8_lossy(b).into_owned());
        batch.iter().map(|r| (r.topic.to_string(), text(r.key), text(r.value), r.timestamp.as_millis())).collect()
    }

    /// Bytes held by all fields: uncommitted and in all.
    pub fn weight(&mut self) -> (usize, usize) {
        let mut sum = (0, 0);
        for state in self.nodes.iter_mut().flatten().filter_map(|n| n.state()) {
            state.fields(&mut |f| {
                sum.0 += f.weight().uncommitted;
                sum.1 += f.weight().total;
            });
        }
        sum
    }

    /// Drops clean entries.
    pub fn trim(&mut self, bytes: usize) {
        for state in self.nodes.iter_mut().flatten().filter_map(|n| n.state()) {
            state.fields(&mut |f| f.trim(bytes));
        }
    }
}

/// A key as a lane has it.
pub fn current(bytes: &[u8], present: bool) -> CurrentKey {
    CurrentKey { bytes: bytes.to_vec(), hash: stoat_core::hash::lane_hash(bytes), present }
}

/// What `#[source]` writes.
macro_rules! source {
    ($name:ident, $topic:literal, $key:ty, $value:ty, $kc:ty, $vc:ty, $lane:ty) => {
        struct $name;
        impl stoat_core::source::Source for $name {
            type Key = $key;
            type Value = $value;
            type KeyCodec = $kc;
            type ValueCodec = $vc;
            type Lane = $lane;
            const TOPIC: &'static str = $topic;
            const NAME: &'static str = stringify!($name);
        }
    };
}

/// What `#[sink]` writes.
macro_rules! sink {
    ($name:ident, $topic:literal, $key:ty, $value:ty, $kc:ty, $vc:ty) => {
        struct $name;
        impl stoat_core::sink::Sink for $name {
            type Key = $key;
            type Value = $value;
            type KeyCodec = $kc;
            type ValueCodec = $vc;
            const TOPIC: &'static str = $topic;
            const NAME: &'static str = stringify!($name);
        }
    };
}

/// What `#[processor]` writes for a struct without configuration.
macro_rules! processor {
    ($name:ident, ($k:ty, $v:ty) => $mode:ident($ok:ty, $ov:ty), { $($field:ident: $ty:ty $(= $clock:ident)?),* $(,)? }) => {
        struct $name { $($field: $ty),* }
        impl stoat_core::processor::Processor for $name {
            type InKey = $k;
            type InValue = $v;
            type OutKey = $ok;
            type OutValue = $ov;
            type Mode = stoat_core::processor::$mode;
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [stoat_core::processor::FieldDecl] = &[$(
                stoat_core::processor::FieldDecl::of::<$ty>(stringify!($field), stoat_core::processor::FieldOptions {
                    name: None,
                    #[allow(unused_variables)]
                    clock: {
                        let clock = stoat_core::time::TimeDomain::Event;
                        $(let clock = stoat_core::time::TimeDomain::$clock;)?
                        clock
                    },
                })
            ),*];
            #[allow(unused_variables)]
            fn visit_fields<F: stoat_core::processor::FieldVisitor<Self>>(&mut self, visitor: &mut F) {
                $(visitor.visit(&mut self.$field);)*
            }
        }
        impl<K, L> stoat_core::processor::FitsLane<K, L> for $name
        where
            $(L: stoat_core::topology::lane_state::FitsField<$name, $ty>,)*
        {}
        impl stoat_core::processor::Unconfigured for $name {
            fn init() -> stoat_core::processor::Init<Self> {
                stoat_core::processor::Init::new(|build| {
                    let mut next = 0_usize..;
                    let mut index = || next.next().unwrap();
                    let _ = (&build, &mut index);
                    $name { $($field: build.field(index())),* }
                })
            }
        }
    };
}

#[allow(unused_imports, reason = "not each file that has the harness uses all of it")]
pub(crate) use {processor, sink, source};
