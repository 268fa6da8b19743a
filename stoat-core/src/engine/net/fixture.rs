//! Test topologies: handlers as pure functions, operators that run them on lanes, and an oracle that runs them depth
//! first on one thread without lanes, queues or epochs in flight.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::engine::message::{Mark, Position};
use crate::engine::tag::Tag;
use crate::error::{Error, Result};
use crate::hash::{lane_hash, lane_of, partition_for};
use crate::id::{Epoch, Generation, LaneIdx, NodeId, SinkId, StoreId, SubTopologyId};
use crate::operator::{
    Child, Field, ForeignTimer, HandBatch, LaneCx, Operator, Outbound, PendingTimers, Punctuator, StateOperator,
    Weight, take,
};
use crate::record::{Headers, Origin, RawRecord, Record};
use crate::store::{Batch, ByteStore, Row, Stamp, StoreKind};
use crate::time::{TimeDomain, Timestamp, WatermarkStrategy};
use crate::topology::graph::{Graph, LaneBuild, LaneKey, Node, NodeKind, SinkDecl, SourceDecl, StoreDecl};

pub(super) const KEYS: [&str; 6] = ["a", "b", "c", "d", "dd", "e"];
pub(super) const SINK_PARTITIONS: i32 = 2;

pub(super) fn hash(parts: &[&str]) -> u64 {
    let mut h = rustc_hash::FxHasher::default();
    for p in parts {
        h.write(p.as_bytes());
        h.write_u8(0xff);
    }
    lane_hash(&h.finish().to_be_bytes())
}

pub(super) fn mix(parts: &[&str]) -> String {
    format!("{:08x}", hash(parts) as u32)
}

fn other(key: &str, value: &str) -> String {
    KEYS[hash(&["other", key, value]) as usize % KEYS.len()].to_string()
}

// --- handlers --------------------------------------------------------------------------------------------------------

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Pass,
    Rekey,
    Fan,
    Concat,
    Session,
    Windows,
    Chain,
    Foreign,
    Wall,
    EventPunctuator,
    Panics,
    Fails,
}

impl Kind {
    pub(super) const STATEFUL: [Self; 7] =
        [Self::Concat, Self::Session, Self::Windows, Self::Chain, Self::Foreign, Self::Wall, Self::EventPunctuator];

    fn stateful(self) -> bool {
        Self::STATEFUL.contains(&self)
    }

    fn domain(self) -> TimeDomain {
        if self == Self::Wall { TimeDomain::Wall } else { TimeDomain::Event }
    }

    fn punctuator(self) -> Option<Punctuator> {
        let (every, domain) = match self {
            Self::Wall => (3, TimeDomain::Wall),
            Self::EventPunctuator => (4, TimeDomain::Event),
            _ => return None,
        };
        Some(Punctuator { every: Duration::from_millis(every), domain, over: Some(0) })
    }

    fn many(self) -> bool {
        self == Self::Windows
    }
}

pub(super) enum What {
    Record { value: String, time: i64, side: u8 },
    Fired(i64),
    Punctuate(i64),
}

struct At<'a> {
    key: &'a str,
    state: Option<String>,
    watermark: i64,
    wall: i64,
}

#[derive(Debug)]
enum Effect {
    Put(Option<String>),
    Timer(Option<i64>),
    TimerFor(String, Option<i64>),
    Forward(String, String, i64),
}

