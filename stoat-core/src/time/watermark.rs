//! How the watermark of a source follows its records.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Timestamp, Watermark};
use crate::codec::decode_opt;
use crate::record::{RawRecord, Record};
use crate::source::Source;

/// How the event time of a source's records is found, and how the watermark of its partitions follows it. Written by the
/// arguments of `#[source(..)]`; `docs/time.md` explains each.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use stoat_core::time::WatermarkStrategy;
///
/// let strategy = WatermarkStrategy { idleness: Duration::from_secs(60), ..WatermarkStrategy::monotonic() };
/// assert_eq!(strategy.out_of_orderness, Duration::ZERO);
/// assert_eq!(WatermarkStrategy::default().out_of_orderness, Duration::from_secs(10));
/// ```
#[derive(Clone, Debug)]
pub struct WatermarkStrategy {
    /// How far behind the largest timestamp seen the watermark stays.
    pub out_of_orderness: Duration,
    /// After how long without a record a partition that is caught up no longer holds the watermark back; zero: never.
    pub idleness: Duration,
    /// How far ahead of the wall clock a record may move the watermark.
    pub future_bound: Duration,
    /// After so long without a record in any partition event time goes on with the wall clock; `None`: it stands.
    pub close_on_idle: Option<Duration>,
    /// What becomes of a record without a timestamp.
    pub no_timestamp: NoTimestamp,
    /// The time of a record; `None`: the one that the broker gives it.
    pub timestamps: Option<TimestampExtractor>,
    /// The watermark of a partition; `None`: `out_of_orderness` behind the largest timestamp.
    pub generator: Option<Generator>,
}

impl Default for WatermarkStrategy {
    /// 10 s out of order, idle after 300 s, at most 1 h ahead of the wall clock, never closed on idle; a record without a
    /// timestamp ends the application.
    fn default() -> Self {
        Self {
            out_of_orderness: Duration::from_secs(10),
            idleness: Duration::from_mins(5),
            future_bound: Duration::from_hours(1),
            close_on_idle: None,
            no_timestamp: NoTimestamp::Fail,
            timestamps: None,
            generator: None,
        }
    }
}

impl WatermarkStrategy {
    /// Each partition's timestamps only rise: the watermark is the largest seen.
    pub fn monotonic() -> Self {
        Self::bounded(Duration::ZERO)
    }

    /// A record is at most so much older than one before it in its partition.
    pub fn bounded(out_of_orderness: Duration) -> Self {
        Self { out_of_orderness, ..Self::default() }
    }

    /// Each partition has a generator of its own, made anew at each start.
    pub fn custom<G: WatermarkGenerator + Default + 'static>() -> Self {
        Self { generator: Some(Generator::of::<G>()), ..Self::default() }
    }
}

/// What becomes of a record without a timestamp: Kafka's -1, what an extractor finds none for, and times before 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoTimestamp {
    /// The decode gate decides about it (see [`gate`](crate::gate)): unless it says otherwise, the application ends and names it.
    Fail,
    /// It is dropped and counted in `stoat.dropped.records.total{reason="no_timestamp"}`.
    Skip,
}

/// Derives the watermark of one partition from its records.
///
/// The engine sees to the rest: a watermark never moves back, nor further ahead of the wall clock than the source's
/// `future_bound`; records beyond that bound are not shown.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how a watermark follows the records of a partition [S109]",
    label = "no `WatermarkGenerator`",
    note = "`watermark = G` takes a type with `Default` and `impl WatermarkGenerator for G`; `out_of_orderness = \"10s\"` and `monotonic` need none"
)]
pub trait WatermarkGenerator: Send {
    /// Takes the next record of the partition and returns its watermark: no earlier record is expected.
    fn on_record(&mut self, timestamp: Timestamp, record: &RawRecord<'_>) -> Watermark;
}

/// Makes a partition's [`WatermarkGenerator`].
#[derive(Clone)]
pub struct Generator {
    name: &'static str,
    make: fn() -> Box<dyn WatermarkGenerator>,
}

impl Generator {
    /// One that is made by `G::default()`.
    pub fn of<G: WatermarkGenerator + Default + 'static>() -> Self {
        Self { name: std::any::type_name::<G>(), make: || Box::new(G::default()) }
    }

    pub(crate) fn make(&self) -> Box<dyn WatermarkGenerator> {
        (self.make)()
    }
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// What `timestamp = ..` of a source gives: a time, or perhaps none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the time of a record [S112]",
    label = "`timestamp = ..` gives a `{Self}`",
    note = "`timestamp = ..` takes a function or closure from `&Record<K, V>` to `Timestamp` or `Option<Timestamp>`; `Timestamp::from_millis(ms)` makes one of milliseconds since 1970"
)]
pub trait IntoTimestamp {
    /// The time; `None`: the record has none.
    fn into_timestamp(self) -> Option<Timestamp>;
}

impl IntoTimestamp for Timestamp {
    fn into_timestamp(self) -> Option<Timestamp> {
        Some(self)
    }
}

impl IntoTimestamp for Option<Timestamp> {
    fn into_timestamp(self) -> Option<Timestamp> {
        self
    }
}

/// Finds the time of a record in the record. It runs where records are put in order, before they have a lane: each record is
/// decoded once more for it.
#[derive(Clone)]
pub struct TimestampExtractor(Arc<Extract>);

type Extract = dyn Fn(&RawRecord<'_>) -> Option<Timestamp> + Send + Sync;

impl TimestampExtractor {
    /// Takes the time from the decoded record, which has the broker's timestamp; `None`: it has none. What cannot be decoded
    /// keeps the broker's timestamp and is an error where its lane decodes it.
    pub fn of<S: Source, T: IntoTimestamp>(
        extract: impl Fn(&Record<S::Key, S::Value>) -> T + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(move |raw| {
            let key = decode_opt::<S::KeyCodec, S::Key>(raw.key);
            let value = decode_opt::<S::ValueCodec, S::Value>(raw.value);
            let (Ok(key), Ok(value)) = (key, value) else { return Some(raw.timestamp) };
            extract(&Record { key, value, timestamp: raw.timestamp, headers: raw.headers.clone() }).into_timestamp()
        }))
    }

    pub(crate) fn extract(&self, raw: &RawRecord<'_>) -> Timestamp {
        (self.0)(raw).unwrap_or(NONE)
    }
}

/// No timestamp, as Kafka writes it.
const NONE: Timestamp = Timestamp(-1);

impl fmt::Debug for TimestampExtractor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TimestampExtractor")
    }
}
