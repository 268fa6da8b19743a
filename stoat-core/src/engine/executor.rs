//! Drives an engine on the calling thread, by real clocks. The only place of the engine that looks at one.
#![expect(clippy::disallowed_methods, reason = "this is the edge where clocks are read")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
        Self { unpark, stop: Arc::new(AtomicBool::new(false)), start: Instant::now() }
    }

    /// A handle that stops what runs here.
    pub fn stop_handle(&self) -> StopHandle {
        StopHandle { stop: Arc::clone(&self.stop), thread: Arc::clone(&self.unpark) }
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
            let deadline = engine.advance(now, Self::wall())?;
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
            if self.unpark.woken.load(Ordering::Acquire) || deadline.is_some_and(|d| d <= now) {
                continue;
            }
            let longest = every.as_millis() as u64;
            let wait = deadline.map_or(longest, |d| (d - now).min(longest));
            std::thread::park_timeout(Duration::from_millis(wait));
        }
    }
}
