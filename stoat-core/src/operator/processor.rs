use std::any::Any;
use std::sync::Arc;

use super::{Child, CurrentKey, Field, LaneCx, Operator, Punctuator, StateOperator, take};
use crate::affinity::Sampled;
use crate::codec::CodecError;
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Gate;
use crate::processor::{Context, Entered, FieldDecl, FieldOf, FieldVisitor, Fired, Handlers, Mode};
use crate::record::{Headers, Record};
use crate::time::Timestamp;

/// Where the key of what is forwarded under the current key comes from.
pub(crate) enum KeptKey<K> {
    /// From the lane: decoded only when something is forwarded.
    Lane(fn(&CurrentKey) -> Result<K, CodecError>),
    /// From the record: the key was changed and the lane does not know it.
    Record,
}

/// Runs a user's processor.
pub(crate) struct ProcessorOperator<P: Handlers> {
    name: Arc<str>,
    processor: P,
    cx: Context<P>,
    kept: KeptKey<P::InKey>,
    /// The key of the record that is processed, with [`KeptKey::Record`].
    key: Option<P::InKey>,
    /// `None`: the processor forwards nothing.
    child: Option<Child>,
    sampled: Option<Box<Sampled<P::InKey>>>,
    /// Counts records down to the next sampled check.
    check_in: u64,
}

impl<P: Handlers> ProcessorOperator<P> {
    pub(crate) fn new(
        name: &str,
        processor: P,
        kept: KeptKey<P::InKey>,
        child: Option<Child>,
        sampled: Option<Sampled<P::InKey>>,
    ) -> Self {
        let check_in = if sampled.is_some() { 1 } else { u64::MAX };
        let sampled = sampled.map(Box::new);
        Self { name: name.into(), processor, cx: Context::new(), kept, key: None, child, sampled, check_in }
    }

    #[cold]
    fn sample(&mut self, key: &P::InKey) -> Result<()> {
        self.check_in = match &mut self.sampled {
            Some(s) => s.check(key).map_err(|e| e.at(self.name.to_string()))?,
            None => u64::MAX,
        };
        Ok(())
    }

    /// The user's part, for a call that may wait.
    pub(super) fn parts(&mut self) -> (&mut P, &mut Context<P>) {
        (&mut self.processor, &mut self.cx)
    }

    #[inline]
    pub(super) fn enter_record(&mut self, record: &Record<P::InKey, P::InValue>, cx: &LaneCx<'_>) -> Result<()> {
        self.check_in -= 1;
        if self.check_in == 0 {
            self.sample(&record.key)?;
        }
        if matches!(self.kept, KeptKey::Record) {
            self.key = Some(record.key.clone());
        }
        if !record.headers.is_empty() || !self.cx.headers.is_empty() {
            self.cx.headers = record.headers.clone();
        }
        self.enter(record.timestamp, cx);
        Ok(())
    }

    pub(super) fn enter_timer(&mut self, time: Timestamp, cx: &LaneCx<'_>) -> Result<P::InKey> {
        let key = self.current_key(&cx.key)?;
        self.cx.headers = Headers::default();
        self.enter(time, cx);
        Ok(key)
    }

    pub(super) fn enter_punctuator(&mut self, which: usize, at: Timestamp, cx: &LaneCx<'_>) -> Result<()> {
        self.cx.headers = Headers::default();
        if P::PUNCTUATORS[which].over.is_some() {
            self.cx.key = Some(self.current_key(&cx.key)?);
        }
        self.enter(at, cx);
        Ok(())
    }

    fn enter(&mut self, timestamp: Timestamp, cx: &LaneCx<'_>) {
        self.cx.timestamp = timestamp;
        self.cx.now = cx.now;
        let at = Entered { key: &cx.key, timestamp, number: cx.number, path: &cx.path, undo: cx.gate.undo };
        self.processor.visit_fields(&mut Enter(at));
    }

    /// Ends a handler: fields are closed, and what it forwarded goes on if it returned `Ok`.
    pub(super) fn leave(&mut self, what: What, result: Result<()>, cx: &mut LaneCx<'_>) -> Result<()> {
        let mut leave = Leave { index: 0, undo: cx.gate.undo && result.is_err(), result: Ok(()) };
        self.processor.visit_fields(&mut leave);
        // What a field found to be wrong for good goes first: the handler may have swallowed it (I-10).
        if let Err(e) = leave.result.and(result) {
            self.cx.forwards.clear();
            let e = what.add_to(e.at(self.name.to_string()), P::FIELDS);
            // Every lane runs a punctuator without a key: there is no record that one of them could leave out.
            return if what == What::Keyless { Err(e) } else { cx.gate(Gate::Process, &self.name, e) };
        }
        if self.cx.forwards.is_empty() {
            return Ok(());
        }
        self.forward(cx).map_err(|e| what.add_to(e, P::FIELDS))
    }

