//! The contract of [`Broker`] as tests: every implementation runs [`broker_contract!`](crate::broker_contract).
//!
//! The cases wait for events on the waker, never by sleeping, and use topic names of their own, so they can share
//! one broker. Where implementations may differ (an end that is told with the records or behind them) a case
//! accepts every behaviour that the trait allows, and nothing else.
#![expect(clippy::disallowed_methods, reason = "the suite waits for real brokers, within bounds")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{
    Bounds, Broker, BrokerError, BrokerErrorKind, Command, Committed, Event, Fetched, GroupInfo, NewTopic, OpId, Reply,
    TopicInfo, Transaction,
};
use crate::id::{NextOffset, TopicPartition};
use crate::record::{Headers, ProduceBatch};
use crate::time::Timestamp;

/// Makes one `#[test]` per case of the contract. The argument is an expression that gives a [`Factory`]; it is
/// evaluated once per case.
#[macro_export]
macro_rules! broker_contract {
    ($factory:expr) => {
        $crate::broker_contract! { @cases $factory;
            topics_are_created_once_and_described
            an_unknown_topic_is_told_apart
            an_empty_partition_has_equal_bounds
            plain_records_come_back_with_every_byte_and_in_order
            a_transaction_is_seen_whole_over_topics_and_group
            records_of_a_transaction_keep_its_order
            markers_take_offsets_and_positions_count_them
            the_end_is_told_once_until_more_records_come
            at_least_one_record_comes_however_few_bytes_are_asked_for
            a_fetch_waits_for_records
            open_begins_at_its_offset_and_anew
            an_offset_outside_the_log_fails
            an_unknown_topic_cannot_be_read
            an_older_producer_is_fenced_and_its_records_stay_unseen
            init_producer_may_be_repeated
            group_offsets_are_per_group_and_partition_and_the_last_one_counts
            nothing_comes_after_close
            a_record_that_is_too_large_spoils_only_its_transaction
            an_empty_transaction_commits_and_writes_nothing
            two_readers_read_the_same
            two_producers_share_a_partition
            producer_commands_run_in_order_of_submission
            records_before_a_transaction_stay_when_it_is_refused
            an_event_that_is_there_already_wakes_at_once
        }
    };
    (@cases $factory:expr; $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::broker::contract::$case(&$factory);
            }
        )*
    };
}

/// Gives connections to the broker under test.
pub trait Factory {
    /// A new connection: one application's, or a plain reader's when it has no transactional id.
    fn client(&self, transactional_id: Option<&str>, group_id: Option<&str>) -> Box<dyn Broker>;

    /// How long an event may take before a case fails.
    fn patience(&self) -> Duration {
        Duration::from_mins(1)
    }
}

/// A connection with blocking calls: submits, parks on the waker, keeps events that nobody asked for yet.
pub struct Session {
    broker: Box<dyn Broker>,
    next_op: u64,
    events: VecDeque<Event>,
    patience: Duration,
}

