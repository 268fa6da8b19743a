//! One running engine generation: ingest, marks, ticks, barriers, and the commit of one epoch behind them. No I/O of its
//! own, no clock: time and completions are given.

mod commit;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::epoch_record::{EpochRecord, InputCut};
use super::ingest::{Cut, Ingest, InputSpec, Limits};
use super::io::{Io, Reaction};
use super::message::{Control, LaneNet, NetEvent, Position, Tick};
use super::net::NetSettings;
use super::pace::Pace;
use super::remedy::{Call, Remedy, remedy};
use super::schedules::Schedules;
use super::start::{Known, taken_over};
use crate::broker::{BrokerErrorKind, Command, OpId, Reply};
use crate::config::Config;
use crate::error::{Error, ErrorKind};
use crate::gate::{Gates, Tally, Verdicts};
use crate::id::{Epoch, Generation, LaneId, NextOffset, SubTopologyId, TopicPartition};
use crate::operator::ForeignTimer;
use crate::store::ByteStore;
use crate::time::{Timestamp, Watermark};
use commit::{Pending, Stage};

/// Records that one turn dispatches at most, so that events are looked at in between.
const QUOTA: usize = 8192;
/// The least bytes of a batch to a lane, however small the budget: less would cost more than it saves.
const LEAST_BATCH: usize = 4 << 10;
/// The next adaptive interval is so many times the mean commit.
const INTERVAL_FACTOR: f64 = 1.5;
/// A follower of the epoch topic needs little.
const FOLLOW_FETCH: usize = 64 << 10;

/// Why a generation ends.
#[derive(Debug)]
pub enum End {
    /// The last epoch is committed and applied, and every store is durable.
    Stopped,
    /// Drop the open epochs and recover.
    Recover {
        /// What happened.
        reason: String,
        /// Whether it looked like fencing: read the record before the producer is initialised.
        fenced: bool,
        /// Whether it counts against the fault budget.
        counts: bool,
    },
    /// The process ends with this error.
    Fatal(Error),
}

/// What a generation takes on.
///
/// ```text
///             stop                     the last epoch is applied
///    ┌───────────────────▶ Draining(Stop) ───────▶ Drained(Stop): the end
///    │                       ▲         ▲
/// Running ──pause──▶ Draining(Pause) ─────▶ Drained(Pause)
///    ▲                       │                 │
///    └────────resume─────────┴─────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Records are taken, and clocks move.
    Running,
    /// Neither; what was taken, and what event time had made due by then, is finished and commits.
    Draining(Then),
    /// All of it is committed and applied, and nothing is open.
    Drained(Then),
}

/// What comes when all is drained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    Pause,
    Stop,
}

/// A mark on its way.
struct Marking {
    number: u64,
    heard: usize,
    more: bool,
    limited: bool,
}

/// A tick on its way.
struct Ticking {
    number: u64,
    heard: usize,
    more: bool,
}

/// The broker was asked for the ends of partitions that seem to be idle.
struct Silent {
    op: OpId,
    at: u64,
    inputs: Vec<u32>,
}

/// What people see of a running engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Records dispatched to lanes since this process started.
    pub records: u64,
    /// The last committed epoch.
    pub epoch: u64,
    /// Epochs committed since this process started.
    pub commits: u64,
    /// Marks sent to the lanes since this process started: a watermark that makes much due takes several.
    pub marks: u64,
    /// Whether all input was read to its end, everything it caused is committed, and no mark is on its way.
    pub settled: bool,
}

