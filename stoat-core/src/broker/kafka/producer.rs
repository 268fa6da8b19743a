//! The producers: transactions, and records outside of them. Everything here runs on one thread, in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::config::KafkaConfig;
use super::error::{Code, broker_error, kind, transactional};
use super::ffi::{Client, Failure, Kind as ClientKind, Outgoing, ProduceArgs, Queue, QueueEvent, Topic};
use super::link::Link;
use super::spawn;
use crate::broker::{BrokerError, BrokerErrorKind as Kind, Committed, OpId, Reply, Transaction};
use crate::id::{NextOffset, TopicPartition};
use crate::record::ProduceBatch;

/// A command for the producers.
pub(super) enum Job {
    Init(OpId),
    Transact(OpId, Box<Transaction>),
    CommitAgain(OpId),
    Produce(OpId, ProduceBatch),
}

/// The longest single call into librdkafka: between two of them the thread looks whether it should end.
const SLICE: Duration = Duration::from_millis(500);
/// Pause before a call that was answered "try again" is made again.
const AGAIN: Duration = Duration::from_millis(2);
/// An abort gets this long, also when the transaction's own time is spent.
const ABORT: Duration = Duration::from_secs(10);
/// A batch may be this large; when the broker refuses a batch of several records, the next producer sends smaller
/// ones, in the end one record each, because only then the broker's refusal says which record it means.
const BATCH_SIZES: [usize; 3] = [1_000_000, 16_384, 1];

pub(super) fn run(config: &KafkaConfig, link: &Arc<Link>, jobs: &Receiver<Job>) {
    let mut producers = Producers {
        config,
        link,
        session: None,
        phase: Phase::Uninitialised,
        plain: None,
        batch_size: 0,
    };
    while let Ok(job) = jobs.recv() {
        if link.stopping() {
            return;
        }
        let (op, result) = match job {
            Job::Init(op) => (op, producers.init()),
            Job::Transact(op, t) => (op, producers.transact(&t)),
            Job::CommitAgain(op) => (op, producers.commit_again()),
            Job::Produce(op, batch) => (op, producers.produce(&batch)),
        };
        link.done(op, result);
    }
}

/// Where the transactional producer stands.
enum Phase {
    /// No producer, or one that must not be used any more.
    Uninitialised,
    /// Initialisation was begun and may be resumed.
    Initialising,
    /// Between transactions.
    Ready,
    /// A commit's outcome is unknown.
    CommitUnknown,
}

struct Producers<'a> {
    config: &'a KafkaConfig,
    link: &'a Arc<Link>,
    session: Option<Session>,
    phase: Phase,
    plain: Option<Session>,
    /// Index into `BATCH_SIZES`.
    batch_size: usize,
}

type Outcome = Result<Reply, BrokerError>;

