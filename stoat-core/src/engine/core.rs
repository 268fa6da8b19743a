//! The engine as a value: start, run, recover, stop. It is driven by calls of [`Engine::advance`]; a supervisor that
//! drops it leaves nothing behind.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::ingest::InputSpec;
use super::io::Io;
use super::message::LaneNet;
use super::net::{NetBuild, NetSettings, places};
use super::pace::Pace;
use super::run::{End, Run, RunCx, RunStats};
use super::schedules::Schedules;
use super::start::{Known, Outcome, RestoreReport, Start, StartCx};
use super::writer::StoreWriter;
use crate::broker::Broker;
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::{Gates, Tally, Verdicts};
use crate::id::Generation;
use crate::store::{ByteStore, StoreSet};
use crate::time::{Timestamp, Watermark};
use crate::topology::graph::Graph;

/// Makes the lanes of one generation.
pub type NetFactory = Box<dyn FnMut(&NetBuild<'_>) -> Result<Box<dyn LaneNet>> + Send>;

/// What a timer that fires leaves uncommitted, roughly: its row, what it writes and forwards.
const FIRED: usize = 512;

/// What an engine is made of.
pub struct EngineParts {
    /// The declared topology.
    pub graph: Graph,
    /// The configuration.
    pub config: Config,
    /// The broker.
    pub broker: Box<dyn Broker>,
    /// Local state.
    pub stores: Box<dyn StoreSet>,
    /// Writes to stores.
    pub writer: Box<dyn StoreWriter>,
    /// Makes the lanes.
    pub net: NetFactory,
    /// Names this process; never used twice.
    pub incarnation: String,
    /// Where pauses after a fence take their randomness from.
    pub seed: u64,
}

/// Where an engine is.
///
/// ```text
/// Starting ──▶ Restoring ──▶ Running ── stop, restart ──▶ Stopping ──▶ Stopped
///   ▲  │           │          │  ▲ ▲                        ▲ ▲
///   │  └─ fenced ──┤    pause │  │ └ resume ─┐              │ │ stop, restart
///   │              │          ▼  │ resume    │              │ │
///   │              └───────▶ Draining ────▶ Paused ─────────┘ │
///   │                            └────────────────────────────┘
///   └── from each of them but Stopped: a fault, or the last commit of a restart that was asked for
///
/// Each but Stopped may lead to Failed; `stop` before Running leads straight to Stopped.
/// ```
///
/// [`Engine::pause`] drains like a stop does, and keeps everything: lanes, producer and consumer, the claim on the application.
/// A pause holds until [`Engine::resume`], over restarts in place too: the new generation goes from `Restoring` to `Draining`.
///
/// A restart in place keeps the process, the stores' bytes and what is known about topics; lanes, processors, caches and
/// pending timers are made anew from the last committed cut. After a fault the open epochs are dropped (*abort*); a
/// restart that was asked for drains and commits first (*graceful*). Faults have a budget, restarts that were asked for
/// have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Topics are looked at, the producer is initialised, the application is claimed.
    Starting,
    /// State is read back from the changelogs.
    Restoring,
    /// Records are processed.
    Running,
    /// A pause was asked for: no more records are dispatched; what was commits.
    Draining,
    /// All that was dispatched is committed; nothing happens but what keeps the application owned.
    Paused,
    /// No more records are dispatched; the last epoch commits.
    Stopping,
    /// The last epoch is committed; nothing is open.
    Stopped,
    /// An error ended it; nothing uncommitted was kept.
    Failed,
}

impl State {
    /// Whether this state may be followed by another.
    pub fn leads_to(self, next: Self) -> bool {
        match self {
            Self::Starting => !matches!(next, Self::Starting | Self::Paused),
            Self::Restoring => !matches!(next, Self::Restoring | Self::Paused),
            Self::Running => matches!(next, Self::Draining | Self::Stopping | Self::Starting | Self::Failed),
            Self::Draining => {
                matches!(next, Self::Paused | Self::Running | Self::Stopping | Self::Starting | Self::Failed)
            }
            Self::Paused => matches!(next, Self::Running | Self::Stopping | Self::Starting | Self::Failed),
            Self::Stopping => matches!(next, Self::Stopped | Self::Starting | Self::Failed),
            Self::Stopped | Self::Failed => false,
        }
    }

    /// Whether a pause may begin in this state.
    ///
    /// # Errors
    /// Which state it is, when it is not `Running`.
    pub fn may_pause(self) -> Result<()> {
        match self {
            Self::Running => Ok(()),
            Self::Draining | Self::Paused => Err(self.cannot("paused", "it is already")),
            Self::Starting | Self::Restoring => Err(self.cannot("paused", "ask again once it is Running")),
            Self::Stopping | Self::Stopped | Self::Failed => Err(self.cannot("paused", "it does not run any more")),
        }
    }

