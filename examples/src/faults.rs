//! Kills an example again and again, restarts it with other lane counts, and compares what it wrote with a model that is
//! computed from its input; with a broker of its own it torments that as well. Used by the program `faults` and, shorter,
//! by the tests.
#![expect(clippy::disallowed_methods, reason = "it waits for processes by real time, beside any engine")]

mod chaos;
mod clicks;
mod kafka;
mod load;
mod proxy;
mod transfers;
mod words;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig};
use stoat_core::broker::{Broker, Command as Ask, Reply};
use stoat_core::id::TopicPartition;

pub use chaos::{Chaos, Chaotic, Happened, Row, chaos};
pub use clicks::Clicks;
pub use kafka::{OwnKafka, signal};
pub use load::Load;
pub use proxy::Proxy;
pub use transfers::Transfers;
use words::LINES;
pub use words::{Words, produce_lines};

/// The result of a step; its error is a text for people.
pub type Outcome<T> = Result<T, String>;

/// Records per produced batch.
const BATCH: usize = 5_000;
/// What is run, and how it is treated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The example's binary.
    pub exe: PathBuf,
    /// Kafka, or the embedded broker.
    pub bootstrap: Option<String>,
    /// The application id.
    pub application_id: String,
    /// Where its state is.
    pub state_dir: PathBuf,
    /// Input records.
    pub records: usize,
    /// How often it is killed.
    pub kills: u32,
    /// How long it lives each time, at least and at most: from its start every fourth time (so that starts and restores
    /// are killed too), from when it runs every fourth time, else from its first commit.
    pub life: (Duration, Duration),
    /// Lane counts, taken in turn.
    pub lanes: Vec<u32>,
    /// After which kill its stores are deleted.
    pub wipe_after: Option<u32>,
    /// Chooses input and moments.
    pub seed: u64,
}

/// What was seen.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Input records, output records.
    pub input: u64,
    /// Output records of this application.
    pub output: u64,
    /// Output records that the model has and the application did not write.
    pub lost: u64,
    /// Output records that the application wrote more than once, or that the model has not.
    pub doubled: u64,
    /// Changelog entries that differ from the model.
    pub changelog_wrong: u64,
    /// Committed cuts that were looked at (`money`).
    pub cuts: u64,
    /// Those whose balances do not add up to nothing or that hold an account twice, and totals that are not 0.
    pub cuts_wrong: u64,
    /// Totals that were written.
    pub totals: u64,
    /// For each start that came so far: changelog records held, and replayed.
    pub restores: Vec<(u64, u64)>,
    /// The same of one more start after the orderly end.
    pub after_flush: (u64, u64),
    /// Records that the last run had left to process: more than none shows that the kills came in the middle.
    pub left_for_last: u64,
}

/// What an example reads and writes: how it is fed, and how its output is compared with a model of its input.
pub trait Story: Send {
    /// The example's binary.
    fn program(&self) -> &'static str;

    /// The topics that it reads.
    fn sources(&self) -> &'static [&'static str];

    /// Writes the next so many input records.
    ///
    /// # Errors
    /// When the broker does not take them.
    fn feed(&mut self, client: &mut BlockingClient, records: usize) -> Outcome<()>;

    /// Writes what must come last.
    ///
    /// # Errors
    /// When the broker does not take it.
    fn end(&mut self, client: &mut BlockingClient) -> Outcome<()>;

    /// Compares what one application wrote since with its input.
    ///
    /// # Errors
    /// When the broker does not answer.
    fn compare(&self, client: &mut BlockingClient, application_id: &str, report: Report) -> Outcome<Report>;
}