fn handle(kind: Kind, at: &At<'_>, what: &What) -> Result<Vec<Effect>> {
    use Effect::{Forward, Put, Timer, TimerFor};
    let key = at.key.to_string();
    let old = at.state.clone().unwrap_or_default();
    Ok(match (kind, what) {
        (Kind::Pass, What::Record { value, time, .. }) => vec![Forward(key, value.clone(), *time)],
        (Kind::Panics, What::Record { value, .. }) => panic!("no {value} today"),
        (Kind::Fails, What::Record { value, .. }) => return Err(Error::handler(format!("no {value} today"))),
        (Kind::Rekey, What::Record { value, time, .. }) => vec![Forward(other(&key, value), value.clone(), *time)],
        (Kind::Fan, What::Record { value, time, .. }) => (0..=hash(&["fan", value]) % 4)
            .map(|i| {
                let i_text = i.to_string();
                Forward(other(&i_text, value), mix(&[value, &i_text]), time + i as i64)
            })
            .collect(),
        (Kind::Concat, What::Record { value, time, side }) => {
            let late = *time <= at.watermark;
            let new = mix(&[&old, value, &side.to_string(), &late.to_string()]);
            vec![Put(Some(new.clone())), Forward(key, new, *time)]
        }
        (Kind::Session, What::Record { value, time, side }) => {
            if time + 3 <= at.watermark {
                return Ok(vec![Forward(key, mix(&["late", value]), *time)]);
            }
            vec![Put(Some(mix(&[&old, value, &side.to_string()]))), Timer(Some(time + 3))]
        }
        (Kind::Session, What::Fired(time)) => match &at.state {
            Some(s) => vec![Forward(key, mix(&["closed", s]), *time), Put(None)],
            None => vec![],
        },
        (Kind::Windows, What::Record { value, time, .. }) => {
            let start = time.div_euclid(4) * 4;
            if start + 5 <= at.watermark {
                return Ok(vec![Forward(key, mix(&["late", value]), *time)]);
            }
            vec![Put(Some(mix(&[&old, value]))), Timer(Some(start + 5))]
        }
        (Kind::Windows, What::Fired(time)) => vec![Forward(key, mix(&["final", &old, &time.to_string()]), *time)],
        (Kind::Chain, What::Record { value, time, side }) => vec![
            Put(Some(mix(&[&old, value, &side.to_string()]))),
            Timer(Some(time - (hash(&["c", value]) % 4) as i64)),
        ],
        (Kind::Chain, What::Fired(time)) => {
            let new = mix(&[&old, "fired", &time.to_string()]);
            let mut all = vec![Put(Some(new.clone())), Forward(key, new.clone(), *time)];
            if !hash(&["again", &new]).is_multiple_of(3) {
                all.push(Timer(Some(time + [-2, 0, 1, 3][hash(&["to", &new]) as usize % 4])));
            }
            all
        }
        (Kind::Foreign, What::Record { value, time, side }) => {
            let new = mix(&[&old, value, &side.to_string()]);
            let h = hash(&["f", value]);
            let to = (!h.is_multiple_of(4)).then_some(time + (h % 5) as i64);
            let mut all = vec![Put(Some(new.clone())), TimerFor(other("1", value), to)];
            if h.is_multiple_of(3) {
                all.push(Timer(h.is_multiple_of(2).then_some(time + (h % 7) as i64)));
            }
            all.push(Forward(key, new, *time));
            all
        }
        (Kind::Foreign, What::Fired(time)) => {
            let new = mix(&[&old, "f", &time.to_string()]);
            let mut all = vec![Put(Some(new.clone())), Forward(key, new.clone(), *time)];
            if hash(&["again", &new]).is_multiple_of(2) {
                all.push(TimerFor(other("2", &new), Some(time + 1)));
            }
            all
        }
        (Kind::Wall, What::Record { value, side, .. }) => vec![
            Put(Some(mix(&[&old, value, &side.to_string()]))),
            Timer(Some(at.wall + 1 + (hash(&["w", value]) % 3) as i64)),
        ],
        (Kind::Wall, What::Fired(time)) => vec![Forward(key, mix(&["wall", &old, &time.to_string()]), *time)],
        (Kind::EventPunctuator, What::Record { value, time, .. }) => {
            vec![Put(Some(mix(&[&old, value]))), Timer(Some(time + 2))]
        }
        (Kind::EventPunctuator, What::Fired(time)) => vec![Forward(key, mix(&["ev", &old]), *time)],
        (Kind::Wall | Kind::EventPunctuator, What::Punctuate(time)) => {
            let mut all = vec![Forward(key, mix(&["punctuated", &old, &time.to_string()]), *time)];
            if hash(&["drop", &old]).is_multiple_of(3) {
                all.push(Put(None));
            }
            all
        }
        _ => unreachable!("{kind:?} has no such handler"),
    })
}

// --- shapes ----------------------------------------------------------------------------------------------------------

pub(super) struct Desc {
    pub(super) name: &'static str,
    pub(super) sub: u32,
    pub(super) kind: Kind,
    /// Names of nodes, or the sources `A` and `B`; the place is the side.
    pub(super) parents: Vec<&'static str>,
}

/// The last node goes to the sink.
pub(super) type Shape = Vec<Desc>;

pub(super) fn node(name: &'static str, sub: u32, kind: Kind, parents: &[&'static str]) -> Desc {
    Desc { name, sub, kind, parents: parents.to_vec() }
}

pub(super) const SHAPES: [&str; 7] =
    ["single", "chain", "chain3", "diamond", "self-merge", "two-sources", "late-source"];

pub(super) fn shape(name: &str, op: &mut dyn FnMut() -> Kind, key: &mut dyn FnMut() -> Kind) -> Shape {
    match name {
        "single" => vec![node("p", 0, op(), &["A"]), node("q", 0, op(), &["p"])],
        "chain" => vec![node("p", 0, op(), &["A"]), node("k", 0, key(), &["p"]), node("q", 1, op(), &["k"])],
        "chain3" => vec![
            node("p", 0, op(), &["A"]),
            node("k", 0, key(), &["p"]),
            node("q", 1, op(), &["k"]),
            node("l", 1, key(), &["q"]),
            node("r", 2, op(), &["l"]),
        ],
        "diamond" => vec![
            node("p", 0, op(), &["A"]),
            node("k", 0, Kind::Rekey, &["p"]),
            node("q", 1, op(), &["k"]),
            node("l", 1, key(), &["q"]),
            node("r", 2, op(), &["p", "l"]),
        ],
        "self-merge" => vec![
            node("p", 0, Kind::Pass, &["A"]),
            node("k", 0, Kind::Fan, &["p"]),
            node("q", 1, Kind::Rekey, &["k"]),
            node("r", 2, op(), &["p", "q"]),
        ],
        "two-sources" => {
            vec![node("p", 0, op(), &["A", "B"]), node("k", 0, Kind::Rekey, &["p"]), node("q", 1, op(), &["k"])]
        }
        "late-source" => {
            vec![node("p", 0, op(), &["A"]), node("k", 0, Kind::Rekey, &["p"]), node("q", 1, op(), &["B", "k"])]
        }
        _ => unreachable!("no shape {name}"),
    }
}

