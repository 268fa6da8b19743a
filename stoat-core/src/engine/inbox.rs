//! What waits in front of a lane: one queue per sender and edge, merged in ingest order.
//!
//! Each sender sends in rising order of tags and says how far it is (its *frontier*: nothing below it follows). The
//! smallest head is taken once every other queue has a larger head or, where it is empty, its sender's frontier is
//! larger. Mostly the numbers alone decide, so the merge goes in runs: from the queue with the smallest head up to the
//! smallest of the others. Control messages lie in every queue; they are one message when all queues have come to it.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::collections::VecDeque;

use super::message::{Control, LaneBatch};
use super::tag::{Path, Tag};
use crate::error::{Error, ErrorKind, Result};
use crate::hash::lane_hash;
use crate::operator::{Child, HandBatch, LaneCx};
use crate::record::Origin;
use crate::time::Watermark;

/// What a queue holds.
pub(crate) enum Parcel {
    /// Records from ingest.
    Raw(LaneBatch),
    /// Records from a lane of an earlier sub-topology.
    Hand(Box<dyn HandBatch>),
    /// A control message, with the watermark that its sender hands on (meaningful for marks).
    Control(Passed),
}

/// A control message on its way from one sender.
#[derive(Clone, Debug)]
pub(crate) struct Passed {
    /// Its ingest number.
    pub(crate) number: u64,
    /// The message.
    pub(crate) control: Control,
    /// For a mark: what the sender hands on; [`Timestamp::MIN`](crate::time::Timestamp::MIN) is "held".
    pub(crate) watermark: Watermark,
}

impl Parcel {
    /// The number that it begins with; an empty batch is not sent.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Raw(b) => b.items.first().map_or(u64::MAX, |i| i.number),
            Self::Hand(b) => b.tag(0).number,
            Self::Control(c) => c.number,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Raw(b) => b.items.len(),
            Self::Hand(b) => b.len(),
            Self::Control(_) => 1,
        }
    }

    /// Whether it counts against its sender's credit.
    pub(crate) fn counts(&self) -> bool {
        !matches!(self, Self::Control(_))
    }

    /// Bytes, roughly. What ingest sends is counted by ingest.
    pub(crate) fn weight(&self) -> usize {
        match self {
            Self::Hand(b) => b.weight(),
            Self::Raw(_) | Self::Control(_) => 0,
        }
    }
}

struct Slot {
    sender: usize,
    entry: Child,
    queue: VecDeque<(Parcel, usize)>,
    /// How many records of the front parcel are taken.
    taken: usize,
    /// The last tag that was put in: the assertion that senders send in rising order.
    last: Option<Tag>,
}

/// A sender's parcel that has been used up: its credit goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// The sender's place among the inbox's senders.
    pub(crate) sender: usize,
    /// The parcel's weight when it was put in.
    pub(crate) weight: usize,
}

/// The queues of one lane.
pub(crate) struct Inbox {
    slots: Vec<Slot>,
    /// By slot: the number of the head, or of the sender's frontier where the queue is empty.
    numbers: Vec<u64>,
    frontiers: Vec<Tag>,
    used: Vec<Used>,
    root: Path,
    end: Path,
}

/// What can be taken next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing: a sender may still send something smaller, or there is nothing.
    Wait,
    /// Records of this slot: the first, then all that lie before the bound.
    Run { slot: usize, bound: Bound },
    /// A control message, which all queues have come to.
    Control,
}

/// An excluded upper bound in ingest order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    number: u64,
    path: Option<Path>,
}

impl Bound {
    fn admits(&self, number: u64, path: &Path) -> bool {
        match number.cmp(&self.number) {
            Ordering::Less => true,
            Ordering::Greater => false,
            Ordering::Equal => self.path.as_ref().is_some_and(|p| path < p),
        }
    }
}

impl Inbox {
    /// Makes an inbox. `slots`: for each queue its sender and the operator that takes its records; the order of queues
    /// decides between equal tags, so it must not depend on the lanes other than by the sender's number.
    pub(crate) fn new(senders: usize, slots: Vec<(usize, Child)>) -> Self {
        Self {
            numbers: vec![0; slots.len()],
            slots: slots
                .into_iter()
                .map(|(sender, entry)| Slot { sender, entry, queue: VecDeque::new(), taken: 0, last: None })
                .collect(),
            frontiers: vec![Tag::record(0); senders],
            used: Vec::new(),
            root: Path::default(),
            end: Path::end(),
        }
    }

