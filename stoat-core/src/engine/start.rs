//! From nothing (or from a fault) to a restored cut: the steps before the first record. No I/O of its own: each step is
//! one command, and what its answer means.
//!
//! ```text
//! first start:  Topics ─ Group ─ Internals ─ Init ─ ReadEpochs ─ Found ─ InputBounds ─ GroupOffsets ─ ChangelogBounds
//!               ─ (decide) ─ CreateChangelogs ─ Changelogs ─ Claim ─ RestoreBounds ─ Restore ─ Ready
//!               (Restore ─ Reencode ─ RestoreBounds ─ Restore ─ Ready, where a store's keys are written anew)
//! recovery:     [ReadEpochs, when fenced] ─ Init ─ ReadEpochs ─ RestoreBounds ─ Restore ─ Ready
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::epoch::{ChangelogTarget, changelog_batch, epoch_batch};
use super::epoch_record::{
    ChangelogRecord, EPOCH_KEY, EpochRecord, InputCut, PLAN_KEY, PartitionRule, PlanRecord, decode,
};
use super::io::{Io, Reaction};
use super::remedy::{Call, Remedy, remedy};
use super::writer::WriteJob;
use crate::broker::{Bounds, BrokerError, BrokerErrorKind, Command, Fetched, NewTopic, Reply, TopicInfo, Transaction};
use crate::config::{Config, Reset, StartOffsets};
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Decision;
use crate::id::{Generation, NextOffset, StoreId, TopicPartition};
use crate::plan::{Plan, epoch_topic};
use crate::record::{Headers, ProduceBatch};
use crate::store::layout::row_of_local;
use crate::store::restore::{
    ChangelogFacts, FoundChangelog, Placement, RecordedChangelog, Replay, RestoreDecision, decide,
};
use crate::store::{ByteStore, Row, StoreKind, StoreSet};
use crate::time::Timestamp;
use crate::topology::graph::{Graph, Reencode};

/// How long tombstones stay in changelogs that we create (I-11).
const DELETE_RETENTION: Duration = Duration::from_hours(7 * 24);
/// What clocks may differ and a restore may take, taken off the time that tombstones live.
const STAMP_MARGIN: Duration = Duration::from_mins(30);
/// Partitions that are restored side by side.
const RESTORE_WIDTH: usize = 8;
/// Bytes of one fetch while restoring.
const RESTORE_FETCH: usize = 1 << 20;
/// Records of the epoch topic that are looked at first, from its end.
const EPOCHS_FROM_END: i64 = 256;
/// The key of a probe in the epoch topic.
const PROBE_KEY: &[u8] = b"probe";
/// The pause before a call is made again, in ms.
const AGAIN: u64 = 250;
/// Claims after a fence, before the start gives up.
const CLAIM_TRIES: u32 = 5;

/// What is known about the application and its topics; kept over recoveries.
#[derive(Clone, Debug)]
pub struct Known {
    /// The plan.
    pub plan: Plan,
    /// The epoch topic.
    pub epochs: Arc<str>,
    /// Where the changelogs are, by [`StoreId`].
    pub targets: Vec<ChangelogTarget>,
    /// The plan record as of the claim.
    pub plan_record: PlanRecord,
    /// The newest decided epoch record.
    pub record: EpochRecord,
    /// What stands in the epoch topic behind this offset was written after our claim.
    pub claimed_at: NextOffset,
}

/// What a restore did, for people and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestoreReport {
    /// Records (markers counted) that the changelogs hold.
    pub in_changelogs: u64,
    /// Records that were replayed.
    pub replayed: u64,
    /// Stores that were rebuilt from the beginning.
    pub rebuilt: u32,
}

/// How a start ended.
pub enum Outcome {
    /// Not yet; nothing to do before this time unless an event comes.
    Pending(Option<u64>),
    /// The stores hold the cut of the record.
    Ready(Box<Known>, RestoreReport),
}

/// Whose incarnation the newest record bore.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owner {
    Unread,
    Seen(Option<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Topics,
    CreateTopics(Vec<NewTopic>),
    Names(Vec<String>),
    Group,
    Internals,
    CreateEpochs,
    Init,
    EpochBounds,
    OpenEpochs {
        from: NextOffset,
        end: NextOffset,
    },
    ReadEpochs {
        from: NextOffset,
        end: NextOffset,
        start: NextOffset,
    },
    /// Looks at the changelogs once more: who was fenced may have made them since.
    Found,
    InputBounds,
    GroupOffsets,
    ChangelogBounds,
    CreateChangelogs(Vec<NewTopic>),
    Changelogs,
    /// Finds out whether we were fenced before what speaks against a start is believed (I-3): who was fenced has looked at
    /// what another was changing, and begins again.
    Probe,
    Claim,
    RestoreBounds,
    Restore,
    /// Writes keys anew that another codec wrote (I-18).
    Reencode,
}

