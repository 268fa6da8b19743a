//! The bare loops: what the client library can do with nothing between consuming and producing.
//!
//! The plain one takes and sends each message through the crate `rdkafka`, as its users do. The tight one takes messages in
//! batches from each partition's queue and produces through a cached topic handle, by the functions of librdkafka itself.
//! Both commit with their offsets every interval, and past a trap of the crate: a commit through that takes at least
//! 100 ms, here 2 to 3.

use std::ffi::{CStr, CString, c_int};
use std::ptr;
use std::time::{Duration, Instant};

use rdkafka::Message;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka_sys as sys;

use super::{PARTITIONS, Result, config};

const CHUNK: usize = 1000;
const PATIENCE: Duration = Duration::from_mins(1);
/// So long a loop that found nothing waits before it looks again.
const PAUSE: Duration = Duration::from_micros(500);

/// Runs until the process is ended.
pub(super) fn run(tight: bool, bootstrap: &str, id: &str, interval: Duration) -> Result<()> {
    let bare = Bare::start(bootstrap, id, interval)?;
    if tight { bare.tight() } else { bare.plain() }
}

struct Bare {
    consumer: BaseConsumer,
    producer: ThreadedProducer<DefaultProducerContext>,
    metadata: ConsumerGroupMetadata,
    interval: Duration,
    next: [i64; PARTITIONS as usize],
    /// Records in the open transaction.
    open: usize,
    since: Instant,
}

impl Bare {
    fn start(bootstrap: &str, id: &str, interval: Duration) -> Result<Self> {
        let consumer: BaseConsumer = config(bootstrap)
            .set("group.id", id)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("isolation.level", "read_committed")
            .set("fetch.queue.backoff.ms", "5")
            .set("queued.max.messages.kbytes", "32768")
            .create()?;
        let producer: ThreadedProducer<DefaultProducerContext> = config(bootstrap)
            .set("transactional.id", id)
            .set("queue.buffering.max.kbytes", "32768")
            .set("batch.size", "1000000")
            .set("linger.ms", "2")
            .set("retry.backoff.ms", "2")
            .set("retry.backoff.max.ms", "8")
            .create()?;
        let metadata = consumer.group_metadata().ok_or("a consumer with a group has metadata")?;
        producer.init_transactions(PATIENCE)?;
        producer.begin_transaction()?;
        let next = [0; PARTITIONS as usize];
        Ok(Self { consumer, producer, metadata, interval, next, open: 0, since: Instant::now() })
    }

    fn assign(&self) -> Result<()> {
        let mut start = TopicPartitionList::new();
        for p in 0..PARTITIONS {
            start.add_partition_offset("in", p, Offset::Offset(0))?;
        }
        Ok(self.consumer.assign(&start)?)
    }

    fn plain(mut self) -> Result<()> {
        self.assign()?;
        loop {
            let Some(message) = self.consumer.poll(PAUSE) else {
                self.commit()?;
                continue;
            };
            let message = message?;
            let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to("out").partition(message.partition());
            record.key = message.key();
            record.payload = message.payload();
            while let Err((error, back)) = self.producer.send(record) {
                if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(1));
                record = back;
            }
            self.next[message.partition() as usize] = message.offset() + 1;
            self.open += 1;
            drop(message);
            // A look at the clock for each record is not what is measured here.
            if self.open.is_multiple_of(64) {
                self.commit()?;
            }
        }
    }

    fn tight(mut self) -> Result<()> {
        let topic = CString::new("in")?;
        let queues: Vec<_> = (0..PARTITIONS)
            // SAFETY: the consumer lives as long as the queues are used (the process ends in this function). A queue that
            // is not forwarded holds its own partition only.
            .map(|p| unsafe {
                let queue = sys::rd_kafka_queue_get_partition(self.consumer.client().native_ptr(), topic.as_ptr(), p);
                sys::rd_kafka_queue_forward(queue, ptr::null_mut());
                queue
            })
            .collect();
        self.assign()?;
        let rk = self.producer.client().native_ptr();
        // SAFETY: the producer lives; a null conf means defaults.
        let out = unsafe { sys::rd_kafka_topic_new(rk, CString::new("out")?.as_ptr(), ptr::null_mut()) };
        let mut messages: Vec<*mut sys::rd_kafka_message_t> = vec![ptr::null_mut(); CHUNK];
        loop {
            let before = self.open;
            for (queue, next) in queues.iter().zip(&mut self.next) {
                // SAFETY: the queue lives; there is room for CHUNK pointers, each that is written is ours.
                let n = unsafe { sys::rd_kafka_consume_batch_queue(*queue, 0, messages.as_mut_ptr(), CHUNK) };
                for &message in &messages[..usize::try_from(n).unwrap_or(0)] {
                    // SAFETY: the message lives until it is destroyed here; producing copies its bytes.
                    unsafe {
                        let m = &*message;
                        if m.err == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                            while sys::rd_kafka_produce(
                                out,
                                m.partition,
                                sys::RD_KAFKA_MSG_F_COPY as c_int,
                                m.payload,
                                m.len,
                                m.key,
                                m.key_len,
                                ptr::null_mut(),
                            ) != 0
                            {
                                let error = sys::rd_kafka_last_error();
                                if error != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__QUEUE_FULL {
                                    return Err("a record could not be produced".into());
                                }
                                std::thread::sleep(Duration::from_millis(1));
                            }
                            *next = m.offset + 1;
                            self.open += 1;
                        }
                        sys::rd_kafka_message_destroy(message);
                    }
                }
            }
            if !self.commit()? && self.open == before {
                std::thread::sleep(PAUSE);
            }
        }
    }

    /// Commits where it is time; returns whether it did.
    fn commit(&mut self) -> Result<bool> {
        if self.open == 0 || self.since.elapsed() < self.interval {
            return Ok(false);
        }
        let mut offsets = TopicPartitionList::new();
        for (p, offset) in (0..).zip(self.next) {
            offsets.add_partition_offset("in", p, Offset::Offset(offset))?;
        }
        self.producer.send_offsets_to_transaction(&offsets, &self.metadata, PATIENCE)?;
        let rk = self.producer.client().native_ptr();
        // SAFETY: the producer lives; an error is ours.
        unsafe {
            let error = sys::rd_kafka_commit_transaction(rk, PATIENCE.as_millis() as c_int);
            if !error.is_null() {
                let text = CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy().into_owned();
                return Err(text.into());
            }
        }
        self.producer.begin_transaction()?;
        (self.open, self.since) = (0, Instant::now());
        Ok(true)
    }
}