impl Story for Box<dyn Story> {
    fn program(&self) -> &'static str {
        (**self).program()
    }

    fn sources(&self) -> &'static [&'static str] {
        (**self).sources()
    }

    fn feed(&mut self, client: &mut BlockingClient, records: usize) -> Outcome<()> {
        (**self).feed(client, records)
    }

    fn end(&mut self, client: &mut BlockingClient) -> Outcome<()> {
        (**self).end(client)
    }

    fn compare(&self, client: &mut BlockingClient, application_id: &str, report: Report) -> Outcome<Report> {
        (**self).compare(client, application_id, report)
    }
}

/// What a tormented application told.
struct Told {
    restores: Vec<(u64, u64)>,
    after_flush: (u64, u64),
    left_for_last: u64,
}

impl Told {
    fn report(self) -> Report {
        let Self { restores, after_flush, left_for_last } = self;
        Report { restores, after_flush, left_for_last, ..Report::default() }
    }
}

#[derive(Debug)]
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n.max(1)
    }
}

fn text(e: impl std::fmt::Display) -> String {
    e.to_string()
}

impl Plan {
    /// A client of the broker. On the embedded broker the example must not run meanwhile.
    ///
    /// # Errors
    /// When the embedded broker cannot be opened.
    pub fn client(&self) -> Outcome<BlockingClient> {
        self.client_of(&format!("faults-{}", self.application_id))
    }

    #[cfg_attr(not(feature = "kafka"), expect(unused_variables, reason = "only Kafka's clients have names"))]
    fn client_of(&self, group: &str) -> Outcome<BlockingClient> {
        match &self.bootstrap {
            None => {
                let dir = self.state_dir.join(&self.application_id).join("broker");
                std::fs::create_dir_all(&dir).map_err(text)?;
                let broker = EmbeddedBroker::open(EmbeddedConfig::new(dir)).map_err(text)?;
                let client: Box<dyn Broker> = Box::new(broker.client(ClientConfig::new("faults", "faults")));
                Ok(BlockingClient::new(client))
            }
            #[cfg(feature = "kafka")]
            Some(bootstrap) => {
                use stoat_core::broker::kafka::{KafkaBroker, KafkaConfig};
                // Never initialised as a producer of this name, so it fences nobody.
                let config = KafkaConfig::new(bootstrap.as_str(), format!("faults-{group}"), group);
                let broker = KafkaBroker::new(config).map_err(text)?;
                Ok(BlockingClient::new(Box::new(broker)))
            }
            #[cfg(not(feature = "kafka"))]
            Some(_) => Err("built without the feature `kafka`".to_owned()),
        }
    }

