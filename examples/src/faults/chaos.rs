//! Applications under load on an Apache Kafka of their own, while they are killed and the broker and the connections to it
//! are stopped, restarted, cut and held.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::{Command as Ask, Reply};
use stoat_core::id::TopicPartition;

use super::{
    Clicks, Load, Log, Outcome, OwnKafka, PATIENCE, Plan, Proxy, Random, Report, Story, Transfers, Words, text,
};

/// What is done, and how often.
#[derive(Clone, Debug)]
pub struct Chaos {
    /// The folder of Kafka's jars.
    pub jars: PathBuf,
    /// The folder of the examples' binaries.
    pub programs: PathBuf,
    /// Where broker and applications keep their files.
    pub dir: PathBuf,
    /// Only these; empty: `word_count`, `sessions` and `money`.
    pub stories: Vec<String>,
    /// How often each application is killed with SIGKILL, at least: as long as the broker is tormented it goes on.
    pub kills: u32,
    /// How long an application lives before, at least and at most: most often from a commit on.
    pub life: (Duration, Duration),
    /// How often the broker is restarted: in turn asked to end, and killed with SIGKILL.
    pub restarts: u32,
    /// How often the broker stands still (SIGSTOP, SIGCONT).
    pub stalls: u32,
    /// For how long, at least and at most. Longer than 20 s the broker would lose its partitions.
    pub stall: (Duration, Duration),
    /// How often the connections are cut: in turn at once; after they were held, so that requests and answers are lost; and
    /// with no new ones for a while.
    pub cuts: u32,
    /// The pause between two blows to the broker, at least and at most.
    pub pause: (Duration, Duration),
    /// Input records per second of each story.
    pub per_second: usize,
    /// Lane counts, taken in turn.
    pub lanes: Vec<u32>,
    /// Chooses input and moments.
    pub seed: u64,
}

/// What happened to one application.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its name.
    pub story: &'static str,
    /// How often it was killed.
    pub kills: u32,
    /// Of these: with input that was fed and not yet committed.
    pub at_work: u32,
    /// Of these: while it started or restored.
    pub at_start: u32,
    /// Ends that it came to by itself, with its last words.
    pub ended: Vec<String>,
    /// Restarts of the engine within a process, as its log tells.
    pub in_place: u32,
    /// What was compared.
    pub report: Report,
}

impl Row {
    /// Whether nothing was lost, doubled or wrong.
    pub fn exact(&self) -> bool {
        let r = &self.report;
        r.output > 0 && r.lost + r.doubled + r.changelog_wrong + r.cuts_wrong == 0
    }
}

/// What happened to the broker and the connections.
#[derive(Clone, Copy, Debug, Default)]
pub struct Happened {
    /// Restarts after SIGTERM, and after SIGKILL.
    pub restarts: (u32, u32),
    /// Times it stood still, and for how long in all.
    pub stalls: (u32, Duration),
    /// Cuts at once, after a hold, with refusals; and how many streams were cut in all.
    pub cuts: (u32, u32, u32),
    /// Streams cut.
    pub streams: usize,
}

/// All that happened.
#[derive(Clone, Debug, Default)]
pub struct Chaotic {
    /// The applications.
    pub rows: Vec<Row>,
    /// The broker.
    pub broker: Happened,
    /// How long the applications were tormented, and all of it with the comparison.
    pub took: (Duration, Duration),
}

#[derive(Clone, Copy)]
enum Blow {
    Restart { kill: bool },
    Stall,
    Cut,
    Hold,
    Refuse,
}

/// How long an application may take to come to a commit, however long the broker takes to serve again.
const LONGEST: Duration = Duration::from_mins(6);
/// How long a commit takes at most that no client disturbs.
const SETTLES: Duration = Duration::from_secs(2);

impl Chaos {
    fn blows(&self, random: &mut Random) -> Vec<Blow> {
        let restarts = (0..self.restarts).map(|n| Blow::Restart { kill: n % 2 == 0 });
        let cuts = (0..self.cuts).map(|n| [Blow::Hold, Blow::Cut, Blow::Refuse][n as usize % 3]);
        let mut all: Vec<Blow> = restarts.chain((0..self.stalls).map(|_| Blow::Stall)).chain(cuts).collect();
        for i in (1..all.len()).rev() {
            all.swap(i, random.below(i as u64 + 1) as usize);
        }
        all
    }

