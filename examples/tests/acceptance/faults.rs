//! Killed with SIGKILL in the middle, started again with other lane counts, once without its stores: nothing is lost,
//! nothing doubled.

use std::path::{Path, PathBuf};
use std::time::Duration;

use stoat_examples::faults::{Plan, Report, sessions, word_count};

use crate::support::{SESSIONS, WORD_COUNT, kafka, unique};

fn plan(exe: &str, dir: &Path, bootstrap: Option<String>, records: usize) -> Plan {
    Plan {
        exe: PathBuf::from(exe),
        bootstrap,
        application_id: unique("faults"),
        state_dir: dir.to_path_buf(),
        records,
        kills: 4,
        life: (Duration::from_millis(10), Duration::from_millis(150)),
        lanes: vec![1, 3, 16],
        wipe_after: Some(1),
        seed: 7,
    }
}

#[track_caller]
fn exact(report: &Report) {
    assert_eq!((report.lost, report.doubled, report.changelog_wrong), (0, 0, 0), "{report:?}");
    assert!(report.output > 0, "nothing was written, so nothing was compared: {report:?}");
    let (held, replayed) = report.after_flush;
    if cfg!(feature = "rocksdb") {
        assert!(held > 0 && replayed <= held / 10, "after an orderly end only a tail is replayed: {report:?}");
    } else {
        assert!(held > 0 && replayed > 0, "memory holds nothing over a restart: {report:?}");
    }
}

/// More records than an optimised build processes in the few moments that it lives.
const MANY_LINES: usize = 500_000;
const MANY_CLICKS: usize = 2_000_000;
/// On Kafka input comes while it runs.
const RECORDS_ON_KAFKA: usize = 100_000;

/// The kills came in the middle: something had been written before one of them, and something was left after the last.
#[track_caller]
fn in_the_middle(report: &Report) {
    assert!(report.restores.iter().any(|(held, _)| *held > 0), "no epoch was committed before a kill: {report:?}");
    assert!(report.left_for_last > 0, "everything was processed before the last kill: {report:?}");
}

#[test]
fn word_count_on_the_embedded_broker_survives_kill_9_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let report = word_count(&plan(WORD_COUNT, dir.path(), None, MANY_LINES)).unwrap();
    exact(&report);
    in_the_middle(&report);
}

#[test]
fn sessions_on_the_embedded_broker_survives_kill_9_exactly_once() {
    let dir = tempfile::tempdir().unwrap();
    let report = sessions(&plan(SESSIONS, dir.path(), None, MANY_CLICKS)).unwrap();
    exact(&report);
    in_the_middle(&report);
}

#[test]
fn word_count_on_kafka_survives_kill_9_exactly_once() {
    let Some((bootstrap, _held)) = kafka("word_count_on_kafka_survives_kill_9_exactly_once") else { return };
    let dir = tempfile::tempdir().unwrap();
    exact(&word_count(&plan(WORD_COUNT, dir.path(), Some(bootstrap), RECORDS_ON_KAFKA)).unwrap());
}

#[test]
fn sessions_on_kafka_survives_kill_9_exactly_once() {
    let Some((bootstrap, _held)) = kafka("sessions_on_kafka_survives_kill_9_exactly_once") else { return };
    let dir = tempfile::tempdir().unwrap();
    exact(&sessions(&plan(SESSIONS, dir.path(), Some(bootstrap), RECORDS_ON_KAFKA)).unwrap());
}
