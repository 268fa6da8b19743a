//! Ingest, the sequencer: which record comes next, and what number it gets.
//!
//! Owns the per-partition buffers, the choice across partitions, the numbers, the watermarks of the sources. Never
//! reorders a partition, never reads a clock: `now` is a monotonic time in ms, `wall` the wall clock, both given.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::message::{Control, LaneBatch, LaneItem, LaneNet, LaneSource, Mark, Position};
use crate::broker::Fetched;
use crate::config::LEAST_FETCH;
use crate::hash::{lane_hash, lane_of};
use crate::id::{LaneId, LaneIdx, NextOffset, Offset, SubTopologyId};
use crate::metrics::{self, Counter};
use crate::operator::Child;
use crate::plan::Plan;
use crate::record::{Origin, RecordBatch};
use crate::time::{NoTimestamp, Timestamp, Watermark, WatermarkGenerator, WatermarkStrategy};
use crate::topology::graph::LaneKey;

use super::epoch_record::InputCut;

/// Records per batch on the way to a lane.
const BATCH: usize = 256;
/// What stands in the journal for a control message.
const NO_PARTITION: u32 = u32::MAX;
/// Fetches of a partition that lanes may hold at most, in bytes of its fetches.
const HELD: usize = 2;
/// Records that one group may dispatch before the other groups have their turn.
const TURN: usize = 1024;

/// What ingest must know of one input partition.
#[derive(Clone, Debug)]
pub struct InputSpec {
    /// The sub-topology it feeds.
    pub sub: SubTopologyId,
    /// The source operator's place in that sub-topology's lanes.
    pub entry: Child,
    /// Which partitions wait for each other.
    pub group: u32,
    /// Which bytes pick the lane.
    pub lane_key: LaneKey,
    /// How the watermark follows.
    pub watermark: WatermarkStrategy,
    /// The name, for messages.
    pub name: String,
}

/// A fetched batch and how far it has been dispatched.
struct Chunk {
    batch: Arc<RecordBatch>,
    at: usize,
}

struct Input {
    spec: InputSpec,
    buffer: VecDeque<Chunk>,
    buffered: usize,
    /// Dispatched to the end and perhaps still held by lanes: one that is slow holds all of a batch by one record of it.
    out: Vec<Arc<RecordBatch>>,
    /// An answer to a fetch is awaited.
    fetching: bool,
    /// The offset that the broker reads next, markers counted.
    position: NextOffset,
    caught_up: bool,
    /// Since when this partition, empty though more is to come, holds its group back.
    waiting_since: Option<u64>,
    /// The offset behind the last dispatched record.
    next: NextOffset,
    watermark: Watermark,
    /// Where the source derives it in a way of its own.
    generator: Option<Box<dyn WatermarkGenerator>>,
    idle: bool,
    /// When the last record was dispatched, or the engine began.
    last_record: u64,
    /// Its number.
    last_number: u64,
    /// When the broker was last asked whether there is more to come, and said: nothing.
    confirmed: u64,
    /// When it was last asked.
    asked: u64,
    /// The lane hash of its records without a key.
    keyless: u64,
}

impl Input {
    /// Whether all that is known of it is worked off (`lowest`: the smallest number still worked on).
    fn is_at_rest(&self, lowest: u64) -> bool {
        self.caught_up && self.buffer.is_empty() && self.last_number < lowest
    }

    /// The largest time that counts, as far as the watermark tells.
    fn reached(&self) -> Timestamp {
        let behind = if self.generator.is_none() { self.spec.watermark.out_of_orderness } else { Duration::ZERO };
        if self.watermark == Timestamp::MIN { Timestamp::MIN } else { self.watermark + behind }
    }

    /// Its head was taken.
    fn taken(&mut self) {
        let chunk = self.buffer.front_mut().expect("the caller has seen a head");
        chunk.at += 1;
        if chunk.at == chunk.batch.len() {
            self.buffered -= chunk.batch.weight();
            self.out.extend(self.buffer.pop_front().map(|c| c.batch));
        }
    }

    /// Bytes of what was dispatched to the end and lanes still hold.
    fn held(&mut self) -> usize {
        self.out.retain(|b| Arc::strong_count(b) > 1);
        self.out.iter().map(|b| b.weight()).sum()
    }

