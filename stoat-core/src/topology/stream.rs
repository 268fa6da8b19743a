use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use super::builder::{Name, NewNode, Outlet, Shared};
use super::fragment::Place;
use super::graph::{Factory, NodeKind, SinkDecl};
use super::grouped::Grouped;
use super::lane_state::{GroupLane, InputKey, InputValue, IsGrouped, KeyChanged, Lane, LaneState, SinkKey, SinkValue};
use super::table::Table;
use crate::affinity::{Affinity, Sampled, Watched};
use crate::codec::{Json, Nullable, codec_id};
use crate::error::Result;
use crate::id::NodeId;
use crate::key::Types;
use crate::operator::awaiting::AsyncProcessorOperator;
use crate::operator::fan_out::{Branch, FanOutOperator, LateOperator, SplitOperator};
use crate::operator::hand_over::{ByCodec, ByLane, HandOverOperator};
use crate::operator::merge::MergeOperator;
use crate::operator::processor::{KeptKey, ProcessorOperator};
use crate::operator::sink::SinkOperator;
use crate::operator::stateless::{
    Boxed, DropLate, Filter, FilterNot, FlatMap, FlatMapValues, ForEachEnd, Map, MapValues, Peek, Pipe, SelectKey,
    ToChild, TryMapValues, WithKey, WithValue,
};
use crate::processor::{FieldBuild, FieldSeed, FitsLane, Handlers, Init, Mode, Processor, Unconfigured};
use crate::sink::Sink;

/// A stream of records with keys `K`, values `V` and lane state `L` (see [`lane_state`](super::lane_state)).
///
/// `P` holds the stateless steps since the last node; they become one node when something else follows. A stream is consumed
/// by value: [`Stream::fan_out`] makes several of one.
#[must_use = "nobody consumes this stream: end it with `.sink::<S>()`, `.for_each(..)` or `.discard()`"]
pub struct Stream<K, V, L, P = Boxed<K, V>> {
    draft: Shared,
    at: Outlet,
    /// What names derived from this stream begin with.
    label: String,
    /// The last step of `pipe`.
    step: &'static str,
    pipe: P,
    types: Types<(K, V, L)>,
}

/// The stream behind a processor `Q` on lane state `L`: what the processor forwards.
pub type Processed<Q, L> =
    Stream<<Q as Processor>::OutKey, <Q as Processor>::OutValue, <<Q as Processor>::Mode as Mode<Q>>::Lane<L>>;

/// The processor, where it is one.
type This<Q> = <<Q as Processor>::Mode as Mode<Q>>::This;
/// The lane, where the stream has the key that the processor takes.
type LaneOf<Q, K, L> = <K as InputKey<Q, <Q as Processor>::InKey>>::On<L>;

impl<K, V, L, P> std::fmt::Debug for Stream<K, V, L, P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stream({})", self.label)
    }
}

impl<K: 'static, V: 'static, L> Stream<K, V, L> {
    /// The stream that comes out of a node.
    pub(crate) fn at(draft: Shared, at: Outlet) -> Self {
        let label = draft.borrow().label(at.node);
        Self::labelled(draft, at, label)
    }

    fn labelled(draft: Shared, at: Outlet, label: String) -> Self {
        Self { draft, at, label, step: "", pipe: Boxed::new(), types: PhantomData }
    }
}

