//! A lane: the operators of one lane of one sub-topology, as a plain state machine.
//!
//! It has no clock, no threads and no queues of its own: it is given records in ingest order and control messages, and
//! leaves what it sends and says in [`Effects`]. Its only I/O is what its operators read from their byte stores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::inbox::{Inbox, Passed};
use super::message::{Control, Frozen, NetEvent, Position};
use super::tag::{Path, Tag, Tags};
use crate::affinity::LanePlace;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::{Gates, LaneGate};
use crate::hash::{lane_hash, lane_of};
use crate::id::{Epoch, LaneId, LaneIdx, StoreId, SubTopologyId};
use crate::operator::{
    CurrentKey, Field, ForeignTimer, HandBatch, LaneCx, Operator, Outputs, PendingTimers, Punctuator, StateOperator,
    WaitingCall,
};
use crate::record::pool::Pool;
use crate::record::{Origin, OutEntry, ProduceBatch};
use crate::store::Row;
use crate::time::{Now, TimeDomain, Timestamp, Watermark};

/// What a step leaves behind.
#[derive(Default)]
pub(crate) struct Effects {
    /// Batches, each with the place of its edge among the lane's and the receiving lane.
    pub(crate) sends: Vec<(usize, LaneIdx, Box<dyn HandBatch>)>,
    /// What goes to all receiving lanes, behind the batches.
    pub(crate) control: Option<Passed>,
    /// What the control side is told.
    pub(crate) events: Vec<NetEvent>,
}

/// Why a lane cannot go on.
pub(crate) struct Failure {
    /// The record that was processed.
    pub(crate) origin: Option<Origin>,
    /// What happened.
    pub(crate) error: Error,
}

/// What was written is held decoded until its epoch is applied, and meanwhile as a row and as a changelog record.
const COPIES: usize = 3;

/// What a lane is made of.
pub(crate) struct LaneParts {
    pub(crate) id: LaneId,
    /// The number of lanes of its sub-topology.
    pub(crate) lanes: u32,
    pub(crate) nodes: Vec<Option<Box<dyn Operator>>>,
    /// The nodes' names, by place.
    pub(crate) names: Arc<[String]>,
    /// The places of hand-overs, by edge.
    pub(crate) outbounds: Vec<usize>,
    pub(crate) sink_topics: Arc<[Arc<str>]>,
    pub(crate) sink_partitions: Arc<[i32]>,
    pub(crate) now: Now,
    /// Up to which watermark event-time punctuators have been called.
    pub(crate) punctuated: Watermark,
    /// Whether a store of the sub-topology takes timers for other keys.
    pub(crate) foreign: bool,
    /// See [`NetSettings::timers_per_mark`](super::net::NetSettings).
    pub(crate) timers_per_mark: usize,
    /// Bytes of clean entries that the lane keeps.
    pub(crate) cache_budget: usize,
    /// `None`: the only lane.
    pub(crate) place: Option<Arc<LanePlace>>,
    /// What becomes of records that fail.
    pub(crate) gates: Arc<Gates>,
}

/// The pending timers of a clock, over all fields of a lane.
#[derive(Default)]
struct Left {
    /// Whether any is left at or before the time that was asked for.
    more_due: bool,
    /// The smallest position of a field's n-th.
    nth: Option<Position>,
    /// The first.
    first: Option<Timestamp>,
}

/// A mark or a tick, as far as a lane has come with it: a handler that waits interrupts it.
struct Clocked {
    message: Passed,
    domain: TimeDomain,
    /// Up to which time timers fire.
    upto: Timestamp,
    limit: Option<Position>,
    /// From where on punctuators are due; `None`: the limit cuts the mark, and none is.
    since: Option<Timestamp>,
    /// `None`: all timers have fired.
    firing: Option<Firing>,
    /// The punctuators that are still to be called.
    punctuating: std::vec::IntoIter<Due>,
}

