//! The broker's thread: carries out commands in batches, syncs once per batch, then tells what happened.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::clean::{self, Facts, Input, Plan, Rewritten};
use super::client::{ClientConfig, Mailbox};
use super::format::{self, Chunk, ChunkReader, CommitParts, GroupOffset};
use super::journal::{FileId, Journal, JournalFile};
use super::state::{DEFAULTS, Settings, State};
use super::{EmbeddedConfig, Fsync};
use crate::broker::{
    Bounds, BrokerError, BrokerErrorKind, Command, Committed, Event, Fetched, GroupInfo, NewTopic, OpId, Reply,
    TopicInfo, Transaction,
};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{NextOffset, TopicPartition};
use crate::record::{ProduceBatch, RecordBatch, kafka_size};

/// A chunk is closed when its records have so many bytes: what is read at once.
pub(super) const CHUNK_BYTES: usize = 64 << 10;
/// So many messages are carried out before the answers go out.
const BATCH: usize = 1024;
/// How often retention is looked at while nobody writes, as on Kafka.
const IDLE_CHECK: Duration = Duration::from_mins(5);
/// How often at most it is looked at while somebody writes.
const BUSY_CHECK: Duration = Duration::from_secs(1);
/// A file with more pieces than this, of less than [`SMALL_CHUNK`] on average, is rewritten into larger ones.
const MANY_CHUNKS: u64 = 1000;
const SMALL_CHUNK: u64 = 4 << 10;
/// How long rewriting rests after it failed.
const CLEAN_PAUSE: Duration = Duration::from_mins(1);

/// What the thread is told.
pub(super) enum Message {
    Connect {
        id: u64,
        mailbox: Arc<Mailbox>,
        config: ClientConfig,
    },
    Gone {
        id: u64,
    },
    Command {
        id: u64,
        op: OpId,
        command: Command,
    },
    DeleteTopic {
        name: Arc<str>,
        reply: SyncSender<Result<()>>,
    },
    Maintain {
        reply: SyncSender<Result<()>>,
    },
    /// From the rewriting thread: a file is in its place.
    Rewritten(Box<Rewritten>),
    /// From the rewriting thread: it has ended; the files that it looked at.
    Cleaned {
        compact: bool,
        result: Result<Vec<FileId>, String>,
    },
    Stop,
}

struct Client {
    mailbox: Arc<Mailbox>,
    config: ClientConfig,
    /// Its producer's epoch once initialised.
    epoch: Option<i64>,
    /// What its last commit answered, for a repeated one.
    last: Option<Committed>,
    readers: BTreeMap<TopicPartition, Reader>,
    /// Events that go out behind the batch's sync; whether each tells of something written.
    out: Vec<(Event, bool)>,
}

struct Reader {
    /// The topic that it was opened on; one of the same name made later is another.
    topic: Option<u32>,
    position: NextOffset,
    /// That the end was reached has been told since the last records.
    end_told: bool,
    asked: Option<usize>,
}

pub(super) struct Server {
    config: EmbeddedConfig,
    journal: Journal,
    state: State,
    clients: BTreeMap<u64, Client>,
    /// The entry that is being made; kept for its allocation.
    entry: Vec<u8>,
    /// The piece of a file that was read last.
    piece: Piece,
    /// Since when something is not synced.
    unsynced_since: Option<Instant>,
    last_check: Instant,
    written: bool,
    /// Why nothing can be written any more.
    broken: Option<String>,
    /// The command that is being carried out.
    current: Option<(u64, OpId)>,
    sender: Sender<Message>,
    cleaner: Option<Cleaner>,
    clean_after: Option<Instant>,
    /// Files with records of compacted topics that a pass has seen and left as they are.
    seen: BTreeSet<FileId>,
    /// Who waits until there is nothing more to gain.
    waiting: Vec<SyncSender<Result<()>>>,
}

/// The thread that rewrites files.
struct Cleaner {
    thread: JoinHandle<()>,
    cancel: Arc<AtomicBool>,
}

#[derive(Default)]
struct Piece {
    place: Option<(FileId, u64)>,
    bytes: Vec<u8>,
}

fn unknown(what: impl std::fmt::Display) -> BrokerError {
    BrokerError::new(BrokerErrorKind::UnknownTopic, format!("the embedded broker has no {what}"))
}

