//! Idle and slow partitions and a schedule, by real clocks: on the embedded broker, and on Kafka where there is one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use stoat_core::app::{App, Args, Prepared};
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::engine::core::State;
use stoat_core::engine::executor::Handle;
use stoat_core::prelude::*;
use stoat_core::record::ProduceBatch;
use stoat_core::schedule::{Emit, Missed, Schedule, Tick, When};

use crate::support::{PATIENCE, kafka, unique};

const INPUT: &str = "stoat-test-time";
const OUTPUT: &str = "stoat-test-time-seconds";
const BEATS: &str = "stoat-test-time-beats";
/// As `idleness` of the source says.
const IDLE: Duration = Duration::from_secs(2);
/// Between two ticks, in ms.
const BEAT: i64 = 50;

#[source(topic = "stoat-test-time", key = String, value = String, value_codec = Utf8, out_of_orderness = "0s", idleness = "2s")]
struct Seconds;

#[sink(topic = "stoat-test-time-seconds", key = String, value = String, value_codec = Utf8)]
struct Closed;

#[sink(topic = "stoat-test-time-beats", key = String, value = i64, value_codec = Be)]
struct BeatsOut;

/// Counts a key's records of each second, and forwards the count when the watermark has passed it.
#[processor(input = (String, String), output = String)]
struct PerSecond {
    #[state]
    open: Keyed<BTreeMap<i64, u64>>,
    #[timer]
    ends: Timers,
}

#[handlers]
impl PerSecond {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        if r.value.starts_with("wait") {
            gate().pass();
        }
        if cx.is_late() {
            return cx.forward("late".to_owned());
        }
        if r.value == "tell" {
            cx.forward("seen".to_owned())?;
        }
        let second = r.timestamp.as_millis().div_euclid(1_000);
        self.open.update(BTreeMap::new, |open| *open.entry(second).or_default() += 1)?;
        self.ends.set(Timestamp::from_millis((second + 1) * 1_000))
    }

    #[on_timer(ends)]
    fn on_end(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let second = fired.time.as_millis() / 1_000 - 1;
        match self.open.update(BTreeMap::new, |open| open.remove(&second))? {
            Some(n) => cx.forward(format!("{second}={n}")),
            None => Ok(()),
        }
    }
}

struct Beats;

impl Schedule for Beats {
    type Key = String;
    type Value = i64;
    type KeyCodec = Utf8;
    type ValueCodec = Be;
    const NAME: &'static str = "Beats";

    fn when() -> When {
        When::every(Duration::from_millis(BEAT as u64))
    }

    fn missed() -> Missed {
        Missed::Each
    }

    fn emit(tick: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
        let run = RUN.lock().unwrap_or_else(PoisonError::into_inner).clone();
        out.record(&run, &tick.time.as_millis())
    }
}

#[topology]
fn seconds(t: &mut Topology) {
    t.source::<Seconds>().process::<PerSecond>().sink::<Closed>();
    t.scheduled::<Beats>().sink::<BeatsOut>();
}

/// What the records of the test that runs are called.
static RUN: Mutex<String> = Mutex::new(String::new());

/// Holds up whoever comes until it is opened.
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

static GATE: Gate = Gate { open: Mutex::new(true), opened: Condvar::new() };

fn gate() -> &'static Gate {
    &GATE
}

impl Gate {
    fn pass(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.opened.wait_timeout_while(open, PATIENCE, |open| !*open);
        assert!(waited.is_ok_and(|(open, _)| *open), "nobody has opened the gate");
    }

    fn set(&self, open: bool) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = open;
        self.opened.notify_all();
    }
}

/// How many epochs the application that runs has committed.
struct Commits {
    count: Mutex<u64>,
    more: Condvar,
}

static COMMITS: Commits = Commits { count: Mutex::new(0), more: Condvar::new() };

impl Commits {
    fn reached(&self, commits: u64) {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        if *count != commits {
            *count = commits;
            self.more.notify_all();
        }
    }

    fn count(&self) -> u64 {
        *self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there are others than these.
    fn beyond(&self, commits: u64) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.more.wait_timeout_while(count, PATIENCE, |count| *count == commits);
        assert!(waited.is_ok_and(|(count, _)| *count != commits), "no epoch was committed after {commits}");
    }
}

/// One after another: they share names.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An application and what it reads and writes.
struct Stage {
    bootstrap: Option<String>,
    run: String,
    dir: tempfile::TempDir,
    /// Of the first second, in seconds since 1970.
    base: i64,
}