/// How far [`fire`] has come.
#[derive(Default)]
struct Firing {
    clock: Option<Timestamp>,
    /// All firings of one key at one time follow each other: no other timer can come between, as a key sets timers for
    /// itself only. So counting on here tells them apart.
    last: (Timestamp, Vec<u8>, u32),
}

/// A call of a punctuator, in the order of calls: those without a key come first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    key: Option<Vec<u8>>,
    place: usize,
    which: u32,
    at: Timestamp,
}

struct Stateful {
    place: usize,
    timers: bool,
    emits: bool,
    punctuators: Vec<Punctuator>,
}

pub(crate) struct Lane {
    id: LaneId,
    lanes: u32,
    nodes: Vec<Option<Box<dyn Operator>>>,
    names: Arc<[String]>,
    stateful: Vec<Stateful>,
    outbounds: Vec<usize>,
    outputs: Outputs,
    buffers: OutputBuffers,
    sink_topics: Arc<[Arc<str>]>,
    sink_partitions: Arc<[i32]>,
    key: CurrentKey,
    gate: LaneGate,
    now: Now,
    /// Up to which watermark event-time punctuators have been called. Behind `now.watermark` while limits cut marks.
    punctuated: Watermark,
    foreign: bool,
    waiting: Option<Epoch>,
    /// The place of the operator whose handlers may wait: it is the entry, so there is one at most.
    awaits: Option<usize>,
    /// The place of the call that waits.
    call: Option<Tag>,
    /// The mark or tick that this call interrupts.
    interrupted: Option<Box<Clocked>>,
    /// What [`Lane::weigh`] said last: while a call waits, its fields cannot be asked.
    weight: usize,
    timers_per_mark: usize,
    cache_budget: usize,
    /// Clean bytes at which the next trim is due.
    trim_at: usize,
    place: Option<Arc<LanePlace>>,
}

impl Lane {
    pub(crate) fn new(parts: LaneParts) -> Self {
        let mut nodes = parts.nodes;
        let stateful = nodes
            .iter_mut()
            .enumerate()
            .filter_map(|(place, node)| {
                let state = node.as_mut().and_then(|n| n.state())?;
                let mut timers = false;
                state.fields(&mut |f| timers |= f.timers().is_some());
                let emits = state.emits_at_barriers();
                Some(Stateful { place, timers, emits, punctuators: state.punctuators().to_vec() })
            })
            .collect();
        let awaits = nodes.iter_mut().position(|n| n.as_mut().is_some_and(|n| n.waiting().is_some()));
        let buffers = OutputBuffers::default();
        Self {
            id: parts.id,
            lanes: parts.lanes,
            nodes,
            names: parts.names,
            stateful,
            outbounds: parts.outbounds,
            outputs: buffers.outputs(&parts.sink_topics),
            buffers,
            sink_topics: parts.sink_topics,
            sink_partitions: parts.sink_partitions,
            key: CurrentKey::default(),
            gate: LaneGate::new(parts.gates),
            now: parts.now,
            punctuated: parts.punctuated,
            foreign: parts.foreign,
            waiting: None,
            awaits,
            call: None,
            interrupted: None,
            weight: 0,
            timers_per_mark: parts.timers_per_mark.max(1),
            cache_budget: parts.cache_budget,
            trim_at: parts.cache_budget,
            place: parts.place,
        }
    }

    pub(crate) fn id(&self) -> LaneId {
        self.id
    }

    /// Whether the lane is at a barrier and waits for the foreign writes of the other lanes.
    pub(crate) fn waits_for_exchange(&self) -> bool {
        self.waiting.is_some()
    }

    /// Whether handlers of this lane may wait.
    pub(crate) fn is_async(&self) -> bool {
        self.awaits.is_some()
    }

    /// Whom the futures of handlers wake.
    pub(crate) fn wake_by(&mut self, waker: Waker) {
        if let Some(call) = self.awaits.and_then(|place| self.nodes[place].as_mut()).and_then(|n| n.waiting()) {
            call.wake_by(waker);
        }
    }

