//! Configuration: one typed struct, filled from defaults, a YAML file, the environment, the command line and code.
//!
//! Keys are dotted (`stoat.commit.interval`); units stand in values (`100ms`, `64MiB`). In YAML they nest or stay
//! dotted, in the environment they are `STOAT__COMMIT__INTERVAL`. An unknown key is an error with a did-you-mean; its
//! value is never shown, for it may be a secret.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::affinity::LaneChecks;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Decision;

/// What may be lost or doubled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarantee {
    /// Outputs, state and offsets commit together or not at all.
    ExactlyOnce,
    /// State is exactly that of the committed offsets; outputs of a lost epoch are sent again.
    AtLeastOnce,
}

/// When the embedded broker's journal reaches the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncPolicy {
    /// With each commit; commits that wait share one.
    Commit,
    /// Every second.
    Interval,
    /// When the operating system pleases; survives kill -9, not a power cut.
    Off,
}

/// Where an application begins that has never committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// At the beginning of each partition.
    Earliest,
    /// At its end. Applies once, at the first start; the positions are committed before the first record.
    Latest,
}

/// Which of two differing offsets a start believes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartOffsets {
    /// The application's own epoch record.
    Record,
    /// The consumer group's committed offsets.
    Group,
}

/// What a check does about what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It refuses, which ends the application.
    Error,
    /// It warns once and counts.
    Warn,
    /// It does not look.
    Off,
}

/// When aggregations hand on what has changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EmitMode {
    /// Each update at once.
    #[default]
    Eager,
    /// At the end of an epoch, each key that has changed once, with its last value. What is downstream then sees all
    /// changes of an epoch together: a sum that must be constant is constant at every commit.
    OnBarrier,
}

trait Value: Sized {
    const WHAT: &'static str;
    fn parse(text: &str) -> Option<Self>;
    fn show(&self) -> String;
}

impl Value for String {
    const WHAT: &'static str = "a text of at least one character";
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.to_owned())
    }
    fn show(&self) -> String {
        self.clone()
    }
}

impl Value for PathBuf {
    const WHAT: &'static str = "a path";
    fn parse(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| text.into())
    }
    fn show(&self) -> String {
        self.display().to_string()
    }
}

impl Value for Duration {
    const WHAT: &'static str = "a duration such as `100ms`, `5s` or `1h`";
    fn parse(text: &str) -> Option<Self> {
        humantime::parse_duration(text).ok()
    }
    fn show(&self) -> String {
        humantime::format_duration(*self).to_string()
    }
}

impl Value for bytesize::ByteSize {
    const WHAT: &'static str = "a size such as `64MiB`";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.display().iec().to_string()
    }
}

