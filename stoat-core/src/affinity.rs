//! Lane affinity: a key that would be worked for by two lanes is found (I-16, I-17).
//!
//! The types make a split impossible where codecs are what they say. What is left to look for while the application runs
//! is a codec that wrongly claims to be canonical, and a handler that writes another lane's key. Lanes are compared,
//! never bytes. Nothing is looked for where a sub-topology has one lane only.

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use crate::codec::CodecError;
use crate::config::Verdict;
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{lane_hash, lane_of};
use crate::metrics::Counter;

/// Which checks run, and what they do about what they find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneChecks {
    /// On each timer that is set or cancelled for the current key, and on each write of a `KeyValueStore`.
    pub guard: Verdict,
    /// Now and then on the key of a record, before `process`.
    pub sampled: Verdict,
    /// So many records of each processor and lane are checked first.
    pub first: u32,
    /// Then one of so many.
    pub every: u32,
}

impl Default for LaneChecks {
    /// The guard refuses, the sampled check warns: of the first 64 records, then of 1 in 4,096.
    fn default() -> Self {
        Self { guard: Verdict::Error, sampled: Verdict::Warn, first: 64, every: 4096 }
    }
}

impl LaneChecks {
    /// Both refuse, and each record is looked at: for tests of topologies.
    pub fn strict() -> Self {
        Self { sampled: Verdict::Error, ..Self::each() }
    }

    /// None: for runs that must go through whatever they find.
    pub fn off() -> Self {
        Self { guard: Verdict::Off, sampled: Verdict::Off, ..Self::default() }
    }

    /// As in production, except that each record is looked at.
    pub fn each() -> Self {
        Self { every: 1, ..Self::default() }
    }
}

/// Decodes a key's bytes and encodes them again.
pub(crate) type Reencode = fn(&[u8], &mut Vec<u8>) -> Result<(), CodecError>;

/// One lane's place among the lanes of its sub-topology, and what was refused there.
#[derive(Debug)]
pub struct LanePlace {
    lane: u32,
    lanes: u32,
    checks: LaneChecks,
    /// Set by a check that refused: user code may drop the error that it was given, so the lane looks here too.
    refused: OnceLock<String>,
}

impl LanePlace {
    pub(crate) fn new(lane: u32, lanes: u32, checks: LaneChecks) -> Self {
        Self { lane, lanes, checks, refused: OnceLock::new() }
    }

    /// The error of the first check that refused on this lane. It ends the engine, whatever user code made of it.
    pub(crate) fn refused(&self) -> Option<Error> {
        self.refused.get().map(|text| Error::new(ErrorKind::TimerLaneAffinity, text.as_str()))
    }

    fn other(&self, key: &[u8]) -> Option<u32> {
        let lane = lane_of(lane_hash(key), self.lanes);
        (lane != self.lane).then_some(lane)
    }
}

/// What all lanes of a processor share: the warning is given once.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) processor: Arc<str>,
    warned: AtomicBool,
}

impl Watched {
    pub(crate) fn new(processor: Arc<str>) -> Self {
        Self { processor, warned: AtomicBool::new(false) }
    }
}

/// The checks of one processor on one lane.
#[derive(Clone, Debug)]
pub(crate) struct Affinity {
    place: Arc<LanePlace>,
    watched: Arc<Watched>,
    mismatches: Counter,
}

impl Affinity {
    pub(crate) fn new(place: Arc<LanePlace>, watched: Arc<Watched>) -> Self {
        Self { place, watched, mismatches: crate::metrics::counter(crate::metrics::LANE_MISMATCHES) }
    }

    /// What this lane has refused.
    pub(crate) fn refused(&self) -> Option<Error> {
        self.place.refused()
    }

    /// A key's other bytes, where they pick another lane: refused, warned of, or neither. `what` is made only then.
    fn compare(&self, verdict: Verdict, key: &[u8], what: impl FnOnce(u32) -> String) -> Result<()> {
        let Some(other) = self.place.other(key) else { return Ok(()) };
        match verdict {
            Verdict::Off => Ok(()),
            Verdict::Warn => {
                self.mismatches.increment(1);
                if !self.watched.warned.swap(true, Ordering::Relaxed) {
                    tracing::warn!(
                        processor = &*self.watched.processor,
                        "{}; said once per processor, counted in `{}`",
                        what(other),
                        crate::metrics::LANE_MISMATCHES
                    );
                }
                Ok(())
            }
            Verdict::Error => {
                self.mismatches.increment(1);
                let text = self.place.refused.get_or_init(|| format!("TimerLaneAffinity: {}", what(other)));
                Err(Error::new(ErrorKind::TimerLaneAffinity, text.as_str()))
            }
        }
    }