    /// Puts a parcel behind the others of its slot.
    ///
    /// # Errors
    /// When the sender goes back in ingest order: a defect of the engine.
    pub(crate) fn put(&mut self, slot: usize, parcel: Parcel) -> Result<()> {
        let n = parcel.len();
        if n == 0 {
            self.used.push(Used { sender: self.slots[slot].sender, weight: parcel.weight() });
            return Ok(());
        }
        let (first, last) = match &parcel {
            Parcel::Raw(b) => (Tag::record(b.items[0].number), Tag::record(b.items[n - 1].number)),
            Parcel::Hand(b) => (b.tag(0).clone(), b.tag(n - 1).clone()),
            Parcel::Control(c) => (Tag::control(c.number), Tag::control(c.number)),
        };
        debug_assert!(rises(&parcel), "a batch rises");
        let s = &mut self.slots[slot];
        if first < self.frontiers[s.sender] || s.last.as_ref().is_some_and(|l| first < *l) {
            return Err(Error::new(
                ErrorKind::Internal,
                format!(
                    "a sender goes back in ingest order: {first:?} after {:?}, frontier {:?}",
                    s.last, self.frontiers[s.sender]
                ),
            ));
        }
        s.last = Some(last);
        let weight = parcel.weight();
        if s.queue.is_empty() {
            self.numbers[slot] = first.number;
        }
        s.queue.push_back((parcel, weight));
        Ok(())
    }

    /// The sender sends nothing below `tag` any more.
    pub(crate) fn frontier(&mut self, sender: usize, tag: Tag) {
        debug_assert!(tag >= self.frontiers[sender], "frontiers rise");
        for (s, n) in self.slots.iter().zip(&mut self.numbers) {
            if s.sender == sender && s.queue.is_empty() {
                *n = tag.number;
            }
        }
        self.frontiers[sender] = tag;
    }

    fn head(&self, slot: usize) -> (u64, &Path) {
        let s = &self.slots[slot];
        match s.queue.front() {
            None => {
                let f = &self.frontiers[s.sender];
                (f.number, &f.path)
            }
            Some((Parcel::Raw(b), _)) => (b.items[s.taken].number, &self.root),
            Some((Parcel::Hand(b), _)) => {
                let t = b.tag(s.taken);
                (t.number, &t.path)
            }
            Some((Parcel::Control(c), _)) => (c.number, &self.end),
        }
    }

    /// What can be taken now.
    pub(crate) fn next(&self) -> Next {
        let (mut best, mut at, mut second) = (u64::MAX, usize::MAX, u64::MAX);
        for (i, &n) in self.numbers.iter().enumerate() {
            if n < best {
                second = best;
                best = n;
                at = i;
            } else if n < second {
                second = n;
            }
        }
        if at == usize::MAX {
            return Next::Wait;
        }
        if best == second {
            return self.next_by_path(best);
        }
        match self.slots[at].queue.front() {
            None => Next::Wait,
            Some((Parcel::Control(c), _)) => self.control(c.number),
            Some(_) => Next::Run { slot: at, bound: Bound { number: second, path: None } },
        }
    }

    /// Several queues are at this number: the paths decide.
    #[cold]
    fn next_by_path(&self, number: u64) -> Next {
        let mut tied = (0..self.slots.len()).filter(|&i| self.numbers[i] == number);
        let mut at = tied.next().expect("the caller found a queue with this number");
        let mut least = self.head(at).1;
        let mut second: Option<&Path> = None;
        for i in tied {
            let path = self.head(i).1;
            // An empty queue wins against an equal head: its sender may still send that very tag.
            if path < least || (path == least && self.slots[i].queue.is_empty()) {
                second = Some(least);
                (at, least) = (i, path);
            } else if second.is_none_or(|s| path < s) {
                second = Some(path);
            }
        }
        match self.slots[at].queue.front() {
            None => Next::Wait,
            Some((Parcel::Control(c), _)) => self.control(c.number),
            Some(_) => Next::Run { slot: at, bound: Bound { number, path: second.cloned() } },
        }
    }

    fn control(&self, number: u64) -> Next {
        let aligned =
            self.slots.iter().all(|s| matches!(s.queue.front(), Some((Parcel::Control(c), _)) if c.number == number));
        assert!(aligned, "every sender passes every control message on before its frontier passes it");
        Next::Control
    }

