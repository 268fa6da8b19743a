//! Reading: one queue for each open partition, taken from by the engine's own calls, and one thread that opens,
//! closes, and serves the consumer's errors.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config::KafkaConfig;
use super::error::{Code, broker_error, kind};
use super::ffi::{Client, Kind as ClientKind, Queue, Scratch, Signal};
use super::link::Link;
use super::spawn;
use crate::broker::{BrokerError, BrokerErrorKind as Kind, Event, Fetched, OpId, Reply};
use crate::error::Result;
use crate::id::{NextOffset, TopicPartition};
use crate::record::pool::Pool;
use crate::record::{RawEntry, RecordBatch};

/// At most so many messages are taken from a queue in one call.
const CHUNK: usize = 1024;
/// What a message is taken to weigh before any was seen: large, so that the first call takes few.
const FIRST_GUESS: usize = 8 << 10;
/// Buffers that are kept for the next batches, within half of what the clients may hold in all.
const MOST_BUFFERS: usize = 16;
/// The consumer's memory is divided for at least so many partitions.
const FEWEST: usize = 4;

/// Tells that a partition's queue has messages, if anybody waits for them.
struct Ready {
    messages: AtomicBool,
    wanted: AtomicBool,
    link: Arc<Link>,
}

impl Signal for Ready {
    fn ready(&self) {
        // Both flags are set before the other is read, here and in `want`: one of the two sees both.
        self.messages.store(true, Ordering::SeqCst);
        if self.wanted.load(Ordering::SeqCst) {
            self.link.data();
        }
    }
}

impl Ready {
    fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
        if self.messages.load(Ordering::SeqCst) {
            self.link.data();
        }
    }
}

struct Entry {
    /// Which opening this is: what an older one left behind is not mixed with it.
    generation: u64,
    position: NextOffset,
    signal: Arc<Ready>,
    /// There once the partition is assigned.
    queue: Option<Queue>,
    max_bytes: usize,
    /// What a record weighed lately.
    weight: usize,
    failed: bool,
}

/// The open partitions, shared by the engine's calls and the threads.
pub(super) struct Table {
    state: Mutex<Opened>,
    link: Arc<Link>,
    /// Partitions were opened since the last look at their topics.
    pub(super) fresh: AtomicBool,
}

#[derive(Default)]
struct Opened {
    entries: BTreeMap<TopicPartition, Entry>,
    generation: u64,
    /// The consumer's own queue, for waking its thread.
    main: Option<Arc<Queue>>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The topics that are read, each with its highest partition.
    pub(super) fn topics(&self) -> BTreeMap<Arc<str>, i32> {
        let mut topics = BTreeMap::new();
        for (p, e) in &self.lock().entries {
            if !e.failed {
                let highest = topics.entry(Arc::clone(&p.topic)).or_insert(p.partition);
                *highest = p.partition.max(*highest);
            }
        }
        topics
    }

    /// Reports a topic's partitions from number `from` on as unreadable, each once.
    pub(super) fn fail(&self, topic: &str, from: i32, error: &BrokerError) {
        let mut failed = Vec::new();
        for (p, e) in &mut self.lock().entries {
            if *p.topic == *topic && p.partition >= from && !e.failed {
                e.fail();
                failed.push(p.clone());
            }
        }
        for partition in failed {
            self.link.push(Event::Failed { partition, error: error.clone() });
        }
    }
}

impl Entry {
    fn fail(&mut self) {
        self.failed = true;
        self.signal.wanted.store(false, Ordering::SeqCst);
    }
}

enum Job {
    Open(OpId, TopicPartition, u64),
    Close(OpId, TopicPartition, u64),
}

/// The engine's side.
pub(super) struct Reader {
    table: Arc<Table>,
    jobs: Option<Sender<Job>>,
    scratch: Scratch,
    /// What the engine is done with.
    buffers: Arc<Pool<RawEntry>>,
}

impl Reader {
    pub(super) fn start(config: &Arc<KafkaConfig>, link: &Arc<Link>) -> Result<(Self, JoinHandle<()>)> {
        let table = Arc::new(Table { state: Mutex::default(), link: Arc::clone(link), fresh: AtomicBool::new(false) });
        let (jobs, inbox) = mpsc::channel();
        let thread = spawn("stoat-reader", {
            let (config, table) = (Arc::clone(config), Arc::clone(&table));
            move || Consumers { config, table, consumer: None }.run(&inbox)
        })?;
        let buffers = Arc::new(Pool::new(MOST_BUFFERS, config.memory / 2));
        Ok((Self { table, jobs: Some(jobs), scratch: Scratch::default(), buffers }, thread))
    }

    pub(super) fn table(&self) -> Arc<Table> {
        Arc::clone(&self.table)
    }

    fn send(&self, job: Job) -> bool {
        let Some(jobs) = &self.jobs else { return false };
        let sent = jobs.send(job).is_ok();
        if let Some(main) = &self.table.lock().main {
            main.wake();
        }
        sent
    }

