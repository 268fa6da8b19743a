//! Bringing a store up to its changelog: what to do at start, and which rows a changelog's records are. Pure.
//!
//! # When a stamp is too old
//!
//! Compaction keeps a tombstone for `delete.retention.ms` and drops it then. A store that holds a key which the
//! tombstone deletes must read the tombstone before, or it keeps the key for good. So a stamp carries the time at which
//! the store *was at the log's end*, not the time at which it was written: [`Replay`] leaves that time alone until the
//! end is reached again. (Were it renewed while the tail is replayed, a restore that is interrupted often enough would
//! take a store of any age for a fresh one.)

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Batch, Row, Stamp, StoreKind, layout};
use crate::broker::{Bounds, Fetched, TopicInfo};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::partition_for;
use crate::id::{Epoch, NextOffset, TopicPartition};
use crate::time::Timestamp;

/// Kafka's default for `delete.retention.ms`: assumed where the broker does not tell.
const DELETE_RETENTION: Duration = Duration::from_hours(24);

/// What is known about a store's changelog before the store is restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangelogFacts {
    /// The topic's name.
    pub topic: Arc<str>,
    /// What the plan of the last claim and the epoch record say; `None`: the plan does not know the changelog.
    pub recorded: Option<RecordedChangelog>,
    /// What the broker has; `None`: no such topic.
    pub found: Option<FoundChangelog>,
}

/// What was written down about a changelog.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedChangelog {
    /// The broker's id of the topic; empty where the broker told none.
    pub topic_id: String,
    /// The end that the epoch record says was reached, by partition.
    pub ends: BTreeMap<i32, NextOffset>,
}

/// What the broker says about a changelog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundChangelog {
    /// The broker's id of the topic; empty where the broker tells none.
    pub topic_id: String,
    /// The log's bounds, of every partition.
    pub bounds: BTreeMap<i32, Bounds>,
    /// `delete.retention.ms`; `None`: the topic is not compacted, so its tombstones stay as long as all else.
    pub delete_retention: Option<Duration>,
}

impl FoundChangelog {
    /// Takes what matters from a topic's description; a setting that the broker does not tell is taken to be Kafka's
    /// default of 24 h.
    pub fn new(topic: &TopicInfo, bounds: BTreeMap<i32, Bounds>) -> Self {
        let compacted = topic.setting("cleanup.policy").is_none_or(|p| p.contains("compact"));
        let told = topic.setting("delete.retention.ms").and_then(|ms| ms.trim().parse().ok());
        let delete_retention = compacted.then(|| told.map_or(DELETE_RETENTION, Duration::from_millis));
        Self { topic_id: topic.id.clone(), bounds, delete_retention }
    }
}

/// What to do with a store at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestoreDecision {
    /// Keep the rows, read each partition from here.
    Tail {
        /// The next offset to read, of every partition of the changelog.
        from: BTreeMap<i32, NextOffset>,
    },
    /// Clear the store and read each partition from its beginning.
    Rebuild {
        /// Why.
        reason: RebuildReason,
    },
    /// Do not start: state would be lost or mixed without anybody noticing.
    Refuse {
        /// Why.
        reason: RefuseReason,
    },
}

/// Why local rows are of no use. Costs time, loses nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildReason {
    /// There is nothing local.
    Empty,
    /// The plan does not know the store: it is new.
    New,
    /// The rows come from another topic, under the same name.
    OtherTopic {
        /// The id in the stamp.
        stamped: String,
        /// The broker's.
        found: String,
    },
    /// The store's offset is not in the log.
    OutOfLog {
        /// The partition.
        partition: i32,
        /// The stamp's offset.
        offset: NextOffset,
        /// The log's bounds; `None`: the topic has no such partition.
        bounds: Option<Bounds>,
    },
    /// The stamp is older than tombstones live.
    TooOld {
        /// Its age.
        age: Duration,
        /// How old it may be.
        limit: Duration,
    },
    /// The stamp was made later than now.
    ClockWentBack {
        /// By how much.
        by: Duration,
    },
}

/// Why a start is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefuseReason {
    /// The topic is gone.
    Missing {
        /// The topic.
        topic: Arc<str>,
    },
    /// Another topic has taken the name.
    OtherTopic {
        /// The topic.
        topic: Arc<str>,
        /// The plan's id.
        recorded: String,
        /// The broker's.
        found: String,
    },
    /// The log ends before an end that was committed.
    Short {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The recorded end.
        recorded: NextOffset,
        /// The log's end; `None`: the topic has no such partition.
        found: Option<NextOffset>,
    },
}

