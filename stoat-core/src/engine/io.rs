//! The engine's edge: commands out, events in. Numbers operations, sorts what comes back.

use std::task::Waker;

use super::writer::{StoreWriter, WriteJob};
use crate::broker::{Broker, BrokerError, Command, Event, Fetched, OpId, Reply};
use crate::error::Result;
use crate::id::TopicPartition;

/// Something that came back.
#[derive(Debug)]
pub enum Reaction {
    /// A broker command has ended.
    Done(OpId, std::result::Result<Reply, BrokerError>),
    /// Records of an open partition.
    Fetched(Fetched),
    /// A partition cannot be read.
    Failed(TopicPartition, BrokerError),
    /// A write job has ended.
    Written(u64, Result<()>),
    /// The broker cannot be reached.
    Lost,
    /// It can be reached again.
    Back,
}

/// See the module.
pub struct Io {
    broker: Box<dyn Broker>,
    writer: Box<dyn StoreWriter>,
    next_op: u64,
    next_job: u64,
    events: Vec<Event>,
    written: Vec<(u64, Result<()>)>,
}

impl Io {
    /// Puts the edge together.
    pub fn new(broker: Box<dyn Broker>, writer: Box<dyn StoreWriter>) -> Self {
        Self { broker, writer, next_op: 1, next_job: 1, events: Vec::new(), written: Vec::new() }
    }

    /// Submits a command.
    pub fn submit(&mut self, command: Command) -> OpId {
        let op = OpId(self.next_op);
        self.next_op += 1;
        self.broker.submit(op, command);
        op
    }

    /// Asks for records; has no end of its own.
    pub fn fetch(&mut self, partition: TopicPartition, max_bytes: usize) {
        self.submit(Command::Fetch { partition, max_bytes });
    }

    /// Submits a write job.
    pub fn write(&mut self, job: impl FnOnce(u64) -> WriteJob) -> u64 {
        let id = self.next_job;
        self.next_job += 1;
        self.writer.submit(job(id));
        id
    }

    /// What has come back since the last call.
    pub fn poll(&mut self) -> Vec<Reaction> {
        self.broker.poll(&mut self.events);
        self.writer.poll(&mut self.written);
        let written = self.written.drain(..).map(|(id, r)| Reaction::Written(id, r));
        let events = self.events.drain(..).map(|e| match e {
            Event::Done { op, result } => Reaction::Done(op, result),
            Event::Fetched(f) => Reaction::Fetched(f),
            Event::Failed { partition, error } => Reaction::Failed(partition, error),
            Event::Connection(Some(text)) => {
                tracing::warn!("the broker cannot be reached: {text}");
                Reaction::Lost
            }
            Event::Connection(None) => {
                tracing::info!("the broker can be reached again");
                Reaction::Back
            }
        });
        written.chain(events).collect()
    }

    /// Has `waker` woken when the next thing comes back.
    pub fn notify(&self, waker: &Waker) {
        self.broker.notify(waker.clone());
        self.writer.notify(waker.clone());
    }
}
