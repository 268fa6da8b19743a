//! A model's shape, and what several have in common. Models share no code with the engine.

use std::collections::BTreeMap;

use super::super::message::{Mark, Position, Tick};

/// Topic, key, value, time.
pub(super) type Output = (&'static str, Vec<u8>, Vec<u8>, i64);
/// By store and key.
pub(super) type Stored = BTreeMap<(String, Vec<u8>), Vec<u8>>;

/// Evaluates the committed ingest order, one number after the other.
pub(super) trait Model {
    fn record(&mut self, topic: &str, key: &str, value: &str, time: i64);
    fn mark(&mut self, _mark: &Mark) {}
    fn tick(&mut self, _tick: &Tick) {}
    fn barrier(&mut self) {}
    fn applied(&mut self) {}
    /// What was emitted since the last call, in order.
    fn outputs(&mut self) -> Vec<Output>;
    fn state(&self) -> Stored;
}

pub(super) fn texts(store: &str, of: &BTreeMap<String, String>) -> Stored {
    of.iter().map(|(k, v)| ((store.to_owned(), k.as_bytes().to_vec()), v.as_bytes().to_vec())).collect()
}

pub(super) fn numbers(store: &str, of: &BTreeMap<String, u64>) -> Stored {
    of.iter().map(|(k, v)| ((store.to_owned(), k.as_bytes().to_vec()), v.to_be_bytes().to_vec())).collect()
}

pub(super) fn times(store: &str, of: &BTreeMap<String, i64>) -> Stored {
    of.iter().map(|(k, v)| ((store.to_owned(), k.as_bytes().to_vec()), v.to_be_bytes().to_vec())).collect()
}

/// Whether a mark or a tick with this limit lets a timer fire, the time that it says being `reached`.
pub(super) fn within(limit: Option<&Position>, reached: i64, clock: i64, time: i64, key: &str) -> bool {
    time <= reached && limit.is_none_or(|l| (clock.max(time), key.as_bytes()) <= (l.time.0, l.key.as_slice()))
}