impl fmt::Display for RebuildReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no local state"),
            Self::New => f.write_str("the store is new"),
            Self::OtherTopic { stamped, found } => {
                write!(f, "local state is of topic id `{stamped}`, the changelog's is `{found}`")
            }
            Self::OutOfLog { partition, offset, bounds: Some(Bounds { start, end }) } => {
                write!(
                    f,
                    "partition {partition}: local state is at offset {offset}, the log goes from {start} to {end}"
                )
            }
            Self::OutOfLog { partition, offset, bounds: None } => {
                write!(f, "partition {partition}: local state is at offset {offset}, the topic has no such partition")
            }
            Self::TooOld { age, limit } => write!(
                f,
                "local state is {} s old, deletes are certain to be in the changelog for {} s only",
                age.as_secs(),
                limit.as_secs()
            ),
            Self::ClockWentBack { by } => {
                write!(f, "local state was written {} s in the future: the clock went backwards", by.as_secs())
            }
        }
    }
}

impl fmt::Display for RefuseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { topic } => {
                write!(f, "changelog `{topic}` is missing, but the application has state in it")?;
            }
            Self::OtherTopic { topic, recorded, found } => {
                write!(
                    f,
                    "changelog `{topic}` was made anew: its id is `{found}`, the application's state is in `{recorded}`"
                )?;
            }
            Self::Short { topic, partition, recorded, found: Some(end) } => {
                write!(
                    f,
                    "changelog `{topic}-{partition}` ends at offset {end}, but the application committed up to {recorded}"
                )?;
            }
            Self::Short { topic, partition, recorded, found: None } => {
                write!(
                    f,
                    "changelog `{topic}-{partition}` is gone, but the application committed up to offset {recorded} of it"
                )?;
            }
        }
        f.write_str(
            ": state is lost. Bring the topic back, or begin anew under another application id or with all of the \
             application's internal topics deleted",
        )
    }
}

impl RefuseReason {
    /// The reason as the error that ends the start.
    pub fn into_error(self) -> Error {
        Error::new(ErrorKind::Topic, self.to_string())
    }
}

/// Decides what to do with a store (I-11). `stamp`: what the store says of itself; `margin`: what clocks may differ and
/// a restore may take, taken off the time that tombstones live.
pub fn decide(stamp: Option<&Stamp>, changelog: &ChangelogFacts, now: Timestamp, margin: Duration) -> RestoreDecision {
    if let Some(reason) = refusal(changelog) {
        return RestoreDecision::Refuse { reason };
    }
    let (Some(found), Some(_)) = (&changelog.found, &changelog.recorded) else {
        return RestoreDecision::Rebuild { reason: RebuildReason::New };
    };
    let Some(stamp) = stamp else {
        return RestoreDecision::Rebuild { reason: RebuildReason::Empty };
    };
    match uselessness(stamp, found, now, margin) {
        Some(reason) => RestoreDecision::Rebuild { reason },
        None => RestoreDecision::Tail {
            // A partition that the stamp does not name has given the store no row yet.
            from: found.bounds.iter().map(|(&p, b)| (p, stamp.offsets.get(&p).copied().unwrap_or(b.start))).collect(),
        },
    }
}

fn refusal(changelog: &ChangelogFacts) -> Option<RefuseReason> {
    let recorded = changelog.recorded.as_ref()?;
    let topic = Arc::clone(&changelog.topic);
    let Some(found) = &changelog.found else {
        return Some(RefuseReason::Missing { topic });
    };
    // A broker that tells no ids proves nothing.
    if !recorded.topic_id.is_empty() && !found.topic_id.is_empty() && recorded.topic_id != found.topic_id {
        let (recorded, found) = (recorded.topic_id.clone(), found.topic_id.clone());
        return Some(RefuseReason::OtherTopic { topic, recorded, found });
    }
    recorded.ends.iter().find_map(|(&partition, &end)| {
        let found = found.bounds.get(&partition).map(|b| b.end);
        let short = found.is_none_or(|found| found < end);
        short.then(|| RefuseReason::Short { topic: Arc::clone(&topic), partition, recorded: end, found })
    })
}