    fn on(&self, other: u32) -> String {
        let LanePlace { lane, lanes, .. } = &*self.place;
        format!("lane {other}, but its records run on lane {lane} of {lanes}")
    }

    /// A write of a store for a key that is not the current one (I-16).
    #[cold]
    pub(crate) fn write(&self, field: &str, key: &[u8]) -> Result<()> {
        self.compare(self.place.checks.guard, key, |other| {
            format!(
                "a write of field {field} for a key of lane {other} on lane {} of {}: two lanes would write one key; \
                 forward the value under that key and write it there",
                self.place.lane, self.place.lanes
            )
        })
    }
}

/// The guard of a timer field (I-16). There is one only where the lane's codec may be wrong about being canonical.
#[derive(Clone, Debug)]
pub(crate) struct TimerGuard {
    affinity: Affinity,
    reencode: Reencode,
    scratch: Vec<u8>,
}

impl TimerGuard {
    /// `None`: there is nothing to guard.
    pub(crate) fn new(affinity: Option<&Affinity>, reencode: Option<Reencode>) -> Option<Self> {
        let affinity = affinity.filter(|a| a.place.checks.guard != Verdict::Off)?.clone();
        Some(Self { affinity, reencode: reencode?, scratch: Vec::new() })
    }

    /// The current key, `bytes` on this lane, is about to get or lose a timer.
    pub(crate) fn own(&mut self, field: &str, bytes: &[u8]) -> Result<()> {
        self.scratch.clear();
        // What cannot be decoded has been refused before the handler ran.
        if (self.reencode)(bytes, &mut self.scratch).is_err() || self.scratch == bytes {
            return Ok(());
        }
        self.affinity.compare(self.affinity.place.checks.guard, &self.scratch, |other| {
            format!(
                "timer {field} for the key being processed: the key's codec writes {} for it, which picks {}. The codec \
                 says that it is canonical, and is not: set `CANONICAL` to false",
                shown(&self.scratch),
                self.affinity.on(other)
            )
        })
    }

    /// A timer is set or cancelled for a key that is written `other`; the current key is `bytes` on this lane.
    pub(crate) fn another(&mut self, field: &str, bytes: &[u8], other: &[u8]) -> Result<()> {
        self.scratch.clear();
        if (self.reencode)(bytes, &mut self.scratch).is_ok() && self.scratch == other {
            return self.own(field, bytes);
        }
        Ok(())
    }
}

/// The sampled check of one processor on one lane (I-17).
pub(crate) struct Sampled<K> {
    affinity: Affinity,
    codec: &'static str,
    /// `false`: the key is null.
    encode: fn(&K, &mut Vec<u8>) -> Result<bool, CodecError>,
    seen: u32,
    scratch: Vec<u8>,
}

impl<K> Sampled<K> {
    pub(crate) fn new(
        affinity: Option<&Affinity>,
        codec: &'static str,
        encode: fn(&K, &mut Vec<u8>) -> Result<bool, CodecError>,
    ) -> Option<Self> {
        let affinity = affinity.filter(|a| a.place.checks.sampled != Verdict::Off)?.clone();
        Some(Self { affinity, codec, encode, seen: 0, scratch: Vec::new() })
    }

    /// Checks a record's key; after how many records the next check is due.
    #[cold]
    pub(crate) fn check(&mut self, key: &K) -> Result<u64> {
        let checks = self.affinity.place.checks;
        self.seen = self.seen.saturating_add(1);
        let next = if self.seen < checks.first { 1 } else { u64::from(checks.every.max(1)) };
        self.scratch.clear();
        // A key that cannot be encoded is an error where it is needed, not here.
        if !(self.encode)(key, &mut self.scratch).unwrap_or(false) {
            return Ok(next);
        }
        self.affinity.compare(checks.sampled, &self.scratch, |other| {
            format!(
                "the key of a record for `{}` is written {} by its codec {}, which picks {}: the codec says that it is \
                 canonical, and is not; set `CANONICAL` to false",
                self.affinity.watched.processor,
                shown(&self.scratch),
                self.codec,
                self.affinity.on(other)
            )
        })?;
        Ok(next)
    }
}

/// A key in a message: as text where it is text, cut where it is long.
fn shown(key: &[u8]) -> String {
    let cut = &key[..key.len().min(64)];
    let dots = if cut.len() < key.len() { ".." } else { "" };
    format!("`{}{dots}`", cut.escape_ascii())
}
