//! Where to begin: what the newest epoch record, the consumer group and the changelogs say, and the claim.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::reencode::reencoding;
use super::topics::{replication, settings};
use super::{Owner, Start, StartCx, Step};
use crate::broker::{Bounds, Command, NewTopic, Transaction};
use crate::config::{Config, Reset, StartOffsets};
use crate::engine::epoch::{ChangelogTarget, epoch_batch};
use crate::engine::epoch_record::{ChangelogRecord, EpochRecord, InputCut, PartitionRule, PlanRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::id::NextOffset;
use crate::plan::epoch_topic;
use crate::store::restore::FoundChangelog;
use crate::time::Timestamp;
use crate::topology::graph::Graph;

/// How long tombstones stay in changelogs that we create (I-11).
const DELETE_RETENTION: Duration = Duration::from_hours(7 * 24);

impl Start {
    pub(super) fn decide(&mut self, cx: &StartCx<'_>) {
        let decided = self.refuse_lost_changelogs(cx.graph).and_then(|()| match self.record.take() {
            Some(r) => self.decide_by_record(cx, r),
            None => self.decide_first(cx),
        });
        let mut record = match decided {
            Ok(record) => record,
            Err(e) => {
                self.refusal = Some(e);
                self.go(Step::Probe, cx.now);
                return;
            }
        };
        if let Some(text) = self.differing_copy(cx, &record) {
            match cx.config.start_offsets {
                Some(StartOffsets::Record) => tracing::warn!("{text}; going on from the epoch record"),
                Some(StartOffsets::Group) => {
                    tracing::warn!("{text}; going on from the consumer group");
                    for (input, offset) in self.plan().inputs.clone().iter().zip(self.group_offsets.clone()) {
                        if let Some(next) = offset {
                            let watermark = record.input(&input.partition).map_or(Timestamp::MIN, |c| c.watermark);
                            record.set_input(&input.partition, InputCut { next, watermark });
                        }
                    }
                }
                None => {
                    self.refusal = Some(Error::new(ErrorKind::State, text));
                    self.go(Step::Probe, cx.now);
                    return;
                }
            }
        }
        self.record = Some(record);
        let plan = self.plan();
        let found = &self.internals[1..];
        let missing: Vec<NewTopic> = plan
            .changelogs
            .iter()
            .zip(found)
            .filter(|(_, f)| f.is_none())
            .map(|(c, _)| NewTopic {
                name: c.topic.clone(),
                partitions: c.partitions,
                replication: replication(cx.config),
                config: settings(&[
                    ("cleanup.policy", "compact"),
                    ("delete.retention.ms", &DELETE_RETENTION.as_millis().to_string()),
                    ("message.timestamp.type", "CreateTime"),
                ]),
            })
            .collect();
        self.go(if missing.is_empty() { Step::Changelogs } else { Step::CreateChangelogs(missing) }, cx.now);
    }

    fn refuse_lost_changelogs(&self, graph: &Graph) -> Result<()> {
        let Some(recorded) = &self.plan_record else {
            return Ok(());
        };
        for (c, found) in self.plan().changelogs.iter().zip(&self.internals[1..]) {
            let Some(known) = recorded.changelogs.get(&*c.topic) else {
                continue;
            };
            let refuse = |why: String| Err(Error::new(ErrorKind::Topic, format!("changelog `{}`: {why}", c.topic)));
            let Some(found) = found else {
                return refuse(
                    "it is missing, but the application has state in it: bring the topic back, or begin anew under another application id".to_owned(),
                );
            };
            if found.partitions != known.partitions {
                return refuse(format!(
                    "it has {} partitions, the application wrote it with {}: partitions must not be added to a changelog; bring back the old count",
                    found.partitions, known.partitions
                ));
            }
            if known.codec != c.key_codec && reencoding(graph, &c.name, &known.codec).is_none() {
                return refuse(format!(
                    "its keys were written by codec {}, the topology now declares {}: go back to the old codec; or let the next \
                     start write them anew with `app.reencode::<Key, Old, New>(\"{}\")`; or name the store anew and rebuild it",
                    known.codec, c.key_codec, c.name
                ));
            }
            if known.kind != c.kind {
                return refuse(format!(
                    "store `{}` was a {:?}, the topology now declares a {:?}: name the store anew",
                    c.name, known.kind, c.kind
                ));
            }
        }
        for lost in recorded.changelogs.values() {
            if !self.plan().changelogs.iter().any(|c| c.name == lost.store) {
                tracing::warn!(
                    "store `{}` is no longer in the topology: its changelog is kept; if it was renamed, name it `{}` again",
                    lost.store,
                    lost.store
                );
            }
        }
        Ok(())
    }

    fn decide_by_record(&self, cx: &StartCx<'_>, mut record: EpochRecord) -> Result<EpochRecord> {
        let ids = self.plan_record.as_ref().map(|p| &p.sources);
        let mut inputs = BTreeMap::new();
        std::mem::swap(&mut inputs, &mut record.inputs);
        for (input, bounds) in self.plan().inputs.iter().zip(&self.input_bounds) {
            let (tp, topic) = (&input.partition, input.partition.topic.to_string());
            let id = self.topics.get(&topic).map_or("", |t| t.id.as_str());
            if let Some(known) = ids.and_then(|m| m.get(&topic))
                && !known.is_empty()
                && !id.is_empty()
                && known != id
            {
                return Err(Error::new(
                    ErrorKind::Topic,
                    format!(
                        "source topic `{topic}` is another topic than the application read (its id was {known}, now it is {id}): \
                         it was deleted and made anew; begin anew under another application id"
                    ),
                ));
            }
            let cut = inputs.get(&topic).and_then(|m| m.get(&tp.partition)).copied();
            let cut = match cut {
                Some(c) if c.next < bounds.start || c.next > bounds.end => {
                    return Err(Error::new(
                        ErrorKind::Topic,
                        format!(
                            "{tp}: the application goes on at offset {}, but the log goes from {} to {}: records were lost; \
                             bring them back, or begin anew under another application id",
                            c.next, bounds.start, bounds.end
                        ),
                    ));
                }
                Some(c) => c,
                // A partition that appeared later starts at its beginning, whatever the policy (N9).
                None if inputs.contains_key(&topic) => InputCut { next: bounds.start, watermark: Timestamp::MIN },
                None => InputCut { next: reset(cx.config, bounds), watermark: Timestamp::MIN },
            };
            record.set_input(tp, cut);
        }
        Ok(record)
    }

    fn decide_first(&self, cx: &StartCx<'_>) -> Result<EpochRecord> {
        let holding = self.changelog_bounds.iter().find(|(_, ps)| ps.values().any(|b| b.end > b.start));
        if let Some((topic, _)) = holding {
            let all = self.group_offsets.iter().all(Option::is_some);
            if !(cx.config.take_over && all) {
                return Err(Error::new(
                    ErrorKind::State,
                    format!(
                        "changelog `{topic}` holds records, but the application has no epoch record: its epoch topic was lost, or the \
                         state is that of a Kafka Streams application. Bring `{}` back; or, to go on from the consumer group's \
                         committed offsets, set `stoat.start.take-over: true`{}; or begin anew under another application id",
                        epoch_topic(cx.config.application_id()?),
                        if all { "" } else { " (not all partitions have committed offsets, so this is refused too)" },
                    ),
                ));
            }
        }
        let mut record = EpochRecord { wall: cx.wall, ..EpochRecord::default() };
        for ((input, bounds), committed) in self.plan().inputs.iter().zip(&self.input_bounds).zip(&self.group_offsets) {
            let next = committed.filter(|o| (bounds.start..=bounds.end).contains(o));
            let next = next.unwrap_or_else(|| reset(cx.config, bounds));
            record.set_input(&input.partition, InputCut { next, watermark: Timestamp::MIN });
        }
        Ok(record)
    }

    /// A group's copy that is there and different, in words.
    fn differing_copy(&self, cx: &StartCx<'_>, record: &EpochRecord) -> Option<String> {
        let Owner::Seen(Some(_)) = &self.first_owner else {
            return None;
        };
        let inputs = self.plan().inputs.iter().zip(&self.group_offsets);
        let mut differing = inputs.filter_map(|(input, group)| {
            let ours = record.input(&input.partition)?.next;
            let theirs = (*group)?;
            (ours != theirs).then(|| format!("{}: epoch record {ours}, group {theirs}", input.partition))
        });
        let first = differing.next()?;
        let more = differing.count();
        Some(format!(
            "the consumer group `{}` has other offsets than the application's epoch record ({first}{}): somebody else committed to the \
             group. Set `stoat.start.offsets: record` to go on where the application stood, or `group` to go on from the group's offsets \
             (its state then does not match them)",
            cx.config.application_id().unwrap_or_default(),
            if more > 0 { format!(", and {more} more partitions") } else { String::new() },
        ))
    }

    pub(super) fn changelogs_described(&mut self) -> Result<()> {
        let mut targets = Vec::new();
        let mut record = PlanRecord::default();
        for (c, found) in self.plan().changelogs.iter().zip(&self.internals[1..]) {
            let found = found.as_ref().ok_or_else(|| {
                Error::new(ErrorKind::Topic, format!("changelog `{}` was created but is not there: try again", c.topic))
            })?;
            if let Some(policy) = found.setting("cleanup.policy")
                && !policy.contains("compact")
            {
                return Err(Error::new(
                    ErrorKind::Topic,
                    format!(
                        "changelog `{}` has cleanup.policy={policy}: state older than its retention would be lost; set cleanup.policy=compact",
                        c.topic
                    ),
                ));
            }
            record.changelogs.insert(
                c.topic.to_string(),
                ChangelogRecord {
                    store: c.name.clone(),
                    id: found.id.clone(),
                    partitions: found.partitions,
                    rule: PartitionRule::Hash,
                    codec: c.key_codec.clone(),
                    kind: c.kind,
                },
            );
            targets.push(ChangelogTarget {
                topic: c.topic.clone(),
                topic_id: found.id.clone(),
                partitions: found.partitions,
                delete_retention: FoundChangelog::new(found, BTreeMap::new()).delete_retention,
            });
        }
        for (name, topic) in &self.topics {
            if self.plan().inputs.iter().any(|i| *i.partition.topic == **name) {
                record.sources.insert(name.clone(), topic.id.clone());
            }
        }
        self.targets = targets;
        // What the plan of the predecessor knew stays known until the claim: the restore compares with it.
        if let Some(old) = self.plan_record.take() {
            for (topic, c) in old.changelogs {
                record.changelogs.insert(topic, c);
            }
        }
        self.plan_record = Some(record);
        Ok(())
    }

    pub(super) fn claim(&mut self, cx: &StartCx<'_>, epochs: &Arc<str>) -> Command {
        let mut record = self.record.clone().unwrap_or_default();
        record.incarnation.clone_from(&self.incarnation);
        record.claim = true;
        let batch = epoch_batch(epochs, &record, self.plan_record.as_ref(), cx.wall);
        let offsets = self.plan().inputs.iter().filter_map(|i| {
            let cut = record.input(&i.partition)?;
            Some((i.partition.clone(), cut.next))
        });
        let offsets = offsets.collect();
        self.record = Some(record);
        Command::Transact(Arc::new(Transaction { batches: vec![batch], offsets, ..Transaction::default() }))
    }
}

fn reset(config: &Config, bounds: &Bounds) -> NextOffset {
    match config.start_reset {
        Reset::Earliest => bounds.start,
        Reset::Latest => bounds.end,
    }
}
