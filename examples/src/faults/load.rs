//! Feeds a story while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use stoat_core::broker::blocking::BlockingClient;

use super::{Outcome, PATIENCE, Story};

/// How often something is fed.
const PULSE: Duration = Duration::from_millis(50);

/// A thread that feeds a story at a steady pace. What a broker does not take is not fed: a model reads the topics.
pub struct Load<S> {
    thread: JoinHandle<Outcome<S>>,
    stop: Arc<AtomicBool>,
    fed: Arc<AtomicU64>,
}

impl<S: Story + 'static> Load<S> {
    /// Feeds about so many records a second.
    pub fn start(
        mut story: S,
        client: impl Fn() -> Outcome<BlockingClient> + Send + 'static,
        per_second: usize,
    ) -> Self {
        let (stop, fed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, count) = (stop.clone(), fed.clone());
        let thread = std::thread::spawn(move || {
            let mut feeder = client()?;
            let some = (per_second as u128 * PULSE.as_millis() / 1_000).max(1) as usize;
            while !stopped.load(Ordering::SeqCst) {
                let begun = Instant::now();
                match story.feed(&mut feeder, some) {
                    Ok(()) => {
                        count.fetch_add(some as u64, Ordering::SeqCst);
                    }
                    // The broker is away: that is what this is about.
                    Err(_) => feeder = client()?,
                }
                std::thread::sleep(PULSE.saturating_sub(begun.elapsed()));
            }
            let deadline = Instant::now() + PATIENCE;
            while let Err(e) = story.end(&mut feeder) {
                if Instant::now() > deadline {
                    return Err(e);
                }
                feeder = client()?;
            }
            Ok(story)
        });
        Self { thread, stop, fed }
    }

    /// How many records the broker has taken so far, at least.
    pub fn fed(&self) -> u64 {
        self.fed.load(Ordering::SeqCst)
    }

    /// Feeds the last records and ends.
    ///
    /// # Errors
    /// When the broker does not take them.
    pub fn stop(self) -> Outcome<S> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.join().unwrap_or_else(|_| Err("the thread that feeds panicked".to_owned()))
    }
}
