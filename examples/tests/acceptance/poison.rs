//! Poison pills: records that no codec takes go to the dead-letter topic, each once, though the application is killed in
//! between; what lies around them is counted as if they were not there.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::gate::header;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;
use stoat_examples::faults::{Log, Plan, Report, Words, produce_lines};

use crate::support::{PATIENCE, WORD_COUNT, finish, unique};

const LETTERS: &str = "dead-letters";
/// Not UTF-8, and without a letter or digit in it.
const PILL: &[u8] = b"\xff\xfe";
const PILLS: usize = 200;

/// The example with dead letters switched on: [`Plan`] knows of no further arguments.
fn with_letters(dir: &Path) -> PathBuf {
    let script = dir.join("word_count_with_letters");
    let text = format!(
        "#!/bin/sh\nexec '{WORD_COUNT}' \"$@\" --set stoat.deserialization-exception-handler=dead_letter \
         --set stoat.dead-letter.topic={LETTERS}\n"
    );
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

/// Writes lines with pills among them.
fn produce(client: &mut BlockingClient, lines: usize) {
    let topics: Arc<[Arc<str>]> = Arc::new(["lines-a".into(), "lines-b".into()]);
    for round in 0..20 {
        produce_lines(client, round + 1, 0, lines / 20).unwrap();
        let mut batch = ProduceBatch::new(topics.clone());
        for i in 0..PILLS / 20 {
            let time = Timestamp(1_700_000_000_000 + i as i64);
            batch.push(i as u32 % 2, i as i32 % 6, time, None, Some(PILL), Headers::default());
        }
        client.produce(batch).unwrap();
    }
}

/// The places that dead letters name; panics where one comes twice or is not what it replaces.
fn letters(client: &mut BlockingClient) -> BTreeSet<(String, String, String)> {
    let mut places = BTreeSet::new();
    client
        .read_all(LETTERS, |_, r| {
            assert_eq!((r.key, r.value), (None, Some(PILL)));
            let says = |name: &str| String::from_utf8(r.headers.last(name).unwrap().to_vec()).unwrap();
            assert!(
                says(header::MESSAGE).contains("UTF-8") && says(header::GATE) == "decode",
                "{}",
                says(header::MESSAGE)
            );
            let place = (says(header::TOPIC), says(header::PARTITION), says(header::OFFSET));
            assert!(places.insert(place.clone()), "{place:?} has two dead letters");
        })
        .unwrap();
    places
}

/// Kills the application several times, looks at its dead letters each time, and lets it come to its end.
pub(crate) fn torment(mut plan: Plan, dir: &Path, lines: usize) {
    plan.exe = with_letters(dir);
    let words = {
        let mut client = plan.client().unwrap();
        let words = Words::prepare(&mut client).unwrap();
        client.create_topic_with(LETTERS, 3, stoat_examples::KEPT).unwrap();
        produce(&mut client, lines);
        words
    };
    let mut seen = Vec::new();
    for kill in 0..6 {
        let mut child = plan.start([1, 3, 16][kill % 3], false).unwrap();
        let mut log = Log::of(&mut child);
        assert!(log.wait_for(" committed ", PATIENCE), "{}", log.rest());
        // sleep: how long it lives is what is tested
        std::thread::sleep(Duration::from_millis(40 * kill as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        seen.push(letters(&mut plan.client().unwrap()).len());
        if seen.last() == Some(&PILLS) {
            break;
        }
    }
    let last = finish(plan.start(3, true).unwrap());
    assert_eq!(last.code, Some(0), "{last:#?}");
    let mut client = plan.client().unwrap();
    assert_eq!(letters(&mut client).len(), PILLS);
    assert!(seen.iter().any(|n| (1..PILLS).contains(n)), "no kill came in the middle: {seen:?}");
    let report = words.compare(&mut client, &plan.application_id, Report::default()).unwrap();
    assert_eq!((report.lost, report.doubled, report.changelog_wrong), (0, 0, 0), "{report:?}");
}

#[test]
fn t25_poison_pills_on_the_embedded_broker_become_dead_letters_once_under_kill_9() {
    let dir = tempfile::tempdir().unwrap();
    let plan = Plan {
        exe: PathBuf::new(),
        bootstrap: None,
        application_id: unique("poison"),
        state_dir: dir.path().to_path_buf(),
        records: 0,
        kills: 0,
        life: (Duration::ZERO, Duration::ZERO),
        lanes: vec![2],
        wipe_after: None,
        seed: 1,
    };
    torment(plan, dir.path(), 400_000);
}