    /// Whether a pause may end in this state; `holds`: there is one, which a restart in place keeps.
    ///
    /// # Errors
    /// Which state it is, when nothing is paused, or the application ends.
    pub fn may_resume(self, holds: bool) -> Result<()> {
        match self {
            Self::Draining | Self::Paused => Ok(()),
            Self::Starting | Self::Restoring if holds => Ok(()),
            Self::Starting | Self::Restoring | Self::Running => Err(self.cannot("resumed", "nothing is paused")),
            Self::Stopping | Self::Stopped | Self::Failed => Err(self.cannot("resumed", "it does not run any more")),
        }
    }

    fn cannot(self, what: &str, why: &str) -> Error {
        Error::new(ErrorKind::Lifecycle, format!("the application cannot be {what} in the state {self:?}: {why}"))
    }
}

/// What people see of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// Where it is.
    pub state: State,
    /// What the last restore did, or has done so far.
    pub restore: RestoreReport,
    /// What was processed.
    pub run: RunStats,
    /// Restarts in place since the process started.
    pub restarts: u32,
}

enum Phase {
    Start(Box<Start>),
    Run(Box<Run>),
    Stopped,
}

/// See the module.
pub struct Engine {
    graph: Graph,
    config: Config,
    io: Io,
    set: Box<dyn StoreSet>,
    stores: Vec<Arc<dyn ByteStore>>,
    net: NetFactory,
    incarnation: String,
    seed: u64,
    generation: Generation,
    phase: Phase,
    known: Option<Known>,
    /// What was decided about refused outputs and has not committed yet.
    verdicts: Verdicts,
    /// How far ingest may be ahead of the lanes.
    pace: Pace,
    stop: bool,
    /// When the last epoch is committed, begin again instead of stopping.
    restart: bool,
    /// A pause holds, in this generation and the next ones.
    paused: bool,
    faults: VecDeque<u64>,
    status: Status,
    /// When the first generation began to run, or the last pause ended: what schedules had due before was missed.
    started: Option<Timestamp>,
}

impl Engine {
    /// Puts an engine together; nothing happens before [`Engine::advance`].
    pub fn new(parts: EngineParts, now: u64) -> Self {
        crate::metrics::register();
        Tally::describe();
        let start = Start::first(&parts.incarnation, parts.seed, now);
        Self {
            pace: Pace::new(parts.config.commit_timeout.as_millis() as u64),
            graph: parts.graph,
            config: parts.config,
            io: Io::new(parts.broker, parts.writer),
            set: parts.stores,
            stores: Vec::new(),
            net: parts.net,
            incarnation: parts.incarnation,
            seed: parts.seed,
            generation: Generation(1),
            phase: Phase::Start(Box::new(start)),
            known: None,
            verdicts: Verdicts::default(),
            stop: false,
            restart: false,
            paused: false,
            faults: VecDeque::new(),
            status: Status {
                state: State::Starting,
                restore: RestoreReport::default(),
                run: RunStats::default(),
                restarts: 0,
            },
            started: None,
        }
    }

    /// What people see.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Asks for a graceful stop: no more records, a last commit, every store durable. Before the engine runs it stops
    /// at once.
    pub fn stop(&mut self) {
        self.stop = true;
        self.restart = false;
        self.paused = false;
        match &mut self.phase {
            Phase::Run(run) => {
                run.stop();
                self.enter(State::Stopping);
            }
            Phase::Start(_) => {
                self.phase = Phase::Stopped;
                self.enter(State::Stopped);
            }
            Phase::Stopped => {}
        }
    }

    /// Asks for a graceful restart in place: no more records, a last commit, and then a new beginning from there with
    /// lanes, processors and caches made anew. It is no fault. Before the engine runs there is nothing to restart.
    pub fn restart(&mut self) {
        if let Phase::Run(run) = &mut self.phase
            && !self.stop
        {
            self.restart = true;
            run.stop();
            self.enter(State::Stopping);
        }
    }

    /// Asks for a pause. No more records are taken, neither clock moves (timers, punctuators and schedules wait, no partition
    /// becomes idle), what was taken is processed and commits: [`State::Draining`]. Then the engine is [`State::Paused`] until
    /// [`Engine::resume`]: it keeps its lanes, its stores and its claim, renews them as an idle one does, and stops when another
    /// process takes over. [`Engine::stop`] and [`Engine::restart`] work as ever; after a restart in place it is paused again.
    ///
    /// `now` is the time of [`Engine::advance`].
    ///
    /// # Errors
    /// Which state the engine is in, when it is not `Running`; nothing has changed then.
    pub fn pause(&mut self, now: u64) -> Result<()> {
        self.status.state.may_pause()?;
        if let Phase::Run(run) = &mut self.phase {
            self.paused = true;
            run.pause(now);
            self.enter(State::Draining);
        }
        Ok(())
    }