    fn head(&self, horizon: Timestamp) -> Option<Timestamp> {
        let c = self.buffer.front()?;
        let t = c.batch.timestamp(c.at);
        // What lies beyond the future bound does not take part in the choice: it goes at once and holds nobody up.
        Some(if t > horizon + self.spec.watermark.future_bound { Timestamp::MIN } else { t })
    }
}

/// The timestamp at a partition's head, and the partition.
type Head = (Timestamp, u32);

/// A stretch of dispatched records whose numbers and offsets rise together.
struct Stretch {
    number: u64,
    partition: u32,
    offset: Offset,
}

/// See the module.
pub struct Ingest {
    inputs: Vec<Input>,
    groups: Vec<Vec<u32>>,
    /// By sub-topology.
    lanes: Vec<u32>,
    pending: Vec<Vec<LaneBatch>>,
    next_number: u64,
    max_wait: u64,
    batch_bytes: usize,
    fetch_bytes: usize,
    held: bool,
    wall: Timestamp,
    /// What the last mark said, by sub-topology; what late is judged against.
    marked: Vec<Watermark>,
    /// Dispatched since the last barrier.
    records: u64,
    moved: bool,
    /// By sub-topology: how far event time has gone on without records.
    closed: Vec<Watermark>,
    /// By sub-topology: how far schedules have brought one that no topic feeds.
    scheduled: Vec<Option<Watermark>>,
    /// The schedules' names, for messages.
    schedules: Vec<String>,
    journal: Vec<Stretch>,
    /// Those of records among them.
    stretches: usize,
    scratch: Vec<u8>,
    late: Counter,
    future: Counter,
    no_timestamp: Counter,
}

/// The committed cut that ingest begins at.
#[derive(Clone, Debug)]
pub struct Cut {
    /// By input partition.
    pub inputs: Vec<InputCut>,
    /// The watermark that each sub-topology has reached.
    pub marked: Vec<Watermark>,
    /// The last tick.
    pub wall: Timestamp,
}

/// Bounds of ingest.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How long an empty partition with more to come holds the others back.
    pub max_wait: Duration,
    /// Bytes of fetched records over all partitions.
    pub fetch_budget: usize,
    /// Bytes of a batch on the way to a lane; a batch of one record may have more. What a lane is sent ahead is bounded by
    /// its credit, which counts batches.
    pub batch_bytes: usize,
}

/// What one turn of ingest did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dispatched {
    /// Records handed to lanes.
    pub records: usize,
    /// Whether a lane without room ended the turn.
    pub stalled: bool,
}

impl Ingest {
    /// Begins at a committed cut.
    pub fn new(plan: &Plan, specs: Vec<InputSpec>, cut: &Cut, limits: Limits, now: u64) -> Self {
        let n_groups = specs.iter().map(|s| s.group as usize + 1).max().unwrap_or(0);
        let mut groups = vec![Vec::new(); n_groups];
        for (i, s) in specs.iter().enumerate() {
            groups[s.group as usize].push(i as u32);
        }
        groups.retain(|g| !g.is_empty());
        let mut fed = vec![false; plan.subs.len()];
        for s in &specs {
            fed[s.sub.0 as usize] = true;
        }
        let fetch_bytes = (limits.fetch_budget / specs.len().max(1)).clamp(LEAST_FETCH, 1 << 20);
        let inputs = specs
            .into_iter()
            .zip(&cut.inputs)
            .enumerate()
            .map(|(i, (spec, cut))| Input {
                generator: spec.watermark.generator.as_ref().map(crate::time::Generator::make),
                spec,
                buffer: VecDeque::new(),
                buffered: 0,
                out: Vec::new(),
                fetching: false,
                position: cut.next,
                caught_up: false,
                waiting_since: None,
                next: cut.next,
                watermark: cut.watermark,
                idle: false,
                last_record: now,
                last_number: 0,
                confirmed: now,
                asked: now,
                keyless: lane_hash(&(i as u32).to_be_bytes()),
            })
            .collect();
        let lanes = plan.lane_counts();
        let empty = |n: &u32| (0..*n).map(|_| LaneBatch::default()).collect();
        Self {
            inputs,
            groups,
            pending: lanes.iter().map(empty).collect(),
            lanes,
            next_number: 1,
            max_wait: limits.max_wait.as_millis() as u64,
            batch_bytes: limits.batch_bytes,
            fetch_bytes,
            held: false,
            wall: cut.wall,
            scheduled: plan
                .subs
                .iter()
                .enumerate()
                .map(|(sub, s)| (s.has_sources && !fed[sub]).then_some(Timestamp::MIN))
                .collect(),
            schedules: Vec::new(),
            closed: cut.marked.clone(),
            marked: cut.marked.clone(),
            records: 0,
            moved: false,
            journal: Vec::new(),
            stretches: 0,
            scratch: Vec::new(),
            late: metrics::counter(metrics::LATE_RECORDS),
            future: metrics::counter(metrics::FUTURE_RECORDS),
            no_timestamp: metrics::dropped(metrics::NO_TIMESTAMP),
        }
    }

