//! The seam to a broker: commands go in, events come out, neither call blocks.
//!
//! Implementations: `kafka` (librdkafka), `embedded` (in-process, one directory), and the simulator's. One contract
//! test suite runs against all. The engine decides what to do; a broker only carries it out and tells what happened.

pub mod blocking;
#[cfg(any(test, feature = "testing"))]
pub mod contract;
pub mod embedded;
#[cfg(feature = "kafka")]
pub mod kafka;
#[cfg(any(test, feature = "testing"))]
pub mod sim;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;

use crate::id::{NextOffset, TopicPartition};
use crate::record::{ProduceBatch, RecordBatch};

/// Ties an [`Event::Done`] to its [`Command`]. The engine chooses the numbers; each is used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u64);

/// A broker as the engine sees it: one application's producer, consumer and admin client in one.
///
/// Input is read `read_committed`. Commands of one broker that touch the producer (`InitProducer`, `Transact`,
/// `CommitAgain`, `Abort`, `Produce`) are carried out one after another, in the order of submission.
pub trait Broker: Send {
    /// Takes a command; its [`Event::Done`] follows through [`Broker::poll`], also when it failed.
    fn submit(&mut self, op: OpId, command: Command);

    /// Appends what has happened since the last call.
    fn poll(&mut self, out: &mut Vec<Event>);

    /// Has `waker` woken (once) when the next event is there, at once if one is there already.
    fn notify(&self, waker: Waker);
}

/// Something for the broker to do.
#[derive(Debug)]
pub enum Command {
    /// Looks at topics without creating them. Replies [`Reply::Topics`], in the order asked for; `None`: no such topic.
    Describe {
        /// Topic names.
        topics: Vec<Arc<str>>,
    },
    /// All topic names that the broker has; for did-you-mean texts. Replies [`Reply::Names`].
    ListTopics,
    /// Creates topics; one that exists already is not an error. Replies [`Reply::Done`].
    CreateTopics {
        /// What to create.
        topics: Vec<NewTopic>,
    },
    /// Log bounds. Replies [`Reply::Bounds`], in the order asked for.
    Bounds {
        /// Partitions.
        partitions: Vec<TopicPartition>,
    },
    /// The application's consumer group. Replies [`Reply::Group`].
    Group {
        /// Whose committed offsets to look up.
        partitions: Vec<TopicPartition>,
    },
    /// Initialises the transactional producer: ends every older transaction of this transactional id and fences
    /// its older producers. Replies [`Reply::Done`].
    InitProducer,
    /// Runs one whole transaction: begin, produce, offsets, commit. Replies [`Reply::Committed`].
    /// After an error of kind [`BrokerErrorKind::Unknown`]: [`Command::CommitAgain`] or [`Command::InitProducer`].
    /// After any other error the transaction has been aborted, or is ended by the next [`Command::InitProducer`].
    Transact(Arc<Transaction>),
    /// Tries the same commit again after an unknown outcome. Replies [`Reply::Committed`].
    CommitAgain,
    /// Produces outside a transaction and waits until all is acknowledged. Replies [`Reply::Committed`].
    Produce(ProduceBatch),
    /// Begins to read a partition at an offset. Replies [`Reply::Done`]. What is read comes as [`Event::Fetched`].
    /// A partition that is open already is opened anew at that offset.
    Open {
        /// The partition.
        partition: TopicPartition,
        /// Where to begin.
        offset: NextOffset,
    },
    /// Asks for one [`Event::Fetched`] of an open partition: it follows when there are records, or when the position
    /// reached the end ([`Fetched::caught_up`]) and this was not said since the last records. Asking twice is asking once.
    /// It has no [`Event::Done`].
    Fetch {
        /// The partition.
        partition: TopicPartition,
        /// Stop after about so many bytes; at least one record comes.
        max_bytes: usize,
    },
    /// Stops reading a partition: no [`Event::Fetched`] of it follows the [`Reply::Done`].
    Close {
        /// The partition.
        partition: TopicPartition,
    },
}

/// One transaction.
#[derive(Debug, Default)]
pub struct Transaction {
    /// Records that are produced *outside* the transaction and acknowledged before it begins (at-least-once outputs).
    pub before: Vec<ProduceBatch>,
    /// For `before`: the order over all batches as (batch, record); empty: batch after batch.
    pub before_order: Vec<(u32, u32)>,
    /// Records of the transaction.
    pub batches: Vec<ProduceBatch>,
    /// For the first `ordered` of `batches`: the order over all of them as (batch, record); the others follow, batch after batch.
    pub order: Vec<(u32, u32)>,
    /// How many of `batches` `order` speaks of.
    pub ordered: usize,
    /// Offsets for the application's consumer group, committed with the transaction.
    pub offsets: Vec<(TopicPartition, NextOffset)>,
}

