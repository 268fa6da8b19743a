use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::near::{Heap, Near, Position};
use crate::engine::tag::Tag;
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{lane_hash, lane_of};
use crate::id::StoreId;
use crate::operator::{ForeignTimer, Weight};
use crate::processor::{Entered, FieldSeed};
use crate::store::current::Current;
use crate::store::merge::merged;
use crate::store::overlay::{KeyBytes, Overlay, Slot};
use crate::store::{ByteStore, Row};
use crate::time::{TimeDomain, Timestamp};

/// Where in ingest order a write was made.
type Place = (Tag, u32);

/// The value of a row of a timer store. A row is one pending timer.
pub(super) trait TimerRow: Sized + Copy + Send + 'static {
    /// How many bytes of a row's key follow the lane key.
    const TAIL: usize;
    /// The length of an encoded value.
    const LEN: usize;

    /// The value of the row of a timer.
    fn of(time: Timestamp) -> Self;
    /// The time that a row says.
    fn time(self, row: &[u8]) -> Timestamp;
    /// Makes the key of the row of a timer.
    fn row(key: &[u8], time: Timestamp, row: &mut KeyBytes);
    /// Reads a value.
    fn decode(bytes: &[u8]) -> Option<Self>;
    /// Writes a value.
    fn encode(self, out: &mut Vec<u8>);
}

/// One timer per key: the row says when.
impl TimerRow for Timestamp {
    const TAIL: usize = 0;
    const LEN: usize = 8;

    #[inline]
    fn of(time: Timestamp) -> Self {
        time
    }
    #[inline]
    fn time(self, _row: &[u8]) -> Timestamp {
        self
    }
    fn row(key: &[u8], _time: Timestamp, row: &mut KeyBytes) {
        row.clear();
        row.extend_from_slice(key);
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(Self(i64::from_be_bytes(bytes.try_into().ok()?)))
    }
    fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0.to_be_bytes());
    }
}

/// Many timers per key: the row's key ends with the time.
impl TimerRow for () {
    const TAIL: usize = 8;
    const LEN: usize = 0;

