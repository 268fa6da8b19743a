//! Four jobs to measure an engine by: topic `in` → topic `out`, exactly once, until SIGTERM.
//!
//! `pass`: bytes through. `count`: records per key → key, 8-byte big-endian count. `words`: split the value at single
//! spaces, re-key by word, count → word, count. `json`: parse the value, drop it when `amount` is even, add
//! `"checked": true`.

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use stoat_core::app::{App, Args, exit, log_to_stderr};
use stoat_core::prelude::*;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Job {
    Pass,
    Count,
    Words,
    Json,
}

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

#[source(topic = "in", key = Option<Vec<u8>>, key_codec = Bytes, value = Option<Vec<u8>>, value_codec = Bytes)]
struct Raw;

#[sink(topic = "out", key = Option<Vec<u8>>, key_codec = Bytes, value = Option<Vec<u8>>, value_codec = Bytes)]
struct RawOut;

#[topology]
fn pass(t: &mut Topology) {
    let records = t.source::<Raw>();
    records.sink::<RawOut>();
}

#[source(topic = "in", key = Vec<u8>, value = Vec<u8>, value_codec = Bytes)]
struct Keyed;

#[sink(topic = "out", key = Vec<u8>, value = u64, value_codec = Be)]
struct Counts;

#[topology]
fn count(t: &mut Topology) {
    let records = t.source::<Keyed>();
    let counts = records.group_by_key().count();
    counts.to_stream().sink::<Counts>();
}

#[source(topic = "in", value = String, value_codec = Utf8)]
struct Lines;

#[sink(topic = "out", key = String, value = u64, value_codec = Be)]
struct WordCounts;

#[topology]
fn words(t: &mut Topology) {
    let lines = t.source::<Lines>();
    let words = lines
        .flat_map_values(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .group_by(|_key, word: &String| word.clone());
    let counts = words.count();
    counts.to_stream().sink::<WordCounts>();
}

#[source(topic = "in", key = Option<Vec<u8>>, key_codec = Bytes, value = Value, value_codec = Json)]
struct Orders;

#[sink(topic = "out", key = Option<Vec<u8>>, key_codec = Bytes, value = Value, value_codec = Json)]
struct Checked;

#[topology]
fn json(t: &mut Topology) {
    let orders = t.source::<Orders>();
    let odd = orders.filter(|_key, order| order.get("amount").and_then(Value::as_i64).is_none_or(|a| a % 2 != 0));
    let checked = odd.map_values(|mut order| {
        if let Some(fields) = order.as_object_mut() {
            fields.insert("checked".to_owned(), Value::Bool(true));
        }
        order
    });
    checked.sink::<Checked>();
}

fn run(args: &JobArgs) -> Result<()> {
    let (app, id): (App, _) = match args.job {
        Job::Pass => (pass::app(), "stoat-pass"),
        Job::Count => (count::app(), "stoat-count"),
        Job::Words => (words::app(), "stoat-words"),
        Job::Json => (json::app(), "stoat-json"),
    };
    app.set("stoat.application-id", id)?.set("stoat.commit.interval", &args.commit_interval)?.run_with(&args.app)
}

fn main() -> ExitCode {
    log_to_stderr();
    exit(run(&JobArgs::parse()))
}
