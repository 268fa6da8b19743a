use super::{BANNED_CRATES, check};

/// The lines with a finding.
fn lines(file: &str, text: &str) -> Vec<usize> {
    check(file, text).into_iter().map(|finding| finding.line).collect()
}

#[test]
fn paths_of_one_machine_are_found_and_others_are_not() {
    let text = format!("let a = \"{0}x\";\ncd target{0}x\nin ({1}me/x)\n../work/x", concat!("/ro", "ot/"), "/ho");
    assert_eq!(lines("README.md", &text), [1, 3]);
}

#[test]
fn hosts_of_one_network_are_found_and_loopback_is_not() {
    let text = format!(
        "https://{0}.1.2.3/simple\nhttp://127.0.0.1:80\nhttps://crates.{1}/x\nhttps://docs.rs",
        "10", "internal"
    );
    assert_eq!(lines("docs/a.md", &text), [1, 3]);
}

#[test]
fn a_test_that_sleeps_says_why() {
    let text = "thread::sleep(a);\nthread::sleep(b); // sleep: nothing tells when the file is there\n// sleep: as above\ntime::sleep(c)";
    assert_eq!(lines("stoat-core/tests/restore.rs", text), [1]);
    assert_eq!(lines("stoat-core/src/lane/tests.rs", text), [1]);
    assert_eq!(lines("stoat-core/src/lane/mod.rs", text), Vec::<usize>::new());
    // sleep: only the text of one.
    let inline = format!("sleep(a)\n#[cfg(test)]\nmod tests {{\n{text}");
    assert_eq!(lines("stoat-core/src/lane/mod.rs", &inline), [4]);
    let apart = format!("#[cfg(test)]\nmod tests;\n{text}");
    assert_eq!(lines("stoat-core/src/lane/mod.rs", &apart), Vec::<usize>::new());
}

#[test]
fn banned_crates_are_found_in_manifests_and_in_the_lock_file() {
    let manifest = "[package]\nname = \"paste\"\n[dependencies]\nserde = \"1\"\npaste = \"1\"\nbincode.workspace = true\n\
        [target.x.dev-dependencies]\nfxhash = { version = \"1\" }\n[dependencies.lazy_static]\nversion = \"1\"";
    assert_eq!(lines("bench/Cargo.toml", manifest), [5, 6, 8, 9]);
    let lock = "[[package]]\nname = \"paste\"\n[[package]]\nname = \"lazy_static\"\n";
    assert_eq!(lines("Cargo.lock", lock), [2]);
}

#[test]
fn crates_come_from_crates_io() {
    let lock =
        "source = \"registry+https://github.com/rust-lang/crates.io-index\"\nsource = \"git+https://example.com/x\"";
    assert_eq!(lines("Cargo.lock", lock), [2]);
    assert_eq!(lines("a/.cargo/config.toml", "[alias]\n[source.crates-io]\nreplace-with = \"x\""), [2, 3]);
    assert_eq!(lines("xtask/kafka/pom.xml", "<dependencies/>\n<repository>"), [2]);
}

#[test]
fn unsafe_code_stays_where_the_kafka_client_is() {
    let text = "unsafe { call() }\n// unsafe { call() }";
    assert_eq!(lines("stoat-core/src/lane.rs", text), [1]);
    assert_eq!(lines("stoat-core/src/broker/kafka/consume.rs", text), Vec::<usize>::new());
}

#[test]
fn the_list_of_banned_crates_is_that_of_deny_toml() {
    let deny = include_str!("../../../deny.toml");
    let mut listed: Vec<&str> =
        deny.lines().filter_map(|line| line.trim().strip_prefix("{ crate = \"")?.split('"').next()).collect();
    listed.sort_unstable();
    assert_eq!(listed, BANNED_CRATES);
}

#[test]
fn this_repository_keeps_its_rules() {
    super::run().expect("no finding");
}