    #[inline]
    fn of(_time: Timestamp) -> Self {}
    #[inline]
    fn time(self, row: &[u8]) -> Timestamp {
        Timestamp(row.last_chunk().map_or(i64::MIN, |time| i64::from_be_bytes(*time)))
    }
    fn row(key: &[u8], time: Timestamp, row: &mut KeyBytes) {
        row.clear();
        row.extend_from_slice(key);
        row.extend_from_slice(&time.0.to_be_bytes());
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
    fn encode(self, _out: &mut Vec<u8>) {}
}

/// What both kinds of timer fields have.
///
/// Pending timers before the *horizon* are near: each has its row in `rows`, pinned, and is found through the heap. Those
/// behind it are far: they are in the store, and in `rows` only as long as they are written and not applied, or were read.
/// Where nothing is far, there is no horizon. A load moves it out, a trim moves it in.
///
/// - A near timer's row is found in `rows`; so what is not in `rows` and lies before the horizon is not pending.
/// - For each near timer the heap has an entry that is not later than its row says. There may be more: entries of what was
///   cancelled, or set to another time. They are dropped when they come first, or when they are too many.
/// - No entry of the heap lies behind the horizon.
pub(super) struct Pending<V> {
    pub(super) store: StoreId,
    pub(super) clock: TimeDomain,
    bytes: Arc<dyn ByteStore>,
    pub(super) current: Current,
    lane: u32,
    lanes: u32,
    /// Rows by the store's key.
    pub(super) rows: Overlay<V>,
    heap: Heap,
    /// Rows that are pinned and have a value: as many of the heap's entries are of use.
    live: usize,
    horizon: Option<Position>,
    /// Timers that one load reads.
    chunk: usize,
    /// Writes for other keys, since they were last taken.
    foreign: Vec<ForeignTimer>,
    /// The last own write of this epoch, by the store's key; kept only where foreign writes exist.
    own: Option<FxHashMap<KeyBytes, Place>>,
    /// The place of the handler that runs; kept only where foreign writes exist.
    tag: Tag,
    /// The number of writes of the handler that runs.
    index: u32,
    /// A row's key while it is made.
    key: KeyBytes,
    /// What the handler that runs has replaced in `own`, and how long `foreign` was before it; where it may be undone.
    own_before: Vec<(KeyBytes, Option<Place>)>,
    foreign_before: usize,
    undo: bool,
}

/// What a near timer takes, roughly: its row and its entry in the heap.
pub(super) const NEAR: usize = 128;
/// Of what one load reads, in timers.
const CHUNK: std::ops::RangeInclusive<usize> = 2..=16_384;
/// A place in `own`.
const OWN: usize = size_of::<(KeyBytes, Place)>() + 8;
/// Entries that the heap may have beyond twice those of use.
const WASTE: usize = 64;
/// Entries that are looked at to find the one with a given rank.
const SAMPLE: usize = 1024;

/// Timers that another key's handler set have no record's time. The time they are set for may lie far ahead, which brokers
/// refuse in a record.
pub(super) const NO_TIME: Timestamp = Timestamp::from_millis(0);

fn key_of<V: TimerRow>(row: &[u8]) -> &[u8] {
    &row[..row.len() - V::TAIL]
}

/// The order in which timers fire.
fn before<V: TimerRow>(rows: &Overlay<V>) -> impl Fn(Near, Near) -> bool {
    |a, b| {
        let by_key = || key_of::<V>(rows.key(a.slot)).cmp(key_of::<V>(rows.key(b.slot)));
        a.rank().cmp(&b.rank()).then_with(by_key).is_lt()
    }
}

impl<V: TimerRow> Pending<V> {
    pub(super) fn new(seed: FieldSeed, foreign: bool) -> Self {
        Self {
            store: seed.store,
            clock: seed.decl.clock,
            current: Current::new(&seed),
            bytes: seed.bytes,
            lane: seed.lane,
            lanes: seed.lanes,
            rows: Overlay::default(),
            heap: Heap::default(),
            live: 0,
            // Nothing is read before it is needed.
            horizon: Some((Timestamp::MIN, KeyBytes::new())),
            chunk: (seed.cache / 4 / NEAR).clamp(*CHUNK.start(), *CHUNK.end()),
            foreign: Vec::new(),
            own: foreign.then(FxHashMap::default),
            tag: Tag::record(0),
            index: 0,
            key: KeyBytes::new(),
            own_before: Vec::new(),
            foreign_before: 0,
            undo: false,
        }
    }

    #[inline]
    pub(super) fn enter(&mut self, at: &Entered<'_>) {
        self.current.enter(at);
        self.undo = at.undo;
        self.rows.begin(at.undo);
        if self.own.is_some() {
            self.foreign_before = self.foreign.len();
            self.tag = Tag { number: at.number, path: at.path.clone() };
            self.index = 0;
        }
    }

    // --- rows --------------------------------------------------------------------------------------------------------

    fn is_near(&self, time: Timestamp, key: &[u8]) -> bool {
        self.horizon.as_ref().is_none_or(|(t, k)| (time, key) < (*t, k.as_slice()))
    }

    fn time(&self, slot: Slot) -> Option<Timestamp> {
        self.rows.value(slot).map(|v| v.time(self.rows.key(slot)))
    }

    /// Whether the row can be in the store though it is not in `rows`. `time`: of the timer, where the row's key says it.
    fn may_be_stored(&self, row: &[u8]) -> bool {
        if V::TAIL == 0 { self.horizon.is_some() } else { !self.is_near(().time(row), key_of::<V>(row)) }
    }

    /// A row, read from the store where need be.
    pub(super) fn row(&mut self, hash: u64, row: &[u8]) -> Result<Slot> {
        if let Some(slot) = self.rows.find(hash, row) {
            return Ok(slot);
        }
        let value = self.stored(row)?;
        Ok(self.rows.insert(hash, row, value, Timestamp::MIN, V::LEN))
    }

