//! What goes wrong by no fault of Stoat: the message says what, where and what to do; the exit code tells the kind.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::{Command as Ask, Reply, Transaction};
use stoat_core::id::TopicPartition;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;
use stoat_examples::faults::Log;

use crate::support::{PATIENCE, SESSIONS, WORD_COUNT, broker, client, example, finish, run, signal};

const START: i64 = 1_700_000_000_000;

/// Writes one click of user `u` into partition 0.
fn click(client: &mut BlockingClient, second: i64, value: &[u8]) {
    let mut batch = ProduceBatch::new(Arc::new(["clicks".into()]));
    batch.push(0, 0, Timestamp(START + second * 1_000), Some(b"u"), Some(value), Headers::default());
    client.produce(batch).unwrap();
}

fn committed(client: &mut BlockingClient) -> i64 {
    let partitions = vec![TopicPartition::new("clicks", 0)];
    match client.call(Ask::Group { partitions }).unwrap() {
        Reply::Group(g) => g.offsets[0].expect("a start commits its position"),
        other => panic!("{other:?}"),
    }
}

fn sessions(client: &mut BlockingClient) -> Vec<String> {
    let mut all = Vec::new();
    client
        .read_all("user-sessions", |_, r| all.push(String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned()))
        .unwrap();
    all
}

#[test]
fn malformed_json_stops_the_application_before_the_record_and_the_message_tells_how_to_skip_it() {
    let dir = tempfile::tempdir().unwrap();
    {
        let broker = broker(dir.path(), "sessions");
        let mut client = client(&broker, "sessions");
        client.create_topic("clicks", 1).unwrap();
        for second in 0..3 {
            click(&mut client, second, b"{\"page\":\"/\"}");
        }
        click(&mut client, 3, b"{\"page\":");
        click(&mut client, 4, b"{\"page\":\"/\"}");
        // An hour later, so that the session closes.
        click(&mut client, 3_600, b"{\"page\":\"/\"}");
    }
    // The same at every start: nothing is skipped by itself.
    for _ in 0..2 {
        let ended = run(example(SESSIONS, dir.path()).arg("--no-input"));
        ended.says(1, &["clicks-0@3", "malformed JSON", "start again", "stoat.start.offsets=group"]);
        let broker = broker(dir.path(), "sessions");
        let mut client = client(&broker, "sessions");
        assert!(committed(&mut client) <= 3, "nothing of the record is committed");
        assert!(sessions(&mut client).is_empty());
    }
    let mut next = 0;
    {
        let broker = broker(dir.path(), "sessions");
        let mut client = client(&broker, "sessions");
        // What came before the record may not be committed yet; an operator who skips it says where to go on.
        next = next.max(committed(&mut client));
        client.call(Ask::InitProducer).unwrap();
        let offsets = vec![(TopicPartition::new("clicks", 0), 4)];
        client.call(Ask::Transact(Arc::new(Transaction { offsets, ..Transaction::default() }))).unwrap();
    }
    let ended = run(example(SESSIONS, dir.path()).arg("--no-input"));
    ended.says(1, &["clicks-0: epoch record", "group 4", "stoat.start.offsets"]);
    let ended =
        run(example(SESSIONS, dir.path()).args(["--no-input", "--until-done", "--set", "stoat.start.offsets=group"]));
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let broker = broker(dir.path(), "sessions");
    let clicks = if next == 3 { 4 } else { 1 };
    let all = sessions(&mut client(&broker, "sessions"));
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all[0].contains(&format!("\"clicks\":{clicks}")), "{all:?}, went on from {next}");
}

#[test]
fn a_missing_topic_is_named_with_the_nearest_one_and_not_created() {
    let dir = tempfile::tempdir().unwrap();
    client(&broker(dir.path(), "sessions"), "x").create_topic("click", 1).unwrap();
    let ended = run(example(SESSIONS, dir.path()).args(["--no-input", "--set", "stoat.topics.create=false"]));
    ended.says(
        1,
        &["topic `clicks` does not exist: did you mean `click`?", "topic `user-sessions`", "stoat.topics.create"],
    );
    let all = client(&broker(dir.path(), "sessions"), "x").call(Ask::ListTopics).unwrap();
    let Reply::Names(all) = all else { panic!("{all:?}") };
    assert!(!all.iter().any(|t| t == "clicks"), "{all:?}");
}

