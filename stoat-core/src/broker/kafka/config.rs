//! What the application says about Kafka, and the client settings that follow from it.

use std::fmt;
use std::time::Duration;

use super::ffi::{self, Setting};
use crate::config::LEAST_FETCH;
use crate::error::{Error, ErrorKind, Result};

/// The default of [`KafkaConfig::patience`].
const PATIENCE: Duration = Duration::from_secs(15);

/// How to reach Kafka and as whom.
#[derive(Clone)]
pub struct KafkaConfig {
    /// `host:port`, several with commas between them.
    pub bootstrap: String,
    /// The transactional id: of two producers with the same one, the older is fenced.
    pub transactional_id: String,
    /// The consumer group whose offsets are committed.
    pub group_id: String,
    /// After this time a transaction that was not ended is aborted by the broker; also bounds every wait for one.
    pub transaction_timeout: Duration,
    /// How long a question about topics, offsets or the group may take, its repetitions included.
    pub patience: Duration,
    /// Bytes that this client may use for what it has read ahead and for what waits to be written.
    pub memory: usize,
    /// How long the broker may gather records before it answers a fetch, when they trickle in. Each answer costs as much
    /// as dozens of records. Below 5 ms it answers at once.
    pub gather: Duration,
    /// Settings of librdkafka, such as `security.protocol`; they win over Stoat's own, save those that exactly-once rests on.
    pub client: Vec<(String, String)>,
}

impl KafkaConfig {
    /// A configuration with the default time-out (60 s) and memory (32 MiB), without gathering and client settings.
    ///
    /// # Examples
    /// ```
    /// use stoat_core::broker::kafka::KafkaConfig;
    /// let config = KafkaConfig::new("127.0.0.1:9092", "orders-0", "orders");
    /// assert_eq!(config.transaction_timeout.as_secs(), 60);
    /// ```
    pub fn new(bootstrap: impl Into<String>, transactional_id: impl Into<String>, group_id: impl Into<String>) -> Self {
        Self {
            bootstrap: bootstrap.into(),
            transactional_id: transactional_id.into(),
            group_id: group_id.into(),
            transaction_timeout: Duration::from_mins(1),
            patience: PATIENCE,
            memory: 32 << 20,
            gather: Duration::ZERO,
            client: Vec::new(),
        }
    }
}

/// Client settings may hold passwords: only their names are shown.
impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.client.iter().map(|(k, _)| k.as_str()).collect();
        f.debug_struct("KafkaConfig")
            .field("bootstrap", &self.bootstrap)
            .field("transactional_id", &self.transactional_id)
            .field("group_id", &self.group_id)
            .field("transaction_timeout", &self.transaction_timeout)
            .field("patience", &self.patience)
            .field("memory", &self.memory)
            .field("gather", &self.gather)
            .field("client", &names)
            .finish()
    }
}

/// What exactly-once rests on; a client setting of the same name has no effect.
const FORCED: &[&str] = &[
    "enable.auto.commit",
    "auto.commit.enable",
    "enable.auto.offset.store",
    "isolation.level",
    "enable.idempotence",
    "acks",
    "request.required.acks",
    "transactional.id",
    "transaction.timeout.ms",
    "group.id",
    "enable.partition.eof",
    "auto.offset.reset",
    "allow.auto.create.topics",
    "delivery.report.only.error",
];

/// librdkafka's bookkeeping for one message that it has fetched, in bytes, measured by its structures; it does not count it
/// by itself.
const MESSAGE_OVERHEAD: usize = 512;
/// The same for one that it is to write: what memory grew by with the length of the queue, the record's own bytes aside.
const QUEUED_OVERHEAD: usize = 256;

/// The longest that a broker without new records takes to answer.
const LONGEST_FETCH: Duration = Duration::from_millis(50);

pub(super) type Settings = Vec<(String, String)>;

impl KafkaConfig {
    /// Checks every client setting without making a client.
    pub(super) fn check(&self) -> Result<()> {
        let config = |text: String| Err(Error::new(ErrorKind::Config, text));
        if self.bootstrap.trim().is_empty() {
            return config("no bootstrap server is given: name at least one as host:port".into());
        }
        if self.transactional_id.is_empty() || self.group_id.is_empty() {
            return config("transactional id and group id must not be empty".into());
        }
        if self.transaction_timeout < Duration::from_secs(1) {
            return config("the transaction time-out must be at least 1 s".into());
        }
        for (key, value) in &self.client {
            match ffi::try_setting(key, value) {
                Ok(()) => {}
                Err(Setting::Unknown) => {
                    return config(format!(
                        "client setting `{key}` (`stoat.kafka.client.{key}`) is unknown to the Kafka client: see librdkafka's configuration properties"
                    ));
                }
                Err(Setting::Invalid) => {
                    return config(format!("client setting `{key}` has a value that the Kafka client does not allow"));
                }
            }
            if FORCED.contains(&key.as_str()) {
                tracing::warn!("client setting `{key}` has no effect: exactly-once rests on it, so it is set by Stoat");
            }
        }
        Ok(())
    }

    /// Half for what is read ahead, half for what waits to be written.
    fn share(&self) -> usize {
        (self.memory / 2).max(256 << 10)
    }