impl Producers<'_> {
    fn init(&mut self) -> Outcome {
        if !matches!(self.phase, Phase::Initialising) {
            // One client can be initialised once; a new one also forgets whatever the old one had begun.
            self.phase = Phase::Uninitialised;
            self.session = None;
            let settings = self.config.transactional(BATCH_SIZES[self.batch_size]);
            self.session = Some(Session::new(&settings, self.link)?);
            self.phase = Phase::Initialising;
        }
        let client = Arc::clone(
            &self
                .session
                .as_ref()
                .expect("made above or when initialisation was begun")
                .client,
        );
        let result = self.repeat(self.deadline(), |left| client.init_transactions(left));
        match result {
            Ok(()) => {
                self.phase = Phase::Ready;
                self.link.up();
                Ok(Reply::Done)
            }
            Err(f) => {
                let kind = transactional(&f);
                if kind != Kind::Retriable {
                    self.phase = Phase::Uninitialised;
                }
                Err(self.error(kind, "the transactional producer could not be initialised", &f))
            }
        }
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.config.transaction_timeout
    }

    /// Makes a call again and again while it may be resumed.
    fn repeat(&self, deadline: Instant, mut call: impl FnMut(Duration) -> Result<(), Failure>) -> Result<(), Failure> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match call(left.min(SLICE)) {
                Err(f) if f.retriable && !f.abort && !f.fatal && !self.link.stopping() && !left.is_zero() => {
                    if f.code != Code::TIMED_OUT {
                        self.link.pause(AGAIN);
                    }
                }
                other => return other,
            }
        }
    }

    fn error(&self, kind: Kind, what: &str, f: &Failure) -> BrokerError {
        let mut e = broker_error(kind, what, f.code, &f.text);
        if kind == Kind::Retriable || kind == Kind::Unknown {
            e.message.push_str(&self.link.why());
        }
        e
    }

    fn transact(&mut self, t: &Transaction) -> Outcome {
        match self.phase {
            Phase::Ready => {}
            Phase::CommitUnknown => {
                return Err(BrokerError::new(
                    Kind::Unknown,
                    "the outcome of the commit before is unknown: repeat it, or initialise the producer",
                ));
            }
            Phase::Uninitialised | Phase::Initialising => {
                return Err(BrokerError::new(
                    Kind::Fatal,
                    "the transactional producer is not initialised",
                ));
            }
        }
        if !t.before.is_empty() {
            let behind = t.batches.len() as u32;
            self.produce_plain(&t.before, || t.places_before()).map_err(|mut e| {
                if let Kind::Refused(Some((batch, _))) = &mut e.kind {
                    *batch += behind;
                }
                e
            })?;
        }
        let deadline = self.deadline();
        let session = self.session.as_mut().expect("ready means that there is one");
        session.reports.reset();
        session.client.watch().reset();
        if let Err(f) = session.client.begin_transaction() {
            let kind = transactional(&f);
            self.phase = Phase::Uninitialised;
            return Err(self.error(kind, "the transaction could not begin", &f));
        }
        if let Err(trouble) = session.send_all(&t.batches, t.places(), deadline, self.link) {
            return Err(self.abort_after(trouble, t));
        }
        // Before the flush: its round trips overlap those of the records.
        if !t.offsets.is_empty() {
            let client = Arc::clone(&session.client);
            let sent = self.repeat(deadline, |left| {
                client.send_offsets(&t.offsets, &self.config.group_id, left)
            });
            if let Err(f) = sent {
                return Err(self.abort_after(Trouble::Call("the offsets could not be added to the transaction", f), t));
            }
        }
        // Here and not only inside the commit: while records are missing nothing has been asked to commit, so the
        // outcome of a failure is known.
        let session = self.session.as_ref().expect("see above");
        if let Err(trouble) = session.flush(deadline, self.link) {
            return Err(self.abort_after(trouble, t));
        }
        self.commit(deadline, Some(t), false)
    }

    fn commit(&mut self, deadline: Instant, t: Option<&Transaction>, retried: bool) -> Outcome {
        let session = self.session.as_ref().expect("a commit has a session");
        let client = Arc::clone(&session.client);
        match self.repeat(deadline, |left| client.commit_transaction(left)) {
            Ok(()) => {
                self.phase = Phase::Ready;
                self.link.up();
                let retried = retried || client.watch().unanswered() > 0;
                let session = self.session.as_ref().expect("see above");
                Ok(Reply::Committed(Committed {
                    ends: session.reports.ends(),
                    retried,
                }))
            }
            Err(f) if f.fatal => {
                self.phase = Phase::Uninitialised;
                let kind = transactional(&f);
                Err(self.error(kind, "the transaction could not be committed", &f))
            }
            Err(f) if f.abort => {
                let trouble = Trouble::Call("the transaction could not be committed", f);
                match t {
                    Some(t) => Err(self.abort_after(trouble, t)),
                    None => Err(self.abort_after(trouble, &Transaction::default())),
                }
            }
            Err(f) => {
                self.phase = Phase::CommitUnknown;
                Err(self.error(Kind::Unknown, "it is unknown whether the transaction was committed", &f))
            }
        }
    }

    fn commit_again(&mut self) -> Outcome {
        if !matches!(self.phase, Phase::CommitUnknown) {
            return Err(BrokerError::new(
                Kind::Abort,
                "there is no commit of unknown outcome to repeat",
            ));
        }
        self.commit(self.deadline(), None, true)
    }

    /// Aborts the open transaction and says why, as precisely as the delivery reports allow.
    fn abort_after(&mut self, trouble: Trouble, t: &Transaction) -> BrokerError {
        let session = self.session.as_ref().expect("a transaction has a session");
        let client = Arc::clone(&session.client);
        let fatal = matches!(&trouble, Trouble::Call(_, f) if f.fatal);
        let aborted = !fatal && {
            let deadline = Instant::now() + ABORT;
            match self.repeat(deadline, |left| client.abort_transaction(left)) {
                Ok(()) => true,
                Err(f) => {
                    tracing::warn!(
                        "the transaction could not be aborted, the next producer ends it: {}",
                        f.text
                    );
                    false
                }
            }
        };
        self.phase = if aborted { Phase::Ready } else { Phase::Uninitialised };
        let session = self.session.as_ref().expect("see above");
        let verdict = session.reports.verdict();
        let mut e = self.judge(trouble, verdict, &mut t.places());
        if matches!(e.kind, Kind::Fenced | Kind::Fatal) {
            self.phase = Phase::Uninitialised;
        }
        if e.kind == Kind::Retriable {
            // Within a transaction that means: this one is gone, another may work.
            e.kind = Kind::Abort;
        }
        e
    }

    fn judge(
        &mut self,
        trouble: Trouble,
        verdict: Verdict,
        places: &mut dyn Iterator<Item = (u32, u32)>,
    ) -> BrokerError {
        // Fencing shows in the reports of all records, too: what the call says goes first then.
        if let Trouble::Call(what, f) = &trouble
            && transactional(f) == Kind::Fenced
        {
            return self.error(Kind::Fenced, what, f);
        }
        match verdict {
            Verdict::Refused(ordinal, code, text) => {
                let place = places.nth(ordinal);
                broker_error(Kind::Refused(place), "the broker refuses a record", code, &text)
            }
            Verdict::BatchRefused(code, text) => {
                if self.batch_size + 1 < BATCH_SIZES.len() {
                    self.batch_size += 1;
                    // The size is a setting of the client: the next one has it.
                    self.phase = Phase::Uninitialised;
                    self.plain = None;
                    let size = BATCH_SIZES[self.batch_size];
                    tracing::warn!("the broker refuses a whole batch ({text}); from now on a batch has {size} bytes");
                    broker_error(
                        Kind::Abort,
                        "the broker refuses a batch of records, the next are smaller",
                        code,
                        &text,
                    )
                } else {
                    broker_error(Kind::Refused(None), "the broker refuses a record", code, &text)
                }
            }
            Verdict::Failed(code, text) => broker_error(kind(code), "a record could not be written", code, &text),
            Verdict::None => match trouble {
                Trouble::Call(what, f) => self.error(transactional(&f), what, &f),
                Trouble::Refused(ordinal, f) => {
                    let place = places.nth(ordinal);
                    broker_error(Kind::Refused(place), "the record is refused", f.code, &f.text)
                }
                Trouble::Failing => BrokerError::new(Kind::Abort, "a record could not be written"),
                Trouble::TooLate => {
                    let mut e = BrokerError::new(Kind::Retriable, "the records were not written within the time-out");
                    e.message.push_str(&self.link.why());
                    e
                }
            },
        }
    }

    fn produce(&mut self, batch: &ProduceBatch) -> Outcome {
        let places = || (0..batch.len() as u32).map(|i| (0, i));
        let ends = self.produce_plain(std::slice::from_ref(batch), places)?;
        Ok(Reply::Committed(Committed { ends, retried: false }))
    }

    /// Writes records outside of a transaction and waits until all are acknowledged.
    fn produce_plain<P: Iterator<Item = (u32, u32)>>(
        &mut self,
        batches: &[ProduceBatch],
        places: impl Fn() -> P,
    ) -> Result<Vec<(TopicPartition, NextOffset)>, BrokerError> {
        let deadline = self.deadline();
        if self.plain.is_none() {
            self.plain = Some(Session::new(
                &self.config.plain(BATCH_SIZES[self.batch_size]),
                self.link,
            )?);
        }
        let session = self.plain.as_mut().expect("made above");
        session.reports.reset();
        let sent = session
            .send_all(batches, places(), deadline, self.link)
            .and_then(|()| session.flush(deadline, self.link));
        let verdict = session.reports.verdict();
        let trouble = match sent {
            Ok(()) if matches!(verdict, Verdict::None) => {
                self.link.up();
                return Ok(session.reports.ends());
            }
            Ok(()) => Trouble::Failing,
            Err(trouble) => trouble,
        };
        // Nothing of this call may be sent after the answer.
        self.plain = None;
        Err(self.judge(trouble, verdict, &mut places()))
    }
}