    /// Ends a pause, also one that is not reached yet: records go on where they stood. Timers of the wall clock that became due
    /// fire now, a punctuator of the wall clock once; a schedule does with the ticks that became due what its
    /// [`Missed`](crate::schedule::Missed) says, as after downtime. For event time and idleness the pause has not been.
    ///
    /// # Errors
    /// Which state the engine is in, when nothing is paused or it ends; nothing has changed then.
    pub fn resume(&mut self, now: u64, wall: Timestamp) -> Result<()> {
        self.status.state.may_resume(self.paused)?;
        self.paused = false;
        self.started = self.started.max(Some(wall));
        if let Phase::Run(run) = &mut self.phase {
            run.resume(now, wall);
            self.enter(State::Running);
        }
        Ok(())
    }

    /// Whether a pause holds, reached or not.
    pub fn is_pausing(&self) -> bool {
        self.paused
    }

    fn enter(&mut self, next: State) {
        let state = &mut self.status.state;
        debug_assert!(*state == next || state.leads_to(next), "{state:?} does not lead to {next:?}");
        *state = next;
    }

    /// Ends with an error.
    fn fail(&mut self, e: Error) -> Error {
        self.phase = Phase::Stopped;
        self.enter(State::Failed);
        e
    }

    /// Has `waker` woken when there is something for [`Engine::advance`] to do.
    pub fn notify(&self, waker: &Waker) {
        self.io.notify(waker);
        if let Phase::Run(run) = &self.phase {
            run.net().notify(waker.clone());
        }
    }

    /// Does what can be done now. Returns the time (monotonic, in ms) before which nothing more is to be done unless
    /// the waker is woken; `None`: only the waker matters.
    ///
    /// # Errors
    /// What ends the process; the engine is then torn down.
    pub fn advance(&mut self, now: u64, wall: Timestamp) -> Result<Option<u64>> {
        let events = self.io.poll();
        match &mut self.phase {
            Phase::Stopped => Ok(None),
            Phase::Start(start) => {
                let mut cx = StartCx {
                    graph: &self.graph,
                    config: &self.config,
                    io: &mut self.io,
                    stores: &mut self.stores,
                    set: &mut *self.set,
                    generation: self.generation,
                    now,
                    wall,
                };
                let outcome = start.advance(&mut cx, events);
                self.status.restore = start.report();
                let state = if start.restoring() { State::Restoring } else { State::Starting };
                self.enter(state);
                match outcome.map_err(|e| self.fail(e))? {
                    Outcome::Pending(at) => Ok(at),
                    Outcome::Ready(known, report) => {
                        self.status.restore = report;
                        self.begin(*known, now, wall).map_err(|e| self.fail(e))?;
                        Ok(Some(now))
                    }
                }
            }
            Phase::Run(run) => {
                let mut cx = RunCx {
                    config: &self.config,
                    io: &mut self.io,
                    stores: &self.stores,
                    incarnation: &self.incarnation,
                    now,
                    wall,
                };
                let turn = run.advance(&mut cx, events);
                self.status.run = run.stats();
                match turn {
                    Ok(at) => {
                        if run.is_paused() && self.status.state == State::Draining {
                            tracing::info!(epoch = self.status.run.epoch, "paused");
                            self.enter(State::Paused);
                        }
                        Ok(at)
                    }
                    Err(End::Stopped) if self.restart => {
                        self.restart = false;
                        run.tear_down(&mut self.io);
                        self.known = Some(run.known().clone());
                        self.pace = run.pace();
                        self.begin_again("it was asked for", false, now);
                        Ok(Some(now))
                    }
                    Err(End::Stopped) => {
                        run.tear_down(&mut self.io);
                        self.phase = Phase::Stopped;
                        self.enter(State::Stopped);
                        Ok(None)
                    }
                    Err(End::Fatal(e)) => {
                        run.tear_down(&mut self.io);
                        Err(self.fail(e))
                    }
                    Err(End::Recover { reason, fenced, counts }) => {
                        let stopped = run.tear_down(&mut self.io);
                        self.known = Some(run.known().clone());
                        self.verdicts = run.take_verdicts();
                        self.pace = run.pace();
                        if !stopped {
                            return Err(self.fail(Error::new(
                                ErrorKind::Handler,
                                format!(
                                    "a handler does not return, so the engine cannot be restarted in place and the process stops; \
                                     nothing uncommitted was kept. What came before: {reason}"
                                ),
                            )));
                        }
                        self.recover(&reason, fenced, counts, now)?;
                        Ok(Some(now))
                    }
                }
            }
        }
    }

