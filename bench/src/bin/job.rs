//! One of four jobs to measure an engine by ([`Job`]): topic `in` → topic `out`, exactly once, until SIGTERM.

use std::process::ExitCode;

use clap::Parser;
use stoat_bench::Job;
use stoat_core::Result;
use stoat_core::app::{Args, exit, log_to_stderr};

#[derive(Debug, Parser)]
struct JobArgs {
    /// Which job
    #[arg(long)]
    job: Job,
    /// The commit interval
    #[arg(long, default_value = "100ms")]
    commit_interval: String,
    #[command(flatten)]
    app: Args,
}

fn run(args: &JobArgs) -> Result<()> {
    args.job.app()?.set("stoat.commit.interval", &args.commit_interval)?.run_with(&args.app)
}

fn main() -> ExitCode {
    log_to_stderr();
    exit(run(&JobArgs::parse()))
}
