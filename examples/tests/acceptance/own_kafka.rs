//! What happens to a broker: a topic is deleted, the broker stands still, ends and comes back. Needs a broker of its own,
//! and so Kafka's jars: `STOAT_TEST_KAFKA_JARS` names their folder.

use std::io::Read as _;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use stoat_examples::faults::{Log, Plan, Report, Words, produce_lines};

use crate::support::{PATIENCE, SESSIONS, WORD_COUNT, example, finish, signal};

struct Kafka {
    dir: tempfile::TempDir,
    jars: PathBuf,
    bootstrap: String,
    broker: Option<Child>,
}

impl Kafka {
    fn start(test: &str) -> Option<Self> {
        let Some(jars) = std::env::var_os("STOAT_TEST_KAFKA_JARS").map(PathBuf::from) else {
            assert!(std::env::var_os("CI").is_none(), "CI must set STOAT_TEST_KAFKA_JARS: the folder of Kafka's jars");
            eprintln!("SKIPPED {test}: STOAT_TEST_KAFKA_JARS names no folder of Kafka's jars");
            return None;
        };
        let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // Both are held at the same time, so that they differ.
        let (one, other) = (listen(), listen());
        let (port, controller) = (one.local_addr().unwrap().port(), other.local_addr().unwrap().port());
        drop((one, other));
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let settings = format!(
            "process.roles=broker,controller\nnode.id=1\ncontroller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\nlog.dirs={}
auto.create.topics.enable=false\nlog.initial.task.delay.ms=1000\nlog.retention.check.interval.ms=1000\noffsets.topic.replication.factor=1\noffsets.topic.num.partitions=1
transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\ntransaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0\n",
            data.display()
        );
        std::fs::write(dir.path().join("server.properties"), settings).unwrap();
        let mut kafka = Self { dir, jars, bootstrap: format!("127.0.0.1:{port}"), broker: None };
        let mut format = kafka.java("kafka.tools.StorageTool");
        let status = format
            .args(["format", "--standalone", "-t", "c3RvYXQtdGVzdC1rYWZrYQ", "-c"])
            .arg(kafka.settings())
            .output();
        assert!(status.as_ref().is_ok_and(|o| o.status.success()), "{status:?}");
        kafka.serve();
        Some(kafka)
    }

    fn settings(&self) -> PathBuf {
        self.dir.path().join("server.properties")
    }

    fn java(&self, class: &str) -> Command {
        let mut java = Command::new("java");
        java.args(["-Xmx512m", "-XX:-UsePerfData", "-cp"]).arg(self.jars.join("*")).arg(class).stdin(Stdio::null());
        java
    }

    /// Starts the broker, at first or again, and waits until it serves.
    fn serve(&mut self) {
        let mut java = self.java("kafka.Kafka");
        let mut child = java
            .arg(self.settings())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("java can be started");
        let mut out = child.stderr.take().expect("piped");
        let (sender, started) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let (mut log, mut part) = (Vec::new(), [0; 4096]);
            let mut told = false;
            // Read to the end, so that the broker never waits for its reader.
            while let Ok(n @ 1..) = out.read(&mut part) {
                if !told {
                    log.extend_from_slice(&part[..n]);
                    if String::from_utf8_lossy(&log).contains("Kafka Server started") {
                        told = true;
                        let _ = sender.send(());
                    }
                }
            }
        });
        self.broker = Some(child);
        started.recv_timeout(PATIENCE).expect("Apache Kafka starts");
    }

    fn pid(&self) -> u32 {
        self.broker.as_ref().expect("it runs").id()
    }

    fn end(&mut self) {
        if let Some(mut broker) = self.broker.take() {
            // A broker that stands still would not hear anything gentler.
            let _ = broker.kill();
            let _ = broker.wait();
        }
    }

    fn plan(&self, dir: &Path) -> Plan {
        Plan {
            exe: WORD_COUNT.into(),
            bootstrap: Some(self.bootstrap.clone()),
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

impl Drop for Kafka {
    fn drop(&mut self) {
        self.end();
    }
}

#[test]
fn old_events_in_topics_that_an_example_made_outlive_the_brokers_retention() {
    let Some(kafka) = Kafka::start("old_events_in_topics_that_an_example_made") else { return };
    let dir = tempfile::tempdir().unwrap();
    let run = || {
        let arguments = ["--until-done", "--bootstrap-servers", &kafka.bootstrap];
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
        example(SESSIONS, dir.path()).args(["--no-input", "--bootstrap-servers", &kafka.bootstrap]).spawn().unwrap();
    let mut log = Log::of(&mut child);
    assert!(log.wait_for("running epoch=", PATIENCE), "{}", log.rest());
    let mut delete = kafka.java("org.apache.kafka.tools.TopicCommand");
    let deleted = delete.args(["--bootstrap-server", &kafka.bootstrap, "--delete", "--topic", "clicks"]).output();
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
    signal(kafka.pid(), "STOP");
    // sleep: how long the broker stands still is what is tested
    std::thread::sleep(Duration::from_secs(5));
    signal(kafka.pid(), "CONT");
    produce_lines(&mut client, 2, 0, 60_000).unwrap();
    kafka.end();
    assert!(log.wait_for("the broker cannot be reached", PATIENCE), "{}", log.rest());
    // sleep: how long the broker is away is what is tested
    std::thread::sleep(Duration::from_secs(10));
    kafka.serve();
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
fn c25_poison_pills_on_kafka_become_dead_letters_once_under_kill_9() {
    let Some(kafka) = Kafka::start("c25_poison_pills_on_kafka") else { return };
    let dir = tempfile::tempdir().unwrap();
    crate::poison::torment(kafka.plan(dir.path()), dir.path(), 200_000);
}
