//! Models of what is synchronised by hand, for loom and shuttle, which try every interleaving.
//!
//! Each is a transcription of a few lines of the engine, which it names: statement by statement, in the same order, with the
//! same memory orderings. Who changes those lines changes them here too. Each model takes a mistake as an argument, so that one
//! can see it fail; where loom finds a deadlock it ends the process, so only those mistakes are tests that fail otherwise.
//!
//! How a lane goes to sleep is in `sleep`, for shuttle.
#![cfg(test)]

mod sleep;

use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;

/// Two threads, every interleaving.
fn both(one: impl FnOnce() + Send + 'static, other: impl FnOnce()) {
    let thread = thread::spawn(one);
    other();
    thread.join().unwrap();
}

// --- how far the lanes are: engine/net/tokio.rs, `LaneShared::deliver`, `take_mail`, `settle`, `TokioNet::lowest` ------

struct Low {
    mail: AtomicU64,
    inbox: AtomicU64,
}

impl Low {
    fn new(inbox: u64) -> Self {
        Self { mail: AtomicU64::new(u64::MAX), inbox: AtomicU64::new(inbox) }
    }
}

/// A record with number 7 is on the first lane, goes to the second and is finished there.
fn passes_on(first_forgets_early: bool, inbox_is_read_first: bool) {
    loom::model(move || {
        let lanes = Arc::new([Low::new(7), Low::new(u64::MAX)]);
        let finished = Arc::new(AtomicBool::new(false));
        let (work, done) = (lanes.clone(), finished.clone());
        both(
            move || {
                let [first, second] = &*work;
                if first_forgets_early {
                    first.inbox.store(u64::MAX, Ordering::SeqCst);
                }
                second.mail.fetch_min(7, Ordering::SeqCst);
                first.inbox.store(u64::MAX, Ordering::SeqCst);
                // The second lane takes its mail.
                let low = second.mail.load(Ordering::SeqCst);
                second.inbox.fetch_min(low, Ordering::SeqCst);
                second.mail.store(u64::MAX, Ordering::SeqCst);
                done.store(true, Ordering::SeqCst);
                second.inbox.store(u64::MAX, Ordering::SeqCst);
            },
            || {
                let low = lanes.iter().fold(u64::MAX, |low, l| {
                    let (a, b) = if inbox_is_read_first { (&l.inbox, &l.mail) } else { (&l.mail, &l.inbox) };
                    let a = a.load(Ordering::SeqCst);
                    low.min(a).min(b.load(Ordering::SeqCst))
                });
                assert!(low == 7 || finished.load(Ordering::SeqCst), "work that is there is not seen");
            },
        );
    });
}

#[test]
fn who_asks_how_far_the_lanes_are_sees_no_less_work_than_there_is() {
    passes_on(false, false);
}

#[test]
#[should_panic(expected = "not seen")]
fn a_lane_that_forgets_before_the_next_one_knows_would_hide_work() {
    passes_on(true, false);
}

#[test]
#[should_panic(expected = "not seen")]
fn to_look_into_the_inbox_before_the_mail_would_miss_work() {
    passes_on(false, true);
}

// --- a waker that is not there yet: engine/net/tokio.rs `rouse_control`, `poll`, `notify`; engine/writer.rs the same ----

/// What has happened and was not looked at, and who is to be woken.
#[derive(Default)]
struct Control {
    missed: bool,
    waker: Option<Arc<Notify>>,
}

struct Controlled {
    events: Mutex<u32>,
    control: Mutex<Control>,
}

/// The control side polls, registers a waker and sleeps. `early`: it says that nothing is missed before it takes the events.
fn controlled(early: bool) {
    loom::model(move || {
        let shared = Arc::new(Controlled { events: Mutex::new(0), control: Mutex::default() });
        let lane = shared.clone();
        both(
            move || {
                *lane.events.lock().unwrap() += 1;
                let waker = {
                    let mut control = lane.control.lock().unwrap();
                    control.missed |= control.waker.is_none();
                    control.waker.take()
                };
                if let Some(waker) = waker {
                    waker.notify();
                }
            },
            || {
                let wake = Arc::new(Notify::new());
                loop {
                    if early {
                        shared.control.lock().unwrap().missed = false;
                    }
                    let got = std::mem::take(&mut *shared.events.lock().unwrap());
                    if !early {
                        shared.control.lock().unwrap().missed = false;
                    }
                    if got > 0 {
                        return;
                    }
                    let missed = {
                        let mut control = shared.control.lock().unwrap();
                        let missed = std::mem::take(&mut control.missed);
                        if !missed {
                            control.waker = Some(wake.clone());
                        }
                        missed
                    };
                    if !missed {
                        wake.wait();
                    }
                }
            },
        );
    });
}

#[test]
fn an_event_that_comes_before_the_waker_wakes_all_the_same() {
    controlled(true);
}

// --- the control thread parks: engine/executor.rs, `Unpark::wake_by_ref` and `Executor::run` ----------------------------

struct Parking {
    woken: AtomicBool,
    event: AtomicBool,
    /// Thread::park: a token that an unpark leaves.
    token: Notify,
}

/// How the thread clears its flag: before it looks, and taking note of who set it; without taking note; after it has looked.
#[derive(Clone, Copy, PartialEq)]
#[allow(dead_code, reason = "the mistakes, for who wants to see them fail")]
enum Clears {
    Swap,
    Store,
    Late,
}

/// The thread clears its flag, looks, and parks unless it was woken since.
fn parks(clears: Clears) {
    loom::model(move || {
        let p = Arc::new(Parking { woken: AtomicBool::new(true), event: AtomicBool::new(false), token: Notify::new() });
        let waker = p.clone();
        both(
            move || {
                waker.event.store(true, Ordering::Release);
                if !waker.woken.swap(true, Ordering::AcqRel) {
                    waker.token.notify();
                }
            },
            || {
                loop {
                    match clears {
                        Clears::Swap => drop(p.woken.swap(false, Ordering::AcqRel)),
                        Clears::Store => p.woken.store(false, Ordering::Release),
                        Clears::Late => {}
                    }
                    if p.event.load(Ordering::Acquire) {
                        return;
                    }
                    if clears == Clears::Late {
                        p.woken.store(false, Ordering::Release);
                    }
                    if p.woken.load(Ordering::Acquire) {
                        continue;
                    }
                    p.token.wait();
                }
            },
        );
    });
}

#[test]
fn the_control_thread_does_not_park_over_an_event() {
    parks(Clears::Swap);
}

