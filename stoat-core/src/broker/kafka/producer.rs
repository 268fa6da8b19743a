//! The producers: transactions, and records outside of them. Everything here runs on one thread, in order.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
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
    Transact(OpId, Arc<Transaction>),
    CommitAgain(OpId),
    Produce(OpId, ProduceBatch),
}

/// The longest single call into librdkafka: between two of them the thread looks whether it should end.
const SLICE: Duration = Duration::from_millis(500);
/// The same for initialisation: each call makes the client look at once for a broker to ask, by itself it looks twice
/// a second only.
const INIT_SLICE: Duration = Duration::from_millis(25);
/// A call that should have come back may be this much late before its client is given up.
const GRACE: Duration = Duration::from_secs(5);
/// So long the client surely remembers the group's coordinator (it forgets it after 15 minutes without use).
const COORDINATOR_KNOWN: Duration = Duration::from_mins(5);
/// The longest wait for it; then a new client asks.
const COORDINATOR_WAIT: Duration = Duration::from_secs(5);
/// Pause before a call that was answered "try again" is made again.
const AGAIN: Duration = Duration::from_millis(2);
/// An abort gets this long, also when the transaction's own time is spent.
const ABORT: Duration = Duration::from_secs(10);
/// How large a batch may be, in bytes.
const LARGE_BATCH: usize = 1_000_000;
/// The same, once the broker has refused a batch of several records: some topic allows less than usual.
const SMALL_BATCH: usize = 16_384;
/// One record in each batch: only then the broker's refusal says which record it means.
const SINGLE: usize = 1;

