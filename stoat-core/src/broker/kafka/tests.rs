//! What needs a broker runs against the one that `STOAT_TEST_BOOTSTRAP` names, and says so when there is none; faults
//! that no healthy broker shows are injected with librdkafka's own mock cluster, which is good for error codes and
//! delays only.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rdkafka::mocking::{MockCluster, MockCoordinator};
use rdkafka::producer::DefaultProducerContext;
use rdkafka_sys::rd_kafka_resp_err_t as Raw;

use super::error::{Code, TABLE, kind, transactional};
use super::ffi::Failure;
use super::{KafkaBroker, KafkaConfig};
use crate::broker::{
    Bounds, Broker, BrokerError, BrokerErrorKind as Kind, Command, Committed, Event, Fetched, NewTopic, OpId, Reply,
    Transaction,
};
use crate::error::ErrorKind;
use crate::id::{NextOffset, TopicPartition};
use crate::record::{Headers, ProduceBatch};
use crate::time::Timestamp;

/// No single wait of a test is longer.
const PATIENCE: Duration = Duration::from_secs(30);

fn bootstrap() -> Option<String> {
    // For looking into a failure: `STOAT_TEST_LOG=stoat=debug`.
    if let Ok(filter) = std::env::var("STOAT_TEST_LOG") {
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
    }
    let bootstrap = std::env::var("STOAT_TEST_BOOTSTRAP").ok();
    if bootstrap.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI must set STOAT_TEST_BOOTSTRAP: a Kafka broker to test on");
        let test = std::thread::current();
        eprintln!("SKIPPED {}: STOAT_TEST_BOOTSTRAP names no Kafka broker", test.name().unwrap_or(""));
    }
    bootstrap
}