/// The state of a start or a recovery.
pub struct Start {
    step: Step,
    recovering: bool,
    /// Read the record before the producer is initialised: what was reported looked like fencing (I-10).
    look_first: bool,
    waiting: Option<crate::broker::OpId>,
    since: u64,
    retry_at: Option<u64>,
    group_since: Option<u64>,
    tries: u32,
    seed: u64,
    incarnation: String,
    /// Who owned the application when this start first looked: `Seen(None)` is nobody.
    first_owner: Owner,
    topics: BTreeMap<String, TopicInfo>,
    internals: Vec<Option<TopicInfo>>,
    plan: Option<Plan>,
    record: Option<EpochRecord>,
    plan_record: Option<PlanRecord>,
    epochs_first: NextOffset,
    epochs_end: NextOffset,
    input_bounds: Vec<Bounds>,
    group_offsets: Vec<Option<NextOffset>>,
    changelog_bounds: BTreeMap<String, BTreeMap<i32, Bounds>>,
    claimed_at: NextOffset,
    targets: Vec<ChangelogTarget>,
    restore: Option<Restore>,
    report: RestoreReport,
    /// What speaks against a start.
    refusal: Option<Error>,
}

struct Restore {
    replays: Vec<Replay>,
    todo: Vec<(usize, TopicPartition, NextOffset)>,
    open: BTreeMap<TopicPartition, usize>,
    /// Write jobs under way: the partition to go on with, and whether it is through.
    writing: BTreeMap<u64, Option<(TopicPartition, bool)>>,
    finishing: bool,
}

/// What a start needs from outside.
pub struct StartCx<'a> {
    /// The declared topology.
    pub graph: &'a Graph,
    /// The configuration.
    pub config: &'a Config,
    /// The broker and the store writer.
    pub io: &'a mut Io,
    /// All stores, by [`StoreId`]; opened by the caller.
    pub stores: &'a mut Vec<Arc<dyn ByteStore>>,
    /// Opens stores.
    pub set: &'a mut dyn StoreSet,
    /// The engine generation that is being started.
    pub generation: Generation,
    /// Monotonic time in ms.
    pub now: u64,
    /// The wall clock.
    pub wall: Timestamp,
}

impl Start {
    /// A process begins.
    pub fn first(incarnation: &str, seed: u64, now: u64) -> Self {
        Self::at(Step::Topics, incarnation, seed, now)
    }

    /// An engine generation begins after a fault; `fenced`: the fault looked like fencing.
    pub fn recovery(known: &Known, incarnation: &str, fenced: bool, seed: u64, now: u64) -> Self {
        let step = if fenced { Step::EpochBounds } else { Step::Init };
        let mut s = Self::at(step, incarnation, seed, now);
        s.recovering = true;
        s.look_first = fenced;
        s.plan = Some(known.plan.clone());
        s.targets.clone_from(&known.targets);
        s.plan_record = Some(known.plan_record.clone());
        s.claimed_at = known.claimed_at;
        s
    }

    fn at(step: Step, incarnation: &str, seed: u64, now: u64) -> Self {
        Self {
            step,
            recovering: false,
            look_first: false,
            waiting: None,
            since: now,
            retry_at: None,
            group_since: None,
            tries: 0,
            seed: seed | 1,
            incarnation: incarnation.to_owned(),
            first_owner: Owner::Unread,
            topics: BTreeMap::new(),
            internals: Vec::new(),
            plan: None,
            record: None,
            plan_record: None,
            epochs_first: 0,
            epochs_end: 0,
            input_bounds: Vec::new(),
            group_offsets: Vec::new(),
            changelog_bounds: BTreeMap::new(),
            claimed_at: 0,
            targets: Vec::new(),
            restore: None,
            report: RestoreReport::default(),
            refusal: None,
        }
    }

    /// Whether state is being read back.
    pub fn restoring(&self) -> bool {
        self.step == Step::Restore
    }

    /// What has been restored so far.
    pub fn report(&self) -> RestoreReport {
        self.report
    }

    fn go(&mut self, step: Step, now: u64) {
        tracing::debug!(?step, "start");
        self.step = step;
        self.since = now;
        self.waiting = None;
        self.retry_at = None;
    }

    fn plan(&self) -> &Plan {
        self.plan.as_ref().expect("the plan is made in the first step")
    }

