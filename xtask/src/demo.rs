//! The README's first command: the example `sessions` over its bundled log, with nothing set up before.

use std::fs;

use crate::install::{FOR_KAFKA_BROKER, FOR_KAFKA_CLIENT, require};
use crate::kafka::Broker;
use crate::sh::{Context as _, Result, Steps, cargo, run as run_command};

/// Without the features `kafka` and `rocksdb` no C or C++ is compiled, which is most of the time it takes.
const PACKAGE: &[&str] = &["--release", "--package", "stoat-examples", "--bin", "sessions", "--no-default-features"];

pub(crate) fn run(kafka: bool, install: bool) -> Result<()> {
    let mut steps = Steps::new(if kafka { 4 } else { 3 });
    steps.next("what this needs");
    if kafka {
        eprintln!("  Rust 1.95 and a C compiler as its linker (they are there), and:");
        let needs = [FOR_KAFKA_CLIENT, FOR_KAFKA_BROKER].concat();
        require(&needs, install)?;
    } else {
        eprintln!("  Rust 1.95 and a C compiler as its linker: they are there. It installs nothing; cargo fetches the");
        eprintln!("  crates of Cargo.lock. No Kafka: the broker is embedded in the example.");
    }

    steps.next("builds the example `sessions` (two or three minutes on 2 cores where cargo's cache is empty)");
    let features: &[&str] = if kafka { &["--features", "kafka"] } else { &[] };
    run_command(cargo().arg("build").args(PACKAGE).args(features))?;

    let broker = if kafka {
        steps.next("starts Apache Kafka");
        let broker = Broker::start()?;
        eprintln!("  it serves on {}", broker.bootstrap);
        Some(broker)
    } else {
        None
    };

    let state = std::env::temp_dir().join(format!("stoat-demo-{}", std::process::id()));
    steps.next("runs it over the bundled log: a day of clicks becomes sessions");
    let mut example = cargo();
    example.args(["run", "--quiet"]).args(PACKAGE).args(features).arg("--").arg("--state-dir").arg(&state);
    if let Some(broker) = &broker {
        // On Kafka examples run until they are stopped, unless they are told to end with their input.
        example.args(["--bootstrap-servers", &broker.bootstrap, "--until-done"]);
    }
    run_command(&mut example).map_err(|error| format!("{error}\nIts state stays in {}", state.display()))?;
    if state.exists() {
        fs::remove_dir_all(&state).context(|| format!("cannot remove {}", state.display()))?;
    }
    eprintln!("\ndone in {}", steps.elapsed());
    eprintln!("Next: cargo xtask test runs all tests; README.md shows the program; examples/ holds more of them.");
    Ok(())
}
