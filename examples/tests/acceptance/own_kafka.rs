//! What happens to a broker: a topic is deleted, the broker stands still, ends and comes back. Needs a broker of its own,
//! and so Kafka's jars: `STOAT_TEST_KAFKA_JARS` names their folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stoat_examples::faults::{Chaos, Log, OwnKafka, Plan, Report, Words, chaos, produce_lines};

use crate::support::{PATIENCE, SESSIONS, WORD_COUNT, example, finish, signal};

struct Kafka {
    kafka: OwnKafka,
    /// Goes after the broker.
    _dir: tempfile::TempDir,
}

/// The folder of Kafka's jars, where the environment names one.
fn jars(test: &str) -> Option<PathBuf> {
    let jars = std::env::var_os("STOAT_TEST_KAFKA_JARS").map(PathBuf::from);
    if jars.is_none() {
        assert!(std::env::var_os("CI").is_none(), "CI must set STOAT_TEST_KAFKA_JARS: the folder of Kafka's jars");
        eprintln!("SKIPPED {test}: STOAT_TEST_KAFKA_JARS names no folder of Kafka's jars");
    }
    jars
}

impl Kafka {
    fn start(test: &str) -> Option<Self> {
        let jars = jars(test)?;
        let dir = tempfile::tempdir().unwrap();
        let kafka = OwnKafka::start(&jars, dir.path(), None).unwrap();
        Some(Self { kafka, _dir: dir })
    }

    fn bootstrap(&self) -> String {
        self.kafka.direct()
    }

    fn plan(&self, dir: &Path) -> Plan {
        Plan {
            exe: WORD_COUNT.into(),
            bootstrap: Some(self.bootstrap()),
            application_id: "own".to_owned(),
            state_dir: dir.to_path_buf(),
            records: 0,
            kills: 0,
            life: (Duration::ZERO, Duration::ZERO),
            lanes: vec![2],
            wipe_after: None,
            seed: 11,
        }
    }
}

#[test]
fn old_events_in_topics_that_an_example_made_outlive_the_brokers_retention() {
    let Some(kafka) = Kafka::start("old_events_in_topics_that_an_example_made") else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let arguments = ["--until-done", "--bootstrap-servers", &kafka.bootstrap()];
        finish(example(SESSIONS, dir.path()).args(arguments).spawn().unwrap())
    };
    let first = run();
    assert!(first.code == Some(0) && first.out.contains("6061 sessions"), "{first:#?}");
    // sleep: the broker looks every second, and nothing tells that it has looked and let all be
    std::thread::sleep(Duration::from_secs(4));
    let second = run();
    assert!(second.code == Some(0) && second.out.contains("6061 sessions"), "{second:#?}");
}

#[test]
fn a_source_topic_that_is_deleted_while_it_is_read_ends_the_application_which_names_it_once() {
    let Some(kafka) = Kafka::start("a_source_topic_that_is_deleted") else { return };
    let dir = tempfile::tempdir().unwrap();
    let mut child =
        example(SESSIONS, dir.path()).args(["--no-input", "--bootstrap-servers", &kafka.bootstrap()]).spawn().unwrap();
    let mut log = Log::of(&mut child);
    assert!(log.wait_for("running epoch=", PATIENCE), "{}", log.rest());
    let mut delete = kafka.kafka.java("org.apache.kafka.tools.TopicCommand");
    let deleted = delete.args(["--bootstrap-server", &kafka.bootstrap(), "--delete", "--topic", "clicks"]).output();
    assert!(deleted.as_ref().is_ok_and(|o| o.status.success()), "{deleted:?}");
    let ended = finish(child);
    assert_eq!(ended.code, Some(1), "{}", log.rest());
    assert!(ended.after < Duration::from_mins(1), "after {:?}", ended.after);
    let reason = log.rest().lines().last().unwrap_or_default();
    assert!(reason.contains("topic `clicks` was deleted") && reason.contains("create it anew"), "{}", log.rest());
    let repeated = log.rest().lines().filter(|l| l.contains("topic does not exist")).count();
    assert!(repeated <= 2, "told {repeated} times: {}", log.rest());
}

