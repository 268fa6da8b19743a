//! Scheduled sources: records that come by the clock and from no topic.
//!
//! A tick of a schedule is handled where records are put in order: what it emits gets its place between the records of
//! topics, goes to the lanes of its keys and commits with the epoch, together with the schedule's last tick. So a tick
//! takes effect once, or, where its epoch is lost, is handled again.

mod reads;
#[cfg(test)]
mod tests;
mod timetable;

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

pub use reads::{Committed, ReadStore, Reading, Reads};
pub use timetable::{Timetable, Turn};

use reads::Damage;

use crate::codec::{Decode, Encode};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{Headers, RecordBatch};
use crate::time::{TimeDomain, Timestamp, Watermark};

/// A source that emits records by the clock.
///
/// # Examples
/// ```
/// use stoat_core::prelude::*;
/// use stoat_core::schedule::{Emit, Schedule, Tick, When};
///
/// /// A record per minute, to be joined with what comes.
/// struct Minutes;
///
/// impl Schedule for Minutes {
///     type Key = String;
///     type Value = u64;
///     type KeyCodec = Utf8;
///     type ValueCodec = Be;
///     const NAME: &'static str = "Minutes";
///
///     fn when() -> When {
///         When::every(Duration::from_secs(60))
///     }
///
///     fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
///         out.record(&"minute".to_owned(), &(tick.time.as_millis() as u64 / 60_000))
///     }
/// }
///
/// #[sink(topic = "minutes", key = String, value = u64, value_codec = Be)]
/// struct MinutesOut;
///
/// #[topology]
/// fn clock(t: &mut Topology) {
///     let minutes = t.scheduled::<Minutes>();
///     minutes.sink::<MinutesOut>();
/// }
/// # use stoat_core::topology::TopologyFn;
/// # clock::build().unwrap();
/// ```
pub trait Schedule: Sized + 'static {
    /// The type of the keys; `Option<K>` with a [`Nullable`](crate::codec::Nullable) codec where a record may have none.
    type Key: Send + 'static;
    /// The type of the values.
    type Value: Send + 'static;
    /// The codec of the keys: its bytes pick the lanes.
    type KeyCodec: Encode<Self::Key> + Decode<Self::Key>;
    /// The codec of the values.
    type ValueCodec: Encode<Self::Value> + Decode<Self::Value>;
    /// The name, for the node and under which the last tick is kept. Another name is another schedule.
    const NAME: &'static str;
    /// The stores that [`Emit::store`] may read; none unless it says so.
    const READS: &'static [Reads] = &[];

    /// When it ticks.
    fn when() -> When;

    /// What becomes of ticks that were due while the application did not run.
    fn missed() -> Missed {
        Missed::Once
    }

    /// Emits the records of a tick. It runs on the thread that puts all records in order, so it should be quick; what takes
    /// long belongs into a processor behind it.
    ///
    /// # Errors
    /// Any; the epoch is then dropped and the tick comes again, within the budget of faults. Local state that cannot be read
    /// ends the application, whatever `emit` makes of the error.
    fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()>;
}

/// When a schedule ticks.
#[derive(Clone, Debug)]
pub struct When(pub(crate) Kind);

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Every(Duration, TimeDomain),
    #[cfg(feature = "cron")]
    Cron {
        text: String,
        zone: Option<String>,
    },
}

impl When {
    /// At the multiples of an interval since 1970, by the wall clock.
    pub fn every(interval: Duration) -> Self {
        Self(Kind::Every(interval, TimeDomain::Wall))
    }

    /// At the multiples of an interval since 1970, by event time: when the watermark of all topics reaches one. It stands
    /// still when no record moves the watermark; where that passes several at once, the last of them ticks
    /// (with [`Missed::Each`] all of them).
    pub fn every_event_time(interval: Duration) -> Self {
        Self(Kind::Every(interval, TimeDomain::Event))
    }

    /// By a cron expression of 5 fields (minute, hour, day of month, month, day of week) or 6 (seconds before them), in
    /// UTC unless [`When::zone`] says otherwise. It is checked when the topology is built.
    #[cfg(feature = "cron")]
    pub fn cron(expression: &str) -> Self {
        Self(Kind::Cron { text: expression.to_owned(), zone: None })
    }

