//! Writes to stores, off the control thread: RocksDB may take its time.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::id::Generation;
use crate::store::{Batch, ByteStore};

/// One job: batches for stores, all of one engine generation.
pub struct WriteJob {
    /// The caller's number.
    pub id: u64,
    /// The engine generation.
    pub generation: Generation,
    /// What to write.
    pub batches: Vec<(Arc<dyn ByteStore>, Batch)>,
    /// Whether to make it survive a crash.
    pub flush: bool,
}

impl WriteJob {
    pub(crate) fn run(&self) -> Result<()> {
        self.run_from(0)
    }

    /// As [`WriteJob::run`], where so many of the batches are written already.
    pub(crate) fn run_from(&self, written: usize) -> Result<()> {
        for (store, batch) in &self.batches[written..] {
            store.apply(self.generation, batch)?;
        }
        if self.flush {
            for (store, _) in &self.batches {
                store.flush()?;
            }
        }
        Ok(())
    }
}

/// Carries out write jobs in order.
pub trait StoreWriter: Send {
    /// Takes a job; its end follows through [`StoreWriter::poll`].
    fn submit(&mut self, job: WriteJob);

    /// Appends the jobs that have ended.
    fn poll(&mut self, out: &mut Vec<(u64, Result<()>)>);

    /// Has `waker` woken (once) when a job has ended.
    fn notify(&self, waker: Waker);
}

/// Writes at once, on the caller's thread; for tests and the simulator.
#[derive(Debug, Default)]
pub struct InlineWriter {
    done: Vec<(u64, Result<()>)>,
}

impl StoreWriter for InlineWriter {
    fn submit(&mut self, job: WriteJob) {
        self.done.push((job.id, job.run()));
    }

    fn poll(&mut self, out: &mut Vec<(u64, Result<()>)>) {
        out.append(&mut self.done);
    }

    fn notify(&self, waker: Waker) {
        if !self.done.is_empty() {
            waker.wake();
        }
    }
}

/// Writes on a thread of its own.
pub struct ThreadedWriter {
    jobs: Option<Sender<WriteJob>>,
    done: Receiver<(u64, Result<()>)>,
    waker: Arc<Mutex<(bool, Option<Waker>)>>,
    thread: Option<JoinHandle<()>>,
}

impl ThreadedWriter {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread to give.
    pub fn new() -> Result<Self> {
        let (jobs, todo) = channel::<WriteJob>();
        let (ended, done) = channel();
        let waker = Arc::new(Mutex::new((false, None::<Waker>)));
        let wake = Arc::clone(&waker);
        let thread = std::thread::Builder::new()
            .name("stoat-store-writer".to_owned())
            .spawn(move || {
                for job in todo {
                    let result = job.run();
                    if ended.send((job.id, result)).is_err() {
                        return;
                    }
                    let mut slot = wake.lock().unwrap_or_else(PoisonError::into_inner);
                    slot.0 = true;
                    if let Some(w) = slot.1.take() {
                        w.wake();
                    }
                }
            })
            .map_err(|e| Error::with_source(ErrorKind::Internal, "the store writer's thread cannot be started", e))?;
        Ok(Self { jobs: Some(jobs), done, waker, thread: Some(thread) })
    }
}

impl StoreWriter for ThreadedWriter {
    fn submit(&mut self, job: WriteJob) {
        // The thread ends only when this sender is dropped, or by a panic inside RocksDB's binding: then poll is silent
        // and the commit's time-out tells.
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    fn poll(&mut self, out: &mut Vec<(u64, Result<()>)>) {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner).0 = false;
        out.extend(self.done.try_iter());
    }

    fn notify(&self, waker: Waker) {
        let mut slot = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.0 {
            waker.wake();
        } else {
            slot.1 = Some(waker);
        }
    }
}

impl Drop for ThreadedWriter {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(t) = self.thread.take() {
            let _ = t.join();
        }
    }
}