impl Value for u32 {
    const WHAT: &'static str = "a whole number";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Value for bool {
    const WHAT: &'static str = "`true` or `false`";
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl<T: Value> Value for Option<T> {
    const WHAT: &'static str = T::WHAT;
    fn parse(text: &str) -> Option<Self> {
        T::parse(text).map(Some)
    }
    fn show(&self) -> String {
        self.as_ref().map_or_else(String::new, T::show)
    }
}

macro_rules! choice {
    ($t:ident, $what:literal, $($text:literal => $variant:ident),+) => {
        impl Value for $t {
            const WHAT: &'static str = $what;
            fn parse(text: &str) -> Option<Self> {
                match text.replace('-', "_").to_lowercase().as_str() {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }
            fn show(&self) -> String {
                match self { $(Self::$variant => $text,)+ }.to_owned()
            }
        }
    };
}

choice!(Guarantee, "`exactly_once` or `at_least_once`", "exactly_once" => ExactlyOnce, "at_least_once" => AtLeastOnce);
choice!(FsyncPolicy, "`commit`, `interval` or `off`", "commit" => Commit, "interval" => Interval, "off" => Off);
choice!(EmitMode, "`eager` or `on-barrier`", "eager" => Eager, "on_barrier" => OnBarrier);
choice!(Reset, "`earliest` or `latest`", "earliest" => Earliest, "latest" => Latest);
choice!(StartOffsets, "`record` or `group`", "record" => Record, "group" => Group);
choice!(Verdict, "`error`, `warn` or `off`", "error" => Error, "warn" => Warn, "off" => Off);

choice!(Decision, "`fail`, `retry`, `skip` or `dead_letter`", "fail" => Fail, "retry" => Retry, "skip" => Skip, "dead_letter" => DeadLetter);

macro_rules! config {
    ($($(#[doc = $doc:literal])+ $key:literal $field:ident: $t:ty = $default:expr;)+) => {
        /// The whole configuration of one application.
        #[derive(Clone)]
        pub struct Config {
            $($(#[doc = $doc])+ pub $field: $t,)+
            /// Settings for the Kafka client, under its own names: `stoat.kafka.client.<name>`.
            pub kafka_client: BTreeMap<String, String>,
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($field: $default,)+ kafka_client: BTreeMap::new() }
            }
        }

        /// All keys with their documentation and defaults.
        pub fn keys() -> Vec<(&'static str, String, String)> {
            let d = Config::default();
            let mut all = vec![$(($key, [$($doc),+].concat().trim().to_owned(), d.$field.show())),+];
            let client = "Settings of the Kafka client (librdkafka) under its own names, such as `stoat.kafka.client.security.protocol`.";
            all.push(("stoat.kafka.client.<name>", client.to_owned(), String::new()));
            all
        }

        impl Config {
            fn put(&mut self, key: &str, value: &str) -> Option<std::result::Result<(), &'static str>> {
                match key {
                    $($key => Some(match <$t>::parse(value) {
                        Some(v) => { self.$field = v; Ok(()) }
                        None => Err(<$t as Value>::WHAT),
                    }),)+
                    _ => None,
                }
            }

            fn shown(&self) -> Vec<(String, String)> {
                let mut all = vec![$(($key.to_owned(), self.$field.show())),+];
                all.extend(self.kafka_client.iter().map(|(k, v)| (format!("{CLIENT}{k}"), v.clone())));
                all
            }
        }
    };
}

const CLIENT: &str = "stoat.kafka.client.";
/// With less nothing fits into the shares of the budget.
const LEAST_MEMORY: bytesize::ByteSize = bytesize::ByteSize::mib(1);

config! {
    /// Names the application: consumer group, transactional id, changelogs. Absent: the topology's name.
    "stoat.application-id" application_id: Option<String> = None;
    /// Kafka's bootstrap servers, `host:port,..`. Absent: the embedded broker.
    "stoat.bootstrap-servers" bootstrap_servers: Option<String> = None;
    /// `exactly_once` or `at_least_once`.
    "stoat.processing-guarantee" guarantee: Guarantee = Guarantee::ExactlyOnce;
    /// When aggregations hand on what has changed: `eager`, each update at once, or `on-barrier`, each changed key once per epoch. `on-barrier` needs `exactly_once`.
    "stoat.emit.mode" emit_mode: EmitMode = EmitMode::Eager;
    /// What becomes of a record that cannot be decoded: `fail`, `retry`, `skip` or `dead_letter`. Absent: what the topology decides, else `fail`.
    "stoat.deserialization-exception-handler" decode_gate: Option<Decision> = None;
    /// What becomes of a record that a handler returns an error for: as above.
    "stoat.processing-exception-handler" process_gate: Option<Decision> = None;
    /// What becomes of a record that cannot be encoded or that the broker refuses: as above.
    "stoat.production-exception-handler" produce_gate: Option<Decision> = None;
    /// The topic that dead letters are written to, in the transaction that commits the source record's offset.
    "stoat.dead-letter.topic" dead_letter_topic: Option<String> = None;
    /// Whether records that an operator leaves out (no key, no value) become dead letters too.
    "stoat.dead-letter.dropped" dead_letter_dropped: bool = false;
    /// Lanes per sub-topology. Absent: the number of cores, at least 2.
    "stoat.lanes" lanes: Option<u32> = None;
    /// One budget for fetch buffers, producer queue, uncommitted bytes, caches and RocksDB.
    "stoat.memory.budget" memory_budget: bytesize::ByteSize = bytesize::ByteSize::mib(64);
    /// Where local state and the embedded broker's journal are; below it one folder per application id.
    "stoat.state.dir" state_dir: PathBuf = PathBuf::from("stoat-state");
    /// A store's bytes are made durable at least every so many epochs.
    "stoat.state.flush-epochs" flush_epochs: u32 = 100;
    /// A fixed commit interval. Absent: adaptive.
    "stoat.commit.interval" commit_interval: Option<Duration> = None;
    /// The shortest adaptive commit interval.
    "stoat.commit.interval-min" commit_interval_min: Duration = Duration::from_millis(10);
    /// The longest adaptive commit interval.
    "stoat.commit.interval-max" commit_interval_max: Duration = Duration::from_secs(5);
    /// Bounds every wait on the commit path; what takes longer ends in a restart of the engine.
    "stoat.commit.timeout" commit_timeout: Duration = Duration::from_mins(1);
    /// How long an `async` handler may wait. A commit waits for it, so it is less than `stoat.commit.timeout`.
    "stoat.handler.timeout" handler_timeout: Duration = Duration::from_secs(30);
    /// An idle application commits this often, so that offsets and stamps never grow old.
    "stoat.commit.keep-alive" keep_alive: Duration = Duration::from_mins(30);
    /// How long an empty partition that has more to come holds back the others it is merged with.
    "stoat.ingest.max-wait" max_wait: Duration = Duration::from_secs(1);
    /// How often watermark marks go through the lanes.
    "stoat.watermark.interval" watermark_interval: Duration = Duration::from_millis(200);
    /// How often the wall clock moves where timers or punctuators follow it.
    "stoat.wall-clock.interval" wall_interval: Duration = Duration::from_millis(10);
    /// What is done about a timer of the current key, or a write of a `KeyValueStore`, that belongs to another lane: `error`, `warn` or `off`.
    "stoat.processing.timer-lane-affinity-guard" lane_guard: Verdict = Verdict::Error;
    /// What is done where the key of a record, written by its codec, picks another lane: `error`, `warn` or `off`. Looked at for the first 64 records of each processor and lane, then for 1 in 4,096.
    "stoat.processing.timer-lane-affinity-sampled-check" lane_sampled_check: Verdict = Verdict::Warn;
    /// Where an application begins that has never committed: `earliest` or `latest`.
    "stoat.start.reset" start_reset: Reset = Reset::Earliest;
    /// Which offsets a start believes when the epoch record and the consumer group differ: `record` or `group`. Absent: neither, it stops.
    "stoat.start.offsets" start_offsets: Option<StartOffsets> = None;
    /// Whether a start without an epoch record may go on from the group's offsets although changelogs hold records.
    "stoat.start.take-over" take_over: bool = false;
    /// How long a start waits for live members of the consumer group to go away.
    "stoat.start.group-wait" group_wait: Duration = Duration::from_secs(50);
    /// Faults (handler panics, lost transactions) within the window before the process ends with exit code 4.
    "stoat.restart.max-faults" max_faults: u32 = 5;
    /// The window of `stoat.restart.max-faults`.
    "stoat.restart.window" fault_window: Duration = Duration::from_mins(5);
    /// How long a graceful stop may take.
    "stoat.shutdown.timeout" shutdown_timeout: Duration = Duration::from_secs(25);
    /// Whether missing source and sink topics are created, to keep their records for ever (`retention.ms=-1`). Misspelt topics then look healthy; meant for examples.
    "stoat.topics.create" create_topics: bool = false;
    /// Partitions of topics that are created because of `stoat.topics.create`.
    "stoat.topics.partitions" topic_partitions: u32 = 6;
    /// Replication factor of topics that are created; 0: the broker's default.
    "stoat.topics.replication" topic_replication: u32 = 0;
    /// When the embedded broker's journal reaches the disk: `commit`, `interval` or `off`.
    "stoat.embedded.fsync" embedded_fsync: FsyncPolicy = FsyncPolicy::Commit;
    /// How long the broker lets a transaction be open.
    "stoat.kafka.transaction-timeout" transaction_timeout: Duration = Duration::from_mins(1);
    /// How long a start waits for a broker before it ends with the reason.
    "stoat.kafka.connect-timeout" connect_timeout: Duration = Duration::from_mins(1);
}

/// What is read ahead of a partition at least, in bytes, at each place where it waits.
pub const LEAST_FETCH: usize = 16 << 10;
/// Those places: the Kafka client's queue, the answer on its way there, and the engine's buffer.
const FETCH_PLACES: usize = 3;

/// The parts of the memory budget, in bytes. They add up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The Kafka client's queues, of fetched and of produced records.
    pub client: usize,
    /// Fetched records that wait for their turn.
    pub fetched: usize,
    /// Written and not committed: at half of it the epoch ends early, at all of it no record is dispatched.
    pub uncommitted: usize,
    /// Decoded values that are committed, and the timers that fire next; divided by what each holds.
    pub cache: usize,
    /// RocksDB's block cache and memtables together.
    pub rocksdb: usize,
}

impl Config {
    /// Sets one key.
    ///
    /// # Errors
    /// An unknown key (with the nearest known one; the value is not shown), or a value that is not what the key takes.
    pub fn set(&mut self, key: &str, value: &str) -> Result<()> {
        if let Some(name) = key.strip_prefix(CLIENT)
            && !name.is_empty()
        {
            self.kafka_client.insert(name.to_owned(), value.to_owned());
            return Ok(());
        }
        match self.put(key, value) {
            Some(Ok(())) => self.limits(key),
            Some(Err(what)) if is_secret(key) => {
                Err(Error::new(ErrorKind::Config, format!("the value of `{key}` is not {what}")))
            }
            Some(Err(what)) => {
                Err(Error::new(ErrorKind::Config, format!("`{key}` is `{}`, which is not {what}", mask(key, value))))
            }
            None => Err(unknown(key)),
        }
    }

    /// The checks of lane affinity, as configured.
    pub fn lane_checks(&self) -> LaneChecks {
        LaneChecks { guard: self.lane_guard, sampled: self.lane_sampled_check, ..LaneChecks::default() }
    }

    /// Refuses values that parse but with which nothing would go on.
    fn limits(&self, key: &str) -> Result<()> {
        let why = match key {
            "stoat.lanes" if self.lanes == Some(0) => "at least one lane is needed",
            "stoat.topics.partitions" if self.topic_partitions == 0 => "a topic has at least one partition",
            "stoat.memory.budget" if self.memory_budget < LEAST_MEMORY => "at least 1MiB is needed",
            "stoat.commit.timeout" if self.commit_timeout.is_zero() => {
                "no commit ends in no time; a minute (`1m`) is usual"
            }
            "stoat.handler.timeout" if self.handler_timeout.is_zero() => {
                "no handler that waits ends in no time; half a minute (`30s`) is usual"
            }
            "stoat.commit.keep-alive" if self.keep_alive.is_zero() => {
                "an idle application would commit without a pause; half an hour (`30m`) is usual"
            }
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Config, format!("`{key}` is too small: {why}")))
    }

    /// Refuses values that do not go together. To be asked when all are set.
    ///
    /// # Errors
    /// When a handler may wait longer than a commit waits for it; [`EmitMode::OnBarrier`] without [`Guarantee::ExactlyOnce`].
    pub fn check(&self) -> Result<()> {
        if self.emit_mode == EmitMode::OnBarrier && self.guarantee == Guarantee::AtLeastOnce {
            return Err(Error::new(
                ErrorKind::Config,
                "`stoat.emit.mode` is `on-barrier`, which needs `stoat.processing-guarantee: exactly_once`: with \
                 `at_least_once` outputs are not part of the commit, so no reader would see them together",
            ));
        }
        if self.handler_timeout < self.commit_timeout {
            return Ok(());
        }
        let shown = humantime::format_duration;
        Err(Error::new(
            ErrorKind::Config,
            format!(
                "`stoat.handler.timeout` is {}, but a commit waits for handlers no longer than `stoat.commit.timeout`, {}: \
                 make the first smaller or the second larger",
                shown(self.handler_timeout),
                shown(self.commit_timeout)
            ),
        ))
    }

    /// Reads a YAML file on top of what is set.
    ///
    /// # Errors
    /// When the file cannot be read or parsed, or as [`Config::set`].
    pub fn file(&mut self, path: &Path) -> Result<()> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            Error::with_source(
                ErrorKind::Config,
                format!("the configuration file {} cannot be read", path.display()),
                e,
            )
        })?;
        self.yaml(&text).map_err(|e| e.at(format!("in {}", path.display())))
    }

    /// Reads YAML text on top of what is set.
    ///
    /// # Errors
    /// When it cannot be parsed, or as [`Config::set`].
    pub fn yaml(&mut self, text: &str) -> Result<()> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let tree: serde_json::Value = serde_saphyr::from_str(text).map_err(|e| {
            // Only the first line: what follows may quote the file, and with it a secret.
            let first = e.to_string().lines().next().unwrap_or_default().to_owned();
            Error::new(ErrorKind::Config, format!("the YAML cannot be read: {first}"))
        })?;
        let mut flat = Vec::new();
        flatten(String::new(), &tree, &mut flat)?;
        flat.iter().try_for_each(|(k, v)| self.set(k, v))
    }

    /// Reads variables `STOAT__SECTION__KEY` on top of what is set; one underscore stands for a hyphen, below
    /// `STOAT__KAFKA__CLIENT__` two stand for a dot.
    ///
    /// # Errors
    /// As [`Config::set`].
    pub fn env(&mut self, vars: impl IntoIterator<Item = (String, String)>) -> Result<()> {
        let mut vars: Vec<_> = vars.into_iter().filter(|(k, _)| k.starts_with("STOAT__")).collect();
        vars.sort();
        for (name, value) in vars {
            let key = name.to_lowercase().replace("__", ".").replace('_', "-");
            self.set(&key, &value).map_err(|e| e.at(format!("environment variable {name}")))?;
        }
        Ok(())
    }

    /// The number of lanes per sub-topology.
    pub fn lane_count(&self) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(2, |n| n.get() as u32).max(2);
        self.lanes.unwrap_or_else(cores).max(1)
    }

    /// The application id.
    ///
    /// # Errors
    /// When none is set, or it cannot be part of a topic name.
    pub fn application_id(&self) -> Result<&str> {
        let id = self.application_id.as_deref().ok_or_else(|| {
            Error::new(
                ErrorKind::Config,
                "`stoat.application-id` is not set: it names the consumer group and the changelogs",
            )
        })?;
        let legal = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if id.len() > 180 || !id.chars().all(legal) {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "`stoat.application-id` is `{id}`: it becomes part of topic names, so use at most 180 of a-z, A-Z, 0-9, `.`, `_`, `-`"
                ),
            ));
        }
        if id.chars().all(|c| c == '.') {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "`stoat.application-id` is `{id}`: it also names a folder, so it must not consist of dots alone"
                ),
            ));
        }
        Ok(id)
    }

    /// The configured decisions of the gates: decode, process, produce.
    pub(crate) fn gates(&self) -> [Option<Decision>; 3] {
        [self.decode_gate, self.process_gate, self.produce_gate]
    }

    /// How the memory budget is divided (I-7).
    pub fn shares(&self) -> Shares {
        let budget = self.memory_budget.as_u64() as usize;
        Shares {
            client: budget / 4,
            fetched: budget / 8,
            uncommitted: budget / 4,
            cache: budget / 8,
            rocksdb: budget / 4,
        }
    }

    /// What to tell people where so many input partitions read ahead more than the budget has for that: each takes a least
    /// size, however small the budget (I-7).
    pub(crate) fn too_little_memory(&self, partitions: usize) -> Option<String> {
        let shares = self.shares();
        let (needed, there) = (partitions * FETCH_PLACES * LEAST_FETCH, shares.client / 2 + shares.fetched);
        let kib = |bytes: usize| bytesize::ByteSize::kib(bytes.div_ceil(1 << 10) as u64);
        // What is read ahead gets a quarter of the budget.
        let enough = bytesize::ByteSize::mib((4 * needed).div_ceil(1 << 20) as u64);
        (needed > there).then(|| {
            format!(
                "{partitions} input partitions read ahead {} each at least, {} together, and the memory budget has {} for that: \
                 the process may take more memory than `stoat.memory.budget` says; set it to {enough} or more",
                kib(FETCH_PLACES * LEAST_FETCH),
                kib(needed),
                kib(there),
            )
        })
    }

    /// All keys and values, secrets masked.
    pub fn masked(&self) -> Vec<(String, String)> {
        self.shown().into_iter().map(|(k, v)| (k.clone(), mask(&k, &v))).collect()
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.masked()).finish()
    }
}

