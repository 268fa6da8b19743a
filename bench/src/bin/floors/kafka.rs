//! Topics, input, and how far a group has got.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use tokio::runtime::{Builder, Runtime};

use super::input::Input;
use super::{PARTITIONS, Result, config};

const PATIENCE: Duration = Duration::from_secs(30);

/// The broker as the measuring program sees it.
pub(super) struct Kafka {
    pub(super) bootstrap: String,
    admin: AdminClient<DefaultClientContext>,
    runtime: Runtime,
}

impl Kafka {
    pub(super) fn connect(bootstrap: &str) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let kafka = Self { bootstrap: bootstrap.to_owned(), admin: config(bootstrap).create()?, runtime };
        kafka.topics().map_err(|e| format!("no Kafka answers at {bootstrap} ({e})"))?;
        Ok(kafka)
    }

    fn topics(&self) -> Result<Vec<String>> {
        let all = self.admin.inner().fetch_metadata(None, Duration::from_secs(10))?;
        Ok(all.topics().iter().map(|t| t.name().to_owned()).collect())
    }

    /// Deletes what a predicate names and waits until it is gone.
    fn delete(&self, which: impl Fn(&str) -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            let there: Vec<String> = self.topics()?.into_iter().filter(|t| which(t)).collect();
            if there.is_empty() {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("topics {} are not gone 30 s after their deletion", there.join(", ")).into());
            }
            let names: Vec<&str> = there.iter().map(String::as_str).collect();
            self.runtime.block_on(self.admin.delete_topics(&names, &AdminOptions::new()))?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Makes `in` and `out` anew.
    pub(super) fn fresh(&self) -> Result<()> {
        self.delete(|t| t == "in" || t == "out")?;
        let begin = Instant::now();
        loop {
            let topics = ["in", "out"].map(|t| NewTopic::new(t, PARTITIONS, TopicReplication::Fixed(1)));
            let made = self.runtime.block_on(self.admin.create_topics(&topics, &AdminOptions::new()))?;
            // A name may be taken for a moment after its deletion.
            if made.iter().all(Result::is_ok) {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                return Err(format!("the topics could not be made: {made:?}").into());
            }
            self.delete(|t| t == "in" || t == "out")?;
        }
    }

    /// Deletes an application's own topics, and its group.
    pub(super) fn forget(&self, application: &str) -> Result<()> {
        let own = format!("{application}-");
        self.delete(|t| t.starts_with(&own))?;
        // A group that has nothing committed is not there.
        let _ = self.runtime.block_on(self.admin.delete_groups(&[application], &AdminOptions::new()))?;
        Ok(())
    }

    pub(super) fn producer(&self) -> Result<ThreadedProducer<DefaultProducerContext>> {
        Ok(config(&self.bootstrap)
            .set("linger.ms", "1")
            .set("batch.size", "500000")
            .set("queue.buffering.max.kbytes", "65536")
            .create()?)
    }

    /// Writes the input.
    pub(super) fn load(&self, input: Input, records: usize) -> Result<()> {
        let producer = self.producer()?;
        let (mut key, mut value) = (String::new(), String::new());
        for i in 0..records {
            input.record(i, &mut key, &mut value);
            send(&producer, i as i32 % PARTITIONS, &key, value.as_bytes())?;
        }
        producer.flush(PATIENCE)?;
        Ok(())
    }

    /// Something that tells how many records a group has committed.
    pub(super) fn progress(&self, group: &str) -> Result<Progress> {
        let consumer = config(&self.bootstrap).set("group.id", group).create()?;
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_range("in", 0, PARTITIONS - 1);
        Ok(Progress { consumer, partitions })
    }
}

/// Sends one record; waits while the client's queue is full.
pub(super) fn send(
    producer: &ThreadedProducer<DefaultProducerContext>,
    partition: i32,
    key: &str,
    value: &[u8],
) -> Result<()> {
    let mut record = BaseRecord::to("in").partition(partition).key(key).payload(value);
    while let Err((error, back)) = producer.send(record) {
        if error != KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull) {
            return Err(error.into());
        }
        std::thread::sleep(Duration::from_millis(1));
        record = back;
    }
    Ok(())
}

/// See [`Kafka::progress`].
pub(super) struct Progress {
    consumer: BaseConsumer,
    partitions: TopicPartitionList,
}

impl Progress {
    pub(super) fn records(&self) -> Result<u64> {
        let committed = self.consumer.committed_offsets(self.partitions.clone(), PATIENCE)?;
        let offset = |o| if let Offset::Offset(n) = o { n as u64 } else { 0 };
        Ok(committed.elements().iter().map(|e| offset(e.offset())).sum())
    }
}
