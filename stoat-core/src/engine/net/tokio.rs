//! Lanes as tasks of a tokio runtime.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use ::tokio::runtime::{Builder, Handle, Runtime};
use ::tokio::sync::Notify;
use ::tokio::time::{Instant, timeout_at};

use super::super::inbox::Parcel;
use super::super::message::{Control, LaneBatch, LaneNet, NetEvent};
use super::super::tag::Tag;
use super::wiring::{Worker, from_ingest};
use super::{Lanes, defect};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, LaneId, SubTopologyId};
use crate::operator::ForeignTimer;

/// Steps of one lane after which the others on its thread get their turn.
const STEPS_PER_TURN: u32 = 8;
/// How long a stop waits for handlers that run.
const STOP_WAIT: Duration = Duration::from_secs(10);

/// One task per lane on a runtime with several threads.
pub struct TokioNet {
    shared: Arc<Shared>,
    /// The lanes that ingest feeds.
    fed: Vec<(usize, SubTopologyId)>,
    first: Vec<usize>,
    ticks: bool,
    /// How long a stop waits for lanes that run.
    pub(super) stop_wait: Duration,
    /// Where the net has a runtime of its own.
    runtime: Option<Runtime>,
}

struct Shared {
    lanes: Vec<LaneShared>,
    credit: u32,
    step_records: usize,
    handler_timeout: Duration,
    events: Mutex<Vec<NetEvent>>,
    control: Mutex<ControlSide>,
    stop: AtomicBool,
    running: Mutex<usize>,
    stopped: Condvar,
}

#[derive(Default)]
struct ControlSide {
    waker: Option<Waker>,
    /// There was something to wake for while no waker was registered.
    missed: bool,
}

/// What others see of a lane.
struct LaneShared {
    mail: Mutex<Mail>,
    has_mail: AtomicBool,
    /// The task waits for `wake`, or is about to.
    asleep: AtomicBool,
    /// Whether it is worth waking the lane for a frontier alone.
    wants_frontier: AtomicBool,
    wake: Notify,
    /// By sender: batches that the lane has not used up.
    outstanding: Box<[AtomicU32]>,
    /// The smallest number in `mail`. Read before `inbox_low`: what leaves the mail is in the inbox by then.
    mail_low: AtomicU64,
    /// The smallest number that the lane has taken and not finished.
    inbox_low: AtomicU64,
    /// Bytes written and not committed.
    held: AtomicUsize,
    /// Bytes queued in front of the lane.
    queued: AtomicUsize,
}

#[derive(Default)]
struct Mail {
    parcels: Vec<(usize, Parcel)>,
    /// By sender.
    frontiers: Vec<Option<Tag>>,
    exchange: Option<Arc<Vec<ForeignTimer>>>,
}

/// A lock without poisoning: what it guards is consistent after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl TokioNet {
    /// Starts the lanes on a runtime of their own with that many threads.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn start(lanes: Lanes, threads: usize) -> Result<Self> {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(threads.max(1)).thread_name("stoat-lane");
        if lanes.workers.iter().any(|w| w.lane.is_async()) {
            // For the timers and sockets of handlers.
            builder.enable_all();
        }
        let runtime = builder.build().map_err(|e| {
            Error::with_source(
                ErrorKind::State,
                format!("the {threads} threads for lanes could not be started; are there limits on threads?"),
                e,
            )
        })?;
        let mut net = Self::start_on(lanes, runtime.handle());
        net.runtime = Some(runtime);
        Ok(net)
    }

    /// Starts the lanes on a runtime that is there.
    pub fn start_on(lanes: Lanes, runtime: &Handle) -> Self {
        let shared = Arc::new(Shared {
            lanes: lanes.workers.iter().map(LaneShared::new).collect(),
            credit: lanes.settings.credit.max(1),
            step_records: lanes.settings.step_records.max(1),
            handler_timeout: lanes.settings.handler_timeout,
            events: Mutex::default(),
            control: Mutex::default(),
            stop: AtomicBool::new(false),
            running: Mutex::new(lanes.workers.len()),
            stopped: Condvar::new(),
        });
        let fed = lanes.workers.iter().enumerate().filter(|(_, w)| w.fed);
        let fed = fed.map(|(at, w)| (at, w.lane.id().sub)).collect();
        for (at, mut worker) in lanes.workers.into_iter().enumerate() {
            let lane = worker.lane.id();
            let waker = shared.clone();
            worker.tell_wakes(move || waker.lanes[at].rouse());
            let task =
                Task { worker, at, events: Vec::new(), call: None, running: Running { shared: shared.clone(), lane } };
            runtime.spawn(task.run());
        }
        Self { shared, fed, first: lanes.first, ticks: lanes.ticks, stop_wait: STOP_WAIT, runtime: None }
    }

    fn flat(&self, lane: LaneId) -> usize {
        self.first[lane.sub.0 as usize] + lane.lane.0 as usize
    }
}

