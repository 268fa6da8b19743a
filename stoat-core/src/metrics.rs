//! Metrics: the name and the meaning of each, through the facade of the crate `metrics`.
//!
//! Install a recorder of your choice before the application starts, and all counters are at zero from the start; without a
//! recorder counting costs nothing. `docs/metrics.md` shows how to attach an exporter. [`Counters`] is a recorder for
//! programs that only want to read them.
//!
//! # Examples
//! ```
//! use stoat_core::metrics::{Counters, LANE_MISMATCHES};
//!
//! let counters = Counters::default();
//! counters.during(stoat_core::metrics::register);
//! assert_eq!(counters.get(LANE_MISMATCHES), Some(0));
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) use ::metrics::Counter;
use ::metrics::{Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

use crate::error::{Error, ErrorKind, Result};

/// Records and timers whose key was found to pick another lane than the one it was processed on. See
/// `stoat.processing.timer-lane-affinity-guard` and `stoat.processing.timer-lane-affinity-sampled-check`.
pub const LANE_MISMATCHES: &str = "stoat.timer.lane.mismatch.total";

/// All counters: name and meaning. They count from the start of the process.
pub const COUNTERS: &[(&str, &str)] = &[
    (LANE_MISMATCHES, "Records and timers whose key was found to pick another lane than the one it was processed on"),
    (LATE_RECORDS, "Records of sources whose time lies before the watermark"),
    (FUTURE_RECORDS, "Records of sources whose time lies too far ahead of the wall clock to move the watermark"),
    (DROPPED_RECORDS, "Records that were dropped, by reason"),
    (DEAD_LETTERS, "Records that were written to the dead-letter topic"),
];

/// Records of sources whose time lies before the mark before them. They are processed like others: what is too late for a
/// result, the operator that makes the result decides.
pub const LATE_RECORDS: &str = "stoat.watermark.late.records.total";

/// Records of sources that are more than the source's `future_bound` ahead of the wall clock. They are processed, and do not
/// move the watermark.
pub const FUTURE_RECORDS: &str = "stoat.watermark.future.records.total";

/// Records that were dropped, by `reason`: one of [`DROP_REASONS`].
pub const DROPPED_RECORDS: &str = "stoat.dropped.records.total";

/// The values of `reason` in [`DROPPED_RECORDS`].
pub const DROP_REASONS: &[&str] = &[NO_TIMESTAMP, "null_key", "null_value", "late", "decode", "process", "produce"];

/// Records that were written to the dead-letter topic, once committed.
pub const DEAD_LETTERS: &str = "stoat.dead.letters.total";

/// A record without a timestamp, of a source with `no_timestamp = skip`.
pub const NO_TIMESTAMP: &str = "no_timestamp";

/// Describes all metrics to the current recorder and sets them to zero. Each engine does so when it starts.
pub fn register() {
    for (name, meaning) in COUNTERS {
        ::metrics::describe_counter!(*name, Unit::Count, *meaning);
        if *name == DROPPED_RECORDS {
            for reason in DROP_REASONS {
                dropped(reason).increment(0);
            }
        } else {
            counter(name).increment(0);
        }
    }
}

/// A counter of [`COUNTERS`], at the current recorder.
pub(crate) fn counter(name: &'static str) -> Counter {
    ::metrics::counter!(name)
}

/// The series of [`DROPPED_RECORDS`] for a reason.
pub(crate) fn dropped(reason: &'static str) -> Counter {
    ::metrics::counter!(DROPPED_RECORDS, "reason" => reason)
}

/// A recorder that keeps counters in memory. Clones share them.
#[derive(Clone, Default)]
pub struct Counters {
    all: Arc<Mutex<BTreeMap<String, Arc<AtomicU64>>>>,
}

impl Counters {
    /// Makes this the recorder of the process.
    ///
    /// # Errors
    /// When there is one already.
    pub fn install(&self) -> Result<()> {
        ::metrics::set_global_recorder(self.clone()).map_err(|_| {
            Error::new(ErrorKind::Config, "the process has a recorder of metrics already: install one only")
        })
    }

    /// Makes this the recorder of what `run` starts on this thread.
    pub fn during<R>(&self, run: impl FnOnce() -> R) -> R {
        ::metrics::with_local_recorder(self, run)
    }

    /// The sum over all series of a name; `None`: there is none.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.all().into_iter().filter(|(n, _)| n.split('{').next() == Some(name)).map(|(_, v)| v).reduce(|a, b| a + b)
    }

    /// All series, as `name` or `name{label="value"}`.
    pub fn all(&self) -> BTreeMap<String, u64> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(name, n)| (name.clone(), n.load(Ordering::Relaxed))).collect()
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Counters").field(&self.all()).finish()
    }
}

/// Only counters are kept.
impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<String> = key.labels().map(|l| format!("{}={:?}", l.key(), l.value())).collect();
        let name =
            if labels.is_empty() { key.name().to_owned() } else { format!("{}{{{}}}", key.name(), labels.join(",")) };
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        Counter::from_arc(all.entry(name).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