/// A record as a reader saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its offset.
    pub offset: i64,
    /// Its timestamp.
    pub timestamp: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Seen {
    /// The value as text.
    ///
    /// # Panics
    /// When the record has none.
    pub fn text(&self) -> &str {
        std::str::from_utf8(self.value.as_deref().expect("a value")).expect("text")
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Session {
    /// Wraps a connection.
    pub fn new(broker: Box<dyn Broker>, patience: Duration) -> Self {
        Self { broker, next_op: 0, events: VecDeque::new(), patience }
    }

    /// A connection of a factory.
    pub fn of(factory: &dyn Factory, transactional_id: Option<&str>, group_id: Option<&str>) -> Self {
        Self::new(factory.client(transactional_id, group_id), factory.patience())
    }

    /// Submits without waiting.
    pub fn submit(&mut self, command: Command) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.broker.submit(op, command);
        op
    }

    /// The first event that `pick` takes; the others stay.
    ///
    /// # Panics
    /// When it does not come in time.
    pub fn wait<T>(&mut self, what: &str, mut pick: impl FnMut(&Event) -> bool, take: impl FnOnce(Event) -> T) -> T {
        let deadline = Instant::now() + self.patience;
        let mut tried = 0;
        loop {
            if let Some(i) = self.events.iter().skip(tried).position(&mut pick) {
                return take(self.events.remove(tried + i).expect("just found"));
            }
            tried = self.events.len();
            let mut new = Vec::new();
            self.broker.poll(&mut new);
            if new.is_empty() {
                self.broker.notify(Waker::from(Arc::new(Unpark(thread::current()))));
                let left = deadline.saturating_duration_since(Instant::now());
                assert!(!left.is_zero(), "{what} did not come within {:?}; waiting: {:?}", self.patience, self.events);
                thread::park_timeout(left);
                self.broker.poll(&mut new);
            }
            self.events.extend(new);
        }
    }

    /// Waits for the end of a command.
    pub fn done(&mut self, op: OpId) -> Result<Reply, BrokerError> {
        self.wait(
            "the end of a command",
            |e| matches!(e, Event::Done { op: o, .. } if *o == op),
            |e| match e {
                Event::Done { result, .. } => result,
                _ => unreachable!("picked above"),
            },
        )
    }

    /// Submits and waits.
    pub fn call(&mut self, command: Command) -> Result<Reply, BrokerError> {
        let op = self.submit(command);
        self.done(op)
    }

    /// Creates a topic and waits until it can be described.
    ///
    /// # Panics
    /// When that fails.
    pub fn create(&mut self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let topic = NewTopic {
            name: name.into(),
            partitions,
            replication: -1,
            config: config.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        };
        self.call(Command::CreateTopics { topics: vec![topic] }).expect("the topic is created");
        let deadline = Instant::now() + self.patience;
        while self.describe(name).is_none() {
            assert!(Instant::now() < deadline, "topic `{name}` was created and does not appear");
        }
    }

    /// Describes a topic.
    ///
    /// # Panics
    /// When the command fails.
    pub fn describe(&mut self, name: &str) -> Option<TopicInfo> {
        match self.call(Command::Describe { topics: vec![name.into()] }) {
            Ok(Reply::Topics(mut topics)) => topics.remove(0),
            other => panic!("describe `{name}`: {other:?}"),
        }
    }

    /// The bounds of a partition.
    ///
    /// # Panics
    /// When the command fails.
    pub fn bounds(&mut self, partition: &TopicPartition) -> Bounds {
        match self.call(Command::Bounds { partitions: vec![partition.clone()] }) {
            Ok(Reply::Bounds(b)) => b[0],
            other => panic!("bounds of {partition}: {other:?}"),
        }
    }

    /// The group's offsets.
    ///
    /// # Panics
    /// When the command fails.
    pub fn group(&mut self, partitions: &[TopicPartition]) -> GroupInfo {
        match self.call(Command::Group { partitions: partitions.to_vec() }) {
            Ok(Reply::Group(g)) => g,
            other => panic!("group: {other:?}"),
        }
    }

    /// Initialises the producer.
    ///
    /// # Panics
    /// When that fails.
    pub fn init(&mut self) {
        self.call(Command::InitProducer).expect("the producer is initialised");
    }

    /// Runs a transaction.
    pub fn transact(&mut self, transaction: Transaction) -> Result<Committed, BrokerError> {
        self.call(Command::Transact(Arc::new(transaction))).map(committed)
    }

    /// Produces outside a transaction.
    pub fn produce(&mut self, batch: ProduceBatch) -> Result<Committed, BrokerError> {
        self.call(Command::Produce(batch)).map(committed)
    }

    /// Opens a partition.
    ///
    /// # Panics
    /// When that fails.
    pub fn open(&mut self, partition: &TopicPartition, offset: NextOffset) {
        self.call(Command::Open { partition: partition.clone(), offset }).expect("the partition is opened");
    }

    /// Asks for records without waiting.
    pub fn ask(&mut self, partition: &TopicPartition, max_bytes: usize) {
        self.submit(Command::Fetch { partition: partition.clone(), max_bytes });
    }

    /// Waits for what an open partition gives.
    pub fn fetched(&mut self, partition: &TopicPartition) -> Result<Fetched, BrokerError> {
        self.wait(
            "records or the end of a partition",
            |e| match e {
                Event::Fetched(f) => f.partition == *partition,
                Event::Failed { partition: p, .. } => p == partition,
                _ => false,
            },
            |e| match e {
                Event::Fetched(f) => Ok(f),
                Event::Failed { error, .. } => Err(error),
                _ => unreachable!("picked above"),
            },
        )
    }

    /// Whether an event of the partition's reading has come that nobody has waited for.
    pub fn has_fetched(&mut self, partition: &TopicPartition) -> bool {
        let mut new = Vec::new();
        self.broker.poll(&mut new);
        self.events.extend(new);
        self.events.iter().any(|e| match e {
            Event::Fetched(f) => f.partition == *partition,
            Event::Failed { partition: p, .. } => p == partition,
            _ => false,
        })
    }

    /// Reads on from where an open partition stands until the position has reached `end` and the end is told; gives the
    /// records and the position. (A commit may be told before readers see it: an end may be told that lies before it.)
    ///
    /// # Panics
    /// When reading fails, an offset does not rise, or a position is not behind its records.
    pub fn read_on(&mut self, partition: &TopicPartition, end: NextOffset) -> (Vec<Seen>, NextOffset) {
        let mut seen: Vec<Seen> = Vec::new();
        loop {
            self.ask(partition, 64 << 10);
            let f = self.fetched(partition).expect("the partition can be read");
            seen.extend(rows(&f));
            assert!(seen.windows(2).all(|w| w[0].offset < w[1].offset), "offsets rise");
            assert!(seen.last().is_none_or(|r| r.offset < f.position), "the position is behind the records");
            if f.caught_up && f.position >= end {
                return (seen, f.position);
            }
        }
    }

    /// Opens a partition at an offset and reads it to `end` or farther.
    pub fn read_from(
        &mut self,
        partition: &TopicPartition,
        offset: NextOffset,
        end: NextOffset,
    ) -> (Vec<Seen>, NextOffset) {
        self.open(partition, offset);
        self.read_on(partition, end)
    }

    /// The values of a whole partition, up to `end` or farther, as text.
    pub fn texts(&mut self, partition: &TopicPartition, end: NextOffset) -> Vec<String> {
        self.read_from(partition, 0, end).0.iter().map(|r| r.text().to_owned()).collect()
    }

    /// The bounds of a partition once its end is `end` or farther.
    ///
    /// # Panics
    /// When the command fails, or the end stays behind.
    pub fn bounds_at(&mut self, partition: &TopicPartition, end: NextOffset) -> Bounds {
        let deadline = Instant::now() + self.patience;
        loop {
            let bounds = self.bounds(partition);
            if bounds.end >= end {
                return bounds;
            }
            assert!(Instant::now() < deadline, "{partition} stays at {bounds:?}, {end} was committed");
        }
    }
}

/// Where readers are behind a committed transaction in a partition that it wrote to: its marker counts.
///
/// # Panics
/// When it did not write there.
pub fn behind(committed: &Committed, partition: &TopicPartition) -> NextOffset {
    committed.ends.iter().find(|(p, _)| p == partition).expect("it was written to").1 + 1
}

fn committed(reply: Reply) -> Committed {
    match reply {
        Reply::Committed(c) => c,
        other => panic!("expected where the records went, got {other:?}"),
    }
}

/// The records of one answer.
pub fn rows(fetched: &Fetched) -> Vec<Seen> {
    fetched
        .batch
        .iter()
        .map(|r| Seen {
            offset: r.offset,
            timestamp: r.timestamp.0,
            key: r.key.map(<[u8]>::to_vec),
            value: r.value.map(<[u8]>::to_vec),
            headers: r.headers.iter().map(|h| (h.name.to_string(), h.value.clone())).collect(),
        })
        .collect()
}

/// A name that no other test run used on a shared broker.
pub fn unique(name: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    format!("contract-{name}-{:x}-{:x}-{}", std::process::id(), nanos, NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A batch of records for one topic: (partition, key, value).
pub fn batch(topic: &str, records: &[(i32, &str, &str)]) -> ProduceBatch {
    let mut b = ProduceBatch::new(vec![topic.into()].into());
    for (i, (partition, key, value)) in records.iter().enumerate() {
        let time = Timestamp(1_700_000_000_000 + i as i64);
        b.push(0, *partition, time, Some(key.as_bytes()), Some(value.as_bytes()), Headers::default());
    }
    b
}

/// A transaction of these batches, one after another.
pub fn transaction(batches: Vec<ProduceBatch>) -> Transaction {
    Transaction { batches, ..Transaction::default() }
}

fn tp(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition::new(topic, partition)
}

/// A session with a producer that is ready, and a topic.
fn application(f: &dyn Factory, topic: &str, partitions: i32) -> (Session, String) {
    let topic = unique(topic);
    let mut app = Session::of(f, Some(&unique("app")), Some(&unique("group")));
    app.create(&topic, partitions, &[]);
    app.init();
    (app, topic)
}

/// Creating twice is one topic; partitions and settings are told.
pub fn topics_are_created_once_and_described(f: &dyn Factory) {
    let mut s = Session::of(f, None, None);
    let name = unique("topic");
    s.create(&name, 3, &[("cleanup.policy", "compact"), ("max.message.bytes", "123456")]);
    let first = s.describe(&name).expect("the topic is there");
    assert_eq!(first.partitions, 3);
    assert_eq!(first.setting("cleanup.policy"), Some("compact"));
    assert_eq!(first.setting("max.message.bytes"), Some("123456"));
    s.create(&name, 5, &[]);
    assert_eq!(s.describe(&name), Some(first), "creating it again changes nothing");
    match s.call(Command::ListTopics) {
        Ok(Reply::Names(names)) => assert!(names.contains(&name)),
        other => panic!("list: {other:?}"),
    }
}

/// A topic that is not there: `None` in its place, not in the list, not created by asking.
pub fn an_unknown_topic_is_told_apart(f: &dyn Factory) {
    let mut s = Session::of(f, None, None);
    let (known, unknown) = (unique("known"), unique("unknown"));
    s.create(&known, 1, &[]);
    let topics = vec![Arc::from(unknown.as_str()), Arc::from(known.as_str()), Arc::from(unknown.as_str())];
    match s.call(Command::Describe { topics }) {
        Ok(Reply::Topics(t)) => {
            assert_eq!(t.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, false]);
        }
        other => panic!("describe: {other:?}"),
    }
    match s.call(Command::ListTopics) {
        Ok(Reply::Names(names)) => assert!(!names.contains(&unknown)),
        other => panic!("list: {other:?}"),
    }
    let e = s.call(Command::Bounds { partitions: vec![tp(&unknown, 0)] }).expect_err("no such topic");
    assert_eq!(e.kind, BrokerErrorKind::UnknownTopic, "{e}");
}

/// Nothing written: the log starts and ends at 0, and so it does for each partition alone.
pub fn an_empty_partition_has_equal_bounds(f: &dyn Factory) {
    let mut s = Session::of(f, None, None);
    let topic = unique("bounds");
    s.create(&topic, 2, &[]);
    s.produce(batch(&topic, &[(1, "k", "a"), (1, "k", "b")])).expect("produced");
    match s.call(Command::Bounds { partitions: vec![tp(&topic, 1), tp(&topic, 0)] }) {
        Ok(Reply::Bounds(b)) => assert_eq!(b, [Bounds { start: 0, end: 2 }, Bounds { start: 0, end: 0 }]),
        other => panic!("bounds: {other:?}"),
    }
}

/// Keys, values and headers keep their bytes; null and empty are not the same; timestamps stay; offsets count from 0.
pub fn plain_records_come_back_with_every_byte_and_in_order(f: &dyn Factory) {
    let mut s = Session::of(f, None, None);
    let topic = unique("bytes");
    s.create(&topic, 1, &[]);
    let all: Vec<u8> = (0..=255).collect();
    let mut headers = Headers::default();
    headers.push("h", Some(vec![0, 255]));
    headers.push("null", None);
    headers.push("h", Some(Vec::new()));
    let mut b = ProduceBatch::new(vec![Arc::from(topic.as_str())].into());
    let time = 1_700_000_000_000;
    b.push(0, 0, Timestamp(time), Some(&all), Some(&all), headers.clone());
    b.push(0, 0, Timestamp(time - 5), None, None, Headers::default());
    b.push(0, 0, Timestamp(time), Some(b""), Some(b""), Headers::default());
    // Not 0: librdkafka writes 1 then.
    b.push(0, 0, Timestamp(1), Some(b"k"), None, headers);
    b.push(0, 0, Timestamp(time), None, Some(&[7; 5000]), Headers::default());
    let done = s.produce(b).expect("produced");
    assert_eq!(done.ends, [(tp(&topic, 0), 5)]);
    let (seen, position) = s.read_from(&tp(&topic, 0), 0, 5);
    assert_eq!(position, 5);
    let all_headers =
        vec![("h".to_owned(), Some(vec![0, 255])), ("null".to_owned(), None), ("h".to_owned(), Some(vec![]))];
    let row = |offset, timestamp, key: Option<&[u8]>, value: Option<&[u8]>, headers: &[_]| Seen {
        offset,
        timestamp,
        key: key.map(<[u8]>::to_vec),
        value: value.map(<[u8]>::to_vec),
        headers: headers.to_vec(),
    };
    let expect = [
        row(0, time, Some(&all), Some(&all), &all_headers),
        row(1, time - 5, None, None, &[]),
        row(2, time, Some(b""), Some(b""), &[]),
        row(3, 1, Some(b"k"), None, &all_headers),
        row(4, time, None, Some(&[7; 5000]), &[]),
    ];
    assert_eq!(seen, expect);
}

/// Records on several topics and the group's offsets appear with the commit.
pub fn a_transaction_is_seen_whole_over_topics_and_group(f: &dyn Factory) {
    let (mut app, one) = application(f, "whole-one", 2);
    let two = unique("whole-two");
    app.create(&two, 1, &[]);
    let t = Transaction {
        batches: vec![batch(&one, &[(0, "k", "a"), (1, "k", "b")]), batch(&two, &[(0, "k", "c")])],
        offsets: vec![(tp(&one, 1), 1), (tp(&one, 0), 42)],
        ..Transaction::default()
    };
    let c = app.transact(t).expect("committed");
    assert!(!c.retried);
    let mut ends = c.ends;
    ends.sort();
    assert_eq!(ends, [(tp(&one, 0), 1), (tp(&one, 1), 1), (tp(&two, 0), 1)]);
    let mut reader = Session::of(f, None, None);
    assert_eq!(reader.texts(&tp(&one, 0), 2), ["a"]);
    assert_eq!(reader.texts(&tp(&one, 1), 2), ["b"]);
    assert_eq!(reader.texts(&tp(&two, 0), 2), ["c"]);
    assert_eq!(app.group(&[tp(&one, 0), tp(&one, 1), tp(&two, 0)]).offsets, [Some(42), Some(1), None]);
}

/// `order` is the order within a partition, across batches; batches behind `ordered` follow.
pub fn records_of_a_transaction_keep_its_order(f: &dyn Factory) {
    let (mut app, topic) = application(f, "order", 2);
    let t = Transaction {
        batches: vec![
            batch(&topic, &[(0, "k", "a0"), (0, "k", "a1"), (1, "k", "a2")]),
            batch(&topic, &[(0, "k", "b0"), (1, "k", "b1"), (0, "k", "b2")]),
            batch(&topic, &[(0, "k", "c0"), (1, "k", "c1")]),
        ],
        order: vec![(1, 0), (0, 0), (1, 1), (0, 1), (0, 2), (1, 2)],
        ordered: 2,
        ..Transaction::default()
    };
    app.transact(t).expect("committed");
    assert_eq!(app.texts(&tp(&topic, 0), 6), ["b0", "a0", "a1", "b2", "c0"]);
    assert_eq!(app.texts(&tp(&topic, 1), 4), ["b1", "a2", "c1"]);
}

/// Each commit takes one offset in each partition it wrote to; nobody reads it as a record; positions count it.
pub fn markers_take_offsets_and_positions_count_them(f: &dyn Factory) {
    let (mut app, topic) = application(f, "markers", 2);
    let p = tp(&topic, 0);
    let c = app.transact(transaction(vec![batch(&topic, &[(0, "k", "a"), (0, "k", "b")])])).expect("committed");
    assert_eq!(c.ends, [(p.clone(), 2)], "the end does not count the marker");
    let c = app.transact(transaction(vec![batch(&topic, &[(0, "k", "c")])])).expect("committed");
    assert_eq!(c.ends, [(p.clone(), 4)]);
    let mut reader = Session::of(f, None, None);
    let (seen, position) = reader.read_from(&p, 0, 5);
    assert_eq!(seen.iter().map(|r| (r.offset, r.text())).collect::<Vec<_>>(), [(0, "a"), (1, "b"), (3, "c")]);
    assert_eq!(position, 5);
    assert_eq!(reader.bounds_at(&p, 5), Bounds { start: 0, end: 5 });
    assert_eq!(reader.bounds(&tp(&topic, 1)), Bounds { start: 0, end: 0 }, "no record, no marker");
    assert_eq!(reader.read_from(&p, 4, 5), (vec![], 5), "a marker alone moves the position");
}

/// The end is told once; then a fetch stays unanswered until there are records.
pub fn the_end_is_told_once_until_more_records_come(f: &dyn Factory) {
    let (mut app, topic) = application(f, "end", 1);
    let p = tp(&topic, 0);
    let mut reader = Session::of(f, None, None);
    reader.open(&p, 0);
    assert_eq!(reader.read_on(&p, 0), (vec![], 0), "an empty partition is caught up at once");
    for round in 0..3 {
        reader.ask(&p, 1000);
        reader.ask(&p, 1000);
        reader.bounds(&p);
        assert!(!reader.has_fetched(&p), "the end was told already");
        let value = format!("v{round}");
        app.transact(transaction(vec![batch(&topic, &[(0, "k", &value)])])).expect("committed");
        let end = 2 * (round + 1);
        let first = reader.fetched(&p).expect("the fetch is answered");
        assert_eq!(rows(&first).iter().map(Seen::text).collect::<Vec<_>>(), [value]);
        if first.caught_up {
            assert_eq!(first.position, end);
        } else {
            assert_eq!(reader.read_on(&p, end), (vec![], end), "the end is told behind the records");
        }
        reader.bounds(&p);
        assert!(!reader.has_fetched(&p), "one fetch, one answer");
    }
}

/// `max_bytes` bounds an answer from one record on.
pub fn at_least_one_record_comes_however_few_bytes_are_asked_for(f: &dyn Factory) {
    let (mut app, topic) = application(f, "few", 1);
    let p = tp(&topic, 0);
    let values: Vec<String> = (0..50).map(|i| format!("{i:0>2000}")).collect();
    let records: Vec<_> = values.iter().map(|v| (0, "k", v.as_str())).collect();
    app.transact(transaction(vec![batch(&topic, &records)])).expect("committed");
    app.open(&p, 0);
    let mut seen = Vec::new();
    let mut answers = 0;
    loop {
        app.ask(&p, 1);
        let fetched = app.fetched(&p).expect("records");
        assert!(!fetched.batch.is_empty() || fetched.caught_up, "an answer has records or tells the end");
        seen.extend(rows(&fetched).iter().map(|r| r.text().to_owned()));
        answers += 1;
        if fetched.caught_up && fetched.position >= 51 {
            assert_eq!(fetched.position, 51);
            break;
        }
    }
    assert_eq!(seen, values);
    assert!(answers > 1, "100 kB came for a fetch of 1 byte");
}

/// A fetch that is asked before there are records is answered when they come, and wakes the reader.
pub fn a_fetch_waits_for_records(f: &dyn Factory) {
    let (mut app, topic) = application(f, "waits", 1);
    let p = tp(&topic, 0);
    let mut reader = Session::of(f, None, None);
    assert_eq!(reader.read_from(&p, 0, 0), (vec![], 0));
    reader.ask(&p, 1000);
    let wait = {
        let p = p.clone();
        thread::spawn(move || {
            let fetched = reader.fetched(&p).expect("records");
            rows(&fetched)[0].text().to_owned()
        })
    };
    app.transact(transaction(vec![batch(&topic, &[(0, "k", "at last")])])).expect("committed");
    assert_eq!(wait.join().expect("the reader ends"), "at last");
}

/// Reading begins at the offset of `Open`; opening again moves it and forgets an older fetch.
pub fn open_begins_at_its_offset_and_anew(f: &dyn Factory) {
    let (mut app, topic) = application(f, "open", 1);
    let p = tp(&topic, 0);
    app.produce(batch(&topic, &[(0, "k", "a"), (0, "k", "b"), (0, "k", "c"), (0, "k", "d")])).expect("produced");
    let texts = |s: &[Seen]| s.iter().map(|r| r.text().to_owned()).collect::<Vec<_>>();
    let (seen, position) = app.read_from(&p, 2, 4);
    assert_eq!((texts(&seen), position), (vec!["c".to_owned(), "d".to_owned()], 4));
    let (seen, _) = app.read_from(&p, 1, 4);
    assert_eq!(texts(&seen), ["b", "c", "d"]);
    assert_eq!(app.read_from(&p, 4, 4), (vec![], 4), "at the end there is nothing but the end");
}

/// Beyond the end there is nothing to wait for: it is an error.
pub fn an_offset_outside_the_log_fails(f: &dyn Factory) {
    let (mut app, topic) = application(f, "range", 1);
    let p = tp(&topic, 0);
    app.produce(batch(&topic, &[(0, "k", "a")])).expect("produced");
    let error = open_to_fail(&mut app, &p, 100);
    assert_eq!(error.kind, BrokerErrorKind::OutOfRange, "{error}");
    assert_eq!(app.texts(&p, 1), ["a"], "the partition can be opened again where the log is");
}

/// A topic that is not there cannot be read.
pub fn an_unknown_topic_cannot_be_read(f: &dyn Factory) {
    let mut s = Session::of(f, None, None);
    let error = open_to_fail(&mut s, &tp(&unique("nowhere"), 0), 0);
    assert_eq!(error.kind, BrokerErrorKind::UnknownTopic, "{error}");
}

/// The failure of an open partition, told by `Open` itself or behind it.
fn open_to_fail(s: &mut Session, p: &TopicPartition, offset: NextOffset) -> BrokerError {
    if let Err(e) = s.call(Command::Open { partition: p.clone(), offset }) {
        return e;
    }
    s.ask(p, 1000);
    s.fetched(p).expect_err("there is nothing to read")
}

/// The newest producer of a transactional id is the only one that commits.
pub fn an_older_producer_is_fenced_and_its_records_stay_unseen(f: &dyn Factory) {
    let (topic, id, group) = (unique("fence"), unique("app"), unique("group"));
    let p = tp(&topic, 0);
    let with_offset = |value: &str, next| Transaction {
        batches: vec![batch(&topic, &[(0, "k", value)])],
        offsets: vec![(p.clone(), next)],
        ..Transaction::default()
    };
    let mut old = Session::of(f, Some(&id), Some(&group));
    old.create(&topic, 1, &[]);
    old.init();
    old.transact(with_offset("old", 1)).expect("committed");
    let mut new = Session::of(f, Some(&id), Some(&group));
    new.init();
    let error = old.transact(with_offset("zombie", 2)).expect_err("there is a newer producer");
    assert_eq!(error.kind, BrokerErrorKind::Fenced, "{error}");
    let c = new.transact(with_offset("new", 3)).expect("committed");
    assert_eq!(new.texts(&p, behind(&c, &p)), ["old", "new"]);
    assert_eq!(new.group(std::slice::from_ref(&p)).offsets, [Some(3)]);
}

/// The same client may initialise again, and its earlier commits stay.
pub fn init_producer_may_be_repeated(f: &dyn Factory) {
    let (mut app, topic) = application(f, "again", 1);
    let mut end = 0;
    for value in ["a", "b", "c"] {
        let c = app.transact(transaction(vec![batch(&topic, &[(0, "k", value)])])).expect("committed");
        end = behind(&c, &tp(&topic, 0));
        app.init();
    }
    assert_eq!(app.texts(&tp(&topic, 0), end), ["a", "b", "c"]);
}

/// Offsets belong to one group; a later commit replaces an earlier one, partition by partition.
pub fn group_offsets_are_per_group_and_partition_and_the_last_one_counts(f: &dyn Factory) {
    let (mut app, topic) = application(f, "group", 3);
    let mut other = Session::of(f, Some(&unique("other")), Some(&unique("group")));
    other.init();
    let all = [tp(&topic, 0), tp(&topic, 1), tp(&topic, 2)];
    assert_eq!(app.group(&all).offsets, [None, None, None]);
    let offsets = |s: &mut Session, list: &[(usize, i64)]| {
        let offsets = list.iter().map(|(i, next)| (all[*i].clone(), *next)).collect();
        s.transact(Transaction { offsets, ..Transaction::default() }).expect("committed");
    };
    offsets(&mut app, &[(0, 10), (1, 11)]);
    offsets(&mut other, &[(1, 500)]);
    offsets(&mut app, &[(1, 5)]);
    let group = app.group(&all);
    assert_eq!(group.offsets, [Some(10), Some(5), None]);
    assert_eq!(group.members, Vec::<String>::new(), "nobody has joined it");
    assert_eq!(other.group(&all).offsets, [None, Some(500), None]);
}

/// After the end of `Close` nothing is read; the partition can be opened again.
pub fn nothing_comes_after_close(f: &dyn Factory) {
    let (mut app, topic) = application(f, "close", 1);
    let p = tp(&topic, 0);
    let mut reader = Session::of(f, None, None);
    assert_eq!(reader.read_from(&p, 0, 0), (vec![], 0));
    reader.ask(&p, 1000);
    reader.call(Command::Close { partition: p.clone() }).expect("closed");
    app.transact(transaction(vec![batch(&topic, &[(0, "k", "a")])])).expect("committed");
    assert_eq!(reader.bounds_at(&p, 2).end, 2);
    assert!(!reader.has_fetched(&p), "the partition is closed");
    assert_eq!(reader.texts(&p, 2), ["a"]);
}

/// The transaction with the record ends in an error that names its place when it is known; the next one works.
pub fn a_record_that_is_too_large_spoils_only_its_transaction(f: &dyn Factory) {
    let mut app = Session::of(f, Some(&unique("app")), Some(&unique("group")));
    let (topic, small) = (unique("large"), unique("small"));
    app.create(&topic, 1, &[]);
    app.create(&small, 1, &[("max.message.bytes", "2000")]);
    app.init();
    let large = "x".repeat(10_000);
    let t = Transaction {
        batches: vec![batch(&topic, &[(0, "k", "spoilt")]), batch(&small, &[(0, "k", "ok"), (0, "k", &large)])],
        offsets: vec![(tp(&topic, 0), 7)],
        ..Transaction::default()
    };
    let error = app.transact(t).expect_err("the record is too large");
    match error.kind {
        BrokerErrorKind::Refused(place) => assert!(place.is_none_or(|p| p == (1, 1)), "{place:?}"),
        other => panic!("{other:?}: {error}"),
    }
    app.init();
    let t = transaction(vec![batch(&topic, &[(0, "k", "good")]), batch(&small, &[(0, "k", "good")])]);
    let c = app.transact(t).expect("committed");
    for p in [tp(&topic, 0), tp(&small, 0)] {
        assert_eq!(app.texts(&p, behind(&c, &p)), ["good"]);
    }
    assert_eq!(app.group(&[tp(&topic, 0)]).offsets, [None]);
}

/// Nothing to write is a commit too.
pub fn an_empty_transaction_commits_and_writes_nothing(f: &dyn Factory) {
    let (mut app, topic) = application(f, "empty", 1);
    let c = app.transact(Transaction::default()).expect("committed");
    assert_eq!(c, Committed::default());
    let c = app.transact(transaction(vec![batch(&topic, &[])])).expect("committed");
    assert_eq!(c, Committed::default());
    assert_eq!(app.bounds(&tp(&topic, 0)), Bounds { start: 0, end: 0 });
    app.transact(transaction(vec![batch(&topic, &[(0, "k", "a")])])).expect("committed");
    assert_eq!(app.texts(&tp(&topic, 0), 2), ["a"]);
}

/// Readers do not disturb each other, and one reader keeps its partitions apart.
pub fn two_readers_read_the_same(f: &dyn Factory) {
    let (mut app, topic) = application(f, "two", 2);
    let mut one = Session::of(f, None, None);
    let mut two = Session::of(f, None, None);
    let (p0, p1) = (tp(&topic, 0), tp(&topic, 1));
    for s in [&mut one, &mut two] {
        s.open(&p0, 0);
        s.open(&p1, 0);
    }
    let mut seen = [Vec::new(), Vec::new()];
    for i in 0..5 {
        let value = i.to_string();
        app.transact(transaction(vec![batch(&topic, &[(0, "k", &value), (1, "k", &value)])])).expect("committed");
        let (rows, position) = one.read_on(&p0, 2 * (i + 1));
        assert_eq!(position, 2 * (i + 1));
        seen[0].extend(rows);
        if i % 2 == 1 {
            seen[1].extend(two.read_on(&p1, 2 * (i + 1)).0);
        }
    }
    seen[1].extend(two.read_on(&p1, 10).0);
    assert_eq!(seen[0].iter().map(Seen::text).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
    assert_eq!(seen[1].iter().map(Seen::text).collect::<Vec<_>>(), ["0", "1", "2", "3", "4"]);
    assert_eq!(two.read_on(&p0, 10).0, seen[0]);
}

/// Producers of two applications write to one partition; both are read, each in its order.
pub fn two_producers_share_a_partition(f: &dyn Factory) {
    let (mut one, topic) = application(f, "share", 1);
    let mut two = Session::of(f, Some(&unique("app")), None);
    two.init();
    for i in 0..5 {
        let (a, b) = (format!("a{i}"), format!("b{i}"));
        one.transact(transaction(vec![batch(&topic, &[(0, "k", &a)])])).expect("committed");
        two.transact(transaction(vec![batch(&topic, &[(0, "k", &b)])])).expect("committed");
    }
    let texts = one.texts(&tp(&topic, 0), 20);
    assert_eq!(texts, ["a0", "b0", "a1", "b1", "a2", "b2", "a3", "b3", "a4", "b4"]);
}

/// Commands that touch the producer may be submitted without waiting; they run one after another.
pub fn producer_commands_run_in_order_of_submission(f: &dyn Factory) {
    let topic = unique("in-order");
    let mut app = Session::of(f, Some(&unique("app")), None);
    app.create(&topic, 1, &[]);
    let mut ops = vec![app.submit(Command::InitProducer)];
    for i in 0..10 {
        let b = batch(&topic, &[(0, "k", &i.to_string())]);
        ops.push(app.submit(if i % 3 == 2 {
            Command::Produce(b)
        } else {
            Command::Transact(Arc::new(transaction(vec![b])))
        }));
    }
    for op in ops {
        app.done(op).expect("it works");
    }
    assert_eq!(app.texts(&tp(&topic, 0), 17), ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

/// What goes before a transaction is outside it: it is there also when the transaction is refused, in its own order.
pub fn records_before_a_transaction_stay_when_it_is_refused(f: &dyn Factory) {
    let mut app = Session::of(f, Some(&unique("app")), None);
    let (topic, small) = (unique("before"), unique("before-small"));
    app.create(&topic, 1, &[]);
    app.create(&small, 1, &[("max.message.bytes", "2000")]);
    app.init();
    let t = Transaction {
        before: vec![batch(&topic, &[(0, "k", "b"), (0, "k", "d")]), batch(&topic, &[(0, "k", "a"), (0, "k", "c")])],
        before_order: vec![(1, 0), (0, 0), (1, 1), (0, 1)],
        batches: vec![batch(&small, &[(0, "k", &"x".repeat(10_000))])],
        ..Transaction::default()
    };
    let error = app.transact(t).expect_err("the record is too large");
    assert!(matches!(error.kind, BrokerErrorKind::Refused(_)), "{error:?}");
    assert_eq!(app.texts(&tp(&topic, 0), 4), ["a", "b", "c", "d"]);
    assert_eq!(app.bounds_at(&tp(&topic, 0), 4), Bounds { start: 0, end: 4 }, "no marker: it was outside");
}

/// `notify` wakes at once when an event is there, and once only.
pub fn an_event_that_is_there_already_wakes_at_once(f: &dyn Factory) {
    struct Count(AtomicU64, Thread);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
            self.1.unpark();
        }
    }
    let mut broker = f.client(None, None);
    let deadline = Instant::now() + f.patience();
    let woken = |broker: &dyn Broker| {
        let count = Arc::new(Count(AtomicU64::new(0), thread::current()));
        broker.notify(Waker::from(Arc::clone(&count)));
        while count.0.load(Ordering::SeqCst) == 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "not woken");
            thread::park_timeout(left);
        }
        count
    };
    broker.submit(OpId(1), Command::ListTopics);
    let first = woken(&*broker);
    // The event was not taken, so a second waker is woken without anything happening.
    let second = woken(&*broker);
    let mut out = Vec::new();
    broker.poll(&mut out);
    assert!(out.iter().any(|e| matches!(e, Event::Done { op: OpId(1), result: Ok(Reply::Names(_)) })), "{out:?}");
    assert_eq!(first.0.load(Ordering::SeqCst), 1, "a waker is woken once");
    assert_eq!(second.0.load(Ordering::SeqCst), 1, "a waker is woken once");
}