/// What went wrong before anything is known about records.
enum Trouble {
    /// A call failed.
    Call(&'static str, Failure),
    /// librdkafka itself refuses the record of this number.
    Refused(usize, Failure),
    /// A delivery report says that a record failed.
    Failing,
    /// The time is over.
    TooLate,
}

/// What the delivery reports say.
enum Verdict {
    None,
    /// The record of this number.
    Refused(usize, Code, String),
    /// Some record of a batch.
    BatchRefused(Code, String),
    Failed(Code, String),
}

/// Takes in delivery reports; shared with the thread that polls for them.
struct Reports {
    state: Mutex<Delivered>,
    news: Condvar,
}

#[derive(Default)]
struct Delivered {
    ends: FxHashMap<Arc<str>, BTreeMap<i32, NextOffset>>,
    refused: Option<(usize, Code, String)>,
    batch_refused: Option<(Code, String)>,
    failed: Option<(Code, String)>,
    /// Counts reports, so that a wait for one cannot miss it.
    reports: u64,
}

impl Delivered {
    fn is_failing(&self) -> bool {
        self.refused.is_some() || self.batch_refused.is_some() || self.failed.is_some()
    }
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, Delivered> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reset(&self) {
        let mut state = self.lock();
        *state = Delivered {
            reports: state.reports,
            ..Delivered::default()
        };
    }

