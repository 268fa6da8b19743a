use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::graph::{Factory, Graph, Node, NodeKind, ScheduleDecl, SinkDecl, SourceDecl, StoreDecl, ValueDecl};
use super::lane_state::{Lane, SourceLane};
use super::stream::Stream;
use crate::codec::codec_id;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::{Deciders, Decision, Failed};
use crate::id::{NodeId, SinkId, StoreId, SubTopologyId};
use crate::operator::source::{ScheduleOperator, SourceOperator};
use crate::schedule::{Schedule, Timetable, emitter};
use crate::source::Source;
use crate::store::StoreKind;

/// A topology while it is declared.
///
/// # Examples
/// ```
/// use stoat_core::codec::{Be, Utf8};
/// use stoat_core::sink::Sink;
/// use stoat_core::source::Source;
/// use stoat_core::topology::Topology;
/// use stoat_core::topology::lane_state::Lane;
///
/// struct Lines; // `#[source(topic = "lines", key = String, value = String, value_codec = Utf8)]` writes this:
/// impl Source for Lines {
///     type Key = String;
///     type Value = String;
///     type KeyCodec = Utf8;
///     type ValueCodec = Utf8;
///     type Lane = Lane<Utf8>;
///     const TOPIC: &'static str = "lines";
///     const NAME: &'static str = "Lines";
/// }
/// struct Counts;
/// impl Sink for Counts {
///     type Key = String;
///     type Value = u64;
///     type KeyCodec = Utf8;
///     type ValueCodec = Be;
///     const TOPIC: &'static str = "counts";
///     const NAME: &'static str = "Counts";
/// }
///
/// let mut t = Topology::new("word-count");
/// let words = t.source::<Lines>().flat_map_values(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>());
/// let counts = words.select_key(|_, word| word.clone()).group_by_key().count().named("word-counts");
/// counts.to_stream().sink::<Counts>();
/// let graph = t.build()?;
/// assert_eq!(graph.subs, 2); // one before the words have their lanes, one behind
/// # Ok::<(), stoat_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Topology {
    pub(crate) draft: Shared,
}

/// The draft, shared by the builder and its streams.
pub(crate) type Shared = Rc<RefCell<Draft>>;

/// A declared topology: what `#[topology]` makes of a function.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a topology",
    label = "not a topology",
    note = "write `#[topology]` on `fn {Self}(t: &mut Topology)`"
)]
pub trait TopologyFn {
    /// The function's name.
    const NAME: &'static str;
    /// What the macro read from its body.
    const GRAPH: StaticGraph;

    /// Runs the function.
    fn declare(t: &mut Topology);

    /// Runs the function and checks the result.
    ///
    /// # Errors
    /// What [`Topology::build`] finds wrong.
    fn build() -> Result<Graph> {
        let mut t = Topology::new(Self::NAME);
        Self::declare(&mut t);
        t.build()
    }
}

/// A topology as its source text shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticGraph {
    /// The function's name.
    pub name: &'static str,
    /// The named steps, in the order of the text.
    pub nodes: &'static [StaticNode],
}

/// A `let` or an end of a stream in a topology's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaticNode {
    /// The binding's name, or that of the sink.
    pub name: &'static str,
    /// The last operator of its expression, as written: `source`, `process`, `count`, `sink`, ..
    pub step: &'static str,
    /// Its type argument as written, or empty.
    pub of: &'static str,
    /// The names of the nodes that it is made of.
    pub inputs: &'static [&'static str],
}

