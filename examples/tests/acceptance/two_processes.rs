//! Two processes with one application id: one goes on, the other ends with exit code 3.

use std::time::Duration;

use stoat_examples::faults::{Log, Plan, Report, Words, produce_lines};

use crate::support::{PATIENCE, SESSIONS, WORD_COUNT, example, finish, kafka, run, signal, unique};

#[test]
fn a_second_process_on_the_embedded_broker_ends_because_the_directory_is_locked() {
    let dir = tempfile::tempdir().unwrap();
    let mut first = example(SESSIONS, dir.path()).arg("--no-input").spawn().unwrap();
    let mut log = Log::of(&mut first);
    assert!(log.wait_for("running epoch=", PATIENCE), "{}", log.rest());
    let second = run(example(SESSIONS, dir.path()).arg("--no-input"));
    second.says(3, &["is in use by", "stop it first"]);
    assert!(first.try_wait().unwrap().is_none(), "the first goes on");
    signal(first.id(), "TERM");
    assert_eq!(finish(first).code, Some(0), "{}", log.rest());
}

#[test]
fn of_two_processes_on_kafka_the_newer_goes_on_and_the_older_ends_with_exit_code_3() {
    let Some((bootstrap, _held)) = kafka("of_two_processes_on_kafka_the_newer_goes_on") else { return };
    let dir = tempfile::tempdir().unwrap();
    let plan = |place: &str, id: &str| Plan {
        exe: WORD_COUNT.into(),
        bootstrap: Some(bootstrap.clone()),
        application_id: id.to_owned(),
        state_dir: dir.path().join(place),
        records: 0,
        kills: 0,
        life: (Duration::ZERO, Duration::ZERO),
        lanes: vec![2],
        wipe_after: None,
        seed: 3,
    };
    let id = unique("twice");
    let (older, newer) = (plan("older", &id), plan("newer", &id));
    let mut client = older.client().unwrap();
    let words = Words::prepare(&mut client).unwrap();
    let mut first = older.start(2, false).unwrap();
    let mut first_log = Log::of(&mut first);
    assert!(first_log.wait_for("running epoch=", PATIENCE), "{}", first_log.rest());
    // The older one is busy while the newer one starts, and there is more to do afterwards.
    produce_lines(&mut client, 5, 0, 100_000).unwrap();
    let mut second = newer.start(3, false).unwrap();
    let mut second_log = Log::of(&mut second);
    assert!(second_log.wait_for("running epoch=", PATIENCE), "{}", second_log.rest());
    let ended = finish(first);
    assert_eq!(ended.code, Some(3), "{}", first_log.rest());
    assert!(ended.after < Duration::from_mins(1), "the older one ended after {:?}", ended.after);
    assert!(first_log.rest().contains("another instance of this application"), "{}", first_log.rest());
    produce_lines(&mut client, 6, 0, 20_000).unwrap();
    assert!(second.try_wait().unwrap().is_none(), "the newer one goes on: {}", second_log.rest());
    signal(second.id(), "TERM");
    assert_eq!(finish(second).code, Some(0), "{}", second_log.rest());
    // Comes to its end over everything, so that all can be compared: each word's counts are 1, 2, 3 and so on, so nothing
    // of the older one shows after the newer one has started.
    let last = finish(newer.start(1, true).unwrap());
    assert_eq!(last.code, Some(0), "{last:#?}");
    let report = words.compare(&mut client, &id, Report::default()).unwrap();
    assert_eq!((report.lost, report.doubled, report.changelog_wrong), (0, 0, 0), "{report:?}");
}
