//! Event time: timestamps, watermarks and the strategies that derive one from the other.

mod watermark;

pub use watermark::{Generator, IntoTimestamp, NoTimestamp, TimestampExtractor, WatermarkGenerator, WatermarkStrategy};

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time, in milliseconds since the Unix epoch. Arithmetic saturates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The smallest timestamp; as a watermark: none yet.
    pub const MIN: Self = Self(i64::MIN);
    /// The largest timestamp.
    pub const MAX: Self = Self(i64::MAX);

    /// Makes a timestamp from milliseconds since the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The time from `earlier` to `self`; zero when `earlier` is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0).max(0) as u64)
    }
}

fn millis(d: Duration) -> i64 {
    i64::try_from(d.as_millis()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(millis(rhs)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, rhs: Duration) -> Self {
        Self(self.0.saturating_sub(millis(rhs)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// No earlier timestamp is expected. [`Timestamp::MIN`] means: no watermark yet. Only moves forward.
pub type Watermark = Timestamp;

/// Which clock a timer or a punctuator follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TimeDomain {
    /// The watermark.
    Event,
    /// The wall clock, as ingest stamped it on the last tick.
    Wall,
}

/// What a lane knows about time while it handles one ingest number: stamped by ingest, never read from a clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The sub-topology's watermark before the number.
    pub watermark: Watermark,
    /// The wall clock of the last tick.
    pub wall: Timestamp,
}