    /// Which partitions to ask for more, and for how many bytes. Asking is remembered until [`Ingest::fetched`].
    pub fn demand(&mut self, out: &mut Vec<(u32, usize)>) {
        self.held = false;
        for (i, input) in self.inputs.iter_mut().enumerate() {
            if !input.fetching && input.buffered * 2 <= self.fetch_bytes {
                if input.held() > HELD * self.fetch_bytes {
                    self.held = true;
                    continue;
                }
                input.fetching = true;
                out.push((i as u32, self.fetch_bytes));
            }
        }
    }

    /// Whether a partition was not asked for more because of what lanes hold. Nobody tells when they no longer do.
    pub fn held(&self) -> bool {
        self.held
    }

    /// Takes what the broker fetched. A record without a timestamp goes on like all others, unless its source skips it: the
    /// gate decides on its lane.
    pub fn fetched(&mut self, partition: u32, mut fetched: Fetched) {
        let input = &mut self.inputs[partition as usize];
        input.fetching = false;
        input.position = fetched.position;
        input.caught_up = fetched.caught_up;
        let strategy = &input.spec.watermark;
        if let Some(timestamps) = &strategy.timestamps {
            fetched.batch.stamp(|r| timestamps.extract(r));
        }
        if fetched.caught_up || !fetched.batch.is_empty() {
            input.waiting_since = None;
        }
        if !fetched.batch.is_empty() {
            input.buffered += fetched.batch.weight();
            input.buffer.push_back(Chunk { batch: Arc::new(fetched.batch), at: 0 });
        }
    }

    /// Dispatches at most about `quota` records to lanes that have room.
    pub fn dispatch(&mut self, net: &mut dyn LaneNet, now: u64, wall: Timestamp, quota: usize) -> Dispatched {
        let mut done = Dispatched::default();
        loop {
            let before = done.records;
            for g in 0..self.groups.len() {
                let turn = TURN.min(quota - done.records);
                done.records += self.group(g, net, now, wall, turn, &mut done.stalled);
            }
            if done.records == before || done.records >= quota || done.stalled {
                break;
            }
        }
        self.flush(net, false);
        net.publish(self.frontier());
        self.records += done.records as u64;
        done
    }

    fn group(
        &mut self,
        g: usize,
        net: &mut dyn LaneNet,
        now: u64,
        wall: Timestamp,
        turn: usize,
        stalled: &mut bool,
    ) -> usize {
        let mut taken = 0;
        while taken < turn {
            let (mut best, mut second): (Option<Head>, Option<Head>) = (None, None);
            for &i in &self.groups[g] {
                let input = &mut self.inputs[i as usize];
                let Some(t) = input.head(wall) else {
                    if !input.caught_up {
                        let since = *input.waiting_since.get_or_insert(now);
                        if now.saturating_sub(since) < self.max_wait {
                            return taken;
                        }
                    }
                    continue;
                };
                if best.is_none_or(|b| (t, i) < b) {
                    second = best;
                    best = Some((t, i));
                } else if second.is_none_or(|s| (t, i) < s) {
                    second = Some((t, i));
                }
            }
            let Some((_, i)) = best else { return taken };
            // Stay with this partition while it has the smallest head: that is most of the time.
            loop {
                if !self.take(i, net, now, wall) {
                    *stalled = true;
                    return taken;
                }
                taken += 1;
                let head = self.inputs[i as usize].head(wall);
                if taken >= turn || head.is_none_or(|t| second.is_some_and(|s| (t, i) > s)) {
                    break;
                }
            }
        }
        taken
    }