/// See the module.
pub struct Run {
    net: Box<dyn LaneNet>,
    ingest: Ingest,
    known: Known,
    gates: Arc<Gates>,
    verdicts: Verdicts,
    pace: Pace,
    generation: Generation,
    lanes: usize,
    lanes_of: Vec<usize>,
    epoch: Epoch,
    pending: Option<Pending>,
    last_barrier: u64,
    last_commit: u64,
    last_mark: u64,
    last_tick: u64,
    epochs_since_flush: u32,
    commit_mean: f64,
    marking: Option<Marking>,
    /// A mark must be sent before the next record: what was due in the cut, or what a limit left.
    due: bool,
    /// The lanes have not told their pending timers yet: the first mark fires nothing, so that the next has its limits.
    asking: bool,
    silent: Option<Silent>,
    schedules: Schedules,
    nth: BTreeMap<LaneId, Position>,
    /// The first pending event timer of each lane, as of the last mark.
    first: BTreeMap<LaneId, Timestamp>,
    /// Whether something went to lanes behind the last mark, so that they may have other timers by now.
    unmarked: bool,
    exchange: BTreeMap<(SubTopologyId, Epoch), (usize, Vec<ForeignTimer>)>,
    committed_offsets: BTreeMap<TopicPartition, NextOffset>,
    partition_of: BTreeMap<TopicPartition, u32>,
    ticks: bool,
    ticking: Option<Ticking>,
    /// The lanes have not told their pending wall-clock timers yet: the first tick moves no clock.
    asking_ticks: bool,
    /// The last tick was earlier than the wall clock: where more is due than one tick may fire.
    tick_behind: bool,
    /// The time of a lane's n-th pending wall-clock timer, where it has so many.
    nth_wall: BTreeMap<LaneId, Position>,
    /// A limit cut the last tick, or the lanes have told that more is due by what it said.
    wall_due: bool,
    /// There is no room for more uncommitted bytes.
    full: bool,
    mode: Mode,
    /// When the pause that holds began.
    paused_at: Option<u64>,
    stats: RunStats,
    demand: Vec<(u32, usize)>,
    net_events: Vec<NetEvent>,
}

/// What a turn needs from outside.
pub struct RunCx<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The broker and the store writer.
    pub io: &'a mut Io,
    /// All stores, by [`StoreId`](crate::id::StoreId).
    pub stores: &'a [Arc<dyn ByteStore>],
    /// This process.
    pub incarnation: &'a str,
    /// Monotonic time in ms.
    pub now: u64,
    /// The wall clock.
    pub wall: Timestamp,
}

impl Run {
    /// Begins at a restored cut: opens the inputs and follows the epoch topic.
    #[expect(clippy::too_many_arguments, reason = "what a generation is made of, by its one caller")]
    pub fn new(
        known: Known,
        specs: Vec<InputSpec>,
        schedules: Schedules,
        net: Box<dyn LaneNet>,
        gates: Arc<Gates>,
        pace: Pace,
        generation: Generation,
        stats: RunStats,
        cx: &mut RunCx<'_>,
    ) -> Self {
        let (plan, record) = (&known.plan, &known.record);
        let none = InputCut { next: 0, watermark: Timestamp::MIN };
        let cuts: Vec<InputCut> = plan.inputs.iter().map(|i| record.input(&i.partition).unwrap_or(none)).collect();
        let marked: Vec<Watermark> =
            plan.subs.iter().map(|s| record.watermarks.get(&s.name).copied().unwrap_or(Timestamp::MIN)).collect();
        for (input, cut) in plan.inputs.iter().zip(&cuts) {
            cx.io.submit(Command::Open { partition: input.partition.clone(), offset: cut.next });
        }
        let epochs = TopicPartition::new(known.epochs.clone(), 0);
        cx.io.submit(Command::Open { partition: epochs.clone(), offset: known.claimed_at });
        cx.io.fetch(epochs, FOLLOW_FETCH);
        let due = marked.iter().any(|w| *w > Timestamp::MIN);
        let (shares, settings) = (cx.config.shares(), NetSettings::default());
        // Of what may be uncommitted, lanes are sent an eighth ahead: a byte that comes in may become one that goes out and
        // three of state.
        let ahead = plan.lane_counts().iter().sum::<u32>().max(1) * (settings.credit + 1);
        let limits = Limits {
            max_wait: cx.config.max_wait,
            fetch_budget: shares.fetched,
            batch_bytes: (shares.uncommitted / 8 / ahead as usize).max(LEAST_BATCH),
        };
        let cut = Cut { inputs: cuts, marked, wall: record.wall };
        let mut ingest = Ingest::new(plan, specs, &cut, limits, cx.now);
        ingest.name_schedules(schedules.names());
        let committed_offsets =
            plan.inputs.iter().zip(&cut.inputs).map(|(i, c)| (i.partition.clone(), c.next)).collect();
        Self {
            ticks: net.wants_ticks(),
            lanes: plan.subs.iter().map(|s| s.lanes as usize).sum(),
            lanes_of: plan.subs.iter().map(|s| s.lanes as usize).collect(),
            epoch: Epoch(record.epoch.0 + 1),
            partition_of: plan.inputs.iter().enumerate().map(|(i, p)| (p.partition.clone(), i as u32)).collect(),
            net,
            ingest,
            known,
            verdicts: gates.verdicts.clone(),
            gates,
            pace,
            generation,
            pending: None,
            last_barrier: cx.now,
            last_commit: cx.now,
            last_mark: cx.now,
            last_tick: 0,
            epochs_since_flush: 0,
            commit_mean: 10.0,
            marking: None,
            due,
            asking: due,
            silent: None,
            schedules,
            nth: BTreeMap::new(),
            first: BTreeMap::new(),
            unmarked: true,
            exchange: BTreeMap::new(),
            committed_offsets,
            ticking: None,
            asking_ticks: cut.wall > Timestamp::MIN,
            tick_behind: false,
            nth_wall: BTreeMap::new(),
            wall_due: false,
            full: false,
            mode: Mode::Running,
            paused_at: None,
            stats,
            demand: Vec::new(),
            net_events: Vec::new(),
        }
    }