    fn forward(&mut self, cx: &mut LaneCx<'_>) -> Result<()> {
        let Some(child) = self.child else {
            self.cx.forwards.clear();
            return Ok(());
        };
        if self.cx.forwards.len() == 1
            && let Some(only) = self.cx.forwards.pop()
        {
            let record = only.into_record(|| self.kept_key(&cx.key))?;
            return cx.forward_nth(child, 0, record);
        }
        let mut forwards = std::mem::take(&mut self.cx.forwards);
        let mut result = Ok(());
        for (i, forwarded) in forwards.drain(..).enumerate() {
            result = forwarded
                .into_record(|| self.kept_key(&cx.key))
                .and_then(|record| cx.forward_nth(child, i as u32, record));
            if result.is_err() {
                break;
            }
        }
        forwards.clear();
        // The buffer is used again.
        self.cx.forwards = forwards;
        result
    }

    fn kept_key(&self, current: &CurrentKey) -> Result<P::OutKey> {
        let key = match &self.kept {
            KeptKey::Lane(decode) => self.decode(*decode, current)?,
            KeptKey::Record => {
                self.key.clone().expect("only records reach a processor behind a changed key, and their keys are kept")
            }
        };
        Ok(P::Mode::kept(key).expect("only `forward(value)` leaves the key open, and it exists where keys are kept"))
    }

    fn decode(
        &self,
        decode: fn(&CurrentKey) -> Result<P::InKey, CodecError>,
        current: &CurrentKey,
    ) -> Result<P::InKey> {
        decode(current).map_err(|e| Error::new(ErrorKind::State, format!("key of {}: {e}", self.name)))
    }

    fn current_key(&self, current: &CurrentKey) -> Result<P::InKey> {
        match &self.kept {
            KeptKey::Lane(decode) => self.decode(*decode, current),
            KeptKey::Record => Err(Error::new(
                ErrorKind::Internal,
                format!("`{}` has no state behind a changed key, but a timer or punctuator ran", self.name),
            )),
        }
    }
}

impl<P: Handlers> Operator for ProcessorOperator<P> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let record: Record<P::InKey, P::InValue> = take(record);
        self.enter_record(&record, cx)?;
        let result = self.processor.process(record, &mut self.cx);
        self.leave(What::Record, result, cx)
    }

    fn state(&mut self) -> Option<&mut dyn StateOperator> {
        if P::FIELDS.is_empty() && P::PUNCTUATORS.is_empty() { None } else { Some(self) }
    }
}

impl<P: Handlers> StateOperator for ProcessorOperator<P> {
    fn fields(&mut self, visit: &mut dyn FnMut(&mut dyn Field)) {
        self.processor.visit_fields(&mut Dyn(visit));
    }

    fn fire(&mut self, field: usize, time: Timestamp, cx: &mut LaneCx<'_>) -> Result<()> {
        let key = self.enter_timer(time, cx)?;
        let result = self.processor.fire(field, Fired::new(key, time), &mut self.cx);
        self.leave(What::Timer(field, time), result, cx)
    }

    fn punctuators(&self) -> &[Punctuator] {
        P::PUNCTUATORS
    }

    fn punctuate(&mut self, which: usize, at: Timestamp, cx: &mut LaneCx<'_>) -> Result<()> {
        self.enter_punctuator(which, at, cx)?;
        let result = self.processor.punctuate(which, &mut self.cx);
        self.cx.key = None;
        let what = What::punctuator::<P>(which);
        self.leave(what, result, cx)
    }
}

/// Which handler ran.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Record,
    Timer(usize, Timestamp),
    Punctuator,
    Keyless,
}

impl What {
    pub(super) fn punctuator<P: Handlers>(which: usize) -> Self {
        if P::PUNCTUATORS[which].over.is_some() { Self::Punctuator } else { Self::Keyless }
    }

    #[cold]
    fn add_to(self, e: Error, fields: &[FieldDecl]) -> Error {
        match self {
            Self::Record => e,
            Self::Timer(field, time) => e.at(format!("timer {} at {time}", fields[field].name)),
            Self::Punctuator | Self::Keyless => e.at("punctuator"),
        }
    }
}

struct Enter<'a>(Entered<'a>);

impl<P> FieldVisitor<P> for Enter<'_> {
    #[inline]
    fn visit<F: FieldOf<P>>(&mut self, field: &mut F) {
        field.enter(&self.0);
    }
}

struct Leave {
    index: usize,
    /// The handler failed, and its record may be left out.
    undo: bool,
    result: Result<()>,
}

impl<P> FieldVisitor<P> for Leave {
    #[inline]
    fn visit<F: FieldOf<P>>(&mut self, field: &mut F) {
        let undone = if self.undo { field.undo() } else { Ok(()) };
        let left = field.leave(self.index).and(undone);
        self.index += 1;
        // The first one stays: a refusal of a lane check is worth more than what follows from it.
        if self.result.is_ok() {
            self.result = left;
        }
    }
}

struct Dyn<'a, 'b>(&'a mut (dyn FnMut(&mut dyn Field) + 'b));

impl<P> FieldVisitor<P> for Dyn<'_, '_> {
    fn visit<F: FieldOf<P>>(&mut self, field: &mut F) {
        (self.0)(field.as_field());
    }
}
