use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Handle, Runtime};

use crate::affinity::LaneChecks;
use crate::broker::Fetched;
use crate::codec::{Decode, Encode, codec_id, decode_opt};
use crate::config::{Config, EmitMode};
use crate::engine::core::State;
use crate::engine::epoch::merge;
use crate::engine::ingest::{Cut, Ingest, InputSpec, Limits};
use crate::engine::message::{Control, Frozen, LaneNet, Mark, NetEvent, Tick};
use crate::engine::net::{DeterministicNet, NetBuild, NetSettings, build_lanes, places};
use crate::engine::schedules::Schedules;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::{Decision, Gates, Tally, Verdicts};
use crate::id::{Epoch, Generation, Offset, StoreId, SubTopologyId};
use crate::key::Key;
use crate::metrics::Counters;
use crate::operator::{ForeignTimer, Outputs};
use crate::plan::Plan;
use crate::record::{Headers, Record, RecordBatch};
use crate::schedule::Schedule;
use crate::sink::Sink;
use crate::source::Source;
use crate::store::memory::MemoryStore;
use crate::store::{Batch, ByteStore, Row, Stamp, StoreKind};
use crate::time::{Timestamp, Watermark};
use crate::topology::graph::{Graph, StoreDecl};

/// Records that one call may cause by topics that the topology both writes and reads.
const FED_BACK: usize = 10_000;

/// What was asked of a driver while it was paused.
enum Asked {
    Record(usize, RawRecord),
    Watermark(Watermark),
}

/// A pause of a driver.
struct Pause {
    /// When it began, as [`TestDriver::now`].
    since: u64,
    /// What is done when it ends, in order.
    asked: Vec<Asked>,
}

/// A record as bytes; `None` is Kafka's null.
pub type RawRecord = Record<Option<Vec<u8>>, Option<Vec<u8>>>;

/// A row of a store, as bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreRow {
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// In the tables that aggregations keep: the largest timestamp that went into the value.
    pub timestamp: Option<Timestamp>,
}

/// How a [`TestDriver`] is set up.
///
/// # Examples
/// ```
/// use stoat_core::testing::Options;
///
/// let one_lane = Options { lanes: 1, ..Options::default() };
/// assert_eq!(Options::default().lanes, 16);
/// # assert_eq!(one_lane.lanes, 1);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The number of lanes of each sub-topology; at least 1. The machine's cores play no part.
    pub lanes: u32,
    /// Where the wall clock begins. Only [`TestDriver::advance_wall_clock`] moves it.
    pub start: Timestamp,
    /// Whether every call that makes the topology work also commits. Without it only [`TestDriver::commit`] does: outputs
    /// are read, other keys seen and timers for other keys set when the commit is done, as in production.
    pub commit_each: bool,
    /// In which order lanes that have something to do take their turns: another seed, another order, the same each time. What a
    /// topology gives does not depend on it.
    pub seed: u64,
    /// The checks of lane affinity: [`LaneChecks::each`] is as in production, except that the key of each record is looked
    /// at; [`LaneChecks::strict`] makes an error of what production only warns of. With one lane there is nothing to check.
    pub lane_checks: LaneChecks,
    /// When aggregations hand on what has changed (`stoat.emit.mode`).
    pub emit: EmitMode,
    /// What becomes of records that cannot be decoded, as `stoat.deserialization-exception-handler` says; `None`: what the
    /// topology decides, else the call that pipes the record fails. See [`gate`](crate::gate).
    pub decode_error: Option<Decision>,
    /// The same for `stoat.processing-exception-handler`.
    pub process_error: Option<Decision>,
    /// The same for `stoat.production-exception-handler`.
    pub produce_error: Option<Decision>,
    /// The dead-letter topic, to be read with [`TestDriver::read_raw`]. With it records that an operator leaves out (no key,
    /// no value) become dead letters, too.
    pub dead_letters: Option<String>,
}

impl Default for Options {
    /// 16 lanes; the clock begins at 2100-01-01T00:00:00Z, behind the timestamps that tests use; each call commits;
    /// aggregations hand on each update.
    fn default() -> Self {
        Self {
            lanes: 16,
            start: Timestamp::from_millis(4_102_444_800_000),
            commit_each: true,
            seed: 0,
            lane_checks: LaneChecks::each(),
            emit: EmitMode::Eager,
            decode_error: None,
            process_error: None,
            produce_error: None,
            dead_letters: None,
        }
    }
}