/// How a node came to its name.
#[derive(Clone, Debug)]
pub(crate) enum Name {
    /// By `let` or `.named(..)`: stable and unique.
    Given(String),
    /// From its type, such as a sink's.
    Type(&'static str),
    /// From what it is: `{stream}.{step}`.
    Step(String, &'static str),
    /// A hand-over: from the node behind it.
    Behind,
}

/// A node while it is declared.
pub(crate) struct DraftNode {
    pub(crate) name: Name,
    pub(crate) kind: NodeKind,
    /// An entry of [`Draft::subs`].
    sub: usize,
    parents: Vec<NodeId>,
    /// By branch; `None`: nothing consumes it yet.
    children: Vec<Option<NodeId>>,
    stores: Vec<StoreId>,
    factory: Factory,
    /// Whether nothing needs to consume it.
    pub(crate) ends: bool,
    /// The fragment that it belongs to; of nested ones the outermost.
    fragment: Option<String>,
}

impl std::fmt::Debug for DraftNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DraftNode").field("name", &self.name).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A set of nodes that share lanes, while it is declared.
#[derive(Debug)]
struct DraftSub {
    /// Itself, or the one that it was joined to.
    root: usize,
    /// Whether something is handed over into it.
    fed: bool,
}

/// The place where a stream comes out: a node and its branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Outlet {
    pub(crate) node: NodeId,
    pub(crate) branch: usize,
}

/// What is new about a node.
pub(crate) struct NewNode {
    pub(crate) name: Name,
    pub(crate) kind: NodeKind,
    pub(crate) parents: Vec<Outlet>,
    pub(crate) branches: usize,
    pub(crate) ends: bool,
    pub(crate) factory: Factory,
}

/// All that was declared so far.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    name: String,
    nodes: Vec<DraftNode>,
    subs: Vec<DraftSub>,
    sources: Vec<SourceDecl>,
    schedules: Vec<ScheduleDecl>,
    sinks: Vec<SinkDecl>,
    stores: Vec<StoreDecl>,
    /// The fragments that are being declared, from the outside in.
    fragments: Vec<&'static str>,
    handlers: Deciders,
    /// What was found wrong while declaring.
    pub(crate) problems: Vec<String>,
}

impl Draft {
    fn root(&self, mut sub: usize) -> usize {
        while self.subs[sub].root != sub {
            sub = self.subs[sub].root;
        }
        sub
    }

    fn new_sub(&mut self, fed: bool) -> usize {
        self.subs.push(DraftSub { root: self.subs.len(), fed });
        self.subs.len() - 1
    }

    /// Adds a node in sub-topology `sub`.
    fn add_in(&mut self, sub: usize, new: NewNode) -> NodeId {
        let id = NodeId(u32::try_from(self.nodes.len()).expect("a topology has far fewer than 4 billion nodes"));
        for p in &new.parents {
            let slot = &mut self.nodes[p.node.0 as usize].children[p.branch];
            debug_assert!(slot.is_none(), "a stream is consumed by value, so once");
            *slot = Some(id);
        }
        self.nodes.push(DraftNode {
            name: new.name,
            kind: new.kind,
            sub,
            parents: new.parents.iter().map(|p| p.node).collect(),
            children: vec![None; new.branches],
            stores: Vec::new(),
            factory: new.factory,
            ends: new.ends,
            fragment: self.fragments.first().map(|f| (*f).to_owned()),
        });
        id
    }

    pub(crate) fn enter(&mut self, fragment: &'static str) {
        self.fragments.push(fragment);
    }

    pub(crate) fn leave(&mut self) {
        self.fragments.pop();
    }

    /// Adds a node in the sub-topology of its (first) parent.
    pub(crate) fn add(&mut self, new: NewNode) -> NodeId {
        let parent = new.parents.first().expect("only sources have no parents");
        let sub = self.sub_behind(parent.node);
        self.add_in(sub, new)
    }

    /// The sub-topology of what a node feeds: a hand-over's is the receiving one, which the node behind it begins.
    fn sub_behind(&mut self, node: NodeId) -> usize {
        let n = &self.nodes[node.0 as usize];
        if n.kind == NodeKind::HandOver { self.new_sub(true) } else { self.root(n.sub) }
    }