fn fatal(message: impl Into<String>) -> BrokerError {
    BrokerError::new(BrokerErrorKind::Fatal, message)
}

impl Server {
    pub(super) fn new(config: EmbeddedConfig, journal: Journal, state: State, sender: Sender<Message>) -> Self {
        Self {
            config,
            journal,
            state,
            clients: BTreeMap::new(),
            entry: Vec::new(),
            piece: Piece::default(),
            unsynced_since: None,
            last_check: Instant::now(),
            written: false,
            broken: None,
            current: None,
            sender,
            cleaner: None,
            clean_after: None,
            seen: BTreeSet::new(),
            waiting: Vec::new(),
        }
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self, receiver: &Receiver<Message>) {
        while panic::catch_unwind(AssertUnwindSafe(|| self.serve(receiver))).is_err() {
            self.survive();
        }
        if let Some(cleaner) = self.cleaner.take() {
            cleaner.cancel.store(true, Ordering::Relaxed);
            // What it put in place counts on the next open.
            let _ = cleaner.thread.join();
        }
    }

    /// After a panic, which is a defect: nothing is written any more, and nobody waits for an answer for ever.
    fn survive(&mut self) {
        let why = "the embedded broker's thread panicked, which is a defect; open it anew: the journal has what was committed";
        self.broken = Some(why.to_owned());
        if let Some((id, op)) = self.current.take()
            && let Some(client) = self.clients.get_mut(&id)
        {
            client.out.push((Event::Done { op, result: Err(fatal(why)) }, true));
        }
        self.doubt(why);
        for client in self.clients.values_mut() {
            for (partition, _) in std::mem::take(&mut client.readers) {
                client.out.push((Event::Failed { partition, error: fatal(why) }, false));
            }
        }
        self.answer();
    }

    /// Whether what waits to be told as written is on disk, nobody knows.
    fn doubt(&mut self, why: &str) {
        for client in self.clients.values_mut() {
            for (event, wrote) in &mut client.out {
                if let (true, Event::Done { result, .. }) = (*wrote, event) {
                    *result = Err(BrokerError::new(BrokerErrorKind::Unknown, why));
                }
            }
        }
    }

    fn serve(&mut self, receiver: &Receiver<Message>) {
        loop {
            let mut next = match receiver.recv_timeout(self.patience()) {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let mut stop = false;
            let mut left = BATCH;
            while let Some(message) = next.take() {
                if matches!(message, Message::Stop) {
                    stop = true;
                    break;
                }
                self.take(message);
                left -= 1;
                if left > 0 {
                    next = receiver.try_recv().ok();
                }
            }
            self.sync_when_due(stop);
            self.answer();
            if stop {
                break;
            }
            self.check_when_due();
        }
    }

    /// How long to wait for a message.
    fn patience(&self) -> Duration {
        let check = if self.written { BUSY_CHECK } else { IDLE_CHECK };
        let mut wait = check.saturating_sub(self.last_check.elapsed());
        if let (Fsync::Interval(interval), Some(since)) = (self.config.fsync, self.unsynced_since) {
            wait = wait.min(interval.saturating_sub(since.elapsed()));
        }
        wait
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Connect { id, mailbox, config } => {
                let client =
                    Client { mailbox, config, epoch: None, last: None, readers: BTreeMap::new(), out: Vec::new() };
                self.clients.insert(id, client);
            }
            Message::Gone { id } => {
                self.clients.remove(&id);
            }
            Message::Command { id, op, command } => self.command(id, op, command),
            Message::DeleteTopic { name, reply } => {
                let _ = reply.send(self.delete_topic(&name));
            }
            Message::Maintain { reply } => {
                self.clean_after = None;
                match self.retain() {
                    Ok(()) => {
                        self.waiting.push(reply);
                        self.clean();
                    }
                    Err(e) => {
                        let _ = reply.send(Err(Error::new(ErrorKind::State, e.message)));
                    }
                }
            }
            Message::Rewritten(new) => {
                let id = self.journal.replace(&new.old, new.file);
                self.state.replace(&new.old, id, &new.chunks);
                self.piece.place = None;
            }
            Message::Cleaned { compact, result } => self.cleaned(compact, result),
            Message::Stop => {}
        }
    }

