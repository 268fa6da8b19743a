use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{LaneCx, Operator, codec_error, take};
use crate::codec::{Codec, Encode};
use crate::error::Result;
use crate::gate::Gate;
use crate::gate::lane::Output;
use crate::id::SinkId;
use crate::record::Record;
use crate::sink::Sink;

/// Encodes records for a topic.
pub(crate) struct SinkOperator<S> {
    name: Arc<str>,
    sink: SinkId,
    key: Vec<u8>,
    value: Vec<u8>,
    types: PhantomData<fn() -> S>,
}

impl<S: Sink> SinkOperator<S> {
    pub(crate) fn new(name: &str, sink: SinkId) -> Self {
        Self { name: name.into(), sink, key: Vec::new(), value: Vec::new(), types: PhantomData }
    }

    #[inline]
    fn encode(&mut self, record: &Record<S::Key, S::Value>) -> Result<()> {
        self.key.clear();
        S::KeyCodec::encode(&record.key, &mut self.key)
            .map_err(|e| codec_error(&format!("key for {}", self.name), S::KeyCodec::NAME, &e))?;
        self.value.clear();
        S::ValueCodec::encode(&record.value, &mut self.value)
            .map_err(|e| codec_error(&format!("value for {}", self.name), S::ValueCodec::NAME, &e))
    }
}

impl<S: Sink> Operator for SinkOperator<S> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let record = take::<S::Key, S::Value>(record);
        if let Err(e) = self.encode(&record) {
            return cx.gate(Gate::Produce, &self.name, e);
        }
        let key = (!S::KeyCodec::is_null(&record.key)).then_some(self.key.as_slice());
        let value = (!S::ValueCodec::is_null(&record.value)).then_some(self.value.as_slice());
        let output = Output { key, value, timestamp: record.timestamp, headers: &record.headers };
        if cx.admits(&self.name, self.sink, output)? {
            cx.emit(self.sink, key, value, record.timestamp, record.headers);
        }
        Ok(())
    }
}
