//! From nothing (or from a fault) to a restored cut: the steps before the first record. No I/O of its own: each step is
//! one command, and what its answer means.
//!
//! ```text
//! first start:  Topics ─ Group ─ Internals ─ Init ─ ReadEpochs ─ Found ─ InputBounds ─ GroupOffsets ─ ChangelogBounds
//!               ─ (decide) ─ CreateChangelogs ─ Changelogs ─ Claim ─ RestoreBounds ─ Restore ─ Ready
//!               (Restore ─ Reencode ─ RestoreBounds ─ Restore ─ Ready, where a store's keys are written anew)
//! recovery:     [ReadEpochs, when fenced] ─ Init ─ ReadEpochs ─ RestoreBounds ─ Restore ─ Ready
//! ```

mod decide;
mod reencode;
mod restore;
mod topics;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::epoch::ChangelogTarget;
use super::epoch_record::{EPOCH_KEY, EpochRecord, PLAN_KEY, PlanRecord, decode};
use super::io::{Io, Reaction};
use super::remedy::{Call, Remedy, remedy};
use crate::broker::{Bounds, BrokerError, BrokerErrorKind, Command, Fetched, NewTopic, Reply, TopicInfo, Transaction};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Generation, NextOffset, TopicPartition};
use crate::plan::{Plan, epoch_topic};
use crate::record::{Headers, ProduceBatch};
use crate::store::{ByteStore, StoreSet};
use crate::time::Timestamp;
use crate::topology::graph::Graph;

use restore::Restore;
use topics::{missing_topics, names, replication, settings};

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
    /// Where the changelogs are, by [`StoreId`](crate::id::StoreId).
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

/// What a start needs from outside.
pub struct StartCx<'a> {
    /// The declared topology.
    pub graph: &'a Graph,
    /// The configuration.
    pub config: &'a Config,
    /// The broker and the store writer.
    pub io: &'a mut Io,
    /// All stores, by [`StoreId`](crate::id::StoreId); opened by the caller.
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