/// Runs a topology in a test: no broker, no threads, no clock but its own.
///
/// Ingest, lanes, operators, codecs and the commit at the end of an epoch are those of production; state is written to
/// stores in memory and read back from them, so a codec that loses something is found. Each record that is piped runs to
/// rest: all lanes idle, re-keyed records delivered, the watermark handed on, what it caused committed.
///
/// **Time.** The watermark follows the records that are piped by each source's own strategy. A source with nothing waiting
/// is idle, so a silent topic holds nothing back: the watermark is the largest timestamp piped so far, over all topics, less
/// the bound of its source (10 s unless the source says otherwise). The wall clock stands still between calls of
/// [`TestDriver::advance_wall_clock`].
///
/// **Errors.** The call that causes an error returns it, with the record's place (`clicks-0@1`: topic, partition, offset from
/// 0); nothing of the failed epoch is committed, and every later call fails too. Mistakes in the call itself (a topic that the
/// topology does not have) change nothing.
///
/// **`async` handlers.** A call waits (in real time, at most 30 s) until they are done. They run inside a tokio runtime, so
/// timers and sockets of tokio work.
///
/// Nothing is global: any number of drivers may run at once. See [the module](super) for an example.
pub struct TestDriver {
    graph: Graph,
    net: DeterministicNet,
    ingest: Ingest,
    schedules: Schedules,
    plan: Plan,
    stores: Vec<Arc<dyn ByteStore>>,
    /// The offset of the next record, by input.
    next: Vec<Offset>,
    epoch: Epoch,
    options: Options,
    wall: Timestamp,
    /// What [`TestDriver::advance_watermark`] asked for.
    asked: Watermark,
    /// The last mark.
    watermark: Watermark,
    /// By topic: committed and not yet read.
    outputs: BTreeMap<String, VecDeque<RawRecord>>,
    /// Committed records of topics that are read as well: input and record.
    back: VecDeque<(usize, RawRecord)>,
    paused: Option<Pause>,
    counters: Counters,
    failed: Option<(ErrorKind, String)>,
    /// For what `async` handlers wait for, where there are such.
    runtime: Option<Runtime>,
    tally: Tally,
}

impl TestDriver {
    /// A driver with 16 lanes.
    ///
    /// # Errors
    /// When the topology has no source or a lane cannot be built.
    pub fn new(graph: Graph) -> Result<Self> {
        Self::with_options(graph, Options::default())
    }

    /// A driver with so many lanes. What a topology gives does not depend on it; a test that runs with 1 and with 16 finds
    /// what does.
    ///
    /// # Errors
    /// As [`TestDriver::with_options`].
    pub fn with_lanes(graph: Graph, lanes: u32) -> Result<Self> {
        Self::with_options(graph, Options { lanes, ..Options::default() })
    }