    /// Dispatches the head of a partition; `false` when its lane has no room.
    fn take(&mut self, i: u32, net: &mut dyn LaneNet, now: u64, wall: Timestamp) -> bool {
        let input = &mut self.inputs[i as usize];
        let chunk = input.buffer.front_mut().expect("the caller has seen a head");
        let raw = chunk.batch.get(chunk.at);
        if raw.timestamp.0 < 0 && input.spec.watermark.no_timestamp == NoTimestamp::Skip {
            self.no_timestamp.increment(1);
            input.next = raw.offset + 1;
            input.taken();
            return true;
        }
        self.scratch.clear();
        let mut reencoded = false;
        let hash = match (raw.key, input.spec.lane_key) {
            (None, _) => input.keyless,
            (Some(k), LaneKey::Raw) => lane_hash(k),
            // What cannot be decoded travels to a lane as it is: the gate runs there.
            (Some(k), LaneKey::Reencoded(f)) => {
                reencoded = f(k, &mut self.scratch).is_ok();
                lane_hash(if reencoded { &self.scratch } else { k })
            }
        };
        let sub = input.spec.sub.0 as usize;
        let lane = lane_of(hash, self.lanes[sub]);
        let pending = &mut self.pending[sub][lane as usize];
        let bytes = raw.key.map_or(0, <[u8]>::len) + raw.value.map_or(0, <[u8]>::len);
        let full = pending.items.len() >= BATCH || pending.bytes + bytes > self.batch_bytes;
        if full && !pending.items.is_empty() {
            let id = LaneId { sub: input.spec.sub, lane: LaneIdx(lane) };
            if !net.has_room(id) {
                return false;
            }
            net.send(id, std::mem::take(pending));
        }
        let at = pending.sources.iter().rposition(|s| Arc::ptr_eq(&s.batch, &chunk.batch));
        let source = at.unwrap_or_else(|| {
            let (batch, entry) = (chunk.batch.clone(), input.spec.entry);
            pending.sources.push(LaneSource { batch, partition: i, entry });
            pending.sources.len() - 1
        });
        let key = reencoded.then(|| {
            let start = pending.keys.len() as u32;
            pending.keys.extend_from_slice(&self.scratch);
            (start, self.scratch.len() as u32)
        });
        let number = self.next_number;
        pending.items.push(LaneItem { number, source: source as u32, index: chunk.at as u32, hash, key });
        pending.bytes += bytes;
        self.next_number += 1;
        let joins = self.journal.last().is_some_and(|s| {
            s.partition == i && number - s.number == u64::try_from(raw.offset - s.offset).unwrap_or(u64::MAX)
        });
        if !joins {
            self.journal.push(Stretch { number, partition: i, offset: raw.offset });
            self.stretches += 1;
        }
        input.next = raw.offset + 1;
        input.idle = false;
        input.last_record = now;
        input.last_number = number;
        let strategy = &input.spec.watermark;
        let horizon = wall + strategy.future_bound;
        if raw.timestamp.0 < 0 {
            // It has no time to move the watermark by; the gate of its lane decides about it.
        } else if raw.timestamp <= horizon {
            let reached = match &mut input.generator {
                None => raw.timestamp - strategy.out_of_orderness,
                Some(g) => g.on_record(raw.timestamp, &raw).min(horizon),
            };
            input.watermark = input.watermark.max(reached);
        } else {
            self.future.increment(1);
        }
        if raw.timestamp.0 >= 0 && raw.timestamp < self.marked[sub] {
            self.late.increment(1);
        }
        input.taken();
        true
    }

