//! Verdicts: what a gate decided about outputs that the broker refused, remembered for the replay of their epoch.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;

use super::Decision;
use crate::engine::tag::Path;
use crate::error::ErrorKind;
use crate::id::SinkId;
use crate::record::{Headers, Origin};
use crate::time::Timestamp;

/// Epochs that may commit before a verdict on what no source record caused is forgotten.
const EPOCHS: u32 = 16;

/// What a gate decided about one output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The record of a source or a schedule that caused it; `None`: a timer, a punctuator or a barrier, which the path names.
    pub origin: Option<Origin>,
    /// Which of the outputs that come from there.
    pub path: Path,
    /// The sink.
    pub sink: SinkId,
    /// The output's bytes, hashed: if a replay puts others there, they are tried.
    pub bytes: u64,
    /// [`Decision::Skip`] or [`Decision::DeadLetter`].
    pub decision: Decision,
    /// The kind of error.
    pub kind: ErrorKind,
    /// The broker's words, for the dead letter.
    pub text: String,
}

/// The verdicts that hold, kept from one engine generation to the next.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    held: Vec<(Verdict, u32)>,
    /// The broker refused something without saying what, and nothing has committed since.
    blind: bool,
}

/// What is hashed of an output.
pub(crate) fn bytes(key: Option<&[u8]>, value: Option<&[u8]>, timestamp: Timestamp, headers: &Headers) -> u64 {
    let mut hasher = FxHasher::default();
    (key, value, timestamp).hash(&mut hasher);
    for h in headers.iter() {
        (&*h.name, h.value.as_deref()).hash(&mut hasher);
    }
    hasher.finish()
}

impl Verdicts {
    /// Whether there are none: then nothing needs to be hashed.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The verdict on an output.
    pub fn find(&self, origin: Option<Origin>, path: &Path, sink: SinkId, bytes: u64) -> Option<&Verdict> {
        let held = self.held.iter().map(|(v, _)| v);
        held.filter(|v| v.origin == origin && v.sink == sink && v.bytes == bytes).find(|v| v.path == *path)
    }

    /// Adds a verdict; `false`: it is known and the output came again all the same.
    pub fn add(&mut self, verdict: Verdict) -> bool {
        let new = self.find(verdict.origin, &verdict.path, verdict.sink, verdict.bytes).is_none();
        if new {
            // That is progress.
            self.blind = false;
            self.held.push((verdict, 0));
        }
        new
    }

    /// Something was refused, and it is not known what; `false`: for the second time in a row.
    pub fn refused_blindly(&mut self) -> bool {
        !std::mem::replace(&mut self.blind, true)
    }

    /// An epoch has committed: drops the verdicts on what lies before `next`, the offsets that it reached by partition;
    /// `None`: it is no partition, but a schedule.
    pub fn committed(&mut self, next: impl Fn(u32) -> Option<i64>) {
        self.blind = false;
        self.held.retain_mut(|(v, epochs)| {
            *epochs += 1;
            let reached = v.origin.and_then(|o| Some((o.offset, next(o.partition)?)));
            reached.map_or(*epochs <= EPOCHS, |(offset, next)| offset >= next)
        });
    }
}