/// A name that no other test and no other run has used.
fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_micros();
    format!("stoat-test-{what}-{}-{now}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a broker from a test: commands one after another, events kept until they are asked for.
struct Driver {
    broker: KafkaBroker,
    next: u64,
    events: Vec<Event>,
}

impl Driver {
    fn new(config: KafkaConfig) -> Self {
        Self {
            broker: KafkaBroker::new(config).expect("a broker that need not be reachable"),
            next: 0,
            events: Vec::new(),
        }
    }

    fn on(bootstrap: &str, id: &str) -> Self {
        let mut config = KafkaConfig::new(bootstrap, id, id);
        if let Ok(debug) = std::env::var("STOAT_TEST_DEBUG") {
            config.client.push(("debug".into(), debug));
        }
        Self::new(config)
    }

    fn submit(&mut self, command: Command) -> OpId {
        self.next += 1;
        self.broker.submit(OpId(self.next), command);
        OpId(self.next)
    }

    /// Waits until `pick` finds what it looks for among the events, in order.
    fn wait<T>(&mut self, mut pick: impl FnMut(&Event) -> bool, take: impl FnOnce(Event) -> T) -> T {
        let deadline = Instant::now() + PATIENCE.max(Duration::from_mins(1));
        loop {
            self.broker.poll(&mut self.events);
            if let Some(i) = self.events.iter().position(&mut pick) {
                return take(self.events.remove(i));
            }
            assert!(Instant::now() < deadline, "nothing came; instead: {:?}", self.events);
            self.broker.notify(Waker::from(Arc::new(Unpark(std::thread::current()))));
            std::thread::park_timeout(Duration::from_secs(5));
        }
    }

    fn result(&mut self, op: OpId) -> Result<Reply, BrokerError> {
        self.wait(
            |e| matches!(e, Event::Done { op: o, .. } if *o == op),
            |e| match e {
                Event::Done { result, .. } => result,
                _ => unreachable!("picked above"),
            },
        )
    }

    fn call(&mut self, command: Command) -> Result<Reply, BrokerError> {
        let op = self.submit(command);
        self.result(op)
    }

    fn ok(&mut self, command: Command) -> Reply {
        self.call(command).expect("the command succeeds")
    }

    fn create(&mut self, name: &str, partitions: i32, config: &[(&str, &str)]) {
        let config = config.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let topic = NewTopic { name: name.into(), partitions, replication: 1, config };
        self.ok(Command::CreateTopics { topics: vec![topic] });
    }

    fn open(&mut self, topic: &str, partition: i32, offset: NextOffset) {
        self.ok(Command::Open { partition: TopicPartition::new(topic, partition), offset });
    }

    fn fetch(&mut self, topic: &str, partition: i32) -> Fetched {
        let partition = TopicPartition::new(topic, partition);
        self.submit(Command::Fetch { partition: partition.clone(), max_bytes: 1 << 20 });
        self.wait(
            |e| matches!(e, Event::Fetched(f) if f.partition == partition),
            |e| match e {
                Event::Fetched(f) => f,
                _ => unreachable!("picked above"),
            },
        )
    }

    /// Fetches until the end; values as text with their offsets, and the position of the end.
    fn drain(&mut self, topic: &str, partition: i32) -> (Vec<(i64, String)>, NextOffset) {
        let mut all = Vec::new();
        loop {
            let f = self.fetch(topic, partition);
            all.extend(
                f.batch.iter().map(|r| (r.offset, String::from_utf8_lossy(r.value.unwrap_or(b"-")).into_owned())),
            );
            if f.caught_up {
                return (all, f.position);
            }
        }
    }

    fn read(&mut self, topic: &str, partition: i32) -> (Vec<String>, NextOffset) {
        self.open(topic, partition, 0);
        let (all, end) = self.drain(topic, partition);
        self.ok(Command::Close { partition: TopicPartition::new(topic, partition) });
        (all.into_iter().map(|(_, v)| v).collect(), end)
    }

    fn bounds(&mut self, topic: &str, partition: i32) -> Bounds {
        match self.ok(Command::Bounds { partitions: vec![TopicPartition::new(topic, partition)] }) {
            Reply::Bounds(b) => b[0],
            other => panic!("{other:?}"),
        }
    }

    fn committed(&mut self, command: Command) -> Committed {
        match self.ok(command) {
            Reply::Committed(c) => c,
            other => panic!("{other:?}"),
        }
    }

    fn failed(&mut self) -> (TopicPartition, BrokerError) {
        self.wait(
            |e| matches!(e, Event::Failed { .. }),
            |e| match e {
                Event::Failed { partition, error } => (partition, error),
                _ => unreachable!("picked above"),
            },
        )
    }
}

/// The contract that all brokers have in common.
mod contract {
    use super::{KafkaBroker, KafkaConfig, bootstrap, unique};
    use crate::broker::Broker;
    use crate::broker::contract::Factory;

    struct OnKafka(String);

    impl Factory for OnKafka {
        fn client(&self, transactional_id: Option<&str>, group_id: Option<&str>) -> Box<dyn Broker> {
            let or_unique = |id: Option<&str>| id.map_or_else(|| unique("nobody"), str::to_owned);
            let config = KafkaConfig::new(&self.0, or_unique(transactional_id), or_unique(group_id));
            Box::new(KafkaBroker::new(config).expect("a broker"))
        }
    }

    crate::broker_contract!(match bootstrap() {
        Some(kafka) => OnKafka(kafka),
        None => return,
    });
}

fn batch(records: &[(&str, i32, &str)]) -> ProduceBatch {
    let mut names: Vec<Arc<str>> = records.iter().map(|(t, ..)| Arc::from(*t)).collect();
    names.dedup();
    let mut batch = ProduceBatch::new(names.clone().into());
    for (topic, partition, value) in records {
        let at = names.iter().position(|n| **n == **topic).expect("listed above") as u32;
        batch.push(at, *partition, Timestamp(1_000), Some(b"k"), Some(value.as_bytes()), Headers::default());
    }
    batch
}

fn transaction(records: &[(&str, i32, &str)]) -> Command {
    Command::Transact(Arc::new(Transaction { batches: vec![batch(records)], ..Transaction::default() }))
}

#[test]
fn i3_a_transaction_commits_records_and_offsets_together() {
    let Some(kafka) = bootstrap() else { return };
    let (topic, app) = (unique("together"), unique("app"));
    let mut d = Driver::on(&kafka, &app);
    d.create(&topic, 2, &[]);
    d.ok(Command::InitProducer);
    let source = TopicPartition::new(topic.as_str(), 1);
    let t = Transaction {
        batches: vec![batch(&[(&topic, 0, "a"), (&topic, 1, "b"), (&topic, 0, "c")])],
        offsets: vec![(source.clone(), 17)],
        ..Transaction::default()
    };
    let committed = d.committed(Command::Transact(Arc::new(t)));
    let ends = vec![(TopicPartition::new(topic.as_str(), 0), 2), (source.clone(), 1)];
    assert_eq!(committed, Committed { ends, retried: false });
    let Reply::Group(group) = d.ok(Command::Group { partitions: vec![source, TopicPartition::new(topic.as_str(), 0)] })
    else {
        panic!("a group was asked for")
    };
    assert_eq!(group.offsets, vec![Some(17), None]);
    assert!(group.members.is_empty(), "reading without a subscription joins no group: {:?}", group.members);
    // Two records and the marker, which the broker may write after its answer.
    assert_eq!(d.read(&topic, 0), (vec!["a".into(), "c".into()], 3));
    assert_eq!(d.read(&topic, 1), (vec!["b".into()], 2));
    assert_eq!(d.bounds(&topic, 0), Bounds { start: 0, end: 3 });
}

#[test]
fn records_of_several_batches_are_written_in_the_order_of_the_transaction() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("order");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 1, &[]);
    d.ok(Command::InitProducer);
    let t = Transaction {
        before: vec![batch(&[(&topic, 0, "before")])],
        batches: vec![
            batch(&[(&topic, 0, "1"), (&topic, 0, "3")]),
            batch(&[(&topic, 0, "2")]),
            batch(&[(&topic, 0, "4")]),
        ],
        order: vec![(0, 0), (1, 0), (0, 1)],
        ordered: 2,
        ..Transaction::default()
    };
    d.ok(Command::Transact(Arc::new(t)));
    d.open(&topic, 0, 0);
    let (all, _) = d.drain(&topic, 0);
    let values: Vec<&str> = all.iter().map(|(_, v)| v.as_str()).collect();
    assert_eq!(values, ["before", "1", "2", "3", "4"]);
}

#[test]
fn a_refused_record_is_named_and_its_whole_transaction_is_hidden() {
    let Some(kafka) = bootstrap() else { return };
    let (small, other) = (unique("small"), unique("other"));
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&small, 1, &[("max.message.bytes", "2000")]);
    d.create(&other, 1, &[]);
    d.ok(Command::InitProducer);
    let large = "x".repeat(5_000);
    let bad = [(other.as_str(), 0, "hidden"), (small.as_str(), 0, "hidden, too"), (small.as_str(), 0, large.as_str())];
    // The whole batch of the two was refused; the next attempt finds out.
    let error = d.call(transaction(&bad)).expect_err("a record is too large for its topic");
    assert_eq!(error.kind, Kind::Refused(None), "{error}");
    d.ok(Command::InitProducer);
    let error = d.call(transaction(&bad)).expect_err("it still is");
    assert_eq!(error.kind, Kind::Refused(Some((0, 2))), "{error}");
    d.ok(Command::InitProducer);
    d.ok(transaction(&[(&other, 0, "seen"), (&small, 0, "seen")]));
    assert_eq!(d.read(&other, 0).0, ["seen"]);
    let (values, end) = d.read(&small, 0);
    assert_eq!(values, ["seen"]);
    // Aborted records and markers stay in the log and count.
    assert_eq!(end, d.bounds(&small, 0).end);
    assert!(d.bounds(&other, 0).end >= 4, "hidden record, marker, seen record, marker");
}