impl LaneShared {
    fn new(worker: &Worker) -> Self {
        let senders = worker.senders.len();
        Self {
            mail: Mutex::new(Mail { frontiers: vec![None; senders], ..Mail::default() }),
            has_mail: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wants_frontier: AtomicBool::new(true),
            wake: Notify::new(),
            outstanding: (0..senders).map(|_| AtomicU32::new(0)).collect(),
            mail_low: AtomicU64::new(u64::MAX),
            inbox_low: AtomicU64::new(u64::MAX),
            held: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
        }
    }

    /// Puts something into the mail under one lock, then wakes the lane if it sleeps and would do something with it.
    fn deliver(&self, sender: usize, parcels: impl Iterator<Item = (usize, Parcel)>, frontier: Option<Tag>) {
        let mut any = false;
        {
            let mut mail = lock(&self.mail);
            for (slot, parcel) in parcels {
                any = true;
                if parcel.counts() {
                    self.outstanding[sender].fetch_add(1, Ordering::SeqCst);
                }
                self.queued.fetch_add(parcel.weight(), Ordering::Relaxed);
                self.mail_low.fetch_min(parcel.number(), Ordering::SeqCst);
                mail.parcels.push((slot, parcel));
            }
            if frontier.is_some() {
                mail.frontiers[sender] = frontier;
            }
            self.has_mail.store(true, Ordering::SeqCst);
        }
        if any || self.wants_frontier.load(Ordering::SeqCst) {
            self.rouse();
        }
    }

    /// Wakes the lane if it sleeps.
    fn rouse(&self) {
        if self.asleep.load(Ordering::SeqCst) && self.asleep.swap(false, Ordering::SeqCst) {
            self.wake.notify_one();
        }
    }
}

impl Shared {
    fn rouse_control(&self) {
        let waker = {
            let mut control = lock(&self.control);
            control.missed |= control.waker.is_none();
            control.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Counts a lane as stopped when it is dropped, however the task ends.
struct Running {
    shared: Arc<Shared>,
    lane: LaneId,
}

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // User code's panics are caught where it runs; this one is the engine's.
            lock(&self.shared.events).push(NetEvent::Fault {
                lane: self.lane,
                origin: None,
                error: defect(format!("lane {} panicked outside user code, see the log", self.lane)),
            });
            self.shared.rouse_control();
        }
        *lock(&self.shared.running) -= 1;
        self.shared.stopped.notify_all();
    }
}

/// One lane's task.
struct Task {
    worker: Worker,
    at: usize,
    events: Vec<NetEvent>,
    /// The call that waits, and until when it may.
    call: Option<(u64, Instant)>,
    /// Dropped last: the lane is gone when it counts as stopped.
    running: Running,
}