    /// Takes the control message that [`Inbox::next`] found: once, with the smallest of the watermarks handed on.
    pub(crate) fn take_control(&mut self) -> Passed {
        let mut result: Option<Passed> = None;
        for i in 0..self.slots.len() {
            let Some((Parcel::Control(c), _)) = self.slots[i].queue.pop_front() else {
                unreachable!("`next` found a control message at the head of every queue")
            };
            match &mut result {
                Some(r) => r.watermark = r.watermark.min(c.watermark),
                None => result = Some(c),
            }
            self.numbers[i] = self.head(i).0;
        }
        result.expect("a lane has at least one sender")
    }

    /// Gives records to the lane's operators, in ingest order, until `most` are through or the next message is a
    /// control message or has to be waited for. Returns how many.
    ///
    /// # Errors
    /// What the operators return.
    pub(crate) fn deliver(&mut self, most: usize, cx: &mut LaneCx<'_>) -> Result<usize> {
        let mut done = 0;
        while done < most {
            let Next::Run { slot, bound } = self.next() else { break };
            let s = &mut self.slots[slot];
            let from = s.taken;
            let (parcel, weight) = s.queue.front_mut().expect("a run begins at a head");
            let len = parcel.len();
            let upto = len.min(from + (most - done));
            match parcel {
                Parcel::Raw(b) => run_raw(b, &mut s.taken, upto, &bound, cx)?,
                Parcel::Hand(b) => run_hand(&mut **b, s.entry, &mut s.taken, upto, &bound, cx)?,
                Parcel::Control(_) => unreachable!("a run is of records"),
            }
            done += s.taken - from;
            if s.taken == len {
                self.used.push(Used { sender: s.sender, weight: *weight });
                s.queue.pop_front();
                s.taken = 0;
            }
            self.numbers[slot] = self.head(slot).0;
        }
        Ok(done)
    }

    /// The smallest tag of all that may still be taken: what the lane may still send begins there.
    pub(crate) fn bound(&self) -> Tag {
        let mut least = self.head(0);
        for i in 1..self.slots.len() {
            if self.numbers[i] <= least.0 {
                least = least.min(self.head(i));
            }
        }
        Tag { number: least.0, path: least.1.clone() }
    }

    /// The smallest number that is queued; `u64::MAX`: none.
    pub(crate) fn lowest(&self) -> u64 {
        let queued = self.slots.iter().zip(&self.numbers).filter(|(s, _)| !s.queue.is_empty());
        queued.map(|(_, &n)| n).min().unwrap_or(u64::MAX)
    }

    /// Parcels that were used up since the last call.
    pub(crate) fn used(&mut self) -> std::vec::Drain<'_, Used> {
        self.used.drain(..)
    }
}

fn rises(parcel: &Parcel) -> bool {
    match parcel {
        Parcel::Raw(b) => b.items.windows(2).all(|w| w[0].number < w[1].number),
        Parcel::Hand(b) => (1..b.len()).all(|i| b.tag(i - 1) <= b.tag(i)),
        Parcel::Control(_) => true,
    }
}

fn run_raw(batch: &LaneBatch, taken: &mut usize, upto: usize, bound: &Bound, cx: &mut LaneCx<'_>) -> Result<()> {
    let first = *taken;
    for item in &batch.items[first..upto] {
        if *taken > first && item.number >= bound.number {
            break;
        }
        *taken += 1;
        let source = &batch.sources[item.source as usize];
        let record = source.batch.get(item.index as usize);
        cx.number = item.number;
        cx.path.truncate(0);
        cx.origin = Some(Origin { partition: source.partition, offset: record.offset });
        cx.gate.hold(&source.batch, item.index);
        cx.key.bytes.clear();
        let key = match item.key {
            Some((start, len)) => Some(&batch.keys[start as usize..(start + len) as usize]),
            None => record.key,
        };
        cx.key.present = key.is_some();
        cx.key.hash = item.hash;
        if let Some(key) = key {
            debug_assert_eq!(item.hash, lane_hash(key), "ingest hashes the lane key");
            cx.key.bytes.extend_from_slice(key);
        }
        let place = source.entry.0 as usize;
        let mut node = cx.nodes[place].take().expect("sources are not fed by others");
        let result = node.push_raw(record, cx);
        cx.nodes[place] = Some(node);
        result?;
    }
    Ok(())
}

fn run_hand(
    batch: &mut dyn HandBatch,
    entry: Child,
    taken: &mut usize,
    upto: usize,
    bound: &Bound,
    cx: &mut LaneCx<'_>,
) -> Result<()> {
    let first = *taken;
    for i in first..upto {
        if i > first {
            let tag = batch.tag(i);
            if !bound.admits(tag.number, &tag.path) {
                break;
            }
        }
        *taken += 1;
        batch.deliver(i, entry, cx)?;
    }
    Ok(())
}
