//! Scheduled sources of a running generation: which tick is due, and what it emits.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::ingest::Ingest;
use super::message::LaneNet;
use crate::error::{Error, Result};
use crate::id::SubTopologyId;
use crate::operator::Child;
use crate::plan::Plan;
use crate::record::RecordBatch;
use crate::schedule::{Emitter, Reading, Tick, Timetable};
use crate::store::ByteStore;
use crate::time::{TimeDomain, Timestamp, Watermark};
use crate::topology::graph::Graph;

/// Ticks of one schedule that lanes may have before them at most. A barrier waits for all that is before it, so where ticks
/// come faster than lanes work, more of them would keep it from ever being reached in time. Less than a lane's credit, so that
/// there is room for records as well.
const AHEAD: usize = 4;

struct Scheduled {
    name: String,
    sub: SubTopologyId,
    entry: Child,
    timetable: Timetable,
    emit: Emitter,
    /// The stores that it reads.
    reading: Reading,
    /// The last tick that was handled or passed over; `None`: the schedule is new.
    last: Option<Timestamp>,
    /// Whether `last` is not committed, though nothing has ticked.
    new: bool,
    /// Before this nothing is due.
    next: Timestamp,
    /// The last ingest number of each tick that lanes may still work on.
    ahead: VecDeque<u64>,
    /// More was due at the last look than could be handled.
    behind: bool,
}

impl Scheduled {
    /// Whether lanes take one more tick.
    fn has_room(&mut self, net: &dyn LaneNet) -> bool {
        if self.ahead.len() >= AHEAD {
            let lowest = net.lowest();
            self.ahead.retain(|n| *n >= lowest);
        }
        self.ahead.len() < AHEAD
    }

    /// Whether a commit that is being applied holds it up.
    fn waits(&self, applying: bool) -> bool {
        applying && !self.reading.is_empty()
    }
}

/// All schedules of a topology.
pub struct Schedules {
    all: Vec<Scheduled>,
    /// Since when the process runs, pauses aside: what was due before was missed.
    started: Timestamp,
}

impl Schedules {
    /// Goes on behind the last ticks of a committed cut.
    pub fn new(
        graph: &Graph,
        places: &[Child],
        stores: &[Arc<dyn ByteStore>],
        last: &BTreeMap<String, Timestamp>,
        started: Timestamp,
    ) -> Self {
        let all = graph
            .schedules
            .iter()
            .map(|s| {
                let last = last.get(&s.name).copied();
                // A new one begins now; one of event time begins with the first watermark.
                let begins = || match s.timetable.clock() {
                    TimeDomain::Wall => s.timetable.newest(started),
                    TimeDomain::Event => None,
                };
                Scheduled {
                    name: s.name.clone(),
                    sub: graph.nodes[s.node.0 as usize].sub,
                    entry: places[s.node.0 as usize],
                    timetable: s.timetable.clone(),
                    emit: s.emit,
                    reading: Reading::new(&s.stores, &graph.stores, stores),
                    new: last.is_none(),
                    last: last.or_else(begins),
                    next: Timestamp::MIN,
                    ahead: VecDeque::new(),
                    behind: false,
                }
            })
            .collect();
        Self { all, started }
    }

    /// What was due by then was missed: the application was paused.
    pub fn missed_until(&mut self, wall: Timestamp) {
        self.started = self.started.max(wall);
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        self.all.iter().map(|s| s.name.clone()).collect()
    }

    /// The last tick of each, by name: what a barrier that is sent now commits.
    pub fn last(&self) -> BTreeMap<String, Timestamp> {
        self.all.iter().filter_map(|s| Some((s.name.clone(), s.last?))).collect()
    }

    /// When the next tick of the wall clock is due; `applying` as in [`Schedules::run`].
    pub fn next_wall(&self, applying: bool) -> Option<Timestamp> {
        let mine = |s: &&Scheduled| s.timetable.clock() == TimeDomain::Wall && !s.waits(applying);
        self.all.iter().filter(mine).map(|s| s.next).min()
    }

    /// Whether ticks are due that wait for lanes.
    pub fn behind(&self) -> bool {
        self.all.iter().any(|s| s.behind)
    }