#[test]
fn a_broker_that_stands_still_and_one_that_ends_are_waited_for_with_few_words_and_the_result_is_exact() {
    let Some(mut kafka) = Kafka::start("a_broker_that_stands_still") else { return };
    let dir = tempfile::tempdir().unwrap();
    let plan = kafka.plan(dir.path());
    let mut client = plan.client().unwrap();
    let words = Words::prepare(&mut client).unwrap();
    produce_lines(&mut client, 1, 0, 60_000).unwrap();
    let mut child = plan.start(2, false).unwrap();
    let mut log = Log::of(&mut child);
    assert!(log.wait_for("running epoch=", PATIENCE), "{}", log.rest());
    // In the middle of the work: it has just begun.
    kafka.kafka.signal("STOP").unwrap();
    // sleep: how long the broker stands still is what is tested
    std::thread::sleep(Duration::from_secs(5));
    kafka.kafka.signal("CONT").unwrap();
    produce_lines(&mut client, 2, 0, 60_000).unwrap();
    kafka.kafka.end("KILL").unwrap();
    assert!(log.wait_for("the broker cannot be reached", PATIENCE), "{}", log.rest());
    // sleep: how long the broker is away is what is tested
    std::thread::sleep(Duration::from_secs(10));
    // A start right behind a kill does not always succeed at once.
    kafka.kafka.serve().or_else(|_| kafka.kafka.serve()).unwrap();
    assert!(log.wait_for("the broker can be reached again", PATIENCE), "{}", log.rest());
    produce_lines(&mut client, 3, 0, 10_000).unwrap();
    assert!(child.try_wait().unwrap().is_none(), "it goes on by itself: {}", log.rest());
    signal(child.id(), "TERM");
    assert_eq!(finish(child).code, Some(0), "{}", log.rest());
    let lines = log.rest().lines().count();
    assert!(lines < 40, "{lines} lines of log: {}", log.rest());
    let last = finish(plan.start(1, true).unwrap());
    assert_eq!(last.code, Some(0), "{last:#?}");
    let report = words.compare(&mut client, &plan.application_id, Report::default()).unwrap();
    assert_eq!((report.lost, report.doubled, report.changelog_wrong), (0, 0, 0), "{report:?}");
}

#[test]
fn i03_i05_under_kills_halts_restarts_and_cuts_nothing_is_lost_doubled_or_half() {
    let Some(jars) = jars("i03_i05_under_kills_halts_restarts_and_cuts") else { return };
    let dir = tempfile::tempdir().unwrap();
    let plan = Chaos {
        jars,
        programs: Path::new(WORD_COUNT).parent().unwrap().to_owned(),
        dir: dir.path().to_owned(),
        stories: Vec::new(),
        kills: 3,
        life: (Duration::from_millis(50), Duration::from_millis(600)),
        restarts: 1,
        stalls: 1,
        stall: (Duration::from_secs(1), Duration::from_secs(2)),
        cuts: 3,
        pause: (Duration::from_millis(200), Duration::from_millis(800)),
        per_second: 500,
        lanes: vec![1, 3, 16],
        seed: 3,
    };
    let happened = chaos(&plan, &|what| eprintln!("{what}")).unwrap();
    assert_eq!(happened.broker.restarts, (0, 1));
    assert_eq!(happened.rows.len(), 3);
    for row in &happened.rows {
        assert!(row.exact(), "{row:#?}");
        assert!(row.kills >= 3, "{row:#?}");
    }
    // How often depends on how quick the machine is.
    let at_work: u32 = happened.rows.iter().map(|r| r.at_work).sum();
    assert!(at_work > 0, "no kill met work: {happened:#?}");
    let money = happened.rows.iter().find(|r| r.story == "money").unwrap();
    assert!(money.report.cuts > 1 && money.report.totals > 1, "{money:#?}");
}

#[test]
fn t25_poison_pills_on_kafka_become_dead_letters_once_under_kill_9() {
    let Some(kafka) = Kafka::start("t25_poison_pills_on_kafka") else { return };
    let dir = tempfile::tempdir().unwrap();
    crate::poison::torment(kafka.plan(dir.path()), dir.path(), 200_000);
}
