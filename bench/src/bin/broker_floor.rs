//! What the broker seam costs: records of 100 bytes are read from one topic and written to another, exactly once, by
//! a bare loop over the client library's safe interface and by the seam, one after the other and again.
//!
//! `cargo run --release -p stoat-bench --bin broker_floor -- BOOTSTRAP [RECORDS] [ROUNDS]`
//!
//! Prints CPU time of this process per record (the broker is another process), records a second, and the ratio of the
//! medians.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::error::Error;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use stoat_core::broker::kafka::{KafkaBroker, KafkaConfig};
use stoat_core::broker::{Broker, Command, Event, NewTopic, OpId, Reply, Transaction};
use stoat_core::id::TopicPartition;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

const PARTITIONS: i32 = 4;
const VALUE: usize = 100;
/// Records of one transaction.
const EPOCH: usize = 10_000;
const FETCH: usize = 256 << 10;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

struct Measured {
    cpu_micros: f64,
    per_second: f64,
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let bootstrap = args.next().ok_or("usage: broker_floor BOOTSTRAP [RECORDS] [ROUNDS]")?;
    let records: usize = args.next().map_or(Ok(1_000_000), |a| a.parse())?;
    let rounds: usize = args.next().map_or(Ok(3), |a| a.parse())?;
    let run = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let (from, to) = (format!("floor-in-{run}"), format!("floor-out-{run}"));
    prepare(&bootstrap, &from, &to, records)?;
    let (mut bare_all, mut seam_all) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let bare = measure(records, || bare(&bootstrap, &from, &to, &format!("bare-{run}-{round}"), records))?;
        println!("bare: {:.2} us CPU a record, {:.0} records/s", bare.cpu_micros, bare.per_second);
        let seam = measure(records, || seam(&bootstrap, &from, &to, &format!("seam-{run}-{round}"), records))?;
        println!("seam: {:.2} us CPU a record, {:.0} records/s", seam.cpu_micros, seam.per_second);
        bare_all.push(bare.cpu_micros);
        seam_all.push(seam.cpu_micros);
    }
    let (bare, seam) = (median(&mut bare_all), median(&mut seam_all));
    println!("medians: bare {bare:.2} us, seam {seam:.2} us, ratio {:.2}", seam / bare);
    Ok(())
}

fn median(all: &mut [f64]) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn measure(records: usize, run: impl FnOnce() -> Result<()>) -> Result<Measured> {
    let (cpu, start) = (cpu_time()?, Instant::now());
    run()?;
    let (cpu, wall) = (cpu_time()?.saturating_sub(cpu), start.elapsed());
    let records = records as f64;
    Ok(Measured { cpu_micros: cpu.as_secs_f64() * 1e6 / records, per_second: records / wall.as_secs_f64() })
}

/// User and system time of this process and all its threads; Linux counts them in ticks of 10 ms.
fn cpu_time() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let behind_name = stat.rsplit_once(')').ok_or("/proc/self/stat has no name")?.1;
    let ticks =
        behind_name.split_whitespace().skip(11).take(2).map(str::parse::<u64>).sum::<std::result::Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * 10))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Takes the next events, waiting for them.
fn next(broker: &mut KafkaBroker, events: &mut Vec<Event>) {
    loop {
        broker.poll(events);
        if !events.is_empty() {
            return;
        }
        broker.notify(Waker::from(Arc::new(Unpark(std::thread::current()))));
        std::thread::park();
    }
}

fn call(broker: &mut KafkaBroker, op: u64, command: Command) -> Result<Reply> {
    broker.submit(OpId(op), command);
    let mut events = Vec::new();
    loop {
        next(broker, &mut events);
        for event in events.drain(..) {
            if let Event::Done { op: done, result } = event
                && done == OpId(op)
            {
                return Ok(result?);
            }
        }
    }
}

fn prepare(bootstrap: &str, from: &str, to: &str, records: usize) -> Result<()> {
    let mut broker = KafkaBroker::new(KafkaConfig::new(bootstrap, from, from)).map_err(|e| e.to_string())?;
    let topics = [from, to]
        .map(|name| NewTopic { name: name.into(), partitions: PARTITIONS, replication: 1, config: Vec::new() })
        .into();
    call(&mut broker, 0, Command::CreateTopics { topics })?;
    let table: Arc<[Arc<str>]> = [Arc::from(from)].into();
    let value = [b'x'; VALUE];
    for (op, first) in (0..records).step_by(100_000).enumerate() {
        let mut batch = ProduceBatch::new(Arc::clone(&table));
        for i in first..records.min(first + 100_000) {
            batch.push(0, i as i32 % PARTITIONS, Timestamp(1 + i as i64), None, Some(&value), Headers::default());
        }
        call(&mut broker, 1 + op as u64, Command::Produce(batch))?;
    }
    Ok(())
}