#[test]
fn i10_a_second_producer_of_the_same_id_fences_the_first_until_that_initialises_again() {
    let Some(kafka) = bootstrap() else { return };
    let (topic, app) = (unique("fence"), unique("app"));
    let mut old = Driver::on(&kafka, &app);
    old.create(&topic, 1, &[]);
    old.ok(Command::InitProducer);
    old.ok(transaction(&[(&topic, 0, "old")]));
    let mut new = Driver::on(&kafka, &app);
    new.ok(Command::InitProducer);
    let e = old.call(transaction(&[(&topic, 0, "zombie")])).expect_err("fenced");
    assert_eq!(e.kind, Kind::Fenced, "{e}");
    new.ok(transaction(&[(&topic, 0, "new")]));
    assert_eq!(new.read(&topic, 0).0, ["old", "new"]);
    old.ok(Command::InitProducer);
    old.ok(transaction(&[(&topic, 0, "old again")]));
    let e = new.call(transaction(&[(&topic, 0, "zombie")])).expect_err("fenced in turn");
    assert_eq!(e.kind, Kind::Fenced, "{e}");
    assert_eq!(old.read(&topic, 0).0, ["old", "new", "old again"]);
}

#[test]
fn every_part_of_a_record_survives_the_way_through_kafka() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("parts");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 1, &[]);
    let mut headers = Headers::default();
    headers.push("h", Some(b"1".to_vec()));
    headers.push("h", None);
    headers.push("empty", Some(Vec::new()));
    let mut b = ProduceBatch::new([Arc::from(topic.as_str())].into());
    b.push(0, 0, Timestamp(1_234_567_890_123), Some(b"key"), Some(b"value"), headers.clone());
    b.push(0, 0, Timestamp(5), None, None, Headers::default());
    b.push(0, 0, Timestamp(0), Some(b""), Some(b""), Headers::default());
    let ends = d.committed(Command::Produce(b)).ends;
    assert_eq!(ends, vec![(TopicPartition::new(topic.as_str(), 0), 3)]);
    d.open(&topic, 0, 0);
    let mut got = Vec::new();
    while got.len() < 3 {
        let f = d.fetch(&topic, 0);
        got.extend(f.batch.iter().map(|r| {
            (r.offset, r.timestamp.0, r.key.map(<[u8]>::to_vec), r.value.map(<[u8]>::to_vec), r.headers.clone())
        }));
    }
    assert_eq!(got[0], (0, 1_234_567_890_123, Some(b"key".to_vec()), Some(b"value".to_vec()), headers));
    assert_eq!(got[1], (1, 5, None, None, Headers::default()));
    // Timestamp 0 is the documented limit.
    assert_eq!(got[2], (2, 1, Some(Vec::new()), Some(Vec::new()), Headers::default()));
}

#[test]
fn the_position_reaches_the_last_stable_offset_behind_the_markers_and_says_so_once() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("markers");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 1, &[]);
    d.open(&topic, 0, 0);
    let f = d.fetch(&topic, 0);
    assert!(f.batch.is_empty() && f.caught_up && f.position == 0, "an empty log is at its end at once: {f:?}");
    d.ok(Command::InitProducer);
    for i in 1..=3 {
        d.ok(transaction(&[(&topic, 0, "x")]));
        let (all, end) = d.drain(&topic, 0);
        assert_eq!(all, vec![(2 * (i - 1), "x".to_owned())]);
        assert_eq!(end, 2 * i);
        assert_eq!(d.bounds(&topic, 0).end, end);
    }
    // Nothing new: the demand stays open and nothing is said again.
    d.submit(Command::Fetch { partition: TopicPartition::new(topic.as_str(), 0), max_bytes: 1 << 20 });
    d.ok(Command::ListTopics);
    d.broker.poll(&mut d.events);
    assert!(!d.events.iter().any(|e| matches!(e, Event::Fetched(_))), "{:?}", d.events);
}

#[test]
fn two_partitions_are_fetched_each_by_its_own_demand() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("two");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 2, &[]);
    let values: Vec<String> = (0..2_000).map(|i| format!("{i:0100}")).collect();
    let records: Vec<(&str, i32, &str)> =
        values.iter().enumerate().map(|(i, v)| (topic.as_str(), (i % 2) as i32, v.as_str())).collect();
    d.ok(Command::Produce(batch(&records)));
    d.open(&topic, 0, 0);
    d.open(&topic, 1, 500);
    let small = Command::Fetch { partition: TopicPartition::new(topic.as_str(), 1), max_bytes: 1 };
    d.submit(small);
    let first = d.wait(
        |e| matches!(e, Event::Fetched(_)),
        |e| match e {
            Event::Fetched(f) => f,
            _ => unreachable!("picked above"),
        },
    );
    assert_eq!(
        (first.partition.partition, first.batch.len(), first.position),
        (1, 1, 501),
        "one record at least, and no more than asked for"
    );
    let (one, end_one) = d.drain(&topic, 1);
    let (zero, end_zero) = d.drain(&topic, 0);
    assert_eq!((zero.len(), end_zero), (1_000, 1_000));
    assert_eq!((one.len(), end_one), (499, 1_000));
    assert!(zero.iter().enumerate().all(|(i, (o, v))| *o == i as i64 && *v == values[2 * i]));
}

