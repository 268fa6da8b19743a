//! Floors: what each job costs on Kafka beside bare loops over the client library, how late its results are at a
//! steady rate, and what the engine alone costs in memory; each figure beside the floor that it must hold.
//!
//! `cargo build --release -p stoat-bench && target/release/floors --bootstrap-servers HOST:PORT`
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

mod bare;
mod input;
mod kafka;
mod memory;
mod process;
mod steady;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand, ValueEnum};
use rdkafka::ClientConfig;
use stoat_bench::Job;

use input::Input;
use kafka::Kafka;
use process::{Measured, Used};

/// Of each topic.
const PARTITIONS: i32 = 6;
/// How often the progress is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Without progress for so long the run has failed.
const STUCK: Duration = Duration::from_mins(1);
/// Pass-through reaches at least this part of the plain loop's throughput.
const THROUGHPUT_FLOOR: f64 = 0.7;
/// Peak of resident memory, bytes.
const PEAK_FLOOR: u64 = 120_000_000;
/// CPU per record at a steady rate with a commit interval of 100 ms: a quarter of Kafka Streams'.
const STEADY_CPU_FLOOR: f64 = 152.0 / 4.0;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

#[derive(Debug, Parser)]
struct Args {
    /// Kafka's bootstrap servers; the environment's `STOAT_TEST_BOOTSTRAP` where they are not given
    #[arg(long, value_name = "HOST:PORT")]
    bootstrap_servers: Option<String>,
    /// Records of each run
    #[arg(long, default_value_t = 1_000_000)]
    records: usize,
    /// How often each job is run beside the bare loop; medians are printed
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long the rate is steady
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Measures only this
    #[arg(long)]
    only: Option<Part>,
    /// Measures only these jobs
    #[arg(long, value_delimiter = ',')]
    jobs: Vec<Job>,
    #[command(subcommand)]
    inner: Option<Inner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Throughput, CPU and memory on Kafka
    Throughput,
    /// Latency and CPU at a steady rate on Kafka
    Steady,
    /// The engine in memory
    Memory,
}

/// What runs in processes of its own, so that its CPU time can be told apart.
#[derive(Debug, Subcommand)]
enum Inner {
    /// A bare loop, until it is ended
    #[command(hide = true)]
    Bare {
        bootstrap: String,
        id: String,
        interval_ms: u64,
        #[arg(long)]
        tight: bool,
    },
    /// One job in memory
    #[command(hide = true)]
    Memory { job: Job, records: usize },
}

/// What a client is made with.
fn config(bootstrap: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap);
    config
}

fn main() -> ExitCode {
    let args = Args::parse();
    let result = match &args.inner {
        Some(Inner::Bare { bootstrap, id, interval_ms, tight }) => {
            bare::run(*tight, bootstrap, id, Duration::from_millis(*interval_ms))
        }
        Some(Inner::Memory { job, records }) => memory::run(*job, *records),
        None => floors(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("floors: {e}");
            ExitCode::FAILURE
        }
    }
}

fn floors(args: &Args) -> Result<()> {
    let jobs = if args.jobs.is_empty() { Job::ALL.to_vec() } else { args.jobs.clone() };
    let wanted = |part| args.only.is_none_or(|o| o == part);
    let load = std::fs::read_to_string("/proc/loadavg")?;
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    println!("{cores} cores, load average {}", load.split(' ').take(3).collect::<Vec<_>>().join(" "));
    let mut held = Verdicts::default();
    if wanted(Part::Memory) {
        in_memory(args, &jobs)?;
    }
    if wanted(Part::Throughput) || wanted(Part::Steady) {
        let bootstrap = args.bootstrap_servers.clone().or_else(|| std::env::var("STOAT_TEST_BOOTSTRAP").ok());
        let bootstrap = bootstrap.ok_or(
            "the rest needs an Apache Kafka: `cargo xtask kafka start` starts one and prints its address, \
             give it with --bootstrap-servers",
        )?;
        let kafka = Kafka::connect(&bootstrap)?;
        let bench = Bench::new(kafka)?;
        if wanted(Part::Throughput) {
            bench.throughput(args, &jobs, &mut held)?;
        }
        if wanted(Part::Steady) {
            bench.steady(args, &mut held)?;
        }
        std::fs::remove_dir_all(&bench.scratch)?;
    }
    if held.missed > 0 {
        return Err(format!("{} of {} floors are missed", held.missed, held.all).into());
    }
    println!("all {} floors that were measured hold", held.all);
    Ok(())
}

