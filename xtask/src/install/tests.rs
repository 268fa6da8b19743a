use super::{Need, advice, choose, parse_java_version};

#[test]
fn java_versions_of_both_styles_are_understood() {
    for (text, version) in [
        ("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK Runtime Environment", Some(17)),
        ("openjdk version \"21\" 2023-09-19", Some(21)),
        ("java version \"1.8.0_392\"", Some(8)),
        ("openjdk version \"25-ea\" 2025-09-16", Some(25)),
        ("java: command not found", None),
    ] {
        assert_eq!(parse_java_version(text), version, "{text}");
    }
}

#[test]
fn the_first_version_whose_packages_all_exist_is_chosen() {
    let trixie = |name: &str| {
        ["libclang1-19", "libclang-common-19-dev", "libclang1-14", "openjdk-21-jre-headless"].contains(&name)
    };
    assert_eq!(choose(&[Need::LibClang], trixie).expect("19 is there"), ["libclang1-19", "libclang-common-19-dev"]);
    assert_eq!(choose(&[Need::Java], trixie).expect("21 is there"), ["openjdk-21-jre-headless"]);
    let message = choose(&[Need::Maven], trixie).expect_err("no maven").to_string();
    assert!(message.contains("Maven"), "{message}");
}

#[test]
fn advice_names_the_thing_and_its_package() {
    let text = advice(&[Need::OpenSsl, Need::Maven]);
    assert!(text.contains("OpenSSL") && text.contains("apt-get install libssl-dev maven"), "{text}");
}
