use std::sync::Arc;

use super::overlay::{KeyBytes, Slot};
use crate::affinity::{Affinity, TimerGuard};
use crate::error::{Error, ErrorKind, Result};
use crate::processor::{Entered, FieldSeed};
use crate::time::Timestamp;

/// What a field knows about the handler that runs: whose key it is, and when.
#[derive(Debug)]
pub(crate) struct Current {
    /// The field's name, for messages.
    field: &'static str,
    owner: Arc<str>,
    index: usize,
    active: bool,
    present: bool,
    pub(crate) hash: u64,
    pub(crate) key: KeyBytes,
    pub(crate) timestamp: Timestamp,
    /// The current key's entry, once it was looked up.
    pub(crate) slot: Option<Slot>,
    affinity: Option<Affinity>,
    /// Boxed: few fields have one, and all are entered for each record.
    guard: Option<Box<TimerGuard>>,
    /// What went wrong for good in the handler that runs: it must not be swallowed (I-10).
    fatal: Option<(ErrorKind, String)>,
}

/// As [`Current::index`]: a check has refused something of this field while the handler ran.
const REFUSED: usize = usize::MAX;

impl Current {
    pub(crate) fn new(seed: &FieldSeed) -> Self {
        Self {
            field: seed.decl.field,
            owner: seed.owner.clone(),
            index: seed.index,
            active: false,
            present: false,
            hash: 0,
            key: KeyBytes::new(),
            timestamp: Timestamp::MIN,
            slot: None,
            guard: TimerGuard::new(seed.affinity.as_ref(), seed.reencode).map(Box::new),
            affinity: seed.affinity.clone(),
            fatal: None,
        }
    }

    #[inline]
    pub(crate) fn enter(&mut self, at: &Entered<'_>) {
        self.active = true;
        self.present = at.key.present;
        self.hash = at.key.hash;
        self.key.clear();
        self.key.extend_from_slice(&at.key.bytes);
        self.timestamp = at.timestamp;
        self.slot = None;
        self.fatal = None;
    }

    #[inline]
    pub(crate) fn leave(&mut self, index: usize) -> Result<()> {
        self.active = false;
        self.slot = None;
        if self.index == index && self.fatal.is_none() { Ok(()) } else { Err(self.left_wrong(index)) }
    }

    #[cold]
    fn left_wrong(&mut self, index: usize) -> Error {
        if self.index == REFUSED
            && let Some(e) = self.affinity.as_ref().and_then(Affinity::refused)
        {
            return e;
        }
        match self.fatal.take() {
            Some((kind, text)) if self.index == index => Error::new(kind, text),
            _ => self.exchanged(),
        }
    }

    /// Remembers an error that is not about data until the handler ends, in case it is swallowed.
    #[cold]
    pub(crate) fn note(&mut self, e: Error) -> Error {
        if self.active && self.fatal.is_none() && !crate::gate::is_data(&e) {
            self.fatal = Some((e.kind(), e.to_string()));
        }
        e
    }

    #[cold]
    fn exchanged(&self) -> Error {
        Error::new(
            ErrorKind::Lane,
            format!(
                "field `{}` of `{}` was exchanged with another field: leave fields where they are declared",
                self.field, self.owner
            ),
        )
    }

    /// Whether a handler runs.
    #[inline]
    pub(crate) fn inside(&self) -> Result<()> {
        if self.active { Ok(()) } else { Err(self.outside()) }
    }

    /// Whether a handler runs for a key.
    #[inline]
    pub(crate) fn keyed(&self) -> Result<()> {
        if self.active && self.present {
            Ok(())
        } else if self.active {
            Err(self.without_key())
        } else {
            Err(self.outside())
        }
    }

    #[cold]
    fn outside(&self) -> Error {
        Error::new(
            ErrorKind::Lane,
            format!(
                "field `{}` of `{}` was used outside a handler: it belongs to a lane, which calls the handlers",
                self.field, self.owner
            ),
        )
    }

    #[cold]
    fn without_key(&self) -> Error {
        Error::new(
            ErrorKind::Lane,
            format!(
                "field `{}` of `{}` was used where there is no current key; a punctuator has one with `over = ..`",
                self.field, self.owner
            ),
        )
    }

    /// A store writes a key that is not the current one.
    ///
    /// # Errors
    /// When it is a key of another lane and the guard refuses it.
    pub(crate) fn write_other(&mut self, key: &[u8]) -> Result<()> {
        let Some(affinity) = &self.affinity else { return Ok(()) };
        let done = affinity.write(&self.place(), key);
        self.keep_refusal(done)
    }

    /// The current key is about to get or lose a timer.
    ///
    /// # Errors
    /// When its timers would be another lane's and the guard refuses that.
    #[inline]
    pub(crate) fn guard_own(&mut self) -> Result<()> {
        if self.guard.is_some() { self.guarded(None) } else { Ok(()) }
    }

    /// As [`Current::guard_own`], for a timer that is set for a key by its value: it may be the current one.
    #[inline]
    pub(crate) fn guard_other(&mut self, other: &[u8]) -> Result<()> {
        if self.guard.is_some() && self.present { self.guarded(Some(other)) } else { Ok(()) }
    }

    #[cold]
    fn guarded(&mut self, other: Option<&[u8]>) -> Result<()> {
        let place = self.place();
        let Some(guard) = &mut self.guard else { return Ok(()) };
        let done = match other {
            None => guard.own(&place, &self.key),
            Some(other) => guard.another(&place, &self.key, other),
        };
        self.keep_refusal(done)
    }

    /// User code may drop the error: the end of the handler looks again.
    fn keep_refusal(&mut self, done: Result<()>) -> Result<()> {
        if done.is_err() {
            self.index = REFUSED;
        }
        done
    }

    /// The field's name in messages.
    pub(crate) fn place(&self) -> String {
        format!("`{}` of `{}`", self.field, self.owner)
    }
}
