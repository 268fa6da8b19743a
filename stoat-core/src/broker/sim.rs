//! A broker without I/O, threads or clock: for the simulator. One seed, one run.
//!
//! Keeps what has broken engines before: markers take offsets; initialising a producer fences the older ones; the answer
//! to a commit can be lost whether or not it was applied, and the lost request can arrive later; a transaction can be
//! ended by the broker, which looks like fencing.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::{
    Bounds, Broker, BrokerError, BrokerErrorKind, Command, Committed, Event, Fetched, GroupInfo, OpId, Reply,
    TopicInfo, Transaction,
};
use crate::id::{NextOffset, TopicPartition};
use crate::record::{Headers, OutRecord, ProduceBatch, RecordBatch, kafka_size};
use crate::time::Timestamp;

/// How often each fault happens, in 1,000 transactions or initialisations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The commit is applied, its answer is lost.
    pub lost_answer: u32,
    /// The commit is not applied, nor is there an answer.
    pub lost_request: u32,
    /// As `lost_request`, but the request arrives at some later time.
    pub late_request: u32,
    /// The broker ends the transaction and raises the producer's epoch.
    pub timed_out: u32,
    /// The transaction is aborted for a passing reason.
    pub aborted: u32,
    /// An initialisation fails for a passing reason.
    pub init_failed: u32,
    /// A poll brings nothing yet: what has happened is heard of later.
    pub slow: u32,
    /// The transaction is not applied for a passing reason: the broker is away or busy.
    pub retriable: u32,
    /// The transaction is not applied, and the client is of no more use.
    pub fatal: u32,
    /// The broker has forgotten the producer: its transactional id has expired.
    pub expired: u32,
    /// Trying an unanswered commit again fails: half of the times it has to be aborted, half of the times the client is of no
    /// more use. Whether the first try was applied stays as it was.
    pub again_failed: u32,
    /// The commit is applied; its answer, and all answers behind it, come very late.
    pub late_answer: u32,
    /// A question (topics, bounds, the group) fails for a passing reason.
    pub ask_failed: u32,
    /// In 100,000 polls: the broker cannot be reached for a while. Nothing arrives, and what is submitted fails.
    pub outage: u32,
}

/// A process that ends: from its last durable write on nothing that it does has an effect.
#[derive(Clone, Debug, Default)]
pub struct Fuse(Arc<Mutex<Option<u64>>>);

impl Fuse {
    /// Lets so many durable writes (transactions, initialisations, batches of stores, flushes) happen, and then no more.
    pub fn set(&self, writes: Option<u64>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = writes.map(|n| n + 1);
    }

    /// Counts a write; whether it happens.
    pub fn burn(&self) -> bool {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match left.as_mut() {
            None => true,
            Some(0) => false,
            Some(n) => {
                *n -= 1;
                *n > 0
            }
        }
    }

    /// Whether a write did not happen any more.
    pub fn blown(&self) -> bool {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) == Some(0)
    }
}

/// What is made to fail by [`SimCluster::fail_next`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SimCall {
    /// A question about topics, offsets or the group.
    Ask,
    /// An initialisation of the producer.
    Init,
    /// A transaction.
    Transact,
    /// Reading this topic.
    Read(String),
}

/// A transaction as it was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// What was written, in order.
    pub records: Vec<(TopicPartition, LogRecord)>,
    /// The group's offsets that came with it.
    pub offsets: Vec<(TopicPartition, NextOffset)>,
}

/// One record, or a marker, as it stands in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Option<Vec<u8>>,
    /// The event time.
    pub timestamp: Timestamp,
    /// The headers.
    pub headers: Headers,
    /// Whether this offset is a transaction's marker.
    pub marker: bool,
}

impl LogRecord {
    fn of(r: &OutRecord<'_>) -> Self {
        Self {
            key: r.key.map(<[u8]>::to_vec),
            value: r.value.map(<[u8]>::to_vec),
            timestamp: r.timestamp,
            headers: r.headers.clone(),
            marker: false,
        }
    }
}

#[derive(Default)]
struct Topic {
    id: String,
    config: Vec<(String, String)>,
    logs: Vec<Vec<LogRecord>>,
    /// Where each log begins: what lies before was deleted.
    starts: Vec<i64>,
    /// The size above which records are refused.
    limit: Option<usize>,
}

