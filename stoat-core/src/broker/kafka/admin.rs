//! Questions about topics and groups, a watch over the topics that are read, and the probe of a lost connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::config::KafkaConfig;
use super::consumer::Table;
use super::error::{Code, broker_error, kind};
use super::ffi::{Client, TopicFacts};
use super::link::Link;
use crate::broker::{
    Bounds, BrokerError, BrokerErrorKind as Kind, Command, GroupInfo, NewTopic, OpId, Reply, TopicInfo,
};
use crate::id::TopicPartition;

/// A question.
pub(super) struct Job {
    pub(super) op: OpId,
    pub(super) ask: Command,
}

/// Pause before a question that was answered "try again" is put again.
const AGAIN: Duration = Duration::from_millis(50);
/// How often the topics that are read are looked at: one that was deleted is told within two rounds.
const ROUND: Duration = Duration::from_secs(10);
/// How soon a topic that was not found is looked at again before it is believed.
const SECOND_LOOK: Duration = Duration::from_secs(2);
/// How often a lost connection is tried, and how often the thread looks whether something changed.
const BEAT: Duration = Duration::from_secs(1);

pub(super) fn run(config: &KafkaConfig, link: &Link, table: &Table, client: Arc<Client>, jobs: &Receiver<Job>) {
    let queue = client.main_queue();
    let mut admin = Admin { config, link, client, watch: Watch::default() };
    let mut next_round = Instant::now() + ROUND;
    loop {
        let job = jobs.recv_timeout(BEAT);
        if link.stopping() {
            return;
        }
        match job {
            Ok(job) => {
                let result = admin.carry_out(job.ask);
                if result.is_ok() {
                    link.up();
                }
                link.done(job.op, result);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some(event) = queue.poll(Duration::ZERO) {
            if event.is_error()
                && let Some((code, text)) = event.error()
            {
                link.client_error(code, &text);
            }
        }
        if link.is_down() && admin.client.topic_names(false, BEAT).is_ok() {
            link.up();
        }
        if table.fresh.swap(false, Ordering::SeqCst) || Instant::now() >= next_round {
            let again = !link.is_down() && admin.watch.look(&admin.client, table);
            next_round = Instant::now() + if again { SECOND_LOOK } else { ROUND };
        }
    }
}

struct Admin<'a> {
    config: &'a KafkaConfig,
    link: &'a Link,
    client: Arc<Client>,
    watch: Watch,
}

type Asked<T> = Result<T, (Code, String)>;

impl Admin<'_> {
    fn carry_out(&self, ask: Command) -> Result<Reply, BrokerError> {
        match ask {
            Command::Describe { topics } => {
                self.ask("topics cannot be looked up", |t| self.describe(&topics, t)).map(Reply::Topics)
            }
            Command::ListTopics => self
                .ask("topics cannot be listed", |t| {
                    self.client.topic_names(true, t.min(BEAT)).map_err(|f| (f.code, f.text))
                })
                .map(|mut names| {
                    names.sort();
                    Reply::Names(names)
                }),
            Command::CreateTopics { topics } => self.create(&topics).map(|()| Reply::Done),
            Command::Bounds { partitions } => {
                self.ask("log bounds cannot be looked up", |t| self.bounds(&partitions, t)).map(Reply::Bounds)
            }
            Command::Group { partitions } => {
                let group = &self.config.group_id;
                let what = format!("the consumer group `{group}` cannot be looked up");
                let members = self.ask(&what, |t| self.client.group_members(group, t))?;
                let offsets = self.ask(&what, |t| self.client.group_offsets(&partitions, t))?;
                Ok(Reply::Group(GroupInfo { members, offsets }))
            }
            other => Err(BrokerError::new(Kind::Fatal, format!("not a question: {other:?}"))),
        }
    }

    /// Puts a question until it is answered for good or the time is over.
    fn ask<T>(&self, what: &str, mut question: impl FnMut(Duration) -> Asked<T>) -> Result<T, BrokerError> {
        let deadline = Instant::now() + self.config.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let (code, text) = match question(left) {
                Ok(answer) => return Ok(answer),
                Err(e) => e,
            };
            let kind = kind(code);
            if kind != Kind::Retriable || self.link.stopping() || left <= AGAIN {
                let mut e = broker_error(kind, what, code, &text);
                if kind == Kind::Retriable {
                    e.message.push_str(&self.link.why());
                }
                return Err(e);
            }
            self.link.pause(AGAIN);
        }
    }

    fn describe(&self, topics: &[Arc<str>], timeout: Duration) -> Asked<Vec<Option<TopicInfo>>> {
        let mut distinct: Vec<&str> = topics.iter().map(|t| &**t).collect();
        distinct.sort_unstable();
        distinct.dedup();
        if distinct.is_empty() {
            return Ok(Vec::new());
        }
        let mut found: BTreeMap<String, TopicFacts> = BTreeMap::new();
        for facts in self.client.describe_topics(&distinct, timeout)? {
            match &facts.error {
                Some((code, _)) if kind(*code) == Kind::UnknownTopic => {}
                Some((code, text)) => return Err((*code, format!("topic `{}`: {text}", facts.name))),
                None => {
                    found.insert(facts.name.clone(), facts);
                }
            }
        }
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        let mut configs = BTreeMap::new();
        if !names.is_empty() {
            for (name, config) in self.client.describe_configs(&names, timeout)? {
                match config {
                    Ok(config) => {
                        configs.insert(name, config);
                    }
                    // Settings are told as far as the broker tells them.
                    Err((code, text)) => tracing::debug!(topic = name, code = code.0, "no settings: {text}"),
                }
            }
        }
        Ok(topics
            .iter()
            .map(|name| {
                found.get(&**name).map(|facts| TopicInfo {
                    name: Arc::clone(name),
                    id: facts.id.clone(),
                    partitions: facts.partitions,
                    config: configs.get(&**name).cloned().unwrap_or_default(),
                })
            })
            .collect())
    }

    fn bounds(&self, partitions: &[TopicPartition], timeout: Duration) -> Asked<Vec<Bounds>> {
        match self.client.bounds(partitions, timeout) {
            // It says so of a partition without a leader, too, and of one that is not there.
            Err((Code::NOT_FOUND, text)) => {
                let mut names: Vec<&str> = partitions.iter().map(|p| &*p.topic).collect();
                names.sort_unstable();
                names.dedup();
                for facts in self.client.describe_topics(&names, timeout)? {
                    if let Some((code, text)) = facts.error {
                        return Err((code, format!("topic `{}`: {text}", facts.name)));
                    }
                    if let Some(p) =
                        partitions.iter().find(|p| *p.topic == *facts.name && p.partition >= facts.partitions)
                    {
                        return Err((Code::UNKNOWN_PARTITION, format!("there is no partition {p}")));
                    }
                }
                Err((Code::LEADER_NOT_AVAILABLE, text))
            }
            other => other,
        }
    }

    fn create(&self, topics: &[NewTopic]) -> Result<(), BrokerError> {
        if topics.is_empty() {
            return Ok(());
        }
        let what = "topics cannot be created";
        self.ask(what, |t| {
            for (name, error) in self.client.create_topics(topics, t)? {
                match error {
                    None | Some((Code::TOPIC_ALREADY_EXISTS, _)) => {}
                    Some((code, text)) => return Err((code, format!("topic `{name}`: {text}"))),
                }
            }
            Ok(())
        })?;
        // A topic is of use only when its partitions are led.
        let names: Vec<&str> = topics.iter().map(|t| &*t.name).collect();
        let deadline = Instant::now() + self.config.patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let facts = self.ask(what, |t| self.client.describe_topics(&names, t))?;
            if facts.iter().all(|f| f.error.is_none() && f.led) {
                return Ok(());
            }
            if left.is_zero() || self.link.stopping() {
                let text = format!("{what}: not every partition of {} has a leader", names.join(", "));
                return Err(BrokerError::new(Kind::Retriable, text));
            }
            self.link.pause(AGAIN);
        }
    }
}