    fn sync_when_due(&mut self, stop: bool) {
        if !self.journal.unsynced() {
            self.unsynced_since = None;
            return;
        }
        let since = *self.unsynced_since.get_or_insert_with(Instant::now);
        let due = match self.config.fsync {
            Fsync::Commit => true,
            Fsync::Interval(interval) => stop || since.elapsed() >= interval,
            Fsync::Off => stop,
        };
        if due && self.broken.is_none() {
            self.sync();
        }
    }

    fn sync(&mut self) {
        match self.journal.sync() {
            Ok(()) => self.unsynced_since = None,
            Err(e) => {
                // After a failed sync the system may have dropped what it could not write: only a new open tells.
                let dir = self.journal.dir().map(|d| d.display().to_string()).unwrap_or_default();
                let why = format!(
                    "the embedded broker cannot put its journal in `{dir}` on disk: {e}. What was committed last may be lost; check the disk and start again"
                );
                tracing::error!("{why}");
                self.broken = Some(why.clone());
                self.doubt(&why);
            }
        }
    }

    /// Hands out the answers, and the records to those who wait for some.
    fn answer(&mut self) {
        let Self { clients, state, journal, piece, .. } = self;
        for client in clients.values_mut() {
            let mut gone = Vec::new();
            for (partition, reader) in &mut client.readers {
                let Some(max_bytes) = reader.asked else { continue };
                match fetch(state, journal, piece, partition, reader, max_bytes) {
                    Ok(None) => {}
                    Ok(Some(fetched)) => {
                        reader.asked = None;
                        client.out.push((Event::Fetched(fetched), false));
                    }
                    Err(error) => {
                        gone.push(partition.clone());
                        client.out.push((Event::Failed { partition: partition.clone(), error }, false));
                    }
                }
            }
            for partition in gone {
                client.readers.remove(&partition);
            }
            if !client.out.is_empty() {
                client.mailbox.deliver(client.out.drain(..).map(|(event, _)| event));
            }
        }
    }

    fn command(&mut self, id: u64, op: OpId, command: Command) {
        let mut wrote = false;
        self.current = Some((id, op));
        let result = match command {
            Command::Describe { topics } => Ok(Reply::Topics(topics.iter().map(|t| self.describe(t)).collect())),
            Command::ListTopics => Ok(Reply::Names(self.state.names.keys().map(ToString::to_string).collect())),
            Command::CreateTopics { topics } => {
                wrote = true;
                topics.iter().try_for_each(|t| self.create_topic(t)).map(|()| Reply::Done)
            }
            Command::Bounds { partitions } => self.bounds(&partitions).map(Reply::Bounds),
            Command::Group { partitions } => Ok(Reply::Group(self.group(id, &partitions))),
            Command::InitProducer => {
                wrote = true;
                self.init_producer(id).map(|()| Reply::Done)
            }
            Command::Transact(transaction) => {
                wrote = true;
                self.transact(id, &transaction).map(Reply::Committed)
            }
            Command::CommitAgain => self.commit_again(id).map(Reply::Committed),
            Command::Produce(batch) => {
                wrote = true;
                self.produce(std::slice::from_ref(&batch), &places(std::slice::from_ref(&batch))).map(Reply::Committed)
            }
            Command::Open { partition, offset } => {
                let topic = self.state.topic(&partition.topic);
                let reader = Reader { topic, position: offset, end_told: false, asked: None };
                if let Some(client) = self.clients.get_mut(&id) {
                    client.readers.insert(partition, reader);
                }
                Ok(Reply::Done)
            }
            Command::Fetch { partition, max_bytes } => {
                if let Some(reader) = self.clients.get_mut(&id).and_then(|c| c.readers.get_mut(&partition)) {
                    reader.asked = Some(max_bytes);
                }
                self.current = None;
                return;
            }
            Command::Close { partition } => {
                if let Some(client) = self.clients.get_mut(&id) {
                    client.readers.remove(&partition);
                }
                Ok(Reply::Done)
            }
        };
        if let Some(client) = self.clients.get_mut(&id) {
            client.out.push((Event::Done { op, result }, wrote));
        }
        self.current = None;
    }