    fn begin(&mut self, known: Known, now: u64, wall: Timestamp) -> Result<()> {
        let plan = &known.plan;
        tracing::info!(
            epoch = known.record.epoch.0,
            lanes = ?plan.lane_counts(),
            in_changelogs = self.status.restore.in_changelogs,
            replayed = self.status.restore.replayed,
            "running"
        );
        let watermarks: Vec<Watermark> =
            plan.subs.iter().map(|s| known.record.watermarks.get(&s.name).copied().unwrap_or(Timestamp::MIN)).collect();
        let punctuated: Vec<Watermark> = plan
            .subs
            .iter()
            .zip(&watermarks)
            .map(|(s, w)| known.record.punctuated.get(&s.name).copied().unwrap_or(*w))
            .collect();
        let counts = plan.lane_counts();
        let gates = Arc::new(Gates::of(&self.config, &self.graph, plan, std::mem::take(&mut self.verdicts)));
        let shares = self.config.shares();
        let lanes = counts.iter().sum::<u32>().max(1) as usize;
        // What all lanes fire at one mark, and what that writes, is to take a quarter of the bytes that may be uncommitted.
        let timers_per_mark =
            (shares.uncommitted / 4 / lanes / FIRED).clamp(64, NetSettings::default().timers_per_mark);
        let build = NetBuild {
            graph: &self.graph,
            lane_counts: &counts,
            stores: &self.stores,
            sink_topics: plan.sink_topics.clone(),
            sink_partitions: plan.sink_partitions.clone().into(),
            watermarks: &watermarks,
            punctuated: &punctuated,
            wall: known.record.wall,
            cache_budget: shares.cache,
            gates: gates.clone(),
            settings: NetSettings {
                timers_per_mark: self.pace.share(timers_per_mark),
                checks: self.config.lane_checks(),
                emit: self.config.emit_mode,
                handler_timeout: self.config.handler_timeout,
                ..NetSettings::default()
            },
        };
        let net = (self.net)(&build)?;
        let places = places(&self.graph);
        let specs = plan
            .inputs
            .iter()
            .map(|i| {
                let source = &self.graph.sources[i.source as usize];
                InputSpec {
                    sub: i.sub,
                    entry: places[i.node.0 as usize],
                    group: i.group,
                    lane_key: source.lane_key,
                    watermark: source.watermark.clone(),
                    name: i.partition.to_string(),
                }
            })
            .collect();
        let mut cx = RunCx {
            config: &self.config,
            io: &mut self.io,
            stores: &self.stores,
            incarnation: &self.incarnation,
            now,
            wall,
        };
        if self.started.is_none()
            && let Some(text) = self.config.too_little_memory(known.plan.inputs.len())
        {
            tracing::warn!("{text}");
        }
        let started = *self.started.get_or_insert(wall);
        self.pace.restart();
        let schedules = Schedules::new(&self.graph, &places, &self.stores, &known.record.schedules, started);
        let mut run =
            Run::new(known, specs, schedules, net, gates, self.pace.clone(), self.generation, self.status.run, &mut cx);
        let state = match (self.stop, self.paused) {
            (true, _) => State::Stopping,
            (false, true) => State::Draining,
            (false, false) => State::Running,
        };
        match state {
            State::Stopping => run.stop(),
            State::Draining => run.pause(now),
            _ => {}
        }
        self.phase = Phase::Run(Box::new(run));
        self.enter(state);
        Ok(())
    }

    /// One path for every end of an epoch that is not success (I-9).
    fn recover(&mut self, reason: &str, fenced: bool, counts: bool, now: u64) -> Result<()> {
        if counts {
            let window = self.config.fault_window.as_millis() as u64;
            self.faults.push_back(now);
            while self.faults.front().is_some_and(|t| now.saturating_sub(*t) > window) {
                self.faults.pop_front();
            }
            if self.faults.len() > self.config.max_faults as usize {
                return Err(self.fail(Error::new(
                    ErrorKind::FaultBudget,
                    format!(
                        "{} faults within {}, so the process stops; nothing uncommitted was kept. The last one: {reason}",
                        self.faults.len(),
                        humantime::format_duration(self.config.fault_window)
                    ),
                )));
            }
        }
        // Whoever waits for a graceful restart gets this one.
        self.restart = false;
        self.begin_again(reason, fenced, now);
        Ok(())
    }

    /// Begins a new generation at the last committed cut; the stores stay open.
    fn begin_again(&mut self, reason: &str, fenced: bool, now: u64) {
        tracing::warn!("restarting in place, from the last committed epoch: {reason}");
        self.generation = Generation(self.generation.0 + 1);
        self.status.restarts += 1;
        self.status.run.settled = false;
        self.enter(State::Starting);
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let known = self.known.as_ref().expect("a running engine knows its plan");
        let start = Start::recovery(known, &self.incarnation, fenced, self.seed, now);
        self.phase = Phase::Start(Box::new(start));
    }
}