    /// What is known about the application, for a recovery.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// The verdicts that hold, for the next generation.
    pub fn take_verdicts(&mut self) -> Verdicts {
        std::mem::take(&mut self.verdicts)
    }

    /// How far ingest may be ahead, for the next generation.
    pub fn pace(&self) -> Pace {
        self.pace.clone()
    }

    /// What people see.
    pub fn stats(&self) -> RunStats {
        self.stats
    }

    /// The lanes, to be woken by.
    pub fn net(&self) -> &dyn LaneNet {
        &*self.net
    }

    /// Stops dispatching; the next barrier is the last.
    pub fn stop(&mut self) {
        self.mode = Mode::Draining(Then::Stop);
    }

    /// Stops dispatching, and all clocks; what was taken commits, and then nothing happens until [`Run::resume`] but what
    /// keeps the application owned.
    pub fn pause(&mut self, now: u64) {
        if self.mode == Mode::Running {
            self.mode = Mode::Draining(Then::Pause);
            self.paused_at = Some(now);
            // Whether a partition was idle is asked again: an answer that comes now may come any time later.
            self.silent = None;
        }
    }

    /// Goes on after a pause, or before it was reached: no silence was heard meanwhile, and ticks of schedules that became due
    /// were missed.
    pub fn resume(&mut self, now: u64, wall: Timestamp) {
        if !matches!(self.mode, Mode::Draining(Then::Pause) | Mode::Drained(Then::Pause)) {
            return;
        }
        self.mode = Mode::Running;
        if let Some(since) = self.paused_at.take() {
            self.ingest.stood_still(since, now);
        }
        self.schedules.missed_until(wall);
        if let Some(p) = &mut self.pending {
            p.last = false;
        }
    }

    /// Whether all that was taken before a pause is committed.
    pub fn is_paused(&self) -> bool {
        self.mode == Mode::Drained(Then::Pause)
    }

    /// Stops all lanes and closes the inputs; nothing of this generation happens afterwards. `false`: a lane still runs.
    pub fn tear_down(&mut self, io: &mut Io) -> bool {
        let stopped = self.net.stop();
        for input in &self.known.plan.inputs {
            io.submit(Command::Close { partition: input.partition.clone() });
        }
        io.submit(Command::Close { partition: TopicPartition::new(self.known.epochs.clone(), 0) });
        stopped
    }