struct Late {
    tid: String,
    epoch: u32,
    transaction: Arc<Transaction>,
}

#[derive(Default)]
struct State {
    random: u64,
    faults: Faults,
    topics: BTreeMap<String, Topic>,
    made: u32,
    epochs: BTreeMap<String, u32>,
    groups: BTreeMap<String, BTreeMap<TopicPartition, NextOffset>>,
    late: Vec<Late>,
    late_applied: u32,
    /// Requests to commit whose first try was lost on the way: they arrive once the next transaction is open.
    strays: Vec<(String, u32)>,
    applied: Vec<Applied>,
    /// Transactions refused because of a record; and whether the last refusal did not say of which.
    refusals: u32,
    blind: bool,
    members: Vec<String>,
    /// Partitions of which nothing more comes until they are let go.
    held: std::collections::BTreeSet<TopicPartition>,
    fuse: Fuse,
    /// What fails next.
    injected: Vec<(SimCall, BrokerErrorKind)>,
}

/// The brokers and their logs; clones are handles.
#[derive(Clone, Default)]
pub struct SimCluster(Arc<Mutex<State>>);

impl SimCluster {
    /// Makes an empty cluster.
    pub fn new(seed: u64) -> Self {
        let state = State { random: seed.wrapping_mul(2).wrapping_add(1), ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Chooses how often faults happen from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Makes the next call of a kind fail. A transaction that fails so is not applied; after [`BrokerErrorKind::Unknown`]
    /// it can be committed again.
    pub fn fail_next(&self, call: SimCall, kind: BrokerErrorKind) {
        self.lock().injected.push((call, kind));
    }

    /// How often producers of a transactional id were initialised, or fenced by the broker.
    pub fn producer_epoch(&self, transactional_id: &str) -> u32 {
        self.lock().epochs.get(transactional_id).copied().unwrap_or_default()
    }

    /// Failures that were asked for and have not happened yet.
    pub fn failures_left(&self) -> usize {
        self.lock().injected.len()
    }

    /// Creates a topic.
    pub fn create(&self, name: &str, partitions: i32) {
        self.lock().create(name, partitions, Vec::new());
    }

    /// Has records of a topic refused that take more than so many bytes (see [`kafka_size`]). `told`: `Describe` says so.
    pub fn set_limit(&self, topic: &str, limit: usize, told: bool) {
        if let Some(t) = self.lock().topics.get_mut(topic) {
            t.limit = Some(limit);
            if told {
                t.config.push(("max.message.bytes".to_owned(), limit.to_string()));
            }
        }
    }

    /// What [`SimCluster::set_limit`] chose.
    pub fn limit(&self, topic: &str) -> Option<usize> {
        self.lock().topics.get(topic)?.limit
    }

    /// How many transactions were refused because of a record.
    pub fn refusals(&self) -> u32 {
        self.lock().refusals
    }

    /// Deletes a topic.
    pub fn delete(&self, name: &str) {
        self.lock().topics.remove(name);
    }

    /// Holds back what is fetched of a partition, or lets it go: its leader is slow.
    pub fn hold(&self, tp: &TopicPartition, hold: bool) {
        let mut state = self.lock();
        if hold {
            state.held.insert(tp.clone());
        } else {
            state.held.remove(tp);
        }
    }

    /// Appends a record outside a transaction.
    pub fn append(&self, topic: &str, partition: i32, key: &[u8], value: &[u8], timestamp: i64) {
        self.append_record(topic, partition, Some(key), Some(value), timestamp);
    }

    /// As [`SimCluster::append`]; key and value may be null.
    pub fn append_record(&self, topic: &str, partition: i32, key: Option<&[u8]>, value: Option<&[u8]>, timestamp: i64) {
        let record = LogRecord {
            key: key.map(<[u8]>::to_vec),
            value: value.map(<[u8]>::to_vec),
            timestamp: Timestamp(timestamp),
            headers: Headers::default(),
            marker: false,
        };
        if let Some(t) = self.lock().topics.get_mut(topic) {
            t.logs[partition as usize].push(record);
        }
    }

    /// A partition's log, markers included: the index is the offset.
    pub fn log(&self, topic: &str, partition: i32) -> Vec<LogRecord> {
        self.lock().topics.get(topic).map(|t| t.logs[partition as usize].clone()).unwrap_or_default()
    }

    /// The number of partitions of a topic; 0: it does not exist.
    pub fn partitions(&self, topic: &str) -> i32 {
        self.lock().topics.get(topic).map_or(0, |t| t.logs.len() as i32)
    }

    /// A group's committed offset.
    pub fn committed(&self, group: &str, tp: &TopicPartition) -> Option<NextOffset> {
        self.lock().groups.get(group)?.get(tp).copied()
    }

    /// Commits an offset for a group, or forgets it: as another program, or the broker's retention, would.
    pub fn set_committed(&self, group: &str, tp: &TopicPartition, offset: Option<NextOffset>) {
        let mut state = self.lock();
        let group = state.groups.entry(group.to_owned()).or_default();
        match offset {
            Some(o) => group.insert(tp.clone(), o),
            None => group.remove(tp),
        };
    }

    /// All transactions that were applied, in order.
    pub fn applied(&self) -> Vec<Applied> {
        self.lock().applied.clone()
    }

    /// Gives the groups these live members.
    pub fn set_members(&self, members: &[&str]) {
        self.lock().members = members.iter().map(|&m| m.to_owned()).collect();
    }

    /// Compacts a topic: of each key the newest record stays, with `tombstones` deletes go as well. Offsets stay.
    pub fn compact(&self, topic: &str, tombstones: bool) {
        let mut state = self.lock();
        let Some(topic) = state.topics.get_mut(topic) else {
            return;
        };
        for log in &mut topic.logs {
            let mut newest = BTreeMap::new();
            for (i, r) in log.iter().enumerate().filter(|(_, r)| !r.marker) {
                newest.insert(r.key.clone(), i);
            }
            for (i, r) in log.iter_mut().enumerate().filter(|(_, r)| !r.marker) {
                if newest[&r.key] != i || (tombstones && r.value.is_none()) {
                    // A hole is read as a marker is: it has an offset and nothing else.
                    r.marker = true;
                }
            }
        }
    }

    /// Deletes what lies before an offset, as retention does.
    pub fn delete_before(&self, topic: &str, partition: i32, offset: NextOffset) {
        if let Some(t) = self.lock().topics.get_mut(topic) {
            let end = t.logs[partition as usize].len() as i64;
            let start = &mut t.starts[partition as usize];
            *start = offset.min(end).max(*start);
        }
    }

    /// The process whose writes burn this fuse ends with it. Shared with the process' disk.
    pub fn set_fuse(&self, fuse: Fuse) {
        self.lock().fuse = fuse;
    }

    /// Loses the last `n` entries of a partition, as an unclean election of a leader does.
    pub fn lose_end(&self, topic: &str, partition: i32, n: usize) {
        if let Some(t) = self.lock().topics.get_mut(topic) {
            let log = &mut t.logs[partition as usize];
            log.truncate(log.len().saturating_sub(n));
        }
    }

    /// Adds partitions to a topic.
    pub fn add_partitions(&self, topic: &str, partitions: i32) {
        if let Some(t) = self.lock().topics.get_mut(topic) {
            t.logs.resize(partitions as usize, Vec::new());
            t.starts.resize(partitions as usize, 0);
        }
    }

    /// How many lost requests were applied after all, later.
    pub fn late_applied(&self) -> u32 {
        self.lock().late_applied
    }

    /// Lets lost requests that are still on their way arrive now.
    pub fn deliver_late(&self) {
        let mut state = self.lock();
        for late in std::mem::take(&mut state.late) {
            // Only under the epoch it was sent with, and then it ends what is open: nothing is, for a transaction here
            // is one piece; so it is applied whole.
            if state.epochs.get(&late.tid) == Some(&late.epoch) {
                state.apply(&late.tid, &late.transaction);
                state.late_applied += 1;
            }
        }
    }

    /// A client of the cluster.
    pub fn client(&self, transactional_id: &str, group: &str) -> SimClient {
        SimClient {
            cluster: self.clone(),
            tid: transactional_id.to_owned(),
            group: group.to_owned(),
            epoch: None,
            unknown: None,
            events: VecDeque::new(),
            open: BTreeMap::new(),
            failed: Vec::new(),
            withheld: 0,
            away: 0,
        }
    }
}

impl State {
    /// Takes a failure that was asked for.
    fn injected(&mut self, call: &SimCall) -> Option<BrokerError> {
        let at = self.injected.iter().position(|(c, _)| c == call)?;
        let (_, kind) = self.injected.remove(at);
        Some(BrokerError::new(kind, format!("{kind:?}, as asked for")))
    }

    fn draw(&mut self, n: u32) -> u32 {
        // xorshift64
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) as u32 % n
    }

    fn create(&mut self, name: &str, partitions: i32, config: Vec<(String, String)>) {
        self.made += 1;
        let id = format!("id-{}", self.made);
        let (logs, starts) = (vec![Vec::new(); partitions as usize], vec![0; partitions as usize]);
        self.topics.entry(name.to_owned()).or_insert(Topic { id, config, logs, starts, limit: None });
    }

    fn put(&mut self, r: &OutRecord<'_>, ends: &mut BTreeMap<TopicPartition, NextOffset>) {
        let record = LogRecord::of(r);
        if let Some(t) = self.topics.get_mut(&**r.topic) {
            let log = &mut t.logs[r.partition as usize];
            log.push(record);
            ends.insert(TopicPartition::new(r.topic.clone(), r.partition), log.len() as i64);
        }
    }

    /// The first record that its topic does not take.
    fn refuses(&self, t: &Transaction) -> Option<(u32, u32)> {
        let behind = t.batches.len() as u32;
        let before = t.places_before().map(|(b, i)| ((b + behind, i), t.before[b as usize].get(i as usize)));
        let own = t.places().map(|(b, i)| ((b, i), t.batches[b as usize].get(i as usize)));
        let limit = |r: &OutRecord<'_>| self.topics.get(&**r.topic)?.limit;
        let mut all = before.chain(own);
        all.find(|(_, r)| limit(r).is_some_and(|l| kafka_size(r.key, r.value, r.headers) > l)).map(|(place, _)| place)
    }

    fn missing(&self, batches: &[ProduceBatch]) -> Option<String> {
        let topics = batches.iter().flat_map(ProduceBatch::iter).map(|r| r.topic);
        topics.into_iter().find(|t| !self.topics.contains_key(&***t)).map(ToString::to_string)
    }

    fn apply(&mut self, group: &str, t: &Transaction) -> Vec<(TopicPartition, NextOffset)> {
        let mut ends = BTreeMap::new();
        let mut applied = Applied { offsets: t.offsets.clone(), ..Applied::default() };
        for (b, i) in t.places() {
            let r = t.batches[b as usize].get(i as usize);
            self.put(&r, &mut ends);
            let at = TopicPartition::new(r.topic.clone(), r.partition);
            applied.records.push((at, LogRecord::of(&r)));
        }
        self.applied.push(applied);
        for tp in ends.keys() {
            let marker = LogRecord {
                key: None,
                value: None,
                timestamp: Timestamp(0),
                headers: Headers::default(),
                marker: true,
            };
            if let Some(topic) = self.topics.get_mut(&*tp.topic) {
                topic.logs[tp.partition as usize].push(marker);
            }
        }
        let offsets = self.groups.entry(group.to_owned()).or_default();
        offsets.extend(t.offsets.iter().cloned());
        ends.into_iter().collect()
    }
}

/// A commit without an answer; with where it went, if it was applied.
type Unanswered = (Arc<Transaction>, Option<Vec<(TopicPartition, NextOffset)>>);

/// One process's connection. Answers at once; what it asks for is there at the next poll.
pub struct SimClient {
    cluster: SimCluster,
    tid: String,
    group: String,
    epoch: Option<u32>,
    unknown: Option<Unanswered>,
    events: VecDeque<Event>,
    /// Position, whether records are asked for, and whether the end was told since the last ones.
    open: BTreeMap<TopicPartition, (NextOffset, bool, bool)>,
    /// What could not be opened.
    failed: Vec<(TopicPartition, BrokerError)>,
    /// So many polls bring no answers.
    withheld: u32,
    /// For so many polls the broker cannot be reached.
    away: u32,
}

impl SimClient {
    fn error(kind: BrokerErrorKind, text: &str) -> BrokerError {
        BrokerError::new(kind, text)
    }

