//! The topics that an application needs, and what is known about them.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Start, StartCx, Step};
use crate::broker::{Bounds, NewTopic, TopicInfo};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Decision;
use crate::id::TopicPartition;
use crate::plan::Plan;
use crate::topology::graph::Graph;

impl Start {
    pub(super) fn outer_topics(graph: &Graph, config: &Config) -> Vec<Arc<str>> {
        let all: BTreeSet<&str> = graph
            .sources
            .iter()
            .map(|s| s.topic.as_str())
            .chain(graph.sinks.iter().map(|s| s.topic.as_str()))
            .chain(config.dead_letter_topic.as_deref())
            .collect();
        all.into_iter().map(Arc::from).collect()
    }

    pub(super) fn topics_described(&mut self, cx: &mut StartCx<'_>, found: Vec<Option<TopicInfo>>) -> Result<()> {
        letters_have_a_topic(cx)?;
        let asked = Self::outer_topics(cx.graph, cx.config);
        let missing: Vec<String> =
            asked.iter().zip(&found).filter(|(_, f)| f.is_none()).map(|(n, _)| n.to_string()).collect();
        if !missing.is_empty() {
            if !cx.config.create_topics {
                self.go(Step::Names(missing), cx.now);
                return Ok(());
            }
            let new = |name: &String| NewTopic {
                name: name.as_str().into(),
                partitions: cx.config.topic_partitions as i32,
                replication: replication(cx.config),
                // Retention goes by the records' own time: with a broker's default of a week, old events would be deleted
                // before they are read.
                config: settings(&[("retention.ms", "-1")]),
            };
            self.go(Step::CreateTopics(missing.iter().map(new).collect()), cx.now);
            return Ok(());
        }
        self.topics = found.into_iter().flatten().map(|t| (t.name.to_string(), t)).collect();
        let counts = self.topics.iter().map(|(n, t)| (n.clone(), t.partitions)).collect();
        let mut plan = Plan::new(cx.graph, cx.config.application_id()?, cx.config.lane_count(), &counts)?;
        if let Some(topic) = &cx.config.dead_letter_topic {
            plan.add_letters(topic, counts[topic]);
        }
        plan.sink_limits = plan.sink_topics.iter().map(|t| self.limit(cx.config, t)).collect();
        self.plan = Some(plan);
        self.go(Step::Group, cx.now);
        Ok(())
    }

    /// The size above which the broker surely refuses a record of a topic. With compression nobody knows.
    fn limit(&self, config: &Config, topic: &str) -> usize {
        let compressed = ["compression.codec", "compression.type"]
            .iter()
            .any(|name| config.kafka_client.get(*name).is_some_and(|codec| codec != "none"));
        let told = self.topics[topic].setting("max.message.bytes").and_then(|v| v.parse().ok());
        told.filter(|_| !compressed).unwrap_or(usize::MAX)
    }

    /// All partitions of the changelogs that exist.
    pub(super) fn changelog_partitions(&self) -> Vec<TopicPartition> {
        if self.recovering || !self.targets.is_empty() {
            let all = self.targets.iter();
            return all.flat_map(|t| (0..t.partitions).map(|p| TopicPartition::new(t.topic.clone(), p))).collect();
        }
        let all = self.internals.iter().skip(1).flatten();
        all.flat_map(|t| (0..t.partitions).map(|p| TopicPartition::new(t.name.clone(), p))).collect()
    }

    pub(super) fn take_bounds(&mut self, bounds: &[Bounds]) {
        self.changelog_bounds.clear();
        for (tp, b) in self.changelog_partitions().iter().zip(bounds) {
            self.changelog_bounds.entry(tp.topic.to_string()).or_default().insert(tp.partition, *b);
        }
    }
}

pub(super) fn missing_topics(missing: &[String], all: &[String]) -> Error {
    let mut text = Vec::new();
    for name in missing {
        let near = all
            .iter()
            .map(|t| (t, strsim::normalized_damerau_levenshtein(t, name)))
            .filter(|(_, score)| *score > 0.6)
            .max_by(|a, b| a.1.total_cmp(&b.1));
        text.push(match near {
            Some((t, _)) => format!("topic `{name}` does not exist: did you mean `{t}`?"),
            None => format!("topic `{name}` does not exist"),
        });
    }
    Error::new(
        ErrorKind::Topic,
        format!("{}; topics are not created unless `stoat.topics.create` is `true`", text.join("; ")),
    )
}

pub(super) fn replication(config: &Config) -> i32 {
    if config.topic_replication == 0 { -1 } else { config.topic_replication as i32 }
}

pub(super) fn settings(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

pub(super) fn names(topics: &[NewTopic]) -> String {
    topics.iter().map(|t| format!("`{}`", t.name)).collect::<Vec<_>>().join(", ")
}

/// Where dead letters may be written, a topic for them is named.
fn letters_have_a_topic(cx: &StartCx<'_>) -> Result<()> {
    let c = cx.config;
    let written = c.dead_letter_dropped || c.gates().contains(&Some(Decision::DeadLetter));
    if written && c.dead_letter_topic.is_none() {
        return Err(Error::new(
            ErrorKind::Config,
            "records are to become dead letters, but there is no topic for them: set `stoat.dead-letter.topic`",
        ));
    }
    if let Some(topic) = c.dead_letter_topic.as_ref().filter(|t| cx.graph.sources.iter().any(|s| s.topic == **t)) {
        return Err(Error::new(
            ErrorKind::Config,
            format!(
                "`stoat.dead-letter.topic` is `{topic}`, which the application reads: what fails comes again for ever"
            ),
        ));
    }
    Ok(())
}
