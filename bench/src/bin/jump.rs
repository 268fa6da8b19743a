//! Does a jump of the watermark over many due timers stay within the memory budget, and do barriers cut it (I-7, I-15)?
//! Sets timers, then moves event time over a part of them at once; prints how many fired per second, in how many pieces and
//! epochs, and the peak of resident memory against the budget; checks that each due timer fired once and in order.
//!
//! With millions of records the embedded broker's compaction takes more memory than all else: a figure for the budget needs
//! Kafka.
//!
//! `cargo run --release -p stoat-bench --bin jump -- [--bootstrap-servers H:P] [--pending 10000000] [--due 1000000]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::collections::HashMap;
use std::fs;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use clap::Parser;
use stoat_bench::process::{begin_peak, mib, peak, resident};
use stoat_core::app::{Args, say};
use stoat_core::broker::BrokerError;
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::engine::core::Status;
use stoat_core::error::ErrorKind;
use stoat_core::prelude::*;
use stoat_core::record::ProduceBatch;

/// Moves event time over many due timers at once and prints what that takes.
#[derive(Debug, Parser)]
struct Options {
    /// Kafka; absent: the embedded broker, whose memory then counts too
    #[arg(long)]
    bootstrap_servers: Option<String>,
    /// `stoat.memory.budget`
    #[arg(long, default_value = "64MiB")]
    budget: String,
    /// Lanes; absent: `stoat.lanes`
    #[arg(long)]
    lanes: Option<String>,
    /// Timers that are set
    #[arg(long, default_value_t = 10_000_000)]
    pending: u64,
    /// Timers that the jump makes due
    #[arg(long, default_value_t = 1_000_000)]
    due: u64,
    /// Timers of one key; its record sets them all
    #[arg(long, default_value_t = 1)]
    each: u64,
    /// Timers that have the same time
    #[arg(long, default_value_t = 1)]
    same: u64,
    /// Partitions
    #[arg(long, default_value_t = 4)]
    partitions: u32,
    /// Ends with an error where the peak of the jump lies above the budget by more than so many percent
    #[arg(long)]
    at_most: Option<u64>,
}

/// When timers are due. They are numbered key by key.
#[derive(Clone, Copy, Debug)]
struct Times {
    pending: u64,
    each: u64,
    same: u64,
}

impl Times {
    /// The time of a rank among all timers.
    fn of(self, rank: u64) -> Timestamp {
        Timestamp(START + HOUR + (rank / self.same) as i64)
    }

    /// The time of the `j`-th timer of a key: neighbours in key are none in time.
    fn timer(self, key: u64, j: u64) -> Timestamp {
        self.of((u128::from(key * self.each + j) * 7_368_787 % u128::from(self.pending)) as u64)
    }
}

/// The time of the records that set timers.
const START: i64 = 1_700_000_000_000;
const HOUR: i64 = 3_600_000;
static TIMES: OnceLock<Times> = OnceLock::new();

#[source(topic = "jump-in", key = u64, value = u64, value_codec = Be, monotonic)]
struct In;

#[sink(topic = "jump-out", key = u64, value = u64, value_codec = Be)]
struct Out;

/// Sets as many timers of the key as the value says; forwards the time of each that fires.
#[processor(input = (u64, u64), output = u64)]
struct Alarms {
    #[timer]
    alarms: Timers,
}

#[handlers]
impl Alarms {
    #[process]
    fn on_record(&mut self, r: Record<u64, u64>, _cx: &mut Context<Self>) -> Result<()> {
        let times = *TIMES.get().expect("set before the application starts");
        (0..r.value).try_for_each(|j| self.alarms.set(times.timer(r.key, j)))
    }

    #[on_timer(alarms)]
    fn on_alarm(&mut self, fired: Fired<u64>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(fired.time.0 as u64)
    }
}

#[topology]
fn jump(t: &mut Topology) {
    let input = t.source::<In>();
    let fired = input.process::<Alarms>();
    fired.sink::<Out>();
}