    fn fenced(&self, state: &State) -> Option<BrokerError> {
        let newest = state.epochs.get(&self.tid).copied();
        (self.epoch.is_none() || self.epoch != newest)
            .then(|| Self::error(BrokerErrorKind::Fenced, "there is a newer producer epoch"))
    }

    fn transact(&mut self, t: Arc<Transaction>) -> Result<Reply, BrokerError> {
        let cluster = self.cluster.clone();
        let mut state = cluster.lock();
        if let Some(topic) = state.missing(&t.batches).or_else(|| state.missing(&t.before)) {
            return Err(BrokerError::new(BrokerErrorKind::UnknownTopic, format!("topic `{topic}` does not exist")));
        }
        if let Some(place) = state.refuses(&t) {
            state.refusals += 1;
            // Of a batch of records it does not say which is too large; the next attempt sends them one by one.
            let blind = !state.blind && state.draw(3) == 0;
            state.blind = blind;
            let kind = BrokerErrorKind::Refused((!blind).then_some(place));
            return Err(Self::error(kind, "the record is larger than the topic takes"));
        }
        let mut ends = BTreeMap::new();
        for (b, i) in t.places_before() {
            state.put(&t.before[b as usize].get(i as usize), &mut ends);
        }
        if let Some(e) = self.fenced(&state) {
            return Err(e);
        }
        if !state.fuse.burn() {
            return Err(Self::error(BrokerErrorKind::Retriable, "the process has ended"));
        }
        if self.away > 0 {
            // Who has only begun hears that the broker is away; who was about to commit hears nothing.
            return match state.draw(3) {
                0 => Err(Self::error(BrokerErrorKind::Retriable, "the broker cannot be reached")),
                applied => {
                    let ends = (applied == 1).then(|| state.apply(&self.group, &t));
                    self.unknown = Some((t, ends));
                    Err(Self::error(BrokerErrorKind::Unknown, "no answer to the commit"))
                }
            };
        }
        let me = (self.tid.clone(), self.epoch.unwrap_or_default());
        if let Some(i) = state.strays.iter().position(|s| *s == me) {
            // It finds this transaction open and commits what has been sent so far: a torn epoch.
            state.strays.remove(i);
            let places: Vec<_> = t.places().collect();
            let half = places.len() / 2;
            let mut torn = Transaction::default();
            for (b, i) in &places[..half] {
                let r = t.batches[*b as usize].get(*i as usize);
                let mut one = ProduceBatch::new(Arc::new([r.topic.clone()]));
                one.push(0, r.partition, r.timestamp, r.key, r.value, r.headers.clone());
                torn.batches.push(one);
            }
            state.apply(&self.group, &torn);
            return Err(Self::error(BrokerErrorKind::Abort, "the transaction has ended already"));
        }
        let (f, roll) = (state.faults, state.draw(1_000));
        let mut limit = f.aborted;
        if roll < limit {
            return Err(Self::error(BrokerErrorKind::Abort, "aborted by the fault plan"));
        }
        limit += f.timed_out;
        if roll < limit {
            *state.epochs.entry(self.tid.clone()).or_default() += 1;
            return Err(Self::error(BrokerErrorKind::Fenced, "the transaction timed out at the broker"));
        }
        limit += f.lost_answer;
        if roll < limit {
            let ends = state.apply(&self.group, &t);
            self.unknown = Some((t, Some(ends)));
            return Err(Self::error(BrokerErrorKind::Unknown, "no answer to the commit"));
        }
        limit += f.lost_request;
        if roll < limit {
            self.unknown = Some((t, None));
            return Err(Self::error(BrokerErrorKind::Unknown, "no answer to the commit"));
        }
        limit += f.late_request;
        if roll < limit {
            let epoch = self.epoch.unwrap_or_default();
            state.late.push(Late { tid: self.tid.clone(), epoch, transaction: Arc::clone(&t) });
            // The producer is of no more use: were it tried again, both could be applied. A real broker tells them
            // apart by the transaction's state; here the first one decides.
            self.unknown = None;
            return Err(Self::error(BrokerErrorKind::Unknown, "no answer to the commit"));
        }
        for (chance, kind, text) in [
            (f.retriable, BrokerErrorKind::Retriable, "the coordinator is loading"),
            (f.fatal, BrokerErrorKind::Fatal, "the client is of no more use"),
        ] {
            limit += chance;
            if roll < limit {
                return Err(Self::error(kind, text));
            }
        }
        limit += f.expired;
        if roll < limit {
            *state.epochs.entry(self.tid.clone()).or_default() += 1;
            return Err(Self::error(BrokerErrorKind::Fenced, "the broker does not know this producer id"));
        }
        limit += f.late_answer;
        if roll < limit {
            self.withheld = 20 + state.draw(400);
        }
        Ok(Reply::Committed(Committed { ends: state.apply(&self.group, &t), retried: false }))
    }