#[test]
fn opening_again_reads_from_the_new_offset_and_closing_ends_reading() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("reopen");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 1, &[]);
    let values: Vec<String> = (0..100).map(|i| i.to_string()).collect();
    let records: Vec<(&str, i32, &str)> = values.iter().map(|v| (topic.as_str(), 0, v.as_str())).collect();
    d.ok(Command::Produce(batch(&records)));
    d.open(&topic, 0, 0);
    assert_eq!(d.drain(&topic, 0).0.len(), 100);
    for offset in [40, 90, 0] {
        d.open(&topic, 0, offset);
        let (all, end) = d.drain(&topic, 0);
        assert_eq!((all.first().map(|(o, _)| *o), all.len() as i64, end), (Some(offset), 100 - offset, 100));
    }
    let partition = TopicPartition::new(topic.as_str(), 0);
    d.submit(Command::Fetch { partition: partition.clone(), max_bytes: 1 });
    d.ok(Command::Close { partition: partition.clone() });
    d.events.clear();
    d.ok(Command::Produce(batch(&[(&topic, 0, "late")])));
    d.submit(Command::Fetch { partition, max_bytes: 1 });
    d.ok(Command::ListTopics);
    assert!(!d.events.iter().any(|e| matches!(e, Event::Fetched(_))), "{:?}", d.events);
}

#[test]
fn more_partitions_than_planned_are_read_on_without_loss() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("many");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 12, &[]);
    let values: Vec<String> = (0..1_200).map(|i| i.to_string()).collect();
    let records: Vec<(&str, i32, &str)> =
        values.iter().enumerate().map(|(i, v)| (topic.as_str(), (i % 12) as i32, v.as_str())).collect();
    d.ok(Command::Produce(batch(&records)));
    d.open(&topic, 0, 0);
    let partition = TopicPartition::new(topic.as_str(), 0);
    d.submit(Command::Fetch { partition, max_bytes: 1_000 });
    let first = d.wait(
        |e| matches!(e, Event::Fetched(_)),
        |e| match e {
            Event::Fetched(f) => f,
            _ => unreachable!("picked above"),
        },
    );
    assert!(first.batch.len() < 100);
    // The consumer is made anew on the way.
    for p in 1..12 {
        d.open(&topic, p, 0);
    }
    let (rest, end) = d.drain(&topic, 0);
    assert_eq!((first.batch.len() + rest.len(), end), (100, 100));
    assert_eq!(rest[0].0, first.position);
    for p in 1..12 {
        assert_eq!(d.drain(&topic, p).0.len(), 100);
    }
}

#[test]
fn an_epoch_of_a_hundred_records_commits_in_milliseconds() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("latency");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 4, &[]);
    d.ok(Command::InitProducer);
    let value = "x".repeat(100);
    let records: Vec<(&str, i32, &str)> = (0..100).map(|i| (topic.as_str(), i % 4, value.as_str())).collect();
    let mut took = Vec::new();
    for i in 0..60 {
        let offsets = (0..4).map(|p| (TopicPartition::new(topic.as_str(), p), i)).collect();
        let t = Transaction { batches: vec![batch(&records)], offsets, ..Transaction::default() };
        let start = Instant::now();
        d.ok(Command::Transact(Arc::new(t)));
        took.push(start.elapsed());
    }
    took.sort();
    println!("100 records and 4 offsets: median {:?}, 95 % {:?}, worst {:?}", took[30], took[57], took[59]);
    // The two traps of the client library cost 100 ms each, in every transaction.
    assert!(took[30] < Duration::from_millis(80), "median {:?}", took[30]);
}

#[test]
fn a_record_that_arrives_wakes_an_idle_reader() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("wake");
    let mut writer = Driver::on(&kafka, &unique("writer"));
    writer.create(&topic, 1, &[]);
    writer.ok(Command::Produce(batch(&[(&topic, 0, "warm")])));
    let mut d = Driver::on(&kafka, &unique("app"));
    d.open(&topic, 0, 0);
    d.drain(&topic, 0);
    let mut took = Vec::new();
    for _ in 0..20 {
        d.submit(Command::Fetch { partition: TopicPartition::new(topic.as_str(), 0), max_bytes: 1 << 20 });
        d.broker.poll(&mut d.events);
        writer.ok(Command::Produce(batch(&[(&topic, 0, "x")])));
        let start = Instant::now();
        // The news of the last record's end may come first; it is an answer too, so that one more is asked for.
        while d.wait(|e| matches!(e, Event::Fetched(_)), |e| matches!(e, Event::Fetched(f) if f.batch.is_empty())) {
            d.submit(Command::Fetch { partition: TopicPartition::new(topic.as_str(), 0), max_bytes: 1 << 20 });
            d.broker.poll(&mut d.events);
        }
        took.push(start.elapsed());
        d.drain_quietly(&topic);
    }
    took.sort();
    println!("from acknowledged to fetched: median {:?}, worst {:?}", took[10], took[19]);
    assert!(took[10] < Duration::from_millis(500), "woken, not found by chance: {took:?}");
}

impl Driver {
    /// Takes the news of the end, if it has not come with the records.
    fn drain_quietly(&mut self, topic: &str) {
        if !self.events.iter().any(|e| matches!(e, Event::Fetched(f) if f.caught_up)) {
            self.submit(Command::Fetch { partition: TopicPartition::new(topic, 0), max_bytes: 1 << 20 });
            self.broker.poll(&mut self.events);
        }
        self.events.clear();
    }
}