    /// The time zone of a cron expression by its IANA name, such as `Europe/Berlin`.
    ///
    /// When its clocks change: an expression with a single second, minute and hour ticks once on such a day. If the clocks skip
    /// its time, the tick comes when they have changed; if it comes twice, the tick comes the first time. Every other one
    /// (lists, ranges, steps and `*` in any of the three) goes by the clock on the wall: times that are skipped do not come,
    /// times that come twice tick twice. So `30 * * * *` goes on each 60 minutes, and `30 2,14 * * *` leaves 02:30 out.
    #[cfg(feature = "cron")]
    #[must_use]
    pub fn zone(self, name: &str) -> Self {
        match self.0 {
            Kind::Cron { text, .. } => Self(Kind::Cron { text, zone: Some(name.to_owned()) }),
            every @ Kind::Every(..) => Self(every),
        }
    }
}

/// What becomes of ticks that were due while the application did not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missed {
    /// None of them comes; the next regular one does.
    Skip,
    /// The last of them comes.
    Once,
    /// All of them come, one after the other.
    Each,
}

/// A tick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tick {
    /// When it was due. What it emits has this time unless it names another.
    pub time: Timestamp,
    /// The wall clock.
    pub wall_clock: Timestamp,
    /// The watermark of all topics.
    pub watermark: Watermark,
}

/// Takes what a tick emits.
pub struct Emit<'a, S> {
    pub(crate) batch: &'a mut RecordBatch,
    pub(crate) tick: Tick,
    reading: &'a Reading,
    damage: &'a Damage,
    schedule: PhantomData<fn() -> S>,
}

