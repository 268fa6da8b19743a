use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Child, CurrentKey, HandBatch, LaneCx, Operator, Outbound, codec_error, take};
use crate::codec::Encode;
use crate::engine::tag::Tag;
use crate::error::Result;
use crate::gate::Gate;
use crate::hash::{lane_hash, lane_of};
use crate::id::LaneIdx;
use crate::record::{Origin, Record, RecordBatch};

/// Which key picks the receiving lane.
pub(crate) trait HandKey<K>: Send + 'static {
    /// The node's name, where writing can fail.
    #[expect(clippy::unnecessary_literal_bound, reason = "others give a name of their own")]
    fn name(&self) -> &str {
        ""
    }

    /// Puts the key's bytes at the end of `out` and returns its hash; `None`: there is no key.
    fn write(&self, key: &K, cx: &LaneCx<'_>, out: &mut Vec<u8>) -> Result<Option<u64>>;
}

/// The key of the record, as codec `C` writes it.
pub(crate) struct ByCodec<C> {
    pub(crate) name: Arc<str>,
    pub(crate) codec: PhantomData<fn() -> C>,
}

impl<K, C: Encode<K>> HandKey<K> for ByCodec<C> {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&self, key: &K, _cx: &LaneCx<'_>, out: &mut Vec<u8>) -> Result<Option<u64>> {
        if C::is_null(key) {
            return Ok(None);
        }
        let start = out.len();
        C::encode(key, out).map_err(|e| codec_error(&format!("key for {}", self.name), C::NAME, &e))?;
        Ok(Some(lane_hash(&out[start..])))
    }
}

/// The key that the sending lane works for: the lane key stays.
pub(crate) struct ByLane;

impl<K> HandKey<K> for ByLane {
    fn write(&self, _key: &K, cx: &LaneCx<'_>, out: &mut Vec<u8>) -> Result<Option<u64>> {
        if !cx.key.present {
            return Ok(None);
        }
        out.extend_from_slice(&cx.key.bytes);
        Ok(Some(cx.key.hash))
    }
}

/// Collects records for the lanes of another sub-topology.
pub(crate) struct HandOverOperator<K, V, B> {
    by: B,
    key: Vec<u8>,
    batches: Vec<Batch<K, V>>,
}

impl<K, V, B: HandKey<K>> HandOverOperator<K, V, B> {
    pub(crate) fn new(by: B, receiving_lanes: u32) -> Self {
        Self { by, key: Vec::new(), batches: (0..receiving_lanes.max(1)).map(|_| Batch::default()).collect() }
    }
}

impl<K: Send + 'static, V: Send + 'static, B: HandKey<K>> Operator for HandOverOperator<K, V, B> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let record: Record<K, V> = take(record);
        self.key.clear();
        let hash = match self.by.write(&record.key, cx, &mut self.key) {
            Ok(hash) => hash,
            Err(e) => return cx.gate(Gate::Process, self.by.name(), e),
        };
        let lanes = self.batches.len() as u32;
        let lane = match hash {
            Some(h) => lane_of(h, lanes),
            // A record without a key follows its source partition, so that the partition's order is kept.
            None => cx.origin.map_or(0, |o| o.partition % lanes),
        };
        let batch = &mut self.batches[lane as usize];
        let start = batch.keys.len();
        batch.keys.extend_from_slice(&self.key);
        let source = if cx.gate.keep { batch.source(cx.gate.held().filter(|_| cx.origin.is_some())) } else { None };
        batch.items.push(Handed {
            record: Some(record),
            tag: cx.tag(),
            origin: cx.origin,
            source,
            key: (start as u32, self.key.len() as u32),
            hash,
        });
        Ok(())
    }

    fn outbound(&mut self) -> Option<&mut dyn Outbound> {
        Some(self)
    }
}

impl<K: Send + 'static, V: Send + 'static, B: HandKey<K>> Outbound for HandOverOperator<K, V, B> {
    fn take(&mut self, out: &mut Vec<(LaneIdx, Box<dyn HandBatch>)>) {
        for (lane, batch) in self.batches.iter_mut().enumerate() {
            if !batch.items.is_empty() {
                out.push((LaneIdx(lane as u32), Box::new(std::mem::take(batch))));
            }
        }
    }
}

struct Handed<K, V> {
    record: Option<Record<K, V>>,
    tag: Tag,
    origin: Option<Origin>,
    /// The source record: its batch in [`Batch::sources`] and its place there; kept only where a gate may want it.
    source: Option<(u32, u32)>,
    /// Start and length in [`Batch::keys`].
    key: (u32, u32),
    /// `None`: there is no key.
    hash: Option<u64>,
}

struct Batch<K, V> {
    items: Vec<Handed<K, V>>,
    keys: Vec<u8>,
    sources: Vec<Arc<RecordBatch>>,
}

impl<K, V> Batch<K, V> {
    fn source(&mut self, held: Option<&(Arc<RecordBatch>, u32)>) -> Option<(u32, u32)> {
        let (batch, i) = held?;
        if !self.sources.last().is_some_and(|last| Arc::ptr_eq(last, batch)) {
            self.sources.push(Arc::clone(batch));
        }
        Some((self.sources.len() as u32 - 1, *i))
    }
}

impl<K, V> Default for Batch<K, V> {
    fn default() -> Self {
        Self { items: Vec::new(), keys: Vec::new(), sources: Vec::new() }
    }
}

impl<K: Send + 'static, V: Send + 'static> HandBatch for Batch<K, V> {
    fn len(&self) -> usize {
        self.items.len()
    }

    fn tag(&self, i: usize) -> &Tag {
        &self.items[i].tag
    }

    fn weight(&self) -> usize {
        self.items.len() * size_of::<Handed<K, V>>() + self.keys.len()
    }

    fn deliver(&mut self, i: usize, entry: Child, cx: &mut LaneCx<'_>) -> Result<()> {
        let item = &mut self.items[i];
        let record = item.record.take().expect("each record is delivered once");
        let (start, len) = (item.key.0 as usize, item.key.1 as usize);
        set_key(&mut cx.key, &self.keys[start..start + len], item.hash);
        cx.number = item.tag.number;
        cx.path.clone_from(&item.tag.path);
        cx.origin = item.origin;
        if let Some((batch, i)) = item.source {
            cx.gate.hold(&self.sources[batch as usize], i);
        }
        cx.forward(entry, record)
    }
}

fn set_key(current: &mut CurrentKey, bytes: &[u8], hash: Option<u64>) {
    current.bytes.clear();
    current.bytes.extend_from_slice(bytes);
    current.hash = hash.unwrap_or(0);
    current.present = hash.is_some();
}