#[test]
fn topics_are_described_with_their_id_and_settings_and_never_created_by_asking() {
    let Some(kafka) = bootstrap() else { return };
    let (topic, missing) = (unique("described"), unique("missing"));
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 3, &[("cleanup.policy", "compact"), ("max.message.bytes", "12345")]);
    // Once more is no error.
    d.create(&topic, 3, &[]);
    let topics: Vec<Arc<str>> = vec![missing.as_str().into(), topic.as_str().into()];
    let Reply::Topics(found) = d.ok(Command::Describe { topics }) else { panic!("topics were asked for") };
    assert_eq!(found[0], None);
    let info = found[1].as_ref().expect("it was created");
    assert_eq!((&*info.name, info.partitions), (topic.as_str(), 3));
    assert!(!info.id.is_empty());
    assert_eq!(info.setting("cleanup.policy"), Some("compact"));
    assert_eq!(info.setting("max.message.bytes"), Some("12345"));
    assert!(info.setting("retention.ms").is_some() && info.setting("delete.retention.ms").is_some());
    let Reply::Names(names) = d.ok(Command::ListTopics) else { panic!("names were asked for") };
    assert!(names.contains(&topic) && !names.contains(&missing));
}

#[test]
fn a_topic_that_is_missing_or_deleted_while_it_is_read_is_told() {
    let Some(kafka) = bootstrap() else { return };
    let (topic, missing) = (unique("deleted"), unique("missing"));
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 1, &[]);
    d.open(&missing, 0, 0);
    d.submit(Command::Fetch { partition: TopicPartition::new(missing.as_str(), 0), max_bytes: 1 });
    let (p, e) = d.failed();
    assert_eq!((&*p.topic, e.kind), (missing.as_str(), Kind::UnknownTopic), "{e}");
    d.ok(Command::Close { partition: p });
    d.open(&topic, 0, 0);
    d.drain(&topic, 0);
    // A partition that the topic does not have.
    d.open(&topic, 7, 0);
    let (p, e) = d.failed();
    assert_eq!((p.partition, e.kind), (7, Kind::UnknownTopic), "{e}");
    d.submit(Command::Fetch { partition: TopicPartition::new(topic.as_str(), 0), max_bytes: 1 });
    let admin =
        super::ffi::Client::new(super::ffi::Kind::Consumer, &[("bootstrap.servers".into(), kafka)], Arc::default());
    admin.expect("a client").delete_topic(&topic, PATIENCE).expect("the topic can be deleted");
    let start = Instant::now();
    let (p, e) = d.failed();
    println!("deleted topic told after {:?}", start.elapsed());
    assert_eq!((&*p.topic, p.partition, e.kind), (topic.as_str(), 0, Kind::UnknownTopic), "{e}");
    assert!(start.elapsed() < Duration::from_mins(1), "within a minute");
}

#[test]
fn writing_to_a_topic_that_is_missing_says_so() {
    let Some(kafka) = bootstrap() else { return };
    let missing = unique("missing-sink");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.ok(Command::InitProducer);
    let e = d.call(transaction(&[(&missing, 0, "x")])).expect_err("there is no such topic");
    assert_eq!(e.kind, Kind::UnknownTopic, "{e}");
    let topics = vec![missing.as_str().into()];
    assert!(matches!(d.ok(Command::Describe { topics }), Reply::Topics(t) if t == [None]), "nothing creates topics");
}

#[test]
fn an_offset_that_is_not_in_the_log_is_told() {
    let Some(kafka) = bootstrap() else { return };
    let topic = unique("range");
    let mut d = Driver::on(&kafka, &unique("app"));
    d.create(&topic, 1, &[]);
    d.open(&topic, 0, 1_000);
    d.submit(Command::Fetch { partition: TopicPartition::new(topic.as_str(), 0), max_bytes: 1 });
    let (_, e) = d.failed();
    assert_eq!(e.kind, Kind::OutOfRange, "{e}");
}

#[test]
fn a_full_producer_queue_waits_instead_of_failing() {
    let Some(kafka) = bootstrap() else { return };
    let (topic, app) = (unique("full"), unique("app"));
    let mut config = KafkaConfig::new(&kafka, &app, &app);
    config.memory = 1 << 20;
    let mut d = Driver::new(config);
    d.create(&topic, 1, &[]);
    d.ok(Command::InitProducer);
    let value = "x".repeat(1_000);
    let records: Vec<(&str, i32, &str)> = (0..5_000).map(|_| (topic.as_str(), 0, value.as_str())).collect();
    let ends = d.committed(transaction(&records)).ends;
    assert_eq!(ends[0].1, 5_000);
}

#[test]
fn i8_a_record_larger_than_the_producers_queue_is_refused_instead_of_waited_for() {
    let Some(kafka) = bootstrap() else { return };
    let (topic, app) = (unique("large"), unique("app"));
    let mut config = KafkaConfig::new(&kafka, &app, &app);
    config.memory = 1 << 20;
    let mut d = Driver::new(config);
    d.create(&topic, 1, &[]);
    d.ok(Command::InitProducer);
    let value = "x".repeat(400_000);
    let records = [(topic.as_str(), 0, "small"), (topic.as_str(), 0, value.as_str())];
    let e = d.call(transaction(&records)).expect_err("it does not fit");
    assert_eq!(e.kind, Kind::Refused(Some((0, 1))), "{e}");
    assert!(e.message.contains("400001 bytes") && e.message.contains("stoat.memory.budget"), "{e}");
    assert_eq!(d.committed(transaction(&records[..1])).ends.len(), 1, "the next transaction works");
}

