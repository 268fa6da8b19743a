//! What was left out, counted by reason; part of an epoch like all else: counted once, when it has committed.

use super::Gate;
use crate::metrics::{DEAD_LETTERS, counter, dropped};

/// Why an operator left a record out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dropped {
    /// `with_key`: it has no key.
    NullKey,
    /// `with_value`: it has no value.
    NullValue,
    /// `drop_late`: the watermark has passed it.
    Late,
}

impl Dropped {
    /// All reasons, as the metric names them.
    pub const ALL: [Self; 3] = [Self::NullKey, Self::NullValue, Self::Late];

    /// The reason in metrics and headers.
    pub fn name(self) -> &'static str {
        match self {
            Self::NullKey => "null_key",
            Self::NullValue => "null_value",
            Self::Late => "late",
        }
    }

    /// The reason in words.
    pub fn text(self) -> &'static str {
        match self {
            Self::NullKey => "the record has no key, and what follows needs one",
            Self::NullValue => "the record has no value, and what follows needs one",
            Self::Late => "the record is late: its time is before the watermark",
        }
    }
}

/// Counts of one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Left out by operators, by [`Dropped`].
    pub dropped: [u64; Dropped::ALL.len()],
    /// Left out at gates, by [`Gate`].
    pub failed: [u64; 3],
    /// Written to the dead-letter topic.
    pub letters: u64,
}

const GATES: [Gate; 3] = [Gate::Decode, Gate::Process, Gate::Produce];

impl Tally {
    /// Whether nothing was left out.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Adds another lane's.
    pub fn add(&mut self, other: &Self) {
        for (sum, n) in self.dropped.iter_mut().zip(other.dropped) {
            *sum += n;
        }
        for (sum, n) in self.failed.iter_mut().zip(other.failed) {
            *sum += n;
        }
        self.letters += other.letters;
    }

    /// Adds to the metrics. With zeros it makes them known: what is zero from the start can be watched.
    pub(crate) fn publish(&self) {
        for reason in Dropped::ALL {
            dropped(reason.name()).increment(self.dropped[reason as usize]);
        }
        for gate in GATES {
            dropped(gate.name()).increment(self.failed[gate as usize]);
        }
        counter(DEAD_LETTERS).increment(self.letters);
    }

    /// Makes the metrics known.
    pub(crate) fn describe() {
        Self::default().publish();
    }
}