    /// A driver with options.
    ///
    /// # Errors
    /// Without lanes; when the topology has no source or a lane cannot be built.
    pub fn with_options(graph: Graph, options: Options) -> Result<Self> {
        if options.lanes == 0 {
            return Err(Error::new(ErrorKind::Config, "a test driver needs at least 1 lane"));
        }
        let topics = graph.sources.iter().map(|s| &s.topic).chain(graph.sinks.iter().map(|s| &s.topic));
        let partitions: BTreeMap<String, i32> = topics.map(|t| (t.clone(), 1)).collect();
        let mut plan = Plan::new(&graph, "test", options.lanes, &partitions)?;
        if let Some(topic) = &options.dead_letters {
            plan.add_letters(topic, 1);
        }
        let config = Config {
            decode_gate: options.decode_error,
            process_gate: options.process_error,
            produce_gate: options.produce_error,
            dead_letter_dropped: options.dead_letters.is_some(),
            ..Config::default()
        };
        let gates = Gates::of(&config, &graph, &plan, Verdicts::default());
        let stores: Vec<Arc<dyn ByteStore>> =
            graph.stores.iter().map(|s| Arc::new(MemoryStore::new(s.kind)) as Arc<dyn ByteStore>).collect();
        let marked = vec![Timestamp::MIN; plan.subs.len()];
        let counters = Counters::default();
        counters.during(crate::metrics::register);
        let build = NetBuild {
            graph: &graph,
            lane_counts: &plan.lane_counts(),
            stores: &stores,
            sink_topics: plan.sink_topics.clone(),
            sink_partitions: plan.sink_partitions.clone().into(),
            watermarks: &marked,
            punctuated: &marked,
            wall: options.start,
            // Nothing clean is kept, so that each epoch reads through the codecs what the last one wrote.
            cache_budget: 0,
            gates: Arc::new(gates),
            settings: NetSettings { checks: options.lane_checks, emit: options.emit, ..NetSettings::default() },
        };
        let lanes = counters.during(|| build_lanes(&build))?;
        let net = DeterministicNet::new(lanes, options.seed);
        let runtime = if net.is_async() { Some(runtime()?) } else { None };
        let entries = places(&graph);
        let specs: Vec<InputSpec> = plan
            .inputs
            .iter()
            .map(|i| {
                let source = &graph.sources[i.source as usize];
                InputSpec {
                    sub: i.sub,
                    entry: entries[i.node.0 as usize],
                    group: i.group,
                    lane_key: source.lane_key,
                    watermark: source.watermark.clone(),
                    name: i.partition.to_string(),
                }
            })
            .collect();
        let schedules = Schedules::new(&graph, &entries, &stores, &BTreeMap::new(), options.start);
        let fresh = crate::engine::epoch_record::InputCut { next: 0, watermark: Timestamp::MIN };
        let cut = Cut { inputs: vec![fresh; specs.len()], marked, wall: options.start };
        let limits = Limits { max_wait: Duration::ZERO, fetch_budget: 1 << 20, batch_bytes: 1 << 20 };
        Ok(Self {
            next: vec![0; specs.len()],
            ingest: counters.during(|| Ingest::new(&plan, specs, &cut, limits, 0)),
            schedules,
            net,
            runtime,
            plan,
            stores,
            epoch: Epoch(1),
            wall: options.start,
            asked: Timestamp::MIN,
            watermark: Timestamp::MIN,
            outputs: graph
                .sinks
                .iter()
                .map(|s| &s.topic)
                .chain(&options.dead_letters)
                .map(|t| (t.clone(), VecDeque::new()))
                .collect(),
            tally: Tally::default(),
            back: VecDeque::new(),
            paused: None,
            counters,
            failed: None,
            options,
            graph,
        })
    }

    // --- input -------------------------------------------------------------------------------------------------------

    /// Pipes a record into a source, at `timestamp` in ms, written with the source's codecs.
    ///
    /// # Errors
    /// When the codecs refuse key or value, when the topology fails on the record, or has failed before. When the topology
    /// does not read the source.
    pub fn pipe<S: Source>(&mut self, key: &S::Key, value: &S::Value, timestamp: i64) -> Result<()>
    where
        S::KeyCodec: Encode<S::Key>,
        S::ValueCodec: Encode<S::Value>,
    {
        self.pipe_with_headers::<S>(key, value, timestamp, Headers::default())
    }

    /// As [`TestDriver::pipe`], at the driver's wall clock.
    ///
    /// # Errors
    /// As [`TestDriver::pipe`].
    pub fn pipe_now<S: Source>(&mut self, key: &S::Key, value: &S::Value) -> Result<()>
    where
        S::KeyCodec: Encode<S::Key>,
        S::ValueCodec: Encode<S::Value>,
    {
        self.pipe::<S>(key, value, self.wall.as_millis())
    }

    /// As [`TestDriver::pipe`], with headers.
    ///
    /// # Errors
    /// As [`TestDriver::pipe`].
    pub fn pipe_with_headers<S: Source>(
        &mut self,
        key: &S::Key,
        value: &S::Value,
        timestamp: i64,
        headers: Headers,
    ) -> Result<()>
    where
        S::KeyCodec: Encode<S::Key>,
        S::ValueCodec: Encode<S::Value>,
    {
        let input = self.input(S::TOPIC)?;
        let decl = &self.graph.sources[self.plan.inputs[input].source as usize];
        let codecs = (codec_id::<S::KeyCodec>(), codec_id::<S::ValueCodec>());
        if (&codecs.0, &codecs.1) != (&decl.key_codec, &decl.value_codec) {
            return Err(Error::new(
                ErrorKind::Topology,
                format!(
                    "`{}` has the codecs {} and {}, but topology `{}` reads `{}` with {} and {}: pipe through its own source",
                    S::NAME,
                    codecs.0,
                    codecs.1,
                    self.graph.name,
                    S::TOPIC,
                    decl.key_codec,
                    decl.value_codec
                ),
            ));
        }
        let key = encode::<S::KeyCodec, _>(key, "key", S::NAME)?;
        let value = encode::<S::ValueCodec, _>(value, "value", S::NAME)?;
        let record = Record { key, value, timestamp: Timestamp::from_millis(timestamp), headers };
        self.guarded(|d| d.feed(input, record))
    }

