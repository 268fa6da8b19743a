//! What the examples share: the command line, loading the bundled input, progress, and the end.

pub mod faults;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Parser;
use stoat_core::app::{App, Args, Prepared, exit, log_to_stderr};
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::engine::core::{State, Status};
use stoat_core::error::{Error, ErrorKind, Result};
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

/// Records per produced batch of bundled input.
const LOAD_BATCH: usize = 2_000;

/// The command line of every example.
#[derive(Debug, Parser)]
pub struct StoryArgs {
    #[command(flatten)]
    app: Args,
    /// On Kafka: stop when the bundled input is processed, and print the result (on the embedded broker this is the default)
    #[arg(long)]
    until_done: bool,
    /// Do not load the bundled input: process what is in the topics and what comes
    #[arg(long)]
    no_input: bool,
}

/// One bundled input record.
pub struct InputRecord {
    /// The topic.
    pub topic: &'static str,
    /// The key.
    pub key: Option<Vec<u8>>,
    /// The value.
    pub value: Vec<u8>,
    /// The event time.
    pub timestamp: Timestamp,
}

/// An example: what it reads, and how its result is shown.
pub struct Story {
    /// The application.
    pub app: App,
    /// The topics that it reads.
    pub sources: &'static [&'static str],
    /// The bundled input.
    pub input: fn() -> Vec<InputRecord>,
    /// Prints the result, read from the output topic.
    pub result: fn(&mut BlockingClient) -> Result<()>,
}

impl Story {
    /// Runs the example; what `main` returns.
    pub fn main(self) -> ExitCode {
        log_to_stderr();
        let args = StoryArgs::parse();
        exit(self.run(&args))
    }

    fn run(self, args: &StoryArgs) -> Result<()> {
        if args.app.describe.is_some() || args.app.list_config {
            return self.app.run_with(&args.app);
        }
        let app = self.app.set("stoat.topics.create", "true")?;
        let prepared = app.prepare(&args.app)?;
        let place = if prepared.is_embedded() { "state and embedded broker" } else { "state" };
        println!("{place}: {}", prepared.state_dir().display());
        let until_done = !args.no_input && (prepared.is_embedded() || args.until_done);
        if !args.no_input {
            load(&prepared, self.sources, self.input)?;
        }
        let clients = prepared.clients();
        let mut progress = Progress::default();
        prepared.run(|status| {
            progress.show(status);
            !(until_done && status.run.settled)
        })?;
        progress.end();
        if until_done {
            (self.result)(&mut clients("stoat-example-reader")?)?;
        }
        Ok(())
    }
}

fn broker(e: stoat_core::broker::BrokerError) -> Error {
    Error::with_source(ErrorKind::Unavailable, "the bundled input cannot be loaded or the result cannot be read", e)
}

/// Writes the bundled input, unless the topics hold records already.
fn load(prepared: &Prepared, sources: &[&str], input: fn() -> Vec<InputRecord>) -> Result<()> {
    let mut client = prepared.client("stoat-example-loader")?;
    let mut held = 0;
    for topic in sources {
        client.create_topic(topic, prepared.config().topic_partitions as i32).map_err(broker)?;
        held += client.bounds(topic).map_err(broker)?.iter().map(|(_, b)| b.end - b.start).sum::<i64>();
    }
    if held > 0 {
        println!("input: the topics hold {held} records already; the bundled input is not loaded again");
        return Ok(());
    }
    let records = input();
    let topics: Arc<[Arc<str>]> = sources.iter().map(|t| Arc::from(*t)).collect();
    let partitions = prepared.config().topic_partitions as i32;
    for (n, chunk) in records.chunks(LOAD_BATCH).enumerate() {
        let mut batch = ProduceBatch::new(topics.clone());
        for (i, r) in chunk.iter().enumerate() {
            let topic = sources.iter().position(|t| *t == r.topic).unwrap_or_default() as u32;
            let partition = match &r.key {
                Some(k) => stoat_core::hash::partition_for(k, partitions),
                None => ((n * LOAD_BATCH + i) % partitions as usize) as i32,
            };
            batch.push(topic, partition, r.timestamp, r.key.as_deref(), Some(&r.value), Headers::default());
        }
        client.produce(batch).map_err(broker)?;
    }
    println!("input: loaded {} records into {}", records.len(), sources.join(", "));
    Ok(())
}

/// One line of progress: rewritten in place on a terminal, printed now and then elsewhere.
#[derive(Default)]
struct Progress {
    calls: u32,
    last: String,
}

impl Progress {
    fn show(&mut self, status: &Status) {
        let line = match status.state {
            State::Restoring => format!(
                "restoring: {} of {} changelog records replayed",
                status.restore.replayed, status.restore.in_changelogs
            ),
            State::Running | State::Stopping => format!(
                "processed {} records, committed {} epochs (restored {} of {} changelog records)",
                status.run.records, status.run.commits, status.restore.replayed, status.restore.in_changelogs
            ),
            State::Starting | State::Stopped => return,
        };
        self.calls += 1;
        if line == self.last {
            return;
        }
        if std::io::stdout().is_terminal() {
            print!("\r\x1b[K{line}");
            // A terminal that is gone is no reason to stop.
            let _ = std::io::stdout().flush();
        } else if self.calls % 10 == 1 {
            println!("{line}");
        }
        self.last = line;
    }

    fn end(&self) {
        if std::io::stdout().is_terminal() {
            println!();
        } else {
            println!("{}", self.last);
        }
    }
}