#[test]
fn i8_an_unreachable_broker_blocks_nobody_and_every_command_is_answered() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a local port").port();
    let start = Instant::now();
    let mut config = KafkaConfig::new(format!("127.0.0.1:{port}"), "app", "app");
    config.transaction_timeout = Duration::from_secs(2);
    let mut d = Driver::new(config);
    let init = d.submit(Command::InitProducer);
    let describe = d.submit(Command::Describe { topics: vec!["t".into()] });
    let open = d.submit(Command::Open { partition: TopicPartition::new("t", 0), offset: 0 });
    d.submit(Command::Fetch { partition: TopicPartition::new("t", 0), max_bytes: 1 });
    assert!(start.elapsed() < Duration::from_secs(1), "submitting waits for nobody");
    let text = d.wait(
        |e| matches!(e, Event::Connection(Some(_))),
        |e| match e {
            Event::Connection(text) => text.expect("picked above"),
            _ => unreachable!("picked above"),
        },
    );
    assert!(text.contains(&port.to_string()), "it says which broker: {text}");
    assert!(d.result(open).is_ok(), "opening needs no broker");
    let e = d.result(init).expect_err("nobody is there");
    assert_eq!(e.kind, Kind::Retriable, "{e}");
    assert!(e.message.contains("refused"), "it says why: {e}");
    let again = d.submit(Command::Describe { topics: vec!["t".into()] });
    let e = d.result(describe).expect_err("nobody is there");
    assert_eq!(e.kind, Kind::Retriable, "{e}");
    let end = Instant::now();
    let _ = again;
    drop(d);
    assert!(
        end.elapsed() < Duration::from_secs(6),
        "dropping is bounded, also with a question under way: {:?}",
        end.elapsed()
    );
}

#[test]
fn a_client_setting_that_is_not_known_is_named_without_its_value() {
    let check = |key: &str, value: &str, expect: &str| {
        let mut config = KafkaConfig::new("127.0.0.1:9092", "app", "app");
        config.client.push((key.into(), value.into()));
        assert!(!format!("{config:?}").contains(value), "values may be secrets");
        let e = KafkaBroker::new(config).err().expect("the setting is wrong");
        assert_eq!(e.kind(), ErrorKind::Config);
        let text = e.to_string();
        assert!(text.contains(key) && text.contains(expect) && !text.contains(value), "{text}");
    };
    check("sasl.pasword", "s3cret", "unknown");
    check("security.protocol", "s3cret", "not allow");
}

#[test]
fn settings_that_exactly_once_rests_on_cannot_be_changed_and_others_can() {
    let mut config = KafkaConfig::new("127.0.0.1:9092", "app", "group");
    for (k, v) in
        [("acks", "1"), ("isolation.level", "read_uncommitted"), ("linger.ms", "77"), ("transactional.id", "x")]
    {
        config.client.push((k.into(), v.into()));
    }
    let last = |settings: &[(String, String)], key: &str| {
        settings.iter().rev().find(|(k, _)| k == key).map(|(_, v)| v.clone()).unwrap_or_default()
    };
    let producer = config.transactional(1);
    assert_eq!(last(&producer, "acks"), "all");
    assert_eq!(last(&producer, "transactional.id"), "app");
    assert_eq!(last(&producer, "linger.ms"), "77");
    let consumer = config.consumer(4);
    assert_eq!(last(&consumer, "isolation.level"), "read_committed");
    assert_eq!(last(&consumer, "group.id"), "group");
}

#[test]
fn n20_i07_what_is_read_ahead_stays_within_the_memory_for_any_number_of_partitions() {
    let mut config = KafkaConfig::new("127.0.0.1:9092", "app", "app");
    config.memory = 32 << 20;
    // As many as a budget of 128 MiB has room for: beyond that a start says so.
    for partitions in [1, 2, 4, 8, 16, 64, 200, 512] {
        let settings = config.consumer(partitions);
        let number = |key: &str| {
            settings.iter().rev().find(|(k, _)| k == key).map_or(0, |(_, v)| v.parse::<usize>().expect("a number"))
        };
        let each = number("queued.max.messages.kbytes") * 1024 + number("fetch.message.max.bytes");
        assert!(each * partitions <= config.memory / 2, "{partitions} partitions of {each} bytes");
        assert!(number("queued.min.messages") >= 32);
    }
}

/// A mock cluster with one broker and a broker object on it.
fn mock(app: &str, timeout: Duration) -> (MockCluster<'static, DefaultProducerContext>, Driver) {
    let cluster = MockCluster::new(1).expect("a mock cluster");
    cluster.create_topic("t", 1, 1).expect("a topic");
    let mut config = KafkaConfig::new(cluster.bootstrap_servers(), app, app);
    config.transaction_timeout = timeout;
    (cluster, Driver::new(config))
}

use rdkafka::types::RDKafkaApiKey as Api;
use rdkafka::types::RDKafkaRespErr as Resp;

#[test]
fn i9_a_commit_without_an_answer_is_unknown_and_repeating_it_says_that_it_was_retried() {
    let (cluster, mut d) = mock("unknown", Duration::from_secs(2));
    d.ok(Command::InitProducer);
    d.ok(transaction(&[("t", 0, "a")]));
    // Busy for longer than the transaction lasts.
    cluster.request_errors(Api::EndTxn, &[Resp::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; 2000]);
    let e = d.call(transaction(&[("t", 0, "b")])).expect_err("no answer");
    assert_eq!(e.kind, Kind::Unknown, "{e}");
    let e = d.call(transaction(&[("t", 0, "c")])).expect_err("the commit before is not decided");
    assert_eq!(e.kind, Kind::Unknown, "{e}");
    cluster.clear_request_errors(Api::EndTxn);
    match d.ok(Command::CommitAgain) {
        Reply::Committed(c) => assert!(c.retried && c.ends == vec![(TopicPartition::new("t", 0), 2)], "{c:?}"),
        other => panic!("{other:?}"),
    }
    let e = d.call(Command::CommitAgain).expect_err("nothing is open");
    assert_eq!(e.kind, Kind::Abort, "{e}");
    d.ok(Command::InitProducer);
    assert!(!d.committed(transaction(&[("t", 0, "d")])).retried);
}

