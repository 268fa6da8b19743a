//! Does memory stay within the budget (I-7)? Drives several times the budget through a slow handler that keeps state and
//! sets timers, and prints the peak of resident memory against the budget.
//!
//! `cargo run --release -p stoat-bench --bin pressure -- [--bootstrap-servers H:P] [--budget 64MiB] [--factor 10]`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use stoat_bench::process::{begin_peak, mib, peak, resident};
use stoat_core::app::{Args, say};
use stoat_core::error::ErrorKind;
use stoat_core::prelude::*;
use stoat_core::record::ProduceBatch;

/// Drives several times the memory budget through a slow handler and prints the peak of resident memory.
#[derive(Debug, Parser)]
struct Options {
    /// Kafka; absent: the embedded broker, whose memory then counts too
    #[arg(long)]
    bootstrap_servers: Option<String>,
    /// `stoat.memory.budget`
    #[arg(long, default_value = "64MiB")]
    budget: String,
    /// Input, as a multiple of the budget
    #[arg(long, default_value_t = 10)]
    factor: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 10_000)]
    value: usize,
    /// How long the handler takes for a record, in microseconds
    #[arg(long, default_value_t = 100)]
    micros: u64,
    /// Partitions
    #[arg(long, default_value_t = 12)]
    partitions: u32,
    /// Ends with an error where the peak lies above the budget by more than so many percent
    #[arg(long)]
    at_most: Option<u64>,
}

static MICROS: AtomicU64 = AtomicU64::new(0);

#[source(topic = "pressure-in", key = u64, value = Vec<u8>, value_codec = Bytes)]
struct In;

#[sink(topic = "pressure-out", key = u64, value = Vec<u8>, value_codec = Bytes)]
struct Out;

/// Keeps the last value of each key, sets a timer far ahead, forwards the value before.
#[processor(input = (u64, Vec<u8>), output = Vec<u8>)]
struct Slow {
    #[state(codec = Bytes)]
    last: Keyed<Vec<u8>>,
    #[timer]
    later: Timer,
}

#[handlers]
impl Slow {
    #[process]
    fn on_record(&mut self, r: Record<u64, Vec<u8>>, cx: &mut Context<Self>) -> Result<()> {
        let until = Instant::now() + Duration::from_micros(MICROS.load(Ordering::Relaxed));
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        self.later.set(r.timestamp + Duration::from_hours(24 * 365))?;
        let before = self.last.take()?;
        self.last.put(r.value)?;
        match before {
            Some(before) => cx.forward(before),
            None => Ok(()),
        }
    }

    #[on_timer(later)]
    fn on_later(&mut self, _fired: Fired<u64>, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

#[topology]
fn pressure(t: &mut Topology) {
    let input = t.source::<In>();
    let slow = input.process::<Slow>();
    slow.sink::<Out>();
}

fn run(o: &Options) -> Result<()> {
    MICROS.store(o.micros, Ordering::Relaxed);
    let state = std::env::temp_dir().join(format!("stoat-pressure-{}", std::process::id()));
    let args = Args {
        bootstrap_servers: o.bootstrap_servers.clone(),
        state_dir: Some(state.display().to_string()),
        application_id: Some(format!("pressure-{}", std::process::id())),
        ..Args::default()
    };
    let app = pressure::app()
        .set("stoat.memory.budget", &o.budget)?
        .set("stoat.topics.create", "true")?
        .set("stoat.start.reset", "earliest")?;
    let prepared = app.prepare(&args)?;
    let budget = prepared.config().memory_budget.as_u64();
    let records = budget * o.factor / o.value as u64;
    let failed = |e: stoat_core::broker::BrokerError| Error::new(ErrorKind::Unavailable, e.to_string());
    {
        let mut client = prepared.client("pressure-load")?;
        for topic in ["pressure-in", "pressure-out"] {
            client.create_topic(topic, o.partitions as i32).map_err(failed)?;
            if client.bounds(topic).map_err(failed)?.iter().any(|(_, b)| b.end > 0) {
                let text = format!("topic `{topic}` holds records of an earlier run: delete it first");
                return Err(Error::new(ErrorKind::Config, text));
            }
        }
        // Old records would go after the topic's retention.
        let first = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
        let (topics, value) = (Arc::from(["pressure-in".into()]), vec![b'x'; o.value]);
        let each = (1 << 20) / o.value as u64 + 1;
        for from in (0..records).step_by(each as usize) {
            let mut batch = ProduceBatch::new(Arc::clone(&topics));
            for n in from..(from + each).min(records) {
                // Each key comes twice.
                let key = (n % (records / 2).max(1)).to_be_bytes();
                let time = Timestamp::from_millis(first + n as i64);
                let partition = (n % u64::from(o.partitions)) as i32;
                batch.push(0, partition, time, Some(&key), Some(&value), Headers::default());
            }
            client.produce(batch).map_err(failed)?;
        }
    }
    let before = resident()?;
    begin_peak()?;
    let begin = Instant::now();
    let mut settled = 0;
    let mut done = 0;
    prepared.run(|status| {
        done = status.run.records;
        settled = if status.run.settled && done >= records { settled + 1 } else { 0 };
        settled < 3
    })?;
    let (peak, elapsed) = (peak()?, begin.elapsed());
    let grown = peak.saturating_sub(before);
    let percent = grown * 100 / budget.max(1);
    say(format_args!(
        "{records} records of {} bytes, {:.0} MiB in all, through a handler of {} us in {:.1} s\n\
         memory before {:.1} MiB, peak {:.1} MiB: {:.1} MiB more, budget {:.1} MiB: {percent} %",
        o.value,
        mib(records * o.value as u64),
        o.micros,
        elapsed.as_secs_f64(),
        mib(before),
        mib(peak),
        mib(grown),
        mib(budget),
    ));
    let _ = std::fs::remove_dir_all(&state);
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
