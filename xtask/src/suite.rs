//! The README's second command: all tests, with RocksDB and on an Apache Kafka.

use std::path::PathBuf;
use std::process::Command;

use crate::install::{self, FOR_KAFKA_BROKER, FOR_KAFKA_CLIENT, FOR_ROCKSDB};
use crate::kafka::Broker;
use crate::rocksdb;
use crate::sh::{Result, Steps, cargo, is_ci, run as run_command};

const BOOTSTRAP: &str = "STOAT_TEST_BOOTSTRAP";
/// For tests that start, stop and end a broker of their own.
const JARS: &str = "STOAT_TEST_KAFKA_JARS";

/// What all cargo commands with all features have in common.
pub(crate) struct Machine {
    /// Where the static library is, unless the caller has set the variables or cargo builds its own.
    rocksdb: Option<PathBuf>,
    /// Why Apache Kafka cannot run here.
    no_kafka: Option<String>,
    /// Where to build, unless in cargo's own place.
    target: Option<PathBuf>,
}

impl Machine {
    /// Says what is needed, installs what is missing and builds RocksDB.
    pub(crate) fn prepare(install: bool, target: Option<PathBuf>) -> Result<Self> {
        let own_broker = std::env::var_os(BOOTSTRAP).is_none();
        install::require(&[FOR_KAFKA_CLIENT, FOR_ROCKSDB].concat(), install)?;
        let no_kafka = if own_broker { install::ensure(FOR_KAFKA_BROKER, install) } else { Vec::new() };
        let no_kafka = (!no_kafka.is_empty()).then(|| install::advice(&no_kafka));
        if let Some(why) = no_kafka.as_ref().filter(|_| is_ci()) {
            return Err(format!("the tests on Apache Kafka cannot run, and CI is set: {why}").into());
        }
        let rocksdb = if std::env::var_os("ROCKSDB_LIB_DIR").is_some() {
            None
        } else {
            let built = rocksdb::ensure(None);
            if let Err(error) = &built {
                eprintln!("  RocksDB could not be built once for all profiles: {error}");
                eprintln!("  cargo builds it instead, in about 20 minutes on 2 cores.");
            }
            built.ok()
        };
        Ok(Self { rocksdb, no_kafka, target })
    }

    /// Cargo with the variables that all commands of a run share, so that none builds again what another has built.
    pub(crate) fn cargo(&self) -> Command {
        let mut command = cargo();
        rocksdb::set(&mut command, self.rocksdb.as_deref());
        if let Some(target) = &self.target {
            // Incremental builds serve the next edit; a service that starts from a clone makes none.
            command.env("CARGO_TARGET_DIR", target).env("CARGO_INCREMENTAL", "0");
        }
        command
    }

    /// Runs the tests; `arguments` replace `--workspace`.
    pub(crate) fn test(&self, arguments: &[String]) -> Result<()> {
        let mut command = self.cargo();
        command.args(["test", "--all-features"]);
        if is_ci() {
            // Nobody is there to mend the first failure and start again.
            command.arg("--no-fail-fast");
        }
        let all = ["--workspace".to_owned()];
        command.args(if arguments.is_empty() { &all } else { arguments });

        let mut broker = None;
        match (std::env::var(BOOTSTRAP), &self.no_kafka) {
            (Ok(bootstrap), _) => eprintln!("  on the Apache Kafka of {BOOTSTRAP}: {bootstrap}"),
            (Err(_), None) => {
                let started = Broker::start()?;
                eprintln!("  on an Apache Kafka of its own: {}", started.bootstrap);
                command.env(BOOTSTRAP, &started.bootstrap);
                broker = Some(started);
            }
            (Err(_), Some(_)) => {}
        }
        if self.no_kafka.is_none()
            && std::env::var_os(JARS).is_none()
            && let Ok(jars) = crate::kafka::jars()
        {
            command.env(JARS, jars);
        }
        let result = run_command(&mut command);
        drop(broker);
        if let Some(why) = &self.no_kafka {
            eprintln!("\nSKIPPED: all tests on Apache Kafka. {why}");
        }
        result
    }
}

pub(crate) fn run(install: bool, arguments: &[String]) -> Result<()> {
    let mut steps = Steps::new(2);
    steps.next("what this needs: Rust 1.95, and");
    let machine = Machine::prepare(install, None)?;
    steps.next("all tests (the first build takes some minutes)");
    machine.test(arguments)?;
    eprintln!("\nall tests passed in {}", steps.elapsed());
    Ok(())
}