// --- the graph -------------------------------------------------------------------------------------------------------

/// Builds the graph: sources, hand-overs where an edge crosses sub-topologies, a side per edge, stores `state` and
/// `timer` per stateful node, one sink.
pub(super) fn graph(shape: &Shape) -> Graph {
    let mut g =
        Graph { name: "test".into(), subs: shape.iter().map(|d| d.sub).max().map_or(0, |s| s + 1), ..Graph::default() };
    let mut by_name: BTreeMap<&str, NodeId> = BTreeMap::new();
    let mut entries = BTreeMap::new();
    for d in shape {
        let mut inputs = Vec::new();
        for (side, parent) in d.parents.iter().enumerate() {
            let mut from = if let Some(&id) = by_name.get(parent) {
                id
            } else {
                let n = entries.len() as u32;
                let id = add(
                    &mut g,
                    parent,
                    d.sub,
                    NodeKind::Source(n),
                    &[],
                    Arc::new(|b| Ok(Box::new(SourceOp(b.children[0])))),
                );
                entries.insert(*parent, id);
                g.sources.push(SourceDecl {
                    node: id,
                    topic: (*parent).into(),
                    lane_key: LaneKey::Raw,
                    watermark: WatermarkStrategy::default(),
                    key_codec: String::new(),
                    value_codec: String::new(),
                });
                id
            };
            let sub = g.nodes[from.0 as usize].sub.0;
            if sub != d.sub {
                from = add(
                    &mut g,
                    &format!("{parent}-{}", d.name),
                    sub,
                    NodeKind::HandOver,
                    &[from],
                    Arc::new(|b| {
                        Ok(Box::new(HandOverOp {
                            lanes: b.receiving_lanes,
                            batches: (0..b.receiving_lanes).map(|_| TestBatch::default()).collect(),
                        }))
                    }),
                );
            }
            inputs.push(add(
                &mut g,
                &format!("{}-side-{side}", d.name),
                d.sub,
                NodeKind::Stateless,
                &[from],
                Arc::new(move |b| Ok(Box::new(SideOp(side as u8, b.children[0])))),
            ));
        }
        let kind = d.kind;
        let stores = kind.stateful().then_some((StoreId(g.stores.len() as u32), StoreId(g.stores.len() as u32 + 1)));
        let id = add(&mut g, d.name, d.sub, NodeKind::Processor, &inputs, {
            Arc::new(move |b| Ok(Box::new(TestOp::new(kind, stores, b))))
        });
        if let Some((state, timer)) = stores {
            g.nodes[id.0 as usize].stores = vec![state, timer];
            let layout = if kind.many() { StoreKind::Timers } else { StoreKind::Timer };
            for (what, layout) in [("state", StoreKind::KeyValue), ("timer", layout)] {
                g.stores.push(StoreDecl {
                    name: format!("{}-{what}", d.name),
                    kind: layout,
                    owner: id,
                    sub: SubTopologyId(d.sub),
                    key_codec: String::new(),
                    value: None,
                    foreign: what == "timer" && kind == Kind::Foreign,
                    peeks: false,
                });
            }
        }
        by_name.insert(d.name, id);
    }
    let last = shape.last().expect("a shape has nodes");
    let id = add(
        &mut g,
        "out",
        last.sub,
        NodeKind::Sink(SinkId(0)),
        &[by_name[last.name]],
        Arc::new(|_| Ok(Box::new(SinkOp))),
    );
    g.sinks.push(SinkDecl { node: id, topic: "out".into(), key_codec: String::new(), value_codec: String::new() });
    g
}

fn add(
    g: &mut Graph,
    name: &str,
    sub: u32,
    kind: NodeKind,
    parents: &[NodeId],
    factory: crate::topology::graph::Factory,
) -> NodeId {
    let id = NodeId(g.nodes.len() as u32);
    for p in parents {
        g.nodes[p.0 as usize].children.push(id);
    }
    g.nodes.push(Node {
        id,
        name: name.into(),
        kind,
        sub: SubTopologyId(sub),
        parents: parents.to_vec(),
        children: Vec::new(),
        stores: Vec::new(),
        factory,
    });
    id
}