impl<'a, S: Schedule> Emit<'a, S> {
    /// A store as of the last commit that was applied: of all stores the same, and never half of one. What was processed since
    /// then is not seen, nor is what this tick causes.
    ///
    /// `R` must stand in the schedule's `READS`; else this does not compile.
    ///
    /// # Errors
    /// When another [`ReadStore`] of the same name stands there.
    ///
    /// # Examples
    /// ```
    /// use stoat_core::prelude::*;
    /// use stoat_core::schedule::{Emit, ReadStore, Reads, Schedule, Tick, When};
    /// # use stoat_core::testing::TestDriver;
    /// # use stoat_core::topology::TopologyFn;
    ///
    /// #[source(topic = "clicks", key = String, value = String, value_codec = Utf8)]
    /// struct Clicks;
    /// #[sink(topic = "busiest", key = String, value = String, value_codec = Utf8)]
    /// struct Busiest;
    ///
    /// /// How often each user has clicked.
    /// struct ClicksPerUser;
    ///
    /// impl ReadStore for ClicksPerUser {
    ///     type Key = String;
    ///     type Value = u64;
    ///     type KeyCodec = Utf8;
    ///     type ValueCodec = Be;
    ///     const STORE: &'static str = "per_user"; // as the topology calls it
    /// }
    ///
    /// struct EachHour;
    ///
    /// impl Schedule for EachHour {
    ///     type Key = String;
    ///     type Value = String;
    ///     type KeyCodec = Utf8;
    ///     type ValueCodec = Utf8;
    ///     const NAME: &'static str = "EachHour";
    ///     const READS: &'static [Reads] = &[Reads::of::<ClicksPerUser>()];
    ///
    ///     fn when() -> When {
    ///         When::every(Duration::from_secs(3600))
    ///     }
    ///
    ///     fn emit(_: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
    ///         let clicks = out.store::<ClicksPerUser>()?.range(..)?;
    ///         match clicks.into_iter().max_by_key(|(_, n)| *n) {
    ///             Some((user, _)) => out.record(&"busiest".to_owned(), &user),
    ///             None => Ok(()),
    ///         }
    ///     }
    /// }
    ///
    /// #[topology]
    /// fn clicks(t: &mut Topology) {
    ///     t.source::<Clicks>().group_by_key().count().named("per_user").to_stream().discard();
    ///     t.scheduled::<EachHour>().sink::<Busiest>();
    /// }
    ///
    /// # fn main() -> Result<()> {
    /// let mut driver = TestDriver::new(clicks::build()?)?;
    /// for user in ["ann", "bob", "ann"] {
    ///     driver.pipe::<Clicks>(&user.into(), &"/".into(), 1_000)?;
    /// }
    /// driver.advance_wall_clock(Duration::from_secs(3600))?;
    /// assert_eq!(driver.read_map::<Busiest>()?["busiest"], "ann");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// What `READS` does not name does not compile:
    /// ```compile_fail,E0080
    /// # use stoat_core::prelude::*;
    /// # use stoat_core::schedule::{Emit, ReadStore, Schedule, Tick, When};
    /// # use stoat_core::topology::TopologyFn;
    /// # struct ClicksPerUser;
    /// # impl ReadStore for ClicksPerUser {
    /// #     type Key = String;
    /// #     type Value = u64;
    /// #     type KeyCodec = Utf8;
    /// #     type ValueCodec = Be;
    /// #     const STORE: &'static str = "per_user";
    /// # }
    /// # struct EachHour;
    /// impl Schedule for EachHour {
    /// #   type Key = String;
    /// #   type Value = u64;
    /// #   type KeyCodec = Utf8;
    /// #   type ValueCodec = Be;
    ///     const NAME: &'static str = "EachHour"; // and no `READS`
    /// #   fn when() -> When {
    /// #       When::every(Duration::from_secs(3600))
    /// #   }
    ///
    ///     fn emit(_: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
    ///         let clicks = out.store::<ClicksPerUser>()?;
    /// #       drop(clicks);
    /// #       Ok(())
    ///     }
    /// }
    /// # #[topology]
    /// # fn hours(t: &mut Topology) {
    /// #     t.scheduled::<EachHour>().discard();
    /// # }
    /// # fn main() {
    /// #     drop(hours::build());
    /// # }
    /// ```
    pub fn store<R: ReadStore>(&self) -> Result<Committed<'a, R>> {
        const { assert!(reads::names(S::READS, R::STORE), "`READS` of this schedule does not name the store that it reads") };
        Committed::among(S::READS, self.reading, self.damage).ok_or_else(|| {
            Error::handler(format!(
                "`{}` is not what `READS` of schedule `{}` names for store `{}`: read through that one",
                std::any::type_name::<R>(),
                S::NAME,
                R::STORE
            ))
        })
    }

    /// Emits a record with the tick's time.
    ///
    /// # Errors
    /// When a codec cannot write key or value.
    pub fn record(&mut self, key: &S::Key, value: &S::Value) -> Result<()> {
        self.record_at(self.tick.time, key, value, Headers::default())
    }

    /// Emits a record with a time and headers of its own.
    ///
    /// # Errors
    /// As [`Emit::record`]; for a time before 1970.
    pub fn record_at(&mut self, time: Timestamp, key: &S::Key, value: &S::Value, headers: Headers) -> Result<()> {
        if time.0 < 0 {
            return Err(Error::handler(format!("a record at {time}: a time is in milliseconds since 1970")));
        }
        let key = encoded::<S::KeyCodec, _>(key, "key")?;
        let value = encoded::<S::ValueCodec, _>(value, "value")?;
        let offset = self.tick.time.0.saturating_add(self.batch.len() as i64);
        self.batch.push(offset, time, key.as_deref(), value.as_deref(), headers);
        Ok(())
    }
}

fn encoded<C: Encode<T>, T>(value: &T, what: &str) -> Result<Option<Vec<u8>>> {
    if C::is_null(value) {
        return Ok(None);
    }
    let mut out = Vec::new();
    C::encode(value, &mut out).map_err(|e| Error::new(ErrorKind::Handler, format!("{what} ({}): {e}", C::NAME)))?;
    Ok(Some(out))
}

impl<S: Schedule> fmt::Debug for Emit<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Emit").field("schedule", &S::NAME).field("tick", &self.tick).finish_non_exhaustive()
    }
}

/// Runs a schedule's emitter.
pub type Emitter = fn(Tick, &mut RecordBatch, &Reading) -> Result<()>;

pub(crate) fn emitter<S: Schedule>() -> Emitter {
    |tick, batch, reading| {
        let damage = Damage::default();
        let done = S::emit(tick, &mut Emit { batch, tick, reading, damage: &damage, schedule: PhantomData });
        match damage.into_inner() {
            Some(e) => Err(e),
            None => done.map_err(|e| e.into_kind(ErrorKind::Handler)),
        }
    }
}