    /// Adds a node that takes several inputs. Inputs of different sub-topologies are handed over into a new one, unless all
    /// are fed by sources only: then those are joined.
    pub(crate) fn add_meeting(&mut self, new: NewNode, hand_over: impl Fn() -> Factory) -> NodeId {
        let handed = |d: &Self, p: &Outlet| d.nodes[p.node.0 as usize].kind == NodeKind::HandOver;
        if !new.parents.iter().any(|p| handed(self, p)) {
            let subs: BTreeSet<usize> =
                new.parents.iter().map(|p| self.root(self.nodes[p.node.0 as usize].sub)).collect();
            let first = *subs.first().expect("a node that takes several inputs has some");
            if subs.len() == 1 {
                return self.add_in(first, new);
            }
            if subs.iter().all(|s| !self.subs[*s].fed) {
                for s in subs {
                    self.subs[s].root = first;
                }
                return self.add_in(first, new);
            }
        }
        let parents = new
            .parents
            .iter()
            .map(|p| {
                if handed(self, p) {
                    return *p;
                }
                let node = self.add(NewNode {
                    name: Name::Behind,
                    kind: NodeKind::HandOver,
                    parents: vec![*p],
                    branches: 1,
                    ends: false,
                    factory: hand_over(),
                });
                Outlet { node, branch: 0 }
            })
            .collect();
        let sub = self.new_sub(true);
        self.add_in(sub, NewNode { parents, ..new })
    }

    pub(crate) fn add_source(&mut self, new: NewNode, mut decl: SourceDecl) -> NodeId {
        decl.node = NodeId(self.nodes.len() as u32);
        self.sources.push(decl);
        let sub = self.new_sub(false);
        self.add_in(sub, new)
    }

    pub(crate) fn add_schedule(&mut self, new: NewNode, mut decl: ScheduleDecl) -> NodeId {
        decl.node = NodeId(self.nodes.len() as u32);
        self.schedules.push(decl);
        let sub = self.new_sub(false);
        self.add_in(sub, new)
    }

    pub(crate) fn add_sink(&mut self, mut new: NewNode, mut decl: SinkDecl) -> NodeId {
        decl.node = NodeId(self.nodes.len() as u32);
        new.kind = NodeKind::Sink(self.next_sink());
        self.sinks.push(decl);
        self.add(new)
    }

    pub(crate) fn next_sink(&self) -> SinkId {
        SinkId(self.sinks.len() as u32)
    }

    pub(crate) fn next_source(&self) -> u32 {
        self.sources.len() as u32
    }

    /// Adds a store of a node. Its name is empty where it is the node's.
    pub(crate) fn add_store(
        &mut self,
        owner: NodeId,
        name: &str,
        kind: StoreKind,
        key_codec: String,
        value: Option<ValueDecl>,
        foreign: bool,
    ) {
        let id = StoreId(self.stores.len() as u32);
        self.stores.push(StoreDecl {
            name: name.to_owned(),
            kind,
            owner,
            sub: SubTopologyId(0),
            key_codec,
            value,
            foreign,
            peeks: false,
        });
        self.nodes[owner.0 as usize].stores.push(id);
    }

    /// Notes that the store added last is read for other keys than the current one.
    pub(crate) fn peeks(&mut self) {
        if let Some(s) = self.stores.last_mut() {
            s.peeks = true;
        }
    }

    /// Gives a node a stable name. `replace`: also where it has one.
    pub(crate) fn name_node(&mut self, node: NodeId, name: &str, replace: bool) {
        // Within a fragment names are its own: each use has them below the name of its place.
        let name = self.fragments.iter().copied().chain([name]).collect::<Vec<_>>().join(".");
        let n = &mut self.nodes[node.0 as usize];
        if replace || !matches!(n.name, Name::Given(_)) {
            n.name = Name::Given(name);
        }
    }

    /// Whether what comes out here is at the entry of a sub-topology already.
    pub(crate) fn is_hand_over(&self, at: Outlet) -> bool {
        self.nodes[at.node.0 as usize].kind == NodeKind::HandOver
    }

    /// Whether the node's only outlet is this one.
    pub(crate) fn is_single(&self, at: Outlet) -> bool {
        self.nodes[at.node.0 as usize].children.len() == 1
    }