// --- operators -------------------------------------------------------------------------------------------------------

type Key = String;
type Value = (u8, String);

struct SourceOp(Child);

impl Operator for SourceOp {
    fn push(&mut self, _: &mut dyn Any, _: &mut LaneCx<'_>) -> Result<()> {
        unreachable!("nothing feeds a source")
    }

    fn push_raw(&mut self, r: RawRecord<'_>, cx: &mut LaneCx<'_>) -> Result<()> {
        let text = |b: Option<&[u8]>| String::from_utf8(b.unwrap_or_default().to_vec()).expect("tests write text");
        assert_eq!(cx.key.present, r.key.is_some());
        assert_eq!(cx.key.bytes, r.key.unwrap_or_default());
        cx.forward::<Key, Value>(self.0, Record::new(text(r.key), (0, text(r.value)), r.timestamp))
    }
}

struct SideOp(u8, Child);

impl Operator for SideOp {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let mut r = take::<Key, Value>(record);
        r.value.0 = self.0;
        cx.forward(self.1, r)
    }
}

struct SinkOp;

impl Operator for SinkOp {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let r = take::<Key, Value>(record);
        let key = (!r.key.is_empty()).then_some(r.key.as_bytes());
        cx.emit(SinkId(0), key, Some(r.value.1.as_bytes()), r.timestamp, Headers::default());
        Ok(())
    }
}

type Handed = (Record<Key, Value>, Option<Origin>);

#[derive(Default)]
struct TestBatch {
    tags: Vec<Tag>,
    records: Vec<Option<Handed>>,
}

impl HandBatch for TestBatch {
    fn len(&self) -> usize {
        self.tags.len()
    }

    fn tag(&self, i: usize) -> &Tag {
        &self.tags[i]
    }

    fn weight(&self) -> usize {
        self.tags.len() * 100
    }

    fn deliver(&mut self, i: usize, entry: Child, cx: &mut LaneCx<'_>) -> Result<()> {
        let (record, origin) = self.records[i].take().expect("each record is given once");
        cx.number = self.tags[i].number;
        cx.path = self.tags[i].path.clone();
        cx.origin = origin;
        cx.key.bytes.clear();
        cx.key.bytes.extend_from_slice(record.key.as_bytes());
        cx.key.hash = lane_hash(&cx.key.bytes);
        cx.key.present = true;
        cx.forward(entry, record)
    }
}

struct HandOverOp {
    lanes: u32,
    batches: Vec<TestBatch>,
}

impl Operator for HandOverOp {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let r = take::<Key, Value>(record);
        let b = &mut self.batches[lane_of(lane_hash(r.key.as_bytes()), self.lanes) as usize];
        b.tags.push(cx.tag());
        b.records.push(Some((r, cx.origin)));
        Ok(())
    }

    fn outbound(&mut self) -> Option<&mut dyn Outbound> {
        Some(self)
    }
}

impl Outbound for HandOverOp {
    fn take(&mut self, out: &mut Vec<(LaneIdx, Box<dyn HandBatch>)>) {
        for (i, b) in self.batches.iter_mut().enumerate() {
            if !b.tags.is_empty() {
                out.push((LaneIdx(i as u32), Box::new(std::mem::take(b))));
            }
        }
    }
}

struct TestOp {
    kind: Kind,
    children: Vec<Child>,
    state: Option<(StateField, TimerField)>,
    punctuators: Vec<Punctuator>,
}

/// The pending timers of a lane's keys.
fn stored(bytes: &dyn ByteStore, many: bool, b: &LaneBuild<'_>) -> BTreeSet<(Timestamp, Vec<u8>)> {
    let mut pending = BTreeSet::new();
    let visit = &mut |key: &[u8], value: &[u8]| {
        let (key, time) = if many { key.split_at(key.len() - 8) } else { (key, value) };
        if lane_of(lane_hash(key), b.lanes) == b.lane.0 {
            let time = i64::from_be_bytes(time.try_into().expect("8 bytes"));
            pending.insert((Timestamp(time), key.to_vec()));
        }
        true
    };
    bytes.scan(None, None, visit).expect("a map can be read");
    pending
}

impl TestOp {
    fn new(kind: Kind, stores: Option<(StoreId, StoreId)>, b: &LaneBuild<'_>) -> Self {
        Self {
            kind,
            children: b.children.clone(),
            state: stores.map(|(state, timer)| {
                (
                    StateField {
                        id: state,
                        bytes: b.stores[state.0 as usize].clone(),
                        entries: BTreeMap::new(),
                        dirty: BTreeSet::new(),
                        unapplied: BTreeMap::new(),
                    },
                    TimerField {
                        id: timer,
                        many: kind.many(),
                        domain: kind.domain(),
                        pending: stored(&*b.stores[timer.0 as usize], kind.many(), b),
                        dirty: BTreeSet::new(),
                        own: BTreeMap::new(),
                        foreign: Vec::new(),
                    },
                )
            }),
            punctuators: kind.punctuator().into_iter().collect(),
        }
    }