    /// Takes what happened and goes as far as it can.
    ///
    /// # Errors
    /// What ends the start: wrong topics, an unreachable broker, another owner, state that is lost.
    pub fn advance(&mut self, cx: &mut StartCx<'_>, events: Vec<Reaction>) -> Result<Outcome> {
        for event in events {
            match event {
                Reaction::Done(op, result) if self.waiting == Some(op) => {
                    self.waiting = None;
                    match result {
                        Ok(reply) => self.reply(cx, reply)?,
                        Err(e) => self.failed(cx, &e)?,
                    }
                }
                Reaction::Fetched(f) => self.fetched(cx, f)?,
                Reaction::Failed(tp, e) if self.reads(&tp) => {
                    let kind = match remedy(Call::Restore, e.kind) {
                        Remedy::End(kind) => kind,
                        _ => ErrorKind::Unavailable,
                    };
                    return Err(Error::new(kind, format!("reading {tp}: {e}")));
                }
                Reaction::Written(job, result) => self.written(cx, job, result)?,
                // Answers to what an earlier generation asked for.
                Reaction::Done(..) | Reaction::Failed(..) | Reaction::Lost | Reaction::Back => {}
            }
        }
        loop {
            if self.restore.as_ref().is_some_and(|r| r.finishing && r.writing.is_empty()) {
                if self.outdated().next().is_none() {
                    return Ok(self.ready());
                }
                self.restore = None;
                self.go(Step::Reencode, cx.now);
            }
            if self.waiting.is_some() || matches!(self.step, Step::ReadEpochs { .. } | Step::Restore) {
                return Ok(Outcome::Pending(None));
            }
            if let Some(at) = self.retry_at {
                if cx.now < at {
                    return Ok(Outcome::Pending(Some(at)));
                }
                self.retry_at = None;
            }
            self.submit(cx)?;
        }
    }

    fn reads(&self, tp: &TopicPartition) -> bool {
        match &self.step {
            Step::ReadEpochs { .. } => tp.topic.ends_with("-stoat-epochs"),
            Step::Restore => self.restore.as_ref().is_some_and(|r| r.open.contains_key(tp)),
            _ => false,
        }
    }

    fn submit(&mut self, cx: &mut StartCx<'_>) -> Result<()> {
        let app = cx.config.application_id()?.to_owned();
        let epochs = epoch_topic(&app);
        let input_partitions = |s: &Self| s.plan().inputs.iter().map(|i| i.partition.clone()).collect::<Vec<_>>();
        let command = match &self.step {
            Step::Topics => Command::Describe { topics: Self::outer_topics(cx.graph, cx.config) },
            Step::CreateTopics(topics) | Step::CreateChangelogs(topics) => {
                Command::CreateTopics { topics: topics.clone() }
            }
            Step::Names(_) => Command::ListTopics,
            // Only who is in it: offsets that a killed predecessor left in an open transaction cannot be read before
            // `Init` has ended that transaction.
            Step::Group => Command::Group { partitions: Vec::new() },
            Step::GroupOffsets => Command::Group { partitions: input_partitions(self) },
            Step::Internals | Step::Found | Step::Changelogs => Command::Describe {
                topics: std::iter::once(epochs).chain(self.plan().changelogs.iter().map(|c| c.topic.clone())).collect(),
            },
            Step::CreateEpochs => Command::CreateTopics {
                topics: vec![NewTopic {
                    name: epochs,
                    partitions: 1,
                    replication: replication(cx.config),
                    config: settings(&[
                        ("cleanup.policy", "compact"),
                        ("segment.bytes", "1048576"),
                        ("min.cleanable.dirty.ratio", "0.05"),
                    ]),
                }],
            },
            Step::Init => Command::InitProducer,
            Step::EpochBounds => Command::Bounds { partitions: vec![TopicPartition::new(epochs, 0)] },
            Step::OpenEpochs { from, .. } => Command::Open { partition: TopicPartition::new(epochs, 0), offset: *from },
            Step::InputBounds => Command::Bounds { partitions: input_partitions(self) },
            Step::ChangelogBounds | Step::RestoreBounds => {
                let partitions = self.changelog_partitions();
                if partitions.is_empty() {
                    return self.reply(cx, Reply::Bounds(Vec::new()));
                }
                Command::Bounds { partitions }
            }
            Step::Probe => {
                // Under a key of its own, which nobody reads: record and plan stay as they are.
                let mut batch = ProduceBatch::new(Arc::new([epochs]));
                let incarnation = self.incarnation.as_bytes();
                batch.push(0, 0, cx.wall, Some(PROBE_KEY), Some(incarnation), Headers::default());
                Command::Transact(Arc::new(Transaction { batches: vec![batch], ..Transaction::default() }))
            }
            Step::Claim => self.claim(cx, &epochs),
            Step::Reencode => self.reencode(cx, &epochs)?,
            Step::ReadEpochs { .. } | Step::Restore => return Ok(()),
        };
        self.waiting = Some(cx.io.submit(command));
        Ok(())
    }