fn flatten(prefix: String, value: &serde_json::Value, out: &mut Vec<(String, String)>) -> Result<()> {
    use serde_json::Value as Y;
    match value {
        Y::Object(map) => {
            for (k, v) in map {
                let key = if prefix.is_empty() { k.clone() } else { format!("{prefix}.{k}") };
                flatten(key, v, out)?;
            }
        }
        Y::Null => {}
        Y::Array(_) => {
            return Err(Error::new(ErrorKind::Config, format!("`{prefix}` is a list; every key takes one value")));
        }
        Y::String(s) => out.push((prefix, s.clone())),
        other => out.push((prefix, other.to_string())),
    }
    Ok(())
}

fn unknown(key: &str) -> Error {
    let known = keys();
    let near = known
        .iter()
        .map(|(k, _, _)| (*k, strsim::normalized_damerau_levenshtein(k, key)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .filter(|(_, score)| *score > 0.6);
    let hint = match near {
        Some((k, _)) => format!("did you mean `{k}`?"),
        None if key.contains("kafka") => format!("settings of the Kafka client begin with `{CLIENT}`"),
        None => "all keys begin with `stoat.`; `--list-config` lists them".to_owned(),
    };
    Error::new(ErrorKind::Config, format!("unknown configuration key `{key}`: {hint}"))
}

fn is_secret(key: &str) -> bool {
    const PARTS: [&str; 8] =
        ["password", "secret", "token", "credential", "jaas", "oauthbearer", "key.pem", "passphrase"];
    let key = key.to_lowercase();
    // A misspelt name is a secret's as well: the Kafka client's own settings are not known here.
    let misspelt = |word: &str| PARTS.iter().any(|p| strsim::normalized_damerau_levenshtein(word, p) > 0.7);
    PARTS.iter().any(|p| key.contains(p)) || key.split(|c: char| !c.is_alphanumeric()).any(misspelt)
}

/// Masks a value: all of it where the key's name says so, else the password of `user:password@` and of `password=..`.
pub fn mask(key: &str, value: &str) -> String {
    if is_secret(key) {
        return "******".to_owned();
    }
    let mut text = value.to_owned();
    if let (Some(scheme), Some(at)) = (text.find("://"), text.rfind('@'))
        && let Some(colon) = text[scheme + 3..at.max(scheme + 3)].find(':')
    {
        text.replace_range(scheme + 3 + colon + 1..at, "******");
    }
    for word in ["password=", "secret=", "token="] {
        if let Some(start) = text.to_lowercase().find(word) {
            let from = start + word.len();
            let to = text[from..].find([' ', ';', ',', '&']).map_or(text.len(), |n| from + n);
            text.replace_range(from..to, "******");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_nests_or_stays_dotted_and_units_stand_in_values() {
        let mut c = Config::default();
        c.yaml("stoat:\n  commit:\n    interval: 100ms\n  lanes: 16\nstoat.memory.budget: 256MiB\n").unwrap();
        assert_eq!(c.commit_interval, Some(Duration::from_millis(100)));
        assert_eq!(c.lane_count(), 16);
        assert_eq!(c.memory_budget.as_u64(), 256 << 20);
    }

    #[test]
    fn the_environment_and_the_client_pass_through() {
        let mut c = Config::default();
        let vars = [
            ("STOAT__COMMIT__INTERVAL_MIN", "20ms"),
            ("STOAT__KAFKA__CLIENT__SASL__PASSWORD", "hunter2"),
            ("PATH", "x"),
        ];
        c.env(vars.map(|(k, v)| (k.to_owned(), v.to_owned()))).unwrap();
        assert_eq!(c.commit_interval_min, Duration::from_millis(20));
        assert_eq!(c.kafka_client["sasl.password"], "hunter2");
    }

    #[test]
    fn i07_the_shares_add_up_to_the_budget() {
        let c = Config::default();
        let s = c.shares();
        assert_eq!((s.client + s.fetched + s.uncommitted + s.cache + s.rocksdb) as u64, c.memory_budget.as_u64());
    }

    #[test]
    fn n20_a_budget_that_is_too_small_for_the_partitions_is_named_with_what_they_need() {
        let mut c = Config::default();
        for (budget, enough) in [("64MiB", 341), ("1MiB", 5), ("400MiB", 2_133)] {
            c.set("stoat.memory.budget", budget).unwrap();
            assert_eq!(c.too_little_memory(enough), None, "{budget}");
            assert!(c.too_little_memory(enough + 1).is_some(), "{budget}");
        }
        c.set("stoat.memory.budget", "64MiB").unwrap();
        assert_eq!(
            c.too_little_memory(2_000).unwrap(),
            "2000 input partitions read ahead 48.0 KiB each at least, 93.8 MiB together, and the memory budget has 16.0 MiB \
             for that: the process may take more memory than `stoat.memory.budget` says; set it to 375.0 MiB or more"
        );
        c.set("stoat.memory.budget", "375MiB").unwrap();
        assert_eq!(c.too_little_memory(2_000), None);
    }

    #[test]
    fn n16_no_secret_is_shown() {
        let mut c = Config::default();
        c.set("stoat.kafka.client.sasl.password", "hunter2").unwrap();
        c.set("stoat.kafka.client.sasl.oauthbearer.config", "secret=hunter2").unwrap();
        c.set("stoat.kafka.client.registry.url", "http://u:hunter2@h").unwrap();
        c.set("stoat.kafka.client.x", "a=1;password=hunter2;b=2").unwrap();
        assert!(!format!("{c:?}").contains("hunter2"), "{c:?}");
        let e = c.set("stoat.kafka.sasl.pasword", "hunter2").unwrap_err();
        assert!(!e.to_string().contains("hunter2") && e.exit_code() == 2, "{e}");
        let e = c.yaml("stoat.password: [hunter2").unwrap_err();
        assert!(!e.to_string().contains("hunter2"), "{e}");
        // Settings of the Kafka client go through as they are, misspelt ones too.
        for key in ["sasl.pasword", "sasl.passwrd", "ssl.keystore.pasword", "sasl.oauthbearer.client.secrt"] {
            c.set(&format!("stoat.kafka.client.{key}"), "hunter2").unwrap();
        }
        let var = |name: &str| [(name.to_owned(), "hunter2".to_owned())];
        c.env(var("STOAT__KAFKA__CLIENT__SASL__PASSWORD")).unwrap();
        assert!(!format!("{c:?}").contains("hunter2"), "{c:?}");
        let e = c.env(var("STOAT__KAFKA__SASL__PASSWORD")).unwrap_err();
        assert!(!e.to_string().contains("hunter2"), "{e}");
        // And what is no secret is shown.
        let hidden: Vec<&str> = keys().into_iter().map(|(k, _, _)| k).filter(|k| is_secret(k)).collect();
        assert_eq!(hidden, [""; 0]);
        assert_eq!(mask("stoat.kafka.client.sasl.mechanism", "PLAIN"), "PLAIN");
    }

    #[test]
    fn an_unknown_key_names_the_nearest_and_a_bad_value_says_what_is_taken() {
        let mut c = Config::default();
        let e = c.set("stoat.comit.interval", "1s").unwrap_err().to_string();
        assert!(e.contains("did you mean `stoat.commit.interval`?"), "{e}");
        let e = c.set("stoat.commit.interval", "100").unwrap_err().to_string();
        assert!(e.contains("a duration such as"), "{e}");
        assert!(c.yaml("stoat.lanes: [1, 2]").unwrap_err().to_string().contains("list"));
        c.set("stoat.application-id", "a b").unwrap();
        assert!(c.application_id().unwrap_err().to_string().contains("topic names"));
    }

    #[test]
    fn i08_a_handler_may_wait_less_long_than_a_commit() {
        let mut c = Config::default();
        c.check().unwrap();
        c.set("stoat.handler.timeout", "1m").unwrap();
        let e = c.check().unwrap_err();
        assert!(e.to_string().contains("`stoat.handler.timeout` is 1m"), "{e}");
        assert_eq!(e.exit_code(), 2);
        // Whichever is set first.
        c.set("stoat.commit.timeout", "2m").unwrap();
        c.check().unwrap();
    }

    #[test]
    fn values_with_which_nothing_would_go_on_are_refused() {
        let mut c = Config::default();
        for (key, value) in [
            ("stoat.lanes", "0"),
            ("stoat.topics.partitions", "0"),
            ("stoat.memory.budget", "1KiB"),
            ("stoat.commit.timeout", "0s"),
            ("stoat.handler.timeout", "0s"),
            ("stoat.commit.keep-alive", "0s"),
        ] {
            let e = c.set(key, value).unwrap_err();
            assert!(e.to_string().contains(key) && e.to_string().contains("too small"), "{e}");
            assert_eq!(e.exit_code(), 2);
        }
        c.set("stoat.memory.budget", "1MiB").unwrap();
        let e = c.set("stoat.application-id", "").unwrap_err().to_string();
        assert!(e.ends_with("not a text of at least one character"), "{e}");
    }

    #[test]
    fn i05_emitting_at_barriers_needs_exactly_once() {
        let mut c = Config::default();
        assert_eq!(c.emit_mode, EmitMode::Eager);
        c.set("stoat.emit.mode", "on-barrier").unwrap();
        c.check().unwrap();
        c.set("stoat.processing-guarantee", "at_least_once").unwrap();
        let e = c.check().unwrap_err();
        assert!(e.to_string().contains("stoat.emit.mode") && e.exit_code() == 2, "{e}");
    }

    #[test]
    fn an_application_id_does_not_lead_out_of_the_state_directory() {
        let mut c = Config::default();
        for id in [".", ".."] {
            c.set("stoat.application-id", id).unwrap();
            assert!(c.application_id().unwrap_err().to_string().contains("dots alone"));
        }
    }
}