    /// Pipes bytes into a topic; `None` is Kafka's null. For what codecs refuse, and for decode-only sources.
    ///
    /// # Errors
    /// As [`TestDriver::pipe`]; what the topology's codecs refuse is an error of the record.
    pub fn pipe_raw(
        &mut self,
        topic: &str,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp: i64,
        headers: Headers,
    ) -> Result<()> {
        let input = self.input(topic)?;
        let record = Record {
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            timestamp: Timestamp::from_millis(timestamp),
            headers,
        };
        self.guarded(|d| d.feed(input, record))
    }

    // --- time --------------------------------------------------------------------------------------------------------

    /// Moves the watermark to `to`, in ms, for all sources: event timers up to there fire. A watermark that is there or beyond
    /// already stays where it is.
    ///
    /// # Errors
    /// When a timer or a punctuator fails, or the driver has failed before.
    pub fn advance_watermark(&mut self, to: i64) -> Result<()> {
        self.guarded(|d| d.move_watermark(Timestamp::from_millis(to)))
    }

    /// Moves the wall clock forward, in one step: timers of the wall clock up to there fire in the order of their times, a
    /// punctuator of the wall clock once, a schedule once (with [`Missed::Each`](crate::schedule::Missed::Each) as often as it
    /// is due).
    ///
    /// # Errors
    /// As [`TestDriver::advance_watermark`].
    pub fn advance_wall_clock(&mut self, by: Duration) -> Result<()> {
        self.guarded(|d| {
            d.wall = d.wall + by;
            if d.paused.is_some() { Ok(()) } else { d.tick() }
        })
    }

    // --- pause -------------------------------------------------------------------------------------------------------

    /// Pauses the topology as [`Engine::pause`](crate::engine::core::Engine::pause) does: what it has taken commits. From then
    /// on records that are piped wait, neither clock moves for the topology, and what a call asked for is done by
    /// [`TestDriver::resume`].
    ///
    /// # Errors
    /// When it is paused already, or the driver has failed before.
    pub fn pause(&mut self) -> Result<()> {
        self.alive()?;
        self.state().may_pause()?;
        self.guarded(Self::end_epochs)?;
        self.paused = Some(Pause { since: self.now(), asked: Vec::new() });
        Ok(())
    }

    /// Ends a pause: timers of the wall clock that became due fire, a punctuator of the wall clock once, schedules do with the
    /// ticks that they missed what their [`Missed`](crate::schedule::Missed) says; then come the records and watermarks of the
    /// calls since, in their order.
    ///
    /// # Errors
    /// When it is not paused; what the calls since would have returned.
    pub fn resume(&mut self) -> Result<()> {
        self.alive()?;
        self.state().may_resume(false)?;
        let Some(pause) = self.paused.take() else { return Ok(()) };
        self.guarded(|d| {
            d.ingest.stood_still(pause.since, d.now());
            d.schedules.missed_until(d.wall);
            d.tick()?;
            pause.asked.into_iter().try_for_each(|asked| match asked {
                Asked::Record(input, record) => d.feed(input, record),
                Asked::Watermark(to) => d.move_watermark(to),
            })
        })
    }

