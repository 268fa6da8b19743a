//! What the threads tell the engine: events, the wake-up for them, and the state of the connection.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Duration, Instant};

use super::error::Code;
use crate::broker::{BrokerError, BrokerErrorKind, Event, OpId, Reply};

/// Shared by the broker and its threads.
#[derive(Default)]
pub(super) struct Link {
    state: Mutex<State>,
    /// Told about `state.stopping` and `state.down`.
    changed: Condvar,
    /// As `state.down`, to be asked often.
    is_down: AtomicBool,
    stopping: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    events: VecDeque<Event>,
    waker: Option<Waker>,
    /// A partition that is waited for may have records.
    data: bool,
    down: bool,
    last_error: Option<String>,
}

impl Link {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete in itself, so a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, event: Event) {
        let waker = {
            let mut state = self.lock();
            state.events.push_back(event);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn done(&self, op: OpId, result: Result<Reply, BrokerError>) {
        self.push(Event::Done { op, result });
    }

    /// Answers a command whose thread is gone.
    pub(super) fn broken(&self, op: OpId) {
        let text = "a thread of the Kafka client has ended after a defect; the process must be started again";
        self.done(op, Err(BrokerError::new(BrokerErrorKind::Fatal, text)));
    }

    /// Says that a partition which is waited for may have records.
    pub(super) fn data(&self) {
        let waker = {
            let mut state = self.lock();
            state.data = true;
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn take(&self, out: &mut Vec<Event>) {
        let mut state = self.lock();
        state.data = false;
        out.extend(state.events.drain(..));
    }

    pub(super) fn notify(&self, waker: Waker) {
        {
            let mut state = self.lock();
            if state.events.is_empty() && !state.data {
                state.waker = Some(waker);
                return;
            }
        }
        waker.wake();
    }

    pub(super) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Set when the broker is being dropped.
    pub(super) fn stop_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stopping)
    }

    pub(super) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Waits, at most so long, for the end.
    pub(super) fn pause(&self, time: Duration) {
        let deadline = Instant::now() + time;
        let mut state = self.lock();
        while !self.stopping() {
            let Some(left) = deadline.checked_duration_since(Instant::now()).filter(|d| !d.is_zero()) else {
                return;
            };
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes in an error that a client reports by itself.
    pub(super) fn client_error(&self, code: Code, text: &str) {
        let waker = {
            let mut state = self.lock();
            match code {
                Code::ALL_BROKERS_DOWN | Code::AUTHENTICATION | Code::SSL | Code::RESOLVE => {
                    let detail = match (&state.last_error, code) {
                        (Some(last), Code::ALL_BROKERS_DOWN) => format!("{last} ({text})"),
                        _ => text.to_owned(),
                    };
                    if code != Code::ALL_BROKERS_DOWN {
                        state.last_error = Some(text.to_owned());
                    }
                    if state.down {
                        return;
                    }
                    state.down = true;
                    self.is_down.store(true, Ordering::SeqCst);
                    self.changed.notify_all();
                    state.events.push_back(Event::Connection(Some(detail)));
                    state.waker.take()
                }
                _ => {
                    tracing::debug!(code = code.0, "{text}");
                    state.last_error = Some(text.to_owned());
                    None
                }
            }
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Relaxed)
    }

    /// Takes in a sign of life of the broker.
    pub(super) fn up(&self) {
        if !self.is_down() {
            return;
        }
        let waker = {
            let mut state = self.lock();
            if !state.down {
                return;
            }
            state.down = false;
            self.is_down.store(false, Ordering::SeqCst);
            state.last_error = None;
            state.events.push_back(Event::Connection(None));
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// What is known about why the broker does not answer; to be appended to a time-out's text.
    pub(super) fn why(&self) -> String {
        self.lock().last_error.as_ref().map_or_else(String::new, |e| format!("; last client error: {e}"))
    }
}