    /// What the store says of a row that is not in `rows`, or that says nothing there.
    fn stored(&self, row: &[u8]) -> Result<Option<V>> {
        match self.may_be_stored(row).then(|| self.bytes.get(row)).transpose()?.flatten() {
            None => Ok(None),
            Some(b) => V::decode(&b).map(Some).ok_or_else(|| self.damaged(b.len())),
        }
    }

    /// A row that is about to be written whatever it says.
    pub(super) fn row_unread(&mut self, hash: u64, row: &[u8]) -> Slot {
        match self.rows.find(hash, row) {
            Some(slot) => slot,
            None => self.rows.insert(hash, row, None, Timestamp::MIN, V::LEN),
        }
    }

    #[cold]
    fn damaged(&self, len: usize) -> Error {
        Error::new(
            ErrorKind::State,
            format!(
                "timer {}: a stored value of {len} bytes where each has {}; delete the local state of this store, it is \
                 rebuilt from its changelog",
                self.current.place(),
                V::LEN
            ),
        )
    }

    /// Writes a row: the timer is pending at `time`, or not at all.
    pub(super) fn write(&mut self, slot: Slot, time: Option<Timestamp>, at: Timestamp) {
        let old = self.time(slot);
        self.rows.replace(slot, at, time.map(V::of));
        let pinned = self.rows.pins(slot) > 0;
        if pinned {
            self.live = self.live + usize::from(time.is_some()) - usize::from(old.is_some());
        }
        let Some(time) = time else {
            if pinned {
                self.tidy();
            }
            return;
        };
        // An entry that is not later than the old time is not later than the new one: it finds the row in time.
        let found = pinned && old.is_some_and(|old| old <= time);
        if !found && self.is_near(time, key_of::<V>(self.rows.key(slot))) {
            self.push(slot, time);
            self.tidy();
        }
    }

    // --- the heap ----------------------------------------------------------------------------------------------------

    /// Adds an entry for a row with a value.
    fn push(&mut self, slot: Slot, time: Timestamp) {
        if self.rows.pins(slot) == u8::MAX {
            // This row was set to earlier times again and again.
            self.compact();
        }
        if self.rows.pins(slot) == 0 {
            self.live += 1;
        }
        self.rows.pin(slot);
        let near = Near::new(time, key_of::<V>(self.rows.key(slot)), slot);
        self.heap.push(near, before(&self.rows));
    }

    /// An entry of this row is gone.
    fn unpin(&mut self, slot: Slot) {
        let has_value = self.rows.value(slot).is_some();
        if self.rows.unpin(slot) == 0 {
            self.live -= usize::from(has_value);
        }
    }

    /// Drops entries of no use where they are too many.
    #[inline]
    fn tidy(&mut self) {
        if self.heap.len() > 2 * self.live + WASTE {
            self.compact();
        }
    }

    /// Leaves one entry for each near timer, at the time that its row says.
    fn compact(&mut self) {
        let mut all = self.heap.take();
        all.retain_mut(|near| {
            let left = self.rows.unpin(near.slot);
            let Some(time) = self.rows.value(near.slot).map(|v| v.time(self.rows.key(near.slot))) else {
                // The row of the handler that runs is written, so it stays.
                self.rows.drop_if_idle(near.slot);
                return false;
            };
            // The last entry of a row stands for it.
            let stays = left == 0 && self.is_near(time, key_of::<V>(self.rows.key(near.slot)));
            near.time = time;
            stays
        });
        for near in &all {
            self.rows.pin(near.slot);
        }
        self.live = all.len();
        self.heap.put(all, before(&self.rows));
    }