    /// A command failed: try again, begin again, or end.
    fn failed(&mut self, cx: &mut StartCx<'_>, e: &BrokerError) -> Result<()> {
        let elapsed = Duration::from_millis(cx.now.saturating_sub(self.since));
        let call = match self.step {
            Step::Init => Call::Init,
            Step::Claim | Step::Probe | Step::Reencode => Call::Claim,
            _ => Call::Ask,
        };
        match remedy(call, e.kind) {
            Remedy::LookAgain => {
                self.tries += 1;
                if self.tries > CLAIM_TRIES {
                    return Err(Error::new(
                        ErrorKind::Fenced,
                        format!("another instance of this application keeps taking over ({e}): run one instance only"),
                    ));
                }
                self.seed ^= self.seed << 13;
                self.seed ^= self.seed >> 7;
                self.seed ^= self.seed << 17;
                let pause = self.seed % (200 * u64::from(self.tries));
                self.go(Step::Init, cx.now);
                self.retry_at = Some(cx.now + pause);
            }
            remedy @ (Remedy::Again | Remedy::InitAndAgain) => {
                // A recovery waits as long as the outage lasts; a start ends with the reason.
                if !self.recovering && elapsed >= cx.config.connect_timeout {
                    return Err(Error::new(
                        ErrorKind::Unavailable,
                        format!(
                            "no answer from the broker at {} within {}: {e}; is it running, and is `stoat.bootstrap-servers` right?",
                            cx.config.bootstrap_servers.as_deref().unwrap_or("the embedded broker"),
                            humantime::format_duration(cx.config.connect_timeout),
                        ),
                    ));
                }
                tracing::warn!(step = ?self.step, "{e}; trying again");
                if remedy == Remedy::InitAndAgain {
                    // Of a claim whose outcome is unknown: the record, read behind it, says whether it was applied (I-10).
                    self.go(Step::Init, cx.now);
                }
                self.retry_at = Some(cx.now + if e.kind == BrokerErrorKind::Unknown { 0 } else { AGAIN });
            }
            Remedy::End(kind) => return Err(Error::new(kind, format!("{:?}: {e}", self.step))),
            Remedy::CommitAgain | Remedy::Recover { .. } | Remedy::Gate => {
                return Err(Error::new(ErrorKind::Unavailable, format!("{:?}: {e}", self.step)));
            }
        }
        Ok(())
    }

