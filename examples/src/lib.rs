//! What the examples share: the command line, loading the bundled input, progress, and the end.

pub mod faults;

use std::collections::{BTreeMap, VecDeque};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{CommandFactory, FromArgMatches, Parser};
use stoat_core::app::{App, Args, Prepared, exit, log_to_stderr};
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::engine::core::{State, Status};
use stoat_core::error::{Error, ErrorKind, Result};
use stoat_core::metrics::Counters;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

/// The picture in a program's documentation: what stands between ` ```mermaid ` and ` ``` ` in its first lines.
pub fn picture(source: &str) -> String {
    let lines = source.lines().map_while(|l| l.strip_prefix("//!")).map(|l| l.strip_prefix(' ').unwrap_or(l));
    let picture = lines.skip_while(|l| *l != "```mermaid").skip(1).take_while(|l| *l != "```");
    picture.flat_map(|l| [l, "\n"]).collect()
}

/// `println!`, except that a reader that has gone away (`| head`) is no reason to fail.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => { stoat_core::app::say(format_args!($($text)*)) };
}

/// How topics are made that hold old events: a broker's retention goes by the records' own time, so with the usual week it
/// would delete them before they are read.
pub const KEPT: &[(&str, &str)] = &[("retention.ms", "-1")];

/// Records per produced batch of bundled input.
const LOAD_BATCH: usize = 2_000;

/// The command line of every example.
#[derive(Debug, Parser)]
pub struct StoryArgs {
    #[command(flatten)]
    app: Args,
    /// Stop when all input is processed, and print the result (on the embedded broker with bundled input: the default)
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
    /// What it does, in a sentence.
    pub about: &'static str,
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
        let counters = Counters::default();
        let matches = StoryArgs::command().about(self.about).get_matches();
        let args = StoryArgs::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
        exit(counters.install().and_then(|()| self.run(&args, &counters)))
    }

    fn run(self, args: &StoryArgs, counters: &Counters) -> Result<()> {
        if args.app.describe.is_some() || args.app.list_config {
            return self.app.run_with(&args.app);
        }
        let app = self.app.set("stoat.topics.create", "true")?;
        let prepared = app.prepare(&args.app)?;
        let place = if prepared.is_embedded() { "state and embedded broker" } else { "state" };
        say!("{place}: {}", prepared.state_dir().display());
        let until_done = args.until_done || (!args.no_input && prepared.is_embedded());
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
        for (name, n) in counters.all().into_iter().filter(|(_, n)| *n > 0) {
            say!("counted: {name} {n}");
        }
        if until_done {
            (self.result)(&mut clients("stoat-example-reader")?)?;
        }
        Ok(())
    }
}

/// Says what could not be done, and on which broker.
fn broker<'a>(prepared: &'a Prepared, what: &'a str) -> impl Fn(stoat_core::broker::BrokerError) -> Error + 'a {
    move |e| {
        let text = match &prepared.config().bootstrap_servers {
            Some(at) => format!(
                "{what} on the broker at {}: is it running, and is `--bootstrap-servers` right?",
                stoat_core::config::mask("", at)
            ),
            None => format!("{what} on the embedded broker"),
        };
        Error::with_source(ErrorKind::Unavailable, text, e)
    }
}

/// Writes the bundled input. What an interrupted load left is completed; topics that hold something else are let alone.
fn load(prepared: &Prepared, sources: &[&str], input: fn() -> Vec<InputRecord>) -> Result<()> {
    let mut client = prepared.client("stoat-example-loader")?;
    let broker = broker(prepared, "the bundled input cannot be loaded");
    let mut held = BTreeMap::new();
    for (at, topic) in sources.iter().enumerate() {
        client.create_topic_with(topic, prepared.config().topic_partitions as i32, KEPT).map_err(&broker)?;
        let bounds = client.bounds(topic).map_err(&broker)?;
        held.extend(bounds.iter().map(|(tp, b)| ((at as u32, tp.partition), (b.end - b.start) as usize)));
    }
    let partitions = |topic: u32| held.range((topic, 0)..(topic + 1, 0)).count().max(1) as i32;
    let records = input();
    let places: Vec<(u32, i32)> = records
        .iter()
        .enumerate()
        .map(|(i, r)| {
            let topic = sources.iter().position(|t| *t == r.topic).unwrap_or_default() as u32;
            let partition = match &r.key {
                Some(k) => stoat_core::hash::partition_for(k, partitions(topic)),
                None => (i % partitions(topic) as usize) as i32,
            };
            (topic, partition)
        })
        .collect();
    let all: usize = held.values().sum();
    let mut bundled: BTreeMap<(u32, i32), VecDeque<usize>> = BTreeMap::new();
    for (i, place) in places.iter().enumerate() {
        bundled.entry(*place).or_default().push_back(i);
    }
    let mut ours = all < records.len();
    if all > 0 && ours {
        for (at, topic) in sources.iter().enumerate() {
            client
                .read_all(topic, |p, r| {
                    let next = bundled.get_mut(&(at as u32, p)).and_then(VecDeque::pop_front).map(|i| &records[i]);
                    ours &= next.is_some_and(|n| n.key.as_deref() == r.key && Some(&n.value[..]) == r.value);
                })
                .map_err(&broker)?;
        }
    }
    if !ours {
        say!("input: the topics hold {all} records already; the bundled input is not loaded again");
        return Ok(());
    }
    let mut missing: Vec<usize> = bundled.into_values().flatten().collect();
    missing.sort_unstable();
    let topics: Arc<[Arc<str>]> = sources.iter().map(|t| Arc::from(*t)).collect();
    for chunk in missing.chunks(LOAD_BATCH) {
        let mut batch = ProduceBatch::new(topics.clone());
        for &i in chunk {
            let (r, (topic, partition)) = (&records[i], places[i]);
            batch.push(topic, partition, r.timestamp, r.key.as_deref(), Some(&r.value), Headers::default());
        }
        client.produce(batch).map_err(&broker)?;
    }
    let before = if all > 0 { format!(" ({all} were there from a load that was interrupted)") } else { String::new() };
    say!("input: loaded {} records into {}{before}", missing.len(), sources.join(", "));
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
            State::Running | State::Draining | State::Paused | State::Stopping => format!(
                "processed {} records, committed {} epochs (restored {} of {} changelog records)",
                status.run.records, status.run.commits, status.restore.replayed, status.restore.in_changelogs
            ),
            State::Starting | State::Stopped | State::Failed => return,
        };
        self.calls += 1;
        if line == self.last {
            return;
        }
        if std::io::stdout().is_terminal() {
            // A terminal that is gone is no reason to stop.
            let _ = write!(std::io::stdout(), "\r\x1b[K{line}");
            let _ = std::io::stdout().flush();
        } else if self.calls % 10 == 1 {
            say!("{line}");
        }
        self.last = line;
    }

    fn end(&self) {
        if std::io::stdout().is_terminal() {
            say!("");
        } else {
            say!("{}", self.last);
        }
    }
}