#[test]
fn a_misspelt_key_is_named_with_the_nearest_one_and_without_its_value_wherever_it_stands() {
    let dir = tempfile::tempdir().unwrap();
    let hint = "did you mean `stoat.commit.interval`?";
    let check = |command: &mut Command, place: &str| {
        let ended = run(command);
        ended.says(2, &[hint, place]);
        assert!(!format!("{ended:?}").contains("hunter2"), "{ended:#?}");
    };
    check(example(SESSIONS, dir.path()).args(["--set", "stoat.comit.interval=hunter2"]), "stoat.comit.interval");
    check(example(SESSIONS, dir.path()).env("STOAT__COMIT__INTERVAL", "hunter2"), "variable STOAT__COMIT__INTERVAL");
    std::fs::write(dir.path().join("stoat.yaml"), "stoat:\n  comit:\n    interval: hunter2\n").unwrap();
    check(&mut example(SESSIONS, dir.path()), "in stoat.yaml");
}

#[test]
fn usage_errors_end_with_exit_code_2() {
    let dir = tempfile::tempdir().unwrap();
    let ended = run(example(SESSIONS, dir.path()).args(["--lane", "3"]));
    assert_eq!(ended.code, Some(2));
    assert!(ended.err.contains("--lanes"), "{ended:#?}");
    run(example(SESSIONS, dir.path()).args(["--lanes", "many"])).says(2, &["`stoat.lanes`", "a whole number"]);
    run(example(SESSIONS, dir.path()).args(["--lanes", "0"])).says(2, &["`stoat.lanes`", "too small"]);
    run(example(SESSIONS, dir.path()).args(["--set", "stoat.lanes"])).says(2, &["no `=`"]);
    run(example(SESSIONS, dir.path()).args(["--config", "none.yaml"])).says(2, &["none.yaml"]);
    run(example(SESSIONS, dir.path()).args(["--describe", "svg"])).says(2, &["mermaid"]);
    run(example(SESSIONS, dir.path()).args(["--application-id", ".."])).says(2, &["dots alone"]);
    assert!(!dir.path().join("state").exists(), "a usage error leaves nothing behind");
}

#[test]
fn a_reader_of_standard_output_that_goes_away_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [&["--list-config"][..], &["--describe", "json"], &[]] {
        let mut child = example(SESSIONS, dir.path()).args(arguments).spawn().unwrap();
        drop(child.stdout.take());
        let ended = finish(child);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {ended:#?}");
        assert!(!ended.err.contains("panicked"), "{ended:#?}");
    }
}

#[test]
fn the_help_says_what_the_program_does_and_what_its_exit_codes_mean() {
    let dir = tempfile::tempdir().unwrap();
    for (exe, what) in [(SESSIONS, "Finds sessions"), (WORD_COUNT, "Counts words")] {
        let ended = run(example(exe, dir.path()).arg("--help"));
        assert!(ended.out.starts_with(what), "{ended:#?}");
        assert!(ended.out.contains("Exit codes: 0"), "{ended:#?}");
    }
}

#[test]
fn a_state_directory_that_cannot_be_made_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("state"), "a file in its place").unwrap();
    let ended = run(&mut example(SESSIONS, dir.path()));
    ended.says(1, &["state/sessions", "write access", "stoat.state.dir"]);
}

#[test]
fn sigterm_and_sigint_end_with_0_after_a_last_commit_and_an_idle_application_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(&mut example(SESSIONS, dir.path())).code, Some(0));
    let journal = || -> u64 {
        let files = std::fs::read_dir(dir.path().join("state/sessions/broker")).unwrap();
        files.map(|f| f.unwrap().metadata().unwrap().len()).sum()
    };
    for name in ["TERM", "INT"] {
        let mut child = example(SESSIONS, dir.path()).arg("--no-input").spawn().unwrap();
        let mut log = Log::of(&mut child);
        assert!(log.wait_for("running epoch=", PATIENCE), "{}", log.rest());
        // sleep: nothing tells that nothing more will happen; the first mark after a start is committed once
        std::thread::sleep(Duration::from_secs(2));
        let before = journal();
        // sleep: what is awaited is that nothing happens
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(journal(), before, "an idle application writes nothing");
        signal(child.id(), name);
        let ended = finish(child);
        assert_eq!(ended.code, Some(0), "{name}: {}", log.rest());
        assert!(log.rest().contains("a last commit"), "{}", log.rest());
        assert!(journal() > before, "the last commit is in the journal");
    }
}