    /// Hands over what a tick of a schedule emitted, all of it, whether or not there is room: a barrier comes before it or
    /// behind it.
    pub fn emit(&mut self, net: &mut dyn LaneNet, schedule: u32, sub: SubTopologyId, entry: Child, batch: RecordBatch) {
        let (batch, partition) = (Arc::new(batch), self.inputs.len() as u32 + schedule);
        let keyless = lane_hash(&partition.to_be_bytes());
        for i in 0..batch.len() {
            let raw = batch.get(i);
            let hash = raw.key.map_or(keyless, lane_hash);
            let lane = lane_of(hash, self.lanes[sub.0 as usize]);
            let pending = &mut self.pending[sub.0 as usize][lane as usize];
            let at = pending.sources.iter().rposition(|s| Arc::ptr_eq(&s.batch, &batch));
            let source = at.unwrap_or_else(|| {
                pending.sources.push(LaneSource { batch: batch.clone(), partition, entry });
                pending.sources.len() - 1
            });
            let number = self.next_number;
            pending.items.push(LaneItem { number, source: source as u32, index: i as u32, hash, key: None });
            self.journal.push(Stretch { number, partition, offset: raw.offset });
            self.stretches += 1;
            self.next_number += 1;
        }
        self.records += batch.len() as u64;
        self.hand_over(net);
    }

    /// A schedule has passed a tick: that is to be committed, also where it emitted nothing.
    pub fn schedule_passed(&mut self) {
        self.moved = true;
    }

    /// How far schedules have brought a sub-topology; without effect where topics feed it.
    pub fn scheduled_reached(&mut self, sub: SubTopologyId, to: Watermark) {
        if let Some(reached) = &mut self.scheduled[sub.0 as usize] {
            *reached = to.max(*reached);
        }
    }

    /// The watermark of all topics, as of the last mark; [`Timestamp::MIN`]: none yet.
    pub fn event_time(&self) -> Watermark {
        let fed = self.scheduled.iter().zip(&self.marked).enumerate();
        let of_topics = fed.filter(|(sub, (s, _))| s.is_none() && self.is_fed(*sub));
        of_topics.map(|(_, (_, marked))| *marked).min().unwrap_or(Timestamp::MIN)
    }

    fn is_fed(&self, sub: usize) -> bool {
        self.inputs.iter().any(|i| i.spec.sub.0 as usize == sub)
    }

    /// Names the schedules, for messages about what they emit.
    pub fn name_schedules(&mut self, names: Vec<String>) {
        self.schedules = names;
    }

    /// Hands over what waits in batches that are not full; `force`: whether or not there is room.
    fn flush(&mut self, net: &mut dyn LaneNet, force: bool) {
        for (sub, lanes) in self.pending.iter_mut().enumerate() {
            for (lane, pending) in lanes.iter_mut().enumerate() {
                let id = LaneId { sub: SubTopologyId(sub as u32), lane: LaneIdx(lane as u32) };
                if !pending.items.is_empty() && (force || net.has_room(id)) {
                    net.send(id, std::mem::take(pending));
                }
            }
        }
    }

    /// Hands over all that was dispatched, whether or not there is room.
    pub fn hand_over(&mut self, net: &mut dyn LaneNet) {
        self.flush(net, true);
        net.publish(self.frontier());
    }

    /// The smallest number that may still be sent.
    pub fn frontier(&self) -> u64 {
        let waiting = self.pending.iter().flatten().filter_map(|p| p.items.first()).map(|i| i.number).min();
        waiting.unwrap_or(self.next_number)
    }

    /// Sends a control message behind everything dispatched so far; returns its number.
    pub fn control(&mut self, net: &mut dyn LaneNet, control: Control) -> u64 {
        self.flush(net, true);
        let number = self.next_number;
        self.next_number += 1;
        // No record has this number, nor do those behind it follow from one before it.
        self.journal.push(Stretch { number, partition: NO_PARTITION, offset: 0 });
        match &control {
            Control::Tick(tick) => self.wall = tick.wall,
            Control::Mark(mark) => {
                self.marked.clone_from(&mark.watermarks);
                self.moved = true;
            }
            Control::Barrier(_) => {
                self.records = 0;
                self.moved = false;
            }
            Control::Applied(_) => {}
        }
        net.control(number, control);
        net.publish(self.next_number);
        number
    }

