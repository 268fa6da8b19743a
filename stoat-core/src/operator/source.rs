use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Child, LaneCx, Operator, codec_error};
use crate::codec::{Codec, decode_opt};
use crate::error::{Error, ErrorKind, Result};
use crate::gate::Gate;
use crate::record::{RawRecord, Record};
use crate::schedule::Schedule;
use crate::source::Source;

/// Decodes the records of a topic.
pub(crate) struct SourceOperator<S> {
    name: Arc<str>,
    child: Child,
    source: PhantomData<fn() -> S>,
}

impl<S: Source> SourceOperator<S> {
    pub(crate) fn new(name: &str, child: Child) -> Self {
        Self { name: name.into(), child, source: PhantomData }
    }

    #[inline]
    fn decode(&self, raw: RawRecord<'_>) -> Result<Record<S::Key, S::Value>> {
        if raw.timestamp.0 < 0 {
            return Err(self.no_timestamp(raw));
        }
        let key = decode_opt::<S::KeyCodec, S::Key>(raw.key)
            .map_err(|e| codec_error(&format!("key of {}", self.name), S::KeyCodec::NAME, &e))?;
        let value = decode_opt::<S::ValueCodec, S::Value>(raw.value)
            .map_err(|e| codec_error(&format!("value of {}", self.name), S::ValueCodec::NAME, &e))?;
        Ok(Record { key, value, timestamp: raw.timestamp, headers: raw.headers.clone() })
    }

    #[cold]
    fn no_timestamp(&self, raw: RawRecord<'_>) -> Error {
        Error::new(
            ErrorKind::Codec,
            format!(
                "a record of {} has no timestamp ({}): set message.timestamp.type=LogAppendTime on the topic, have its \
                 producer set one, or skip such records with `#[source(.., no_timestamp = skip)]`",
                self.name, raw.timestamp
            ),
        )
    }
}

impl<S: Source> Operator for SourceOperator<S> {
    fn push(&mut self, _record: &mut dyn Any, _cx: &mut LaneCx<'_>) -> Result<()> {
        unreachable!("a source has no parents")
    }

    fn push_raw(&mut self, raw: RawRecord<'_>, cx: &mut LaneCx<'_>) -> Result<()> {
        match self.decode(raw) {
            Ok(record) => cx.forward(self.child, record),
            Err(e) => cx.gate(Gate::Decode, &self.name, e),
        }
    }
}

/// Takes what a schedule emitted.
pub(crate) struct ScheduleOperator<S> {
    name: Arc<str>,
    child: Child,
    schedule: PhantomData<fn() -> S>,
}

impl<S: Schedule> ScheduleOperator<S> {
    pub(crate) fn new(name: &str, child: Child) -> Self {
        Self { name: name.into(), child, schedule: PhantomData }
    }
}

impl<S: Schedule> Operator for ScheduleOperator<S> {
    fn push(&mut self, _record: &mut dyn Any, _cx: &mut LaneCx<'_>) -> Result<()> {
        unreachable!("a schedule has no parents")
    }

    fn push_raw(&mut self, raw: RawRecord<'_>, cx: &mut LaneCx<'_>) -> Result<()> {
        let key = decode_opt::<S::KeyCodec, S::Key>(raw.key)
            .map_err(|e| codec_error(&format!("key of {}", self.name), S::KeyCodec::NAME, &e))?;
        let value = decode_opt::<S::ValueCodec, S::Value>(raw.value)
            .map_err(|e| codec_error(&format!("value of {}", self.name), S::ValueCodec::NAME, &e))?;
        cx.forward(self.child, Record { key, value, timestamp: raw.timestamp, headers: raw.headers.clone() })
    }
}