    /// Takes what happened, does what can be done; `Ok(deadline)`: nothing more before that time or the next event.
    pub fn advance(&mut self, cx: &mut RunCx<'_>, events: Vec<Reaction>) -> Result<Option<u64>, End> {
        for event in events {
            self.react(cx, event)?;
        }
        let mut net_events = std::mem::take(&mut self.net_events);
        self.net.poll(&mut net_events);
        for event in net_events.drain(..) {
            self.net_event(cx, event)?;
        }
        self.net_events = net_events;
        if self.draining() && self.net.lowest() == u64::MAX {
            self.apply(cx);
        }
        self.watch(cx)?;
        let busy = self.sequence(cx)?;
        if self.mode == Mode::Drained(Then::Stop) {
            return Err(End::Stopped);
        }
        Ok(Some(if busy { cx.now } else { self.deadline(cx) }))
    }

    // --- events ------------------------------------------------------------------------------------------------------

    fn react(&mut self, cx: &mut RunCx<'_>, event: Reaction) -> Result<(), End> {
        match event {
            Reaction::Fetched(f) => {
                if f.partition.topic == self.known.epochs {
                    return self.follow(cx, &f.batch);
                }
                if let Some(&i) = self.partition_of.get(&f.partition) {
                    self.ingest.fetched(i, f);
                }
                Ok(())
            }
            Reaction::Done(op, result) => {
                let committing = match &self.pending {
                    Some(Pending { stage: Stage::Committing { op: o, .. }, .. }) => *o == op,
                    _ => false,
                };
                match (committing, result) {
                    (true, Ok(Reply::Committed(c))) => {
                        self.committed(cx, c);
                        Ok(())
                    }
                    (true, Err(e)) => self.commit_failed(cx, &e),
                    (false, result) if self.silent.as_ref().is_some_and(|s| s.op == op) => {
                        if let (Some(s), Ok(Reply::Bounds(bounds))) = (self.silent.take(), result) {
                            let ends: Vec<_> = s.inputs.into_iter().zip(bounds.iter().map(|b| b.end)).collect();
                            self.ingest.ends(s.at, &ends, self.net.lowest());
                        }
                        Ok(())
                    }
                    // Answers to opening and closing; what cannot be read says so in an event of its own.
                    _ => Ok(()),
                }
            }
            Reaction::Failed(tp, e) if self.partition_of.contains_key(&tp) || tp.topic == self.known.epochs => {
                let text = match e.kind {
                    BrokerErrorKind::UnknownTopic => format!(
                        "topic `{}` was deleted while the application reads it ({e}): create it anew and start under another application id, or take the source out",
                        tp.topic
                    ),
                    BrokerErrorKind::OutOfRange => format!(
                        "{tp}: the next offset to read is no longer in the log ({e}): records were deleted before they were read; raise the topic's retention, then begin anew under another application id"
                    ),
                    BrokerErrorKind::Unauthorized => {
                        format!("{tp}: not allowed to read ({e}): grant Read on the topic")
                    }
                    _ => format!("{tp} cannot be read: {e}"),
                };
                match remedy(Call::Read, e.kind) {
                    Remedy::End(kind) => Err(End::Fatal(Error::new(kind, text))),
                    _ => Err(End::Recover { reason: text, fenced: false, counts: true }),
                }
            }
            Reaction::Written(job, result) => {
                let mine =
                    matches!(&self.pending, Some(Pending { stage: Stage::Applying { job: j }, .. }) if *j == job);
                if !mine {
                    return Ok(());
                }
                result.map_err(End::Fatal)?;
                self.applied(cx)
            }
            Reaction::Lost | Reaction::Back => {
                self.ingest.heard_nothing(cx.now);
                Ok(())
            }
            Reaction::Failed(..) => Ok(()),
        }
    }

    /// A claim of another incarnation behind our own stops this process (§4).
    fn follow(&mut self, cx: &mut RunCx<'_>, batch: &crate::record::RecordBatch) -> Result<(), End> {
        for r in batch.iter() {
            if let (Some(super::epoch_record::EPOCH_KEY), Some(v)) = (r.key, r.value) {
                let record: EpochRecord = super::epoch_record::decode("epoch", v).map_err(End::Fatal)?;
                if record.incarnation != cx.incarnation {
                    return Err(End::Fatal(taken_over(Some(&record.incarnation))));
                }
            }
        }
        cx.io.fetch(TopicPartition::new(self.known.epochs.clone(), 0), FOLLOW_FETCH);
        Ok(())
    }