/// The client library as its documentation shows it: poll a message, send it, commit now and then.
fn bare(bootstrap: &str, from: &str, to: &str, id: &str, records: usize) -> Result<()> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("group.id", id)
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.queue.backoff.ms", "5")
        .set("queued.max.messages.kbytes", "16384")
        .create()?;
    let producer: ThreadedProducer<DefaultProducerContext> = ClientConfig::new()
        .set("bootstrap.servers", bootstrap)
        .set("transactional.id", id)
        .set("queue.buffering.max.kbytes", "16384")
        .set("linger.ms", "2")
        .set("retry.backoff.ms", "2")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    for p in 0..PARTITIONS {
        assignment.add_partition_offset(from, p, Offset::Offset(0))?;
    }
    consumer.assign(&assignment)?;
    let patience = Duration::from_mins(1);
    producer.init_transactions(patience)?;
    producer.begin_transaction()?;
    let metadata = consumer.group_metadata().ok_or("no group")?;
    let mut next = [0; PARTITIONS as usize];
    let mut open = 0;
    for done in 1..=records {
        let message = consumer.poll(patience).ok_or("no message within a minute")??;
        let partition = message.partition();
        next[partition as usize] = message.offset() + 1;
        let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(to)
            .partition(partition)
            .payload(message.payload().ok_or("a value")?)
            .timestamp(message.timestamp().to_millis().unwrap_or(1));
        while let Err((error, back)) = producer.send(record) {
            if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                return Err(error.into());
            }
            std::thread::sleep(Duration::from_millis(1));
            record = back;
        }
        open += 1;
        if open == EPOCH || done == records {
            let mut offsets = TopicPartitionList::new();
            for (p, offset) in next.iter().enumerate() {
                offsets.add_partition_offset(from, p as i32, Offset::Offset(*offset))?;
            }
            producer.send_offsets_to_transaction(&offsets, &metadata, patience)?;
            producer.commit_transaction(patience)?;
            if done < records {
                producer.begin_transaction()?;
            }
            open = 0;
        }
    }
    Ok(())
}

/// The same through the seam: while one transaction is on its way the next is being filled.
fn seam(bootstrap: &str, from: &str, to: &str, id: &str, records: usize) -> Result<()> {
    let mut broker = KafkaBroker::new(KafkaConfig::new(bootstrap, id, id)).map_err(|e| e.to_string())?;
    call(&mut broker, 0, Command::InitProducer)?;
    let inputs: Vec<TopicPartition> = (0..PARTITIONS).map(|p| TopicPartition::new(from, p)).collect();
    for (op, partition) in inputs.iter().enumerate() {
        broker.submit(OpId(1 + op as u64), Command::Open { partition: partition.clone(), offset: 0 });
        broker.submit(OpId(100), Command::Fetch { partition: partition.clone(), max_bytes: FETCH });
    }
    let table: Arc<[Arc<str>]> = [Arc::from(to)].into();
    let mut filling = ProduceBatch::new(Arc::clone(&table));
    let mut next_offsets = vec![0; inputs.len()];
    let (mut read, mut written, mut in_flight, mut op) = (0, 0, 0, 1_000);
    let mut waiting: Vec<TopicPartition> = Vec::new();
    let mut events = Vec::new();
    while written < records {
        next(&mut broker, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Fetched(fetched) => {
                    for r in fetched.batch.iter() {
                        filling.push(0, fetched.partition.partition, r.timestamp, r.key, r.value, Headers::default());
                    }
                    read += fetched.batch.len();
                    next_offsets[fetched.partition.partition as usize] = fetched.position;
                    waiting.push(fetched.partition);
                }
                Event::Done { op: done, result } => {
                    if let Reply::Committed(_) = result?
                        && done == OpId(op)
                    {
                        written += in_flight;
                        in_flight = 0;
                    }
                }
                Event::Failed { error, .. } => return Err(error.into()),
                Event::Connection(state) => eprintln!("connection: {state:?}"),
            }
        }
        if in_flight == 0 && (filling.len() >= EPOCH || read == records) && !filling.is_empty() {
            in_flight = filling.len();
            op += 1;
            let batch = std::mem::replace(&mut filling, ProduceBatch::new(Arc::clone(&table)));
            let offsets = inputs.iter().cloned().zip(next_offsets.iter().copied()).collect();
            let t = Transaction { batches: vec![batch], offsets, ..Transaction::default() };
            broker.submit(OpId(op), Command::Transact(Arc::new(t)));
        }
        if filling.len() < EPOCH {
            for partition in waiting.drain(..) {
                broker.submit(OpId(100), Command::Fetch { partition, max_bytes: FETCH });
            }
        }
    }
    Ok(())
}