    fn build(&self, ours: &[(&str, String)], forced: &[(&str, String)]) -> Settings {
        let owned = |(k, v): &(&str, String)| ((*k).to_owned(), v.clone());
        let mut all: Settings = vec![
            ("bootstrap.servers".into(), self.bootstrap.clone()),
            ("reconnect.backoff.ms".into(), "50".into()),
            ("reconnect.backoff.max.ms".into(), "1000".into()),
            ("topic.metadata.refresh.interval.ms".into(), "10000".into()),
            // How long a topic that is not there is taken for one that is just being made.
            ("topic.metadata.propagation.max.ms".into(), "5000".into()),
            ("statistics.interval.ms".into(), "0".into()),
            ("enable.metrics.push".into(), "false".into()),
        ];
        all.extend(ours.iter().map(owned));
        all.extend(self.client.iter().filter(|(k, _)| !FORCED.contains(&k.as_str())).cloned());
        all.extend(forced.iter().map(owned));
        all
    }

    /// For the client that asks about topics and groups.
    pub(super) fn admin(&self) -> Settings {
        self.build(
            &[],
            &[
                // Whose offsets it asks for; it joins no group.
                ("group.id", self.group_id.clone()),
                ("isolation.level", "read_committed".into()),
                ("enable.auto.commit", "false".into()),
                ("allow.auto.create.topics", "false".into()),
            ],
        )
    }

    fn producer(&self, batch_size: usize, forced: &[(&str, String)]) -> Settings {
        let share = self.share();
        let ours = [
            // A record's size is the topic's affair: the client must not be the one that refuses it.
            ("message.max.bytes", "100000000".to_owned()),
            // A transaction's records are all there: what there is to gather comes while the requests before are under way.
            ("linger.ms", "0.1".to_owned()),
            // Between two transactions the coordinator is busy with the markers for some milliseconds and says so; by
            // default the client then sleeps 100 ms, and twice as long each time.
            ("retry.backoff.ms", "2".to_owned()),
            ("retry.backoff.max.ms", "8".to_owned()),
            // It follows retry.backoff.ms otherwise, which is far too often for asking who leads.
            ("topic.metadata.refresh.fast.interval.ms", "50".to_owned()),
            ("batch.size", batch_size.to_string()),
            // Bytes are bounded, and the bookkeeping that librdkafka does not count as well.
            ("queue.buffering.max.kbytes", (share / 2 / 1024).max(64).to_string()),
            ("queue.buffering.max.messages", (share / 2 / QUEUED_OVERHEAD).max(1000).to_string()),
        ];
        let mut all = vec![
            ("enable.idempotence", "true".to_owned()),
            ("acks", "all".to_owned()),
            ("allow.auto.create.topics", "false".to_owned()),
            ("delivery.report.only.error", "false".to_owned()),
        ];
        all.extend(forced.iter().map(|(k, v)| (*k, v.clone())));
        self.build(&ours, &all)
    }

    /// For the transactional producer.
    pub(super) fn transactional(&self, batch_size: usize) -> Settings {
        self.producer(
            batch_size,
            &[
                ("transactional.id", self.transactional_id.clone()),
                ("transaction.timeout.ms", self.transaction_timeout.as_millis().to_string()),
            ],
        )
    }

    /// For the producer of records outside transactions.
    pub(super) fn plain(&self, batch_size: usize) -> Settings {
        self.producer(batch_size, &[("message.timeout.ms", self.transaction_timeout.as_millis().to_string())])
    }

    /// For the consumer of up to `partitions` partitions, each with a queue of its own.
    pub(super) fn consumer(&self, partitions: usize) -> Settings {
        let each = self.share() / partitions.max(1);
        // One answer of the broker comes on top of what is queued, and unpacks to more than its size.
        let fetch = (each / 8).clamp(LEAST_FETCH, 1 << 20);
        let queued = (each / 2).max(LEAST_FETCH);
        let answer = (self.share() / 2).max(fetch);
        let gather = self.gather.min(LONGEST_FETCH).as_millis();
        let (least, wait) = if gather < 5 { (1, LONGEST_FETCH.as_millis()) } else { (fetch.min(64 << 10), gather) };
        self.build(
            &[
                ("queued.max.messages.kbytes", (queued / 1024).max(1).to_string()),
                ("queued.min.messages", (each / 2 / MESSAGE_OVERHEAD).clamp(32, 100_000).to_string()),
                ("fetch.message.max.bytes", fetch.to_string()),
                ("fetch.max.bytes", answer.to_string()),
                // Of no meaning for reading, but it must not be above the line before.
                ("message.max.bytes", answer.min(1_000_000).to_string()),
                ("receive.message.max.bytes", (answer + (100 << 20)).to_string()),
                // How long a partition whose queue was full is left alone; the default is a whole second.
                ("fetch.queue.backoff.ms", "5".into()),
                ("fetch.error.backoff.ms", "100".into()),
                // A partition that is opened or drained waits for the request that is under way to its broker.
                ("fetch.wait.max.ms", wait.to_string()),
                ("fetch.min.bytes", least.to_string()),
            ],
            &[
                ("group.id", self.group_id.clone()),
                ("enable.auto.commit", "false".into()),
                ("enable.auto.offset.store", "false".into()),
                ("isolation.level", "read_committed".into()),
                ("enable.partition.eof", "true".into()),
                ("auto.offset.reset", "error".into()),
                ("allow.auto.create.topics", "false".into()),
            ],
        )
    }
}
