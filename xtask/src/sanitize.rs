//! The one part with `unsafe` code, the layer over librdkafka, under the address sanitizer: Rust and C both.

use std::path::PathBuf;
use std::process::Command;

use crate::install::{self, FOR_KAFKA_BROKER, FOR_KAFKA_CLIENT};
use crate::kafka::{self, Broker};
use crate::sh::{Result, Steps, root, run as run_command, succeeds};

/// Its own target triple, so that build scripts are built without it.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const FLAG: &str = "-fsanitize=address -fno-omit-frame-pointer -g";

pub(crate) fn run(install: bool, filter: &[String]) -> Result<()> {
    let mut steps = Steps::new(2);
    steps.next("what this needs: a nightly Rust (for `-Zsanitizer`), and");
    if !succeeds(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])) {
        return Err("there is no nightly Rust: `rustup toolchain install nightly --profile minimal` fetches it".into());
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64", target_env = "gnu")) {
        return Err(format!("this runs on {TARGET} only").into());
    }
    install::require(&[FOR_KAFKA_CLIENT, FOR_KAFKA_BROKER].concat(), install)?;
    let broker = Broker::start()?;
    eprintln!("  on an Apache Kafka of its own: {}", broker.bootstrap);

    steps.next("the tests of the layer over librdkafka under the address sanitizer, with a search for leaks");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let leaks = root().join("xtask/src/sanitize.supp");
    let mut command = Command::new("rustup");
    command.current_dir(root()).args([
        "run",
        "nightly",
        "cargo",
        "test",
        "--target",
        TARGET,
        "--package",
        "stoat-core",
    ]);
    command.args(["--no-default-features", "--features", "kafka", "--lib", "--"]);
    let all = ["broker::kafka".to_owned()];
    command.args(if filter.is_empty() { &all } else { filter });
    // How long something takes is not asked here.
    command.args(["--skip", "in_milliseconds"]);
    command
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env("CARGO_TARGET_DIR", target.join("asan"))
        .env("CARGO_INCREMENTAL", "0")
        .env("RUSTFLAGS", "-Zsanitizer=address")
        // librdkafka's own code as well: what we do to it shows there.
        .env("CFLAGS", FLAG)
        .env("LDFLAGS", "-fsanitize=address")
        .env("ASAN_OPTIONS", "detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1")
        .env("LSAN_OPTIONS", format!("suppressions={}", leaks.display()))
        .env("STOAT_TEST_KAFKA_JARS", kafka::jars()?)
        .env("STOAT_TEST_BOOTSTRAP", &broker.bootstrap);
    let result = run_command(&mut command);
    drop(broker);
    result?;
    eprintln!("\nnothing was found, in {}", steps.elapsed());
    Ok(())
}