    /// Appends one entry and takes it in.
    fn write(&mut self, body: impl FnOnce(&State, &mut Vec<u8>)) -> Result<(), BrokerError> {
        if let Some(why) = &self.broken {
            return Err(fatal(why.clone()));
        }
        format::begin_entry(&mut self.entry);
        body(&self.state, &mut self.entry);
        let (file, at) = self.journal.append(&mut self.entry).map_err(|e| BrokerError::new(e.kind, e.message))?;
        self.written = true;
        self.state.apply(file, at, &self.entry[format::ENTRY_HEADER..]).map_err(|bad| {
            fatal(format!("the embedded broker wrote an entry that it cannot read ({bad}); this is a defect"))
        })?;
        if self.entry.capacity() > 4 << 20 {
            self.entry = Vec::new();
        }
        Ok(())
    }

    fn describe(&self, name: &str) -> Option<TopicInfo> {
        let topic = &self.state.topics[&self.state.topic(name)?];
        let mut config = topic.config.clone();
        for (name, value) in DEFAULTS {
            if !config.iter().any(|(n, _)| n == name) {
                config.push((name.to_owned(), value.to_owned()));
            }
        }
        config.sort();
        Some(TopicInfo {
            name: Arc::clone(&topic.name),
            id: topic.id.clone(),
            partitions: topic.partitions.len() as i32,
            config,
        })
    }

