//! The epoch behind a barrier: what the lanes froze becomes one transaction, and after its commit the stores take it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{End, Mode, Run, RunCx, Then};
use crate::broker::{BrokerError, BrokerErrorKind, Command, Committed, OpId, Transaction};
use crate::config::{Config, Guarantee};
use crate::engine::epoch::{changelog_batch, epoch_batch, merge, store_batches};
use crate::engine::epoch_record::{EpochRecord, InputCut};
use crate::engine::message::{Control, Frozen};
use crate::engine::remedy::{Call, Remedy, remedy};
use crate::engine::tag::Tags;
use crate::engine::writer::WriteJob;
use crate::error::{Error, ErrorKind};
use crate::gate::{Decision, Failed, Gate, Tally, Verdict};
use crate::id::{Epoch, SinkId, StoreId};
use crate::operator::Outputs;
use crate::record::ProduceBatch;
use crate::store::{Batch, ByteStore, Row};
use crate::time::Timestamp;

/// Weight of the newest commit in the mean of commit durations.
const COMMIT_ALPHA: f64 = 0.15;
/// How often a commit of unknown outcome is tried again before it is recovered.
const COMMIT_TRIES: u32 = 5;

/// How far the epoch behind the barrier is.
pub(super) enum Stage {
    Freezing,
    Committing {
        op: OpId,
        tries: u32,
    },
    /// Committed; the lanes finish what they were given, so that all see the stores change at one ingest number.
    Draining,
    Applying {
        job: u64,
    },
}

impl Stage {
    /// How long it may last, in ms (I-8).
    pub(super) fn limit(&self, config: &Config) -> u64 {
        let limit = config.commit_timeout.as_millis() as u64;
        match self {
            // A commit is bounded by the broker's client, which gives it the transaction's time-out.
            Self::Committing { .. } => limit + config.transaction_timeout.as_millis() as u64,
            Self::Freezing | Self::Draining | Self::Applying { .. } => limit,
        }
    }
}

pub(super) struct Pending {
    pub(super) epoch: Epoch,
    pub(super) stage: Stage,
    pub(super) since: u64,
    pub(super) number: u64,
    pub(super) cuts: Vec<InputCut>,
    pub(super) wall: Timestamp,
    pub(super) schedules: BTreeMap<String, Timestamp>,
    pub(super) frozen: Vec<Frozen>,
    pub(super) rows: Vec<(StoreId, Vec<Row>)>,
    pub(super) record: EpochRecord,
    pub(super) committed: Option<Committed>,
    /// What was submitted, until its outcome is known: a refusal names a place in it.
    pub(super) transaction: Arc<Transaction>,
    /// Where each output comes from, by lane.
    pub(super) tags: Vec<Tags>,
    /// What was left out.
    pub(super) tally: Tally,
    /// Bytes of outputs: the lanes have handed them over and count them no longer.
    pub(super) bytes: usize,
    pub(super) keep_alive: bool,
    /// Whether the stores are made durable with it.
    pub(super) flush: bool,
    /// Nothing was taken behind its barrier: the one before a pause or a graceful stop.
    pub(super) last: bool,
}

impl Run {
    pub(super) fn commit(&mut self, cx: &mut RunCx<'_>) {
        let Some(p) = &mut self.pending else { return };
        let plan = &self.known.plan;
        let mut frozen = std::mem::take(&mut p.frozen);
        frozen.sort_by_key(|f| f.lane);
        let mut record = EpochRecord {
            epoch: p.epoch,
            incarnation: cx.incarnation.to_owned(),
            wall: p.wall,
            schedules: std::mem::take(&mut p.schedules),
            changelogs: self.known.record.changelogs.clone(),
            ..EpochRecord::default()
        };
        for (input, cut) in plan.inputs.iter().zip(&p.cuts) {
            record.set_input(&input.partition, *cut);
        }
        let mut outputs: Vec<Outputs> = Vec::with_capacity(frozen.len());
        for f in frozen {
            let Frozen { lane, outputs: o, stores, watermark, punctuated, tally, .. } = f;
            p.tally.add(&tally);
            let sub = &plan.subs[lane.sub.0 as usize].name;
            let at = record.watermarks.entry(sub.clone()).or_insert(watermark);
            *at = (*at).min(watermark);
            if punctuated < watermark {
                record.punctuated.insert(sub.clone(), punctuated);
            }
            outputs.push(o);
            p.rows.extend(stores);
        }
        p.bytes = outputs.iter().map(Outputs::weight).sum();
        let order = merge(&outputs);
        let (batches, tags): (Vec<ProduceBatch>, Vec<Tags>) = outputs.into_iter().map(|o| (o.batch, o.tags)).unzip();
        p.tags = tags;
        let offsets = plan.inputs.iter().zip(&p.cuts).filter_map(|(i, c)| {
            let known = self.committed_offsets.get(&i.partition) == Some(&c.next);
            (p.keep_alive || !known).then(|| (i.partition.clone(), c.next))
        });
        let offsets: Vec<_> = offsets.collect();
        let mut transaction = Transaction { offsets, ..Transaction::default() };
        if cx.config.guarantee == Guarantee::AtLeastOnce {
            transaction.before = batches;
            transaction.before_order = order;
        } else {
            transaction.ordered = batches.len();
            transaction.batches = batches;
            transaction.order = order;
        }
        transaction.batches.push(changelog_batch(&self.known.targets, &p.rows));
        transaction.batches.push(epoch_batch(&self.known.epochs, &record, None, cx.wall));
        p.record = record;
        p.since = cx.now;
        p.transaction = Arc::new(transaction);
        let op = cx.io.submit(Command::Transact(p.transaction.clone()));
        p.stage = Stage::Committing { op, tries: 0 };
    }