    /// What messages and derived names call a node before names are settled.
    pub(crate) fn label(&self, node: NodeId) -> String {
        let n = &self.nodes[node.0 as usize];
        match &n.name {
            Name::Given(name) => name.clone(),
            Name::Type(name) => (*name).to_owned(),
            Name::Step(stream, step) => format!("{stream}.{step}"),
            Name::Behind => n.parents.first().map_or_else(String::new, |p| self.label(*p)),
        }
    }

    fn names(&mut self) -> Vec<String> {
        let mut taken = BTreeSet::new();
        for n in &self.nodes {
            if let Name::Given(name) = &n.name
                && !taken.insert(name.clone())
            {
                self.problems.push(format!(
                    "two streams are named `{name}`: the name of a stream names its node, its stores and its changelog \
                     topics; give this one another name"
                ));
            }
        }
        let mut free = |wanted: String| {
            let mut name = wanted.clone();
            let mut n = 1;
            while !taken.insert(name.clone()) {
                n += 1;
                name = format!("{wanted}-{n}");
            }
            name
        };
        let mut names: Vec<String> = (0..self.nodes.len())
            .map(|i| match &self.nodes[i].name {
                Name::Given(name) => name.clone(),
                Name::Behind => String::new(),
                Name::Type(_) | Name::Step(..) => free(self.label(NodeId(i as u32))),
            })
            .collect();
        for (i, n) in self.nodes.iter().enumerate() {
            if matches!(n.name, Name::Behind) {
                let child = n.children[0].map_or_else(String::new, |c| names[c.0 as usize].clone());
                names[i] = free(format!("{child}-repartition"));
            }
        }
        names
    }

    /// The stage of each root: feeders have smaller numbers, else the order of declaration decides.
    fn stages(&self) -> BTreeMap<usize, u32> {
        let mut feeders: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        let mut first: Vec<usize> = Vec::new();
        for n in &self.nodes {
            let sub = self.root(n.sub);
            if feeders.insert(sub, BTreeSet::new()).is_none() {
                first.push(sub);
            }
        }
        feeders.values_mut().for_each(BTreeSet::clear);
        for n in &self.nodes {
            for c in n.children.iter().flatten() {
                let (from, to) = (self.root(n.sub), self.root(self.nodes[c.0 as usize].sub));
                if from != to {
                    feeders.entry(to).or_default().insert(from);
                }
            }
        }
        let mut stages = BTreeMap::new();
        while stages.len() < first.len() {
            let next = first
                .iter()
                .find(|s| !stages.contains_key(*s) && feeders[*s].iter().all(|f| stages.contains_key(f)))
                .expect("nodes only have earlier ones as parents, and joined sub-topologies are fed by none");
            stages.insert(*next, stages.len() as u32);
        }
        stages
    }