    pub(super) fn open(&mut self, op: OpId, partition: TopicPartition, offset: NextOffset) -> bool {
        let generation = {
            let mut opened = self.table.lock();
            opened.generation += 1;
            let generation = opened.generation;
            let signal = Arc::new(Ready {
                messages: AtomicBool::new(false),
                wanted: AtomicBool::new(false),
                link: Arc::clone(&self.table.link),
            });
            let entry = Entry {
                generation,
                position: offset,
                signal,
                queue: None,
                max_bytes: 0,
                weight: FIRST_GUESS,
                failed: false,
            };
            opened.entries.insert(partition.clone(), entry);
            generation
        };
        self.send(Job::Open(op, partition, generation))
    }

    pub(super) fn close(&mut self, op: OpId, partition: TopicPartition) -> bool {
        let generation = {
            let mut opened = self.table.lock();
            opened.entries.remove(&partition);
            opened.generation
        };
        self.send(Job::Close(op, partition, generation))
    }

    pub(super) fn fetch(&mut self, partition: &TopicPartition, max_bytes: usize) {
        if let Some(entry) = self.table.lock().entries.get_mut(partition)
            && !entry.failed
        {
            entry.max_bytes = max_bytes;
            entry.signal.want();
        }
    }

    /// Takes what is there of the partitions that are waited for.
    pub(super) fn take(&mut self, out: &mut Vec<Event>) {
        let mut opened = self.table.lock();
        for (partition, entry) in &mut opened.entries {
            let signal = &entry.signal;
            if signal.wanted.load(Ordering::SeqCst) && signal.messages.load(Ordering::SeqCst) {
                entry.take(partition, &mut self.scratch, &self.buffers, out);
            }
        }
    }

    pub(super) fn stop(&mut self) {
        self.jobs = None;
        if let Some(main) = &self.table.lock().main {
            main.wake();
        }
    }
}

impl Entry {
    fn take(
        &mut self,
        partition: &TopicPartition,
        scratch: &mut Scratch,
        buffers: &Arc<Pool<RawEntry>>,
        out: &mut Vec<Event>,
    ) {
        let Some(queue) = &self.queue else { return };
        // Cleared before looking: a message that arrives meanwhile sets it again.
        self.signal.messages.store(false, Ordering::SeqCst);
        let likely = queue.len().min(self.max_bytes / self.weight + 1);
        let mut batch = RecordBatch::reusing(buffers, likely, (likely * self.weight).min(self.max_bytes));
        let mut position = self.position;
        let mut caught_up = false;
        let mut error = None;
        loop {
            let room = self.max_bytes.saturating_sub(batch.weight());
            let max = (room / self.weight).clamp(1, CHUNK);
            let n = queue.consume(max, scratch, |m| {
                if error.is_some() {
                    return;
                }
                match m.code() {
                    // What is before the position was asked for is nothing that was asked for.
                    Code::NONE if m.offset() < position => {}
                    Code::NONE => {
                        batch.push(m.offset(), m.timestamp(), m.key(), m.value(), m.headers());
                        position = m.offset() + 1;
                        caught_up = false;
                    }
                    Code::PARTITION_EOF => {
                        position = position.max(m.offset());
                        caught_up = true;
                    }
                    code => match kind(code) {
                        Kind::Retriable => tracing::debug!(%partition, code = code.0, "{}", m.read_error()),
                        kind => {
                            let what = format!("{partition} cannot be read at {position}");
                            error = Some(broker_error(kind, &what, code, &m.read_error()));
                        }
                    },
                }
            });
            if !batch.is_empty() {
                self.weight = (batch.weight() / batch.len()).max(1);
            }
            if n < max {
                break;
            }
            if batch.weight() >= self.max_bytes {
                // There may be more; nobody will say so again.
                self.signal.messages.store(true, Ordering::SeqCst);
                break;
            }
        }
        self.position = position;
        if !batch.is_empty() || caught_up {
            self.signal.wanted.store(false, Ordering::SeqCst);
            out.push(Event::Fetched(Fetched { partition: partition.clone(), batch, position, caught_up }));
        }
        if let Some(error) = error {
            self.fail();
            out.push(Event::Failed { partition: partition.clone(), error });
        }
    }
}

/// The thread's side: one consumer client, made anew when the number of partitions that it was made for is outgrown.
struct Consumers {
    config: Arc<KafkaConfig>,
    table: Arc<Table>,
    consumer: Option<Consumer>,
}

struct Consumer {
    main: Arc<Queue>,
    assigned: BTreeSet<TopicPartition>,
    planned: usize,
    client: Arc<Client>,
}

impl Consumers {
    fn run(mut self, inbox: &Receiver<Job>) {
        let link = Arc::clone(&self.table.link);
        loop {
            let mut jobs = Vec::new();
            if self.consumer.is_none() {
                match inbox.recv() {
                    Ok(job) => jobs.push(job),
                    Err(_) => break,
                }
            }
            jobs.extend(inbox.try_iter());
            if link.stopping() {
                break;
            }
            self.carry_out(jobs);
            if let Some(consumer) = &self.consumer
                && let Some(event) = consumer.main.poll(Duration::from_secs(1))
                && event.is_error()
                && let Some((code, text)) = event.error()
            {
                link.client_error(code, &text);
            }
        }
        self.discard();
    }

