//! Drives an engine on the calling thread, by real clocks. The only place of the engine that looks at one.
#![expect(clippy::disallowed_methods, reason = "this is the edge where clocks are read")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::core::{Engine, State, Status};
use crate::error::{Error, ErrorKind, Result};
use crate::time::Timestamp;

/// Asks a running engine to stop; may be cloned and used from anywhere, a signal handler's thread included.
#[derive(Clone, Debug)]
pub struct StopHandle {
    stop: Arc<AtomicBool>,
    thread: Arc<Unpark>,
}

impl StopHandle {
    /// Asks for a graceful stop.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.thread.wake_by_ref();
    }

    /// Whether a stop was asked for.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Pauses, resumes and stops a running engine, and tells where it is; may be cloned and used from anywhere.
#[derive(Clone, Debug)]
pub struct Handle {
    stop: StopHandle,
    wish: Arc<Mutex<Wish>>,
}

impl Handle {
    /// Where the engine is, with what was asked for counted in: after a pause it is [`State::Draining`] at once.
    pub fn state(&self) -> State {
        lock(&self.wish).state
    }

    /// Asks for a pause, as [`Engine::pause`]. What was taken commits, then [`Handle::state`] is [`State::Paused`]. Where a fault
    /// comes in between, the pause begins when the engine runs again.
    ///
    /// # Errors
    /// Which state the engine is in, when it is not `Running`; nothing has changed then.
    pub fn pause(&self) -> Result<()> {
        let mut wish = lock(&self.wish);
        wish.state.may_pause()?;
        (wish.paused, wish.state) = (true, State::Draining);
        drop(wish);
        self.stop.thread.wake_by_ref();
        Ok(())
    }

    /// Ends a pause, as [`Engine::resume`].
    ///
    /// # Errors
    /// Which state the engine is in, when nothing is paused or it ends; nothing has changed then.
    pub fn resume(&self) -> Result<()> {
        let mut wish = lock(&self.wish);
        wish.state.may_resume(wish.paused)?;
        wish.paused = false;
        if matches!(wish.state, State::Draining | State::Paused) {
            wish.state = State::Running;
        }
        drop(wish);
        self.stop.thread.wake_by_ref();
        Ok(())
    }

    /// Asks for a graceful stop.
    pub fn stop(&self) {
        self.stop.stop();
    }
}

/// What was asked for, and where the engine is with it.
#[derive(Debug)]
struct Wish {
    paused: bool,
    state: State,
}

fn lock(wish: &Mutex<Wish>) -> MutexGuard<'_, Wish> {
    wish.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug)]
struct Unpark {
    thread: Thread,
    /// Set by a wake, so that one between looking and parking is not lost.
    woken: AtomicBool,
}

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.thread.unpark();
        }
    }
}

/// Runs engines on the thread that made it.
pub struct Executor {
    unpark: Arc<Unpark>,
    stop: Arc<AtomicBool>,
    wish: Arc<Mutex<Wish>>,
    start: Instant,
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}

impl Executor {
    /// Makes an executor for the current thread.
    pub fn new() -> Self {
        let unpark = Arc::new(Unpark { thread: std::thread::current(), woken: AtomicBool::new(false) });
        let wish = Wish { paused: false, state: State::Starting };
        Self { unpark, stop: Arc::default(), wish: Arc::new(Mutex::new(wish)), start: Instant::now() }
    }

    /// A handle that stops what runs here.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { stop: Arc::clone(&self.stop), thread: Arc::clone(&self.unpark) }
    }

    /// A handle that pauses, resumes and stops what runs here.
    pub fn handle(&self) -> Handle {
        Handle { stop: self.stop_handle(), wish: Arc::clone(&self.wish) }
    }

    /// Brings a wish for a pause or its end to the engine, and tells where that is; whether something changed.
    fn grant(&self, engine: &mut Engine, now: u64) -> bool {
        let mut wish = lock(&self.wish);
        let changed = wish.paused != engine.is_pausing() && {
            let done = if wish.paused { engine.pause(now) } else { engine.resume(now, Self::wall()) };
            // What cannot be done now, in the midst of a recovery say, is tried again.
            done.is_ok()
        };
        wish.state = engine.status().state;
        changed
    }

    /// Monotonic time in ms.
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }

    /// The wall clock.
    pub fn wall() -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }

    /// Runs an engine until it has stopped. `watch` is called now and then (at least every `every`) with what people
    /// may see; where it returns `false` a graceful stop begins.
    ///
    /// # Errors
    /// What ended the engine, or that a graceful stop took longer than `stop_timeout`.
    pub fn run(
        &self,
        engine: &mut Engine,
        stop_timeout: Duration,
        every: Duration,
        mut watch: impl FnMut(&Status) -> bool,
    ) -> Result<()> {
        let waker = Waker::from(Arc::clone(&self.unpark));
        let (mut stopping_since, mut watched) = (None, 0);
        loop {
            // A swap and not a store: who woke before it is then heard below, whatever told it that there is something.
            self.unpark.woken.swap(false, Ordering::AcqRel);
            let now = self.now();
            let advanced = engine.advance(now, Self::wall());
            let changed = self.grant(engine, now);
            let deadline = advanced?;
            let status = engine.status();
            if status.state == State::Stopped {
                watch(&status);
                return Ok(());
            }
            if now >= watched + every.as_millis() as u64 || deadline.is_none_or(|d| d > now) {
                watched = now;
                if !watch(&status) {
                    self.stop.store(true, Ordering::Release);
                }
            }
            if self.stop.load(Ordering::Acquire) && stopping_since.is_none() {
                stopping_since = Some(now);
                engine.stop();
                continue;
            }
            if let Some(since) = stopping_since
                && now.saturating_sub(since) > stop_timeout.as_millis() as u64
            {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!(
                        "the graceful stop took longer than {}: what was not committed is processed again at the next start",
                        humantime::format_duration(stop_timeout)
                    ),
                ));
            }
            engine.notify(&waker);
            if changed || self.unpark.woken.load(Ordering::Acquire) || deadline.is_some_and(|d| d <= now) {
                continue;
            }
            let longest = every.as_millis() as u64;
            let wait = deadline.map_or(longest, |d| (d - now).min(longest));
            std::thread::park_timeout(Duration::from_millis(wait));
        }
    }
}