/// Counts floors.
#[derive(Default)]
struct Verdicts {
    all: usize,
    missed: usize,
}

impl Verdicts {
    /// A mark to print behind a figure.
    fn mark(&mut self, holds: bool) -> &'static str {
        self.all += 1;
        if holds {
            "ok"
        } else {
            self.missed += 1;
            "MISSED"
        }
    }
}

fn in_memory(args: &Args, jobs: &[Job]) -> Result<()> {
    println!("\nThe engine in memory, embedded broker included; ns per record over {} records", args.records);
    println!("{:<8}{:>10}{:>10}", "job", "CPU", "wall");
    for job in jobs {
        let records = args.records.to_string();
        let run = Command::new(std::env::current_exe()?).args(["memory", job.name(), &records]).output()?;
        if !run.status.success() {
            return Err(format!("{} in memory: {}", job.name(), String::from_utf8_lossy(&run.stderr)).into());
        }
        let text = String::from_utf8(run.stdout)?;
        let (cpu, wall) = text.trim().split_once(' ').ok_or("the run printed no figures")?;
        println!("{:<8}{cpu:>10}{wall:>10}", job.name());
    }
    Ok(())
}

/// CPU per record of Kafka Streams 4.4.0 on such a broker, microseconds.
fn streams_cpu(job: Job) -> f64 {
    match job {
        Job::Pass => 14.5,
        Job::Count => 14.7,
        Job::Words => 34.7,
        Job::Json => 16.2,
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// The loop over the crate `rdkafka`.
    Plain,
    /// The loop over librdkafka's own functions.
    Tight,
    Job(Job),
}

impl What {
    fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Tight => "tight",
            Self::Job(job) => job.name(),
        }
    }
}

/// One run over a whole input.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Records a second, from the first commit to the last.
    rate: f64,
    /// Microseconds per record, from start to end of the process.
    cpu: f64,
    peak: u64,
}