    fn create_topic(&mut self, new: &NewTopic) -> Result<(), BrokerError> {
        if self.state.topic(&new.name).is_some() {
            return Ok(());
        }
        let refused = |why: String| {
            let message = format!("topic `{}` cannot be created: {why}", new.name);
            BrokerError::new(BrokerErrorKind::Refused(None), message)
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if new.name.is_empty()
            || new.name.len() > 249
            || !new.name.chars().all(legal)
            || matches!(&*new.name, "." | "..")
        {
            return Err(refused(
                "a name has 1 to 249 ASCII letters, digits, `.`, `_`, `-`, and is not `.` or `..`".into(),
            ));
        }
        let partitions = match new.partitions {
            -1 => 1,
            n @ 1..=100_000 => n,
            n => return Err(refused(format!("{n} partitions; 1 to 100000 are possible"))),
        };
        Settings::parse(&new.config).map_err(refused)?;
        if new.config.len() > 1000 || new.config.iter().any(|(n, v)| n.len().max(v.len()) > usize::from(u16::MAX)) {
            return Err(refused("its settings are too many or too long".into()));
        }
        let now = (self.config.now)();
        let id = format!("{:016x}{:016x}", RandomState::new().hash_one(now), RandomState::new().hash_one(&new.name));
        self.write(|state, out| format::put_created(out, state.next_topic, partitions, &new.name, &id, &new.config))
    }

    fn delete_topic(&mut self, name: &str) -> Result<()> {
        let Some(topic) = self.state.topic(name) else {
            return Err(Error::new(ErrorKind::Topic, format!("there is no topic `{name}` to delete")));
        };
        self.write(|_, out| format::put_deleted(out, topic)).map_err(|e| Error::new(ErrorKind::State, e.message))?;
        if self.config.fsync == Fsync::Commit {
            self.sync();
        }
        match &self.broken {
            Some(why) => Err(Error::new(ErrorKind::State, why.clone())),
            None => Ok(()),
        }
    }

    fn bounds(&self, partitions: &[TopicPartition]) -> Result<Vec<Bounds>, BrokerError> {
        let one = |tp: &TopicPartition| {
            let p = self.state.topic(&tp.topic).and_then(|t| self.state.partition(t, tp.partition));
            p.map(|p| Bounds { start: p.start, end: p.end }).ok_or_else(|| unknown(format_args!("partition {tp}")))
        };
        partitions.iter().map(one).collect()
    }

    fn group(&self, id: u64, partitions: &[TopicPartition]) -> GroupInfo {
        let group =
            self.clients.get(&id).and_then(|c| c.config.group_id.as_ref()).and_then(|g| self.state.groups.get(g));
        let one = |tp: &TopicPartition| group?.get(&(self.state.topic(&tp.topic)?, tp.partition)).copied();
        GroupInfo { members: Vec::new(), offsets: partitions.iter().map(one).collect() }
    }

    fn init_producer(&mut self, id: u64) -> Result<(), BrokerError> {
        let Some(client) = self.clients.get(&id) else { return Ok(()) };
        let Some(transactional_id) = client.config.transactional_id.clone().filter(|t| !t.is_empty()) else {
            return Err(fatal("this client has no transactional id; give it one to use transactions"));
        };
        if transactional_id.len() > usize::from(u16::MAX) {
            return Err(fatal("the transactional id is longer than 65535 bytes"));
        }
        let epoch = self.state.producers.get(&transactional_id).map_or(0, |e| e + 1);
        self.write(|_, out| format::put_producer(out, &transactional_id, epoch))?;
        if let Some(client) = self.clients.get_mut(&id) {
            client.epoch = Some(epoch);
            client.last = None;
        }
        Ok(())
    }

    /// The client's transactional id and epoch, if it is the newest producer.
    fn producer(&self, id: u64) -> Result<(String, i64), BrokerError> {
        let client = self.clients.get(&id);
        let (Some(transactional_id), Some(epoch)) =
            (client.and_then(|c| c.config.transactional_id.clone()), client.and_then(|c| c.epoch))
        else {
            return Err(fatal("the producer is not initialised; `InitProducer` comes before the first transaction"));
        };
        match self.state.producers.get(&transactional_id) {
            Some(newest) if *newest == epoch => Ok((transactional_id, epoch)),
            newest => Err(BrokerError::new(
                BrokerErrorKind::Fenced,
                format!(
                    "transactional id `{transactional_id}`: this producer has epoch {epoch}, the newest has {}",
                    newest.copied().unwrap_or_default()
                ),
            )),
        }
    }

    fn transact(&mut self, id: u64, t: &Transaction) -> Result<Committed, BrokerError> {
        if let Some(client) = self.clients.get_mut(&id) {
            client.last = None;
        }
        if t.before.iter().any(|b| !b.is_empty()) {
            let order: Vec<_> = t.places_before().collect();
            let behind = t.batches.len() as u32;
            self.produce(&t.before, &order).map_err(|mut e| {
                if let BrokerErrorKind::Refused(Some((batch, _))) = &mut e.kind {
                    *batch += behind;
                }
                e
            })?;
        }
        let (transactional_id, epoch) = self.producer(id)?;
        let order: Vec<_> = t.places().collect();
        let (chunks, ends) = self.chunks(&t.batches, &order, true)?;
        let group = self.clients.get(&id).and_then(|c| c.config.group_id.clone());
        let offsets = self.offsets(group.as_deref(), &t.offsets)?;
        let committed = Committed { ends, retried: false };
        if !chunks.is_empty() || !offsets.is_empty() {
            let time = (self.config.now)();
            let producer = (transactional_id.as_str(), epoch);
            let parts = CommitParts { kept: false, time, producer, offsets: &offsets, chunks: &chunks };
            self.write(|_, out| format::put_commit(out, &parts))?;
        }
        if let Some(client) = self.clients.get_mut(&id) {
            client.last = Some(committed.clone());
        }
        Ok(committed)
    }

    fn commit_again(&self, id: u64) -> Result<Committed, BrokerError> {
        if let Some(why) = &self.broken {
            return Err(fatal(why.clone()));
        }
        self.producer(id)?;
        let last = self.clients.get(&id).and_then(|c| c.last.clone());
        let last = last.ok_or_else(|| BrokerError::new(BrokerErrorKind::Abort, "there is no commit to repeat"))?;
        Ok(Committed { retried: true, ..last })
    }

    fn produce(&mut self, batches: &[ProduceBatch], order: &[(u32, u32)]) -> Result<Committed, BrokerError> {
        let (chunks, ends) = self.chunks(batches, order, false)?;
        if !chunks.is_empty() {
            let time = (self.config.now)();
            let parts = CommitParts { kept: false, time, producer: ("", 0), offsets: &[], chunks: &chunks };
            self.write(|_, out| format::put_commit(out, &parts))?;
        }
        Ok(Committed { ends, retried: false })
    }

    fn offsets<'a>(
        &self,
        group: Option<&'a str>,
        offsets: &[(TopicPartition, NextOffset)],
    ) -> Result<Vec<GroupOffset<'a>>, BrokerError> {
        if offsets.is_empty() {
            return Ok(Vec::new());
        }
        let Some(group) = group.filter(|g| u16::try_from(g.len()).is_ok()) else {
            return Err(fatal("a transaction has offsets, and this client has no group id to commit them for"));
        };
        let one = |(tp, next): &(TopicPartition, NextOffset)| {
            let topic = self.state.topic(&tp.topic).filter(|t| self.state.partition(*t, tp.partition).is_some());
            let topic = topic.ok_or_else(|| unknown(format_args!("partition {tp} to commit an offset of")))?;
            Ok(GroupOffset { group, topic, partition: tp.partition, next: *next })
        };
        offsets.iter().map(one).collect()
    }

    /// Records as chunks, with their offsets; refuses what Kafka would refuse.
    #[allow(clippy::type_complexity, reason = "both parts are taken apart where it is called")]
    fn chunks(
        &self,
        batches: &[ProduceBatch],
        order: &[(u32, u32)],
        marker: bool,
    ) -> Result<(Vec<Chunk>, Vec<(TopicPartition, NextOffset)>), BrokerError> {
        struct Part {
            name: Arc<str>,
            settings: Settings,
            /// Of `chunks`, in order; the last one is being filled.
            chunks: Vec<Chunk>,
        }
        let time = (self.config.now)();
        let tables: Vec<Vec<Option<u32>>> =
            batches.iter().map(|b| b.topics().iter().map(|t| self.state.topic(t)).collect()).collect();
        let mut parts: Vec<Part> = Vec::new();
        let mut by_partition: FxHashMap<(u32, i32), usize> = FxHashMap::default();
        for &(b, i) in order {
            let Some(batch) = batches.get(b as usize).filter(|batch| (i as usize) < batch.len()) else {
                return Err(fatal(format!("a transaction's order names record {i} of batch {b}, which is not there")));
            };
            let r = batch.get(i as usize);
            let topic =
                tables[b as usize][r.topic_idx as usize].ok_or_else(|| unknown(format_args!("topic `{}`", r.topic)))?;
            let part = if let Some(part) = by_partition.get(&(topic, r.partition)) {
                &mut parts[*part]
            } else {
                let p = self.state.partition(topic, r.partition);
                let p = p.ok_or_else(|| unknown(format_args!("partition {}-{}", r.topic, r.partition)))?;
                by_partition.insert((topic, r.partition), parts.len());
                let t = &self.state.topics[&topic];
                let chunks = vec![Chunk::new(topic, r.partition, p.end, time)];
                parts.push(Part { name: Arc::clone(&t.name), settings: t.settings.clone(), chunks });
                parts.last_mut().expect("just pushed")
            };
            let refused = |why: String| {
                let place = format!("record {i} of batch {b}, for {}-{}", r.topic, r.partition);
                BrokerError::new(BrokerErrorKind::Refused(Some((b, i))), format!("{place}: {why}"))
            };
            let size = kafka_size(r.key, r.value, r.headers);
            let limit = part.settings.max_message_bytes;
            if size > limit {
                return Err(refused(format!(
                    "it takes {size} bytes and the topic's `max.message.bytes` is {limit}; raise that or write less"
                )));
            }
            if part.settings.compact && r.key.is_none() {
                return Err(refused("it has no key and the topic is compacted; give it one".into()));
            }
            let chunk = part.chunks.last_mut().expect("a part has a chunk");
            let offset = chunk.head.next;
            let chunk = if chunk.bytes() >= CHUNK_BYTES {
                part.chunks.push(Chunk::new(topic, r.partition, offset, time));
                part.chunks.last_mut().expect("just pushed")
            } else {
                chunk
            };
            chunk.push(offset, r.timestamp, r.key, r.value, r.headers);
        }
        let mut ends = Vec::with_capacity(parts.len());
        let mut chunks = Vec::with_capacity(parts.len());
        for mut part in parts {
            let last = part.chunks.last_mut().expect("a part has a chunk");
            ends.push((TopicPartition { topic: part.name, partition: last.head.partition }, last.head.next));
            last.head.next += i64::from(marker);
            chunks.append(&mut part.chunks);
        }
        ends.sort();
        Ok((chunks, ends))
    }

    /// Looks after retention and rewriting when it is time.
    fn check_when_due(&mut self) {
        let every = if self.written { BUSY_CHECK } else { IDLE_CHECK };
        if self.last_check.elapsed() < every {
            return;
        }
        self.last_check = Instant::now();
        self.written = false;
        if let Err(e) = self.retain() {
            tracing::warn!(error = %e, "the embedded broker cannot apply retention");
        }
        self.clean();
    }

    /// Moves the start of logs whose topics do not keep records for ever.
    fn retain(&mut self) -> Result<(), BrokerError> {
        let now = (self.config.now)();
        let mut starts = Vec::new();
        for (number, topic) in self.state.topics.iter().filter(|(_, t)| t.settings.delete) {
            let Settings { retention_ms, retention_bytes, .. } = topic.settings;
            for (i, p) in topic.partitions.iter().enumerate() {
                let mut bytes = p.bytes;
                let gone = p.chunks.iter().take_while(|c| {
                    bytes -= u64::from(c.len);
                    let old = retention_ms >= 0 && c.stamp.saturating_add(retention_ms) < now;
                    let over = u64::try_from(retention_bytes).is_ok_and(|limit| bytes >= limit);
                    old || over
                });
                if let Some(last) = gone.last() {
                    starts.push((*number, i as i32, last.next));
                }
            }
        }
        for (topic, partition, start) in starts {
            self.write(|_, out| format::put_log_start(out, topic, partition, start))?;
        }
        Ok(())
    }

    /// Starts rewriting files if that gains enough; else tells those who wait that there is nothing to gain.
    fn clean(&mut self) {
        if self.cleaner.is_some() || self.clean_after.is_some_and(|t| t > Instant::now()) {
            return;
        }
        let started = match self.plan() {
            Ok(Some(plan)) => self.start_cleaner(plan).map_err(|e| e.to_string()),
            Ok(None) => {
                self.waiting.drain(..).for_each(|w| drop(w.send(Ok(()))));
                return;
            }
            Err(e) => Err(e),
        };
        if let Err(e) = started {
            self.clean_failed(&e);
        }
    }

    fn clean_failed(&mut self, e: &str) {
        let advice =
            "the files stay as they are and grow; make room on the disk or check it, then it goes on by itself";
        let message = format!("the embedded broker cannot rewrite its journal: {e} ({advice})");
        tracing::warn!("{message}");
        self.clean_after = Some(Instant::now() + CLEAN_PAUSE);
        self.waiting.drain(..).for_each(|w| drop(w.send(Err(Error::new(ErrorKind::State, message.clone())))));
    }

    /// What there is to rewrite now.
    fn plan(&mut self) -> Result<Option<Plan>, String> {
        let (mut dirty, mut clean, mut must) = (0, 0, BTreeSet::new());
        for id in self.journal.sealed() {
            let usage = self.state.files.get(id).copied().unwrap_or_default();
            let Some(JournalFile { name, len, .. }) = self.journal.file(*id) else { continue };
            clean += usage.clean;
            *(if self.seen.contains(id) { &mut clean } else { &mut dirty }) += usage.dirty;
            let dead = usage.dead.saturating_mul(2) > *len;
            // Once: where many partitions are written to, pieces stay small.
            let scattered = name.generation == 0 && usage.chunks > MANY_CHUNKS && usage.chunks * SMALL_CHUNK > *len;
            if dead || scattered {
                must.insert(*id);
            }
        }
        // As Kafka's `min.cleanable.dirty.ratio` of 0.5, and not for less than a file.
        let compact = dirty >= clean.max(self.config.file_bytes);
        if !compact && must.is_empty() || self.broken.is_some() {
            return Ok(None);
        }
        // What replaces what is dropped must not be lost before it.
        if self.journal.unsynced() {
            self.sync();
        }
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        let input = |id: &FileId| {
            let file = self.journal.file(*id).ok_or("a file of the journal is not open")?;
            Ok(Input {
                id: *id,
                name: file.name,
                len: file.len,
                dead: self.state.files.get(id).map_or(0, |u| u.dead),
                must: must.contains(id),
                bytes: file.bytes.share().map_err(|e| format!("opening {}: {e}", file.bytes.describe()))?,
            })
        };
        Ok(Some(Plan {
            inputs: self.journal.sealed().iter().map(input).collect::<Result<_, String>>()?,
            compact,
            facts: Facts::of(&self.state),
            now: (self.config.now)(),
            file_bytes: self.config.file_bytes,
            dir: self.journal.dir().map(Into::into),
        }))
    }

    fn start_cleaner(&mut self, plan: Plan) -> std::io::Result<()> {
        let cancel = Arc::new(AtomicBool::new(false));
        let sender = self.sender.clone();
        let cancelled = Arc::clone(&cancel);
        let thread = thread::Builder::new().name("stoat-embedded-clean".to_owned()).spawn(move || {
            let mut done = |new| drop(sender.send(Message::Rewritten(Box::new(new))));
            // A panic is a failed pass: the journal itself goes on.
            let run = panic::catch_unwind(AssertUnwindSafe(|| clean::run(&plan, &cancelled, &mut done)));
            let result = run.unwrap_or_else(|_| Err("the rewriting thread panicked; this is a defect".to_owned()));
            let _ = sender.send(Message::Cleaned { compact: plan.compact, result });
        })?;
        self.cleaner = Some(Cleaner { thread, cancel });
        Ok(())
    }

    fn cleaned(&mut self, compact: bool, result: Result<Vec<FileId>, String>) {
        if let Some(cleaner) = self.cleaner.take() {
            let _ = cleaner.thread.join();
        }
        match result {
            Ok(looked_at) => {
                if compact {
                    self.seen.extend(looked_at);
                }
                let open: BTreeSet<FileId> = self.journal.sealed().iter().copied().collect();
                self.seen.retain(|id| open.contains(id));
                if !self.waiting.is_empty() {
                    self.clean();
                }
            }
            Err(e) => self.clean_failed(&e),
        }
    }
}

