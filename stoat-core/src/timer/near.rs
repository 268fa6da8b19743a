use crate::store::overlay::{KeyBytes, Slot};
use crate::time::Timestamp;

/// A place in the order in which timers fire.
pub(super) type Position = (Timestamp, KeyBytes);

/// Where to look for a due timer: at this time, into this row.
///
/// The row may say another time by then. So a timer that is set on and on to later times, as those of sessions are, moves
/// once per firing and not once per write.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) time: Timestamp,
    /// The first bytes of the key, so that most comparisons need no look at the row.
    prefix: u64,
    pub(super) slot: Slot,
}

impl Near {
    pub(super) fn new(time: Timestamp, key: &[u8], slot: Slot) -> Self {
        let mut prefix = [0; 8];
        let n = key.len().min(8);
        prefix[..n].copy_from_slice(&key[..n]);
        Self { time, prefix: u64::from_be_bytes(prefix), slot }
    }

    /// Time and prefix: decides, where they differ.
    #[inline]
    pub(super) fn rank(self) -> (Timestamp, u64) {
        (self.time, self.prefix)
    }
}

/// Children of a node: four lie in two cache lines, and the heap is half as deep as with two.
const WIDTH: usize = 4;

/// A heap whose order is known to its owner only: `before` says which of two comes first.
#[derive(Debug, Default)]
pub(super) struct Heap(Vec<Near>);

impl Heap {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn first(&self) -> Option<Near> {
        self.0.first().copied()
    }

    /// In no order that matters.
    pub(super) fn all(&self) -> &[Near] {
        &self.0
    }

    /// Bytes held.
    pub(super) fn weight(&self) -> usize {
        self.0.capacity() * size_of::<Near>()
    }

    pub(super) fn push(&mut self, near: Near, before: impl Fn(Near, Near) -> bool) {
        let mut at = self.0.len();
        self.0.push(near);
        while at > 0 {
            let up = (at - 1) / WIDTH;
            if !before(near, self.0[up]) {
                break;
            }
            self.0[at] = self.0[up];
            at = up;
        }
        self.0[at] = near;
    }

    pub(super) fn pop(&mut self, before: impl Fn(Near, Near) -> bool) -> Option<Near> {
        let last = self.0.pop()?;
        let Some(&first) = self.0.first() else {
            return Some(last);
        };
        self.sink(0, last, &before);
        Some(first)
    }

    /// Puts `near` into place `at` or below it.
    fn sink(&mut self, mut at: usize, near: Near, before: &impl Fn(Near, Near) -> bool) {
        loop {
            let children = at * WIDTH + 1..(at * WIDTH + 1 + WIDTH).min(self.0.len());
            let Some(least) = children.reduce(|a, b| if before(self.0[b], self.0[a]) { b } else { a }) else { break };
            if !before(self.0[least], near) {
                break;
            }
            self.0[at] = self.0[least];
            at = least;
        }
        self.0[at] = near;
    }

    /// Takes all out; [`Heap::put`] puts some back.
    pub(super) fn take(&mut self) -> Vec<Near> {
        std::mem::take(&mut self.0)
    }

    /// Makes these the heap's.
    pub(super) fn put(&mut self, all: Vec<Near>, before: impl Fn(Near, Near) -> bool) {
        self.0 = all;
        for at in (0..self.0.len().div_ceil(WIDTH)).rev() {
            self.sink(at, self.0[at], &before);
        }
    }
}