    fn commit_again(&mut self) -> Result<Reply, BrokerError> {
        let cluster = self.cluster.clone();
        let mut state = cluster.lock();
        if let Some(e) = self.fenced(&state) {
            return Err(e);
        }
        if self.away > 0 || state.draw(4) == 0 {
            return Err(Self::error(BrokerErrorKind::Unknown, "no answer to the commit"));
        }
        let limit = state.faults.again_failed;
        if state.draw(1_000) < limit {
            self.unknown = None;
            let kind = if state.draw(2) == 0 { BrokerErrorKind::Abort } else { BrokerErrorKind::Fatal };
            return Err(Self::error(kind, "the commit cannot be tried again"));
        }
        if !state.fuse.burn() {
            return Err(Self::error(BrokerErrorKind::Unknown, "the process has ended"));
        }
        match self.unknown.take() {
            Some((_, Some(ends))) => Ok(Reply::Committed(Committed { ends, retried: true })),
            Some((t, None)) => {
                state.strays.push((self.tid.clone(), self.epoch.unwrap_or_default()));
                Ok(Reply::Committed(Committed { ends: state.apply(&self.group, &t), retried: true }))
            }
            None => Err(Self::error(BrokerErrorKind::Unknown, "no answer to the commit")),
        }
    }

    fn run(&mut self, command: Command) -> Option<Result<Reply, BrokerError>> {
        let cluster = self.cluster.clone();
        let asks = matches!(
            command,
            Command::Describe { .. }
                | Command::ListTopics
                | Command::CreateTopics { .. }
                | Command::Bounds { .. }
                | Command::Group { .. }
        );
        if asks {
            let mut state = cluster.lock();
            let limit = state.faults.ask_failed;
            if self.away > 0 || (limit > 0 && state.draw(1_000) < limit) {
                return Some(Err(Self::error(BrokerErrorKind::Retriable, "no answer to a question")));
            }
        }
        let call = match &command {
            Command::Transact(_) => Some(SimCall::Transact),
            Command::InitProducer => Some(SimCall::Init),
            Command::Describe { .. } | Command::Bounds { .. } | Command::Group { .. } => Some(SimCall::Ask),
            _ => None,
        };
        if let Some(e) = call.and_then(|c| cluster.lock().injected(&c)) {
            if let (Command::Transact(t), BrokerErrorKind::Unknown) = (command, e.kind) {
                self.unknown = Some((t, None));
            }
            return Some(Err(e));
        }
        let reply = match command {
            Command::Describe { topics } => {
                let state = cluster.lock();
                let info = |name: &Arc<str>| {
                    state.topics.get(&**name).map(|t| TopicInfo {
                        name: name.clone(),
                        id: t.id.clone(),
                        partitions: t.logs.len() as i32,
                        config: t.config.clone(),
                    })
                };
                Ok(Reply::Topics(topics.iter().map(info).collect()))
            }
            Command::ListTopics => Ok(Reply::Names(cluster.lock().topics.keys().cloned().collect())),
            Command::CreateTopics { topics } => {
                let mut state = cluster.lock();
                for t in topics {
                    state.create(&t.name, t.partitions, t.config);
                }
                Ok(Reply::Done)
            }
            Command::Bounds { partitions } => {
                let state = cluster.lock();
                let bounds = |tp: &TopicPartition| {
                    let (topic, p) = (state.topics.get(&*tp.topic), tp.partition as usize);
                    topic.map_or(Bounds { start: 0, end: 0 }, |t| Bounds {
                        start: t.starts[p],
                        end: t.logs[p].len() as i64,
                    })
                };
                Ok(Reply::Bounds(partitions.iter().map(bounds).collect()))
            }
            Command::Group { partitions } => {
                let state = cluster.lock();
                let offsets = state.groups.get(&self.group);
                let offsets = partitions.iter().map(|tp| offsets.and_then(|g| g.get(tp)).copied()).collect();
                Ok(Reply::Group(GroupInfo { members: state.members.clone(), offsets }))
            }
            Command::InitProducer => {
                let mut state = cluster.lock();
                let limit = state.faults.init_failed;
                if self.away > 0 || state.draw(1_000) < limit {
                    let kind = if state.draw(8) == 0 { BrokerErrorKind::Fatal } else { BrokerErrorKind::Retriable };
                    Err(Self::error(kind, "the coordinator is loading"))
                } else if !state.fuse.burn() {
                    Err(Self::error(BrokerErrorKind::Retriable, "the process has ended"))
                } else {
                    let epoch = state.epochs.entry(self.tid.clone()).or_default();
                    *epoch += 1;
                    self.epoch = Some(*epoch);
                    self.unknown = None;
                    Ok(Reply::Done)
                }
            }
            Command::Transact(t) => self.transact(t),
            Command::CommitAgain => self.commit_again(),
            Command::Produce(batch) => {
                let mut ends = BTreeMap::new();
                let mut state = cluster.lock();
                for r in batch.iter() {
                    state.put(&r, &mut ends);
                }
                Ok(Reply::Committed(Committed { ends: ends.into_iter().collect(), retried: false }))
            }
            Command::Open { partition, offset } => {
                let state = cluster.lock();
                let start = state.topics.get(&*partition.topic).map_or(0, |t| t.starts[partition.partition as usize]);
                if offset < start {
                    let error = BrokerError::new(
                        BrokerErrorKind::OutOfRange,
                        format!("offset {offset} is not in the log, which begins at {start}"),
                    );
                    self.failed.push((partition, error));
                    return Some(Ok(Reply::Done));
                }
                self.open.insert(partition, (offset, false, false));
                Ok(Reply::Done)
            }
            Command::Fetch { partition, .. } => {
                if let Some(p) = self.open.get_mut(&partition) {
                    p.1 = true;
                }
                return None;
            }
            Command::Close { partition } => {
                self.open.remove(&partition);
                Ok(Reply::Done)
            }
        };
        Some(reply)
    }
}

impl Broker for SimClient {
    fn submit(&mut self, op: OpId, command: Command) {
        if let Some(result) = self.run(command) {
            self.events.push_back(Event::Done { op, result });
        }
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        let cluster = self.cluster.clone();
        let mut state = cluster.lock();
        let slow = state.faults.slow;
        if slow > 0 && state.draw(1_000) < slow {
            return;
        }
        let outage = state.faults.outage;
        if self.away > 0 {
            self.away -= 1;
            if self.away == 0 {
                out.push(Event::Connection(None));
            }
        } else if outage > 0 && state.draw(100_000) < outage {
            self.away = 1 + state.draw(60);
            out.push(Event::Connection(Some("no route to the broker".to_owned())));
        }
        if self.withheld > 0 {
            self.withheld -= 1;
        } else {
            out.extend(self.events.drain(..));
        }
        out.extend(self.failed.drain(..).map(|(partition, error)| Event::Failed { partition, error }));
        if self.away > 0 {
            return;
        }
        let mut gone = Vec::new();
        for (tp, (position, asked, told)) in &mut self.open {
            if !*asked || state.held.contains(tp) {
                continue;
            }
            if let Some(e) = state.injected(&SimCall::Read(tp.topic.to_string())) {
                gone.push((tp.clone(), e));
                continue;
            }
            let Some(topic) = state.topics.get(&*tp.topic) else {
                gone.push((tp.clone(), Self::error(BrokerErrorKind::UnknownTopic, "no such topic")));
                continue;
            };
            let end = topic.logs[tp.partition as usize].len() as i64;
            if *position >= end && *told {
                continue;
            }
            // Sometimes nothing has arrived yet, and never more than a few at once.
            let some = state.draw(6);
            if some == 0 && *position < end {
                continue;
            }
            let log = &state.topics[&*tp.topic].logs[tp.partition as usize];
            let mut batch = RecordBatch::default();
            while *position < end && batch.len() < 1 + some as usize {
                let r = &log[*position as usize];
                if !r.marker {
                    batch.push(*position, r.timestamp, r.key.as_deref(), r.value.as_deref(), r.headers.clone());
                }
                *position += 1;
            }
            *asked = false;
            *told = *position >= end;
            out.push(Event::Fetched(Fetched { partition: tp.clone(), batch, position: *position, caught_up: *told }));
        }
        for (tp, error) in gone {
            self.open.remove(&tp);
            out.push(Event::Failed { partition: tp, error });
        }
    }

    fn notify(&self, waker: Waker) {
        // There is always something to look at: the simulator decides when.
        waker.wake();
    }
}
