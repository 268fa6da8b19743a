//! The project's own commands: `cargo xtask --help` lists them.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod cases;
mod chaos;
mod check_cost;
mod ci;
mod clicks;
mod demo;
mod install;
mod kafka;
mod mutants;
mod rocksdb;
mod rules;
mod sanitize;
mod sh;
mod sim;
mod suite;
mod tidy;

/// Sets up, shows, tests and checks this project.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Builds and runs the example `sessions` on the embedded broker, or on an Apache Kafka of its own
    Demo {
        /// Run on an Apache Kafka that is started for it, instead of on the embedded broker
        #[arg(long)]
        kafka: bool,
        /// Only tell what is missing; install nothing
        #[arg(long)]
        no_install: bool,
    },
    /// Runs all tests, those on Apache Kafka included
    Test {
        /// Only tell what is missing; install nothing
        #[arg(long)]
        no_install: bool,
        /// Handed on to `cargo test`, in place of `--workspace`: `cargo xtask test -- -p stoat-core restore`
        #[arg(last = true)]
        cargo_test: Vec<String>,
    },
    /// Checks everything that a change must pass: what `.ci/run` calls
    Ci {
        /// Only tell what is missing; install nothing
        #[arg(long)]
        no_install: bool,
    },
    /// Starts or stops an Apache Kafka on this machine, for playing and for tests by hand
    Kafka {
        #[command(subcommand)]
        action: KafkaAction,
    },
    /// Runs the simulator on many seeds
    Sim {
        /// At least so many
        #[arg(long, default_value_t = 10_000)]
        seeds: u64,
        /// Which; absent: new ones
        #[arg(long)]
        base: Option<u64>,
    },
    /// Puts faults into a copy of the engine, one after another, and shows which seed of the simulator finds each
    Mutants {
        /// Only this fault
        #[arg(long)]
        only: Option<String>,
        /// Within about so many seeds
        #[arg(long, default_value_t = 1_000)]
        seeds: u64,
    },
    /// Kills examples and their Apache Kafka, halts it and cuts connections, and compares what was written with models
    Chaos {
        /// Only tell what is missing; install nothing
        #[arg(long)]
        no_install: bool,
        /// Handed on to the program `faults`: `cargo xtask chaos -- --kills 100`
        #[arg(last = true)]
        faults: Vec<String>,
    },
    /// Runs the layer over librdkafka, which has all unsafe code, under the address sanitizer (with a nightly Rust)
    Sanitize {
        /// Only tell what is missing; install nothing
        #[arg(long)]
        no_install: bool,
        /// Only tests with these words in their name [default: all of the layer]
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Builds RocksDB once for all profiles and prints the variables that make cargo use it
    Rocksdb {
        /// Build the version that another project has locked
        #[arg(long, value_name = "CARGO_TOML")]
        manifest_path: Option<PathBuf>,
    },
    /// Checks the house rules that no compiler knows
    Tidy,
    /// Makes the bundled log of clicks again
    Clicks,
    /// Prints each mistake that the compiler explains, with its number of errors and the first line
    Cases,
    /// Takes the rules that are bounds, constants and messages out of a copy, one after another, and shows which case notices
    Rules {
        /// Only rules with these words in their name
        #[arg(long)]
        only: Option<String>,
    },
    /// Measures what topologies add to `cargo check`
    CheckCost,
}

#[derive(Subcommand)]
enum KafkaAction {
    /// Starts a broker with empty topics; it runs until `stop`
    Start {
        /// The port on 127.0.0.1 [default: a free one]
        #[arg(long)]
        port: Option<u16>,
        /// Only tell what is missing; install nothing
        #[arg(long)]
        no_install: bool,
    },
    /// Stops the broker and removes what it stored
    Stop,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Task::Demo { kafka, no_install } => demo::run(kafka, !no_install),
        Task::Test { no_install, cargo_test } => suite::run(!no_install, &cargo_test),
        Task::Ci { no_install } => ci::run(!no_install),
        Task::Kafka { action: KafkaAction::Start { port, no_install } } => kafka::start(port, !no_install),
        Task::Kafka { action: KafkaAction::Stop } => kafka::stop(),
        Task::Sim { seeds, base } => sim::run(seeds, base),
        Task::Mutants { only, seeds } => mutants::run(only.as_deref(), seeds),
        Task::Chaos { no_install, faults } => chaos::run(!no_install, &faults),
        Task::Sanitize { no_install, filter } => sanitize::run(!no_install, &filter),
        Task::Rocksdb { manifest_path } => rocksdb::ensure(manifest_path.as_deref())
            .map(|folder| println!("export ROCKSDB_LIB_DIR={} ROCKSDB_STATIC=1", folder.display())),
        Task::Tidy => tidy::run(),
        Task::Clicks => clicks::write(),
        Task::Cases => cases::print(),
        Task::Rules { only } => rules::run(only.as_deref()),
        Task::CheckCost => check_cost::print(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\nerror: {failure}");
            ExitCode::FAILURE
        }
    }
}
