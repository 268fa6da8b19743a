//! Kills an example again and again, restarts it with other lane counts, and compares what it wrote with a model that is
//! computed from its input. Used by the program `faults` and, shorter, by the tests.
#![expect(clippy::disallowed_methods, reason = "it waits for processes by real time, beside any engine")]

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig};
use stoat_core::broker::{Broker, Command as Ask, Reply};
use stoat_core::hash::partition_for;
use stoat_core::id::TopicPartition;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

use crate::KEPT;

/// The result of a step; its error is a text for people.
pub type Outcome<T> = Result<T, String>;

/// Records per produced batch.
const BATCH: usize = 5_000;
/// The gap that ends a session, and how far clicks are out of order, in ms.
const IDLE: i64 = 30 * 60 * 1_000;
const BOUND: i64 = 10_000;

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
    /// For each start that came so far: changelog records held, and replayed.
    pub restores: Vec<(u64, u64)>,
    /// The same of one more start after the orderly end.
    pub after_flush: (u64, u64),
    /// Records that the last run had left to process: more than none shows that the kills came in the middle.
    pub left_for_last: u64,
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
        command.spawn().map_err(|e| format!("{} cannot be started: {e}", self.exe.display()))
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

/// Runs `sessions` under this plan over one topic of six partitions.
///
/// # Errors
/// When something cannot be run, or the application ends by itself.
pub fn sessions(plan: &Plan) -> Outcome<Report> {
    let mut random = Random(plan.seed | 1);
    let mut client = plan.client()?;
    client.create_topic_with("clicks", 6, KEPT).map_err(text)?;
    client.create_topic_with("user-sessions", 6, KEPT).map_err(text)?;
    let before = ends(&mut client, "user-sessions")?;
    let mut produced = 0;
    // What is there already is read by the application, and so by the model; time goes on behind it.
    let mut clock = 1_700_000_000_000;
    client.read_all("clicks", |_, r| clock = clock.max(r.timestamp.0 + BOUND)).map_err(text)?;
    while produced < plan.records {
        let mut batch = ProduceBatch::new(Arc::new(["clicks".into()]));
        for _ in 0..BATCH.min(plan.records - produced) {
            clock += random.below(40_000) as i64 / 10;
            let user = format!("u{}", random.below(500)).into_bytes();
            let time = Timestamp(clock - random.below(BOUND as u64 - 1) as i64);
            let value = Some(&b"{\"page\":\"/\"}"[..]);
            batch.push(0, partition_for(&user, 6), time, Some(&user), value, Headers::default());
        }
        produced += batch.len();
        client.produce(batch).map_err(text)?;
    }
    drop(client);
    let mut report = plan.torment(&mut random, || Ok(()))?.report();
    let mut client = plan.client()?;
    // A user's clicks are in one partition, so each user's sessions follow from that partition's order alone; the
    // watermark, the smallest of all partitions, only says which of the last ones have closed.
    let mut open: BTreeMap<Vec<u8>, (i64, i64, u64)> = BTreeMap::new();
    let mut model: BTreeMap<(Vec<u8>, String), i64> = BTreeMap::new();
    let mut newest: BTreeMap<i32, i64> = BTreeMap::new();
    let written =
        |(start, end, clicks): (i64, i64, u64)| format!("{{\"start\":{start},\"end\":{end},\"clicks\":{clicks}}}");
    report.input = client
        .read_all("clicks", |p, r| {
            let (user, at) = (r.key.unwrap_or_default().to_vec(), r.timestamp.0);
            let latest = newest.entry(p).or_insert(at);
            *latest = (*latest).max(at);
            match open.get_mut(&user) {
                Some(s) if at <= s.1 + IDLE => *s = (s.0.min(at), s.1.max(at), s.2 + 1),
                Some(s) => {
                    let done = std::mem::replace(s, (at, at, 1));
                    *model.entry((user, written(done))).or_default() += 1;
                }
                None => {
                    open.insert(user, (at, at, 1));
                }
            }
        })
        .map_err(text)?;
    let watermark = newest.values().min().copied().unwrap_or_default() - BOUND;
    for (user, s) in open {
        if s.1 + IDLE < watermark {
            *model.entry((user, written(s))).or_default() += 1;
        }
    }
    report.output = client
        .read_all("user-sessions", |p, r| {
            if r.offset < before.get(&p).copied().unwrap_or(0) {
                return;
            }
            let row =
                (r.key.unwrap_or_default().to_vec(), String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned());
            *model.entry(row).or_default() -= 1;
        })
        .map_err(text)?;
    report.lost = model.values().map(|n| (*n).max(0) as u64).sum();
    report.doubled = model.values().map(|n| (-*n).max(0) as u64).sum();
    Ok(report)
}

/// Asks a process to stop.
///
/// # Errors
/// When the signal cannot be sent.
pub fn terminate(child: &Child) -> Outcome<()> {
    let status = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().map_err(text)?;
    if status.success() { Ok(()) } else { Err("kill -TERM failed".to_owned()) }
}

/// The topics that `word_count` reads.
const LINES: [&str; 3] = ["lines-a", "lines-b", "lines-c"];

