//! A broker inside the process: durable in one directory, no server to run.
//!
//! It has what the engine needs of Kafka, with the same meaning: topics with partitions, whole transactions over
//! topics and group offsets, fencing by transactional id, `read_committed` reading, compaction and retention. One
//! process owns the directory (a lock says so); any number of clients in it share the broker.
//!
//! All topics share one journal. A committed transaction is one checksummed entry of it, so a crash or a power cut
//! leaves a prefix of the commits, and a torn tail is cut off on the next open. One thread does all the I/O; when
//! commits wait, they share one `fsync`. Records are read back from the files: memory holds where they lie, in
//! pieces of about 64 KiB, not what they are. Nothing is written while nobody commits.
//!
//! Differences from Kafka that a user can notice: an aborted transaction leaves no trace (its records take no
//! offsets); time-based retention counts from the later of a record's timestamp and its commit, so that old
//! timestamps do not make a new record vanish.
#![expect(
    clippy::disallowed_methods,
    reason = "a broker is an edge: it stamps entries and bounds its waits by the clock"
)]

mod clean;
mod client;
mod format;
#[cfg(any(test, feature = "testing"))]
pub(crate) mod fuzz;
mod journal;
mod server;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use client::{ClientConfig, EmbeddedClient};

use crate::error::{Error, ErrorKind, Result};
use journal::Journal;
use server::{Message, Server};
use state::State;

/// When a commit is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fsync {
    /// Before it is told to be done. Commits that wait share one `fsync`.
    #[default]
    Commit,
    /// At most this long after it is told to be done: a power cut may lose the last commits, a crash of the process none.
    Interval(Duration),
    /// When the system likes: a power cut may lose commits, a crash of the process none.
    Off,
}

/// A wall clock, in milliseconds since the Unix epoch; retention follows it.
pub type WallClock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// What an embedded broker is made with.
#[derive(Clone)]
pub struct EmbeddedConfig {
    /// Its directory; `None`: in memory only, for tests.
    pub dir: Option<PathBuf>,
    /// When commits are on disk.
    pub fsync: Fsync,
    /// The clock that retention follows.
    pub now: WallClock,
    /// The size of a journal file in bytes, default 32 MiB; a transaction that is larger makes a larger file.
    pub file_bytes: u64,
    /// So many bytes of each entry reach the disk, then it is full.
    #[cfg(test)]
    disk_limit: Option<Arc<std::sync::atomic::AtomicU64>>,
    /// Counts the syncs.
    #[cfg(test)]
    syncs: Option<Arc<std::sync::atomic::AtomicU64>>,
}

impl EmbeddedConfig {
    /// A durable broker in a directory.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self { dir: Some(dir.into()), ..Self::memory() }
    }

    /// A broker in memory: it is gone with its last handle.
    pub fn memory() -> Self {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as i64);
        Self {
            dir: None,
            fsync: Fsync::default(),
            now: Arc::new(now),
            file_bytes: 32 << 20,
            #[cfg(test)]
            disk_limit: None,
            #[cfg(test)]
            syncs: None,
        }
    }
}

impl fmt::Debug for EmbeddedConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedConfig")
            .field("dir", &self.dir)
            .field("fsync", &self.fsync)
            .field("file_bytes", &self.file_bytes)
            .finish_non_exhaustive()
    }
}

/// The broker of this process. Handles are cheap to clone; the directory is free again when the last handle and the
/// last client are gone.
///
/// # Examples
/// ```
/// use std::task::Waker;
/// use stoat_core::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig};
/// use stoat_core::broker::{Broker, Command, OpId};
///
/// # fn main() -> stoat_core::Result<()> {
/// let broker = EmbeddedBroker::open(EmbeddedConfig::memory())?;
/// let mut client = broker.client(ClientConfig::default());
/// client.submit(OpId(1), Command::ListTopics);
/// client.notify(Waker::noop().clone());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EmbeddedBroker {
    shared: Arc<Shared>,
}

/// What handles and clients share; the last one of them ends the thread.
struct Shared {
    sender: Sender<Message>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let _ = self.sender.send(Message::Stop);
        if let Some(thread) = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

impl EmbeddedBroker {
    /// Opens the broker of a directory, or makes one there.
    ///
    /// # Errors
    /// [`ErrorKind::Fenced`]: another process (or another handle that was opened) has the directory.
    /// [`ErrorKind::State`]: it cannot be created, read or written, its journal is damaged, or a newer version wrote it.
    pub fn open(config: EmbeddedConfig) -> Result<Self> {
        let mut state = State::default();
        let never_synced = config.fsync == Fsync::Off;
        #[cfg_attr(not(test), expect(unused_mut, reason = "tests limit the disk"))]
        let mut journal = Journal::open(config.dir.clone(), config.file_bytes, never_synced, &mut |file, at, body| {
            state.apply(file, at, body)
        })?;
        #[cfg(test)]
        {
            journal.disk_limit.clone_from(&config.disk_limit);
            journal.syncs.clone_from(&config.syncs);
        }
        let (sender, receiver) = mpsc::channel();
        let server = Server::new(config, journal, state, sender.clone());
        let thread = thread::Builder::new()
            .name("stoat-embedded".to_owned())
            .spawn(move || server.run(&receiver))
            .map_err(|e| Error::with_source(ErrorKind::State, "cannot start the embedded broker's thread", e))?;
        Ok(Self { shared: Arc::new(Shared { sender, thread: Mutex::new(Some(thread)) }) })
    }

    /// A connection for one application or one plain reader or writer.
    pub fn client(&self, config: ClientConfig) -> EmbeddedClient {
        EmbeddedClient::new(Arc::clone(&self.shared), config)
    }

    /// Deletes a topic with its records and the groups' offsets of it; waits until that is done. One made anew under
    /// the name has another id.
    ///
    /// # Errors
    /// [`ErrorKind::Topic`]: there is none of this name. [`ErrorKind::State`]: the journal cannot be written.
    pub fn delete_topic(&self, name: &str) -> Result<()> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.ask(Message::DeleteTopic { name: name.into(), reply }, &answer)?
    }

    /// Applies retention and compaction now, as far as there is something to gain, and waits until that is done.
    /// The broker does so by itself; tests and tools do not want to wait for that.
    ///
    /// # Errors
    /// [`ErrorKind::State`]: the journal cannot be written.
    pub fn maintain(&self) -> Result<()> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.ask(Message::Maintain { reply }, &answer)?
    }

    fn ask<T>(&self, message: Message, answer: &mpsc::Receiver<T>) -> Result<T> {
        let gone =
            || Error::new(ErrorKind::State, "the embedded broker's thread has ended after a failure; open it anew");
        self.shared.sender.send(message).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())
    }
}

impl fmt::Debug for EmbeddedBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedBroker").finish_non_exhaustive()
    }
}
