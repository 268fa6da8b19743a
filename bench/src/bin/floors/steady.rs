//! A steady rate: how long a record takes from its producer to a `read_committed` consumer, and what it costs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::input::Input;
use super::kafka::{Kafka, send};
use super::process::Measured;
use super::{PARTITIONS, Result, config};

/// Records a second.
pub(super) const RATE: usize = 3_000;
/// Before anything is counted.
const WARM_UP: Duration = Duration::from_secs(3);
/// How often the producer sends.
const BEAT: Duration = Duration::from_millis(2);

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steady {
    /// Milliseconds.
    pub(super) p50: f64,
    pub(super) p99: f64,
    /// Microseconds of the process per record, while the rate is steady.
    pub(super) cpu: f64,
    pub(super) peak: u64,
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64)
}

/// Sends at the rate for so long and watches the output; the process reads `in` and writes `out`, values unchanged.
pub(super) fn run(kafka: &Kafka, process: &mut Measured, seconds: u64) -> Result<Steady> {
    let stop = AtomicBool::new(false);
    let length = WARM_UP + Duration::from_secs(seconds);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let consumer = scope.spawn(|| watch(&kafka.bootstrap, &stop).map_err(|e| e.to_string()));
        let sender = scope.spawn(|| produce(kafka, begin, length).map_err(|e| e.to_string()));
        std::thread::sleep(WARM_UP);
        let (cpu, from, at) = (process.cpu(), micros(), Instant::now());
        let sent = sender.join().map_err(|_| "the sender panicked")?;
        let (used, to, elapsed) = (process.cpu(), micros(), at.elapsed());
        // What is on its way arrives.
        std::thread::sleep(Duration::from_secs(2));
        stop.store(true, Ordering::SeqCst);
        let seen = consumer.join().map_err(|_| "the consumer panicked")??;
        sent?;
        process.check()?;
        let mut latencies: Vec<u64> =
            seen.into_iter().filter(|(sent, _)| (from..to).contains(sent)).map(|(sent, at)| at - sent).collect();
        let expected = (RATE as f64 * elapsed.as_secs_f64()) as usize;
        if latencies.len() < expected * 9 / 10 {
            return Err(format!("{} records of about {expected} have arrived", latencies.len()).into());
        }
        latencies.sort_unstable();
        let quantile = |q: f64| latencies[((latencies.len() - 1) as f64 * q) as usize] as f64 / 1e3;
        let cpu = used?.saturating_sub(cpu?).as_secs_f64() * 1e6 / latencies.len() as f64;
        Ok(Steady { p50: quantile(0.5), p99: quantile(0.99), cpu, peak: process.peak()? })
    })
}

fn produce(kafka: &Kafka, begin: Instant, length: Duration) -> Result<()> {
    let producer = kafka.producer()?;
    let (mut key, mut text) = (String::new(), String::new());
    let mut sent = 0;
    while begin.elapsed() < length {
        let due = (begin.elapsed().as_secs_f64() * RATE as f64) as usize;
        for i in sent..due {
            Input::Bytes.record(i, &mut key, &mut text);
            let mut value = text.clone().into_bytes();
            value[..8].copy_from_slice(&micros().to_be_bytes());
            send(&producer, i as i32 % PARTITIONS, &key, &value)?;
        }
        sent = due;
        std::thread::sleep(BEAT);
    }
    Ok(())
}

/// When each record was sent, and when it was seen.
fn watch(bootstrap: &str, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let consumer: BaseConsumer = config(bootstrap)
        .set("group.id", "floors-watch")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .create()?;
    let mut start = TopicPartitionList::new();
    for p in 0..PARTITIONS {
        start.add_partition_offset("out", p, Offset::Offset(0))?;
    }
    consumer.assign(&start)?;
    let mut seen = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            let message = message?;
            let sent = message.payload().and_then(|v| v.first_chunk()).map_or(0, |b| u64::from_be_bytes(*b));
            seen.push((sent, micros()));
        }
    }
    Ok(seen)
}