    /// The place of the call that waits: the lane takes nothing until [`Lane::resume`] has ended it, and sends nothing that
    /// comes before it.
    pub(crate) fn waits_at(&self) -> Option<&Tag> {
        self.call.as_ref()
    }

    /// The call that waits.
    pub(crate) fn call(&mut self) -> Option<WaitingCall> {
        self.awaits.and_then(|place| self.nodes[place].as_mut()).and_then(|n| n.waiting()).and_then(|c| c.call())
    }

    /// Looks whether a call waits; to be asked after everything that may have begun one.
    fn look(&mut self) -> bool {
        let Some(place) = self.awaits else { return false };
        self.call = if waits(&mut self.nodes, place) { self.call().map(|c| c.tag) } else { None };
        self.call.is_some()
    }

    /// Goes on with the call that waits, and with the mark or tick that it interrupts.
    pub(crate) fn resume(&mut self, fx: &mut Effects) -> Result<(), Failure> {
        let (Some(place), Some(number)) = (self.awaits, self.call.as_ref().map(|t| t.number)) else { return Ok(()) };
        self.guarded(number, |cx, _| {
            let mut node = cx.nodes[place].take().expect("no operator runs between two calls");
            let result = node.waiting().map_or(Ok(()), |call| call.resume(cx));
            cx.nodes[place] = Some(node);
            result
        })?;
        self.gate.release();
        if !self.look()
            && let Some(clocked) = self.interrupted.take()
        {
            return self.clocked(clocked, fx);
        }
        self.collect(fx);
        Ok(())
    }

    /// Whether anything here follows the wall clock.
    pub(crate) fn wants_ticks(&mut self) -> bool {
        let mut wall = self.stateful.iter().flat_map(|s| &s.punctuators).any(|p| p.domain == TimeDomain::Wall);
        each_field(&mut self.nodes, &self.stateful, |_, f| {
            wall |= f.timers().is_some_and(|t| t.domain() == TimeDomain::Wall);
        });
        wall
    }

    /// Takes records from the inbox, at most so many.
    pub(crate) fn records(&mut self, inbox: &mut Inbox, most: usize, fx: &mut Effects) -> Result<usize, Failure> {
        let done = match self.awaits {
            None => self.guarded(0, |cx, _| inbox.deliver(most, cx))?,
            Some(place) => self.guarded(0, |cx, _| {
                let mut done = 0;
                while done < most && inbox.deliver(1, cx)? == 1 {
                    done += 1;
                    if waits(cx.nodes, place) {
                        break;
                    }
                }
                Ok(done)
            })?,
        };
        self.look();
        self.gate.release();
        self.collect(fx);
        Ok(done)
    }

    /// Takes a control message that all senders have passed on; for a mark with the smallest watermark of those.
    pub(crate) fn control(&mut self, message: Passed, fx: &mut Effects) -> Result<(), Failure> {
        match message.control {
            Control::Mark(_) | Control::Tick(_) => {
                let clocked = self.begin(message);
                return self.clocked(clocked, fx);
            }
            Control::Barrier(epoch) => self.barrier(message.number, epoch, fx)?,
            Control::Applied(epoch) => self.applied(epoch)?,
        }
        self.collect(fx);
        fx.control = Some(Passed { watermark: Timestamp::MIN, ..message });
        Ok(())
    }

    /// Takes the foreign writes of all lanes of the sub-topology and freezes the epoch that waits for them.
    pub(crate) fn exchange(&mut self, writes: &[ForeignTimer], fx: &mut Effects) -> Result<(), Failure> {
        let epoch = self.waiting.take().expect("an exchange answers a lane that waits for one");
        let (id, lanes) = (self.id, self.lanes);
        self.guarded(0, |cx, stateful| {
            for write in writes {
                if lane_of(lane_hash(&write.key), lanes) == id.lane.0 {
                    let mut taken = Ok(());
                    each_field(cx.nodes, stateful, |_, f| {
                        if f.store() == write.store
                            && let Some(t) = f.timers()
                        {
                            taken = t.apply_foreign(write);
                        }
                    });
                    taken?;
                }
            }
            Ok(())
        })?;
        self.freeze(epoch, fx)
    }