    fn call(&mut self, key: &str, what: &What, cx: &mut LaneCx<'_>) -> Result<()> {
        let at = At {
            key,
            state: match &mut self.state {
                Some((s, _)) => s.get(key.as_bytes())?,
                None => None,
            },
            watermark: cx.now.watermark.0,
            wall: cx.now.wall.0,
        };
        let effects = handle(self.kind, &at, what)?;
        let mut forwards = Vec::new();
        for (i, e) in effects.into_iter().enumerate() {
            let fields = self.state.as_mut();
            match (e, fields) {
                (Effect::Forward(k, v, t), _) => forwards.push((k, v, t)),
                (Effect::Put(v), Some((s, _))) => s.put(key.as_bytes(), v),
                (Effect::Timer(t), Some((_, f))) => {
                    f.own.insert(key.into(), (cx.tag(), i as u32));
                    f.set(key.as_bytes(), t);
                }
                (Effect::TimerFor(k, t), Some((_, f))) => f.foreign.push(ForeignTimer {
                    store: f.id,
                    key: k.into_bytes(),
                    time: t.map(Timestamp),
                    cancel: None,
                    tag: cx.tag(),
                    index: i as u32,
                }),
                (e, None) => unreachable!("{e:?} without state"),
            }
        }
        let mut ordinal = 0;
        for (k, v, t) in forwards {
            for child in self.children.clone() {
                let r = Record::new(k.clone(), (0, v.clone()), Timestamp(t));
                cx.forward_nth::<Key, Value>(child, ordinal, r)?;
                ordinal += 1;
            }
        }
        Ok(())
    }
}

fn current(cx: &LaneCx<'_>) -> String {
    String::from_utf8(cx.key.bytes.clone()).expect("tests write text")
}

impl Operator for TestOp {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let r = take::<Key, Value>(record);
        if self.state.is_some() {
            assert_eq!(current(cx), r.key, "a stateful node runs on its key's lane");
        }
        let what = What::Record { side: r.value.0, value: r.value.1, time: r.timestamp.0 };
        self.call(&r.key, &what, cx)
    }

    fn state(&mut self) -> Option<&mut dyn StateOperator> {
        self.state.is_some().then_some(self)
    }
}

impl StateOperator for TestOp {
    fn fields(&mut self, visit: &mut dyn FnMut(&mut dyn Field)) {
        let (state, timer) = self.state.as_mut().expect("only with state");
        visit(state);
        visit(timer);
    }

    fn fire(&mut self, field: usize, time: Timestamp, cx: &mut LaneCx<'_>) -> Result<()> {
        assert_eq!(field, 1);
        assert!(cx.origin.is_none());
        self.call(&current(cx), &What::Fired(time.0), cx)
    }

    fn punctuators(&self) -> &[Punctuator] {
        &self.punctuators
    }

    fn punctuate(&mut self, which: usize, at: Timestamp, cx: &mut LaneCx<'_>) -> Result<()> {
        assert_eq!(which, 0);
        self.call(&current(cx), &What::Punctuate(at.0), cx)
    }
}

struct StateField {
    id: StoreId,
    bytes: Arc<dyn ByteStore>,
    entries: BTreeMap<Vec<u8>, Option<String>>,
    dirty: BTreeSet<Vec<u8>>,
    /// Frozen keys and their epoch.
    unapplied: BTreeMap<Vec<u8>, Epoch>,
}

impl StateField {
    fn get(&mut self, key: &[u8]) -> Result<Option<String>> {
        if let Some(v) = self.entries.get(key) {
            return Ok(v.clone());
        }
        let v = self.bytes.get(key)?.map(|v| String::from_utf8(v).expect("tests write text"));
        self.entries.insert(key.to_vec(), v.clone());
        Ok(v)
    }

    fn put(&mut self, key: &[u8], value: Option<String>) {
        self.entries.insert(key.to_vec(), value);
        self.dirty.insert(key.to_vec());
    }

    fn is_clean(&self, key: &[u8]) -> bool {
        !self.dirty.contains(key) && !self.unapplied.contains_key(key)
    }
}

impl Field for StateField {
    fn store(&self) -> StoreId {
        self.id
    }

    fn freeze(&mut self, epoch: Epoch, rows: &mut Vec<Row>) -> Result<()> {
        for key in std::mem::take(&mut self.dirty) {
            rows.push(Row {
                lane_key: key.len(),
                value: self.entries[&key].clone().map(String::into_bytes),
                key: key.clone(),
                timestamp: Timestamp(0),
            });
            self.unapplied.insert(key, epoch);
        }
        Ok(())
    }

    fn applied(&mut self, epoch: Epoch) {
        self.unapplied.retain(|_, e| *e > epoch);
    }

