//! Kills an example again and again, restarts it with other lane counts, and compares what it wrote with a model that is
//! computed from its input. Used by the program `faults` and, shorter, by the tests.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use stoat_core::broker::Broker;
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig};
use stoat_core::hash::partition_for;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

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
    /// How long it lives each time, at least and at most.
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
    /// For each start: changelog records held, and replayed.
    pub restores: Vec<(u64, u64)>,
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
    fn client(&self) -> Outcome<BlockingClient> {
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
                let name = format!("faults-{}", self.application_id);
                let broker = KafkaBroker::new(KafkaConfig::new(bootstrap.as_str(), &name, &name)).map_err(text)?;
                Ok(BlockingClient::new(Box::new(broker)))
            }
            #[cfg(not(feature = "kafka"))]
            Some(_) => Err("built without the feature `kafka`".to_owned()),
        }
    }

    fn start(&self, lanes: u32, last: bool) -> Outcome<Child> {
        let mut command = Command::new(&self.exe);
        command.arg("--application-id").arg(&self.application_id);
        command.arg("--state-dir").arg(&self.state_dir).arg("--lanes").arg(lanes.to_string());
        command.args(["--set", "stoat.commit.interval=100ms", "--set", "stoat.state.flush-epochs=20"]);
        if let Some(b) = &self.bootstrap {
            command.arg("--bootstrap-servers").arg(b);
        }
        command.arg(if last { "--until-done" } else { "--no-input" });
        command.stdout(Stdio::null()).stderr(Stdio::piped()).env("STOAT_LOG", "info");
        command.spawn().map_err(|e| format!("{} cannot be started: {e}", self.exe.display()))
    }

    /// Kills and restarts; when `ready` has returned, lets it come to its end.
    fn torment(&self, random: &mut Random, ready: impl FnOnce() -> Outcome<()>) -> Outcome<Vec<(u64, u64)>> {
        let lanes = |n: u32| self.lanes[n as usize % self.lanes.len()];
        let mut restores = Vec::new();
        for kill in 0..self.kills {
            let mut child = self.start(lanes(kill), false)?;
            let (least, most) = (self.life.0.as_millis() as u64, self.life.1.as_millis() as u64);
            std::thread::sleep(Duration::from_millis(least + random.below(most - least + 1)));
            if let Some(status) = child.try_wait().map_err(text)? {
                return Err(format!("it ended by itself with {status}: {}", drain(&mut child)));
            }
            child.kill().map_err(text)?;
            child.wait().map_err(text)?;
            restores.extend(restored(&drain(&mut child)));
            let stores = self.state_dir.join(&self.application_id).join("stores");
            if self.wipe_after == Some(kill) && stores.exists() {
                std::fs::remove_dir_all(&stores).map_err(text)?;
            }
        }
        ready()?;
        let mut child = self.start(lanes(self.kills), true)?;
        let log = drain(&mut child);
        let status = child.wait().map_err(text)?;
        if !status.success() {
            return Err(format!("the last run ended with {status}: {log}"));
        }
        restores.extend(restored(&log));
        Ok(restores)
    }
}

/// All that a child writes to standard error until it ends.
fn drain(child: &mut Child) -> String {
    let mut log = String::new();
    if let Some(mut err) = child.stderr.take() {
        // A text that cannot be read is as good as none: the exit code decides.
        let _ = err.read_to_string(&mut log);
    }
    log
}

/// The figures of a start's restore, from its log line.
fn restored(log: &str) -> Option<(u64, u64)> {
    let line = log.lines().find(|l| l.contains("in_changelogs="))?;
    let figure = |name: &str| line.split(name).nth(1)?.split_whitespace().next()?.parse().ok();
    Some((figure("in_changelogs=")?, figure("replayed=")?))
}

/// Runs `sessions` under this plan over one topic of six partitions.
///
/// # Errors
/// When something cannot be run, or the application ends by itself.
pub fn sessions(plan: &Plan) -> Outcome<Report> {
    let mut random = Random(plan.seed | 1);
    let mut client = plan.client()?;
    client.create_topic("clicks", 6).map_err(text)?;
    client.create_topic("user-sessions", 6).map_err(text)?;
    let ends = |client: &mut BlockingClient, topic: &str| -> Outcome<BTreeMap<i32, i64>> {
        Ok(client.bounds(topic).map_err(text)?.into_iter().map(|(tp, b)| (tp.partition, b.end)).collect())
    };
    if ends(&mut client, "clicks")?.values().any(|end| *end > 0) {
        return Err("topic `clicks` holds records already: the model needs a topic of its own".to_owned());
    }
    let mut produced = 0;
    let mut clock = 1_700_000_000_000;
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
    let restores = plan.torment(&mut random, || Ok(()))?;
    let mut client = plan.client()?;
    let mut report = Report { restores, ..Report::default() };
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
        .read_all("user-sessions", |_, r| {
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

/// Runs `word_count` under this plan over three topics of six partitions.
///
/// # Errors
/// When something cannot be run, or the application ends by itself.
pub fn word_count(plan: &Plan) -> Outcome<Report> {
    const TOPICS: [&str; 3] = ["lines-a", "lines-b", "lines-c"];
    let mut random = Random(plan.seed | 1);
    let mut client = plan.client()?;
    for topic in TOPICS {
        client.create_topic(topic, 6).map_err(text)?;
    }
    client.create_topic("word-counts", 6).map_err(text)?;
    let before: BTreeMap<i32, i64> =
        client.bounds("word-counts").map_err(text)?.into_iter().map(|(tp, b)| (tp.partition, b.end)).collect();
    let topics: Arc<[Arc<str>]> = TOPICS.iter().map(|t| Arc::from(*t)).collect();
    let produce = |client: &mut BlockingClient, random: &mut Random, from: usize, to: usize| -> Outcome<()> {
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
    };
    // On Kafka half of the input comes while the application runs; the embedded broker has one process at a time.
    let first = if plan.bootstrap.is_some() { plan.records / 2 } else { plan.records };
    produce(&mut client, &mut random, 0, first)?;
    let mut more = Random(random.below(u64::MAX) | 1);
    let restores = if plan.bootstrap.is_some() {
        std::thread::scope(|scope| {
            let producer = scope.spawn(move || produce(&mut client, &mut more, first, plan.records));
            plan.torment(&mut random, || producer.join().unwrap_or_else(|_| Err("the producer panicked".to_owned())))
        })?
    } else {
        drop(client);
        plan.torment(&mut random, || Ok(()))?
    };
    let mut client = plan.client()?;
    let mut model: HashMap<String, u64> = HashMap::new();
    let mut report = Report { restores, ..Report::default() };
    for topic in TOPICS {
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
            if r.offset < before.get(&p).copied().unwrap_or(0) {
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
        .read_all(&format!("{}-counts-changelog", plan.application_id), |_, r| {
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

fn differing(model: &HashMap<String, u64>, state: &HashMap<String, u64>) -> u64 {
    let wrong = model.iter().filter(|(w, n)| state.get(*w) != Some(n)).count();
    let more = state.keys().filter(|w| !model.contains_key(*w)).count();
    (wrong + more) as u64
}