pub(super) fn run(config: &KafkaConfig, link: &Arc<Link>, jobs: &Receiver<Job>) {
    let mut producers = Producers {
        config,
        link,
        session: None,
        phase: Phase::Uninitialised,
        plain: None,
        batch: LARGE_BATCH,
        usual: LARGE_BATCH,
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
    /// The batch size of the next client; it is a setting of the client.
    batch: usize,
    /// The batch size to go back to when a search for a refused record is over.
    usual: usize,
}

type Outcome = Result<Reply, BrokerError>;

impl Producers<'_> {
    fn init(&mut self) -> Outcome {
        let deadline = self.deadline();
        let mut wait = Duration::from_millis(300);
        loop {
            self.begin()?;
            if self.find_coordinator(wait) {
                self.phase = Phase::Ready;
                return Ok(Reply::Done);
            }
            if Instant::now() >= deadline || self.link.stopping() {
                return Err(self.no_coordinator());
            }
            wait = (wait * 2).min(COORDINATOR_WAIT);
        }
    }

    /// Makes a client, unless there is one whose initialisation was begun, and initialises it.
    fn begin(&mut self) -> Result<(), BrokerError> {
        if !matches!(self.phase, Phase::Initialising) {
            // One client can be initialised once; a new one also forgets whatever the old one had begun.
            self.phase = Phase::Uninitialised;
            self.session = None;
            let settings = self.config.transactional(self.batch);
            self.session = Some(Session::new(&settings, &self.config.group_id, self.link)?);
            self.phase = Phase::Initialising;
        }
        let client = Arc::clone(&self.session.as_ref().expect("made above or when initialisation was begun").client);
        let result = self.repeat(self.deadline(), |left| client.init_transactions(left.min(INIT_SLICE)));
        result.map_err(|f| {
            let kind = transactional(&f);
            if kind != Kind::Retriable {
                self.phase = Phase::Uninitialised;
            }
            self.error(kind, "the transactional producer could not be initialised", &f)
        })?;
        self.link.up();
        Ok(())
    }

    /// Has the client find the coordinator of the group before a transaction needs it: there, a coordinator that is
    /// not available at once (a new cluster, a failover) is a question that librdkafka forgets to repeat, and the call
    /// never comes back. `false`: it was not found within about `wait`, and the client is given up: the question is still
    /// open, and must not be asked again.
    fn find_coordinator(&mut self, wait: Duration) -> bool {
        let session = self.session.as_mut().expect("called with a session");
        if session.coordinator_used.is_some_and(|t| t.elapsed() < COORDINATOR_KNOWN) {
            return true;
        }
        let deadline = Instant::now() + wait;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // What is answered does not matter, nor whether the question is allowed: it has to find its way.
            match session.client.find_coordinator(&self.config.group_id, left) {
                Some(Err((code, _))) if kind(code) == Kind::Retriable && !left.is_zero() && !self.link.stopping() => {
                    self.link.pause(AGAIN * 10);
                }
                Some(Err((code, _))) if kind(code) == Kind::Retriable => break,
                None => break,
                Some(_) => {
                    session.coordinator_used = Some(Instant::now());
                    return true;
                }
            }
        }
        self.phase = Phase::Uninitialised;
        self.session = None;
        false
    }

    fn no_coordinator(&self) -> BrokerError {
        let text = format!("the coordinator of group `{}` is not available{}", self.config.group_id, self.link.why());
        BrokerError::new(Kind::Retriable, text)
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
                return Err(BrokerError::new(Kind::Fatal, "the transactional producer is not initialised"));
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
        if !t.offsets.is_empty() && !self.find_coordinator(COORDINATOR_WAIT) {
            return Err(self.no_coordinator());
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
            session.coordinator_used = Some(Instant::now());
            let session = self.session.as_ref().expect("see above");
            let sent = self.repeat(deadline, |left| session.send_offsets(&t.offsets, left, self.link));
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
                let retried = retried || client.watch().lost();
                let session = self.session.as_ref().expect("see above");
                Ok(Reply::Committed(Committed { ends: session.reports.ends(), retried }))
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
            return Err(BrokerError::new(Kind::Abort, "there is no commit of unknown outcome to repeat"));
        }
        self.commit(self.deadline(), None, true)
    }

    /// Aborts the open transaction and says why, as precisely as the delivery reports allow.
    fn abort_after(&mut self, trouble: Trouble, t: &Transaction) -> BrokerError {
        let session = self.session.as_ref().expect("a transaction has a session");
        let client = Arc::clone(&session.client);
        let trouble = match trouble {
            Trouble::Call(what, f) => Trouble::Call(what, why(&client, f)),
            other => other,
        };
        let fatal = matches!(&trouble, Trouble::Call(_, f) if f.fatal);
        let aborted = !fatal && {
            let deadline = Instant::now() + ABORT;
            match self.repeat(deadline, |left| client.abort_transaction(left)) {
                Ok(()) => true,
                Err(f) => {
                    tracing::warn!("the transaction could not be aborted, the next producer ends it: {}", f.text);
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
                self.batch = self.usual;
                let place = places.nth(ordinal);
                broker_error(Kind::Refused(place), "the broker refuses a record", code, &text)
            }
            Verdict::BatchRefused(code, text) => {
                self.usual = if self.batch > SMALL_BATCH { SMALL_BATCH } else { SINGLE };
                self.batch = SINGLE;
                self.phase = Phase::Uninitialised;
                let what = "the broker refuses a batch of records, it does not say which of them; \
                            the next attempt sends them one by one";
                tracing::warn!("{what}: {text}");
                broker_error(Kind::Refused(None), what, code, &text)
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
            self.plain = Some(Session::new(&self.config.plain(self.batch), &self.config.group_id, self.link)?);
        }
        let session = self.plain.as_mut().expect("made above");
        session.reports.reset();
        let sent =
            session.send_all(batches, places(), deadline, self.link).and_then(|()| session.flush(deadline, self.link));
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

/// What made the transaction fail, where the call only says that the transaction is in the wrong state for it: another
/// part of it failed first, perhaps a moment ago, and the client keeps the reason for the next call. That is
/// `begin_transaction`, which cannot succeed while a transaction is open and so changes nothing.
fn why(client: &Client, f: Failure) -> Failure {
    if f.code != Code::STATE || f.fatal {
        return f;
    }
    match client.begin_transaction() {
        Err(first) if first.code != Code::STATE && (first.abort || first.fatal) => first,
        _ => f,
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
    /// Records that are done with, well or not.
    reported: usize,
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
        *self.lock() = Delivered::default();
    }

    fn ends(&self) -> Vec<(TopicPartition, NextOffset)> {
        let mut ends: Vec<_> = self
            .lock()
            .ends
            .iter()
            .flat_map(|(topic, ends)| ends.iter().map(|(p, end)| (TopicPartition::new(Arc::clone(topic), *p), *end)))
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
    fn take_in(&self, event: &QueueEvent<'_>) -> usize {
        let mut records = 0;
        let mut end = -1;
        let mut partition = 0;
        let mut topic: Option<Arc<str>> = None;
        let mut first_refused: Option<(usize, Code, String)> = None;
        let mut refused = 0;
        let mut named = false;
        let mut failed: Option<(Code, String)> = None;
        let mut name = String::new();
        event.deliveries(|m| {
            records += 1;
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
                        first_refused = Some((m.ordinal(), code, m.write_error()));
                    }
                }
                code => {
                    failed.get_or_insert_with(|| (code, m.write_error()));
                }
            }
        });
        let mut state = self.lock();
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
            Some(found) if refused == 1 || named => match &mut state.refused {
                // The first in the order of the transaction is the verdict.
                Some(first) if first.0 <= found.0 => {}
                other => *other = Some(found),
            },
            Some((_, code, text)) => {
                state.batch_refused.get_or_insert((code, text));
            }
            None => {}
        }
        if let Some(f) = failed {
            state.failed.get_or_insert(f);
        }
        records
    }

    /// Wakes who waits for reports: so many records more are done with.
    fn tell(&self, records: usize) {
        self.lock().reported += records;
        self.news.notify_all();
    }
}