    pub(super) fn commit_failed(&mut self, cx: &mut RunCx<'_>, e: &BrokerError) -> Result<(), End> {
        let Some(p) = &mut self.pending else { return Ok(()) };
        let epoch = p.epoch;
        let recover = |fenced, counts| {
            Err(End::Recover { reason: format!("the transaction of epoch {epoch} failed: {e}"), fenced, counts })
        };
        match remedy(Call::Epoch, e.kind) {
            Remedy::CommitAgain => {
                let Stage::Committing { tries, .. } = p.stage else {
                    return Ok(());
                };
                if tries >= COMMIT_TRIES {
                    return recover(false, false);
                }
                tracing::warn!(
                    "the outcome of the commit of epoch {epoch} is unknown ({e}); trying the same commit again"
                );
                let op = cx.io.submit(Command::CommitAgain);
                p.stage = Stage::Committing { op, tries: tries + 1 };
                Ok(())
            }
            Remedy::Recover { look_first, counts } => recover(look_first, counts),
            Remedy::Gate => {
                let place = if let BrokerErrorKind::Refused(place) = e.kind { place } else { None };
                Err(self.refused(place, e))
            }
            Remedy::End(kind) => {
                let text = match e.kind {
                    BrokerErrorKind::UnknownTopic => {
                        format!("a topic that is written to is gone ({e}): create it anew")
                    }
                    BrokerErrorKind::Unauthorized => format!("not allowed to write ({e}): grant the rights"),
                    _ => format!("the transaction of epoch {epoch} failed for good: {e}"),
                };
                Err(End::Fatal(Error::new(kind, text)))
            }
            // These are for starts.
            Remedy::Again | Remedy::InitAndAgain | Remedy::LookAgain => recover(false, true),
        }
    }

    /// The broker will never take a record of the transaction: what becomes of it, and so of the epoch.
    fn refused(&mut self, place: Option<(u32, u32)>, e: &BrokerError) -> End {
        let Some(p) = &self.pending else { return End::Fatal(Error::new(ErrorKind::Refused, e.to_string())) };
        let epoch = p.epoch;
        let recover =
            |what: &str, counts| End::Recover { reason: format!("epoch {epoch}: {what}"), fenced: false, counts };
        let Some((batch, i)) = place else {
            let counts = !self.verdicts.refused_blindly();
            let what = format!("the broker refuses a record: {e}; it does not say which, so the epoch is tried again");
            return recover(&what, counts);
        };
        let (transaction, batch, i) = (&p.transaction, batch as usize, i as usize);
        let (own, lane) = match batch.checked_sub(transaction.batches.len()) {
            Some(before) => (transaction.before.get(before), Some(before)),
            None => (transaction.batches.get(batch), (batch < transaction.ordered).then_some(batch)),
        };
        let Some(r) = own.filter(|b| i < b.len()).map(|b| b.get(i)) else {
            return recover(&format!("the broker refuses a record that is not in the transaction: {e}"), true);
        };
        let tag = lane.and_then(|lane| p.tags.get(lane)?.get(i));
        let Some(tag) = tag else {
            return End::Fatal(Error::new(
                ErrorKind::Refused,
                format!(
                    "the broker refuses a record of topic `{}`, which keeps the state of this application: {e}; nothing of \
                     epoch {epoch} was committed. Raise `max.message.bytes` of the topic, or keep smaller values",
                    r.topic
                ),
            ));
        };
        let sink = SinkId(r.topic_idx);
        let origin = self.ingest.origin(tag.number);
        // A schedule's records are of no partition.
        let source =
            origin.and_then(|o| Some((&self.known.plan.inputs.get(o.partition as usize)?.partition, o.offset)));
        let place = origin.map_or_else(
            || "a timer or punctuator".to_owned(),
            |o| format!("{}@{}", self.ingest.partition_name(o.partition), o.offset),
        );
        let error = Error::new(
            ErrorKind::Refused,
            format!(
                "the broker refuses an output to topic `{}` ({} bytes): {e}",
                r.topic,
                r.value.map_or(0, <[u8]>::len)
            ),
        );
        if self.known.plan.letters == Some(sink) {
            let text =
                "this is a dead letter, and there is no other place for it; raise `max.message.bytes` of that topic";
            return End::Fatal(error.at(text).at(place));
        }
        let failed = Failed {
            gate: Gate::Produce,
            node: self.gates.sink_nodes.get(sink.0 as usize).map_or("", |n| n),
            source,
            key: r.key,
            value: r.value,
            headers: r.headers,
            timestamp: r.timestamp,
            error: &error,
        };
        match self.gates.produce.decide(&failed) {
            Decision::Fail => {
                let text =
                    "nothing of it was committed; `stoat.production-exception-handler` says what else may be done";
                End::Fatal(error.at(format!("epoch {epoch}")).at(text).at(place))
            }
            Decision::Retry => recover(&format!("{place}: {error}; it is tried again"), true),
            decision => {
                let what = format!("{place}: {error}; the epoch is replayed without this output");
                let new = self.verdicts.add(Verdict {
                    origin,
                    path: tag.path.clone(),
                    sink,
                    bytes: crate::gate::verdict::bytes(r.key, r.value, r.timestamp, r.headers),
                    decision,
                    kind: ErrorKind::Refused,
                    text: error.to_string(),
                });
                recover(&what, !new)
            }
        }
    }