    fn weight(&self) -> Weight {
        Weight {
            uncommitted: self.dirty.union(&self.unapplied.keys().cloned().collect()).count() * 10,
            total: self.entries.len() * 10,
        }
    }

    fn trim(&mut self, bytes: usize) {
        let keys: Vec<_> = self.entries.keys().filter(|k| self.is_clean(k)).cloned().collect();
        for k in keys {
            if self.entries.len() * 10 > bytes {
                self.entries.remove(&k);
            }
        }
    }

    fn keys(&self, of_lane: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
        let mut keys = BTreeSet::new();
        self.bytes.scan(None, None, &mut |k, _| {
            if !self.entries.contains_key(k) && of_lane(k) {
                keys.insert(k.to_vec());
            }
            true
        })?;
        keys.extend(self.entries.iter().filter(|(_, v)| v.is_some()).map(|(k, _)| k.clone()));
        Ok(keys.into_iter().collect())
    }
}

struct TimerField {
    id: StoreId,
    many: bool,
    domain: TimeDomain,
    pending: BTreeSet<(Timestamp, Vec<u8>)>,
    dirty: BTreeSet<(Vec<u8>, Timestamp)>,
    own: BTreeMap<Key, (Tag, u32)>,
    foreign: Vec<ForeignTimer>,
}

impl TimerField {
    fn touch(&mut self, key: &[u8], time: Timestamp) {
        self.dirty.insert((key.to_vec(), if self.many { time } else { Timestamp(0) }));
    }

    fn set(&mut self, key: &[u8], time: Option<i64>) {
        if !self.many {
            self.pending.retain(|(_, k)| k != key);
        }
        self.touch(key, Timestamp(time.unwrap_or(0)));
        if let Some(t) = time {
            self.pending.insert((Timestamp(t), key.to_vec()));
        }
    }
}

impl Field for TimerField {
    fn store(&self) -> StoreId {
        self.id
    }

    fn freeze(&mut self, _: Epoch, rows: &mut Vec<Row>) -> Result<()> {
        for (key, time) in std::mem::take(&mut self.dirty) {
            let (mut row_key, value);
            row_key = key.clone();
            if self.many {
                row_key.extend_from_slice(&time.0.to_be_bytes());
                value = self.pending.contains(&(time, key.clone())).then(Vec::new);
            } else {
                let pending = self.pending.iter().find(|(_, k)| *k == key);
                value = pending.map(|(t, _)| t.0.to_be_bytes().to_vec());
            }
            rows.push(Row { key: row_key, lane_key: key.len(), value, timestamp: Timestamp(0) });
        }
        self.own.clear();
        Ok(())
    }

    fn applied(&mut self, _: Epoch) {}

    fn weight(&self) -> Weight {
        Weight::default()
    }

    fn trim(&mut self, _: usize) {}

    fn timers(&mut self) -> Option<&mut dyn PendingTimers> {
        Some(self)
    }
}

impl PendingTimers for TimerField {
    fn domain(&self) -> TimeDomain {
        self.domain
    }

    fn first(&mut self, upto: Timestamp) -> Result<Option<(Timestamp, &[u8])>> {
        Ok(self.pending.first().filter(|(t, _)| *t <= upto).map(|(t, k)| (*t, k.as_slice())))
    }

    fn nth(&mut self, n: usize) -> Result<Option<(Timestamp, Vec<u8>)>> {
        Ok(self.pending.iter().nth(n).cloned())
    }

    fn take_first(&mut self) {
        if let Some((t, k)) = self.pending.pop_first() {
            self.touch(&k, t);
        }
    }

    fn take_foreign(&mut self) -> Vec<ForeignTimer> {
        std::mem::take(&mut self.foreign)
    }

    fn apply_foreign(&mut self, w: &ForeignTimer) -> Result<()> {
        let key = std::str::from_utf8(&w.key).expect("tests write text");
        if self.own.get(key).is_none_or(|(tag, i)| (tag, *i) < (&w.tag, w.index)) {
            self.set(&w.key, w.time.map(|t| t.0));
        }
        Ok(())
    }
}

// --- bytes -----------------------------------------------------------------------------------------------------------

#[derive(Default)]
pub(super) struct TestStore(Mutex<BTreeMap<Vec<u8>, Vec<u8>>>);

impl ByteStore for TestStore {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.lock().expect("not poisoned").get(key).cloned())
    }

    fn scan(&self, from: Option<&[u8]>, to: Option<&[u8]>, visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        assert!(from.is_none() && to.is_none());
        for (k, v) in &*self.0.lock().expect("not poisoned") {
            if !visit(k, v) {
                break;
            }
        }
        Ok(())
    }

    fn due(&self, _: Timestamp, _: &[u8], _: &mut dyn FnMut(Timestamp, &[u8]) -> bool) -> Result<()> {
        unreachable!("these fields read all timers when they are made")
    }

    fn apply(&self, _: Generation, batch: &Batch) -> Result<()> {
        let mut rows = self.0.lock().expect("not poisoned");
        for r in &batch.rows {
            match &r.value {
                Some(v) => rows.insert(r.key.clone(), v.clone()),
                None => rows.remove(&r.key),
            };
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
        self.0.lock().expect("not poisoned").clear();
        Ok(())
    }
}

