//! A key codec that wrongly claims to be canonical, on eight lanes: which keys that splits is derived from the lanes' hash.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::{Command as Ask, Reply};
use stoat_core::hash::{lane_hash, lane_of, partition_for};
use stoat_core::id::TopicPartition;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;
use stoat_examples::faults::Log;

use crate::support::{Ended, LANE_SPLIT, PATIENCE, broker, client, example, finish, run};

/// The application id that the example has by itself.
const APPLICATION: &str = "lane-split";
const LANES: u32 = 8;
const PARTITIONS: i32 = 6;
const GUARD: &str = "stoat.processing.timer-lane-affinity-guard";
const SAMPLED: &str = "stoat.processing.timer-lane-affinity-sampled-check";

/// Visitors, in quotes, whose two encodings pick one lane of eight (`same`), or two.
fn visitors(same: bool) -> impl Iterator<Item = String> {
    let lane = |key: &str| lane_of(lane_hash(key.as_bytes()), LANES);
    let all = (0..).map(|n| (format!("v{n}"), format!("\"v{n}\"")));
    all.filter(move |(bare, quoted)| (lane(bare) == lane(quoted)) == same).map(|(_, quoted)| quoted)
}

/// Produces a visit of each; where each lies.
fn visit(client: &mut BlockingClient, visitors: &[String]) -> Vec<(TopicPartition, i64)> {
    let mut at = ends(client);
    let mut batch = ProduceBatch::new(Arc::new(["visits".into()]));
    let places = visitors
        .iter()
        .map(|key| {
            let partition = partition_for(key.as_bytes(), PARTITIONS);
            let time = Timestamp(1_700_000_000_000);
            batch.push(0, partition, time, Some(key.as_bytes()), Some(b"/"), Headers::default());
            let end = &mut at[partition as usize];
            *end += 1;
            (TopicPartition::new("visits", partition), *end - 1)
        })
        .collect();
    client.produce(batch).unwrap();
    places
}

fn ends(client: &mut BlockingClient) -> Vec<i64> {
    let mut all = client.bounds("visits").unwrap();
    all.sort_by_key(|(tp, _)| tp.partition);
    all.into_iter().map(|(_, b)| b.end).collect()
}

fn committed(client: &mut BlockingClient, partition: &TopicPartition) -> i64 {
    match client.call(Ask::Group { partitions: vec![partition.clone()] }).unwrap() {
        Reply::Group(g) => g.offsets[0].expect("a start commits its position"),
        other => panic!("{other:?}"),
    }
}

fn stopped_at(ended: &Ended, place: &(TopicPartition, i64)) {
    let place = format!("{}@{}", place.0, place.1);
    ended.says(1, &["TimerLaneAffinity", &place, "`away` of `ended`", "CANONICAL"]);
}

fn lane_split(dir: &Path) -> Command {
    let mut command = example(LANE_SPLIT, dir);
    command.args(["--lanes", "8", "--no-input"]);
    command
}

#[test]
fn i16_a_split_stops_the_example_before_the_epoch_commits() {
    let dir = tempfile::tempdir().unwrap();
    let control: Vec<String> = visitors(true).take(40).collect();
    let split: Vec<String> = visitors(false).take(3).collect();
    let place = {
        let broker = broker(dir.path(), APPLICATION);
        let mut client = client(&broker, APPLICATION);
        client.create_topic("visits", PARTITIONS).unwrap();
        visit(&mut client, &control);
        drop(client);
        drop(broker);
        let ended = run(lane_split(dir.path()).arg("--until-done"));
        assert_eq!(ended.code, Some(0), "control keys pass: {ended:#?}");
        let broker = self::broker(dir.path(), APPLICATION);
        let mut client = self::client(&broker, APPLICATION);
        visit(&mut client, &split[..1]).remove(0)
    };
    for _ in 0..2 {
        stopped_at(&run(&mut lane_split(dir.path())), &place);
        let broker = broker(dir.path(), APPLICATION);
        assert!(committed(&mut client(&broker, APPLICATION), &place.0) <= place.1);
    }
    visit(&mut client(&broker(dir.path(), APPLICATION), APPLICATION), &split[1..]);
    let warn = format!("{GUARD}=warn");
    let ended = run(lane_split(dir.path()).args(["--until-done", "--set", &warn, "--set", &format!("{SAMPLED}=off")]));
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.out.contains("counted: stoat.timer.lane.mismatch.total 3\n"), "{ended:#?}");
    assert_eq!(ended.err.matches("WARN").count(), 1, "it warns once: {ended:#?}");
}

#[test]
fn the_bundled_visits_are_split_too_and_one_lane_has_nothing_to_split() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(example(LANE_SPLIT, dir.path()).args(["--lanes", "8"]));
    ended.says(1, &["visits-", "TimerLaneAffinity"]);
    let ended = run(example(LANE_SPLIT, dir.path()).args(["--lanes", "1"]));
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(!ended.out.contains("counted: "), "{ended:#?}");
}

#[cfg(feature = "kafka")]
#[test]
fn i16_a_split_on_kafka_stops_the_example_before_the_epoch_commits() {
    use stoat_core::broker::kafka::{KafkaBroker, KafkaConfig};

    use crate::support::{kafka, unique};

    let Some((bootstrap, _held)) = kafka("i16_a_split_on_kafka") else { return };
    let id = unique("lane-split");
    let config = KafkaConfig::new(bootstrap.as_str(), format!("{id}-tester"), id.as_str());
    let mut client = BlockingClient::new(Box::new(KafkaBroker::new(config).unwrap()));
    client.create_topic("visits", PARTITIONS).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let lane_split = || {
        let mut command = lane_split(dir.path());
        // What other runs left in the topic is not ours.
        command.args(["--set", "stoat.start.reset=latest"]);
        command.args(["--bootstrap-servers", &bootstrap, "--application-id", &id]);
        command
    };
    let mut child = lane_split().spawn().unwrap();
    let mut log = Log::of(&mut child);
    assert!(log.wait_for("running epoch=", PATIENCE), "{}", log.rest());
    let control: Vec<String> = visitors(true).take(40).collect();
    let split: Vec<String> = visitors(false).take(3).collect();
    let places = visit(&mut client, &control);
    let since = std::time::Instant::now();
    while !places.iter().all(|(tp, offset)| committed(&mut client, tp) > *offset) {
        assert!(since.elapsed() < PATIENCE, "control keys pass: {}", log.rest());
        // sleep: another process commits, and nothing tells when.
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let place = visit(&mut client, &split[..1]).remove(0);
    let ended = Ended { err: log.rest().to_owned(), ..finish(child) };
    stopped_at(&ended, &place);
    assert!(committed(&mut client, &place.0) <= place.1, "its offset is not committed");
    let ended = run(&mut lane_split());
    stopped_at(&ended, &place);
    assert!(committed(&mut client, &place.0) <= place.1, "nor at the next start");
    visit(&mut client, &split[1..]);
    let warn = format!("{GUARD}=warn");
    let ended = run(lane_split().args(["--until-done", "--set", &warn, "--set", &format!("{SAMPLED}=off")]));
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    assert!(ended.out.contains("counted: stoat.timer.lane.mismatch.total 3\n"), "{ended:#?}");
    assert!(committed(&mut client, &place.0) > place.1);
}