fn uselessness(stamp: &Stamp, found: &FoundChangelog, now: Timestamp, margin: Duration) -> Option<RebuildReason> {
    if stamp.topic_id != found.topic_id {
        return Some(RebuildReason::OtherTopic { stamped: stamp.topic_id.clone(), found: found.topic_id.clone() });
    }
    let outside = stamp.offsets.iter().find_map(|(&partition, &offset)| {
        let bounds = found.bounds.get(&partition).copied();
        let inside = bounds.is_some_and(|b| (b.start..=b.end).contains(&offset));
        (!inside).then_some(RebuildReason::OutOfLog { partition, offset, bounds })
    });
    if outside.is_some() {
        return outside;
    }
    if stamp.time > now + margin {
        return Some(RebuildReason::ClockWentBack { by: stamp.time.since(now) });
    }
    let limit = found.delete_retention?.saturating_sub(margin);
    let age = now.since(stamp.time);
    (age > limit).then_some(RebuildReason::TooOld { age, limit })
}

/// Which partition of a changelog a key's records are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The one that murmur2 of the lane key's bytes picks.
    LaneKey {
        /// The changelog's partition count.
        partitions: i32,
    },
    /// The one of the source partition that the key came from, as Kafka Streams has it: any.
    Source,
}

/// The rows that a changelog partition's records are, in order.
///
/// # Errors
/// When a record is none of this kind of store, or of a key that belongs into another partition.
pub fn rows(
    kind: StoreKind,
    partition: &TopicPartition,
    placement: Placement,
    records: &crate::record::RecordBatch,
) -> Result<Vec<Row>> {
    let mut rows = Vec::with_capacity(records.len());
    for record in records.iter() {
        let at = |e: Error| e.into_kind(ErrorKind::Topic).at(format!("changelog {partition}@{}", record.offset));
        let key = record.key.ok_or_else(|| {
            at(Error::new(
                ErrorKind::Topic,
                "a record without a key, which no store writes: something else writes to this topic; stop it and restore the topic",
            ))
        })?;
        let lane_key = layout::lane_key_len(kind, key).map_err(at)?;
        if let Some(value) = record.value {
            layout::check_value(kind, value).map_err(at)?;
        }
        if let Placement::LaneKey { partitions } = placement {
            let right = partition_for(&key[..lane_key], partitions);
            if right != partition.partition {
                return Err(at(Error::new(
                    ErrorKind::Topic,
                    format!(
                        "a key that belongs into partition {right} of {partitions}: the topic's partition count was \
                         changed, or something else writes to it; bring back the old count, or take the state over anew"
                    ),
                )));
            }
        }
        let (key, value) = (key.to_vec(), record.value.map(<[u8]>::to_vec));
        rows.push(Row { key, lane_key, value, timestamp: record.timestamp });
    }
    Ok(rows)
}

/// A store's way to the end of its changelog: turns what is fetched into batches, each with a stamp that a restore can
/// go on from. Serves a start (until [`Replay::is_caught_up`]) and a standby (on and on).
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use stoat_core::broker::{Bounds, Fetched};
/// use stoat_core::id::{Epoch, TopicPartition};
/// use stoat_core::record::{Headers, RecordBatch};
/// use stoat_core::store::StoreKind;
/// use stoat_core::store::restore::{FoundChangelog, Placement, Replay};
/// use stoat_core::time::Timestamp;
///
/// let found = FoundChangelog {
///     topic_id: "kT2".into(),
///     bounds: [(0, Bounds { start: 0, end: 2 })].into(),
///     delete_retention: Some(Duration::from_secs(86_400)),
/// };
/// let mut replay = Replay::new(StoreKind::KeyValue, "app-s-changelog", &found, Placement::LaneKey { partitions: 1 },
///     None, Timestamp(1_000));
/// let mut batch = RecordBatch::default();
/// batch.push(0, Timestamp(7), Some(b"k"), Some(b"v"), Headers::default());
/// let partition = TopicPartition::new("app-s-changelog", 0);
/// let applied = replay.batch(&Fetched { partition, batch, position: 2, caught_up: true }, Timestamp(1_500))?;
/// assert_eq!(applied.rows.len(), 1);
/// assert_eq!((applied.stamp.offsets[&0], applied.stamp.time), (2, Timestamp(1_500)));
/// assert!(replay.is_caught_up());
/// assert_eq!(replay.finish(Epoch(4)).stamp.epoch, Epoch(4));
/// # Ok::<(), stoat_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Replay {
    kind: StoreKind,
    topic: Arc<str>,
    topic_id: String,
    placement: Placement,
    epoch: Epoch,
    partitions: BTreeMap<i32, Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Progress {
    position: NextOffset,
    /// When the rows of this partition were last those of the log's end.
    at_end: Timestamp,
    /// The log's end as it was last known, and when it was that.
    known_end: (NextOffset, Timestamp),
    caught_up: bool,
}

