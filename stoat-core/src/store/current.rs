use std::sync::Arc;

use super::overlay::{KeyBytes, Slot};
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
    /// What went wrong for good in the handler that runs: it must not be swallowed (I-10).
    fatal: Option<(ErrorKind, String)>,
}

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

    /// A key of another lane was written.
    #[cold]
    pub(crate) fn foreign(&self, what: &str, own: u32, other: u32, lanes: u32, fix: &str) -> Error {
        Error::new(
            ErrorKind::Lane,
            format!(
                "{what} of field `{}` of `{}` for a key of lane {other} on lane {own} of {lanes}: \
                 two lanes would write one key; {fix}",
                self.field, self.owner
            ),
        )
    }

    /// The field's name in messages.
    pub(crate) fn place(&self) -> String {
        format!("`{}` of `{}`", self.field, self.owner)
    }
}