#[cfg(feature = "rocksdb")]
#[test]
fn a_store_of_a_newer_version_or_of_another_application_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(&mut example(SESSIONS, dir.path())).code, Some(0));
    let format = dir.path().join("state/sessions/stores/FORMAT");
    let text = std::fs::read_to_string(&format).unwrap();
    std::fs::write(&format, text.replace("version 1", "version 2")).unwrap();
    run(&mut example(SESSIONS, dir.path())).says(1, &["sessions/stores", "version 2", "upgrade the program"]);
    std::fs::write(&format, text).unwrap();
    std::fs::create_dir_all(dir.path().join("state/other")).unwrap();
    std::fs::rename(dir.path().join("state/sessions/stores"), dir.path().join("state/other/stores")).unwrap();
    let ended = run(example(SESSIONS, dir.path()).args(["--application-id", "other"]));
    ended.says(1, &["belongs to application `sessions`, not to `other`"]);
}

#[cfg(feature = "kafka")]
#[test]
fn a_broker_that_cannot_be_reached_is_named_soon_and_no_secret_is_printed() {
    let dir = tempfile::tempdir().unwrap();
    // Port 1 of this machine serves nothing.
    for arguments in [&["--no-input"][..], &[]] {
        let mut command = example(SESSIONS, dir.path());
        command.args(arguments).args(["--bootstrap-servers", "127.0.0.1:1", "--set", "stoat.kafka.connect-timeout=2s"]);
        command.args(["--set", "stoat.kafka.client.ssl.key.password=hunter2"]);
        command.env("STOAT__KAFKA__CLIENT__SASL__PASSWORD", "hunter2").env("STOAT_LOG", "debug");
        let ended = run(&mut command);
        ended.says(1, &["127.0.0.1:1", "is it running"]);
        assert!(ended.after < Duration::from_secs(12), "{:?}", ended.after);
        assert!(!format!("{ended:?}").contains("hunter2"), "{ended:#?}");
    }
    let mut command = example(SESSIONS, dir.path());
    command.args(["--bootstrap-servers", "127.0.0.1:1", "--set", "stoat.kafka.client.pasword=hunter2"]);
    let ended = run(&mut command);
    ended.says(2, &["stoat.kafka.client.pasword"]);
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:#?}");
}

/// A small file system of its own, where this user may mount one.
struct Tmpfs<'a>(&'a Path);

impl<'a> Tmpfs<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        let option = format!("size={size}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &option, "stoat-test"]).arg(at).output();
        mount.is_ok_and(|o| o.status.success()).then_some(Self(at))
    }

    fn grow(&self, size: &str) {
        let option = format!("remount,size={size}");
        let grown = Command::new("mount").args(["-o", &option]).arg(self.0).status();
        assert!(grown.is_ok_and(|s| s.success()));
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// The table that an example prints at its end.
fn result(out: &str) -> &str {
    out.find("\n\n").map_or("", |at| &out[at..])
}

#[test]
fn a_full_disk_is_named_and_once_there_is_room_the_result_is_exact() {
    let whole = tempfile::tempdir().unwrap();
    let expected = run(&mut example(SESSIONS, whole.path()));
    assert!(result(&expected.out).contains("sessions of"), "{expected:#?}");
    // Full while the input is loaded, while it is processed, and (with RocksDB) while a store is written.
    for size in ["1500k", "2500k", "2900k"] {
        let dir = tempfile::tempdir().unwrap();
        let Some(small) = Tmpfs::mount(dir.path(), size) else {
            eprintln!("SKIPPED a_full_disk: a tmpfs cannot be mounted here");
            return;
        };
        let ended = run(&mut example(SESSIONS, dir.path()));
        // What is needed besides the input differs with the stores.
        if ended.code == Some(0) {
            assert_ne!(size, "1500k", "the input alone is larger: {ended:#?}");
        } else {
            assert_eq!(ended.code, Some(1), "{ended:#?}");
            assert!(ended.reason().contains("No space left on device"), "{ended:#?}");
            assert!(ended.reason().contains("room") || ended.reason().contains("free space"), "{ended:#?}");
            assert!(ended.reason().contains("state/sessions"), "{ended:#?}");
        }
        small.grow("64m");
        let ended = run(&mut example(SESSIONS, dir.path()));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        // The load is completed where the disk was full before its end.
        assert_eq!(result(&ended.out), result(&expected.out), "{ended:#?}");
    }
}