    /// Whether it is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    fn state(&self) -> State {
        if self.is_paused() { State::Paused } else { State::Running }
    }

    /// Handles a tick of a schedule now, at the wall clock's time, whether or not it is due; its own times stay as they are.
    ///
    /// # Errors
    /// When the topology has no such schedule, when what emits or what follows fails, or the driver has failed before; while
    /// it is paused.
    pub fn fire<S: Schedule>(&mut self) -> Result<()> {
        self.alive()?;
        self.schedules.known(S::NAME)?;
        if self.is_paused() {
            let text = format!("schedule `{}` cannot be fired in the state Paused: resume first", S::NAME);
            return Err(Error::new(ErrorKind::Lifecycle, text));
        }
        self.guarded(|d| {
            d.schedules.fire_now(S::NAME, d.wall, &mut d.ingest, &mut d.net, d.wall)?;
            d.settle()?;
            d.rest()
        })
    }

    /// The watermark of the last mark; [`Timestamp::MIN`]: none yet.
    pub fn watermark(&self) -> Watermark {
        self.watermark
    }

    /// The wall clock.
    pub fn wall_clock(&self) -> Timestamp {
        self.wall
    }

    /// How many records were left out so far, by reason; committed ones only.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    // --- output ------------------------------------------------------------------------------------------------------

    /// The records written to a sink's topic that no call has read before, in the order of the topic.
    ///
    /// # Errors
    /// When the topology does not write the topic, when the sink's codecs cannot read the bytes, or the driver has failed.
    pub fn read<S: Sink>(&mut self) -> Result<Vec<Record<S::Key, S::Value>>>
    where
        S::KeyCodec: Decode<S::Key>,
        S::ValueCodec: Decode<S::Value>,
    {
        let bad = |what: &str, i: usize, e| {
            Error::new(ErrorKind::Codec, format!("{what} of record {i} read from `{}` by `{}`: {e}", S::TOPIC, S::NAME))
        };
        let raw = self.read_raw(S::TOPIC)?.into_iter().enumerate();
        raw.map(|(i, r)| {
            let Record { key, value, timestamp, headers } = r;
            Ok(Record {
                key: decode_opt::<S::KeyCodec, _>(key.as_deref()).map_err(|e| bad("key", i, e))?,
                value: decode_opt::<S::ValueCodec, _>(value.as_deref()).map_err(|e| bad("value", i, e))?,
                timestamp,
                headers,
            })
        })
        .collect()
    }

    /// As [`TestDriver::read`], as the last value of each key.
    ///
    /// # Errors
    /// As [`TestDriver::read`].
    pub fn read_map<S: Sink<Key: Ord>>(&mut self) -> Result<BTreeMap<S::Key, S::Value>>
    where
        S::KeyCodec: Decode<S::Key>,
        S::ValueCodec: Decode<S::Value>,
    {
        Ok(self.read::<S>()?.into_iter().map(|r| (r.key, r.value)).collect())
    }

    /// As [`TestDriver::read`], as bytes.
    ///
    /// # Errors
    /// When the topology does not write the topic, or the driver has failed.
    pub fn read_raw(&mut self, topic: &str) -> Result<Vec<RawRecord>> {
        self.alive()?;
        let Some(records) = self.outputs.get_mut(topic) else {
            let known: Vec<&String> = self.outputs.keys().collect();
            return Err(self.unknown("writes to", topic, &known));
        };
        Ok(std::mem::take(records).into())
    }

    /// What the topology counted since the driver was made, by a name of [`metrics`](crate::metrics); 0 for a name that is not
    /// one. A driver has counters of its own.
    pub fn counter(&self, name: &str) -> u64 {
        self.counters.get(name).unwrap_or_default()
    }

    // --- state -------------------------------------------------------------------------------------------------------

    /// The rows of a store as of the last commit, in the order of their keys' bytes. A store has the name that its changelog
    /// is called by: that of the field of a processor, or of the stream that an aggregation makes.
    ///
    /// # Errors
    /// When there is no such store, or the driver has failed.
    pub fn store(&self, name: &str) -> Result<Vec<StoreRow>> {
        let (bytes, decl) = self.find_store(name)?;
        let stamped = decl.kind == StoreKind::TimestampedKeyValue;
        let mut rows = Vec::new();
        bytes.scan(None, None, &mut |key, value| {
            let (timestamp, value) = if stamped { split_time(value) } else { (None, value) };
            rows.push(StoreRow { key: key.to_vec(), value: value.to_vec(), timestamp });
            true
        })?;
        Ok(rows)
    }

    /// The value of a key in a store as of the last commit; `C` is the codec of the store's values.
    ///
    /// # Errors
    /// When there is no such store, the codec cannot read the value, or the driver has failed.
    pub fn stored<C: Decode<V>, K: Key, V>(&self, name: &str, key: &K) -> Result<Option<V>> {
        let (bytes, decl) = self.find_store(name)?;
        let key = encode::<K::Codec, K>(key, "key", name)?.unwrap_or_default();
        let Some(value) = bytes.get(&key)? else { return Ok(None) };
        let value = if decl.kind == StoreKind::TimestampedKeyValue { split_time(&value).1 } else { &value };
        let bad = |e| Error::new(ErrorKind::Codec, format!("value in store `{name}`, read with {}: {e}", C::NAME));
        C::decode(value).map(Some).map_err(bad)
    }

    /// The pending timers of a `Timer` or `Timers` field as of the last commit, in the order of time and key.
    ///
    /// # Errors
    /// When there is no such field or its keys are of another type, or the driver has failed.
    pub fn pending_timers<K: Key>(&self, name: &str) -> Result<Vec<(K, Timestamp)>> {
        let bad = |e| Error::new(ErrorKind::Codec, format!("key of a timer in `{name}`: {e}"));
        let raw = self.pending_timers_raw(name)?.into_iter();
        raw.map(|(key, time)| K::Codec::decode(&key).map(|k| (k, time)).map_err(bad)).collect()
    }

    /// As [`TestDriver::pending_timers`], with the keys as bytes.
    ///
    /// # Errors
    /// When there is no such field, or the driver has failed.
    pub fn pending_timers_raw(&self, name: &str) -> Result<Vec<(Vec<u8>, Timestamp)>> {
        let (bytes, decl) = self.find_store(name)?;
        let many = match decl.kind {
            StoreKind::Timer => false,
            StoreKind::Timers => true,
            StoreKind::KeyValue | StoreKind::TimestampedKeyValue => {
                return Err(Error::new(
                    ErrorKind::Topology,
                    format!("`{name}` holds values, not timers: look at it with `driver.store(..)`"),
                ));
            }
        };
        let mut timers = Vec::new();
        bytes.scan(None, None, &mut |key, value| {
            let row = if many { key.split_last_chunk::<8>() } else { value.try_into().ok().map(|time| (key, time)) };
            if let Some((key, time)) = row {
                timers.push((key.to_vec(), Timestamp::from_millis(i64::from_be_bytes(*time))));
            }
            true
        })?;
        timers.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
        Ok(timers)
    }

    /// Ends the epoch: what was done since the last commit is written to topics and stores. By itself after each call, unless
    /// [`Options::commit_each`] is off.
    ///
    /// # Errors
    /// When a value cannot be encoded, or the driver has failed before.
    pub fn commit(&mut self) -> Result<()> {
        self.guarded(Self::end_epochs)
    }

    // --- inside ------------------------------------------------------------------------------------------------------

    fn alive(&self) -> Result<()> {
        let Some((kind, text)) = &self.failed else { return Ok(()) };
        Err(Error::new(*kind, format!("the driver has failed before, make a new one; the first error was: {text}")))
    }

    /// Remembers an error for all later calls.
    fn guarded(&mut self, run: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.alive()?;
        let runtime = self.runtime.as_ref().map(|r| r.handle().clone());
        let _inside = runtime.as_ref().map(Handle::enter);
        let result = run(self);
        if let Err(e) = &result {
            self.failed = Some((e.kind(), e.to_string()));
        }
        result
    }

    fn unknown(&self, does: &str, topic: &str, known: &[&String]) -> Error {
        let known: Vec<String> = known.iter().map(|t| format!("`{t}`")).collect();
        let text = format!("topology `{}` {does} no topic `{topic}`; it {does} {}", self.graph.name, known.join(", "));
        Error::new(ErrorKind::Topology, text)
    }

    fn input(&self, topic: &str) -> Result<usize> {
        self.alive()?;
        self.plan.inputs.iter().position(|i| &*i.partition.topic == topic).ok_or_else(|| {
            let known: Vec<&String> = self.graph.sources.iter().map(|s| &s.topic).collect();
            self.unknown("reads", topic, &known)
        })
    }

    fn find_store(&self, name: &str) -> Result<(&dyn ByteStore, &StoreDecl)> {
        self.alive()?;
        let at = self.graph.stores.iter().position(|s| s.name == name).ok_or_else(|| {
            let known: Vec<String> = self.graph.stores.iter().map(|s| format!("`{}`", s.name)).collect();
            let text = format!("topology `{}` has no store `{name}`; it has {}", self.graph.name, known.join(", "));
            Error::new(ErrorKind::Topology, text)
        })?;
        Ok((&*self.stores[at], &self.graph.stores[at]))
    }

    /// Takes a record, and lets everything come to rest.
    fn feed(&mut self, input: usize, record: RawRecord) -> Result<()> {
        if let Some(pause) = &mut self.paused {
            pause.asked.push(Asked::Record(input, record));
            return Ok(());
        }
        self.dispatch(input, &record)?;
        self.rest()
    }

    fn move_watermark(&mut self, to: Watermark) -> Result<()> {
        if let Some(pause) = &mut self.paused {
            pause.asked.push(Asked::Watermark(to));
            return Ok(());
        }
        self.asked = self.asked.max(to);
        self.rest()
    }

    /// Has the lanes see what the wall clock says.
    fn tick(&mut self) -> Result<()> {
        if self.net.wants_ticks() && self.wall > self.ingest.wall() {
            let limits = vec![None; self.plan.lane_counts().len()];
            self.ingest.control(&mut self.net, Control::Tick(Arc::new(Tick { wall: self.wall, limits })));
            self.settle()?;
        }
        self.scheduled()?;
        self.rest()
    }

    fn dispatch(&mut self, input: usize, record: &RawRecord) -> Result<()> {
        let offset = self.next[input];
        self.next[input] += 1;
        let mut batch = RecordBatch::default();
        batch.push(offset, record.timestamp, record.key.as_deref(), record.value.as_deref(), record.headers.clone());
        let partition = self.plan.inputs[input].partition.clone();
        let fetched = Fetched { partition, batch, position: offset + 1, caught_up: true };
        self.ingest.fetched(input as u32, fetched);
        let now = self.now();
        let done = self.ingest.dispatch(&mut self.net, now, self.wall, 1);
        if done.records != 1 || done.stalled {
            return Err(Error::new(ErrorKind::Internal, "the lanes are at rest and yet have no room"));
        }
        self.settle().map(drop)
    }

    /// Handles the ticks of schedules that are due.
    fn scheduled(&mut self) -> Result<()> {
        while self.schedules.run(&mut self.ingest, &mut self.net, self.wall, false)? > 0 {
            self.settle()?;
        }
        Ok(())
    }

    /// Hands the watermark on, and ends the epoch.
    fn rest(&mut self) -> Result<()> {
        self.mark()?;
        // Schedules of event time tick behind the mark that reaches them.
        self.scheduled()?;
        self.mark()?;
        if self.options.commit_each { self.end_epochs() } else { Ok(()) }
    }

    /// Milliseconds since the driver began.
    fn now(&self) -> u64 {
        self.wall.since(self.options.start).as_millis() as u64
    }

    fn mark(&mut self) -> Result<()> {
        // The largest of all: every other source has nothing waiting, so it is idle.
        let reached = self.ingest.cuts().iter().map(|c| c.watermark).fold(self.asked, Timestamp::max);
        // Silence counts by the driver's clock, and nothing more is to come.
        let now = self.now();
        let ends: Vec<_> = self.ingest.silent(now, u64::MAX, Timestamp::MIN).into_iter().map(|i| (i, 0)).collect();
        self.ingest.ends(now, &ends, u64::MAX);
        let reached = self.ingest.closed().fold(reached, Timestamp::max);
        self.watermark = self.watermark.max(reached);
        // Where only schedules feed, their ticks are the records.
        let own = self.ingest.scheduled().map(|s| s.map_or(self.watermark, |s| s.max(self.watermark)));
        let watermarks: Vec<Watermark> = own.collect();
        if watermarks != *self.ingest.marked() {
            let mark = Mark { limits: vec![None; watermarks.len()], watermarks };
            self.ingest.control(&mut self.net, Control::Mark(Arc::new(mark)));
            self.settle()?;
        }
        Ok(())
    }

    /// Ends the epoch; then works off what it wrote to topics that are read as well, an epoch each.
    fn end_epochs(&mut self) -> Result<()> {
        self.end_epoch()?;
        for _ in 0..FED_BACK {
            let Some((input, record)) = self.back.pop_front() else { return Ok(()) };
            self.dispatch(input, &record)?;
            self.mark()?;
            self.end_epoch()?;
        }
        Err(Error::new(
            ErrorKind::Topology,
            format!("the topology reads what it writes and does not come to rest within {FED_BACK} records"),
        ))
    }

    fn end_epoch(&mut self) -> Result<()> {
        let epoch = self.epoch;
        self.epoch = Epoch(epoch.0 + 1);
        let number = self.ingest.control(&mut self.net, Control::Barrier(epoch));
        let mut frozen = self.settle()?;
        frozen.sort_by_key(|f| f.lane);
        let lanes: u32 = self.plan.lane_counts().iter().sum();
        if frozen.len() != lanes as usize {
            let text = format!("{} of {lanes} lanes have reached the barrier of epoch {epoch}", frozen.len());
            return Err(Error::new(ErrorKind::Internal, text));
        }
        let mut rows: BTreeMap<StoreId, Vec<Row>> = BTreeMap::new();
        let mut outputs: Vec<Outputs> = Vec::with_capacity(frozen.len());
        for f in frozen {
            for (store, more) in f.stores {
                rows.entry(store).or_default().extend(more);
            }
            self.tally.add(&f.tally);
            outputs.push(f.outputs);
        }
        for (lane, i) in merge(&outputs) {
            self.write(&outputs[lane as usize], i as usize);
        }
        for (store, rows) in rows {
            let stamp = Stamp { epoch, time: self.wall, ..Stamp::default() };
            self.stores[store.0 as usize].apply(Generation(1), &Batch { rows, stamp })?;
        }
        self.ingest.control(&mut self.net, Control::Applied(epoch));
        self.settle()?;
        self.ingest.forget(number);
        Ok(())
    }

    fn write(&mut self, outputs: &Outputs, i: usize) {
        let r = outputs.batch.get(i);
        let record = Record {
            key: r.key.map(<[u8]>::to_vec),
            value: r.value.map(<[u8]>::to_vec),
            timestamp: r.timestamp,
            headers: r.headers.clone(),
        };
        if let Some(input) = self.plan.inputs.iter().position(|p| p.partition.topic == *r.topic) {
            self.back.push_back((input, record.clone()));
        }
        self.outputs.entry(r.topic.to_string()).or_default().push_back(record);
    }

    /// Runs the lanes to rest; what they froze.
    fn settle(&mut self) -> Result<Vec<Frozen>> {
        let mut frozen = Vec::new();
        let mut writes: BTreeMap<SubTopologyId, (u32, Vec<ForeignTimer>)> = BTreeMap::new();
        loop {
            let mut events = Vec::new();
            self.net.poll(&mut events);
            if events.is_empty() {
                if self.net.wait_for_handlers() {
                    continue;
                }
                return Ok(frozen);
            }
            for event in events {
                match event {
                    NetEvent::Frozen(f) => frozen.push(*f),
                    NetEvent::Exchange { lane, epoch, writes: mut more } => {
                        let (heard, all) = writes.entry(lane.sub).or_default();
                        *heard += 1;
                        all.append(&mut more);
                        if *heard == self.plan.subs[lane.sub.0 as usize].lanes {
                            let (_, mut all) = writes.remove(&lane.sub).unwrap_or_default();
                            all.sort_by(|a, b| (&a.tag, a.index).cmp(&(&b.tag, b.index)));
                            self.net.exchange(lane.sub, epoch, Arc::new(all));
                        }
                    }
                    // Marks are sent without limits, so nothing that is due is left.
                    NetEvent::Marked { .. } | NetEvent::Ticked { .. } => {}
                    NetEvent::Fault { lane, origin, error } => {
                        let place = origin.map(|o| format!("{}@{}", self.ingest.partition_name(o.partition), o.offset));
                        return Err(error.at(place.unwrap_or_else(|| format!("lane {lane}"))));
                    }
                }
            }
        }
    }
}

impl Drop for TestDriver {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // A test may itself run in a runtime, where waiting for another one is not allowed.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for TestDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDriver")
            .field("topology", &self.graph.name)
            .field("options", &self.options)
            .field("watermark", &self.watermark)
            .field("wall", &self.wall)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("stoat-test")
        .enable_all()
        .build()
        .map_err(|e| Error::with_source(ErrorKind::State, "the runtime for `async` handlers could not be started", e))
}

/// Takes the timestamp off a row of a timestamped store.
fn split_time(value: &[u8]) -> (Option<Timestamp>, &[u8]) {
    match value.split_first_chunk::<8>() {
        Some((time, rest)) => (Some(Timestamp::from_millis(i64::from_be_bytes(*time))), rest),
        None => (None, value),
    }
}

fn encode<C: Encode<T>, T>(value: &T, what: &str, owner: &str) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let bad = |e| Error::new(ErrorKind::Codec, format!("{what} for `{owner}` ({}): {e}", C::NAME));
    C::encode(value, &mut bytes).map_err(bad)?;
    Ok((!C::is_null(value)).then_some(bytes))
}