impl<K: 'static, V: 'static, L: 'static, P: Pipe<K, V>> Stream<K, V, L, P> {
    /// Adds a step to the chain.
    fn step<J, W, M, Q>(self, step: &'static str, next: impl FnOnce(P) -> Q) -> Stream<J, W, M, Q> {
        Stream { draft: self.draft, at: self.at, label: self.label, step, pipe: next(self.pipe), types: PhantomData }
    }

    /// Makes a node of the stateless steps, if there are any: the type forgets them. (`#[topology]` does so at each `let`.)
    pub fn erase(self) -> Stream<K, V, L> {
        if P::EMPTY {
            return Stream::labelled(self.draft, self.at, self.label);
        }
        let pipe = self.pipe;
        let node = self.draft.borrow_mut().add(NewNode {
            name: Name::Step(self.label, self.step),
            kind: NodeKind::Stateless,
            parents: vec![self.at],
            branches: 1,
            ends: false,
            factory: Arc::new(move |b| Ok(pipe.attach(ToChild(b.children[0])))),
        });
        Stream::at(self.draft, Outlet { node, branch: 0 })
    }

    /// Gives the node that this stream comes out of a stable name. Whatever owns bytes (an aggregation, a processor's
    /// boundary) is called by it. A `let` in a `#[topology]` function does this too; this name is stronger.
    pub fn named(self, name: &str) -> Stream<K, V, L> {
        self.erase().with_name(name, true)
    }

    /// Adds a node that takes this stream.
    fn node(
        self,
        kind: NodeKind,
        name: impl FnOnce(String) -> Name,
        branches: usize,
        ends: bool,
        factory: Factory,
    ) -> (Shared, NodeId) {
        let stream = self.erase();
        let node = stream.draft.borrow_mut().add(NewNode {
            name: name(stream.label),
            kind,
            parents: vec![stream.at],
            branches,
            ends,
            factory,
        });
        (stream.draft, node)
    }

    /// Changes each value.
    pub fn map_values<W: 'static, F: Fn(V) -> W + Send + Sync + 'static>(
        self,
        f: F,
    ) -> Stream<K, W, L, MapValues<P, F, K, V>> {
        self.step("map_values", |up| MapValues::new(up, f))
    }

    /// Changes each value, with a function that may fail: its error is the error of the record.
    pub fn try_map_values<W: 'static, F: Fn(V) -> Result<W> + Send + Sync + 'static>(
        self,
        f: F,
    ) -> Stream<K, W, L, TryMapValues<P, F, K, V>> {
        self.step("try_map_values", |up| TryMapValues::new(up, f))
    }

    /// Keeps the records that this is true for.
    pub fn filter<F: Fn(&K, &V) -> bool + Send + Sync + 'static>(self, f: F) -> Stream<K, V, L, Filter<P, F, K, V>> {
        self.step("filter", |up| Filter::new(up, f))
    }

    /// Drops the records that are late: older than the watermark, as it was handed on before them. They are counted
    /// (`stoat.dropped.records.total{reason=late}`), and become dead letters where `stoat.dead-letter.dropped` says so.
    ///
    /// # Examples
    /// ```
    /// # use stoat_core::prelude::*;
    /// # #[source(topic = "clicks", key = String, value = String, value_codec = Utf8)]
    /// # struct Clicks;
    /// # #[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
    /// # struct Out;
    /// #[topology]
    /// fn clicks(t: &mut Topology) {
    ///     t.source::<Clicks>().drop_late().sink::<Out>();
    /// }
    /// # clicks::build().unwrap();
    /// # use stoat_core::topology::TopologyFn;
    /// ```
    pub fn drop_late(self) -> Stream<K, V, L, DropLate<P>> {
        self.step("drop_late", DropLate::new)
    }

    /// Drops the records that this is true for.
    pub fn filter_not<F: Fn(&K, &V) -> bool + Send + Sync + 'static>(
        self,
        f: F,
    ) -> Stream<K, V, L, FilterNot<P, F, K, V>> {
        self.step("filter_not", |up| FilterNot::new(up, f))
    }

    /// Makes any number of values of each one, in order.
    #[expect(clippy::type_complexity, reason = "the type is the chain of steps")]
    pub fn flat_map_values<I: IntoIterator<Item: 'static> + 'static, F: Fn(V) -> I + Send + Sync + 'static>(
        self,
        f: F,
    ) -> Stream<K, I::Item, L, FlatMapValues<P, F, K, V, I>>
    where
        K: Clone,
    {
        self.step("flat_map_values", |up| FlatMapValues::new(up, f))
    }

    /// Makes any number of keys and values of each record, in order.
    pub fn flat_map<J: 'static, W: 'static, I, F>(self, f: F) -> Stream<J, W, KeyChanged, FlatMap<P, F, K, V, I>>
    where
        I: IntoIterator<Item = (J, W)> + 'static,
        F: Fn(K, V) -> I + Send + Sync + 'static,
    {
        self.step("flat_map", |up| FlatMap::new(up, f))
    }

    /// Changes each key and value.
    pub fn map<J: 'static, W: 'static, F: Fn(K, V) -> (J, W) + Send + Sync + 'static>(
        self,
        f: F,
    ) -> Stream<J, W, KeyChanged, Map<P, F, K, V>> {
        self.step("map", |up| Map::new(up, f))
    }

    /// Changes each key.
    pub fn select_key<J: 'static, F: Fn(&K, &V) -> J + Send + Sync + 'static>(
        self,
        f: F,
    ) -> Stream<J, V, KeyChanged, SelectKey<P, F, K, V>> {
        self.step("select_key", |up| SelectKey::new(up, f))
    }

    /// Looks at each record.
    pub fn peek<F: Fn(&K, &V) + Send + Sync + 'static>(self, f: F) -> Stream<K, V, L, Peek<P, F, K, V>> {
        self.step("peek", |up| Peek::new(up, f))
    }

    /// Ends the stream in a closure.
    pub fn for_each<F: Fn(&K, &V) + Send + Sync + 'static>(self, f: F) {
        self.end("for_each", f);
    }

    /// Ends the stream: its records are dropped.
    pub fn discard(self) {
        self.end("discard", |_, _| {});
    }

    fn end<F: Fn(&K, &V) + Send + Sync + 'static>(self, step: &'static str, f: F) {
        let f = Arc::new(f);
        self.node(
            NodeKind::ForEach,
            |label| Name::Step(label, step),
            0,
            true,
            Arc::new(move |_| Ok(Boxed::<K, V>::new().attach(ForEachEnd(f.clone())))),
        );
    }

    /// Writes the records to a topic.
    pub fn sink<S: Sink>(self)
    where
        K: SinkKey<S, S::Key>,
        V: SinkValue<S, S::Value>,
    {
        let stream = self.erase();
        let mut draft = stream.draft.borrow_mut();
        let sink = draft.next_sink();
        draft.add_sink(
            NewNode {
                name: Name::Type(S::NAME),
                kind: NodeKind::Sink(sink),
                parents: vec![stream.at],
                branches: 0,
                ends: true,
                factory: Arc::new(move |b| Ok(Box::new(SinkOperator::<S>::new(&b.node.name, sink)))),
            },
            SinkDecl {
                node: NodeId(0),
                topic: S::TOPIC.to_owned(),
                key_codec: codec_id::<S::KeyCodec>(),
                value_codec: codec_id::<S::ValueCodec>(),
            },
        );
    }

    /// Makes `N` streams of one; each gets all records, the first stream first.
    pub fn fan_out<const N: usize>(self) -> [Stream<K, V, L>; N]
    where
        K: Clone,
        V: Clone,
    {
        let (draft, node) = self.node(
            NodeKind::FanOut,
            |label| Name::Step(label, "fan_out"),
            N,
            false,
            Arc::new(|b| Ok(Box::new(FanOutOperator::<K, V>::new(b.children.clone())))),
        );
        std::array::from_fn(|branch| Stream::at(draft.clone(), Outlet { node, branch }))
    }

    /// Makes `N` streams of one; each record goes to the first branch that takes it, or nowhere.
    pub fn split<const N: usize>(self, branches: [Branch<K, V>; N]) -> [Stream<K, V, L>; N] {
        let branches: Vec<_> = branches.into_iter().map(|b| b.0).collect();
        let (draft, node) = self.node(
            NodeKind::FanOut,
            |label| Name::Step(label, "split"),
            N,
            false,
            Arc::new(move |b| {
                let children = branches.iter().cloned().zip(b.children.iter().copied()).collect();
                Ok(Box::new(SplitOperator::<K, V>::new(children)))
            }),
        );
        std::array::from_fn(|branch| Stream::at(draft.clone(), Outlet { node, branch }))
    }

    /// Makes two streams of one: the records in time, and those that are older than the watermark, as it was handed on
    /// before them. What is late is dropped by no operator of its own accord: here it can be kept apart, counted, or
    /// written to a topic of its own. [`Stream::drop_late`] drops it.
    ///
    /// # Examples
    /// ```
    /// # use stoat_core::prelude::*;
    /// # #[source(topic = "clicks", key = String, value = String, value_codec = Utf8)]
    /// # struct Clicks;
    /// # #[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
    /// # struct Out;
    /// # #[sink(topic = "late-clicks", key = String, value = String, value_codec = Utf8)]
    /// # struct LateClicks;
    /// #[topology]
    /// fn clicks(t: &mut Topology) {
    ///     let [clicks, late] = t.source::<Clicks>().split_late();
    ///     late.sink::<LateClicks>();
    ///     clicks.sink::<Out>();
    /// }
    /// # clicks::build().unwrap();
    /// # use stoat_core::topology::TopologyFn;
    /// ```
    pub fn split_late(self) -> [Stream<K, V, L>; 2] {
        let (draft, node) = self.node(
            NodeKind::FanOut,
            |label| Name::Step(label, "split_late"),
            2,
            false,
            Arc::new(|b| Ok(Box::new(LateOperator::<K, V>::new(b.children[0], b.children[1])))),
        );
        std::array::from_fn(|branch| Stream::at(draft.clone(), Outlet { node, branch }))
    }

    /// Makes one stream of two.
    ///
    /// Where the two run on lanes of different sub-topologies, both are handed over to lanes of a new one; two that are fed
    /// by sources only share their lanes instead.
    pub fn merge<Q: Pipe<K, V>>(self, other: Stream<K, V, L, Q>) -> Stream<K, V, L>
    where
        K: Send,
        V: Send,
    {
        let (a, b) = (self.erase(), other.erase());
        let node = a.draft.borrow_mut().add_meeting(
            NewNode {
                name: Name::Step(a.label, "merge"),
                kind: NodeKind::Merge,
                parents: vec![a.at, b.at],
                branches: 1,
                ends: false,
                factory: Arc::new(|b| Ok(Box::new(MergeOperator::<K, V>::new(b.children[0])))),
            },
            || Arc::new(|b| Ok(Box::new(HandOverOperator::<K, V, ByLane>::new(ByLane, b.receiving_lanes)))),
        );
        Stream::at(a.draft, Outlet { node, branch: 0 })
    }

    /// Hands the records over to the lanes of their key, in a new sub-topology.
    pub fn repartition<C>(self) -> Stream<K, V, Lane<C>>
    where
        L: GroupLane<K, Codec = C>,
        C: crate::codec::Encode<K>,
        K: Send,
        V: Send,
    {
        let (draft, node) = self.hand_over::<C>(|label| Name::Step(label, "repartition"));
        Stream::at(draft, Outlet { node, branch: 0 })
    }

    fn hand_over<C: crate::codec::Encode<K>>(self, name: impl FnOnce(String) -> Name) -> (Shared, NodeId)
    where
        K: Send,
        V: Send,
    {
        self.node(
            NodeKind::HandOver,
            name,
            1,
            false,
            Arc::new(|b| {
                let by = ByCodec { name: b.node.name.as_str().into(), codec: PhantomData::<fn() -> C> };
                Ok(Box::new(HandOverOperator::<K, V, _>::new(by, b.receiving_lanes)))
            }),
        )
    }

    /// Groups the records by their key: what follows is kept per key. Behind a changed key this opens a boundary.
    pub fn group_by_key<C>(self) -> Grouped<K, V, C>
    where
        L: GroupLane<K, Codec = C>,
        C: crate::codec::Encode<K>,
        K: Send,
        V: Send,
    {
        if <L as GroupLane<K>>::HANDS_OVER {
            let (draft, node) = self.hand_over::<C>(|_| Name::Behind);
            Grouped::new(draft, Outlet { node, branch: 0 }, codec_id::<C>())
        } else {
            let stream = self.erase();
            Grouped::new(stream.draft, stream.at, codec_id::<C>())
        }
    }

    /// Groups the records by a new key.
    pub fn group_by<J, F>(self, f: F) -> Grouped<J, V, J::Codec>
    where
        J: crate::key::Key,
        F: Fn(&K, &V) -> J + Send + Sync + 'static,
        V: Send,
    {
        self.select_key(f).group_by_key()
    }

    /// Runs a processor.
    pub fn process<Q>(self) -> Processed<Q, L>
    where
        Q: Processor,
        This<Q>: Unconfigured + FitsLane<K, LaneOf<This<Q>, K, L>>,
        K: InputKey<This<Q>, <This<Q> as Processor>::InKey>,
        V: InputValue<This<Q>, <This<Q> as Processor>::InValue>,
        L: LaneState<K>,
    {
        let (draft, node) = self.run(<This<Q>>::init);
        Stream::at(draft, Outlet { node, branch: 0 })
    }

    /// Runs a processor that has configuration: `process_with(move || P::init(limit))`. The closure runs once per lane.
    pub fn process_with<Q>(self, init: impl Fn() -> Init<Q> + Send + Sync + 'static) -> Processed<Q, L>
    where
        Q: FitsLane<K, LaneOf<Q, K, L>>,
        K: InputKey<Q, <Q as Processor>::InKey>,
        V: InputValue<Q, <Q as Processor>::InValue>,
        L: LaneState<K>,
    {
        let (draft, node) = self.run(init);
        Stream::at(draft, Outlet { node, branch: 0 })
    }

    fn run<Q>(self, init: impl Fn() -> Init<Q> + Send + Sync + 'static) -> (Shared, NodeId)
    where
        Q: Handlers,
        K: InputKey<Q, Q::InKey>,
        V: InputValue<Q, Q::InValue>,
        L: LaneState<K>,
    {
        let watched = OnceLock::new();
        let factory: Factory = Arc::new(move |b| {
            let owner: Arc<str> = b.node.name.as_str().into();
            let writer = L::key_writer().filter(|_| !Q::FIELDS.is_empty());
            let affinity = b.place.filter(|_| writer.is_some()).map(|place| {
                let watched = watched.get_or_init(|| Arc::new(Watched::new(owner.clone())));
                Affinity::new(place.clone(), watched.clone())
            });
            let seeds: Vec<FieldSeed> = Q::FIELDS
                .iter()
                .zip(&b.node.stores)
                .enumerate()
                .map(|(index, (decl, store))| FieldSeed {
                    decl: *decl,
                    owner: owner.clone(),
                    index,
                    store: *store,
                    bytes: b.stores[store.0 as usize].clone(),
                    lane: b.lane.0,
                    lanes: b.lanes,
                    cache: b.cache,
                    affinity: affinity.clone(),
                    reencode: writer.as_ref().and_then(|w| w.reencode),
                })
                .collect();
            let encode = |key: &Q::InKey, out: &mut Vec<u8>| L::encode(<K as InputKey<Q, Q::InKey>>::of(key), out);
            let sampled = writer.and_then(|w| Sampled::new(affinity.as_ref(), w.codec, encode));
            let processor = init().make(&mut FieldBuild { seeds: &seeds });
            let kept = if L::KEEPS_KEY {
                KeptKey::Lane(|current| L::decode(current).map(InputKey::<Q, Q::InKey>::same))
            } else {
                KeptKey::Record
            };
            let operator = ProcessorOperator::new(&owner, processor, kept, b.children.first().copied(), sampled);
            Ok(if Q::ASYNC { Box::new(AsyncProcessorOperator::new(operator)) } else { Box::new(operator) })
        });
        let ends = <Q::Mode as Mode<Q>>::ENDS;
        let stream = if Q::ASYNC { self.begin_sub::<Q>() } else { self.erase() };
        let (draft, node) = stream.node(NodeKind::Processor, |_| Name::Type(Q::NAME), 1, ends, factory);
        for decl in Q::FIELDS {
            let codec = (decl.key_codec)().unwrap_or_else(L::codec);
            let mut draft = draft.borrow_mut();
            draft.add_store(node, decl.name, decl.kind, codec, (decl.value)(), decl.foreign);
            if decl.peeks {
                draft.peeks();
            }
        }
        (draft, node)
    }
}

impl<K: 'static, V: 'static, L: 'static, P: Pipe<K, V>> Stream<K, V, L, P> {
    /// Lets a processor that may wait be the entry of a sub-topology: records are handed over, each to the lane of the key
    /// that it runs under.
    fn begin_sub<Q: Handlers>(self) -> Stream<K, V, L>
    where
        K: InputKey<Q, Q::InKey>,
        V: InputValue<Q, Q::InValue>,
    {
        let stream = self.erase();
        if stream.draft.borrow().is_hand_over(stream.at) {
            return stream;
        }
        // The stream's types are the processor's own, which are `Send`: its bounds say so.
        let (draft, node) = stream.node(
            NodeKind::HandOver,
            |_| Name::Behind,
            1,
            false,
            Arc::new(|b| {
                Ok(Box::new(HandOverOperator::<Q::InKey, Q::InValue, ByLane>::new(ByLane, b.receiving_lanes)))
            }),
        );
        Stream::at(draft, Outlet { node, branch: 0 })
    }
}

