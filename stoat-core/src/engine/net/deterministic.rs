//! Lanes on one thread, in an order that a seed chooses.

use std::cell::RefCell;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::super::inbox::Parcel;
use super::super::message::{Control, LaneBatch, LaneNet, NetEvent};
use super::super::tag::Tag;
use super::Lanes;
use super::wiring::from_ingest;
use crate::id::{Epoch, LaneId, SubTopologyId};
use crate::operator::ForeignTimer;

/// All lanes on the caller's thread. A seed is a schedule: the same seed and the same calls are the same run.
///
/// [`LaneNet::poll`] runs the lanes to rest first, so the control side need not know which net it drives.
pub struct DeterministicNet {
    pub(super) lanes: Lanes,
    seed: u64,
    random: u64,
    /// By lane and sender: batches outstanding.
    outstanding: Vec<Vec<u32>>,
    /// Credits on their way back: lane, sender.
    returns: Vec<(usize, usize)>,
    /// Bytes queued between lanes.
    pub(super) queued: usize,
    /// By lane: bytes uncommitted.
    held: Vec<usize>,
    turn: usize,
    pub(super) events: Vec<NetEvent>,
    /// Steps of one poll, at most; 0: to rest.
    per_poll: usize,
    waker: RefCell<Option<Waker>>,
    woken: Arc<Bell>,
    /// Polls of this net after which a call that nobody wakes is given up; 0: never.
    patience: u32,
    /// By lane: the call that waits, and the polls since.
    patient: Vec<(u64, u32)>,
}

/// Rung when a future of a handler wants to be polled.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.heard.notify_all();
    }

    /// Waits for the next ring; `false`: there was none in that time.
    fn wait(&self, longest: Duration) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.heard.wait_timeout_while(rung, longest, |rung| !*rung);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

impl DeterministicNet {
    /// Drives lanes by a seed; 0 takes them in turn, as far as each can go.
    pub fn new(mut lanes: Lanes, seed: u64) -> Self {
        let woken = Arc::new(Bell::default());
        for worker in &mut lanes.workers {
            let bell = woken.clone();
            worker.tell_wakes(move || bell.ring());
        }
        Self {
            patient: vec![(0, 0); lanes.workers.len()],
            patience: 0,
            woken,
            outstanding: lanes.workers.iter().map(|w| vec![0; w.senders.len()]).collect(),
            held: vec![0; lanes.workers.len()],
            returns: Vec::new(),
            queued: 0,
            lanes,
            seed,
            random: seed,
            turn: 0,
            events: Vec::new(),
            per_poll: 0,
            waker: RefCell::new(None),
        }
    }

    /// Makes [`LaneNet::poll`] run at most so many steps, so that lanes lag behind ingest and the commit.
    #[must_use]
    pub fn lazy(mut self, per_poll: usize) -> Self {
        self.per_poll = per_poll;
        self
    }

    /// Gives a call up that waits and is not woken within so many calls of [`LaneNet::poll`]: the net has no clock.
    #[must_use]
    pub fn impatient(mut self, polls: u32) -> Self {
        self.patience = polls;
        self
    }

    /// Whether any handler may wait.
    pub fn is_async(&self) -> bool {
        self.lanes.workers.iter().any(|w| w.lane.is_async())
    }

    /// Waits until a handler that waits can go on, or gives it up when its time is over; `false`: none waits.
    pub fn wait_for_handlers(&mut self) -> bool {
        let timeout = self.lanes.settings.handler_timeout;
        if self.lanes.workers.iter_mut().all(|w| w.call().is_none()) {
            return false;
        }
        if !self.woken.wait(timeout) {
            for worker in &mut self.lanes.workers {
                worker.time_out(timeout, &mut self.events);
            }
        }
        true
    }

    fn lose_patience(&mut self) {
        for (worker, (call, polls)) in self.lanes.workers.iter_mut().zip(&mut self.patient) {
            let waits = worker.call().filter(|_| !worker.ready());
            if waits == Some(*call) {
                *polls += 1;
                if *polls >= self.patience {
                    worker.time_out(self.lanes.settings.handler_timeout, &mut self.events);
                }
            } else {
                (*call, *polls) = (waits.unwrap_or(0), 0);
            }
        }
    }

    /// Runs until no lane can do anything more. What is then still queued waits for ingest (to publish how far it is)
    /// or for an exchange.
    pub fn run_to_rest(&mut self) {
        while self.step() {}
    }

    /// One move of one lane; whether there was one.
    pub fn step(&mut self) -> bool {
        let n = self.lanes.workers.len();
        if self.seed == 0 {
            return self.step_in_turn(n);
        }
        let r = self.draw();
        if !self.returns.is_empty() && r % 10 < 3 {
            self.give_back();
            return true;
        }
        let start = (r >> 8) as usize % n;
        if r % 10 == 9 {
            self.publish_of((r >> 32) as usize % n);
        }
        for i in 0..n {
            let at = (start + i) % n;
            if self.lanes.workers[at].ready() && self.has_credit(at) {
                let most = 1 + (r >> 40) as usize % self.lanes.settings.step_records.max(1);
                self.run(at, most);
                if self.draw() % 5 < 3 {
                    self.publish_of(at);
                }
                return true;
            }
        }
        if !self.returns.is_empty() {
            self.give_back();
            return true;
        }
        (0..n).fold(false, |moved, at| self.publish_of(at) | moved)
    }