    fn check(&mut self, names: &[String]) {
        let mut problems = Vec::new();
        for (i, n) in self.nodes.iter().enumerate() {
            if n.kind == NodeKind::Aggregate && !matches!(n.name, Name::Given(_)) {
                problems.push(format!(
                    "the aggregation `{}` has no name: it names its store and its changelog topic; bind it with `let` or \
                     call `.named(\"..\")`",
                    names[i]
                ));
            }
            if !n.ends && n.children.iter().any(Option::is_none) {
                problems.push(format!(
                    "nobody consumes the result of `{}`: end the chain with `.sink::<S>()`, `.for_each(..)` or \
                     `.discard()`",
                    names[i]
                ));
            }
            if let Name::Given(name) = &n.name {
                check_name(name, &mut problems);
            }
        }
        for s in &mut self.stores {
            if s.name.is_empty() {
                s.name.clone_from(&names[s.owner.0 as usize]);
            }
        }
        for (i, s) in self.stores.iter().enumerate() {
            check_name(&s.name, &mut problems);
            if let Some(other) = self.stores[..i].iter().find(|o| o.name == s.name) {
                problems.push(format!(
                    "`{}` and `{}` both own a store named `{}`: rename one with `#[state(name = \"..\")]` (or store, timer)",
                    names[other.owner.0 as usize], names[s.owner.0 as usize], s.name
                ));
            }
        }
        for (i, s) in self.sources.iter().enumerate() {
            if let Some(other) = self.sources[..i].iter().find(|o| o.topic == s.topic) {
                problems.push(format!(
                    "topic `{}` is read by two sources, `{}` and `{}`: keep one and use `.fan_out()`",
                    s.topic, names[other.node.0 as usize], names[s.node.0 as usize]
                ));
            }
        }
        for (i, s) in self.schedules.iter().enumerate() {
            if self.schedules[..i].iter().any(|o| o.name == s.name) {
                problems.push(format!(
                    "two schedules are called `{}`: the last tick of each is kept under its name; give one another `NAME`, \
                     or use `.fan_out()`",
                    s.name
                ));
            }
        }
        for s in &mut self.schedules {
            for reads in s.reads {
                match reads.find(&self.stores) {
                    Ok(at) => s.stores.push(StoreId(at as u32)),
                    Err(what) => problems.push(format!("schedule `{}`: {what}", s.name)),
                }
            }
        }
        for (i, s) in self.sinks.iter().enumerate() {
            if let Some(other) = self.sinks[..i]
                .iter()
                .find(|o| o.topic == s.topic && (o.key_codec != s.key_codec || o.value_codec != s.value_codec))
            {
                problems.push(format!(
                    "topic `{}` is written by `{}` and `{}` with different codecs: give both the same",
                    s.topic, names[other.node.0 as usize], names[s.node.0 as usize]
                ));
            }
        }
        if self.sources.is_empty() && self.schedules.is_empty() {
            problems.push("the topology reads no topic: begin with `t.source::<S>()`".to_owned());
        }
        self.problems.extend(problems);
    }
}

/// Names become parts of topic names and of directories.
fn check_name(name: &str, problems: &mut Vec<String>) {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > 180 || !name.chars().all(fine) || name.starts_with('.') {
        problems.push(format!(
            "`{name}` cannot name a stream or a store: a name has 1 to 180 letters, digits, `-`, `_` or `.`, and does not \
             begin with `.`"
        ));
    }
}

impl Topology {
    /// Begins a topology.
    pub fn new(name: impl Into<String>) -> Self {
        Self { draft: Rc::new(RefCell::new(Draft { name: name.into(), ..Draft::default() })) }
    }

    /// Reads a topic.
    pub fn source<S: Source>(&mut self) -> Stream<S::Key, S::Value, S::Lane> {
        let node = {
            let mut draft = self.draft.borrow_mut();
            let kind = NodeKind::Source(draft.next_source());
            draft.add_source(
                NewNode {
                    name: Name::Type(S::NAME),
                    kind,
                    parents: Vec::new(),
                    branches: 1,
                    ends: false,
                    factory: Arc::new(|b| Ok(Box::new(SourceOperator::<S>::new(&b.node.name, b.children[0])))),
                },
                SourceDecl {
                    node: NodeId(0),
                    topic: S::TOPIC.to_owned(),
                    lane_key: S::Lane::lane_key(),
                    watermark: S::watermark(),
                    key_codec: codec_id::<S::KeyCodec>(),
                    value_codec: codec_id::<S::ValueCodec>(),
                },
            )
        };
        Stream::at(self.draft.clone(), Outlet { node, branch: 0 })
    }