/// Notices topics that are gone, or are not what they were.
#[derive(Default)]
struct Watch {
    ids: BTreeMap<Arc<str>, String>,
    /// Not found at the last look.
    missing: Vec<Arc<str>>,
}

impl Watch {
    /// Looks at the topics that are read. Says whether a second look is due soon.
    fn look(&mut self, client: &Arc<Client>, table: &Table) -> bool {
        let topics = table.topics();
        self.ids.retain(|t, _| topics.contains_key(t));
        if topics.is_empty() {
            self.missing.clear();
            return false;
        }
        let names: Vec<&str> = topics.keys().map(|t| &**t).collect();
        let facts = match client.describe_topics(&names, Duration::from_secs(5)) {
            Ok(facts) => facts,
            Err((_, text)) => {
                tracing::debug!("the topics that are read could not be looked up: {text}");
                return false;
            }
        };
        let mut missing = Vec::new();
        for f in facts {
            let Some((topic, highest)) = topics.get_key_value(f.name.as_str()) else {
                continue;
            };
            match &f.error {
                Some((code, text)) if kind(*code) == Kind::UnknownTopic => {
                    // A broker that has just started may not know its topics yet: only the second time counts.
                    if self.missing.contains(topic) {
                        let e = broker_error(Kind::UnknownTopic, &format!("topic `{topic}` is gone"), *code, text);
                        self.ids.remove(topic);
                        table.fail(topic, 0, &e);
                    } else {
                        missing.push(Arc::clone(topic));
                    }
                }
                Some((code, text)) if kind(*code) == Kind::Unauthorized => {
                    let what = format!("topic `{topic}` must not be read");
                    table.fail(topic, 0, &broker_error(Kind::Unauthorized, &what, *code, text));
                }
                Some((_, text)) => tracing::debug!(%topic, "{text}"),
                None => {
                    let known = self.ids.entry(Arc::clone(topic)).or_insert_with(|| f.id.clone());
                    if *known != f.id {
                        let text = format!(
                            "topic `{topic}` was deleted and created anew (its id was {known}, now it is {})",
                            f.id
                        );
                        known.clone_from(&f.id);
                        table.fail(topic, 0, &BrokerError::new(Kind::UnknownTopic, text));
                    } else if *highest >= f.partitions {
                        let text =
                            format!("topic `{topic}` has {} partitions, number {highest} is not one", f.partitions);
                        table.fail(topic, f.partitions, &BrokerError::new(Kind::UnknownTopic, text));
                    }
                }
            }
        }
        self.missing = missing;
        !self.missing.is_empty()
    }
}
