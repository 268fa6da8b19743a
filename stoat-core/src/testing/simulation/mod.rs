//! A whole application under faults, on a simulated broker.

mod check;
pub(crate) mod world;

use std::fmt;

use self::check::Cut;
use self::world::{FAULTS, World};
pub use crate::broker::sim::Faults;
use crate::codec::{Decode, Encode, decode_opt};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::partition_for;
use crate::record::{Headers, Record};
use crate::sink::Sink;
use crate::source::Source;
use crate::time::Timestamp;
use crate::topology::graph::Graph;

/// Partitions of the topics that the topology reads and writes.
const PARTITIONS: i32 = 3;

/// Runs a topology as the whole application that it is in production (ingest, lanes, commits, stores, restore) on a simulated
/// broker: records come while answers get lost, transactions time out, clocks jump, and the process ends at any moment, with a
/// part of what it had not flushed, and starts again with another number of lanes. What happens follows from the seed alone.
///
/// Every run checks what Stoat promises of every topology, and panics with the seed in its message where it does not hold:
/// each committed epoch is the result of a prefix of each partition, each record once, in order; state and outputs commit
/// together; and the same order of records gives the same bytes with 1, 2, 3 and 16 lanes. The last is also a test of *your*
/// code: a handler that reads a clock, draws random numbers, iterates over a hash map or shares something between lanes
/// gives another result there. What your topology must keep at every commit you check yourself: see [`Simulated::commits`].
///
/// # Examples
/// ```
/// use stoat_core::prelude::*;
/// use stoat_core::testing::Simulation;
/// use stoat_core::topology::TopologyFn;
///
/// #[source(topic = "words", key = String, value = String, value_codec = Utf8)]
/// struct Words;
///
/// #[sink(topic = "counts", key = String, value = u64, value_codec = Be)]
/// struct Counts;
///
/// #[topology]
/// fn word_count(t: &mut Topology) {
///     let words = t.source::<Words>();
///     let counts = words.group_by(|_, word: &String| word.clone()).count();
///     counts.to_stream().sink::<Counts>();
/// }
///
/// # fn main() -> Result<()> {
/// for seed in 0..3 {
///     let mut simulation = Simulation::new(word_count::build()?, seed);
///     for n in 0..30 {
///         simulation.pipe::<Words>(&format!("line {n}"), &["ant", "bee"][n % 2].into(), 1_000 + n as i64)?;
///     }
///     let done = simulation.run();
///     let counts = done.read::<Counts>()?;
///     assert_eq!(counts.iter().filter(|r| r.key == "ant").map(|r| r.value).max(), Some(15));
///     assert_eq!(counts.len(), 30, "each word was counted once, whatever happened");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Simulation {
    world: World,
    graph: Graph,
    faults: Faults,
    records: Vec<Fed>,
}

/// Topic, key, value and timestamp of a record that is fed.
type Fed = (String, Option<Vec<u8>>, Option<Vec<u8>>, i64);

impl Simulation {
    /// Makes the topics, of 3 partitions each. All faults of [`Faults`] happen, each now and then.
    pub fn new(graph: Graph, seed: u64) -> Self {
        let mut world = World::empty(seed);
        for source in &graph.sources {
            world.cluster.create(&source.topic, PARTITIONS);
            world.sources.push(source.topic.clone());
        }
        for sink in &graph.sinks {
            world.cluster.create(&sink.topic, PARTITIONS);
        }
        Self { world, graph, faults: FAULTS, records: Vec::new() }
    }

    /// Chooses how often each fault happens. Crashes happen in any case.
    #[must_use]
    pub fn with_faults(mut self, faults: Faults) -> Self {
        self.faults = faults;
        self
    }

    /// Sets a configuration key, such as `stoat.emit.mode`.
    ///
    /// # Errors
    /// As [`Config::set`](crate::config::Config::set).
    pub fn set(mut self, key: &'static str, value: &str) -> Result<Self> {
        crate::config::Config::default().set(key, value)?;
        self.world.set(key, value);
        Ok(self)
    }

    /// Has a record come, at `timestamp` in ms, behind those of the calls before. The partition follows from the key, so
    /// records of one key keep their order.
    ///
    /// # Errors
    /// When the codecs refuse key or value, or the topology does not read the source.
    pub fn pipe<S: Source>(&mut self, key: &S::Key, value: &S::Value, timestamp: i64) -> Result<()>
    where
        S::KeyCodec: Encode<S::Key>,
        S::ValueCodec: Encode<S::Value>,
    {
        let key = written::<S::KeyCodec, _>(key, "key", S::NAME)?;
        let value = written::<S::ValueCodec, _>(value, "value", S::NAME)?;
        self.pipe_raw(S::TOPIC, key.as_deref(), value.as_deref(), timestamp)
    }

