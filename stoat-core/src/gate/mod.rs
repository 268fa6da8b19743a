//! Error gates: what becomes of a record that cannot be decoded, processed or written.
//!
//! There are three gates. *Decode*: a source's codecs refuse key or value, or the record has no timestamp. *Process*: a
//! handler, a `try_map_values` or the codec of a new key returns an error. *Produce*: a sink's codecs refuse key or value,
//! or the broker refuses the record (too large, a timestamp that it does not take). Each gate decides ([`Decision`]):
//!
//! | decision | what happens |
//! |---|---|
//! | `fail` (default) | decode, produce: the process ends and names the place. process: as `retry` |
//! | `retry` | the epoch is dropped and replayed, within the fault budget (`stoat.restart.max-faults`) |
//! | `skip` | the record is left out, logged and counted |
//! | `dead_letter` | the same, and the source record goes to `stoat.dead-letter.topic`, in the transaction that commits its offset |
//!
//! `stoat.deserialization-exception-handler`, `stoat.processing-exception-handler` and
//! `stoat.production-exception-handler` name one decision for all records; without them a topology's own handlers
//! ([`Topology::on_decode_error`](crate::topology::Topology::on_decode_error) and its kin) are asked for each.
//!
//! **What is undone.** What a handler writes, sets and forwards takes effect when it returns `Ok`. An error undoes all of
//! it; what handlers before it on the record's way did stays, and a record that was one of several goes on alone. Fields
//! of a processor that are no state and no timer are not undone. A timer that fires stays fired.
//!
//! **What no gate sees.** A panic, local state that cannot be read, a store used for a key of another lane: these are
//! defects or damage, not data. They end the epoch, also where a handler swallows them. An unreachable broker is waited
//! for. Neither does a gate see a punctuator without `over`: there is no record that could be left out.
//!
//! **A record that the broker refuses** spoils its transaction. The epoch is replayed, with the gate's decision
//! remembered for that output of that record and for those very bytes. Where the limit of the topic is known
//! (`max.message.bytes`, no compression), a record is weighed before it is produced.
//!
//! # Examples
//! ```
//! use stoat_core::gate::Decision;
//! use stoat_core::prelude::*;
//!
//! #[source(topic = "numbers", key = String, value = i64, value_codec = Json)]
//! struct Numbers;
//!
//! #[sink(topic = "roots", key = String, value = f64, value_codec = Json)]
//! struct Roots;
//!
//! #[topology]
//! fn roots(t: &mut Topology) {
//!     // Test devices may send anything.
//!     t.on_decode_error(|failed| match failed.key {
//!         Some(key) if key.starts_with(b"test-") => Decision::Skip,
//!         _ => Decision::DeadLetter,
//!     });
//!     let numbers = t.source::<Numbers>();
//!     let roots = numbers.try_map_values(|n| match n {
//!         0.. => Ok((n as f64).sqrt()),
//!         _ => Err(Error::handler(format!("{n} has no root"))),
//!     });
//!     roots.sink::<Roots>();
//! }
//! # let graph = roots::build()?;
//! # assert!(graph.handlers.decode.is_some());
//! # Ok::<(), stoat_core::Error>(())
//! ```

pub(crate) mod lane;
mod letter;
pub(crate) mod tally;
#[cfg(test)]
mod tests;
pub(crate) mod verdict;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

pub use lane::{Gates, LaneGate, Letters};
pub use letter::header;
pub use tally::{Dropped, Tally};
pub use verdict::{Verdict, Verdicts};

use crate::error::{Error, ErrorKind};
use crate::id::{Offset, TopicPartition};
use crate::record::Headers;
use crate::time::Timestamp;

/// What becomes of a record that failed; see [the module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decision {
    /// Nothing of the record is committed. At decode and produce the process ends; at process as [`Decision::Retry`].
    Fail,
    /// The epoch is dropped and replayed; this spends the fault budget.
    Retry,
    /// The record is left out.
    Skip,
    /// The record is left out and written to the dead-letter topic.
    DeadLetter,
}

/// Where a record failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gate {
    /// Between a topic's bytes and the first operator.
    Decode,
    /// In the user's code.
    Process,
    /// Between the last operator and the broker.
    Produce,
}

impl Gate {
    /// The gate's name in messages, headers and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Decode => "decode",
            Self::Process => "process",
            Self::Produce => "produce",
        }
    }
}

/// What a handler of a topology is told about a record that failed.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Failed<'a> {
    /// The gate.
    pub gate: Gate,
    /// The node that failed: a source, a processor, a sink, ..
    pub node: &'a str,
    /// The source record that was worked on; `None`: a timer or a punctuator.
    pub source: Option<(&'a TopicPartition, Offset)>,
    /// At produce the key of the record that was to be written; else that of the source record, or of the timer.
    pub key: Option<&'a [u8]>,
    /// At produce the value of the record that was to be written; else that of the source record.
    pub value: Option<&'a [u8]>,
    /// The headers of the same record.
    pub headers: &'a Headers,
    /// The event time.
    pub timestamp: Timestamp,
    /// What happened.
    pub error: &'a Error,
}

/// Decides about one record that failed. It is called on lanes, and again when an epoch is replayed, so what it returns
/// should depend on its argument only. One that panics decides [`Decision::Fail`].
pub type Handler = Arc<dyn Fn(&Failed<'_>) -> Decision + Send + Sync>;

/// The handlers that a topology declares.
#[derive(Clone, Default)]
pub struct Deciders {
    /// At decode.
    pub decode: Option<Handler>,
    /// At process.
    pub process: Option<Handler>,
    /// At produce.
    pub produce: Option<Handler>,
}

impl fmt::Debug for Deciders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deciders")
            .field("decode", &self.decode.is_some())
            .field("process", &self.process.is_some())
            .field("produce", &self.produce.is_some())
            .finish()
    }
}

/// What one gate does.
#[derive(Clone)]
pub(crate) enum Policy {
    /// The same for all records.
    Always(Decision),
    /// The topology is asked.
    Ask(Handler),
}

impl Policy {
    /// The operator's word goes before the programmer's.
    pub(crate) fn of(configured: Option<Decision>, declared: Option<&Handler>) -> Self {
        match (configured, declared) {
            (Some(decision), _) => Self::Always(decision),
            (None, Some(handler)) => Self::Ask(Arc::clone(handler)),
            (None, None) => Self::Always(Decision::Fail),
        }
    }

    pub(crate) fn decide(&self, failed: &Failed<'_>) -> Decision {
        match self {
            Self::Always(decision) => *decision,
            Self::Ask(handler) => catch_unwind(AssertUnwindSafe(|| handler(failed))).unwrap_or_else(|_| {
                tracing::error!(
                    gate = failed.gate.name(),
                    "the topology's handler of errors panicked: it counts as `fail`"
                );
                Decision::Fail
            }),
        }
    }

    /// Whether a record can be left out, so that the epoch goes on without it.
    pub(crate) fn leaves_out(&self) -> bool {
        !matches!(self, Self::Always(Decision::Fail | Decision::Retry))
    }

    /// Whether a dead letter can come of it.
    pub(crate) fn writes_letters(&self) -> bool {
        !matches!(self, Self::Always(Decision::Fail | Decision::Retry | Decision::Skip))
    }
}

/// Whether an error is about data, so that a gate may decide; all else by-passes the gates (I-10).
pub(crate) fn is_data(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Handler | ErrorKind::Codec | ErrorKind::Refused)
}
