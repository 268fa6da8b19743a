//! Apache Kafka through librdkafka.
//!
//! Three clients at most, each made when it is first needed: one that asks about topics and groups, one consumer with
//! a queue for each partition, one transactional producer (and a plain one for records outside transactions).
//! librdkafka's blocking calls are made on threads of this module:
//!
//! - `stoat-producer` runs the producers' commands one after another; `stoat-reports` beside it takes in delivery reports.
//! - `stoat-reader` opens and closes partitions and serves the consumer's errors. Records are taken from the partitions'
//!   queues by [`Broker::poll`] itself, without a hand-over.
//! - `stoat-admin` asks about topics, watches for topics that disappear, and tries a lost connection.
//!
//! Known limits of librdkafka: a record whose timestamp is 0 (1970-01-01T00:00:00.000Z) is written with timestamp 1,
//! because librdkafka takes 0 for "now".
#![expect(clippy::disallowed_methods, reason = "a broker's client is an edge: it bounds its waits by the clock")]

mod admin;
mod config;
mod consumer;
mod error;
mod ffi;
mod link;
mod producer;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use config::KafkaConfig;

use crate::broker::{Broker, Command, Event, OpId};
use crate::error::{Error, ErrorKind, Result};
use link::Link;

/// A [`Broker`] on Apache Kafka.
///
/// # Examples
/// ```no_run
/// use stoat_core::broker::kafka::{KafkaBroker, KafkaConfig};
/// use stoat_core::broker::{Broker, Command, OpId};
///
/// let mut broker = KafkaBroker::new(KafkaConfig::new("127.0.0.1:9092", "orders-0", "orders"))?;
/// broker.submit(OpId(1), Command::InitProducer);
/// # Ok::<(), stoat_core::Error>(())
/// ```
pub struct KafkaBroker {
    link: Arc<Link>,
    reader: consumer::Reader,
    producer: Sender<producer::Job>,
    admin: Sender<admin::Job>,
    threads: Vec<JoinHandle<()>>,
}

impl KafkaBroker {
    /// Makes the clients' configuration and the threads; waits for no broker, whether it is reachable shows later.
    ///
    /// # Errors
    /// [`ErrorKind::Config`] when a client setting is unknown or not allowed; the text names it, never its value.
    /// [`ErrorKind::Internal`] when a thread cannot be started.
    pub fn new(config: KafkaConfig) -> Result<Self> {
        config.check()?;
        ffi::keep_large_blocks_apart();
        let link = Arc::new(Link::default());
        let admin_client = ffi::Client::new(ffi::Kind::Consumer, &config.admin(), link.stop_flag())
            .map_err(|e| Error::new(ErrorKind::Config, format!("the Kafka client refuses its configuration: {e}")))?;
        let config = Arc::new(config);
        let (producer, producer_jobs) = mpsc::channel();
        let (admin, admin_jobs) = mpsc::channel();
        let mut threads = Vec::new();
        let (reader, reader_thread) = consumer::Reader::start(&config, &link)?;
        threads.push(reader_thread);
        let table = reader.table();
        // From here on, `Drop` of what was built ends the threads that were started.
        let mut broker = Self { link: Arc::clone(&link), reader, producer, admin, threads };
        broker.threads.push(spawn("stoat-producer", {
            let (config, link) = (Arc::clone(&config), Arc::clone(&link));
            move || producer::run(&config, &link, &producer_jobs)
        })?);
        broker
            .threads
            .push(spawn("stoat-admin", move || admin::run(&config, &link, &table, admin_client, &admin_jobs))?);
        Ok(broker)
    }
}

fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(f)
        .map_err(|e| Error::with_source(ErrorKind::Internal, format!("the thread {name} cannot be started"), e))
}

impl Broker for KafkaBroker {
    fn submit(&mut self, op: OpId, command: Command) {
        // A send fails only if the thread has panicked; then `poll` tells, see `Link::broken`.
        let sent = match command {
            Command::InitProducer => self.producer.send(producer::Job::Init(op)).is_ok(),
            Command::Transact(t) => self.producer.send(producer::Job::Transact(op, t)).is_ok(),
            Command::CommitAgain => self.producer.send(producer::Job::CommitAgain(op)).is_ok(),
            Command::Produce(batch) => self.producer.send(producer::Job::Produce(op, batch)).is_ok(),
            Command::Open { partition, offset } => self.reader.open(op, partition, offset),
            Command::Fetch { partition, max_bytes } => {
                self.reader.fetch(&partition, max_bytes);
                true
            }
            Command::Close { partition } => self.reader.close(op, partition),
            ask @ (Command::Describe { .. }
            | Command::ListTopics
            | Command::CreateTopics { .. }
            | Command::Bounds { .. }
            | Command::Group { .. }) => self.admin.send(admin::Job { op, ask }).is_ok(),
        };
        if !sent {
            self.link.broken(op);
        }
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        self.link.take(out);
        self.reader.take(out);
    }

    fn notify(&self, waker: Waker) {
        self.link.notify(waker);
    }
}

/// How long `Drop` waits for the threads; one that is stuck in a call longer is left behind.
const GOODBYE: Duration = Duration::from_secs(5);

impl Drop for KafkaBroker {
    fn drop(&mut self) {
        self.link.stop();
        self.reader.stop();
        // Closing the channels ends the threads that wait for a job.
        self.producer = mpsc::channel().0;
        self.admin = mpsc::channel().0;
        let deadline = Instant::now() + GOODBYE;
        for thread in self.threads.drain(..) {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                // A panic has been told by the panic hook; there is nobody to hand it to.
                let _ = thread.join();
            } else {
                tracing::warn!(
                    thread = thread.thread().name(),
                    "a Kafka thread did not end in time and is left behind"
                );
            }
        }
    }
}