impl Stage {
    fn new(bootstrap: Option<String>) -> Self {
        let run = unique("time");
        run.clone_into(&mut RUN.lock().unwrap_or_else(PoisonError::into_inner));
        let dir = tempfile::tempdir().expect("a temporary directory");
        // In the past, so that no record is ahead of the clock; not so long ago that a broker would delete it.
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        let mut stage = Self { bootstrap, run, dir, base: now.as_secs() as i64 - 600 };
        // Behind what an earlier run on the same broker has written, or all would be late.
        let app = stage.prepare();
        let mut client = app.client("operator").expect("a client");
        topics(&mut client);
        let read = client.read_all(INPUT, |_, r| stage.base = stage.base.max(r.timestamp.as_millis() / 1_000 + 2));
        read.expect("the broker can be read");
        stage
    }

    fn prepare(&self) -> Prepared {
        let args = Args {
            bootstrap_servers: self.bootstrap.clone(),
            application_id: Some(self.run.clone()),
            state_dir: Some(self.dir.path().display().to_string()),
            lanes: Some("2".to_owned()),
            // Nothing from the environment or a file of the one who runs the test.
            config: Some(none(self.dir.path())),
            ..Args::default()
        };
        App::new("seconds", seconds).prepare(&args).expect("the application is right")
    }

    /// Runs the application while `act` does something with it, then stops it.
    fn during<T: Send>(&self, act: impl FnOnce(&mut Operator<'_>) -> T + Send) -> T {
        let app = self.prepare();
        let (clients, handle) = (app.clients(), app.handle());
        let client = clients("operator").expect("a client");
        std::thread::scope(|scope| {
            let acting = scope.spawn(move || {
                let _stops = Stops(handle.clone());
                act(&mut Operator { stage: self, client, handle })
            });
            app.run(|status| {
                COMMITS.reached(status.run.commits);
                true
            })
            .expect("the application ends well");
            acting.join().expect("the test's part has not failed")
        })
    }
}

fn topics(client: &mut BlockingClient) {
    for (topic, partitions) in [(INPUT, 2), (OUTPUT, 1), (BEATS, 1)] {
        client.create_topic(topic, partitions).expect("a broker that can be reached");
    }
}

/// An empty configuration file.
fn none(dir: &Path) -> std::path::PathBuf {
    let path = dir.join("stoat.yaml");
    std::fs::write(&path, "stoat: {}\n").expect("a temporary directory is writable");
    path
}

/// Stops the application, also where the test fails.
struct Stops(Handle);

impl Drop for Stops {
    fn drop(&mut self) {
        GATE.set(true);
        self.0.stop();
    }
}

struct Operator<'a> {
    stage: &'a Stage,
    client: BlockingClient,
    handle: Handle,
}

impl Operator<'_> {
    /// Writes records of one key, at these times in ms after the first second.
    fn write(&mut self, partition: i32, key: &str, value: &str, times: impl IntoIterator<Item = i64>) {
        let mut batch = ProduceBatch::new(Arc::new([INPUT.into()]));
        let key = format!("{} {key}", self.stage.run);
        for time in times {
            let time = Timestamp::from_millis(self.stage.base * 1_000 + time);
            batch.push(0, partition, time, Some(key.as_bytes()), Some(value.as_bytes()), Headers::default());
        }
        self.client.produce(batch).expect("the broker takes records");
    }

    /// What this run has written, as `key second=count`, the seconds from the first one on.
    fn closed(&mut self) -> Vec<String> {
        let (run, base) = (self.stage.run.clone(), self.stage.base);
        let mut all = Vec::new();
        let read = self.client.read_all(OUTPUT, |_, r| {
            let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
            let Some(key) = text(r.key).strip_prefix(&run).map(|k| k.trim().to_owned()) else { return };
            let value = text(r.value);
            all.push(match value.split_once('=') {
                Some((second, n)) => format!("{key} {}={n}", second.parse::<i64>().unwrap_or_default() - base),
                None => format!("{key} {value}"),
            });
        });
        read.expect("the broker can be read");
        all.sort();
        all
    }

    /// Waits until exactly this was written.
    fn until(&mut self, want: &[&str]) {
        let since = Instant::now();
        loop {
            let commits = COMMITS.count();
            let closed = self.closed();
            if closed == want {
                return;
            }
            assert!(since.elapsed() < PATIENCE && closed.len() <= want.len(), "{closed:?}, not {want:?}");
            COMMITS.beyond(commits);
        }
    }

    /// Pauses the application, and waits until it is.
    fn pause(&self) {
        self.handle.pause().expect("it runs");
        let since = Instant::now();
        loop {
            // A pause commits before it is reached.
            let commits = COMMITS.count();
            if self.handle.state() == State::Paused {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{:?}", self.handle.state());
            COMMITS.beyond(commits);
        }
    }

    fn beats(&mut self) -> Vec<i64> {
        let run = self.stage.run.clone();
        let mut all = Vec::new();
        let read = self.client.read_all(BEATS, |_, r| {
            if r.key == Some(run.as_bytes()) {
                let value: [u8; 8] = r.value.and_then(|v| v.try_into().ok()).expect("8 bytes");
                all.push(i64::from_be_bytes(value));
            }
        });
        read.expect("the broker can be read");
        all
    }
}