impl Task {
    async fn run(mut self) {
        let shared = self.running.shared.clone();
        let me = &shared.lanes[self.at];
        let mut steps = 0;
        while !shared.stop.load(Ordering::SeqCst) {
            if me.has_mail.load(Ordering::SeqCst) {
                self.take_mail(me);
            }
            let stepped = self.can_step(&shared);
            if stepped {
                self.worker.step(shared.step_records, &mut self.events);
                if self.worker.lane.is_async() {
                    self.time_call(shared.handler_timeout);
                }
            }
            self.settle(&shared, me);
            if stepped {
                steps += 1;
                if steps % STEPS_PER_TURN == 0 {
                    ::tokio::task::yield_now().await;
                }
                continue;
            }
            let queued = self.worker.inbox.lowest() != u64::MAX;
            me.wants_frontier.store(queued || !self.worker.receivers.is_empty(), Ordering::SeqCst);
            me.asleep.store(true, Ordering::SeqCst);
            // Whoever changes something after this look finds the lane asleep and wakes it.
            let again =
                shared.stop.load(Ordering::SeqCst) || me.has_mail.load(Ordering::SeqCst) || self.can_step(&shared);
            if again && me.asleep.swap(false, Ordering::SeqCst) {
                continue;
            }
            match self.call {
                None => me.wake.notified().await,
                Some((_, until)) => {
                    if timeout_at(until, me.wake.notified()).await.is_err() {
                        me.asleep.store(false, Ordering::SeqCst);
                        self.call = None;
                        self.worker.time_out(shared.handler_timeout, &mut self.events);
                        self.settle(&shared, me);
                    }
                }
            }
        }
    }

    /// Notes until when the call that waits may do so.
    fn time_call(&mut self, timeout: Duration) {
        self.call = match (self.worker.call(), self.call) {
            (Some(call), Some((known, until))) if call == known => Some((known, until)),
            (Some(call), _) => Some((call, Instant::now() + timeout)),
            (None, _) => None,
        };
    }

    fn can_step(&self, shared: &Shared) -> bool {
        self.worker.ready()
            && self
                .worker
                .receivers
                .iter()
                .all(|r| shared.lanes[r.lane].outstanding[r.sender].load(Ordering::SeqCst) < shared.credit)
    }

    /// Takes all mail into the inbox.
    fn take_mail(&mut self, me: &LaneShared) {
        let mut mail = lock(&me.mail);
        me.has_mail.store(false, Ordering::SeqCst);
        let low = me.mail_low.load(Ordering::SeqCst);
        me.inbox_low.fetch_min(low, Ordering::SeqCst);
        me.mail_low.store(u64::MAX, Ordering::SeqCst);
        let exchange = mail.exchange.take();
        // Putting is cheap (a queue each), so it is done under the lock and the vectors keep their room.
        for (slot, parcel) in mail.parcels.drain(..) {
            self.worker.put(slot, parcel, &mut self.events);
        }
        for (sender, frontier) in mail.frontiers.iter_mut().enumerate() {
            if let Some(tag) = frontier.take() {
                self.worker.inbox.frontier(sender, tag);
            }
        }
        drop(mail);
        if let Some(writes) = exchange {
            self.worker.exchange(&writes, &mut self.events);
        }
    }

    /// Hands over what the lane sends and says, gives credits back, publishes how far it is: in an order in which nobody
    /// who looks sees less work than there is.
    fn settle(&mut self, shared: &Shared, me: &LaneShared) {
        let worker = &mut self.worker;
        let frontier = worker.frontier();
        if frontier.is_some() || !worker.outgoing.is_empty() {
            let mut outgoing = worker.outgoing.drain(..).peekable();
            for r in &worker.receivers {
                let first = outgoing.next_if(|o| o.lane == r.lane);
                if first.is_none() && frontier.is_none() {
                    continue;
                }
                let rest = std::iter::from_fn(|| outgoing.next_if(|o| o.lane == r.lane));
                let parcels = first.into_iter().chain(rest).map(|o| (o.slot, o.parcel));
                shared.lanes[r.lane].deliver(r.sender, parcels, frontier.clone());
            }
        }
        if !self.events.is_empty() {
            lock(&shared.events).append(&mut self.events);
            shared.rouse_control();
        }
        for used in worker.inbox.used() {
            if used.weight > 0 {
                me.queued.fetch_sub(used.weight, Ordering::Relaxed);
            }
            if me.outstanding[used.sender].fetch_sub(1, Ordering::SeqCst) == shared.credit {
                match worker.senders[used.sender] {
                    Some(lane) => shared.lanes[lane].rouse(),
                    None => shared.rouse_control(),
                }
            }
        }
        let held = worker.lane.weigh();
        let before = me.held.swap(held, Ordering::Relaxed);
        me.inbox_low.store(worker.lowest(), Ordering::SeqCst);
        if held < before {
            // The control side may have waited for the budget of uncommitted bytes.
            shared.rouse_control();
        }
    }
}