    /// The watermark of each sub-topology's own sources now; never behind the last mark.
    pub fn watermarks(&self) -> Vec<Watermark> {
        let mut low: Vec<Option<Watermark>> = vec![None; self.lanes.len()];
        let mut high: Vec<Option<Watermark>> = vec![None; self.lanes.len()];
        for input in &self.inputs {
            let sub = input.spec.sub.0 as usize;
            if input.idle {
                high[sub] = high[sub].max(Some(input.watermark));
            } else {
                low[sub] = Some(low[sub].map_or(input.watermark, |w| w.min(input.watermark)));
            }
        }
        // Where all are idle, none holds back the one that is farthest.
        let reached = low.into_iter().zip(high).zip(&self.scheduled).map(|((low, high), s)| low.or(high).or(*s));
        let floor = self.marked.iter().zip(&self.closed).map(|(m, c)| *m.max(c));
        reached.zip(floor).map(|(w, floor)| w.map_or(floor, |w| w.max(floor))).collect()
    }

    /// How far schedules have brought each sub-topology; `None`: a topic feeds it, or nothing does.
    pub fn scheduled(&self) -> impl Iterator<Item = Option<Watermark>> + '_ {
        self.scheduled.iter().copied()
    }

    /// How far event time has gone on without records, by sub-topology.
    pub fn closed(&self) -> impl Iterator<Item = Watermark> + '_ {
        self.closed.iter().copied()
    }

    /// What the last mark said.
    pub fn marked(&self) -> &Vec<Watermark> {
        &self.marked
    }

    /// The mark to send now, if a watermark has moved.
    pub fn mark(&self, limits: Vec<Option<Position>>) -> Option<Mark> {
        let watermarks = self.watermarks();
        (watermarks != self.marked).then_some(Mark { watermarks, limits })
    }

    /// The last mark again, with new limits: where more was due than one mark may fire.
    pub fn repeat(&self, limits: Vec<Option<Position>>) -> Mark {
        Mark { watermarks: self.marked.clone(), limits }
    }

    /// Partitions that seem to be idle: caught up as far as is known, nothing of them inside the engine (`lowest`: the
    /// smallest number still worked on), and silent for long. Slow is not idle, so the broker is asked whether there is
    /// more to come; its answer goes to [`Ingest::ends`].
    ///
    /// Where event time may go on without records, nobody asks before that would bring it to `wanted`.
    pub fn silent(&mut self, now: u64, lowest: u64, wanted: Timestamp) -> Vec<u32> {
        let mut ask = Vec::new();
        let mut reach: Vec<(Timestamp, u64)> = vec![(Timestamp::MIN, 0); self.lanes.len()];
        for input in &self.inputs {
            let (reached, last) = &mut reach[input.spec.sub.0 as usize];
            (*reached, *last) = ((*reached).max(input.reached()), (*last).max(input.last_record));
        }
        for (i, input) in self.inputs.iter_mut().enumerate() {
            let strategy = &input.spec.watermark;
            let over = |limit: Duration| {
                let limit = limit.as_millis() as u64;
                now.saturating_sub(input.last_record) >= limit && now.saturating_sub(input.asked) >= limit
            };
            let idle = !input.idle && !strategy.idleness.is_zero() && over(strategy.idleness);
            let (reached, last) = reach[input.spec.sub.0 as usize];
            let enough = reached + Duration::from_millis(now.saturating_sub(last)) >= wanted;
            let close = enough && strategy.close_on_idle.is_some_and(over);
            if (idle || close) && input.is_at_rest(lowest) {
                input.asked = now;
                ask.push(i as u32);
            }
        }
        ask
    }

    /// Takes the ends of partitions as they were at `asked`: those that are read to their end are idle, and where all of a
    /// sub-topology are, event time goes on if their sources say so.
    pub fn ends(&mut self, asked: u64, ends: &[(u32, NextOffset)], lowest: u64) {
        for &(i, end) in ends {
            let input = &mut self.inputs[i as usize];
            if input.position < end || input.last_record > asked || !input.is_at_rest(lowest) {
                continue;
            }
            input.confirmed = asked;
            let limit = input.spec.watermark.idleness.as_millis() as u64;
            input.idle |= limit > 0 && asked.saturating_sub(input.last_record) >= limit;
        }
        for sub in 0..self.closed.len() {
            let inputs = || self.inputs.iter().filter(|i| i.spec.sub.0 as usize == sub);
            // How long all of them have been silent for sure; one that does not close holds the others back until it is idle.
            let silence = |i: &Input| match i.spec.watermark.close_on_idle {
                Some(least) => {
                    let silence = Duration::from_millis(i.confirmed.saturating_sub(i.last_record));
                    (silence >= least && i.is_at_rest(lowest)).then_some(silence)
                }
                None => i.idle.then_some(Duration::MAX),
            };
            let silence = inputs().map(silence).reduce(|a, b| Some(a?.min(b?))).flatten();
            let reached = inputs().map(Input::reached).max().unwrap_or(Timestamp::MIN);
            if let Some(silence) = silence.filter(|s| *s < Duration::MAX && reached > Timestamp::MIN) {
                self.closed[sub] = self.closed[sub].max(reached + silence);
            }
        }
    }

    /// The broker could not be reached, so nobody knows how long its partitions have been silent: it begins anew.
    pub fn heard_nothing(&mut self, now: u64) {
        for input in &mut self.inputs {
            input.last_record = now;
            (input.asked, input.confirmed) = (now, now);
        }
    }

    /// Nothing was dispatched from `since` to `now` because the application was paused: no silence was heard meanwhile, and
    /// no partition was waited for.
    pub fn stood_still(&mut self, since: u64, now: u64) {
        // What happened meanwhile counts as happening now.
        let later = |t: u64| t.min(since) + now.saturating_sub(since);
        for input in &mut self.inputs {
            input.last_record = later(input.last_record);
            (input.asked, input.confirmed) = (later(input.asked), later(input.confirmed));
            input.waiting_since = input.waiting_since.map(later);
        }
    }

    /// Where each partition stands: what a barrier that is sent now commits.
    pub fn cuts(&self) -> Vec<InputCut> {
        self.inputs
            .iter()
            .map(|i| InputCut {
                // Behind markers where nothing is left before them, so that a lag of zero shows as zero.
                next: if i.buffer.is_empty() { i.position.max(i.next) } else { i.next },
                watermark: i.watermark,
            })
            .collect()
    }

    /// Records dispatched since the last barrier.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Whether a mark has been sent since the last barrier.
    pub fn moved(&self) -> bool {
        self.moved
    }

    /// The wall clock of the last tick.
    pub fn wall(&self) -> Timestamp {
        self.wall
    }

    /// The next number.
    pub fn next_number(&self) -> u64 {
        self.next_number
    }

    /// Whether every partition is read to its end and nothing waits in a buffer.
    pub fn at_end(&self) -> bool {
        self.inputs.iter().all(|i| i.caught_up && i.buffer.is_empty())
            && self.pending.iter().flatten().all(|p| p.items.is_empty())
    }

    /// The source record behind a number of this epoch or the one before; `None`: a control message.
    pub fn origin(&self, number: u64) -> Option<Origin> {
        let at = self.journal.partition_point(|s| s.number <= number).checked_sub(1)?;
        let s = &self.journal[at];
        let known = s.partition != NO_PARTITION;
        known.then(|| Origin { partition: s.partition, offset: s.offset + (number - s.number) as i64 })
    }

    /// Bytes that it takes to know the origins of all numbers since the last committed barrier: one entry for each stretch of
    /// one partition, so with many partitions one for each record.
    pub fn weight(&self) -> usize {
        self.stretches * size_of::<Stretch>()
    }

    /// Forgets the origins of numbers below `number`.
    pub fn forget(&mut self, number: u64) {
        let keep = self.journal.partition_point(|s| s.number <= number).saturating_sub(1);
        self.stretches -= self.journal.drain(..keep).filter(|s| s.partition != NO_PARTITION).count();
    }

    /// The earliest time at which [`Ingest::dispatch`] may do more without a new event, after it did nothing.
    pub fn deadline(&self) -> Option<u64> {
        self.inputs
            .iter()
            .filter(|i| i.buffer.is_empty())
            .filter_map(|i| i.waiting_since)
            .map(|s| s + self.max_wait)
            .min()
    }

    /// The name of an input partition.
    pub fn partition_name(&self, partition: u32) -> &str {
        let at = partition as usize;
        self.inputs.get(at).map_or_else(|| self.schedules[at - self.inputs.len()].as_str(), |i| &i.spec.name)
    }
}