    fn net_event(&mut self, cx: &mut RunCx<'_>, event: NetEvent) -> Result<(), End> {
        match event {
            NetEvent::Frozen(f) => {
                let lanes = self.lanes;
                let Some(p) = &mut self.pending else { return Ok(()) };
                if p.epoch == f.epoch {
                    p.frozen.push(*f);
                    if p.frozen.len() == lanes {
                        self.commit(cx);
                    }
                }
                Ok(())
            }
            NetEvent::Exchange { lane, epoch, mut writes } => {
                let at = self.exchange.entry((lane.sub, epoch)).or_default();
                at.0 += 1;
                at.1.append(&mut writes);
                if at.0 == self.lanes_of[lane.sub.0 as usize] {
                    let (_, mut all) = self.exchange.remove(&(lane.sub, epoch)).unwrap_or_default();
                    all.sort_by(|a, b| (&a.tag, a.index).cmp(&(&b.tag, b.index)));
                    self.net.exchange(lane.sub, epoch, Arc::new(all));
                }
                Ok(())
            }
            NetEvent::Marked { lane, number, more_due, nth, first } => {
                match first {
                    Some(t) => self.first.insert(lane, t),
                    None => self.first.remove(&lane),
                };
                match nth {
                    Some(p) => self.nth.insert(lane, p),
                    None => self.nth.remove(&lane),
                };
                if let Some(m) = self.marking.as_mut().filter(|m| m.number == number) {
                    m.heard += 1;
                    m.more |= more_due;
                    if m.heard == self.lanes {
                        self.due |= m.more;
                        self.marking = None;
                    }
                }
                Ok(())
            }
            NetEvent::Ticked { lane, number, more_due, nth } => {
                match nth {
                    Some(p) => self.nth_wall.insert(lane, p),
                    None => self.nth_wall.remove(&lane),
                };
                if let Some(t) = self.ticking.as_mut().filter(|t| t.number == number) {
                    t.heard += 1;
                    t.more |= more_due;
                    if t.heard == self.lanes {
                        self.wall_due = t.more;
                        self.ticking = None;
                    }
                }
                Ok(())
            }
            NetEvent::Fault { lane, origin, error } => {
                let place = origin.map(|o| format!("{}@{}", self.ingest.partition_name(o.partition), o.offset));
                let error = error.at(place.unwrap_or_else(|| format!("lane {lane}")));
                Err(Self::fault(error))
            }
        }
    }

    /// What an error of a lane or of a schedule leads to.
    fn fault(error: Error) -> End {
        match error.kind() {
            // May be over next time; what comes again and again spends the budget.
            ErrorKind::Handler => End::Recover { reason: error.to_string(), fenced: false, counts: true },
            ErrorKind::Codec => End::Fatal(Error::new(
                ErrorKind::Codec,
                format!(
                    "{error}; the application stops before this record and commits nothing of it. Declare a codec \
                     and a type that take it, then start again; or let `stoat.deserialization-exception-handler` (of \
                     outputs: `stoat.production-exception-handler`) be `skip` or `dead_letter`; or set the consumer \
                     group's offset of this partition behind it and start once with `stoat.start.offsets=group`"
                ),
            )),
            _ => End::Fatal(error),
        }
    }