// --- the oracle ------------------------------------------------------------------------------------------------------

/// What one epoch leaves: outputs in order (partition, key, value, time), rows by store and key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    pub(super) outputs: Vec<(i32, String, Vec<u8>, i64)>,
    pub(super) rows: BTreeMap<(u32, Vec<u8>), Option<Vec<u8>>>,
    pub(super) watermarks: Vec<Timestamp>,
}

#[derive(Default)]
struct OracleNode {
    state: BTreeMap<String, String>,
    timers: BTreeSet<(i64, String)>,
    /// The last own timer write of the epoch, by key.
    own: BTreeMap<String, u64>,
    foreign: Vec<(u64, String, Option<i64>)>,
}

pub(super) struct Oracle<'a> {
    shape: &'a Shape,
    nodes: Vec<OracleNode>,
    watermarks: Vec<i64>,
    handed: Vec<i64>,
    punctuated: Vec<i64>,
    walls: Vec<i64>,
    sequence: u64,
    cut: Cut,
}

const NONE: i64 = i64::MIN;

impl<'a> Oracle<'a> {
    pub(super) fn new(shape: &'a Shape) -> Self {
        let subs = shape.iter().map(|d| d.sub as usize).max().unwrap_or(0) + 1;
        Self {
            shape,
            nodes: shape.iter().map(|_| OracleNode::default()).collect(),
            watermarks: vec![NONE; subs],
            handed: vec![NONE; subs],
            punctuated: vec![NONE; subs],
            walls: vec![0; subs],
            sequence: 0,
            cut: Cut::default(),
        }
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.shape.iter().position(|d| d.name == name)
    }

    fn store(&self, node: usize) -> u32 {
        2 * self.shape[..node].iter().filter(|d| d.kind.stateful()).count() as u32
    }

    pub(super) fn record(&mut self, topic: &str, key: &str, value: &str, time: i64) {
        for (i, d) in self.shape.iter().enumerate() {
            for (side, p) in d.parents.iter().enumerate() {
                if *p == topic {
                    self.visit(i, side as u8, key, value, time);
                }
            }
        }
    }

    fn visit(&mut self, node: usize, side: u8, key: &str, value: &str, time: i64) {
        let what = What::Record { value: value.into(), time, side };
        self.call(node, key, &what);
    }

    fn call(&mut self, node: usize, key: &str, what: &What) {
        let d = &self.shape[node];
        let at = At {
            key,
            state: self.nodes[node].state.get(key).cloned(),
            watermark: self.watermarks[d.sub as usize],
            wall: self.walls[d.sub as usize],
        };
        let store = self.store(node);
        let mut forwards = Vec::new();
        for e in handle(d.kind, &at, what).expect("the oracle's handlers do not fail") {
            self.sequence += 1;
            match e {
                Effect::Forward(k, v, t) => forwards.push((k, v, t)),
                Effect::Put(v) => {
                    self.cut.rows.insert((store, key.into()), v.clone().map(String::into_bytes));
                    match v {
                        Some(v) => self.nodes[node].state.insert(key.into(), v),
                        None => self.nodes[node].state.remove(key),
                    };
                }
                Effect::Timer(t) => {
                    let at = self.sequence;
                    self.nodes[node].own.insert(key.into(), at);
                    self.set_timer(node, key, t);
                }
                Effect::TimerFor(k, t) => {
                    let at = self.sequence;
                    self.nodes[node].foreign.push((at, k, t));
                }
            }
        }
        for (k, v, t) in forwards {
            let mut children = Vec::new();
            for (i, c) in self.shape.iter().enumerate() {
                let sides = c.parents.iter().enumerate().filter(|(_, p)| **p == d.name);
                children.extend(sides.map(|(side, _)| (i, side as u8)));
            }
            for (child, side) in children {
                self.visit(child, side, &k, &v, t);
            }
            if node == self.shape.len() - 1 {
                let partition = partition_for(k.as_bytes(), SINK_PARTITIONS);
                self.cut.outputs.push((partition, k.clone(), v.clone().into_bytes(), t));
            }
        }
    }

    fn set_timer(&mut self, node: usize, key: &str, time: Option<i64>) {
        let many = self.shape[node].kind.many();
        if !many {
            self.nodes[node].timers.retain(|(_, k)| k != key);
        }
        self.nodes[node].timers.extend(time.map(|t| (t, key.to_string())));
        self.timer_row(node, key, time.unwrap_or(0));
    }