    fn ends(&self) -> Vec<(TopicPartition, NextOffset)> {
        let mut ends: Vec<_> = self
            .lock()
            .ends
            .iter()
            .flat_map(|(topic, ends)| {
                ends.iter()
                    .map(|(p, end)| (TopicPartition::new(Arc::clone(topic), *p), *end))
            })
            .collect();
        ends.sort();
        ends
    }

    fn verdict(&self) -> Verdict {
        let state = self.lock();
        if let Some((ordinal, code, text)) = &state.refused {
            Verdict::Refused(*ordinal, *code, text.clone())
        } else if let Some((code, text)) = &state.batch_refused {
            Verdict::BatchRefused(*code, text.clone())
        } else if let Some((code, text)) = &state.failed {
            Verdict::Failed(*code, text.clone())
        } else {
            Verdict::None
        }
    }

    /// One report is about records of one batch.
    fn take_in(&self, event: &QueueEvent<'_>) {
        let mut end = -1;
        let mut partition = 0;
        let mut topic: Option<Arc<str>> = None;
        let mut first_refused: Option<(usize, Code, String)> = None;
        let mut refused = 0;
        let mut named = false;
        let mut failed: Option<(Code, String)> = None;
        let mut name = String::new();
        event.deliveries(|m| {
            if name.is_empty() {
                m.topic().clone_into(&mut name);
                partition = m.partition();
            }
            match m.code() {
                Code::NONE => end = end.max(m.offset() + 1),
                Code::PURGE_QUEUE | Code::PURGE_INFLIGHT => {}
                Code::INVALID_DIFFERENT_RECORD => named = true,
                code if matches!(kind(code), Kind::Refused(_)) => {
                    refused += 1;
                    if first_refused.as_ref().is_none_or(|(o, ..)| m.ordinal() < *o) {
                        first_refused = Some((m.ordinal(), code, m.error_text(true)));
                    }
                }
                code => {
                    failed.get_or_insert_with(|| (code, m.error_text(true)));
                }
            }
        });
        let mut state = self.lock();
        state.reports += 1;
        if end >= 0 {
            if !state.ends.contains_key(name.as_str()) {
                topic = Some(Arc::from(name.as_str()));
            }
            let ends = match topic {
                Some(topic) => state.ends.entry(topic).or_default(),
                None => state.ends.get_mut(name.as_str()).expect("looked up above"),
            };
            let known = ends.entry(partition).or_insert(end);
            *known = end.max(*known);
        }
        match first_refused {
            Some((ordinal, code, text)) if refused == 1 || named => {
                if state.refused.as_ref().is_none_or(|(o, ..)| ordinal < *o) {
                    state.refused = Some((ordinal, code, text));
                }
            }
            Some((_, code, text)) => {
                state.batch_refused.get_or_insert((code, text));
            }
            None => {}
        }
        if let Some(f) = failed {
            state.failed.get_or_insert(f);
        }
        drop(state);
        self.news.notify_all();
    }
}

/// One producer client with the thread that polls it.
struct Session {
    topics: Vec<(Arc<str>, Topic)>,
    tables: Vec<(Arc<[Arc<str>]>, Vec<Option<usize>>)>,
    args: ProduceArgs,
    reports: Arc<Reports>,
    ended: Arc<AtomicBool>,
    queue: Arc<Queue>,
    poller: Option<JoinHandle<()>>,
    client: Arc<Client>,
}

impl Session {
    fn new(settings: &[(String, String)], link: &Arc<Link>) -> Result<Self, BrokerError> {
        let fatal = |e: String| BrokerError::new(Kind::Fatal, format!("the producer could not be made: {e}"));
        let client = Client::new(ClientKind::Producer, settings, link.stop_flag()).map_err(fatal)?;
        let queue = Arc::new(client.main_queue());
        let reports = Arc::new(Reports {
            state: Mutex::default(),
            news: Condvar::new(),
        });
        let ended = Arc::new(AtomicBool::new(false));
        let poller = spawn("stoat-reports", {
            let (queue, reports, ended) = (Arc::clone(&queue), Arc::clone(&reports), Arc::clone(&ended));
            let link = Arc::clone(link);
            move || {
                while !ended.load(Ordering::SeqCst) {
                    let Some(event) = queue.poll(Duration::from_secs(1)) else {
                        continue;
                    };
                    if event.is_delivery() {
                        reports.take_in(&event);
                    } else if event.is_error()
                        && let Some((code, text)) = event.error()
                        && code != Code::FATAL
                    {
                        link.client_error(code, &text);
                    }
                }
            }
        })
        .map_err(|e| fatal(e.to_string()))?;
        Ok(Self {
            topics: Vec::new(),
            tables: Vec::new(),
            args: ProduceArgs::new(),
            reports,
            ended,
            queue,
            poller: Some(poller),
            client,
        })
    }

