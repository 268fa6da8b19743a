//! A broker for programs that may wait: loading input, reading results, tests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use super::{
    Bounds, Broker, BrokerError, BrokerErrorKind, Command, Committed, Event, Fetched, NewTopic, OpId, Reply, TopicInfo,
};
use crate::id::{NextOffset, TopicPartition};
use crate::record::ProduceBatch;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for each command's end on the calling thread.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use stoat_core::broker::blocking::BlockingClient;
/// use stoat_core::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig};
/// use stoat_core::record::{Headers, ProduceBatch};
/// use stoat_core::time::Timestamp;
///
/// let broker = EmbeddedBroker::open(EmbeddedConfig::memory())?;
/// let mut client = BlockingClient::new(Box::new(broker.client(ClientConfig::new("loader", "loader"))));
/// client.create_topic("in", 1)?;
/// let mut batch = ProduceBatch::new(Arc::new(["in".into()]));
/// batch.push(0, 0, Timestamp(1), None, Some(b"hello"), Headers::default());
/// client.produce(batch)?;
/// assert_eq!(client.read_all("in", |_, record| assert_eq!(record.value, Some(&b"hello"[..])))?, 1);
/// # Ok::<(), stoat_core::Error>(())
/// ```
pub struct BlockingClient {
    broker: Box<dyn Broker>,
    next: u64,
    events: Vec<Event>,
    fetched: VecDeque<Fetched>,
    failed: VecDeque<(TopicPartition, BrokerError)>,
}

impl BlockingClient {
    /// Wraps a broker.
    pub fn new(broker: Box<dyn Broker>) -> Self {
        Self { broker, next: 1, events: Vec::new(), fetched: VecDeque::new(), failed: VecDeque::new() }
    }

    fn wait(&mut self) {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        self.broker.notify(waker);
        // The time-out only guards against a broker that forgets to wake.
        std::thread::park_timeout(Duration::from_secs(1));
    }

    fn sort(&mut self, op: OpId) -> Option<Result<Reply, BrokerError>> {
        self.broker.poll(&mut self.events);
        let mut found = None;
        for e in self.events.drain(..) {
            match e {
                Event::Done { op: o, result } if o == op => found = Some(result),
                Event::Fetched(f) => self.fetched.push_back(f),
                Event::Failed { partition, error } => self.failed.push_back((partition, error)),
                Event::Done { .. } | Event::Connection(_) => {}
            }
        }
        found
    }

    /// Runs one command to its end.
    ///
    /// # Errors
    /// As the broker says.
    pub fn call(&mut self, command: Command) -> Result<Reply, BrokerError> {
        let op = OpId(self.next);
        self.next += 1;
        self.broker.submit(op, command);
        loop {
            if let Some(result) = self.sort(op) {
                return result;
            }
            self.wait();
        }
    }

    /// Creates a topic with the broker's default settings; one that exists is kept.
    ///
    /// # Errors
    /// As the broker says.
    pub fn create_topic(&mut self, name: &str, partitions: i32) -> Result<(), BrokerError> {
        self.create_topic_with(name, partitions, &[])
    }

    /// Creates a topic with these settings, such as `retention.ms`; one that exists is kept as it is.
    ///
    /// # Errors
    /// As the broker says.
    pub fn create_topic_with(
        &mut self,
        name: &str,
        partitions: i32,
        settings: &[(&str, &str)],
    ) -> Result<(), BrokerError> {
        let config = settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let topic = NewTopic { name: name.into(), partitions, replication: -1, config };
        self.call(Command::CreateTopics { topics: vec![topic] }).map(|_| ())
    }

    /// Describes a topic.
    ///
    /// # Errors
    /// As the broker says.
    pub fn describe(&mut self, name: &str) -> Result<Option<TopicInfo>, BrokerError> {
        match self.call(Command::Describe { topics: vec![name.into()] })? {
            Reply::Topics(mut t) => Ok(t.pop().flatten()),
            other => Err(unexpected(&other)),
        }
    }

    /// The bounds of all partitions of a topic.
    ///
    /// # Errors
    /// As the broker says; a topic that does not exist is one.
    pub fn bounds(&mut self, topic: &str) -> Result<Vec<(TopicPartition, Bounds)>, BrokerError> {
        let info = self.describe(topic)?.ok_or_else(|| {
            BrokerError::new(BrokerErrorKind::UnknownTopic, format!("topic `{topic}` does not exist"))
        })?;
        let partitions: Vec<_> = (0..info.partitions).map(|p| TopicPartition::new(topic, p)).collect();
        match self.call(Command::Bounds { partitions: partitions.clone() })? {
            Reply::Bounds(b) => Ok(partitions.into_iter().zip(b).collect()),
            other => Err(unexpected(&other)),
        }
    }

    /// Produces outside a transaction.
    ///
    /// # Errors
    /// As the broker says.
    pub fn produce(&mut self, batch: ProduceBatch) -> Result<Committed, BrokerError> {
        match self.call(Command::Produce(batch))? {
            Reply::Committed(c) => Ok(c),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a partition for [`BlockingClient::fetch`].
    ///
    /// # Errors
    /// As the broker says.
    pub fn open(&mut self, partition: &TopicPartition, offset: NextOffset) -> Result<(), BrokerError> {
        self.call(Command::Open { partition: partition.clone(), offset }).map(|_| ())
    }

    /// Waits for the next records of an open partition, or for its end.
    ///
    /// # Errors
    /// When the partition cannot be read.
    pub fn fetch(&mut self, partition: &TopicPartition) -> Result<Fetched, BrokerError> {
        let op = OpId(self.next);
        self.next += 1;
        self.broker.submit(op, Command::Fetch { partition: partition.clone(), max_bytes: 1 << 20 });
        loop {
            if let Some(i) = self.fetched.iter().position(|f| f.partition == *partition) {
                return Ok(self.fetched.remove(i).expect("just found"));
            }
            if let Some(i) = self.failed.iter().position(|(p, _)| p == partition) {
                return Err(self.failed.remove(i).expect("just found").1);
            }
            if self.sort(op).is_none() && self.fetched.is_empty() && self.failed.is_empty() {
                self.wait();
            }
        }
    }

    /// Reads a topic from the beginning to its last stable offset as of now, `read_committed`, partition by partition.
    /// Returns the number of records.
    ///
    /// # Errors
    /// As the broker says.
    pub fn read_all(
        &mut self,
        topic: &str,
        mut visit: impl FnMut(i32, crate::record::RawRecord<'_>),
    ) -> Result<u64, BrokerError> {
        let mut n = 0;
        for (tp, b) in self.bounds(topic)? {
            if b.start >= b.end {
                continue;
            }
            self.open(&tp, b.start)?;
            loop {
                let f = self.fetch(&tp)?;
                for r in f.batch.iter().filter(|r| r.offset < b.end) {
                    visit(tp.partition, r);
                    n += 1;
                }
                if f.position >= b.end || f.caught_up {
                    break;
                }
            }
            self.call(Command::Close { partition: tp.clone() })?;
            self.fetched.retain(|f| f.partition != tp);
        }
        Ok(n)
    }
}

fn unexpected(reply: &Reply) -> BrokerError {
    BrokerError::new(BrokerErrorKind::Fatal, format!("the broker gave an answer of another kind: {reply:?}"))
}