    fn reply(&mut self, cx: &mut StartCx<'_>, reply: Reply) -> Result<()> {
        let now = cx.now;
        match (self.step.clone(), reply) {
            (Step::Topics, Reply::Topics(found)) => self.topics_described(cx, found),
            (Step::CreateTopics(topics), Reply::Done) => {
                tracing::info!("created topics {}", names(&topics));
                self.go(Step::Topics, now);
                Ok(())
            }
            (Step::Names(missing), Reply::Names(all)) => Err(missing_topics(&missing, &all)),
            (Step::Group, Reply::Group(group)) => {
                if group.members.is_empty() {
                    self.go(Step::Internals, now);
                    return Ok(());
                }
                let since = *self.group_since.get_or_insert(now);
                if now.saturating_sub(since) >= cx.config.group_wait.as_millis() as u64 {
                    return Err(Error::new(
                        ErrorKind::Fenced,
                        format!(
                            "the consumer group `{}` has live members ({}): stop the other application first; it may be \
                             an older instance, or a Kafka Streams application of this id",
                            cx.config.application_id()?,
                            group.members.join(", ")
                        ),
                    ));
                }
                tracing::warn!("the consumer group has members ({}); waiting for them to go", group.members.join(", "));
                self.retry_at = Some(now + 1000);
                Ok(())
            }
            (Step::Internals, Reply::Topics(found)) => {
                let missing = found[0].is_none();
                self.internals = found;
                self.go(if missing { Step::CreateEpochs } else { Step::Init }, now);
                Ok(())
            }
            (Step::Found, Reply::Topics(found)) => {
                self.internals = found;
                self.go(Step::InputBounds, now);
                Ok(())
            }
            (Step::CreateEpochs, Reply::Done) => {
                self.go(Step::Internals, now);
                Ok(())
            }
            (Step::Init, Reply::Done) => {
                self.go(Step::EpochBounds, now);
                Ok(())
            }
            (Step::EpochBounds, Reply::Bounds(b)) => {
                self.epochs_first = b[0].start;
                self.epochs_end = b[0].end;
                self.record = None;
                if !self.recovering {
                    self.plan_record = None;
                }
                let from = b[0].start.max(b[0].end - EPOCHS_FROM_END);
                self.go(Step::OpenEpochs { from, end: b[0].end }, now);
                Ok(())
            }
            (Step::OpenEpochs { from, end }, Reply::Done) => {
                self.go(Step::ReadEpochs { from, end, start: self.epochs_first }, now);
                if from >= end {
                    return self.epochs_read(cx);
                }
                Self::fetch_epochs(cx)
            }
            (Step::InputBounds, Reply::Bounds(b)) => {
                self.input_bounds = b;
                self.go(Step::GroupOffsets, now);
                Ok(())
            }
            (Step::GroupOffsets, Reply::Group(g)) => {
                self.group_offsets = g.offsets;
                self.go(Step::ChangelogBounds, now);
                Ok(())
            }
            (Step::ChangelogBounds, Reply::Bounds(b)) => {
                self.take_bounds(&b);
                self.decide(cx);
                Ok(())
            }
            (Step::CreateChangelogs(topics), Reply::Done) => {
                tracing::info!("created {}", names(&topics));
                self.go(Step::Changelogs, now);
                Ok(())
            }
            (Step::Changelogs, Reply::Topics(found)) => {
                self.internals = found;
                self.changelogs_described()?;
                let mine = self.record.as_ref().is_some_and(|r| r.incarnation == self.incarnation);
                self.go(if mine { Step::RestoreBounds } else { Step::Claim }, now);
                Ok(())
            }
            (Step::Probe, Reply::Committed(_)) => Err(self.refusal.take().expect("a probe is made of a refusal only")),
            (Step::Claim, Reply::Committed(c)) => {
                let epochs = epoch_topic(cx.config.application_id()?);
                self.claimed_at = c.ends.iter().find(|(tp, _)| tp.topic == epochs).map_or(0, |(_, o)| *o);
                if c.retried {
                    // The lost request may still arrive: it must not find the next transaction open (I-9).
                    self.go(Step::Init, now);
                } else {
                    self.go(Step::RestoreBounds, now);
                }
                Ok(())
            }
            (Step::Reencode, Reply::Committed(c)) => {
                self.take_new_codecs();
                // What was written is replayed like all else that the stores do not have.
                self.go(if c.retried { Step::Init } else { Step::RestoreBounds }, now);
                Ok(())
            }
            (Step::RestoreBounds, Reply::Bounds(b)) => {
                self.take_bounds(&b);
                self.begin_restore(cx)
            }
            (step, reply) => Err(Error::new(
                ErrorKind::Internal,
                format!("the broker answered {reply:?} to {step:?}; this is a defect of the broker's implementation"),
            )),
        }
    }

    // --- topics ------------------------------------------------------------------------------------------------------

    fn outer_topics(graph: &Graph, config: &Config) -> Vec<Arc<str>> {
        let all: BTreeSet<&str> = graph
            .sources
            .iter()
            .map(|s| s.topic.as_str())
            .chain(graph.sinks.iter().map(|s| s.topic.as_str()))
            .chain(config.dead_letter_topic.as_deref())
            .collect();
        all.into_iter().map(Arc::from).collect()
    }