    /// Starts it; `last`: to come to its end by itself.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(&self, lanes: u32, last: bool) -> Outcome<Child> {
        self.command(lanes, last).spawn().map_err(|e| format!("{} cannot be started: {e}", self.exe.display()))
    }

    fn command(&self, lanes: u32, last: bool) -> Command {
        let mut command = Command::new(&self.exe);
        command.arg("--application-id").arg(&self.application_id);
        command.arg("--state-dir").arg(&self.state_dir).arg("--lanes").arg(lanes.to_string());
        command.args(["--set", "stoat.commit.interval=100ms", "--set", "stoat.state.flush-epochs=20"]);
        if let Some(b) = &self.bootstrap {
            command.arg("--bootstrap-servers").arg(b);
        }
        command.arg("--no-input");
        if last {
            command.arg("--until-done");
        }
        command.stdout(if last { Stdio::piped() } else { Stdio::null() });
        command.stderr(Stdio::piped()).env("STOAT_LOG", "info,stoat_core::engine::run=debug");
        command
    }

    /// Kills and restarts; when `ready` has returned, lets it come to its end.
    fn torment(&self, random: &mut Random, ready: impl FnOnce() -> Outcome<()>) -> Outcome<Told> {
        let lanes = |n: u32| self.lanes[n as usize % self.lanes.len()];
        let mut restores = Vec::new();
        for kill in 0..self.kills {
            let mut child = self.start(lanes(kill), false)?;
            let mut log = Log::of(&mut child);
            // Every fourth start is killed wherever it is, every fourth after it runs, the others after a commit.
            let moment = [Some(" committed "), Some(" committed "), Some("running epoch="), None][kill as usize % 4];
            if moment.is_some_and(|m| !log.wait_for(m, PATIENCE)) {
                child.kill().map_err(text)?;
                let status = child.wait().map_err(text)?;
                return Err(format!("it did not come to run or to commit ({status}): {}", log.rest()));
            }
            let (least, most) = (self.life.0.as_millis() as u64, self.life.1.as_millis() as u64);
            std::thread::sleep(Duration::from_millis(least + random.below(most - least + 1)));
            if let Some(status) = child.try_wait().map_err(text)? {
                return Err(format!("it ended by itself with {status}: {}", log.rest()));
            }
            child.kill().map_err(text)?;
            child.wait().map_err(text)?;
            restores.extend(restored(log.rest()));
            let stores = self.state_dir.join(&self.application_id).join("stores");
            if self.wipe_after == Some(kill) && stores.exists() {
                std::fs::remove_dir_all(&stores).map_err(text)?;
            }
        }
        ready()?;
        let (log, left_for_last) = self.to_the_end(self.kills)?;
        restores.extend(restored(&log));
        let (log, _) = self.to_the_end(self.kills + 1)?;
        let after_flush = restored(&log).ok_or_else(|| format!("it told nothing of its restore: {log}"))?;
        Ok(Told { restores, after_flush, left_for_last })
    }

    /// Runs it until all is processed; its log, and how many records it processed.
    fn to_the_end(&self, run: u32) -> Outcome<(String, u64)> {
        let mut child = self.start(self.lanes[run as usize % self.lanes.len()], true)?;
        let mut log = Log::of(&mut child);
        let out = child.wait_with_output().map_err(text)?;
        if !out.status.success() {
            return Err(format!("run {run} ended with {}: {}", out.status, log.rest()));
        }
        let told = String::from_utf8_lossy(&out.stdout);
        let mut processed = told.lines().filter_map(|l| l.strip_prefix("processed ")?.split(' ').next()?.parse().ok());
        Ok((log.rest().to_owned(), processed.next_back().unwrap_or(0)))
    }
}

/// How long a start takes, about.
const START: Duration = Duration::from_secs(1);

/// How long anything that should happen may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a process writes to standard error, line by line.
pub struct Log {
    lines: Receiver<String>,
    seen: String,
}

impl Log {
    /// Takes a child's standard error, which must be piped.
    pub fn of(child: &mut Child) -> Self {
        let (sender, lines) = channel();
        if let Some(err) = child.stderr.take() {
            // Ends with the child, or with the receiver.
            std::thread::spawn(move || {
                for line in BufReader::new(err).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        return;
                    }
                }
            });
        }
        Self { lines, seen: String::new() }
    }

    /// Reads on until a line holds `what`; false when the process ended or the time is over.
    pub fn wait_for(&mut self, what: &str, patience: Duration) -> bool {
        while let Ok(line) = self.lines.recv_timeout(patience) {
            self.seen.push_str(&line);
            self.seen.push('\n');
            if line.contains(what) {
                return true;
            }
        }
        false
    }

    /// Everything that was written until the process ended; waits for its end.
    pub fn rest(&mut self) -> &str {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    self.seen.push_str(&line);
                    self.seen.push('\n');
                }
                Err(RecvTimeoutError::Disconnected | RecvTimeoutError::Timeout) => return &self.seen,
            }
        }
    }
}

/// The figures of a start's restore, from its log line.
fn restored(log: &str) -> Option<(u64, u64)> {
    let line = log.lines().find(|l| l.contains("in_changelogs="))?;
    let figure = |name: &str| line.split(name).nth(1)?.split_whitespace().next()?.parse().ok();
    Some((figure("in_changelogs=")?, figure("replayed=")?))
}