    /// Every wait on the commit path is bounded (I-8).
    fn watch(&mut self, cx: &RunCx<'_>) -> Result<(), End> {
        let Some(p) = &self.pending else { return Ok(()) };
        let limit = p.stage.limit(cx.config);
        if cx.now.saturating_sub(p.since) < limit {
            return Ok(());
        }
        let phase = match &p.stage {
            Stage::Freezing => {
                self.pace.stalled();
                let here: Vec<LaneId> = p.frozen.iter().map(|f| f.lane).collect();
                let missing: Vec<String> = (0..self.lanes_of.len() as u32)
                    .flat_map(|s| (0..self.lanes_of[s as usize] as u32).map(move |l| (s, l)))
                    .map(|(s, l)| LaneId { sub: SubTopologyId(s), lane: crate::id::LaneIdx(l) })
                    .filter(|l| !here.contains(l))
                    .map(|l| l.to_string())
                    .collect();
                format!("lanes {} have not reached the barrier", missing.join(", "))
            }
            Stage::Committing { .. } => "the transaction is not committed".to_owned(),
            Stage::Draining => "the lanes have not finished what they were given".to_owned(),
            Stage::Applying { .. } => "the stores are not written".to_owned(),
        };
        let after = humantime::format_duration(Duration::from_millis(limit)).to_string();
        Err(End::Recover {
            reason: format!("epoch {} stalls: after {after} {phase}", p.epoch),
            fenced: false,
            counts: true,
        })
    }

    // --- sequencing --------------------------------------------------------------------------------------------------

    /// Sends what is to be sent; whether there is more to do at once.
    fn sequence(&mut self, cx: &mut RunCx<'_>) -> Result<bool, End> {
        let mut busy = false;
        let lowest = self.net.lowest().min(self.ingest.frontier());
        let room = self.pace.room(cx.now, lowest, self.ingest.next_number());
        self.demand.clear();
        self.ingest.demand(&mut self.demand);
        for (i, bytes) in self.demand.drain(..) {
            cx.io.fetch(self.known.plan.inputs[i as usize].partition.clone(), bytes);
        }
        // Something must always go through, however small the budget.
        let hard = cx.config.shares().uncommitted.max(1);
        let soft = hard / 2;
        let uncommitted = self.net.uncommitted() + self.ingest.weight() + self.pending.as_ref().map_or(0, |p| p.bytes);
        self.full = uncommitted >= hard;
        if !self.draining() && !self.full {
            // What is due fires in pieces, each as soon as there is room for what it writes.
            self.ticks(cx);
            self.scheduled(cx)?;
            self.marks(cx);
        }
        let held = self.marking.as_ref().is_some_and(|m| m.limited) || self.due;
        if self.mode == Mode::Running && !held && !self.draining() && !self.full {
            // Without room as well: what waits for a lane's credit goes on.
            let done = self.ingest.dispatch(&mut *self.net, cx.now, cx.wall, QUOTA.min(room));
            self.stats.records += done.records as u64;
            self.unmarked |= done.records > 0;
            busy = done.records > 0 && !done.stalled;
        }
        if self.pending.is_none() {
            let idle = self.ingest.records() == 0 && !self.ingest.moved() && self.net.uncommitted() == 0;
            let elapsed = cx.now.saturating_sub(self.last_barrier);
            let keep_alive = cx.now.saturating_sub(self.last_commit) >= cx.config.keep_alive.as_millis() as u64;
            let pressed = self.net.uncommitted() + self.ingest.weight() >= soft;
            let now_due = elapsed >= self.interval(cx.config) || pressed;
            if matches!(self.mode, Mode::Draining(_)) && !held {
                // The last epoch, even an empty one: it renews and flushes every store.
                self.barrier(cx, true, true);
            } else if self.mode != Mode::Drained(Then::Stop) && ((!idle && now_due) || keep_alive) {
                self.barrier(cx, keep_alive, false);
            }
        }
        self.stats.settled = self.ingest.at_end()
            && self.pending.is_none()
            && self.marking.is_none()
            && !self.due
            && !self.tick_behind
            && !self.wall_due
            && self.ingest.records() == 0
            && !self.ingest.moved()
            && self.net.uncommitted() == 0
            && self.ingest.watermarks() == *self.ingest.marked();
        Ok(busy)
    }

    fn interval(&self, config: &Config) -> u64 {
        let fixed = config.commit_interval.map(|i| i.as_millis() as u64);
        fixed.unwrap_or_else(|| {
            let (min, max) =
                (config.commit_interval_min.as_millis() as u64, config.commit_interval_max.as_millis() as u64);
            ((self.commit_mean * INTERVAL_FACTOR) as u64).clamp(min, max.max(min))
        })
    }

