//! The bare loop: what the client library can do with nothing between consuming and producing. Messages are taken in
//! batches from each partition's queue, produced through a cached topic handle, and committed with their offsets every
//! interval. No trap of the safe wrapper is in it: a commit through that takes at least 100 ms, here 2 to 3.

use std::ffi::{CStr, CString, c_int};
use std::ptr;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::producer::{DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka_sys as sys;

use super::{PARTITIONS, Result, config};

const CHUNK: usize = 1000;
const PATIENCE: Duration = Duration::from_mins(1);

/// Runs until the process is ended.
pub(super) fn run(bootstrap: &str, id: &str, interval: Duration) -> Result<()> {
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
    let mut start = TopicPartitionList::new();
    for p in 0..PARTITIONS {
        start.add_partition_offset("in", p, Offset::Offset(0))?;
    }
    let topic = CString::new("in")?;
    let queues: Vec<_> = (0..PARTITIONS)
        // SAFETY: the consumer lives as long as the queues are used (the process ends in this function). A queue that is
        // not forwarded holds its own partition only.
        .map(|p| unsafe {
            let queue = sys::rd_kafka_queue_get_partition(consumer.client().native_ptr(), topic.as_ptr(), p);
            sys::rd_kafka_queue_forward(queue, ptr::null_mut());
            queue
        })
        .collect();
    consumer.assign(&start)?;
    producer.init_transactions(PATIENCE)?;
    producer.begin_transaction()?;
    let rk = producer.client().native_ptr();
    // SAFETY: the producer lives; a null conf means defaults.
    let out = unsafe { sys::rd_kafka_topic_new(rk, CString::new("out")?.as_ptr(), ptr::null_mut()) };
    let metadata = consumer.group_metadata().ok_or("a consumer with a group has metadata")?;
    let mut messages: Vec<*mut sys::rd_kafka_message_t> = vec![ptr::null_mut(); CHUNK];
    let mut next = [0; PARTITIONS as usize];
    let (mut open, mut since) = (0, Instant::now());
    loop {
        let before = open;
        for (queue, next) in queues.iter().zip(&mut next) {
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
                            if sys::rd_kafka_last_error() != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR__QUEUE_FULL {
                                return Err("a record could not be produced".into());
                            }
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        *next = m.offset + 1;
                        open += 1;
                    }
                    sys::rd_kafka_message_destroy(message);
                }
            }
        }
        if open > 0 && since.elapsed() >= interval {
            let mut offsets = TopicPartitionList::new();
            for (p, offset) in (0..).zip(next) {
                offsets.add_partition_offset("in", p, Offset::Offset(offset))?;
            }
            producer.send_offsets_to_transaction(&offsets, &metadata, PATIENCE)?;
            // SAFETY: the producer lives; an error is ours.
            unsafe {
                let error = sys::rd_kafka_commit_transaction(rk, PATIENCE.as_millis() as c_int);
                if !error.is_null() {
                    let text = CStr::from_ptr(sys::rd_kafka_error_string(error)).to_string_lossy().into_owned();
                    return Err(text.into());
                }
            }
            producer.begin_transaction()?;
            (open, since) = (0, Instant::now());
        } else if open == before {
            std::thread::sleep(Duration::from_micros(500));
        }
    }
}