/// CPU time of this process, in seconds.
fn cpu() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // Behind the name, which may have spaces: the 12th and 13th are user and system time, in ticks of 10 ms.
    let rest = stat.rsplit(')').next().unwrap_or_default();
    rest.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

fn failed(e: BrokerError) -> Error {
    Error::new(ErrorKind::Unavailable, e.to_string())
}

/// Each record: partition, key, value, time.
fn produce(client: &mut BlockingClient, records: impl Iterator<Item = (u64, u64, u64, Timestamp)>) -> Result<()> {
    let topics: Arc<[Arc<str>]> = Arc::from(["jump-in".into()]);
    let mut records = records.peekable();
    while records.peek().is_some() {
        let mut batch = ProduceBatch::new(Arc::clone(&topics));
        for (partition, key, value, time) in records.by_ref().take(10_000) {
            let (key, value) = (key.to_be_bytes(), value.to_be_bytes());
            batch.push(0, partition as i32, time, Some(&key), Some(&value), Headers::default());
        }
        client.produce(batch).map_err(failed)?;
    }
    Ok(())
}

/// A look at the process.
struct Look {
    at: Instant,
    cpu: f64,
    status: Status,
    /// The most resident memory since the look before.
    peak: u64,
}

impl Look {
    fn new(status: Status) -> Result<Self> {
        let look = Self { at: Instant::now(), cpu: cpu(), status, peak: peak()? };
        begin_peak()?;
        Ok(look)
    }

    /// Prints what lies between this and another one.
    fn line(&self, what: &str, since: &Self, timers: u64, before: u64, budget: u64) {
        let (run, was) = (&self.status.run, &since.status.run);
        let seconds = (self.at - since.at).as_secs_f64();
        let grown = self.peak.saturating_sub(before);
        say(format_args!(
            "{what}: {timers} timers in {seconds:.1} s, {:.0} per s, {:.2} us of CPU each; {} marks, {} epochs; peak \
             {:.1} MiB more than before, budget {:.1} MiB: {} %",
            timers as f64 / seconds,
            (self.cpu - since.cpu) * 1e6 / timers.max(1) as f64,
            run.marks - was.marks,
            run.commits - was.commits,
            mib(grown),
            mib(budget),
            grown * 100 / budget.max(1),
        ));
    }
}

/// Takes the application through both phases: set, then jump.
struct Phases<'a> {
    o: &'a Options,
    times: Times,
    client: BlockingClient,
    budget: u64,
    /// Resident memory before the application ran.
    before: u64,
    /// The beginning of the phase; `None`: it did not run yet.
    since: Option<Look>,
    jumped: bool,
    /// How often in a row it was settled.
    settled: u32,
    /// By how many bytes memory grew at most while it jumped; `None`: it is not there yet.
    grown: Option<u64>,
}

impl Phases<'_> {
    fn keys(&self) -> u64 {
        self.o.pending / self.o.each
    }

    /// Looks at the status; whether the application is to go on.
    fn watch(&mut self, status: &Status) -> Result<bool> {
        let Some(since) = &self.since else {
            self.since = Some(Look::new(*status)?);
            return Ok(true);
        };
        let moves = if self.jumped { u64::from(self.o.partitions) } else { 0 };
        let done = status.run.settled && status.run.records >= self.keys() + moves;
        self.settled = if done { self.settled + 1 } else { 0 };
        if self.settled < 3 {
            return Ok(self.grown.is_none());
        }
        let look = Look::new(*status)?;
        if self.jumped {
            look.line("jump", since, self.o.due, self.before, self.budget);
            self.grown = Some(look.peak.saturating_sub(self.before));
            return Ok(false);
        }
        look.line("set", since, self.keys() * self.o.each, self.before, self.budget);
        (self.since, self.jumped, self.settled) = (Some(look), true, 0);
        let (keys, time) = (self.keys(), self.times.of(self.o.due.saturating_sub(1)));
        produce(&mut self.client, (0..u64::from(self.o.partitions)).map(|p| (p, keys + p, 0, time)))?;
        Ok(true)
    }
}