/// All records of some batches, batch after batch.
fn places(batches: &[ProduceBatch]) -> Vec<(u32, u32)> {
    let all = batches.iter().enumerate();
    all.flat_map(|(b, batch)| (0..batch.len()).map(move |i| (b as u32, i as u32))).collect()
}

/// What a reader gets now; `None`: it waits.
fn fetch(
    state: &State,
    journal: &Journal,
    piece: &mut Piece,
    tp: &TopicPartition,
    reader: &mut Reader,
    max_bytes: usize,
) -> Result<Option<Fetched>, BrokerError> {
    let p = reader.topic.and_then(|t| state.partition(t, tp.partition));
    let p = p.ok_or_else(|| unknown(format_args!("partition {tp} (any more)")))?;
    if reader.position < p.start || reader.position > p.end {
        return Err(BrokerError::new(
            BrokerErrorKind::OutOfRange,
            format!("{tp}: offset {} is not in the log, which goes from {} to {}", reader.position, p.start, p.end),
        ));
    }
    if reader.position == p.end && reader.end_told {
        return Ok(None);
    }
    let mut batch = RecordBatch::default();
    let mut position = reader.position;
    let first = p.chunks.partition_point(|c| c.next <= position);
    'chunks: for place in p.chunks.iter().skip(first) {
        let bad = |what: &str| {
            let file = journal.file(place.file).map(|f| f.bytes.describe()).unwrap_or_default();
            fatal(format!("{tp}: {file}, byte {}: {what}. Restore the directory from a copy", place.at))
        };
        if piece.place != Some((place.file, place.at)) {
            piece.place = None;
            piece.bytes.resize(place.len as usize, 0);
            journal.read(place.file, place.at, &mut piece.bytes).map_err(fatal)?;
        }
        let mut chunk = ChunkReader::new(&piece.bytes).map_err(bad)?;
        piece.place = Some((place.file, place.at));
        while let Some(record) = chunk.next().map_err(bad)? {
            if record.offset < position {
                continue;
            }
            if batch.weight() >= max_bytes && !batch.is_empty() {
                break 'chunks;
            }
            record.push_to(&mut batch).map_err(bad)?;
            position = record.offset + 1;
        }
        position = place.next;
        if batch.weight() >= max_bytes && !batch.is_empty() {
            break;
        }
    }
    // Behind the last chunk there is nothing but what retention or compaction took away.
    if p.chunks.back().is_none_or(|c| position >= c.next) {
        position = p.end;
    }
    reader.position = position;
    reader.end_told = position == p.end;
    Ok(Some(Fetched { partition: tp.clone(), batch, position, caught_up: reader.end_told }))
}