    /// Emits records by the clock.
    pub fn scheduled<S: Schedule>(&mut self) -> Stream<S::Key, S::Value, Lane<S::KeyCodec>> {
        let node = {
            let mut draft = self.draft.borrow_mut();
            // A schedule that cannot be read is a problem of the whole topology, which says so when it is built.
            let timetable = Timetable::new(&S::when(), S::missed()).or_else(|e| {
                draft.problems.push(format!("schedule `{}`: {e}", S::NAME));
                Timetable::new(&crate::schedule::When::every(std::time::Duration::MAX), S::missed())
            });
            let timetable = timetable.expect("an interval of a millisecond or more is a timetable");
            let kind = NodeKind::Schedule(draft.schedules.len() as u32);
            draft.add_schedule(
                NewNode {
                    name: Name::Type(S::NAME),
                    kind,
                    parents: Vec::new(),
                    branches: 1,
                    ends: false,
                    factory: Arc::new(|b| Ok(Box::new(ScheduleOperator::<S>::new(&b.node.name, b.children[0])))),
                },
                ScheduleDecl {
                    node: NodeId(0),
                    name: S::NAME.to_owned(),
                    timetable,
                    reads: S::READS,
                    stores: Vec::new(),
                    emit: emitter::<S>(),
                },
            )
        };
        Stream::at(self.draft.clone(), Outlet { node, branch: 0 })
    }

    /// Decides about records that a source's codecs refuse; see [`gate`](crate::gate). It is asked where
    /// `stoat.deserialization-exception-handler` is not configured.
    pub fn on_decode_error(&mut self, handler: impl Fn(&Failed<'_>) -> Decision + Send + Sync + 'static) {
        self.draft.borrow_mut().handlers.decode = Some(Arc::new(handler));
    }

    /// Decides about records that a handler returns an error for; see [`gate`](crate::gate). It is asked where
    /// `stoat.processing-exception-handler` is not configured.
    pub fn on_process_error(&mut self, handler: impl Fn(&Failed<'_>) -> Decision + Send + Sync + 'static) {
        self.draft.borrow_mut().handlers.process = Some(Arc::new(handler));
    }

    /// Decides about records that a sink's codecs or the broker refuse; see [`gate`](crate::gate). It is asked where
    /// `stoat.production-exception-handler` is not configured.
    pub fn on_produce_error(&mut self, handler: impl Fn(&Failed<'_>) -> Decision + Send + Sync + 'static) {
        self.draft.borrow_mut().handlers.produce = Some(Arc::new(handler));
    }

    /// Checks what was declared and makes the graph of it.
    ///
    /// # Errors
    /// Of kind [`ErrorKind::Topology`], with all that is wrong: names used twice, two sources on one topic, an aggregation
    /// without a name, a stream that nobody consumes, a schedule that reads a store that is not there or holds something else.
    pub fn build(self) -> Result<Graph> {
        let mut draft = self.draft.take();
        let names = draft.names();
        draft.check(&names);
        if !draft.problems.is_empty() {
            return Err(
                Error::new(ErrorKind::Topology, draft.problems.join("; ")).at(format!("topology `{}`", draft.name))
            );
        }
        let stages = draft.stages();
        let sub_of: Vec<SubTopologyId> =
            draft.nodes.iter().map(|n| SubTopologyId(stages[&draft.root(n.sub)])).collect();
        let stores = draft.stores.into_iter().map(|s| StoreDecl { sub: sub_of[s.owner.0 as usize], ..s }).collect();
        let fragments = draft.nodes.iter().enumerate();
        let fragments = fragments.filter_map(|(i, n)| n.fragment.clone().map(|f| (NodeId(i as u32), f))).collect();
        let nodes = draft
            .nodes
            .into_iter()
            .zip(names)
            .enumerate()
            .map(|(i, (n, name))| Node {
                id: NodeId(i as u32),
                name,
                kind: n.kind,
                sub: sub_of[i],
                parents: n.parents,
                children: n.children.into_iter().flatten().collect(),
                stores: n.stores,
                factory: n.factory,
            })
            .collect();
        Ok(Graph {
            name: draft.name,
            nodes,
            sources: draft.sources,
            schedules: draft.schedules,
            sinks: draft.sinks,
            stores,
            handlers: draft.handlers,
            subs: stages.len() as u32,
            reencode: Vec::new(),
            fragments,
        })
    }
}