#[test]
fn i9_a_commit_whose_first_request_was_lost_says_that_it_was_retried() {
    let (cluster, mut d) = mock("lost", Duration::from_secs(20));
    d.ok(Command::InitProducer);
    assert!(!d.committed(transaction(&[("t", 0, "a")])).retried);
    // The connection breaks instead of an answer: the client repeats the request by itself.
    cluster.request_errors(Api::EndTxn, &[Resp::RD_KAFKA_RESP_ERR__TRANSPORT]);
    assert!(d.committed(transaction(&[("t", 0, "b")])).retried);
    assert!(!d.committed(transaction(&[("t", 0, "c")])).retried);
}

#[test]
fn i10_errors_of_the_producer_end_in_the_kind_that_the_engine_reacts_to_and_the_next_initialisation_heals_them() {
    let check = |api: Api, error: Resp, expect: Kind| {
        let (cluster, mut d) = mock("heals", Duration::from_secs(10));
        d.ok(Command::InitProducer);
        d.ok(transaction(&[("t", 0, "a")]));
        cluster.request_errors(api, &[error]);
        let e = d.call(transaction(&[("t", 0, "b")])).expect_err("an injected error");
        assert_eq!(e.kind, expect, "{error:?}: {e}");
        cluster.clear_request_errors(api);
        d.ok(Command::InitProducer);
        d.ok(transaction(&[("t", 0, "c")]));
    };
    check(Api::EndTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Kind::Fenced);
    check(Api::EndTxn, Resp::RD_KAFKA_RESP_ERR_PRODUCER_FENCED, Kind::Fenced);
    check(Api::EndTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, Kind::Fatal);
    check(Api::EndTxn, Resp::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, Kind::Fenced);
    check(Api::Produce, Resp::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, Kind::Unauthorized);
    check(Api::Produce, Resp::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, Kind::Refused(Some((0, 0))));
}

fn with_offsets(value: &str) -> Command {
    Command::Transact(Arc::new(Transaction {
        batches: vec![batch(&[("t", 0, value)])],
        offsets: vec![(TopicPartition::new("t", 0), 1)],
        ..Transaction::default()
    }))
}

#[test]
fn a_group_coordinator_that_is_not_there_yet_is_waited_for() {
    let (cluster, mut d) = mock("new-cluster", Duration::from_secs(20));
    // As a new cluster answers while it makes its offsets topic.
    cluster.request_errors(Api::FindCoordinator, &[Resp::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE; 12]);
    d.ok(Command::InitProducer);
    d.ok(with_offsets("a"));
}

#[test]
fn n16_the_value_of_a_record_that_is_refused_is_not_in_the_message() {
    let (cluster, mut d) = mock("quiet", Duration::from_secs(10));
    d.ok(Command::InitProducer);
    cluster.request_errors(Api::Produce, &[Resp::RD_KAFKA_RESP_ERR_INVALID_RECORD]);
    let e = d.call(transaction(&[("t", 0, "hunter2")])).expect_err("it is refused");
    assert!(!e.message.contains("hunter2") && e.message.contains("failed to validate record"), "{e}");
}

/// librdkafka 2.12 fails an assertion where a question to the coordinator has timed out before that broker comes back, and
/// ends the process.
#[test]
fn a_group_coordinator_whose_broker_comes_back_late_is_waited_for_and_the_process_lives() {
    let cluster = MockCluster::new(2).expect("a mock cluster");
    cluster.create_topic("t", 1, 1).expect("a topic");
    cluster.partition_leader("t", 0, Some(1)).expect("broker 1 leads");
    cluster.coordinator(MockCoordinator::Transaction("late".into()), 1).expect("broker 1 coordinates");
    cluster.coordinator(MockCoordinator::Group("late".into()), 2).expect("broker 2 coordinates");
    let mut d = Driver::on(&cluster.bootstrap_servers(), "late");
    cluster.broker_down(2).expect("broker 2 exists");
    let op = d.submit(Command::InitProducer);
    // sleep: nobody tells that a question has timed out.
    std::thread::sleep(Duration::from_secs(2));
    cluster.broker_up(2).expect("broker 2 exists");
    d.result(op).expect("the coordinator is found");
    d.ok(with_offsets("a"));
}

