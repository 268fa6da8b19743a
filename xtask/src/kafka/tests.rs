use std::path::{Path, PathBuf};

use super::{Running, VERSION, base64_url, free_ports, properties, random_id};

#[test]
fn cluster_ids_are_url_safe_base64_without_padding() {
    assert_eq!(base64_url([0; 16]), "AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(base64_url([0xff; 16]), "_____________________w");
    let bytes: [u8; 16] = std::array::from_fn(|i| i as u8);
    assert_eq!(base64_url(bytes), "AAECAwQFBgcICQoLDA0ODw");
}

#[test]
fn an_id_is_never_taken_for_an_option() {
    let ids: Vec<String> = (0..1_000).map(|_| base64_url(random_id().expect("chance is there"))).collect();
    assert!(ids.iter().all(|id| id.starts_with(|c: char| c.is_ascii_alphabetic())), "{ids:?}");
    assert_ne!(ids[0], ids[1]);
}

#[test]
fn the_version_is_the_one_that_maven_fetches() {
    let pom = include_str!("../../kafka/pom.xml");
    assert_eq!(pom.matches(&format!("<version>{VERSION}</version>")).count(), 2);
}

#[test]
fn what_start_notes_is_what_stop_reads() {
    let running =
        Running { pid: 7, dir: PathBuf::from("/var/tmp/stoat-kafka-01"), bootstrap: "127.0.0.1:9092".to_owned() };
    assert_eq!(Running::parse(&running.print()), Some(running));
}

#[test]
fn a_note_that_names_another_directory_is_refused() {
    for dir in ["/var/tmp", "/", "stoat-kafka-01", "/var/tmp/stoat-kafka-01/.."] {
        assert_eq!(Running::parse(&format!("pid=7\ndir={dir}\nbootstrap=127.0.0.1:9092\n")), None, "{dir}");
    }
}

#[test]
fn the_broker_listens_on_the_loopback_only() {
    let (port, controller) = free_ports().expect("two ports are free");
    assert_ne!(port, controller);
    let settings = properties(Path::new("/d"), port, controller);
    let listeners = settings.lines().find_map(|line| line.strip_prefix("listeners=")).expect("listeners are set");
    assert!(listeners.split(',').all(|listener| listener.contains("://127.0.0.1:")), "{listeners}");
}