    fn plan(&self, program: &str, bootstrap: String) -> Plan {
        Plan {
            exe: self.programs.join(program),
            bootstrap: Some(bootstrap),
            application_id: format!("chaos-{}", program.replace('_', "-")),
            state_dir: self.dir.join("state"),
            records: 0,
            kills: self.kills,
            life: self.life,
            lanes: self.lanes.clone(),
            wipe_after: Some(self.kills / 2),
            seed: self.seed,
        }
    }
}

/// A moment between two times.
fn between(random: &mut Random, (least, most): (Duration, Duration)) -> Duration {
    let span = most.saturating_sub(least).as_millis() as u64;
    least + Duration::from_millis(random.below(span + 1))
}

/// Starts a broker, torments applications and broker, compares what was written with models. `tell` hears of what happens.
///
/// # Errors
/// When something cannot be started, or an application comes to no commit within minutes.
pub fn chaos(chaos: &Chaos, tell: &(dyn Fn(&str) + Sync)) -> Outcome<Chaotic> {
    let began = Instant::now();
    let proxy = Proxy::listen()?;
    let mut kafka = OwnKafka::start(&chaos.jars, &chaos.dir, Some(proxy.port()))?;
    proxy.lead_to(kafka.proxied_port());
    let (direct, proxied) = (kafka.direct(), format!("127.0.0.1:{}", proxy.port()));
    let wanted = |name: &str| chaos.stories.is_empty() || chaos.stories.iter().any(|s| s == name);
    let (over, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let tormented = Instant::now();
    let mut result = Chaotic::default();
    let rows: Vec<Outcome<(Row, Box<dyn Story>)>> = std::thread::scope(|scope| {
        let mut running = Vec::new();
        let client = chaos.plan("preparing", direct.clone()).client()?;
        let mut client = Some(client);
        for (n, name) in ["word_count", "sessions", "money"].into_iter().enumerate() {
            if !wanted(name) {
                continue;
            }
            let Some(client) = client.as_mut() else { continue };
            let seed = chaos.seed.wrapping_mul(31).wrapping_add(n as u64);
            let story: Box<dyn Story> = match name {
                "word_count" => Box::new(Words::with_seed(client, seed)?),
                "sessions" => Box::new(Clicks::prepare(client, seed)?),
                _ => Box::new(Transfers::prepare(client, seed)?),
            };
            let torment = Torment {
                plan: chaos.plan(name, proxied.clone()),
                direct: chaos.plan(name, direct.clone()),
                random: Random(seed | 1),
                over: &over,
                failed: &failed,
                tell,
            };
            let per_second = chaos.per_second;
            running.push(scope.spawn(move || {
                let result = torment.run(story, per_second);
                if result.is_err() {
                    torment.failed.store(true, Ordering::SeqCst);
                }
                result
            }));
        }
        client.take();
        let struck = strike(chaos, &mut kafka, &proxy, &failed, tell);
        // Whatever happened: it must be over for the threads to end.
        over.store(true, Ordering::SeqCst);
        result.broker = struck.inspect_err(|_| failed.store(true, Ordering::SeqCst))?;
        let end =
            |r: std::thread::ScopedJoinHandle<'_, _>| r.join().unwrap_or_else(|_| Err("a thread panicked".into()));
        Ok::<_, String>(running.into_iter().map(end).collect())
    })?;
    result.took.0 = tormented.elapsed();
    for row in rows {
        let (mut row, story) = row?;
        let plan = chaos.plan(row.story, direct.clone());
        row.report = story.compare(&mut plan.client()?, &plan.application_id, Report::default())?;
        result.rows.push(row);
    }
    result.took.1 = began.elapsed();
    Ok(result)
}

/// Deals the blows to the broker and to the connections.
fn strike(
    chaos: &Chaos,
    kafka: &mut OwnKafka,
    proxy: &Proxy,
    failed: &AtomicBool,
    tell: &(dyn Fn(&str) + Sync),
) -> Outcome<Happened> {
    let mut random = Random(chaos.seed | 1);
    let mut done = Happened::default();
    for blow in chaos.blows(&mut random) {
        if failed.load(Ordering::SeqCst) {
            return Ok(done);
        }
        std::thread::sleep(between(&mut random, chaos.pause));
        match blow {
            Blow::Restart { kill } => {
                let how = if kill { "KILL" } else { "TERM" };
                let since = Instant::now();
                // Kafka 4.4 forgets the markers of a transaction that was about to be committed when the only replica of its
                // partitions ended: while none leads them it takes them for deleted. So what is being committed may end
                // first; transactions that are open stay open, and clients come back once all partitions are led.
                proxy.refuse(true);
                done.streams += proxy.cut();
                std::thread::sleep(SETTLES);
                kafka.end(how)?;
                kafka.serve()?;
                proxy.refuse(false);
                *(if kill { &mut done.restarts.1 } else { &mut done.restarts.0 }) += 1;
                tell(&format!("broker: SIG{how}, serves again after {:.1} s", since.elapsed().as_secs_f32()));
            }
            Blow::Stall => {
                let time = between(&mut random, chaos.stall);
                kafka.signal("STOP")?;
                std::thread::sleep(time);
                kafka.signal("CONT")?;
                done.stalls = (done.stalls.0 + 1, done.stalls.1 + time);
                tell(&format!("broker: stood still for {:.1} s", time.as_secs_f32()));
            }
            Blow::Cut => {
                let n = proxy.cut();
                done.cuts.0 += 1;
                done.streams += n;
                tell(&format!("connections: {n} streams cut"));
            }
            Blow::Hold => {
                let time = between(&mut random, (Duration::from_millis(20), Duration::from_secs(2)));
                proxy.hold(true);
                std::thread::sleep(time);
                let n = proxy.cut();
                proxy.hold(false);
                done.cuts.1 += 1;
                done.streams += n;
                tell(&format!("connections: {n} streams held for {:.1} s, then cut", time.as_secs_f32()));
            }
            Blow::Refuse => {
                let time = between(&mut random, (Duration::from_millis(500), Duration::from_secs(5)));
                proxy.refuse(true);
                let n = proxy.cut();
                std::thread::sleep(time);
                proxy.refuse(false);
                done.cuts.2 += 1;
                done.streams += n;
                tell(&format!("connections: {n} streams cut, none taken for {:.1} s", time.as_secs_f32()));
            }
        }
    }
    Ok(done)
}

/// So often a program may come to its end by itself: whatever is wrong then does not pass.
const OFTEN: usize = 20;

/// One application.
struct Torment<'a> {
    plan: Plan,
    /// The same, but by the way that is never cut.
    direct: Plan,
    random: Random,
    /// Whether the broker has been dealt all blows.
    over: &'a AtomicBool,
    failed: &'a AtomicBool,
    tell: &'a (dyn Fn(&str) + Sync),
}