/// What becomes of "the queue is full" when nothing but this record is in it.
fn too_large(record: &Outgoing<'_>, f: Failure) -> Failure {
    let bytes = record.key.map_or(0, <[u8]>::len) + record.value.map_or(0, <[u8]>::len);
    let text = format!("its {bytes} bytes are more than the producer may hold: raise `stoat.memory.budget`");
    Failure { text, ..f }
}

/// One producer client with the thread that polls it.
struct Session {
    topics: Vec<(Arc<str>, Topic)>,
    tables: Vec<Table>,
    args: ProduceArgs,
    reports: Arc<Reports>,
    ended: Arc<AtomicBool>,
    queue: Arc<Queue>,
    poller: Option<JoinHandle<()>>,
    /// To the thread that adds offsets to the transaction.
    offsets: Sender<Offsets>,
    /// When the group's coordinator was surely known last.
    coordinator_used: Option<Instant>,
    client: Arc<Client>,
}

/// A batch's topic table, and where in `Session::topics` each of its topics is, as far as known.
type Table = (Arc<[Arc<str>]>, Vec<Option<usize>>);

/// Offsets to add, how long to wait, and where to answer.
type Offsets = (Vec<(TopicPartition, NextOffset)>, Duration, Sender<Result<(), Failure>>);

impl Session {
    fn new(settings: &[(String, String)], group: &str, link: &Arc<Link>) -> Result<Self, BrokerError> {
        let fatal = |e: String| BrokerError::new(Kind::Fatal, format!("the producer could not be made: {e}"));
        let client = Client::new(ClientKind::Producer, settings, link.stop_flag()).map_err(fatal)?;
        let queue = Arc::new(client.main_queue());
        let reports = Arc::new(Reports { state: Mutex::default(), news: Condvar::new() });
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
                        let records = reports.take_in(&event);
                        // Its records leave librdkafka's queue only now: whoever waits for room may look.
                        drop(event);
                        reports.tell(records);
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
        let (offsets, inbox) = mpsc::channel::<Offsets>();
        spawn("stoat-offsets", {
            let (client, group) = (Arc::clone(&client), group.to_owned());
            move || {
                for (offsets, timeout, answer) in inbox {
                    // Who asked may have given up.
                    let _ = answer.send(client.send_offsets(&offsets, &group, timeout));
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
            offsets,
            coordinator_used: None,
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
        let slot = if let Some(slot) = self.topics.iter().position(|(n, _)| *n == name) {
            slot
        } else {
            let topic = self.client.topic(&name)?;
            self.topics.push((name, topic));
            self.topics.len() - 1
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
            let mut alone = false;
            loop {
                match self.topics[slot].1.produce(&mut self.args, &outgoing) {
                    Ok(()) => break,
                    Err(f) if f.code == Code::QUEUE_FULL && alone => {
                        return Err(Trouble::Refused(ordinal, too_large(&outgoing, f)));
                    }
                    Err(f) if f.code == Code::QUEUE_FULL => alone = !self.wait(ordinal, deadline, link)?,
                    Err(f) if matches!(kind(f.code), Kind::Refused(_)) => return Err(Trouble::Refused(ordinal, f)),
                    Err(f) => return Err(Trouble::Call("a record cannot be written", f)),
                }
            }
        }
        Ok(())
    }

    /// Waits until half of what is queued is done with; `sent` records were queued since the last reset. Room for one
    /// record would do, but then batches would hold few, and each costs a request and a report. Returns whether anything
    /// was queued.
    fn wait(&self, sent: usize, deadline: Instant, link: &Link) -> Result<bool, Trouble> {
        let mut state = self.reports.lock();
        let queued = sent.saturating_sub(state.reported);
        if queued == 0 {
            drop(state);
            link.pause(AGAIN);
            return Ok(false);
        }
        let enough = sent - queued / 2;
        loop {
            if state.is_failing() {
                return Err(Trouble::Failing);
            }
            if state.reported >= enough {
                return Ok(true);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || link.stopping() {
                return Err(Trouble::TooLate);
            }
            state = self.reports.news.wait_timeout(state, left.min(SLICE)).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Adds offsets to the transaction. On a thread of its own, for this one call of librdkafka may stay away for
    /// ever, whatever its time-out says (see `find_coordinator`); then the client is left to that thread.
    fn send_offsets(
        &self,
        offsets: &[(TopicPartition, NextOffset)],
        timeout: Duration,
        link: &Link,
    ) -> Result<(), Failure> {
        let (answer, answered) = mpsc::channel();
        let given_up = |text: &str| Failure {
            code: Code::TIMED_OUT,
            fatal: true,
            retriable: false,
            abort: false,
            text: text.to_owned(),
        };
        let asked = self.offsets.send((offsets.to_vec(), timeout, answer));
        let deadline = Instant::now() + timeout + GRACE;
        while asked.is_ok() && !link.stopping() && Instant::now() < deadline {
            match answered.recv_timeout(Duration::from_millis(200)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        Err(given_up("the client did not come back from looking for the group's coordinator"))
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