    /// Bytes that are uncommitted; drops clean entries where there are more than the budget allows.
    pub(crate) fn weigh(&mut self) -> usize {
        if self.call.is_some() {
            return self.weight;
        }
        let (mut uncommitted, mut total) = (0, 0);
        each_field(&mut self.nodes, &self.stateful, |_, f| {
            f.sample();
            let w = f.weight();
            uncommitted += w.uncommitted;
            total += w.total;
        });
        let clean = total.saturating_sub(uncommitted);
        if clean > self.trim_at {
            self.trim();
        }
        self.weight = COPIES * uncommitted + self.outputs.weight();
        self.weight
    }

    /// Divides the budget among the fields by what they hold. Trims to three quarters, so that it need not be done
    /// again soon, and waits for an eighth more where something could not be dropped.
    fn trim(&mut self) {
        let target = self.cache_budget / 4 * 3;
        let mut total = 0;
        each_field(&mut self.nodes, &self.stateful, |_, f| total += f.weight().total);
        let mut clean = 0;
        each_field(&mut self.nodes, &self.stateful, |_, f| {
            let share = f.weight().total as u128 * target as u128 / (total.max(1)) as u128;
            f.trim(share as usize);
            let w = f.weight();
            clean += w.total.saturating_sub(w.uncommitted);
        });
        self.trim_at = self.cache_budget.max(clean + self.cache_budget / 8);
    }

    /// Visits all fields.
    #[cfg(test)]
    pub(crate) fn each(&mut self, mut visit: impl FnMut(&mut dyn Field)) {
        each_field(&mut self.nodes, &self.stateful, |_, f| visit(f));
    }