impl Transaction {
    /// All records of the transaction in order, each with its place as (batch, record).
    pub fn places(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let rest = self.batches.iter().enumerate().skip(self.ordered);
        self.order
            .iter()
            .copied()
            .chain(rest.flat_map(|(b, batch)| (0..batch.len() as u32).map(move |i| (b as u32, i))))
    }

    /// All records of `before` in order.
    pub fn places_before(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let all = if self.before_order.is_empty() { self.before.as_slice() } else { &[] };
        let rest = all.iter().enumerate();
        self.before_order
            .iter()
            .copied()
            .chain(rest.flat_map(|(b, batch)| (0..batch.len() as u32).map(move |i| (b as u32, i))))
    }
}

/// A topic to create.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// The name.
    pub name: Arc<str>,
    /// The number of partitions.
    pub partitions: i32,
    /// The replication factor; -1: the broker's default.
    pub replication: i32,
    /// Topic settings, such as `cleanup.policy`.
    pub config: Vec<(String, String)>,
}

/// What is known about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicInfo {
    /// The name.
    pub name: Arc<str>,
    /// The broker's own id of this topic: a topic that was deleted and made anew has another. Empty where the broker tells none.
    pub id: String,
    /// The number of partitions.
    pub partitions: i32,
    /// `cleanup.policy`, `delete.retention.ms`, `retention.ms`, `max.message.bytes` and other settings as far as the broker tells them.
    pub config: Vec<(String, String)>,
}

impl TopicInfo {
    /// A setting by name.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.config.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }
}

/// The bounds of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that is still there.
    pub start: NextOffset,
    /// The last stable offset: nothing before it is part of an open transaction. Markers count.
    pub end: NextOffset,
}

/// The application's consumer group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupInfo {
    /// Its live members, as the broker names them.
    pub members: Vec<String>,
    /// The committed offsets of the partitions asked for; `None`: none committed.
    pub offsets: Vec<Option<NextOffset>>,
}

/// Where a transaction's records went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Committed {
    /// For each partition written to: the offset behind its last record (the commit marker comes after it).
    pub ends: Vec<(TopicPartition, NextOffset)>,
    /// Whether an earlier attempt of this commit had an unknown outcome: its request may still arrive.
    pub retried: bool,
}

/// The answer to a command.
#[derive(Debug)]
pub enum Reply {
    /// It is done.
    Done,
    /// See [`Command::Describe`].
    Topics(Vec<Option<TopicInfo>>),
    /// See [`Command::ListTopics`].
    Names(Vec<String>),
    /// See [`Command::Bounds`].
    Bounds(Vec<Bounds>),
    /// See [`Command::Group`].
    Group(GroupInfo),
    /// See [`Command::Transact`].
    Committed(Committed),
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A command has ended.
    Done {
        /// Which.
        op: OpId,
        /// How.
        result: Result<Reply, BrokerError>,
    },
    /// Records of an open partition.
    Fetched(Fetched),
    /// An open partition cannot be read (any more): the topic is gone, the offset is not in the log, not authorised.
    Failed {
        /// The partition.
        partition: TopicPartition,
        /// Why.
        error: BrokerError,
    },
    /// The connection as such changed: `Some` text when the broker cannot be reached, `None` when it can again.
    Connection(Option<String>),
}

/// See [`Command::Fetch`].
#[derive(Debug)]
pub struct Fetched {
    /// The partition.
    pub partition: TopicPartition,
    /// The records; may be empty when only the position moved (markers) or the end was reached.
    pub batch: RecordBatch,
    /// The offset that is read next. Counts markers.
    pub position: NextOffset,
    /// Whether the position has reached the last stable offset.
    pub caught_up: bool,
}

/// What kind of failure it is; each has one right reaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BrokerErrorKind {
    /// It did not happen and may work later: the broker is away or busy. Try again.
    Retriable,
    /// A commit whose outcome nobody knows.
    Unknown,
    /// The transaction is spoilt and must be (or has been) aborted; the next one may work.
    Abort,
    /// The broker will never take this record. The place in the transaction, as (batch, record), when it is known; for a
    /// record of [`Transaction::before`] the batch counts on behind [`Transaction::batches`].
    Refused(Option<(u32, u32)>),
    /// This producer is not the newest of its transactional id, or its transaction was ended by the broker.
    Fenced,
    /// No such topic or partition.
    UnknownTopic,
    /// The offset is not in the log.
    OutOfRange,
    /// Not allowed to.
    Unauthorized,
    /// The client is unusable; make a new one.
    Fatal,
}

/// A failure of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerError {
    /// The kind.
    pub kind: BrokerErrorKind,
    /// What happened, with the broker's own words.
    pub message: String,
}

impl BrokerError {
    /// Makes an error.
    pub fn new(kind: BrokerErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for BrokerError {}