    /// Moves the wall clock of the lanes: to now, or where more is due than one tick may fire, only as far as the smallest
    /// report says, and of the timers at that time only to its key. So a tick that comes late (the process was down, say)
    /// can be cut by barriers, and so can one that very many timers wait for.
    fn ticks(&mut self, cx: &RunCx<'_>) {
        let every = cx.config.wall_interval.as_millis() as u64;
        let asking = self.asking_ticks;
        let due = asking || self.tick_behind || self.wall_due || cx.now.saturating_sub(self.last_tick) >= every;
        if !self.ticks || self.mode != Mode::Running || self.ticking.is_some() || !due {
            return;
        }
        let before = self.ingest.wall();
        if !asking && !self.wall_due && cx.wall <= before {
            return;
        }
        let (wall, limits) = if asking {
            (before, self.nothing())
        } else {
            let most = self.nth_wall.values().map(|p| p.time).min().unwrap_or(Timestamp::MAX);
            let wall = cx.wall.max(before).min(most.max(Timestamp(before.0 + 1)));
            (wall, self.limits(&self.nth_wall, wall))
        };
        self.asking_ticks = false;
        self.tick_behind = wall > before && wall < cx.wall;
        self.wall_due = limits.iter().any(Option::is_some);
        self.last_tick = cx.now;
        let number = self.ingest.control(&mut *self.net, Control::Tick(Arc::new(Tick { wall, limits })));
        self.ticking = Some(Ticking { number, heard: 0, more: false });
    }

    /// Handles ticks of schedules, unless records wait as well.
    fn scheduled(&mut self, cx: &RunCx<'_>) -> Result<(), End> {
        let held = self.marking.as_ref().is_some_and(|m| m.limited) || self.due;
        if self.mode != Mode::Running || held {
            return Ok(());
        }
        let applying = self.applying();
        let ticked = self.schedules.run(&mut self.ingest, &mut *self.net, cx.wall, applying).map_err(Self::fault)?;
        self.unmarked |= ticked > 0;
        Ok(())
    }

    fn marks(&mut self, cx: &mut RunCx<'_>) {
        if self.marking.is_some() {
            return;
        }
        if self.due {
            let asking = std::mem::take(&mut self.asking);
            self.due = asking;
            let limits = if asking { self.nothing() } else { self.mark_limits() };
            let mark = self.ingest.repeat(limits);
            self.send_mark(mark, true);
            return;
        }
        let every = cx.config.watermark_interval.as_millis() as u64;
        if self.mode != Mode::Running || cx.now.saturating_sub(self.last_mark) < every {
            return;
        }
        self.last_mark = cx.now;
        self.ask_silent(cx);
        if self.ingest.watermarks() != *self.ingest.marked() {
            self.schedules.reach(&self.known.plan, &mut self.ingest, cx.wall);
        }
        let limits = self.mark_limits();
        let limited = limits.iter().any(Option::is_some);
        if let Some(mark) = self.ingest.mark(limits) {
            self.send_mark(mark, limited);
        }
    }

    /// Asks the broker whether partitions that seem to be idle are read to their end.
    fn ask_silent(&mut self, cx: &mut RunCx<'_>) {
        if self.silent.is_some() {
            return;
        }
        // Event time goes on without records for what waits for it, and only then: an idle application writes nothing.
        let wanted = if self.unmarked || self.marking.is_some() {
            Timestamp::MIN
        } else {
            self.first.values().min().copied().unwrap_or(Timestamp::MAX)
        };
        let asked = self.ingest.silent(cx.now, self.net.lowest(), wanted);
        if asked.is_empty() {
            return;
        }
        let partitions = asked.iter().map(|i| self.known.plan.inputs[*i as usize].partition.clone()).collect();
        let op = cx.io.submit(Command::Bounds { partitions });
        self.silent = Some(Silent { op, at: cx.now, inputs: asked });
    }

    fn send_mark(&mut self, mark: super::message::Mark, limited: bool) {
        let number = self.ingest.control(&mut *self.net, Control::Mark(Arc::new(mark)));
        self.unmarked = false;
        self.stats.marks += 1;
        self.marking = Some(Marking { number, heard: 0, more: false, limited });
    }