    /// Runs operators. A panic of user code becomes an error; the lane must not be used after any failure.
    fn guarded<T>(
        &mut self,
        number: u64,
        run: impl FnOnce(&mut LaneCx<'_>, &[Stateful]) -> Result<T>,
    ) -> Result<T, Failure> {
        let mut cx = LaneCx {
            nodes: &mut self.nodes,
            number,
            path: Path::default(),
            key: std::mem::take(&mut self.key),
            now: self.now,
            origin: None,
            outputs: &mut self.outputs,
            sink_partitions: &self.sink_partitions,
            gate: &mut self.gate,
        };
        let stateful = &self.stateful;
        let result = catch_unwind(AssertUnwindSafe(|| run(&mut cx, stateful)));
        let origin = cx.origin;
        self.key = cx.key;
        match result {
            Ok(Ok(v)) => Ok(v),
            Ok(Err(error)) => Err(Failure { origin, error }),
            Err(panic) => {
                // Operators on the way to the one that panicked are still taken out of the arena; the last is that one.
                let node = self.nodes.iter().rposition(Option::is_none);
                let node = node.map_or("?", |i| self.names[i].as_str());
                let text = panic
                    .downcast_ref::<&str>()
                    .copied()
                    .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
                    .unwrap_or("a panic without a text");
                // A panic does not hold back what a check has refused: user code may well unwrap it.
                let refused = self.place.as_ref().and_then(|p| p.refused());
                let error =
                    refused.unwrap_or_else(|| Error::new(ErrorKind::Handler, format!("the code panicked: {text}")));
                Err(Failure { origin, error: error.at(format!("node `{node}`")) })
            }
        }
    }

    /// Takes what the hand-overs have collected.
    fn collect(&mut self, fx: &mut Effects) {
        for (edge, place) in self.outbounds.iter().enumerate() {
            let Some(out) = self.nodes[*place].as_mut().and_then(|n| n.outbound()) else {
                continue;
            };
            let mut batches = Vec::new();
            out.take(&mut batches);
            fx.sends.extend(batches.into_iter().map(|(lane, batch)| (edge, lane, batch)));
        }
    }

    /// Begins a mark or a tick.
    fn begin(&mut self, message: Passed) -> Box<Clocked> {
        let before = self.now;
        let (domain, upto, limit, since) = match &message.control {
            Control::Tick(tick) => {
                self.now.wall = tick.wall;
                // Punctuators are due at the first tick that reaches them, cut or not.
                (TimeDomain::Wall, tick.wall, tick.limits[self.id.sub.0 as usize].clone(), Some(before.wall))
            }
            Control::Mark(mark) => {
                let limit = mark.limits[self.id.sub.0 as usize].clone();
                self.now.watermark = before.watermark.max(message.watermark);
                let watermark = self.now.watermark;
                // Whether the limit cuts must not depend on what is pending here: it is decided by limit and watermark
                // alone.
                let whole = limit.as_ref().is_none_or(|l| l.time > watermark) && watermark > self.punctuated;
                (TimeDomain::Event, watermark, limit, whole.then_some(self.punctuated))
            }
            Control::Barrier(_) | Control::Applied(_) => unreachable!("these have no clock"),
        };
        let firing = Some(Firing::default());
        Box::new(Clocked { message, domain, upto, limit, since, firing, punctuating: Vec::new().into_iter() })
    }

    /// Goes on with a mark or a tick: fires what lies at or before its time and limit, calls punctuators, and says what is
    /// left.
    fn clocked(&mut self, mut c: Box<Clocked>, fx: &mut Effects) -> Result<(), Failure> {
        let (number, awaits) = (c.message.number, self.awaits);
        if let Some(mut firing) = c.firing.take() {
            let stage = self.id.sub;
            self.guarded(number, |cx, stateful| fire(cx, stateful, stage, awaits, &c, &mut firing))?;
            if self.look() {
                c.firing = Some(firing);
                self.interrupt(c, fx);
                return Ok(());
            }
            if let Some(since) = c.since {
                c.punctuating = self.due(number, c.domain, since, c.upto)?;
            }
        }
        self.punctuate(number, &mut c.punctuating)?;
        if self.look() {
            self.interrupt(c, fx);
            return Ok(());
        }
        let mut passed = c.message;
        passed.watermark = match c.domain {
            TimeDomain::Event => {
                if c.since.is_some() {
                    self.punctuated = c.upto;
                }
                self.marked(number, c.upto, fx)?
            }
            TimeDomain::Wall => {
                let Left { more_due, nth, .. } = self.pending(number, TimeDomain::Wall, c.upto)?;
                fx.events.push(NetEvent::Ticked { lane: self.id, number, more_due, nth });
                Timestamp::MIN
            }
        };
        self.collect(fx);
        fx.control = Some(passed);
        Ok(())
    }

    fn interrupt(&mut self, clocked: Box<Clocked>, fx: &mut Effects) {
        self.interrupted = Some(clocked);
        self.collect(fx);
    }

    /// Says what a mark has left. Returns the watermark that the lane hands on.
    fn marked(&mut self, number: u64, watermark: Watermark, fx: &mut Effects) -> Result<Watermark, Failure> {
        let Left { more_due, nth, first } = self.pending(number, TimeDomain::Event, watermark)?;
        fx.events.push(NetEvent::Marked { lane: self.id, number, more_due, nth, first });
        Ok(if more_due { Timestamp::MIN } else { watermark })
    }

    /// What is pending of a clock, and whether at or before `upto`.
    fn pending(&mut self, number: u64, domain: TimeDomain, upto: Timestamp) -> Result<Left, Failure> {
        let n = self.timers_per_mark - 1;
        self.guarded(number, |cx, stateful| {
            let (mut due, mut read) = (Left::default(), Ok(()));
            each_timers(cx.nodes, stateful, domain, |_, _, t| {
                let mut look = || {
                    if let Some((time, _)) = t.first(Timestamp::MAX)? {
                        due.more_due |= time <= upto;
                        due.first = Some(due.first.map_or(time, |f| f.min(time)));
                    }
                    if let Some((time, key)) = t.nth(n)? {
                        let p = Position { time, key };
                        if due.nth.as_ref().is_none_or(|least| p < *least) {
                            due.nth = Some(p);
                        }
                    }
                    Ok(())
                };
                if read.is_ok() {
                    read = look();
                }
            });
            read.map(|()| due)
        })
    }

    /// The punctuators of which a multiple of `every` lies in `before < t <= now`: first those without a key, then key by
    /// key.
    fn due(
        &mut self,
        number: u64,
        domain: TimeDomain,
        before: Timestamp,
        now: Timestamp,
    ) -> Result<std::vec::IntoIter<Due>, Failure> {
        let due: Vec<(usize, u32, Timestamp, Option<usize>)> = self
            .stateful
            .iter()
            .flat_map(|s| s.punctuators.iter().enumerate().map(|(i, p)| (s.place, i as u32, p)))
            .filter(|(_, _, p)| p.domain == domain)
            .filter_map(|(place, which, p)| Some((place, which, multiple(p.every, before, now)?, p.over)))
            .collect();
        if due.is_empty() {
            return Ok(Vec::new().into_iter());
        }
        let (id, lanes) = (self.id, self.lanes);
        let names = self.names.clone();
        self.guarded(number, |cx, _| {
            let mut calls = Vec::new();
            for (place, which, at, over) in due {
                let Some(over) = over else {
                    calls.push(Due { key: None, place, which, at });
                    continue;
                };
                let mut keys = Ok(Vec::new());
                visit_field(cx.nodes, place, over, &mut |f| {
                    keys = f.keys(&|k| lane_of(lane_hash(k), lanes) == id.lane.0);
                });
                let keys = keys.map_err(|e| e.at(format!("node `{}`", names[place])))?;
                calls.extend(keys.into_iter().map(|k| Due { key: Some(k), place, which, at }));
            }
            calls.sort_unstable();
            Ok(calls.into_iter())
        })
    }

    /// Calls punctuators, until one waits.
    fn punctuate(&mut self, number: u64, calls: &mut std::vec::IntoIter<Due>) -> Result<(), Failure> {
        if calls.as_slice().is_empty() {
            return Ok(());
        }
        let (sub, awaits) = (self.id.sub, self.awaits);
        let names = self.names.clone();
        self.guarded(number, |cx, _| {
            for Due { key, place, which, at } in calls {
                cx.path = Path::punctuated(sub, key.as_deref().unwrap_or_default(), place as u32, which);
                cx.origin = None;
                if let Some(key) = key {
                    set_key(&mut cx.key, key);
                } else {
                    cx.key.bytes.clear();
                    (cx.key.hash, cx.key.present) = (0, false);
                }
                with_state(cx, place, |s, cx| s.punctuate(which as usize, at, cx))
                    .map_err(|e| e.at(format!("node `{}`, punctuator at {at}", names[place])))?;
                if awaits.is_some_and(|place| waits(cx.nodes, place)) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn barrier(&mut self, number: u64, epoch: Epoch, fx: &mut Effects) -> Result<(), Failure> {
        if self.stateful.iter().any(|s| s.emits) {
            let (stage, names) = (self.id.sub, self.names.clone());
            self.guarded(number, |cx, stateful| {
                // Parents come before their children, so what one hands on is in what the next one hands on.
                for s in stateful.iter().filter(|s| s.emits) {
                    with_state(cx, s.place, |state, cx| state.barrier(stage, s.place as u32, cx))
                        .map_err(|e| e.at(format!("node `{}` at the end of epoch {epoch}", names[s.place])))?;
                }
                Ok(())
            })?;
        }
        if !self.foreign {
            return self.freeze(epoch, fx);
        }
        let mut writes = Vec::new();
        each_field(&mut self.nodes, &self.stateful, |_, f| {
            if let Some(t) = f.timers() {
                writes.append(&mut t.take_foreign());
            }
        });
        fx.events.push(NetEvent::Exchange { lane: self.id, epoch, writes });
        self.waiting = Some(epoch);
        Ok(())
    }

    fn freeze(&mut self, epoch: Epoch, fx: &mut Effects) -> Result<(), Failure> {
        let names = self.names.clone();
        let stores = self.guarded(0, |cx, stateful| {
            let mut stores: Vec<(StoreId, Vec<Row>)> = Vec::new();
            let mut result = Ok(());
            each_field(cx.nodes, stateful, |place, f| {
                let mut rows = Vec::new();
                if result.is_ok() {
                    result = f.freeze(epoch, &mut rows).map_err(|e| e.at(format!("node `{}`", names[place])));
                }
                if rows.is_empty() {
                    return;
                }
                match stores.iter_mut().find(|(id, _)| *id == f.store()) {
                    Some((_, all)) => all.append(&mut rows),
                    None => stores.push((f.store(), rows)),
                }
            });
            result.map(|()| stores)
        })?;
        fx.events.push(NetEvent::Frozen(Box::new(Frozen {
            lane: self.id,
            epoch,
            outputs: std::mem::replace(&mut self.outputs, self.buffers.outputs(&self.sink_topics)),
            stores,
            watermark: self.now.watermark,
            punctuated: self.punctuated,
            tally: std::mem::take(&mut self.gate.tally),
        })));
        Ok(())
    }

    fn applied(&mut self, epoch: Epoch) -> Result<(), Failure> {
        self.guarded(0, |cx, stateful| {
            each_field(cx.nodes, stateful, |_, f| f.applied(epoch));
            Ok(())
        })
    }
}

/// What a lane's outputs are written into: one set for the epoch that is frozen, one for the one behind it.
struct OutputBuffers {
    records: Arc<Pool<OutEntry>>,
    tags: Arc<Pool<u64>>,
}

impl Default for OutputBuffers {
    fn default() -> Self {
        // How large they get is bounded by what an epoch may hold.
        Self { records: Arc::new(Pool::new(2, usize::MAX)), tags: Arc::new(Pool::new(2, usize::MAX)) }
    }
}

impl OutputBuffers {
    fn outputs(&self, topics: &Arc<[Arc<str>]>) -> Outputs {
        Outputs { batch: ProduceBatch::reusing(topics.clone(), &self.records), tags: Tags::reusing(&self.tags) }
    }
}

fn set_key(current: &mut CurrentKey, key: Vec<u8>) {
    current.hash = lane_hash(&key);
    current.bytes = key;
    current.present = true;
}

/// The last multiple of `every` (since the epoch of the clock) in `before < t <= now`. None at the first reading: what
/// would be due since the beginning of time is not.
fn multiple(every: Duration, before: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let every = i64::try_from(every.as_millis()).unwrap_or(i64::MAX).max(1);
    let last = Timestamp(now.0.div_euclid(every) * every);
    (before != Timestamp::MIN && now != Timestamp::MIN && last > before).then_some(last)
}

fn each_field(
    nodes: &mut [Option<Box<dyn Operator>>],
    stateful: &[Stateful],
    mut visit: impl FnMut(usize, &mut dyn Field),
) {
    for s in stateful {
        if let Some(state) = nodes[s.place].as_mut().and_then(|n| n.state()) {
            state.fields(&mut |f| visit(s.place, f));
        }
    }
}

/// Visits the timer fields of a clock: place of the node, number of the field.
fn each_timers(
    nodes: &mut [Option<Box<dyn Operator>>],
    stateful: &[Stateful],
    domain: TimeDomain,
    mut visit: impl FnMut(usize, usize, &mut dyn PendingTimers),
) {
    for s in stateful.iter().filter(|s| s.timers) {
        if let Some(state) = nodes[s.place].as_mut().and_then(|n| n.state()) {
            let mut i = 0;
            state.fields(&mut |f| {
                if let Some(t) = f.timers()
                    && t.domain() == domain
                {
                    visit(s.place, i, t);
                }
                i += 1;
            });
        }
    }
}

fn visit_field(
    nodes: &mut [Option<Box<dyn Operator>>],
    place: usize,
    field: usize,
    visit: &mut dyn FnMut(&mut dyn Field),
) {
    if let Some(state) = nodes[place].as_mut().and_then(|n| n.state()) {
        let mut i = 0;
        state.fields(&mut |f| {
            if i == field {
                visit(f);
            }
            i += 1;
        });
    }
}

/// Runs a node with the arena open for what it forwards.
fn with_state(
    cx: &mut LaneCx<'_>,
    place: usize,
    run: impl FnOnce(&mut dyn StateOperator, &mut LaneCx<'_>) -> Result<()>,
) -> Result<()> {
    let mut node = cx.nodes[place].take().expect("no operator runs between two calls");
    let result = run(node.state().expect("the lane calls operators with state only"), cx);
    cx.nodes[place] = Some(node);
    result
}

/// Whether a call of this operator waits.
fn waits(nodes: &mut [Option<Box<dyn Operator>>], place: usize) -> bool {
    nodes[place].as_mut().and_then(|n| n.waiting()).is_some_and(|c| c.waits())
}

/// Fires timers in order of (time, key, node, field), as far as clock and limit go, or until a handler waits.
///
/// A timer set by a firing for a time not after it counts as having that time, so the order that is sent rises and the
/// limit means the same on all lanes.
fn fire(
    cx: &mut LaneCx<'_>,
    stateful: &[Stateful],
    stage: SubTopologyId,
    awaits: Option<usize>,
    c: &Clocked,
    firing: &mut Firing,
) -> Result<()> {
    // Behind the limit nothing is looked for.
    let (domain, upto) = (c.domain, c.limit.as_ref().map_or(c.upto, |l| c.upto.min(l.time)));
    let mut least = Vec::new();
    loop {
        let mut due: Option<(Timestamp, usize, usize)> = None;
        let mut read = Ok(());
        each_timers(cx.nodes, stateful, domain, |place, field, t| match t.first(upto) {
            Ok(Some((time, key))) if due.is_none_or(|(best, ..)| (time, key) < (best, least.as_slice())) => {
                due = Some((time, place, field));
                least.clear();
                least.extend_from_slice(key);
            }
            Ok(_) => {}
            Err(e) => read = Err(e),
        });
        read?;
        let Some((time, place, field)) = due else { return Ok(()) };
        let clock = firing.clock.map_or(time, |clock| clock.max(time));
        firing.clock = Some(clock);
        if c.limit.as_ref().is_some_and(|l| (clock, &least) > (l.time, &l.key)) {
            return Ok(());
        }
        visit_field(cx.nodes, place, field, &mut |f| {
            if let Some(t) = f.timers() {
                t.take_first();
            }
        });
        let (at, key, count) = &mut firing.last;
        if *at == clock && *key == least && *count > 0 {
            *count += 1;
        } else {
            (*at, *count) = (clock, 1);
            key.clone_from(&least);
        }
        cx.path.set_fired(stage, clock, &least, *count);
        cx.origin = None;
        cx.key.hash = lane_hash(&least);
        cx.key.bytes.clone_from(&least);
        cx.key.present = true;
        with_state(cx, place, |s, cx| s.fire(field, time, cx)).map_err(|e| e.at(format!("timer at {time}")))?;
        if awaits.is_some_and(|place| waits(cx.nodes, place)) {
            return Ok(());
        }
    }
}