    /// Reads the next timers of this lane from the store, in the order of time, and moves the horizon behind them.
    fn load(&mut self) -> Result<()> {
        let Some((time, key)) = self.horizon.take() else { return Ok(()) };
        // The rows of all lanes are in one order. Not all of them are looked at where this lane has few.
        let (mut loaded, mut looks) = (0, self.chunk * 2 * self.lanes as usize);
        let (bytes, mut row) = (Arc::clone(&self.bytes), std::mem::take(&mut self.key));
        let mut next = None;
        bytes.due(time, &key, &mut |time, key| {
            if loaded == self.chunk || looks == 0 {
                next = Some((time, KeyBytes::from_slice(key)));
                return false;
            }
            looks -= 1;
            let hash = lane_hash(key);
            if lane_of(hash, self.lanes) != self.lane {
                return true;
            }
            V::row(key, time, &mut row);
            let hash = if V::TAIL == 0 { hash } else { lane_hash(&row) };
            // What is in `rows` is newer than the store.
            if self.rows.find(hash, &row).is_none() {
                let slot = self.rows.insert(hash, &row, Some(V::of(time)), Timestamp::MIN, V::LEN);
                self.push(slot, time);
                loaded += 1;
            }
            true
        })?;
        self.key = row;
        self.horizon = next;
        // What is written and not in the store, or was read, and near now.
        for place in 0..self.rows.places() {
            if let Some(slot) = self.rows.at(place)
                && self.rows.pins(slot) == 0
                && let Some(time) = self.time(slot)
                && self.is_near(time, key_of::<V>(self.rows.key(slot)))
            {
                self.push(slot, time);
            }
        }
        Ok(())
    }

    /// The earliest timer by time and key, if it is due at `upto`.
    pub(super) fn first(&mut self, upto: Timestamp) -> Result<Option<(Timestamp, &[u8])>> {
        loop {
            let Some(first) = self.heap.first() else {
                if self.horizon.as_ref().is_none_or(|(time, _)| *time > upto) {
                    return Ok(None);
                }
                self.load()?;
                continue;
            };
            let slot = first.slot;
            let time = self.time(slot);
            if time == Some(first.time) {
                let found = (first.time, key_of::<V>(self.rows.key(slot)));
                return Ok((first.time <= upto).then_some(found));
            }
            self.heap.pop(before(&self.rows));
            self.unpin(slot);
            match time {
                Some(time) if self.is_near(time, key_of::<V>(self.rows.key(slot))) => self.push(slot, time),
                Some(_) => {}
                None => self.rows.drop_if_idle(slot),
            }
        }
    }

    /// Takes the timer that [`Pending::first`] has just found.
    pub(super) fn take_first(&mut self) {
        let Some(first) = self.heap.pop(before(&self.rows)) else { return };
        // It was pinned with a value, and is neither in the heap nor pending from now on.
        self.unpin(first.slot);
        if self.rows.pins(first.slot) > 0 {
            self.live -= 1;
        }
        *self.rows.write(first.slot, first.time) = None;
    }

    /// About where the `n`-th pending timer (from 0) is: not before the first, and not behind what is near. Where nothing is
    /// near, how far the store was looked through. `None`: there are no more than `n`.
    pub(super) fn nth(&mut self, n: usize) -> Result<Option<(Timestamp, Vec<u8>)>> {
        // Takes entries of no use away from the front, and reads a store that was not read yet.
        self.first(Timestamp::MIN)?;
        if self.heap.len() <= n {
            return Ok(self.horizon.as_ref().map(|(time, key)| (*time, key.to_vec())));
        }
        let step = self.heap.len().div_ceil(SAMPLE);
        let mut sample: Vec<Near> = self.heap.all().iter().step_by(step).copied().collect();
        let n = n.div_ceil(step).min(sample.len() - 1);
        let before = before(&self.rows);
        let order =
            |a: &Near, b: &Near| if before(*a, *b) { std::cmp::Ordering::Less } else { std::cmp::Ordering::Greater };
        let (_, nth, _) = sample.select_nth_unstable_by(n, order);
        Ok(Some((nth.time, key_of::<V>(self.rows.key(nth.slot)).to_vec())))
    }

    // --- memory ------------------------------------------------------------------------------------------------------

    pub(super) fn weight(&self) -> Weight {
        let rows = self.rows.weight();
        let own = self.own.as_ref().map_or(0, FxHashMap::len) * OWN;
        let foreign = self.foreign.len() * size_of::<ForeignTimer>() + own;
        Weight { uncommitted: rows.uncommitted + foreign, total: rows.total + self.heap.weight() + foreign }
    }