#[test]
fn i8_a_call_that_never_comes_back_ends_in_an_error_and_the_next_producer_works() {
    let (cluster, mut d) = mock("forgotten", Duration::from_secs(20));
    d.ok(Command::InitProducer);
    d.ok(with_offsets("a"));
    // The coordinator moves and is not there at once: librdkafka asks three times within milliseconds, then never again.
    cluster.request_errors(Api::FindCoordinator, &[Resp::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE; 100]);
    cluster.request_errors(Api::TxnOffsetCommit, &[Resp::RD_KAFKA_RESP_ERR_NOT_COORDINATOR]);
    let start = Instant::now();
    let e = d.call(with_offsets("b")).expect_err("the call does not come back");
    assert_eq!(e.kind, Kind::Fatal, "{e}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    cluster.clear_request_errors(Api::FindCoordinator);
    d.ok(Command::InitProducer);
    d.ok(with_offsets("c"));
}

#[test]
fn a_connection_that_is_lost_and_comes_back_is_told_both_times() {
    let (cluster, mut d) = mock("flap", Duration::from_secs(20));
    d.ok(Command::ListTopics);
    cluster.broker_down(1).expect("broker 1 exists");
    d.wait(|e| matches!(e, Event::Connection(Some(_))), drop);
    cluster.broker_up(1).expect("broker 1 exists");
    d.wait(|e| matches!(e, Event::Connection(None)), drop);
    d.ok(Command::InitProducer);
    d.ok(transaction(&[("t", 0, "a")]));
}

/// Codes that brokers answer to each request of a transaction, and the kind that the engine is told. One after another on
/// one client: each is followed by an initialisation and a transaction that succeeds.
#[test]
fn i09_i10_each_request_of_a_transaction_fails_in_the_kind_that_the_engine_reacts_to() {
    let (cluster, mut d) = mock("each", Duration::from_secs(10));
    d.ok(Command::InitProducer);
    d.ok(with_offsets("a"));
    let cases = [
        (Api::AddPartitionsToTxn, Resp::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, Kind::Unauthorized),
        (Api::AddPartitionsToTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Kind::Fenced),
        (Api::AddPartitionsToTxn, Resp::RD_KAFKA_RESP_ERR_PRODUCER_FENCED, Kind::Fenced),
        (Api::AddPartitionsToTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, Kind::Fatal),
        (Api::AddPartitionsToTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING, Kind::Fenced),
        (Api::AddOffsetsToTxn, Resp::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, Kind::Unauthorized),
        (Api::AddOffsetsToTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Kind::Fenced),
        (Api::AddOffsetsToTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, Kind::Fatal),
        (Api::TxnOffsetCommit, Resp::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, Kind::Abort),
        (Api::TxnOffsetCommit, Resp::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID, Kind::Abort),
        (Api::TxnOffsetCommit, Resp::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID, Kind::Abort),
        (Api::TxnOffsetCommit, Resp::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, Kind::Unauthorized),
        (Api::TxnOffsetCommit, Resp::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Kind::Fenced),
        (Api::Produce, Resp::RD_KAFKA_RESP_ERR_INVALID_RECORD, Kind::Refused(Some((0, 0)))),
        (Api::Produce, Resp::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Kind::Fenced),
        (Api::EndTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH, Kind::Fenced),
        (Api::EndTxn, Resp::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE, Kind::Fatal),
        (Api::EndTxn, Resp::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Kind::Unauthorized),
    ];
    let mut wrong = Vec::new();
    for (api, code, expect) in cases {
        cluster.request_errors(api, &[code]);
        match d.call(with_offsets("b")) {
            Err(e) if e.kind == expect => {}
            other => wrong.push(format!("{code:?} at {expect:?}: {other:?}")),
        }
        cluster.clear_request_errors(api);
        d.ok(Command::InitProducer);
        d.ok(with_offsets("c"));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn errors_that_pass_are_tried_again_inside_a_transaction() {
    let (cluster, mut d) = mock("passes", Duration::from_secs(20));
    d.ok(Command::InitProducer);
    cluster.request_errors(Api::EndTxn, &[Resp::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS; 3]);
    cluster.request_errors(Api::AddPartitionsToTxn, &[Resp::RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS; 3]);
    cluster.request_errors(Api::Produce, &[Resp::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION; 3]);
    let c = d.committed(transaction(&[("t", 0, "a")]));
    assert!(!c.retried, "every request was answered");
}

#[test]
fn each_row_of_the_error_table_holds_its_codes() {
    let check = |expect: Kind, codes: &[Raw]| {
        for raw in codes {
            assert_eq!(kind(Code(*raw as i32)), expect, "{raw:?}");
        }
    };
    check(
        Kind::Retriable,
        &[
            Raw::RD_KAFKA_RESP_ERR__TRANSPORT,
            Raw::RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS,
            Raw::RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT,
        ],
    );
    check(Kind::Abort, &[Raw::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION, Raw::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS]);
    check(
        Kind::Refused(None),
        &[
            Raw::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
            Raw::RD_KAFKA_RESP_ERR_INVALID_RECORD,
            Raw::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP,
        ],
    );
    check(
        Kind::Fenced,
        &[
            Raw::RD_KAFKA_RESP_ERR__FENCED,
            Raw::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH,
            Raw::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID,
            Raw::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING,
        ],
    );
    check(
        Kind::UnknownTopic,
        &[Raw::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART, Raw::RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION],
    );
    check(Kind::OutOfRange, &[Raw::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE, Raw::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET]);
    check(
        Kind::Unauthorized,
        &[Raw::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, Raw::RD_KAFKA_RESP_ERR__AUTHENTICATION],
    );
    check(
        Kind::Fatal,
        &[Raw::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, Raw::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE],
    );
    assert_eq!(kind(Code(9_999)), Kind::Fatal, "an unknown code");
    let mut seen = HashSet::new();
    for code in TABLE.iter().flat_map(|(_, codes)| *codes) {
        assert!(seen.insert(code), "code {code} stands in two rows");
    }
}

#[test]
fn the_clients_flags_decide_where_the_code_does_not() {
    let check = |raw: Raw, fatal: bool, retriable: bool, abort: bool, expect: Kind| {
        let f = Failure { code: Code(raw as i32), fatal, retriable, abort, text: String::new() };
        assert_eq!(transactional(&f), expect, "{f:?}");
    };
    check(Raw::RD_KAFKA_RESP_ERR__TIMED_OUT, false, true, false, Kind::Retriable);
    check(Raw::RD_KAFKA_RESP_ERR__TIMED_OUT, false, false, true, Kind::Abort);
    check(Raw::RD_KAFKA_RESP_ERR__TIMED_OUT, true, false, false, Kind::Fatal);
    check(Raw::RD_KAFKA_RESP_ERR__FENCED, true, false, false, Kind::Fenced);
    check(Raw::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID, false, false, true, Kind::Fenced);
    check(Raw::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER, false, false, true, Kind::Abort);
    check(Raw::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE, false, false, true, Kind::Refused(None));
    check(Raw::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED, true, false, false, Kind::Unauthorized);
}
