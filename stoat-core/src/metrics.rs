//! Metrics: the name, the unit and the meaning of each, through the facade of the crate `metrics`.
//!
//! Nothing is kept here. Install a recorder of your choice before the application starts, then all of these are at zero
//! from the start; without a recorder counting costs nothing. `docs/metrics.md` shows how to attach an exporter.
//!
//! # Examples
//! ```
//! use metrics_util::debugging::{DebugValue, DebuggingRecorder};
//! use stoat_core::metrics::LANE_MISMATCHES;
//!
//! let recorder = DebuggingRecorder::new();
//! let read = recorder.snapshotter();
//! metrics::with_local_recorder(&recorder, stoat_core::metrics::register);
//! let all = read.snapshot().into_vec();
//! let (_, unit, _, value) = all.iter().find(|(k, ..)| k.key().name() == LANE_MISMATCHES).unwrap();
//! assert_eq!((unit, value), (&Some(metrics::Unit::Count), &DebugValue::Counter(0)));
//! ```

pub(crate) use ::metrics::Counter;
use ::metrics::Unit;

/// Records and timers whose key was found to pick another lane than the one it was processed on. See
/// `stoat.processing.timer-lane-affinity-guard` and `stoat.processing.timer-lane-affinity-sampled-check`.
pub const LANE_MISMATCHES: &str = "stoat.timer.lane.mismatch.total";

/// All counters: name and meaning. They count from the start of the process.
pub const COUNTERS: &[(&str, &str)] = &[(
    LANE_MISMATCHES,
    "Records and timers whose key was found to pick another lane than the one it was processed on",
)];

/// Describes all metrics to the current recorder and sets them to zero. Each engine does so when it starts.
pub fn register() {
    for (name, meaning) in COUNTERS {
        ::metrics::describe_counter!(*name, Unit::Count, *meaning);
        ::metrics::counter!(*name).increment(0);
    }
}

/// The counter of [`LANE_MISMATCHES`], at the current recorder.
pub(crate) fn lane_mismatches() -> Counter {
    ::metrics::counter!(LANE_MISMATCHES)
}
