//! One application's connection: hands commands to the broker's thread and takes its events.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::Shared;
use super::server::Message;
use crate::broker::{Broker, BrokerError, BrokerErrorKind, Command, Event, OpId};

/// Who a client is.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Needed for [`Command::InitProducer`] and [`Command::Transact`].
    pub transactional_id: Option<String>,
    /// Needed for offsets in transactions and for [`Command::Group`].
    pub group_id: Option<String>,
    /// How long a transaction may be open. This broker runs whole transactions, so none is ever open: it is not used.
    pub transaction_timeout: Duration,
}

impl ClientConfig {
    /// An application's client: with a transactional id and a consumer group.
    pub fn new(transactional_id: impl Into<String>, group_id: impl Into<String>) -> Self {
        Self { transactional_id: Some(transactional_id.into()), group_id: Some(group_id.into()), ..Self::default() }
    }
}

impl Default for ClientConfig {
    /// A plain reader and writer.
    fn default() -> Self {
        Self { transactional_id: None, group_id: None, transaction_timeout: Duration::from_mins(1) }
    }
}

/// The events of a client on their way, and who waits for them.
#[derive(Default)]
pub(super) struct Mailbox {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    events: Vec<Event>,
    waker: Option<Waker>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code of others runs while it is locked, so what is in it is whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn deliver(&self, events: impl IntoIterator<Item = Event>) {
        let mut inner = self.lock();
        inner.events.extend(events);
        let waker = if inner.events.is_empty() { None } else { inner.waker.take() };
        drop(inner);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A connection to an [`EmbeddedBroker`](super::EmbeddedBroker). See [`Broker`].
pub struct EmbeddedClient {
    id: u64,
    mailbox: Arc<Mailbox>,
    shared: Arc<Shared>,
}

impl EmbeddedClient {
    pub(super) fn new(shared: Arc<Shared>, config: ClientConfig) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let mailbox = Arc::new(Mailbox::default());
        // If the thread has ended, each command tells.
        let _ = shared.sender.send(Message::Connect { id, mailbox: Arc::clone(&mailbox), config });
        Self { id, mailbox, shared }
    }
}

impl Drop for EmbeddedClient {
    fn drop(&mut self) {
        let _ = self.shared.sender.send(Message::Gone { id: self.id });
    }
}

impl Broker for EmbeddedClient {
    fn submit(&mut self, op: OpId, command: Command) {
        if self.shared.sender.send(Message::Command { id: self.id, op, command }).is_err() {
            let message = "the embedded broker's thread has ended after a failure; open it anew";
            let result = Err(BrokerError::new(BrokerErrorKind::Fatal, message));
            self.mailbox.deliver([Event::Done { op, result }]);
        }
    }

    fn poll(&mut self, out: &mut Vec<Event>) {
        out.append(&mut self.mailbox.lock().events);
    }

    fn notify(&self, waker: Waker) {
        let mut inner = self.mailbox.lock();
        if inner.events.is_empty() {
            inner.waker = Some(waker);
            return;
        }
        drop(inner);
        waker.wake();
    }
}