    fn carry_out(&mut self, jobs: Vec<Job>) {
        let mut opening: Vec<(OpId, TopicPartition, u64)> = Vec::new();
        for job in jobs {
            match job {
                Job::Open(op, p, generation) => {
                    if opening.iter().any(|(_, q, _)| *q == p) {
                        self.open(std::mem::take(&mut opening));
                    }
                    opening.push((op, p, generation));
                }
                Job::Close(op, p, generation) => {
                    self.open(std::mem::take(&mut opening));
                    let result = self.close(&p, generation);
                    self.table.link.done(op, result.map(|()| Reply::Done));
                }
            }
        }
        self.open(opening);
    }

    fn close(&mut self, partition: &TopicPartition, generation: u64) -> std::result::Result<(), BrokerError> {
        // A queue that an opening before this command still brought in.
        let stale = {
            let mut opened = self.table.lock();
            match opened.entries.get_mut(partition) {
                Some(e) if e.generation <= generation => e.queue.take(),
                _ => None,
            }
        };
        drop(stale);
        if let Some(consumer) = &mut self.consumer
            && consumer.assigned.remove(partition)
        {
            let what = format!("{partition} cannot be closed");
            let one = [(partition.clone(), 0)];
            return consumer.client.assign(&one, false).map_err(|f| broker_error(kind(f.code), &what, f.code, &f.text));
        }
        Ok(())
    }

    fn open(&mut self, opening: Vec<(OpId, TopicPartition, u64)>) {
        if opening.is_empty() {
            return;
        }
        let result = self.assign(&opening);
        self.table.fresh.store(true, Ordering::SeqCst);
        for (op, ..) in opening {
            self.table.link.done(op, result.clone().map(|()| Reply::Done));
        }
    }

    fn assign(&mut self, opening: &[(OpId, TopicPartition, u64)]) -> std::result::Result<(), BrokerError> {
        let open = self.table.lock().entries.len().max(FEWEST);
        let fits = self.consumer.as_ref().is_some_and(|c| open <= c.planned * 2 && c.planned <= open * 4);
        let mut wanted: Vec<TopicPartition> = opening.iter().map(|(_, p, _)| p.clone()).collect();
        if !fits {
            if let Some(old) = self.discard() {
                // What was read ahead is read again, from where the engine has got to.
                wanted.extend(old.into_iter().filter(|p| !opening.iter().any(|(_, q, _)| q == p)));
            }
            let client = Client::new(ClientKind::Consumer, &self.config.consumer(open), self.table.link.stop_flag())
                .map_err(|e| BrokerError::new(Kind::Fatal, format!("the consumer could not be made: {e}")))?;
            let main = Arc::new(client.consumer_queue());
            self.table.lock().main = Some(Arc::clone(&main));
            self.consumer = Some(Consumer { main, assigned: BTreeSet::new(), planned: open, client });
        }
        let consumer = self.consumer.as_mut().expect("made above");
        let again: Vec<_> = wanted.iter().filter(|p| consumer.assigned.contains(*p)).map(|p| (p.clone(), 0)).collect();
        let failed = |what: &str, f: &super::ffi::Failure| broker_error(kind(f.code), what, f.code, &f.text);
        if !again.is_empty() {
            consumer.client.assign(&again, false).map_err(|f| failed("partitions cannot be opened anew", &f))?;
            for (p, _) in &again {
                consumer.assigned.remove(p);
            }
        }
        let mut at = Vec::with_capacity(wanted.len());
        for partition in wanted {
            let Some(mut queue) = consumer.client.partition_queue(&partition) else {
                return Err(BrokerError::new(Kind::Fatal, format!("{partition} has no queue")));
            };
            let mut opened = self.table.lock();
            // Closed meanwhile: the command for that follows.
            let Some(entry) = opened.entries.get_mut(&partition) else {
                continue;
            };
            queue.signal(Arc::clone(&entry.signal));
            at.push((partition.clone(), entry.position, entry.generation, queue));
        }
        let list: Vec<_> = at.iter().map(|(p, o, ..)| (p.clone(), *o)).collect();
        consumer.client.assign(&list, true).map_err(|f| failed("partitions cannot be opened", &f))?;
        let mut opened = self.table.lock();
        for (partition, _, generation, queue) in at {
            consumer.assigned.insert(partition.clone());
            if let Some(entry) = opened.entries.get_mut(&partition)
                && entry.generation == generation
            {
                entry.queue = Some(queue);
                entry.signal.ready();
            }
        }
        Ok(())
    }

    /// Destroys the client. Returns what was assigned.
    fn discard(&mut self) -> Option<BTreeSet<TopicPartition>> {
        let consumer = self.consumer.take()?;
        // Everything that keeps the client alive is dropped here, on this thread: destroying it takes a while.
        let queues: Vec<Queue> = {
            let mut opened = self.table.lock();
            opened.main = None;
            opened.entries.values_mut().filter_map(|e| e.queue.take()).collect()
        };
        drop(queues);
        Some(consumer.assigned)
    }
}