    fn step_in_turn(&mut self, n: usize) -> bool {
        for i in 0..n {
            let at = (self.turn + i) % n;
            let ready = self.lanes.workers[at].ready() && self.has_credit(at);
            if ready {
                let most = self.lanes.settings.step_records;
                self.run(at, most);
            }
            while !self.returns.is_empty() {
                self.give_back();
            }
            if self.publish_of(at) | ready {
                self.turn = at;
                return true;
            }
        }
        false
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn has_credit(&self, at: usize) -> bool {
        let receivers = &self.lanes.workers[at].receivers;
        receivers.iter().all(|r| self.outstanding[r.lane][r.sender] < self.lanes.settings.credit)
    }

    fn run(&mut self, at: usize, most: usize) {
        let worker = &mut self.lanes.workers[at];
        worker.step(most, &mut self.events);
        self.settle(at);
    }

    /// Hands over what a step of the lane sends, and takes back what it has used up.
    fn settle(&mut self, at: usize) {
        let worker = &mut self.lanes.workers[at];
        for used in worker.inbox.used() {
            self.queued -= used.weight;
            self.returns.push((at, used.sender));
        }
        self.held[at] = worker.lane.weigh();
        for out in std::mem::take(&mut worker.outgoing) {
            if out.parcel.counts() {
                self.outstanding[out.lane][out.sender] += 1;
            }
            self.queued += out.parcel.weight();
            self.lanes.workers[out.lane].put(out.slot, out.parcel, &mut self.events);
        }
        self.wake();
    }

    fn give_back(&mut self) {
        let i = match self.seed {
            0 => self.returns.len() - 1,
            _ => self.draw() as usize % self.returns.len(),
        };
        let (lane, sender) = self.returns.swap_remove(i);
        self.outstanding[lane][sender] -= 1;
    }

    /// Tells the receivers how far a lane is; whether that was new.
    fn publish_of(&mut self, at: usize) -> bool {
        let Some(tag) = self.lanes.workers[at].frontier() else {
            return false;
        };
        for i in 0..self.lanes.workers[at].receivers.len() {
            let r = &self.lanes.workers[at].receivers[i];
            let (lane, sender) = (r.lane, r.sender);
            self.lanes.workers[lane].inbox.frontier(sender, tag.clone());
        }
        true
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl LaneNet for DeterministicNet {
    fn has_room(&self, lane: LaneId) -> bool {
        self.outstanding[self.lanes.flat(lane)][0] < self.lanes.settings.credit
    }

    fn send(&mut self, lane: LaneId, batch: LaneBatch) {
        let at = self.lanes.flat(lane);
        debug_assert!(self.lanes.workers[at].fed, "ingest sends to lanes of sources");
        self.outstanding[at][0] += 1;
        self.lanes.workers[at].put(0, Parcel::Raw(batch), &mut self.events);
        self.wake();
    }

    fn control(&mut self, number: u64, control: Control) {
        for worker in self.lanes.workers.iter_mut().filter(|w| w.fed) {
            let sub = worker.lane.id().sub.0 as usize;
            worker.put(0, from_ingest(number, &control, sub), &mut self.events);
        }
        self.wake();
    }

    fn publish(&mut self, next: u64) {
        for worker in self.lanes.workers.iter_mut().filter(|w| w.fed) {
            worker.inbox.frontier(0, Tag::record(next));
        }
        self.wake();
    }

    fn exchange(&mut self, sub: SubTopologyId, _epoch: Epoch, writes: Arc<Vec<ForeignTimer>>) {
        for at in self.lanes.first[sub.0 as usize]..self.lanes.first[sub.0 as usize + 1] {
            self.lanes.workers[at].exchange(&writes, &mut self.events);
            self.settle(at);
        }
    }

    fn uncommitted(&self) -> usize {
        self.queued + self.held.iter().sum::<usize>()
    }

    fn lowest(&self) -> u64 {
        self.lanes.workers.iter().map(super::wiring::Worker::lowest).min().unwrap_or(u64::MAX)
    }

    fn wants_ticks(&self) -> bool {
        self.lanes.ticks
    }

    fn poll(&mut self, out: &mut Vec<NetEvent>) {
        if self.per_poll == 0 {
            self.run_to_rest();
        } else {
            let steps = self.draw() as usize % (self.per_poll + 1);
            for _ in 0..steps {
                if !self.step() {
                    break;
                }
            }
        }
        if self.patience > 0 {
            self.lose_patience();
        }
        out.append(&mut self.events);
    }

    fn notify(&self, waker: Waker) {
        if self.events.is_empty() {
            *self.waker.borrow_mut() = Some(waker);
        } else {
            waker.wake();
        }
    }

    fn stop(&mut self) -> bool {
        self.lanes.workers.clear();
        self.lanes.first.fill(0);
        true
    }
}