    /// As [`Simulation::pipe`], as bytes.
    ///
    /// # Errors
    /// When the topology does not read the topic.
    pub fn pipe_raw(&mut self, topic: &str, key: Option<&[u8]>, value: Option<&[u8]>, timestamp: i64) -> Result<()> {
        if !self.world.sources.iter().any(|t| t == topic) {
            let text = format!("topology `{}` reads no topic `{topic}`", self.graph.name);
            return Err(Error::new(ErrorKind::Topology, text));
        }
        self.records.push((topic.to_owned(), key.map(<[u8]>::to_vec), value.map(<[u8]>::to_vec), timestamp));
        Ok(())
    }

    /// Runs it until all records are processed and committed, and checks what was promised.
    ///
    /// # Panics
    /// Where a promise is broken, or the topology fails on a record; the message names the seed.
    pub fn run(self) -> Simulated {
        let Self { mut world, graph, faults, records } = self;
        let _seed = Seed(world.seed);
        world.torment_with(&graph, records.len() as u64, faults, |world, n| {
            let (topic, key, value, time) = &records[n as usize];
            let partition = key.as_ref().map_or((n % PARTITIONS as u64) as i32, |k| partition_for(k, PARTITIONS));
            world.cluster.append_record(topic, partition, key.as_deref(), value.as_deref(), *time);
        });
        world.check(&graph);
        let cuts = world.cuts(&graph);
        Simulated { world, cuts }
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("topology", &self.graph.name)
            .field("seed", &self.world.seed)
            .finish_non_exhaustive()
    }
}

/// What a [`Simulation`] has written.
pub struct Simulated {
    world: World,
    cuts: Vec<Cut>,
}

impl Simulated {
    /// All that was committed to a sink's topic, partition after partition; records of one key are in one partition.
    ///
    /// # Errors
    /// When the sink's codecs cannot read the bytes.
    pub fn read<S: Sink>(&self) -> Result<Vec<Record<S::Key, S::Value>>>
    where
        S::KeyCodec: Decode<S::Key>,
        S::ValueCodec: Decode<S::Value>,
    {
        let raw = self.world.records(S::TOPIC).into_iter();
        raw.map(|r| read::<S>(r.key.as_deref(), r.value.as_deref(), r.timestamp)).collect()
    }

    /// What each commit added to a sink's topic, in the order of commits: for what must hold at every commit, such as a sum
    /// that is always the same. With `stoat.processing-guarantee: at_least_once` outputs are not part of a commit.
    ///
    /// # Errors
    /// When the sink's codecs cannot read the bytes.
    #[expect(clippy::type_complexity, reason = "the records of each commit, of the sink's types")]
    pub fn commits<S: Sink>(&self) -> Result<Vec<Vec<Record<S::Key, S::Value>>>>
    where
        S::KeyCodec: Decode<S::Key>,
        S::ValueCodec: Decode<S::Value>,
    {
        let of_topic = |cut: &Cut| {
            let partitions = cut.result.outputs.iter().filter(|((topic, _), _)| topic == S::TOPIC);
            let records = partitions.flat_map(|(_, records)| records);
            records.map(|(k, v, time)| read::<S>(k.as_deref(), v.as_deref(), *time)).collect()
        };
        self.cuts.iter().map(of_topic).collect()
    }
}

impl fmt::Debug for Simulated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulated")
            .field("seed", &self.world.seed)
            .field("commits", &self.cuts.len())
            .finish_non_exhaustive()
    }
}

fn read<S: Sink>(key: Option<&[u8]>, value: Option<&[u8]>, timestamp: Timestamp) -> Result<Record<S::Key, S::Value>>
where
    S::KeyCodec: Decode<S::Key>,
    S::ValueCodec: Decode<S::Value>,
{
    let bad = |what: &str, e| {
        Error::new(ErrorKind::Codec, format!("{what} of a record read from `{}` by `{}`: {e}", S::TOPIC, S::NAME))
    };
    Ok(Record {
        key: decode_opt::<S::KeyCodec, _>(key).map_err(|e| bad("key", e))?,
        value: decode_opt::<S::ValueCodec, _>(value).map_err(|e| bad("value", e))?,
        timestamp,
        headers: Headers::default(),
    })
}

fn written<C: Encode<T>, T>(value: &T, what: &str, owner: &str) -> Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let bad = |e| Error::new(ErrorKind::Codec, format!("{what} for `{owner}` ({}): {e}", C::NAME));
    C::encode(value, &mut bytes).map_err(bad)?;
    Ok((!C::is_null(value)).then_some(bytes))
}

/// Says which seed a panic belongs to.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("failing seed: {}", self.0);
        }
    }
}