    pub(super) fn committed(&mut self, cx: &mut RunCx<'_>, c: Committed) {
        let Some(p) = &mut self.pending else { return };
        p.transaction = Arc::default();
        p.tags = Vec::new();
        let cuts = &p.cuts;
        self.verdicts.committed(|partition| cuts.get(partition as usize).map(|c| c.next));
        if !p.tally.is_empty() {
            p.tally.publish();
        }
        let took = cx.now.saturating_sub(p.since) as f64;
        self.commit_mean += COMMIT_ALPHA * (took - self.commit_mean);
        self.epochs_since_flush += 1;
        let flush = p.keep_alive || self.epochs_since_flush >= cx.config.flush_epochs;
        if flush {
            self.epochs_since_flush = 0;
        }
        for (tp, end) in &c.ends {
            if let Some(t) = self.known.targets.iter().find(|t| t.topic == tp.topic) {
                let ends = self.known.record.changelogs.entry(t.topic.to_string()).or_default();
                ends.insert(tp.partition, *end);
            }
        }
        p.flush = flush;
        p.committed = Some(c);
        p.since = cx.now;
        p.stage = Stage::Draining;
        if self.known.plan.peeks {
            self.ingest.hand_over(&mut *self.net);
        } else {
            self.apply(cx);
        }
    }

    /// Whether a committed epoch waits for the lanes to come to rest before it is applied.
    pub(super) fn draining(&self) -> bool {
        matches!(&self.pending, Some(Pending { stage: Stage::Draining | Stage::Applying { .. }, .. }))
            && self.known.plan.peeks
    }

    /// Whether a commit is being written to the stores.
    pub(super) fn applying(&self) -> bool {
        matches!(&self.pending, Some(Pending { stage: Stage::Applying { .. }, .. }))
    }

    /// Writes the committed epoch to the stores.
    pub(super) fn apply(&mut self, cx: &mut RunCx<'_>) {
        let Some(p) = &mut self.pending else { return };
        if !matches!(p.stage, Stage::Draining) {
            return;
        }
        let rows = std::mem::take(&mut p.rows);
        let ends = p.committed.as_ref().map_or(&[][..], |c| &c.ends);
        let batches: Vec<(Arc<dyn ByteStore>, Batch)> =
            store_batches(&self.known.targets, rows, ends, p.epoch, cx.wall, p.flush)
                .into_iter()
                .map(|(s, b)| (Arc::clone(&cx.stores[s.0 as usize]), b))
                .collect();
        let (generation, flush) = (self.generation, p.flush);
        let job = cx.io.write(|id| WriteJob { id, generation, batches, flush });
        p.stage = Stage::Applying { job };
    }

    pub(super) fn applied(&mut self, cx: &mut RunCx<'_>) -> Result<(), End> {
        let Some(p) = self.pending.take() else { return Ok(()) };
        let changelogs = std::mem::take(&mut self.known.record.changelogs);
        self.known.record = EpochRecord { changelogs, ..p.record };
        for (input, cut) in self.known.plan.inputs.iter().zip(&p.cuts) {
            self.committed_offsets.insert(input.partition.clone(), cut.next);
        }
        self.last_commit = cx.now;
        self.stats.epoch = p.epoch.0;
        self.stats.commits += 1;
        self.pace.committed();
        tracing::debug!(epoch = p.epoch.0, records = self.stats.records, "committed");
        self.ingest.forget(p.number);
        if p.last && self.mode == Mode::Draining(Then::Stop) {
            self.mode = Mode::Drained(Then::Stop);
            return Ok(());
        }
        self.ingest.control(&mut *self.net, Control::Applied(p.epoch));
        if p.committed.is_some_and(|c| c.retried) {
            // The lost request may still arrive and would end whatever is open: initialise first (I-9).
            return Err(End::Recover {
                reason: format!("the commit of epoch {} needed a second try", p.epoch),
                fenced: false,
                counts: false,
            });
        }
        if p.last && self.mode == Mode::Draining(Then::Pause) {
            self.mode = Mode::Drained(Then::Pause);
        }
        Ok(())
    }
}