impl<K: 'static, V: 'static, C: 'static, P: Pipe<Option<K>, V>> Stream<Option<K>, V, Lane<Nullable<C>>, P> {
    /// Drops the records that have no key: the others have their lane, and state, timers and aggregations can follow.
    pub fn with_key(self) -> Stream<K, V, Lane<C>, WithKey<P>> {
        self.step("with_key", WithKey::new)
    }
}

impl<K: 'static, V: 'static, L: 'static, P: Pipe<K, Option<V>>> Stream<K, Option<V>, L, P> {
    /// Drops the records that have no value: the others follow with their values. Before an aggregation of a source whose
    /// values may be null; Kafka Streams drops such records there by itself.
    pub fn with_value(self) -> Stream<K, V, L, WithValue<P>> {
        self.step("with_value", WithValue::new)
    }
}

impl<K, V, L, P> Stream<K, V, L, P> {
    /// Does not compile, and says why.
    #[doc(hidden)]
    pub fn count<C>(self) -> Table<K, u64, C>
    where
        L: IsGrouped<C>,
    {
        unreachable!("nothing implements `IsGrouped`")
    }

    pub(crate) fn place(&self) -> Place {
        Place::of(&self.draft)
    }
}

impl<K: 'static, V: 'static, L> Stream<K, V, L> {
    pub(crate) fn with_label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.label);
        self
    }

    fn with_name(mut self, name: &str, replace: bool) -> Self {
        {
            let mut draft = self.draft.borrow_mut();
            if draft.is_single(self.at) {
                draft.name_node(self.at.node, name, replace);
            }
        }
        name.clone_into(&mut self.label);
        self
    }
}