    /// Limits that let nothing fire.
    fn nothing(&self) -> Vec<Option<Position>> {
        vec![Some(Position { time: Timestamp::MIN, key: Vec::new() }); self.lanes_of.len()]
    }

    fn mark_limits(&self) -> Vec<Option<Position>> {
        self.limits(&self.nth, self.ingest.watermarks().iter().max().copied().unwrap_or(Timestamp::MIN))
    }

    /// The smallest report of each sub-topology, where it does not lie beyond what can be reached.
    fn limits(&self, nth: &BTreeMap<LaneId, Position>, highest: Timestamp) -> Vec<Option<Position>> {
        let mut limits: Vec<Option<Position>> = vec![None; self.lanes_of.len()];
        for (lane, position) in nth.iter().filter(|(_, p)| p.time <= highest) {
            let limit = &mut limits[lane.sub.0 as usize];
            if limit.as_ref().is_none_or(|l| position < l) {
                *limit = Some(position.clone());
            }
        }
        limits
    }

    /// `last`: nothing is taken behind it.
    fn barrier(&mut self, cx: &RunCx<'_>, keep_alive: bool, last: bool) {
        let epoch = self.epoch;
        self.epoch = Epoch(epoch.0 + 1);
        let (cuts, wall, schedules) = (self.ingest.cuts(), self.ingest.wall(), self.schedules.last());
        let number = self.ingest.control(&mut *self.net, Control::Barrier(epoch));
        self.last_barrier = cx.now;
        self.pending = Some(Pending {
            epoch,
            stage: Stage::Freezing,
            since: cx.now,
            number,
            cuts,
            wall,
            schedules,
            frozen: Vec::with_capacity(self.lanes),
            rows: Vec::new(),
            record: EpochRecord::default(),
            committed: None,
            transaction: Arc::default(),
            tags: Vec::new(),
            tally: Tally::default(),
            bytes: 0,
            keep_alive,
            flush: false,
            last,
        });
    }

    /// When to look again though nothing happens: the earliest time at which [`Run::sequence`] or [`Run::watch`] would do
    /// something that it would not do now.
    fn deadline(&self, cx: &RunCx<'_>) -> u64 {
        let c = cx.config;
        let ms = |d: Duration| d.as_millis() as u64;
        let mut at = match &self.pending {
            Some(p) => p.since + p.stage.limit(c),
            None if self.ingest.records() > 0 || self.ingest.moved() || self.net.uncommitted() > 0 => {
                (self.last_commit + ms(c.keep_alive)).min(self.last_barrier + self.interval(c))
            }
            None => self.last_commit + ms(c.keep_alive),
        };
        if self.draining() {
            // Nobody tells when the lanes come to rest.
            at = at.min(cx.now + 1);
        } else if self.mode == Mode::Running && !self.full {
            // Where there is no room, a commit or a lane wakes.
            if self.ticks && self.ticking.is_none() {
                at = at.min(self.last_tick + ms(c.wall_interval));
            }
            if self.marking.is_none() {
                let moved = self.ingest.watermarks() != *self.ingest.marked();
                // Idleness is looked for now and then, only where it can be found.
                at = at.min(self.last_mark + ms(c.watermark_interval) * if moved { 1 } else { 5 });
            }
            if let Some(next) = self.schedules.next_wall(self.applying()) {
                // One that is held back is looked at again soon.
                let wait = next.since(cx.wall).as_millis() as u64;
                at = at.min(cx.now.saturating_add(wait.max(1)));
            }
            if self.schedules.behind() || self.ingest.held() {
                // Nobody tells how far lanes have come.
                at = at.min(cx.now + 1);
            }
            at = at.min(self.pace.look(cx.now).unwrap_or(at));
        }
        if let Some(d) = self.ingest.deadline().filter(|d| *d > cx.now) {
            at = at.min(d);
        }
        // What is due and yet was not done waits for an event.
        at.max(cx.now + 1)
    }
}