impl Torment<'_> {
    fn run(&self, story: Box<dyn Story>, per_second: usize) -> Outcome<(Row, Box<dyn Story>)> {
        let feeder = self.direct.clone();
        let (name, sources) = (story.program(), story.sources());
        let load = Load::start(story, move || feeder.client_of(&format!("feeder-{name}")), per_second);
        let mut row = Row { story: name, ..Row::default() };
        let mut random = Random(self.random.0);
        while row.kills < self.plan.kills || !self.over.load(Ordering::SeqCst) {
            if self.failed.load(Ordering::SeqCst) {
                return Err("something else failed".to_owned());
            }
            self.once(&mut row, &mut random, &load, sources)?;
            if row.ended.len() > OFTEN {
                return Err(format!("{name} ends by itself again and again: {:?}", row.ended.last()));
            }
        }
        let story = load.stop()?;
        (self.tell)(&format!("{name}: no more is fed after {} kills", row.kills));
        self.to_the_end(&mut row)?;
        Ok((row, story))
    }

    fn lanes(&self, row: &Row) -> u32 {
        self.plan.lanes[row.kills as usize % self.plan.lanes.len()]
    }

    fn command(&self, row: &Row, last: bool) -> std::process::Command {
        let mut command = self.plan.command(self.lanes(row), last);
        // A broker that was killed may take more than a minute to serve again.
        command.args(["--set", "stoat.kafka.connect-timeout=5m"]).stdout(Stdio::null());
        command
    }

    /// Starts it and kills it.
    fn once(&self, row: &mut Row, random: &mut Random, load: &Load<Box<dyn Story>>, sources: &[&str]) -> Outcome<()> {
        let mut child = self.command(row, false).spawn().map_err(text)?;
        let mut log = Log::of(&mut child);
        // Every fourth start is killed wherever it is, every fourth after it runs, the others after a commit.
        let moment = [Some(" committed "), Some(" committed "), Some("running epoch="), None][row.kills as usize % 4];
        let came = moment.is_none_or(|m| log.wait_for(m, LONGEST));
        if came {
            std::thread::sleep(between(random, self.plan.life));
        }
        let fed = load.fed();
        let mut ended = child.try_wait().map_err(text)?;
        // Its log ends a moment before it does.
        for _ in 0..100 {
            if came || ended.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            ended = child.try_wait().map_err(text)?;
        }
        child.kill().map_err(text)?;
        child.wait().map_err(text)?;
        let log = log.rest();
        row.in_place += log.matches("restarting in place").count() as u32;
        if let Some(status) = ended {
            let words = log.lines().last().unwrap_or_default();
            (self.tell)(&format!("{}: ended by itself with {status}: {words}", row.story));
            row.ended.push(format!("{status}: {words}"));
            return Ok(());
        }
        if !came {
            return Err(format!("{} came neither to commit nor to its end within {LONGEST:?}: {log}", row.story));
        }
        if log.contains("running epoch=") {
            row.at_work += u32::from(self.committed(sources).is_some_and(|c| c < fed));
        } else {
            row.at_start += 1;
        }
        let stores = self.plan.state_dir.join(&self.plan.application_id).join("stores");
        if self.plan.wipe_after == Some(row.kills) && stores.exists() {
            std::fs::remove_dir_all(&stores).map_err(text)?;
        }
        row.kills += 1;
        if row.kills.is_multiple_of(10) {
            (self.tell)(&format!("{}: killed {} times", row.story, row.kills));
        }
        Ok(())
    }

    /// How many input records are committed; unknown where the broker does not answer just now.
    fn committed(&self, sources: &[&str]) -> Option<u64> {
        let mut client: BlockingClient = self.direct.client_of(&self.direct.application_id).ok()?;
        let mut partitions = Vec::new();
        for topic in sources {
            partitions.extend(client.bounds(topic).ok()?.into_iter().map(|(tp, _)| tp));
        }
        let partitions: Vec<TopicPartition> = partitions;
        let Ok(Reply::Group(g)) = client.call(Ask::Group { partitions }) else { return None };
        Some(g.offsets.iter().flatten().map(|o| u64::try_from(*o).unwrap_or(0)).sum())
    }

    /// Lets it process what is left. It may end by itself before: what came before was too much for it.
    fn to_the_end(&self, row: &mut Row) -> Outcome<()> {
        for _ in 0..3 {
            let mut child = self.command(row, true).spawn().map_err(text)?;
            let mut log = Log::of(&mut child);
            let deadline = Instant::now() + 3 * PATIENCE;
            let status = loop {
                if let Some(status) = child.try_wait().map_err(text)? {
                    break status;
                }
                if Instant::now() > deadline {
                    child.kill().map_err(text)?;
                    child.wait().map_err(text)?;
                    return Err(format!("{} does not come to its end: {}", row.story, log.rest()));
                }
                std::thread::sleep(Duration::from_millis(50));
            };
            let log = log.rest();
            row.in_place += log.matches("restarting in place").count() as u32;
            if status.success() {
                return Ok(());
            }
            row.ended.push(format!("{status}: {}", log.lines().last().unwrap_or_default()));
        }
        Err(format!("{} ended by itself three times: {:?}", row.story, row.ended))
    }
}