    /// The place of a batch's topic table in `tables`.
    fn table(&mut self, topics: &Arc<[Arc<str>]>) -> usize {
        if let Some(i) = self.tables.iter().position(|(t, _)| Arc::ptr_eq(t, topics)) {
            return i;
        }
        self.tables.push((Arc::clone(topics), vec![None; topics.len()]));
        self.tables.len() - 1
    }

    fn topic(&mut self, table: usize, idx: u32) -> Result<usize, Failure> {
        if let Some(known) = self.tables[table].1[idx as usize] {
            return Ok(known);
        }
        let name = Arc::clone(&self.tables[table].0[idx as usize]);
        let slot = match self.topics.iter().position(|(n, _)| *n == name) {
            Some(slot) => slot,
            None => {
                let topic = self.client.topic(&name)?;
                self.topics.push((name, topic));
                self.topics.len() - 1
            }
        };
        self.tables[table].1[idx as usize] = Some(slot);
        Ok(slot)
    }

    /// Hands all records to librdkafka; waits while its queue is full.
    fn send_all(
        &mut self,
        batches: &[ProduceBatch],
        places: impl Iterator<Item = (u32, u32)>,
        deadline: Instant,
        link: &Link,
    ) -> Result<(), Trouble> {
        // Tables are few and live long; should a caller make a new one each time, the old ones must not pile up.
        if self.tables.len() > 64 {
            self.tables.clear();
        }
        let tables: Vec<usize> = batches.iter().map(|b| self.table(b.topics())).collect();
        for (ordinal, (b, i)) in places.enumerate() {
            let record = batches[b as usize].get(i as usize);
            let slot = self
                .topic(tables[b as usize], record.topic_idx)
                .map_err(|f| Trouble::Call("a topic cannot be written to", f))?;
            let outgoing = Outgoing {
                partition: record.partition,
                timestamp: record.timestamp,
                key: record.key,
                value: record.value,
                headers: record.headers,
                ordinal,
            };
            loop {
                let seen = self.reports.lock().reports;
                match self.topics[slot].1.produce(&mut self.args, &outgoing) {
                    Ok(()) => break,
                    Err(f) if f.code == Code::QUEUE_FULL => self.wait(seen, deadline, link)?,
                    Err(f) if matches!(kind(f.code), Kind::Refused(_)) => return Err(Trouble::Refused(ordinal, f)),
                    Err(f) => return Err(Trouble::Call("a record cannot be written", f)),
                }
            }
        }
        Ok(())
    }

    /// Waits for a report behind the `seen`-th.
    fn wait(&self, seen: u64, deadline: Instant, link: &Link) -> Result<(), Trouble> {
        let mut state = self.reports.lock();
        loop {
            if state.is_failing() {
                return Err(Trouble::Failing);
            }
            if state.reports != seen {
                return Ok(());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || link.stopping() {
                return Err(Trouble::TooLate);
            }
            state = self
                .reports
                .news
                .wait_timeout(state, left.min(SLICE))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }

    /// Waits until all records are acknowledged or one has failed.
    fn flush(&self, deadline: Instant, link: &Link) -> Result<(), Trouble> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let flushed = self.client.flush(left.min(SLICE));
            if self.reports.lock().is_failing() {
                return Err(Trouble::Failing);
            }
            if flushed {
                return Ok(());
            }
            if left.is_zero() || link.stopping() {
                return Err(Trouble::TooLate);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // What is still queued must not be sent by a client that nobody looks at any more.
        self.client.purge();
        self.ended.store(true, Ordering::SeqCst);
        self.queue.wake();
        if let Some(poller) = self.poller.take() {
            // Its only wait is the poll that was just woken.
            let _ = poller.join();
        }
    }
}