/// Counts what fired; each due timer once, each key's in order.
fn check(client: &mut BlockingClient, due: u64, times: Times) -> Result<()> {
    let mut last: HashMap<Vec<u8>, i64> = HashMap::new();
    let mut by_time: HashMap<i64, u64> = HashMap::new();
    let (mut fired, mut disorder) = (0_u64, 0_u64);
    let visit = |_: i32, r: stoat_core::record::RawRecord<'_>| {
        let time = i64::from_be_bytes(r.value.and_then(|v| v.try_into().ok()).unwrap_or_default());
        let before = last.insert(r.key.unwrap_or_default().to_vec(), time);
        disorder += u64::from(before.is_some_and(|b| b >= time));
        *by_time.entry(time).or_default() += 1;
        fired += 1;
    };
    client.read_all("jump-out", visit).map_err(failed)?;
    let mut want: HashMap<i64, u64> = HashMap::new();
    for rank in 0..due {
        *want.entry(times.of(rank).0).or_default() += 1;
    }
    if disorder > 0 || want != by_time {
        let text = format!("{fired} fired where {due} were due; {disorder} of a key not behind the one before");
        return Err(Error::new(ErrorKind::Internal, text));
    }
    say(format_args!("each of the {due} due timers fired once, those of a key in order"));
    Ok(())
}

fn run(o: &Options) -> Result<()> {
    let times = Times { pending: o.pending, each: o.each, same: o.same.max(1) };
    TIMES.get_or_init(|| times);
    let state = std::env::temp_dir().join(format!("stoat-jump-{}", std::process::id()));
    let args = Args {
        bootstrap_servers: o.bootstrap_servers.clone(),
        state_dir: Some(state.display().to_string()),
        application_id: Some(format!("jump-{}", std::process::id())),
        lanes: o.lanes.clone(),
        ..Args::default()
    };
    let app = jump::app()
        .set("stoat.memory.budget", &o.budget)?
        .set("stoat.topics.create", "true")?
        .set("stoat.start.reset", "earliest")?
        .set("stoat.shutdown.timeout", "10m")?;
    let prepared = app.prepare(&args)?;
    let budget = prepared.config().memory_budget.as_u64();
    let mut client = prepared.client("jump-load")?;
    for topic in ["jump-in", "jump-out"] {
        // The records are old: Kafka would delete them after its usual retention.
        client.create_topic_with(topic, o.partitions as i32, &[("retention.ms", "-1")]).map_err(failed)?;
    }
    let keys = o.pending / o.each;
    produce(&mut client, (0..keys).map(|k| (k % u64::from(o.partitions), k, o.each, Timestamp(START))))?;
    let before = resident()?;
    let mut phases = Phases { o, times, client, budget, before, since: None, jumped: false, settled: 0, grown: None };
    let mut wrong = None;
    prepared.run(|status| {
        wrong.is_none()
            && phases.watch(status).unwrap_or_else(|e| {
                wrong = Some(e);
                false
            })
    })?;
    if let Some(e) = wrong {
        return Err(e);
    }
    let grown = phases.grown.ok_or_else(|| Error::new(ErrorKind::Unavailable, "stopped before the end"))?;
    check(&mut phases.client, o.due, times)?;
    let _ = fs::remove_dir_all(&state);
    let percent = grown * 100 / budget.max(1);
    match o.at_most {
        Some(limit) if percent > 100 + limit => Err(Error::new(
            ErrorKind::Internal,
            format!("memory grew to {percent} % of the budget, more than {limit} % above it"),
        )),
        _ => Ok(()),
    }
}

fn main() -> ExitCode {
    stoat_core::app::log_to_stderr();
    stoat_core::app::exit(run(&Options::parse()))
}
