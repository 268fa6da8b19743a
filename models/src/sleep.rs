//! How a lane goes to sleep and is woken: engine/net/tokio.rs, `Task::run`, `take_mail`, `settle`, `LaneShared::deliver`, `rouse`.
//!
//! With shuttle, not loom: this rests on `SeqCst`, which loom treats as `AcqRel`, and so it would find sleepers that no machine
//! has. Shuttle's atomics are sequentially consistent. Every interleaving of one frontier is tried; of two parcels there are too
//! many: there it is 20,000 schedules with few changes of thread at random places. A lane that sleeps for ever is a deadlock, which
//! shuttle reports.

use shuttle::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::{check_dfs, check_pct, thread};

/// `tokio::sync::Notify` with one who waits: a wake that comes first is kept.
#[derive(Default)]
struct Wake {
    permit: Mutex<bool>,
    given: Condvar,
}

impl Wake {
    fn notify_one(&self) {
        *self.permit.lock().unwrap() = true;
        self.given.notify_one();
    }

    fn notified(&self) {
        let mut permit = self.permit.lock().unwrap();
        while !*permit {
            permit = self.given.wait(permit).unwrap();
        }
        *permit = false;
    }
}

/// A mistake that one can make; each must be found.
#[derive(Clone, Copy, PartialEq)]
enum Mistake {
    None,
    /// The lane looks once more, and only then says that it sleeps.
    LooksBeforeItSleeps,
    /// The lane says that it has no mail when it has let go of the mail.
    ForgetsMailLate,
    /// The lane says that frontiers concern it when it has looked.
    WantsLate,
    /// Who gives a credit back wakes the sender before.
    WakesBeforeTheCredit,
}

#[derive(Default)]
struct Mail {
    parcels: u32,
    frontier: bool,
}

#[derive(Default)]
struct Lane {
    mail: Mutex<Mail>,
    has_mail: AtomicBool,
    asleep: AtomicBool,
    wants_frontier: AtomicBool,
    wake: Wake,
    /// Parcels of the one sender that counts here.
    outstanding: AtomicU32,
}

const CREDIT: u32 = 1;
const SCHEDULES: usize = 20_000;
const CHANGES: usize = 4;

impl Lane {
    fn deliver(&self, parcels: u32, frontier: bool) {
        {
            let mut mail = self.mail.lock().unwrap();
            if parcels > 0 {
                self.outstanding.fetch_add(parcels, SeqCst);
                mail.parcels += parcels;
            }
            mail.frontier |= frontier;
            self.has_mail.store(true, SeqCst);
        }
        if parcels > 0 || self.wants_frontier.load(SeqCst) {
            self.rouse();
        }
    }

    fn rouse(&self) {
        if self.asleep.load(SeqCst) && self.asleep.swap(false, SeqCst) {
            self.wake.notify_one();
        }
    }
}

/// What a task knows itself.
#[derive(Default)]
struct Inbox {
    parcels: u32,
    /// Whether what lies in the inbox waits for the frontier of another sender.
    needs_frontier: bool,
    frontier: bool,
    done: u32,
}

impl Inbox {
    fn ready(&self) -> bool {
        self.parcels > 0 && (self.frontier || !self.needs_frontier)
    }
}