/// Writes lines of words, `from` to `to`.
///
/// # Errors
/// When the broker does not take them.
pub fn produce_lines(client: &mut BlockingClient, seed: u64, from: usize, to: usize) -> Outcome<()> {
    let mut random = Random(seed | 1);
    let topics: Arc<[Arc<str>]> = LINES.iter().map(|t| Arc::from(*t)).collect();
    let mut at = from;
    while at < to {
        let mut batch = ProduceBatch::new(topics.clone());
        for i in at..(at + BATCH).min(to) {
            // Skewed: small numbers come more often, as words do.
            let mut word = || {
                let n = random.below(2_000) * random.below(2_000) / 2_000;
                format!("w{n}")
            };
            let line = [word(), word(), word()].join(" ");
            let time = Timestamp(1_700_000_000_000 + i as i64);
            let place = random.below(18) as i32;
            batch.push((place / 6) as u32, place % 6, time, None, Some(line.as_bytes()), Headers::default());
        }
        at += BATCH;
        client.produce(batch).map_err(text)?;
    }
    Ok(())
}

/// What an application `word_count` finds before it starts.
pub struct Words {
    before: BTreeMap<i32, i64>,
}

impl Words {
    /// Makes the topics and remembers where the output topic ends.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn prepare(client: &mut BlockingClient) -> Outcome<Self> {
        for topic in LINES {
            client.create_topic_with(topic, 6, KEPT).map_err(text)?;
        }
        client.create_topic_with("word-counts", 6, KEPT).map_err(text)?;
        Ok(Self { before: ends(client, "word-counts")? })
    }

    /// Compares what one application wrote since with its input.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn compare(&self, client: &mut BlockingClient, application_id: &str, mut report: Report) -> Outcome<Report> {
        let mut model: HashMap<String, u64> = HashMap::new();
        for topic in LINES {
            report.input += client
                .read_all(topic, |_, r| {
                    let line = String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned();
                    for word in line.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
                        *model.entry(word.to_lowercase()).or_default() += 1;
                    }
                })
                .map_err(text)?;
        }
        // Each word's updates are 1, 2, 3 and so on: a gap is a loss, a repetition a doubling.
        let mut seen: HashMap<String, u64> = HashMap::new();
        let (mut output, mut doubled) = (0, 0);
        client
            .read_all("word-counts", |p, r| {
                if r.offset < self.before.get(&p).copied().unwrap_or(0) {
                    return;
                }
                let word = String::from_utf8_lossy(r.key.unwrap_or_default()).into_owned();
                let count = r.value.and_then(|v| v.try_into().ok()).map_or(0, u64::from_be_bytes);
                let last = seen.entry(word).or_default();
                if count == *last + 1 {
                    *last = count;
                } else {
                    doubled += 1;
                }
                output += 1;
            })
            .map_err(text)?;
        report.output = output;
        report.doubled = doubled + seen.keys().filter(|w| !model.contains_key(*w)).count() as u64;
        report.lost = model.iter().map(|(w, n)| n.saturating_sub(seen.get(w).copied().unwrap_or(0))).sum();
        let mut state: HashMap<String, u64> = HashMap::new();
        client
            .read_all(&format!("{application_id}-counts-changelog"), |_, r| {
                let word = String::from_utf8_lossy(r.key.unwrap_or_default()).into_owned();
                match r.value.and_then(|v| v.try_into().ok()) {
                    Some(v) => state.insert(word, u64::from_be_bytes(v)),
                    None => state.remove(&word),
                };
            })
            .map_err(text)?;
        report.changelog_wrong = differing(&model, &state);
        Ok(report)
    }
}

/// Runs `word_count` under this plan over three topics of six partitions.
///
/// # Errors
/// When something cannot be run, or the application ends by itself.
pub fn word_count(plan: &Plan) -> Outcome<Report> {
    let mut random = Random(plan.seed | 1);
    let mut client = plan.client()?;
    let words = Words::prepare(&mut client)?;
    // On Kafka half of the input comes while the application runs; the embedded broker has one process at a time.
    let first = if plan.bootstrap.is_some() { plan.records / 2 } else { plan.records };
    produce_lines(&mut client, random.below(u64::MAX), 0, first)?;
    let more = random.below(u64::MAX);
    let told = if plan.bootstrap.is_some() {
        std::thread::scope(|scope| {
            let producer = scope.spawn(move || produce_lines(&mut client, more, first, plan.records));
            plan.torment(&mut random, || producer.join().unwrap_or_else(|_| Err("the producer panicked".to_owned())))
        })?
    } else {
        drop(client);
        plan.torment(&mut random, || Ok(()))?
    };
    words.compare(&mut plan.client()?, &plan.application_id, told.report())
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

fn differing(model: &HashMap<String, u64>, state: &HashMap<String, u64>) -> u64 {
    let wrong = model.iter().filter(|(w, n)| state.get(*w) != Some(n)).count();
    let more = state.keys().filter(|w| !model.contains_key(*w)).count();
    (wrong + more) as u64
}