fn median(runs: &[Run], of: impl Fn(&Run) -> f64) -> f64 {
    let mut all: Vec<f64> = runs.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn peak_of(runs: &[Run]) -> u64 {
    runs.iter().map(|r| r.peak).max().unwrap_or(0)
}

struct Bench {
    kafka: Kafka,
    job: PathBuf,
    scratch: PathBuf,
    /// Tells this run's applications from those of others.
    run: u32,
}

impl Bench {
    fn new(kafka: Kafka) -> Result<Self> {
        let job = std::env::current_exe()?.with_file_name("job");
        if !job.exists() {
            return Err(
                format!("{} is missing: `cargo build --release -p stoat-bench` builds it", job.display()).into()
            );
        }
        let run = std::process::id();
        let scratch = std::env::temp_dir().join(format!("stoat-floors-{run}"));
        std::fs::create_dir_all(&scratch)?;
        Ok(Self { kafka, job, scratch, run })
    }

    fn start(&self, what: What, id: &str, interval_ms: u64) -> Result<Measured> {
        let log = self.scratch.join(format!("{id}.log"));
        let mut command = match what {
            What::Plain | What::Tight => {
                let mut c = Command::new(std::env::current_exe()?);
                c.args(["bare", &self.kafka.bootstrap, id, &interval_ms.to_string()]);
                if what == What::Tight {
                    c.arg("--tight");
                }
                c
            }
            What::Job(job) => {
                let mut c = Command::new(&self.job);
                c.args(["--job", job.name(), "--bootstrap-servers", &self.kafka.bootstrap, "--application-id", id]);
                c.args(["--commit-interval", &format!("{interval_ms}ms")]);
                c.arg("--state-dir").arg(Path::new(&self.scratch).join("state"));
                c
            }
        };
        Measured::start(&mut command, log)
    }

    /// Runs a process over the input that is there.
    fn drain(&self, what: What, round: usize, records: usize) -> Result<Run> {
        let name = what.name();
        let id = format!("floors-{}-{name}-{round}", self.run);
        let progress = self.kafka.progress(&id)?;
        let mut process = self.start(what, &id, 100)?;
        let mut first: Option<(Instant, u64)> = None;
        let (mut done, mut since) = (0, Instant::now());
        while done < records as u64 {
            std::thread::sleep(LOOK);
            process.check()?;
            let now = progress.records()?;
            if now > done {
                (done, since) = (now, Instant::now());
                first.get_or_insert((since, now));
            } else if since.elapsed() > STUCK {
                return Err(format!("{name} stays at {done} of {records} records for a minute").into());
            }
        }
        let (from, before) = first.unwrap_or((since, 0));
        let rate = (done - before) as f64 / since.duration_since(from).as_secs_f64().max(LOOK.as_secs_f64());
        let Used { cpu, peak } = process.stop()?;
        self.kafka.forget(&id)?;
        Ok(Run { rate, cpu: cpu.as_secs_f64() * 1e6 / records as f64, peak })
    }

    fn throughput(&self, args: &Args, jobs: &[Job], held: &mut Verdicts) -> Result<()> {
        println!(
            "\nOn Kafka, exactly once, commit interval 100 ms, {} records over {PARTITIONS} partitions; medians of {}",
            args.records, args.rounds
        );
        println!(
            "{:<8}{:>10}{:>11}{:>17}{:>11}{:>7}{:>20}{:>20}",
            "job",
            "records/s",
            "plain loop",
            "of it (floor)",
            "tight loop",
            "of it",
            "CPU us (floor)",
            "peak MB (floor)"
        );
        let mut loaded = None;
        for &job in jobs {
            let input = Input::of(job);
            if loaded != Some(input) {
                self.kafka.fresh()?;
                self.kafka.load(input, args.records)?;
                loaded = Some(input);
            }
            let (mut plain, mut tight, mut runs) = (Vec::new(), Vec::new(), Vec::new());
            for round in 0..args.rounds.max(1) {
                plain.push(self.drain(What::Plain, round, args.records)?);
                runs.push(self.drain(What::Job(job), round, args.records)?);
                tight.push(self.drain(What::Tight, round, args.records)?);
            }
            let rate = median(&runs, |r| r.rate);
            let (of_plain, of_tight) = (median(&plain, |r| r.rate), median(&tight, |r| r.rate));
            let (share, tight_share) = (rate / of_plain, rate / of_tight);
            // Only pass-through does what the bare loops do.
            let share = if job == Job::Pass {
                format!("{share:.2} (0.70) {}", held.mark(share >= THROUGHPUT_FLOOR))
            } else {
                format!("{share:.2}")
            };
            let (cpu, limit) = (median(&runs, |r| r.cpu), streams_cpu(job) / 4.0);
            let cpu = format!("{cpu:.2} ({limit:.2}) {}", held.mark(cpu <= limit));
            let peak = peak_of(&runs);
            let peak = format!("{} (120) {}", peak / 1_000_000, held.mark(peak <= PEAK_FLOOR));
            println!(
                "{:<8}{rate:>10.0}{of_plain:>11.0}{share:>17}{of_tight:>11.0}{tight_share:>7.2}{cpu:>20}{peak:>20}",
                job.name(),
            );
            for (name, bare) in [("plain", plain), ("tight", tight)] {
                let (cpu, peak) = (median(&bare, |r| r.cpu), peak_of(&bare) / 1_000_000);
                println!("{:<8}the {name} loop: {cpu:.2} us of CPU per record, peak {peak} MB", "");
            }
        }
        Ok(())
    }

    fn steady(&self, args: &Args, held: &mut Verdicts) -> Result<()> {
        println!("\nSteady {} records/s for {} s, pass-through, exactly once", steady::RATE, args.seconds);
        println!("{:<24}{:>10}{:>22}{:>22}{:>10}", "", "p50 ms", "p99 ms (floor)", "CPU us (floor)", "RSS MB");
        for (interval, limit) in [(100, 150.0), (10, 40.0)] {
            for what in [What::Tight, What::Job(Job::Pass)] {
                self.kafka.fresh()?;
                let name = what.name();
                let id = format!("floors-{}-steady-{name}-{interval}", self.run);
                let mut process = self.start(what, &id, interval)?;
                let s = steady::run(&self.kafka, &mut process, args.seconds)?;
                process.stop()?;
                self.kafka.forget(&id)?;
                let (mut p99, mut cpu) = (format!("{:.1}", s.p99), format!("{:.1}", s.cpu));
                if what != What::Tight {
                    p99 = format!("{p99} ({limit:.0}) {}", held.mark(s.p99 <= limit));
                    if interval == 100 {
                        cpu = format!("{cpu} ({STEADY_CPU_FLOOR:.0}) {}", held.mark(s.cpu <= STEADY_CPU_FLOOR));
                    }
                }
                let title = format!("{name}, commit {interval} ms");
                println!("{title:<24}{:>10.1}{p99:>22}{cpu:>22}{:>10}", s.p50, s.peak / 1_000_000);
            }
        }
        Ok(())
    }
}