    /// Drops what the store has as well until about `bytes` are left: first what was read, then what is of no use, then
    /// the latest of the near timers.
    pub(super) fn trim(&mut self, bytes: usize) {
        self.rows.trim(bytes.saturating_sub(self.heap.weight()));
        if self.weight().total <= bytes {
            return;
        }
        self.compact();
        let over = self.weight().total.saturating_sub(bytes.max(self.weight().uncommitted));
        let keep = self.heap.len().saturating_sub(over / NEAR + 1).max(self.chunk);
        if over > 0 && keep < self.heap.len() {
            self.draw_in(keep);
        }
        self.rows.trim(bytes.saturating_sub(self.heap.weight()));
    }

    /// Moves the horizon in, so that `keep` timers stay near.
    fn draw_in(&mut self, keep: usize) {
        let mut all = self.heap.take();
        let before = before(&self.rows);
        let order = |a: &Near, b: &Near| {
            if before(*a, *b) {
                std::cmp::Ordering::Less
            } else if before(*b, *a) {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        };
        let (_, first, _) = all.select_nth_unstable_by(keep, order);
        let horizon = (first.time, KeyBytes::from_slice(key_of::<V>(self.rows.key(first.slot))));
        let far = all.split_off(keep);
        all.shrink_to_fit();
        self.heap.put(all, before);
        for near in far {
            self.unpin(near.slot);
        }
        self.horizon = Some(horizon);
    }

    // --- the epoch ---------------------------------------------------------------------------------------------------

    /// Encodes what was written since the last call. Later foreign writes meet no own write of before.
    pub(super) fn freeze(&mut self, rows: &mut Vec<Row>) -> Result<()> {
        if let Some(own) = &mut self.own {
            own.clear();
        }
        let first = rows.len();
        self.rows.freeze(rows, |_, value, out| {
            value.encode(out);
            Ok(())
        })?;
        for row in &mut rows[first..] {
            row.lane_key -= V::TAIL;
        }
        Ok(())
    }

    /// The keys that have a pending timer, in order.
    pub(super) fn keys(&self, of_lane: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
        let mut keys = Vec::new();
        merged(
            &self.rows,
            |_| true,
            &*self.bytes,
            None,
            None,
            |row, _| {
                let key = key_of::<V>(row);
                if of_lane(key) {
                    keys.push(key.to_vec());
                }
                Ok(true)
            },
        )?;
        // Keys that are prefixes of others are not in order once their times are off.
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    // --- other keys --------------------------------------------------------------------------------------------------

    /// Remembers an own write to a row.
    #[inline]
    pub(super) fn wrote(&mut self, row: &[u8]) {
        if let Some(own) = &mut self.own {
            let before = own.insert(KeyBytes::from_slice(row), (self.tag.clone(), self.index));
            if self.undo {
                self.own_before.push((KeyBytes::from_slice(row), before));
            }
            self.index += 1;
        }
    }

    /// The handler has ended.
    #[inline]
    pub(super) fn leave(&mut self, index: usize) -> Result<()> {
        self.undo = false;
        self.rows.keep();
        self.own_before.clear();
        self.current.leave(index)
    }

    /// Takes back what the handler that ends now wrote.
    pub(super) fn undo(&mut self) -> Result<()> {
        self.undo_places();
        let mut undone = Vec::new();
        let damaged = |bytes: &[u8]| V::decode(bytes).ok_or_else(|| Error::new(ErrorKind::Internal, "an undone timer"));
        self.rows.undo(damaged, |slot, written, _| undone.push((slot, written.copied())))?;
        let mut pending = Vec::new();
        for (slot, written) in undone {
            if self.rows.value(slot).is_none() && self.rows.is_clean(slot) {
                // The row may have been written unread (see `row_unread`): then only the store knows what it says.
                if self.rows.pins(slot) == 0 {
                    self.rows.drop_if_idle(slot);
                    continue;
                }
                let row = self.rows.key(slot).clone();
                let value = self.stored(&row)?;
                self.rows.refresh(slot, value);
            }
            let time = self.time(slot);
            if self.rows.pins(slot) > 0 {
                self.live = self.live + usize::from(time.is_some()) - usize::from(written.is_some());
            }
            pending.extend(time.map(|time| (slot, time, written)));
        }
        // All is counted before the heap may be made anew.
        for (slot, time, written) in pending {
            // As in `write`: an entry that is not later than what was written is not later than this.
            let found = self.rows.pins(slot) > 0 && written.is_some_and(|w| w.time(self.rows.key(slot)) <= time);
            if !found && self.is_near(time, key_of::<V>(self.rows.key(slot))) {
                self.push(slot, time);
            }
        }
        self.tidy();
        Ok(())
    }

    /// Takes back what the handler that ends now wrote for other keys, and that it wrote for its own at all.
    fn undo_places(&mut self) {
        if let Some(own) = &mut self.own {
            self.foreign.truncate(self.foreign_before);
            for (key, before) in self.own_before.drain(..).rev() {
                match before {
                    Some(place) => own.insert(key, place),
                    None => own.remove(&key),
                };
            }
        }
    }

    /// Keeps a write for another key.
    pub(super) fn write_foreign(&mut self, key: Vec<u8>, time: Option<Timestamp>, cancel: Option<Timestamp>) {
        self.foreign.push(ForeignTimer {
            store: self.store,
            key,
            time,
            cancel,
            tag: self.tag.clone(),
            index: self.index,
        });
        self.index += 1;
    }

    pub(super) fn take_foreign(&mut self) -> Vec<ForeignTimer> {
        std::mem::take(&mut self.foreign)
    }

    /// Whether an own write of this epoch to a row comes later than a foreign one.
    pub(super) fn beats(&self, row: &[u8], write: &ForeignTimer) -> bool {
        self.own
            .as_ref()
            .and_then(|own| own.get(row))
            .is_some_and(|(tag, index)| (tag, *index) > (&write.tag, write.index))
    }

    /// How many timers the heap knows, for messages.
    pub(super) fn near(&self) -> usize {
        self.live
    }

    /// All pending timers, near and far, in no order.
    #[cfg(test)]
    pub(super) fn all(&self) -> Vec<(Timestamp, Vec<u8>)> {
        let mut all = Vec::new();
        merged(
            &self.rows,
            |_| true,
            &*self.bytes,
            None,
            None,
            |row, value| {
                let value = match value {
                    crate::store::merge::Merged::Decoded(v) => *v,
                    crate::store::merge::Merged::Stored(b) => V::decode(b).unwrap(),
                };
                all.push((value.time(row), key_of::<V>(row).to_vec()));
                Ok(true)
            },
        )
        .unwrap();
        all
    }

    /// What the type's documentation says of its parts.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let mut entries: FxHashMap<u32, (u8, Timestamp)> = FxHashMap::default();
        for near in self.heap.all() {
            assert!(self.is_near(near.time, key_of::<V>(self.rows.key(near.slot))), "an entry behind the horizon");
            let at = entries.entry(near.slot.place()).or_insert((0, near.time));
            *at = (at.0 + 1, at.1.min(near.time));
        }
        let mut live = 0;
        for slot in (0..self.rows.places()).filter_map(|place| self.rows.at(place)) {
            let (n, earliest) = entries.get(&slot.place()).copied().unwrap_or((0, Timestamp::MAX));
            assert_eq!(self.rows.pins(slot), n, "a pin for each entry");
            if let Some(time) = self.time(slot) {
                live += usize::from(n > 0);
                if self.is_near(time, key_of::<V>(self.rows.key(slot))) {
                    assert!(earliest <= time, "a near timer is found in time");
                }
            }
        }
        assert_eq!(self.live, live);
        let before = before(&self.rows);
        let all = self.heap.all();
        assert!((1..all.len()).all(|i| !before(all[i], all[(i - 1) / 4])), "a heap");
    }
}