fn idle_slow_and_scheduled(bootstrap: Option<String>) {
    let _alone = alone();
    let stage = Stage::new(bootstrap);
    stage.during(|c| {
        // T7: partition 1 has never had a record; it is idle, and holds nobody back.
        c.write(0, "a", "x", [0, 500, 10_000]);
        c.until(&["a 0=2"]);
    });
    stage.during(|c| {
        // T7: nor is it waited for when it was at its end at the start.
        c.write(0, "a", "x", [12_000]);
        c.until(&["a 0=2", "a 10=1"]);
    });
    stage.during(|c| {
        // T8: partition 1 holds the watermark at 12.5 s, and the other one is ahead.
        c.write(1, "b", "x", [12_500]);
        c.write(0, "a", "tell", [20_000]);
        c.until(&["a 0=2", "a 10=1", "a seen"]);
        // Then it has a lag: its next record is held up, and behind it thousands wait, 16 MB, some at the broker.
        GATE.set(false);
        let padded = format!("wait{}", "-".repeat(4_096));
        for n in 0..40 {
            c.write(1, "b", &padded, (0..100).map(|i| 13_000 + n * 10 + i / 10));
        }
        // sleep: how long nothing of the partition is taken is what is tested
        std::thread::sleep(IDLE * 3);
        GATE.set(true);
        c.write(0, "a", "x", [60_000]);
        let since = Instant::now();
        loop {
            let commits = COMMITS.count();
            let closed = c.closed();
            if closed.contains(&"b 13=4000".to_owned()) {
                break;
            }
            assert!(since.elapsed() < PATIENCE, "{closed:?}");
            COMMITS.beyond(commits);
        }
        // A lane that is held up holds up the marks as well; that a slow fetch alone is enough, the simulator shows (`t8_..`).
        assert!(!c.closed().iter().any(|line| line.contains("late")), "{:?}", c.closed());
        // Three starts, one schedule: each tick once, in order, none left out, those of the time in between too.
        let beats = c.beats();
        assert!(beats.len() > 20 && beats.windows(2).all(|w| w[1] == w[0] + BEAT), "{beats:?}");
    });
}

fn paused_resumed_and_stopped(bootstrap: Option<String>) {
    let _alone = alone();
    let stage = Stage::new(bootstrap);
    stage.during(|c| {
        let refused = |result: Result<()>, state: &str| {
            let error = result.expect_err("it is the wrong state").to_string();
            assert!(error.contains(&format!("in the state {state}:")), "{error}");
        };
        c.write(0, "a", "tell", [0]);
        c.until(&["a seen"]);
        refused(c.handle.resume(), "Running");
        c.pause();
        refused(c.handle.pause(), "Paused");
        let beats = c.beats();
        c.write(0, "a", "tell", [500]);
        // sleep: that nothing happens for so long is what is tested
        std::thread::sleep(IDLE);
        assert_eq!(
            (c.handle.state(), c.closed(), c.beats()),
            (State::Paused, vec!["a seen".to_owned()], beats.clone())
        );
        c.handle.resume().expect("it is paused");
        c.until(&["a seen", "a seen"]);
        let since = Instant::now();
        while c.beats().len() <= beats.len() {
            assert!(since.elapsed() < PATIENCE, "no tick after the pause");
            COMMITS.beyond(COMMITS.count());
        }
        // Stopped out of a pause; what comes meanwhile is for the next start.
        c.pause();
        c.write(0, "a", "tell", [700]);
    });
    stage.during(|c| {
        c.until(&["a seen", "a seen", "a seen"]);
        let beats = c.beats();
        assert!(beats.windows(2).all(|w| w[1] == w[0] + BEAT), "each tick came, those of the pauses too: {beats:?}");
    });
}

#[test]
fn an_application_is_paused_resumed_and_stopped_out_of_a_pause_on_the_embedded_broker() {
    paused_resumed_and_stopped(None);
}

#[test]
fn an_application_is_paused_resumed_and_stopped_out_of_a_pause_on_kafka() {
    let test = "an_application_is_paused_resumed_and_stopped_out_of_a_pause_on_kafka";
    let Some((bootstrap, _held)) = kafka(test) else { return };
    paused_resumed_and_stopped(Some(bootstrap));
}

#[test]
fn t7_t8_idle_and_slow_partitions_and_a_schedule_on_the_embedded_broker() {
    idle_slow_and_scheduled(None);
}

#[test]
fn t7_t8_idle_and_slow_partitions_and_a_schedule_on_kafka() {
    let Some((bootstrap, _held)) = kafka("t7_t8_idle_and_slow_partitions_and_a_schedule_on_kafka") else { return };
    idle_slow_and_scheduled(Some(bootstrap));
}