    fn timer_row(&mut self, node: usize, key: &str, time: i64) {
        let store = self.store(node) + 1;
        let timers = &self.nodes[node].timers;
        let (row, value) = if self.shape[node].kind.many() {
            let row = [key.as_bytes(), &time.to_be_bytes()].concat();
            (row, timers.contains(&(time, key.to_string())).then(Vec::new))
        } else {
            let t = timers.iter().find(|(_, k)| k == key);
            (key.into(), t.map(|(t, _)| t.to_be_bytes().to_vec()))
        };
        self.cut.rows.insert((store, row), value);
    }

    fn due(&self, sub: usize, domain: TimeDomain, upto: i64) -> Option<(i64, String, usize)> {
        let nodes = self.shape.iter().enumerate();
        let nodes = nodes.filter(|(_, d)| d.sub as usize == sub && d.kind.domain() == domain);
        let first = nodes.filter_map(|(i, _)| self.nodes[i].timers.first().map(|(t, k)| (*t, k.clone(), i)));
        first.filter(|(t, ..)| *t <= upto).min()
    }

    fn fire(&mut self, sub: usize, domain: TimeDomain, upto: i64, limit: Option<&Position>) {
        let mut clock = NONE;
        while let Some((t, key, node)) = self.due(sub, domain, upto) {
            clock = clock.max(t);
            if limit.is_some_and(|l| (clock, key.as_bytes()) > (l.time.0, &l.key)) {
                return;
            }
            self.nodes[node].timers.pop_first();
            self.timer_row(node, &key, t);
            self.call(node, &key, &What::Fired(t));
        }
    }

    fn punctuate(&mut self, sub: usize, domain: TimeDomain, before: i64, now: i64) {
        let mut calls = Vec::new();
        for (i, d) in self.shape.iter().enumerate().filter(|(_, d)| d.sub as usize == sub) {
            let Some(p) = d.kind.punctuator().filter(|p| p.domain == domain) else {
                continue;
            };
            let every = p.every.as_millis() as i64;
            let at = now.div_euclid(every) * every;
            if before != NONE && at > before {
                calls.extend(self.nodes[i].state.keys().map(|k| (k.clone(), i, at)));
            }
        }
        calls.sort();
        for (key, node, at) in calls {
            self.call(node, &key, &What::Punctuate(at));
        }
    }

    fn feeds(&self, sub: usize) -> (bool, Vec<usize>) {
        let mut fed = false;
        let mut feeders = BTreeSet::new();
        for p in self.shape.iter().filter(|d| d.sub as usize == sub).flat_map(|d| &d.parents) {
            match self.index(p) {
                None => fed = true,
                Some(i) if self.shape[i].sub as usize != sub => {
                    feeders.insert(self.shape[i].sub as usize);
                }
                Some(_) => {}
            }
        }
        (fed, feeders.into_iter().collect())
    }

    pub(super) fn mark(&mut self, mark: &Mark) {
        for sub in 0..self.watermarks.len() {
            let (fed, feeders) = self.feeds(sub);
            let mut reached: Vec<i64> = feeders.iter().map(|&f| self.handed[f]).collect();
            if fed {
                reached.push(mark.watermarks[sub].0);
            }
            let w = reached.into_iter().min().expect("something feeds it");
            self.watermarks[sub] = self.watermarks[sub].max(w);
            let w = self.watermarks[sub];
            let limit = mark.limits[sub].as_ref();
            self.fire(sub, TimeDomain::Event, w, limit);
            if limit.is_none_or(|l| l.time.0 > w) && w > self.punctuated[sub] {
                let before = std::mem::replace(&mut self.punctuated[sub], w);
                self.punctuate(sub, TimeDomain::Event, before, w);
            }
            self.handed[sub] = match self.due(sub, TimeDomain::Event, w) {
                None => w,
                Some(_) => NONE,
            };
        }
    }

    /// Whether a sub-topology has event timers left at or before its watermark.
    pub(super) fn more_due(&self) -> bool {
        (0..self.watermarks.len()).any(|s| self.due(s, TimeDomain::Event, self.watermarks[s]).is_some())
    }

    pub(super) fn tick(&mut self, wall: i64) {
        for sub in 0..self.watermarks.len() {
            let before = std::mem::replace(&mut self.walls[sub], wall);
            self.fire(sub, TimeDomain::Wall, wall, None);
            self.punctuate(sub, TimeDomain::Wall, before, wall);
        }
    }

    pub(super) fn barrier(&mut self) -> Cut {
        for node in 0..self.nodes.len() {
            for (at, key, time) in std::mem::take(&mut self.nodes[node].foreign) {
                if self.nodes[node].own.get(&key).is_none_or(|own| *own < at) {
                    self.set_timer(node, &key, time);
                }
            }
            self.nodes[node].own.clear();
        }
        self.cut.watermarks = self.watermarks.iter().map(|w| Timestamp(*w)).collect();
        std::mem::take(&mut self.cut)
    }
}