impl LaneNet for TokioNet {
    fn has_room(&self, lane: LaneId) -> bool {
        self.shared.lanes[self.flat(lane)].outstanding[0].load(Ordering::SeqCst) < self.shared.credit
    }

    fn send(&mut self, lane: LaneId, batch: LaneBatch) {
        let parcel = Parcel::Raw(batch);
        self.shared.lanes[self.flat(lane)].deliver(0, std::iter::once((0, parcel)), None);
    }

    fn control(&mut self, number: u64, control: Control) {
        for &(at, sub) in &self.fed {
            let parcel = from_ingest(number, &control, sub.0 as usize);
            self.shared.lanes[at].deliver(0, std::iter::once((0, parcel)), None);
        }
    }

    fn publish(&mut self, next: u64) {
        for &(at, _) in &self.fed {
            self.shared.lanes[at].deliver(0, std::iter::empty(), Some(Tag::record(next)));
        }
    }

    fn exchange(&mut self, sub: SubTopologyId, _epoch: Epoch, writes: Arc<Vec<ForeignTimer>>) {
        for lane in &self.shared.lanes[self.first[sub.0 as usize]..self.first[sub.0 as usize + 1]] {
            let mut mail = lock(&lane.mail);
            mail.exchange = Some(writes.clone());
            lane.has_mail.store(true, Ordering::SeqCst);
            drop(mail);
            lane.rouse();
        }
    }

    fn uncommitted(&self) -> usize {
        let lanes = self.shared.lanes.iter();
        lanes.map(|l| l.held.load(Ordering::Relaxed) + l.queued.load(Ordering::Relaxed)).sum()
    }

    fn lowest(&self) -> u64 {
        // Feeding lanes first: what leaves one is in the next one's mail before it is gone from the first.
        self.shared.lanes.iter().fold(u64::MAX, |low, l| {
            let mail = l.mail_low.load(Ordering::SeqCst);
            low.min(mail).min(l.inbox_low.load(Ordering::SeqCst))
        })
    }

    fn wants_ticks(&self) -> bool {
        self.ticks
    }

    fn poll(&mut self, out: &mut Vec<NetEvent>) {
        lock(&self.shared.control).missed = false;
        out.append(&mut lock(&self.shared.events));
    }

    fn notify(&self, waker: Waker) {
        let missed = {
            let mut control = lock(&self.shared.control);
            if std::mem::take(&mut control.missed) {
                true
            } else {
                control.waker = Some(waker.clone());
                false
            }
        };
        if missed {
            waker.wake();
        }
    }

    fn stop(&mut self) -> bool {
        self.shared.stop.store(true, Ordering::SeqCst);
        for lane in &self.shared.lanes {
            lane.rouse();
        }
        let running = lock(&self.shared.running);
        let waited = self.shared.stopped.wait_timeout_while(running, self.stop_wait, |running| *running > 0);
        let stopped = *waited.unwrap_or_else(PoisonError::into_inner).0 == 0;
        // What did not end in time is not waited for again.
        self.stop_wait = Duration::ZERO;
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        stopped
    }
}

impl Drop for TokioNet {
    fn drop(&mut self) {
        self.stop();
    }
}