/// What a `let` in a `#[topology]` function does to its value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no stream, so this `let` names nothing",
    note = "in a `#[topology]` function, `let` binds streams, tables and groups"
)]
pub trait Bind {
    /// What is bound.
    type Bound;

    /// Names it.
    fn bound_to(self, name: &'static str) -> Self::Bound;
}

impl<K: 'static, V: 'static, L: 'static, P: Pipe<K, V>> Bind for Stream<K, V, L, P> {
    type Bound = Stream<K, V, L>;

    fn bound_to(self, name: &'static str) -> Self::Bound {
        self.erase().with_name(name, false)
    }
}

impl<K: 'static, V: 'static, C> Bind for Table<K, V, C> {
    type Bound = Self;

    fn bound_to(self, name: &'static str) -> Self {
        self.with_name(name, false)
    }
}

impl<K, V, C, VC> Bind for Grouped<K, V, C, VC> {
    type Bound = Self;

    /// A group is no node: the aggregation that follows is named by its own `let`.
    fn bound_to(self, _name: &'static str) -> Self {
        self
    }
}

impl Bind for () {
    type Bound = ();

    fn bound_to(self, _name: &'static str) {}
}

/// What a `let [a, b] = ..` in a `#[topology]` function does.
pub fn bind_each<S: Bind, const N: usize>(streams: [S; N], names: [&'static str; N]) -> [S::Bound; N] {
    let mut names = names.into_iter();
    streams.map(|s| s.bound_to(names.next().expect("as many names as streams")))
}

/// The value codec that an aggregation has when none is named.
pub(crate) type DefaultCodec = Json;