/// `Task::run`: until it has done `until` parcels. Each is sent on to `next`, where there is one, within its credit.
fn run(me: &Lane, next: Option<&Lane>, before: Option<&Lane>, mut inbox: Inbox, until: u32, mistake: Mistake) {
    while inbox.done < until {
        if me.has_mail.load(SeqCst) {
            let mut mail = me.mail.lock().unwrap();
            if mistake != Mistake::ForgetsMailLate {
                me.has_mail.store(false, SeqCst);
            }
            inbox.parcels += std::mem::take(&mut mail.parcels);
            inbox.frontier |= std::mem::take(&mut mail.frontier);
            drop(mail);
            if mistake == Mistake::ForgetsMailLate {
                me.has_mail.store(false, SeqCst);
            }
        }
        let can_step =
            |inbox: &Inbox| inbox.ready() && next.is_none_or(|next| next.outstanding.load(SeqCst) < CREDIT);
        if can_step(&inbox) {
            inbox.parcels -= 1;
            inbox.done += 1;
            if let Some(next) = next {
                next.deliver(1, false);
            }
            if let Some(before) = before {
                if mistake == Mistake::WakesBeforeTheCredit {
                    before.rouse();
                    me.outstanding.fetch_sub(1, SeqCst);
                } else if me.outstanding.fetch_sub(1, SeqCst) == CREDIT {
                    before.rouse();
                }
            }
            continue;
        }
        let queued = inbox.parcels > 0;
        if mistake != Mistake::WantsLate {
            me.wants_frontier.store(queued, SeqCst);
        }
        if mistake != Mistake::LooksBeforeItSleeps {
            me.asleep.store(true, SeqCst);
        }
        let again = me.has_mail.load(SeqCst) || can_step(&inbox);
        if mistake == Mistake::WantsLate {
            me.wants_frontier.store(queued, SeqCst);
        }
        if mistake == Mistake::LooksBeforeItSleeps {
            me.asleep.store(!again, SeqCst);
            if again {
                continue;
            }
        }
        if again && me.asleep.swap(false, SeqCst) {
            continue;
        }
        me.wake.notified();
    }
}

/// Parcels come while the lane goes to sleep.
fn mail(mistake: Mistake) {
    check_pct(
        move || {
            let lane = Arc::new(Lane::default());
            let its = lane.clone();
            let task = thread::spawn(move || run(&its, None, None, Inbox::default(), 2, mistake));
            lane.deliver(1, false);
            lane.deliver(1, false);
            task.join().unwrap();
        },
        SCHEDULES,
        CHANGES,
    );
}

/// A lane with one parcel waits for the frontier of another sender, which comes alone.
fn frontier(mistake: Mistake) {
    check_dfs(
        move || {
            let lane = Arc::new(Lane::default());
            let its = lane.clone();
            let inbox = Inbox { parcels: 1, needs_frontier: true, ..Inbox::default() };
            let task = thread::spawn(move || run(&its, None, None, inbox, 1, mistake));
            lane.deliver(0, true);
            task.join().unwrap();
        },
        None,
    );
}

/// A lane with two parcels may send only one before the next lane has used it.
fn credit(mistake: Mistake) {
    check_pct(
        move || {
            let lanes = Arc::new([Lane::default(), Lane::default()]);
            let its = lanes.clone();
            let task = thread::spawn(move || {
                let inbox = Inbox { parcels: 2, ..Inbox::default() };
                run(&its[0], Some(&its[1]), None, inbox, 2, mistake);
            });
            run(&lanes[1], None, Some(&lanes[0]), Inbox::default(), 2, mistake);
            task.join().unwrap();
        },
        SCHEDULES,
        CHANGES,
    );
}

#[test]
fn i08_a_lane_does_not_sleep_over_its_mail() {
    mail(Mistake::None);
}

#[test]
fn i08_a_lane_does_not_sleep_over_a_frontier_that_it_waits_for() {
    frontier(Mistake::None);
}

#[test]
fn i08_a_lane_does_not_sleep_over_a_credit_that_comes_back() {
    credit(Mistake::None);
}

#[test]
#[should_panic(expected = "deadlock")]
fn to_look_before_saying_that_one_sleeps_would_lose_a_wake() {
    mail(Mistake::LooksBeforeItSleeps);
}

#[test]
#[should_panic(expected = "deadlock")]
fn to_forget_the_mail_after_letting_go_of_it_would_lose_some() {
    mail(Mistake::ForgetsMailLate);
}

#[test]
#[should_panic(expected = "deadlock")]
fn to_say_late_that_frontiers_concern_one_would_lose_one() {
    frontier(Mistake::WantsLate);
}

#[test]
#[should_panic(expected = "deadlock")]
fn to_wake_before_the_credit_is_there_would_leave_the_sender_asleep() {
    credit(Mistake::WakesBeforeTheCredit);
}