    /// Handles the ticks that are due and that lanes have room for; returns how many. While a commit is being written to the
    /// stores (`applying`), those that read wait: they see all of it or nothing.
    ///
    /// # Errors
    /// What an emitter returned, with the schedule and the tick; a panic too.
    pub fn run(
        &mut self,
        ingest: &mut Ingest,
        net: &mut dyn LaneNet,
        wall: Timestamp,
        applying: bool,
    ) -> Result<usize> {
        let mut handled = 0;
        for i in 0..self.all.len() {
            if self.all[i].waits(applying) {
                continue;
            }
            let event = ingest.event_time();
            let s = &mut self.all[i];
            s.behind = false;
            let (now, started) = match s.timetable.clock() {
                TimeDomain::Wall => (wall, self.started),
                // Event time does not pass while the application is down.
                TimeDomain::Event => (event, Timestamp::MIN),
            };
            if now < s.next || now == Timestamp::MIN {
                continue;
            }
            let mut turn = s.timetable.turn(s.last, now, started);
            let before = s.last;
            for at in turn.fire {
                if !self.all[i].has_room(net) {
                    // It is due again: what becomes of those that others join meanwhile, the timetable decides then.
                    (turn.last, self.all[i].behind) = (self.all[i].last, true);
                    break;
                }
                self.fire(i, at, ingest, net, wall)?;
                self.all[i].last = Some(at);
                handled += 1;
            }
            let s = &mut self.all[i];
            s.last = turn.last;
            let passed = std::mem::take(&mut s.new) || s.last != before;
            s.next = s.last.and_then(|l| s.timetable.next(l)).unwrap_or(Timestamp::MAX);
            // A turn has its bound, too.
            s.behind |= s.next <= now;
            if passed {
                ingest.schedule_passed();
            }
        }
        Ok(handled)
    }

    /// Handles one tick of a schedule.
    fn fire(
        &mut self,
        i: usize,
        at: Timestamp,
        ingest: &mut Ingest,
        net: &mut dyn LaneNet,
        wall: Timestamp,
    ) -> Result<()> {
        let s = &self.all[i];
        let tick = Tick { time: at, wall_clock: wall, watermark: ingest.event_time() };
        let mut batch = RecordBatch::default();
        let done = catch_unwind(AssertUnwindSafe(|| (s.emit)(tick, &mut batch, &s.reading))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().copied().map(str::to_owned);
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(Error::handler(format!("the code panicked: {}", text.as_deref().unwrap_or("without a text"))))
        });
        done.map_err(|e| e.at(format!("schedule `{}`, tick at {at}", s.name)))?;
        let any = !batch.is_empty();
        ingest.emit(net, i as u32, s.sub, s.entry, batch);
        ingest.scheduled_reached(s.sub, at);
        if any {
            self.all[i].ahead.push_back(ingest.next_number() - 1);
        }
        Ok(())
    }

    /// Handles a tick of one schedule now, whatever its times.
    ///
    /// # Errors
    /// As [`Schedules::run`]; when there is no such schedule.
    #[cfg(any(test, feature = "testing"))]
    pub fn fire_now(
        &mut self,
        name: &str,
        at: Timestamp,
        ingest: &mut Ingest,
        net: &mut dyn LaneNet,
        wall: Timestamp,
    ) -> Result<()> {
        let i = self.known(name)?;
        self.fire(i, at, ingest, net, wall)
    }

    /// The place of a schedule.
    ///
    /// # Errors
    /// When there is none of this name.
    #[cfg(any(test, feature = "testing"))]
    pub fn known(&self, name: &str) -> Result<usize> {
        self.all.iter().position(|s| s.name == name).ok_or_else(|| {
            let text = format!("the topology has no schedule `{name}`; it has: {}", self.names().join(", "));
            Error::new(crate::error::ErrorKind::Topology, text)
        })
    }

    /// Lets time go on where only schedules feed a sub-topology, so that it holds back nothing behind it: to the wall clock,
    /// or to the last tick that event time has reached. Called when a mark goes out anyway.
    pub fn reach(&self, plan: &Plan, ingest: &mut Ingest, wall: Timestamp) {
        let mut low: BTreeMap<SubTopologyId, Watermark> = BTreeMap::new();
        for s in &self.all {
            let reached = match s.timetable.clock() {
                TimeDomain::Wall => wall,
                TimeDomain::Event => s.last.unwrap_or(Timestamp::MIN),
            };
            low.entry(s.sub).and_modify(|l| *l = (*l).min(reached)).or_insert(reached);
        }
        for (sub, reached) in low {
            debug_assert!(plan.subs[sub.0 as usize].has_sources, "a schedule is a source");
            ingest.scheduled_reached(sub, reached);
        }
    }
}