    fn topics_described(&mut self, cx: &mut StartCx<'_>, found: Vec<Option<TopicInfo>>) -> Result<()> {
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
    fn changelog_partitions(&self) -> Vec<TopicPartition> {
        if self.recovering || !self.targets.is_empty() {
            let all = self.targets.iter();
            return all.flat_map(|t| (0..t.partitions).map(|p| TopicPartition::new(t.topic.clone(), p))).collect();
        }
        let all = self.internals.iter().skip(1).flatten();
        all.flat_map(|t| (0..t.partitions).map(|p| TopicPartition::new(t.name.clone(), p))).collect()
    }

    fn take_bounds(&mut self, bounds: &[Bounds]) {
        self.changelog_bounds.clear();
        for (tp, b) in self.changelog_partitions().iter().zip(bounds) {
            self.changelog_bounds.entry(tp.topic.to_string()).or_default().insert(tp.partition, *b);
        }
    }

    // --- the epoch topic ---------------------------------------------------------------------------------------------

    fn fetch_epochs(cx: &mut StartCx<'_>) -> Result<()> {
        let partition = TopicPartition::new(epoch_topic(cx.config.application_id()?), 0);
        cx.io.fetch(partition, RESTORE_FETCH);
        Ok(())
    }

    fn fetched(&mut self, cx: &mut StartCx<'_>, f: Fetched) -> Result<()> {
        match self.step {
            Step::ReadEpochs { end, .. } if f.partition.topic.ends_with("-stoat-epochs") => {
                for r in f.batch.iter() {
                    match (r.key, r.value) {
                        (Some(EPOCH_KEY), Some(v)) => self.record = Some(decode("epoch", v)?),
                        (Some(PLAN_KEY), Some(v)) => self.plan_record = Some(decode("plan", v)?),
                        _ => {}
                    }
                }
                if f.position >= end || f.caught_up { self.epochs_read(cx) } else { Self::fetch_epochs(cx) }
            }
            Step::Restore => self.restored(cx, &f),
            _ => Ok(()),
        }
    }

    fn epochs_read(&mut self, cx: &mut StartCx<'_>) -> Result<()> {
        let Step::ReadEpochs { from, end, start } = self.step else {
            return Err(Error::new(ErrorKind::Internal, "the epoch topic was read outside its step"));
        };
        if from > start && (self.record.is_none() || self.plan_record.is_none()) {
            // The newest of each key lies further back: compaction has not been here, or the plan is old.
            let from = start.max(from - 16 * (end - from).max(EPOCHS_FROM_END));
            self.go(Step::OpenEpochs { from, end }, cx.now);
            return Ok(());
        }
        let owner = self.record.as_ref().map(|r| r.incarnation.clone());
        if self.recovering {
            if owner.as_deref() != Some(self.incarnation.as_str()) {
                return Err(taken_over(owner.as_deref()));
            }
            let next = if self.look_first { Step::Init } else { Step::RestoreBounds };
            self.look_first = false;
            self.go(next, cx.now);
            return Ok(());
        }
        match &self.first_owner {
            _ if owner.as_deref() == Some(self.incarnation.as_str()) => {
                // The claim whose outcome was unknown had been applied.
                self.claimed_at = end;
                if !self.targets.is_empty() {
                    self.go(Step::RestoreBounds, cx.now);
                    return Ok(());
                }
            }
            Owner::Unread => self.first_owner = Owner::Seen(owner),
            Owner::Seen(first) if *first != owner => return Err(taken_over(owner.as_deref())),
            Owner::Seen(_) => {}
        }
        self.go(Step::Found, cx.now);
        Ok(())
    }

    // --- the decision where to begin -----------------------------------------------------------------------------------

    fn decide(&mut self, cx: &StartCx<'_>) {
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

    fn changelogs_described(&mut self) -> Result<()> {
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

    fn claim(&mut self, cx: &StartCx<'_>, epochs: &Arc<str>) -> Command {
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

    // --- a new codec -------------------------------------------------------------------------------------------------

    /// The places of the changelogs whose keys another codec wrote, and that codec.
    fn outdated(&self) -> impl Iterator<Item = (usize, &str)> {
        let recorded = self.plan_record.as_ref().map(|p| &p.changelogs);
        self.plan().changelogs.iter().enumerate().filter_map(move |(i, c)| {
            let known = recorded?.get(&*c.topic)?;
            (known.codec != c.key_codec).then_some((i, known.codec.as_str()))
        })
    }

    /// Says of all stores that their keys are as the topology declares them.
    fn take_new_codecs(&mut self) {
        let Some(record) = &mut self.plan_record else { return };
        for c in self.plan.iter().flat_map(|p| &p.changelogs) {
            if let Some(known) = record.changelogs.get_mut(&*c.topic) {
                known.codec.clone_from(&c.key_codec);
            }
        }
    }

    /// All rows of the stores that another codec wrote, written anew, and the plan that says so, in one transaction.
    fn reencode(&mut self, cx: &StartCx<'_>, epochs: &Arc<str>) -> Result<Command> {
        let (mut all, mut weight) = (Vec::new(), 0);
        for (i, from) in self.outdated() {
            let c = &self.plan().changelogs[i];
            let how = reencoding(cx.graph, &c.name, from).ok_or_else(|| {
                Error::new(ErrorKind::Internal, format!("store `{}` is to be re-encoded, but nothing says how", c.name))
            })?;
            tracing::warn!(
                "the keys of store `{}`, written by codec {from}, are written anew with {}",
                c.name,
                c.key_codec
            );
            let rows =
                reencoded(&*cx.stores[i], c.kind, how, cx.wall).map_err(|e| e.at(format!("store `{}`", c.name)))?;
            weight += rows
                .iter()
                .map(|r| size_of::<Row>() + 2 * r.key.len() + r.value.as_ref().map_or(0, Vec::len))
                .sum::<usize>();
            all.push((StoreId(i as u32), rows));
        }
        let budget = cx.config.memory_budget.as_u64();
        if weight as u64 > budget {
            return Err(Error::new(
                ErrorKind::State,
                format!(
                    "to write keys anew with another codec takes {weight} bytes of memory, in one transaction: set \
                     `stoat.memory.budget` above that for this start; it is {budget} now"
                ),
            ));
        }
        let before = self.plan_record.clone();
        self.take_new_codecs();
        let record = self.record.clone().unwrap_or_default();
        let epoch = epoch_batch(epochs, &record, self.plan_record.as_ref(), cx.wall);
        // Until it is committed the plan is that of before.
        self.plan_record = before;
        let batches = vec![changelog_batch(&self.targets, &all), epoch];
        Ok(Command::Transact(Arc::new(Transaction { batches, ..Transaction::default() })))
    }

    // --- restore -----------------------------------------------------------------------------------------------------

    fn begin_restore(&mut self, cx: &mut StartCx<'_>) -> Result<()> {
        let record = self.record.clone().unwrap_or_default();
        if cx.stores.is_empty() {
            for c in &self.plan().changelogs {
                cx.stores.push(cx.set.open(&c.name, c.kind)?);
            }
        }
        let mut report = RestoreReport::default();
        let (mut replays, mut todo) = (Vec::new(), Vec::new());
        for (i, c) in self.plan().changelogs.iter().enumerate() {
            let store = &cx.stores[i];
            store.begin(cx.generation);
            let bounds = self.changelog_bounds.get(&*c.topic).cloned().unwrap_or_default();
            let target = &self.targets[i];
            let described = self.internals.get(i + 1).and_then(Option::as_ref);
            let found = match described {
                Some(t) => FoundChangelog::new(t, bounds.clone()),
                None => FoundChangelog {
                    topic_id: target.topic_id.clone(),
                    bounds: bounds.clone(),
                    delete_retention: target.delete_retention,
                },
            };
            let recorded =
                self.plan_record.as_ref().and_then(|p| p.changelogs.get(&*c.topic)).map(|r| RecordedChangelog {
                    topic_id: r.id.clone(),
                    ends: record.changelogs.get(&*c.topic).cloned().unwrap_or_default(),
                });
            let facts = ChangelogFacts { topic: c.topic.clone(), recorded, found: Some(found.clone()) };
            let stamp = store.stamp()?;
            let kept = match decide(stamp.as_ref(), &facts, cx.wall, STAMP_MARGIN) {
                RestoreDecision::Tail { .. } => stamp,
                RestoreDecision::Rebuild { reason } => {
                    if stamp.is_some() {
                        tracing::warn!("store `{}` is rebuilt from its changelog: {reason}", c.name);
                        store.clear()?;
                    }
                    report.rebuilt += 1;
                    None
                }
                RestoreDecision::Refuse { reason } => return Err(reason.into_error()),
            };
            let placement = Placement::LaneKey { partitions: target.partitions };
            let replay = Replay::new(c.kind, c.topic.clone(), &found, placement, kept.as_ref(), cx.wall);
            for (tp, from) in replay.positions() {
                let b = bounds[&tp.partition];
                report.in_changelogs += (b.end - b.start) as u64;
                if from < b.end {
                    todo.push((i, tp, from));
                }
            }
            replays.push(replay);
        }
        self.report = report;
        todo.reverse();
        self.go(Step::Restore, cx.now);
        self.restore =
            Some(Restore { replays, todo, open: BTreeMap::new(), writing: BTreeMap::new(), finishing: false });
        self.more(cx);
        Ok(())
    }

    fn more(&mut self, cx: &mut StartCx<'_>) {
        let epoch = self.record.as_ref().map_or_else(Default::default, |r| r.epoch);
        let Some(r) = &mut self.restore else { return };
        while r.open.len() < RESTORE_WIDTH
            && let Some((i, tp, from)) = r.todo.pop()
        {
            cx.io.submit(Command::Open { partition: tp.clone(), offset: from });
            cx.io.fetch(tp.clone(), RESTORE_FETCH);
            r.open.insert(tp, i);
        }
        if r.open.is_empty() && r.writing.is_empty() && !r.finishing {
            r.finishing = true;
            let batches = r.replays.iter_mut().zip(cx.stores.iter()).map(|(p, s)| (Arc::clone(s), p.finish(epoch)));
            let batches: Vec<_> = batches.collect();
            let id = cx.io.write(|id| WriteJob { id, generation: cx.generation, batches, flush: true });
            r.writing.insert(id, None);
        }
    }

    fn restored(&mut self, cx: &mut StartCx<'_>, f: &Fetched) -> Result<()> {
        let Some(r) = &mut self.restore else { return Ok(()) };
        let Some(&i) = r.open.get(&f.partition) else {
            return Ok(());
        };
        self.report.replayed += f.batch.len() as u64;
        let batch = r.replays[i].batch(f, cx.wall)?;
        let end = self.changelog_bounds[&*f.partition.topic][&f.partition.partition].end;
        let through = f.caught_up || f.position >= end;
        let batches = vec![(Arc::clone(&cx.stores[i]), batch)];
        let id = cx.io.write(|id| WriteJob { id, generation: cx.generation, batches, flush: false });
        r.writing.insert(id, Some((f.partition.clone(), through)));
        Ok(())
    }

    fn written(&mut self, cx: &mut StartCx<'_>, job: u64, result: Result<()>) -> Result<()> {
        let Some(r) = &mut self.restore else { return Ok(()) };
        let Some(what) = r.writing.remove(&job) else {
            return Ok(());
        };
        result?;
        if let Some((tp, through)) = what {
            if through {
                r.open.remove(&tp);
                cx.io.submit(Command::Close { partition: tp });
            } else {
                cx.io.fetch(tp, RESTORE_FETCH);
            }
            self.more(cx);
        }
        Ok(())
    }

    fn ready(&mut self) -> Outcome {
        let plan = self.plan.take().expect("the plan is made in the first step");
        let known = Known {
            epochs: epoch_topic(&plan.application_id),
            targets: std::mem::take(&mut self.targets),
            plan_record: self.plan_record.take().unwrap_or_default(),
            record: self.record.take().unwrap_or_default(),
            claimed_at: self.claimed_at,
            plan,
        };
        Outcome::Ready(Box::new(known), self.report)
    }
}

/// What writes the keys of a store anew that the codec `from` wrote.
fn reencoding<'a>(graph: &'a Graph, store: &str, from: &str) -> Option<&'a Reencode> {
    graph.reencode.iter().find(|r| r.store == store && r.from == from)
}

/// The rows that turn a store's keys into those of another codec: one per key, so that their order does not matter.
fn reencoded(store: &dyn ByteStore, kind: StoreKind, how: &Reencode, now: Timestamp) -> Result<Vec<Row>> {
    let mut rows: BTreeMap<Vec<u8>, Row> = BTreeMap::new();
    let mut old = Vec::new();
    let mut done = Ok(());
    store.scan(None, None, &mut |key, value| {
        match reencoded_row(kind, how, key, value, now) {
            Ok((row, lane_key)) => {
                old.push((key.to_vec(), lane_key, row.timestamp));
                if rows.insert(row.key.clone(), row).is_some() {
                    done = Err(Error::new(
                        ErrorKind::State,
                        "two of its keys are one under the new codec, so one would be lost: choose a codec that tells them apart",
                    ));
                }
            }
            Err(e) => done = Err(e),
        }
        done.is_ok()
    })?;
    done?;
    for (key, lane_key, timestamp) in old {
        rows.entry(key).or_insert_with_key(|key| Row { key: key.clone(), lane_key, value: None, timestamp });
    }
    Ok(rows.into_values().collect())
}

/// A row under its new key, and the length of its old lane key.
fn reencoded_row(kind: StoreKind, how: &Reencode, key: &[u8], value: &[u8], now: Timestamp) -> Result<(Row, usize)> {
    let mut row = row_of_local(kind, key, value)?;
    if kind != StoreKind::TimestampedKeyValue {
        // Its kind keeps none.
        row.timestamp = now.max(Timestamp(0));
    }
    let (lane_key, tail) = key.split_at(row.lane_key);
    row.key.clear();
    (how.key)(lane_key, &mut row.key).map_err(|e| {
        Error::new(ErrorKind::State, format!("a key of {} bytes is none of codec {}: {e}", lane_key.len(), how.from))
    })?;
    row.lane_key = row.key.len();
    row.key.extend_from_slice(tail);
    Ok((row, lane_key.len()))
}

/// The end of a process that is no longer the owner.
pub fn taken_over(owner: Option<&str>) -> Error {
    Error::new(
        ErrorKind::Fenced,
        format!(
            "another instance of this application has taken over ({}): this one discards what it has not committed and stops",
            owner.unwrap_or("its epoch record is gone")
        ),
    )
}

fn missing_topics(missing: &[String], all: &[String]) -> Error {
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

fn reset(config: &Config, bounds: &Bounds) -> NextOffset {
    match config.start_reset {
        Reset::Earliest => bounds.start,
        Reset::Latest => bounds.end,
    }
}

fn replication(config: &Config) -> i32 {
    if config.topic_replication == 0 { -1 } else { config.topic_replication as i32 }
}

fn settings(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn names(topics: &[NewTopic]) -> String {
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