fn ends(client: &mut BlockingClient, topic: &str) -> Outcome<BTreeMap<i32, i64>> {
    Ok(client.bounds(topic).map_err(text)?.into_iter().map(|(tp, b)| (tp.partition, b.end)).collect())
}

/// Asks a process to stop.
///
/// # Errors
/// When the signal cannot be sent.
pub fn terminate(child: &Child) -> Outcome<()> {
    let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().map_err(text)?;
    if status.success() { Ok(()) } else { Err("kill -TERM failed".to_owned()) }
}

/// Runs `word_count` under this plan over three topics of six partitions.
///
/// # Errors
/// When something cannot be run, or the application ends by itself.
pub fn word_count(plan: &Plan) -> Outcome<Report> {
    under(plan, Words::with_seed)
}

/// Runs `sessions` under this plan over one topic of six partitions.
///
/// # Errors
/// When something cannot be run, or the application ends by itself.
pub fn sessions(plan: &Plan) -> Outcome<Report> {
    under(plan, Clicks::prepare)
}

/// On Kafka input comes as long as the application is tormented; the embedded broker has one process at a time.
fn under<S: Story + 'static>(plan: &Plan, prepare: fn(&mut BlockingClient, u64) -> Outcome<S>) -> Outcome<Report> {
    let mut random = Random(plan.seed | 1);
    let mut client = plan.client()?;
    let mut story = prepare(&mut client, random.below(u64::MAX))?;
    let (story, told) = if plan.bootstrap.is_some() {
        // So that about as many records as asked for come while it is killed: a start takes about a second.
        let each = START + (plan.life.0 + plan.life.1) / 2;
        let per_second = plan.records as f64 / (each.as_secs_f64() * f64::from(plan.kills.max(1)));
        let feeder = plan.clone();
        let load = Load::start(story, move || feeder.client_of("feeder"), per_second as usize + 1);
        let mut fed = None;
        let told = plan.torment(&mut random, || {
            fed = Some(load.stop()?);
            Ok(())
        })?;
        (fed.ok_or("nothing was fed")?, told)
    } else {
        story.feed(&mut client, plan.records)?;
        story.end(&mut client)?;
        drop(client);
        (story, plan.torment(&mut random, || Ok(()))?)
    };
    story.compare(&mut plan.client()?, &plan.application_id, told.report())
}

/// Lets a broker forget the group of `word_count`, which it does `offsets.retention.minutes` after the group's last
/// commit, and starts again: the application must go on where it stood (its own epoch record knows).
///
/// # Errors
/// When the broker has not forgotten within `wait`, or something cannot be run.
pub fn group_forgotten(plan: &Plan, wait: Duration) -> Outcome<Report> {
    let mut client = plan.client()?;
    let words = Words::prepare(&mut client)?;
    produce_lines(&mut client, plan.seed, 0, plan.records)?;
    plan.to_the_end(0)?;
    let partitions: Vec<TopicPartition> =
        LINES.iter().flat_map(|t| (0..6).map(|p| TopicPartition::new(*t, p))).collect();
    let deadline = Instant::now() + wait;
    let mut group = plan.client_of(&plan.application_id)?;
    loop {
        let Reply::Group(g) = group.call(Ask::Group { partitions: partitions.clone() }).map_err(text)? else {
            return Err("the broker gave another answer than was asked for".to_owned());
        };
        if g.offsets.iter().all(Option::is_none) {
            break;
        }
        if Instant::now() > deadline {
            return Err(format!(
                "the broker still knows the group's offsets after {wait:?}: set offsets.retention.minutes=1"
            ));
        }
        // Nothing tells when a broker forgets.
        std::thread::sleep(Duration::from_secs(5));
    }
    drop(group);
    produce_lines(&mut client, plan.seed + 1, 0, plan.records)?;
    let (log, left_for_last) = plan.to_the_end(1)?;
    let restores = restored(&log).into_iter().collect();
    words.compare(&mut client, &plan.application_id, Report { restores, left_for_last, ..Report::default() })
}