impl Progress {
    /// Takes note that the rows are those of `position`.
    fn reach(&mut self, position: NextOffset) {
        let (end, since) = self.known_end;
        self.position = position;
        self.caught_up = position >= end;
        if self.caught_up {
            self.at_end = since.max(self.at_end);
        }
    }
}

impl Replay {
    /// Begins. `kept`: the stamp of a store whose rows were kept ([`RestoreDecision::Tail`]); `None`: it was cleared and
    /// reads from the beginning.
    pub fn new(
        kind: StoreKind,
        topic: impl Into<Arc<str>>,
        found: &FoundChangelog,
        placement: Placement,
        kept: Option<&Stamp>,
        now: Timestamp,
    ) -> Self {
        // Read from the beginning, a log shows every tombstone that is there now.
        let at_end = kept.map_or(now, |s| s.time.min(now));
        let partitions = found.bounds.iter().map(|(&p, b)| {
            let position = kept.and_then(|s| s.offsets.get(&p).copied()).unwrap_or(b.start);
            let mut progress = Progress { position, at_end, known_end: (b.end, now), caught_up: false };
            progress.reach(position);
            (p, progress)
        });
        Self {
            kind,
            topic: topic.into(),
            topic_id: found.topic_id.clone(),
            placement,
            epoch: kept.map_or(Epoch::default(), |s| s.epoch),
            partitions: partitions.collect(),
        }
    }

    /// Compares with the log's bounds as of `now`: a partition at its end is as fresh as now. A standby does so at the
    /// keep-alive, because a partition without new records says only once that its end was reached.
    pub fn renew(&mut self, bounds: &BTreeMap<i32, Bounds>, now: Timestamp) {
        for (partition, progress) in &mut self.partitions {
            if let Some(bounds) = bounds.get(partition) {
                progress.known_end = (bounds.end, now);
                progress.reach(progress.position);
            }
        }
    }

    /// Where to open each partition.
    pub fn positions(&self) -> impl Iterator<Item = (TopicPartition, NextOffset)> + '_ {
        self.partitions
            .iter()
            .map(|(&p, progress)| (TopicPartition::new(Arc::clone(&self.topic), p), progress.position))
    }

    /// The batch that what was fetched makes; `now` is the wall clock when it was fetched.
    ///
    /// # Errors
    /// When a record is none of this kind of store, or in the wrong partition, or the partition is not the changelog's.
    pub fn batch(&mut self, fetched: &Fetched, now: Timestamp) -> Result<Batch> {
        let partition = &fetched.partition;
        let known = *partition.topic == *self.topic;
        let Some(progress) = self.partitions.get_mut(&partition.partition).filter(|_| known) else {
            return Err(Error::new(
                ErrorKind::Internal,
                format!("{partition} was fetched for a store whose changelog is `{}`", self.topic),
            ));
        };
        let rows = rows(self.kind, partition, self.placement, &fetched.batch)?;
        if fetched.caught_up {
            progress.known_end = (fetched.position, now);
        }
        progress.reach(fetched.position);
        let mut stamp = self.stamp();
        stamp.offsets.retain(|p, _| *p == partition.partition);
        Ok(Batch { rows, stamp })
    }

    /// Whether every partition has been read to its end, as far as the end is known: as of the beginning, the last
    /// [`Replay::renew`] or the last [`Fetched::caught_up`].
    pub fn is_caught_up(&self) -> bool {
        self.partitions.values().all(|p| p.caught_up)
    }

    /// Records that the store holds the state of `epoch`: a batch without rows, with the offsets of all partitions.
    pub fn finish(&mut self, epoch: Epoch) -> Batch {
        self.epoch = epoch;
        Batch { rows: Vec::new(), stamp: self.stamp() }
    }

    fn stamp(&self) -> Stamp {
        Stamp {
            epoch: self.epoch,
            // The store is as old as its oldest partition.
            time: self.partitions.values().map(|p| p.at_end).min().unwrap_or_default(),
            topic_id: self.topic_id.clone(),
            offsets: self.partitions.iter().map(|(&p, progress)| (p, progress.position)).collect(),
        }
    }
}
