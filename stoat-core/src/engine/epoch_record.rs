//! The epoch record: the one truth about what is committed, and the plan record beside it.
//!
//! Both are values of the application's own compacted topic `<app>-stoat-epochs`, under the keys `epoch` and `plan`:
//! the magic `STOAT`, a version byte, then JSON, so that an operator can read them with any Kafka tool.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, NextOffset, TopicPartition};
use crate::store::StoreKind;
use crate::time::{Timestamp, Watermark};

/// The key of the epoch record.
pub const EPOCH_KEY: &[u8] = b"epoch";
/// The key of the plan record.
pub const PLAN_KEY: &[u8] = b"plan";

const MAGIC: &[u8] = b"STOAT";
const VERSION: u8 = 1;

/// One epoch's end, or a claim of it by an incarnation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct EpochRecord {
    /// The epoch.
    pub epoch: Epoch,
    /// The process that committed it.
    pub incarnation: String,
    /// Whether it only claims the epoch before it.
    pub claim: bool,
    /// All assigned partitions, by topic, then partition.
    pub inputs: BTreeMap<String, BTreeMap<i32, InputCut>>,
    /// The watermark that each sub-topology has reached, by the sub-topology's name.
    pub watermarks: BTreeMap<String, Watermark>,
    /// Up to which watermark event-time punctuators have been called, where a limit cut the last mark.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub punctuated: BTreeMap<String, Watermark>,
    /// The last wall-clock tick.
    pub wall: Timestamp,
    /// The last tick of each schedule, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub schedules: BTreeMap<String, Timestamp>,
    /// The next offset of each changelog partition as of the epoch before, by topic.
    pub changelogs: BTreeMap<String, BTreeMap<i32, NextOffset>>,
}

/// Where one input partition stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputCut {
    /// The first offset that is not processed.
    pub next: NextOffset,
    /// The partition's watermark.
    pub watermark: Watermark,
}

impl EpochRecord {
    /// The cut of a partition.
    pub fn input(&self, tp: &TopicPartition) -> Option<InputCut> {
        self.inputs.get(&*tp.topic)?.get(&tp.partition).copied()
    }

    /// Sets the cut of a partition.
    pub fn set_input(&mut self, tp: &TopicPartition, cut: InputCut) {
        self.inputs.entry(tp.topic.to_string()).or_default().insert(tp.partition, cut);
    }
}

/// What is fixed about the application's topics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PlanRecord {
    /// The broker's ids of the source topics.
    pub sources: BTreeMap<String, String>,
    /// The changelogs, by topic.
    pub changelogs: BTreeMap<String, ChangelogRecord>,
}

/// What is fixed about one changelog.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct ChangelogRecord {
    /// The store's name.
    pub store: String,
    /// The broker's id of the topic.
    pub id: String,
    /// The number of partitions.
    pub partitions: i32,
    /// How a key picks its partition.
    pub rule: PartitionRule,
    /// The key codec.
    pub codec: String,
    /// The layout.
    pub kind: StoreKind,
}

/// How a changelog's key picks its partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartitionRule {
    /// murmur2 of the lane key's bytes.
    Hash,
}

/// Writes a record of the epoch topic.
pub fn encode<T: Serialize>(record: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(MAGIC);
    out.push(VERSION);
    serde_json::to_writer(&mut out, record).expect("records are maps of strings and numbers, which JSON can write");
    out
}

/// Reads a record of the epoch topic.
///
/// # Errors
/// When it is not one, or one of a version that this library does not know (I-13).
pub fn decode<T: DeserializeOwned>(what: &str, bytes: &[u8]) -> Result<T> {
    let refuse = |why: String| {
        Error::new(
            ErrorKind::State,
            format!("the {what} record in the application's epoch topic cannot be read: {why}"),
        )
    };
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(|| {
        refuse("it does not begin with `STOAT`; is another program writing to this topic?".to_owned())
    })?;
    match rest.split_first() {
        Some((&VERSION, json)) => serde_json::from_slice(json).map_err(|e| refuse(e.to_string())),
        Some((v, _)) => Err(refuse(format!(
            "it has format version {v}, this library knows version {VERSION}: run the version that wrote it, or a newer one"
        ))),
        None => Err(refuse("it ends after its magic".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> EpochRecord {
        let mut r = EpochRecord { epoch: Epoch(7), incarnation: "a1".to_owned(), ..EpochRecord::default() };
        r.set_input(&TopicPartition::new("in", 1), InputCut { next: 12, watermark: Timestamp(99) });
        r.watermarks.insert("in".to_owned(), Timestamp(98));
        r.wall = Timestamp(5);
        r.changelogs.entry("app-s-changelog".to_owned()).or_default().insert(0, 3);
        r
    }

    #[test]
    fn t39_i13_the_bytes_of_version_1_stay_as_they_are() {
        let golden = concat!(
            "STOAT\u{1}",
            r#"{"epoch":7,"incarnation":"a1","claim":false,"inputs":{"in":{"1":{"next":12,"watermark":99}}},"#,
            r#""watermarks":{"in":98},"wall":5,"changelogs":{"app-s-changelog":{"0":3}}}"#
        );
        assert_eq!(encode(&sample()), golden.as_bytes());
        assert_eq!(decode::<EpochRecord>("epoch", golden.as_bytes()).unwrap(), sample());
    }

    #[test]
    fn t39_i13_an_unknown_version_is_refused_with_both_numbers() {
        let e = decode::<EpochRecord>("epoch", b"STOAT\x02{}").unwrap_err().to_string();
        assert!(e.contains("version 2") && e.contains("version 1"), "{e}");
        assert!(decode::<EpochRecord>("epoch", b"{}").unwrap_err().to_string().contains("another program"));
        assert!(decode::<EpochRecord>("epoch", b"STOAT").is_err());
    }
}
