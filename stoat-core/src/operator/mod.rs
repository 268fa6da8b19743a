//! Operators: what runs on a lane.
//!
//! An operator is pushed records and forwards to its children, depth first. Operators of one lane sit in one arena and
//! know each other by index, so that two of them may share a child. Nothing here knows threads, queues or clocks.

pub(crate) mod aggregate;
pub(crate) mod awaiting;
pub(crate) mod fan_out;
pub(crate) mod hand_over;
#[cfg(test)]
pub(crate) mod harness;
pub(crate) mod merge;
pub(crate) mod processor;
pub(crate) mod sink;
pub(crate) mod source;
pub mod stateless;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::task::Waker;

use crate::codec::CodecError;
use crate::engine::tag::{Path, Tag, Tags};
use crate::error::Result;
use crate::gate::LaneGate;
use crate::hash::partition_for;
use crate::id::{Epoch, LaneIdx, SinkId, StoreId, SubTopologyId};
use crate::record::{Headers, Origin, ProduceBatch, RawRecord, Record};
use crate::store::Row;
use crate::time::{Now, TimeDomain, Timestamp};

/// One operator of one lane.
pub trait Operator: Send {
    /// Takes a record: an `Option<Record<K, V>>` that is `Some`, behind `dyn Any`; see [`take`].
    ///
    /// # Errors
    /// What the user's code returns, with the place added.
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()>;

    /// Takes a record as bytes; only sources do.
    ///
    /// # Errors
    /// When the bytes cannot be decoded, or as [`Operator::push`].
    fn push_raw(&mut self, _record: RawRecord<'_>, _cx: &mut LaneCx<'_>) -> Result<()> {
        unreachable!("only sources take bytes: the plan dispatches to sources only")
    }

    /// The stateful side, where there is one.
    fn state(&mut self) -> Option<&mut dyn StateOperator> {
        None
    }

    /// The sending side of a hand-over to another sub-topology, where this is one.
    fn outbound(&mut self) -> Option<&mut dyn Outbound> {
        None
    }

    /// The side of calls that wait, where handlers are `async`.
    fn waiting(&mut self) -> Option<&mut dyn Waiting> {
        None
    }
}

/// What the lane does with an operator whose handlers may wait.
///
/// A call that waits has returned `Ok` to its caller: nothing may come between the lane and such an operator, so it is the
/// entry of its sub-topology, and the lane asks after each call.
pub trait Waiting {
    /// Whom the futures of handlers wake.
    fn wake_by(&mut self, waker: Waker);

    /// Whether a call waits.
    fn waits(&self) -> bool;

    /// The call that waits, described.
    fn call(&self) -> Option<WaitingCall>;

    /// Goes on with the call that waits: it may be done afterwards, and then its effects are there.
    ///
    /// # Errors
    /// As [`Operator::push`].
    fn resume(&mut self, cx: &mut LaneCx<'_>) -> Result<()>;
}

/// A call that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingCall {
    /// Its place in ingest order: nothing that it sends comes before it.
    pub tag: Tag,
    /// Counts the calls of one operator that waited.
    pub nth: u64,
    /// The source record that it comes from.
    pub origin: Option<Origin>,
    /// Node and handler, for messages.
    pub place: String,
}

/// Takes the record out of what [`Operator::push`] was given.
///
/// # Panics
/// When the type is another: the builder's types make that impossible.
pub fn take<K: 'static, V: 'static>(record: &mut dyn Any) -> Record<K, V> {
    record
        .downcast_mut::<Option<Record<K, V>>>()
        .and_then(Option::take)
        .expect("the builder connects operators of equal types only, and each record is taken once")
}

/// What the lane does with an operator that has state, timers or punctuators.
pub trait StateOperator {
    /// Visits the fields that are bound to stores, always in the same order.
    fn fields(&mut self, visit: &mut dyn FnMut(&mut dyn Field));

    /// Calls the handler of the timer field number `field` (in the order of [`StateOperator::fields`]) for the current
    /// key, which the lane has set in `cx`. The timer has been taken already ([`PendingTimers::take_first`]).
    ///
    /// # Errors
    /// What the handler returns.
    fn fire(&mut self, field: usize, time: Timestamp, cx: &mut LaneCx<'_>) -> Result<()>;

    /// The punctuators, in the order of declaration.
    fn punctuators(&self) -> &[Punctuator] {
        &[]
    }

    /// Whether [`StateOperator::barrier`] may have something to hand on.
    fn emits_at_barriers(&self) -> bool {
        false
    }

    /// Hands on what it has kept for the end of the epoch: in the order of keys, each under [`Path::on_barrier`].
    ///
    /// # Errors
    /// As [`Operator::push`].
    fn barrier(&mut self, _stage: SubTopologyId, _place: u32, _cx: &mut LaneCx<'_>) -> Result<()> {
        Ok(())
    }

    /// Calls a punctuator; for one with `over` once per key, which the lane has set in `cx`.
    ///
    /// # Errors
    /// What the handler returns.
    fn punctuate(&mut self, _which: usize, _at: Timestamp, _cx: &mut LaneCx<'_>) -> Result<()> {
        Ok(())
    }
}

/// A declared punctuator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Punctuator {
    /// How often.
    pub every: std::time::Duration,
    /// On which clock.
    pub domain: TimeDomain,
    /// The field (in the order of [`StateOperator::fields`]) over whose keys it runs.
    pub over: Option<usize>,
}

/// A field that owns data of a store: overlay of decoded values, cache, pending timers.
///
/// Reads look into what is dirty or frozen, then the cache, then the store's bytes. An entry that was written stays in
/// the field until the epoch that wrote it has been applied.
pub trait Field: Send {
    /// Which store.
    fn store(&self) -> StoreId;

    /// Encodes all that was written since the last freeze, one row per key, in any order; what was written stays
    /// readable. The rows belong to `epoch`.
    ///
    /// # Errors
    /// When a value cannot be encoded.
    fn freeze(&mut self, epoch: Epoch, rows: &mut Vec<Row>) -> Result<()>;

    /// The store's bytes now hold `epoch`: entries not written since may be dropped.
    fn applied(&mut self, epoch: Epoch);

    /// Bytes held that are not yet applied, and bytes held in all.
    fn weight(&self) -> Weight;

    /// Looks how long one of the values that were written is; called between handlers. A field whose entries are all of one
    /// size has nothing to do.
    fn sample(&mut self) {}

    /// Drops clean entries until about `bytes` are left.
    fn trim(&mut self, bytes: usize);

    /// Keys that have a value now (written, cached or stored), in order, of this lane only; for punctuators.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn keys(&self, _of_lane: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    /// The timer side, where this is a timer field.
    fn timers(&mut self) -> Option<&mut dyn PendingTimers> {
        None
    }
}

/// What a field holds, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weight {
    /// Written and not yet applied.
    pub uncommitted: usize,
    /// In all.
    pub total: usize,
}

/// The pending timers of one field on one lane.
pub trait PendingTimers {
    /// Which clock they follow.
    fn domain(&self) -> TimeDomain;

    /// The earliest pending timer, by time, then key, if its time is not after `upto`. Reads the store where timers as
    /// early as that may be there only.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn first(&mut self, upto: Timestamp) -> Result<Option<(Timestamp, &[u8])>>;

    /// About where the `n`-th pending timer (from 0) is, by time, then key: not before the first one, unless the store was
    /// not looked through so far. `None`: there are no more than `n`.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn nth(&mut self, n: usize) -> Result<Option<(Timestamp, Vec<u8>)>>;

    /// Removes the timer that [`PendingTimers::first`] has just returned, because it fires now. This is not a write in the
    /// sense of I-15.
    fn take_first(&mut self);

    /// Takes the writes for other keys that were made since the last call.
    fn take_foreign(&mut self) -> Vec<ForeignTimer>;

    /// Makes a write of another lane (or of this one, for another key) take effect, unless a later own write of this
    /// epoch beats it. Called before the freeze, in rising order of (tag, index).
    ///
    /// # Errors
    /// When the store cannot be read.
    fn apply_foreign(&mut self, write: &ForeignTimer) -> Result<()>;
}

/// A timer set or cancelled for another key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignTimer {
    /// The timer's store.
    pub store: StoreId,
    /// The other key's bytes.
    pub key: Vec<u8>,
    /// The time; for a `Timer` `None` cancels.
    pub time: Option<Timestamp>,
    /// For a `Timers`: the time that is cancelled.
    pub cancel: Option<Timestamp>,
    /// Where in ingest order it was written.
    pub tag: Tag,
    /// Which write within the handler.
    pub index: u32,
}

/// The key that a lane is working for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CurrentKey {
    /// The bytes that the lane's codec writes for it; empty and `present == false` for a record without a key.
    pub bytes: Vec<u8>,
    /// Its lane hash.
    pub hash: u64,
    /// Whether there is a key.
    pub present: bool,
}

/// The sending side of a hand-over: keeps what one step sends, per receiving lane, in rising order of tags.
pub trait Outbound {
    /// Takes what was collected since the last call, per receiving lane.
    fn take(&mut self, out: &mut Vec<(LaneIdx, Box<dyn HandBatch>)>);
}

/// Typed records on their way to a lane of another sub-topology, in rising order of tags.
pub trait HandBatch: Send {
    /// The number of records.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The tag of the `i`-th record.
    fn tag(&self, i: usize) -> &Tag;

    /// Bytes, roughly.
    fn weight(&self) -> usize;

    /// Gives the `i`-th record to the operator at `entry`; each is given once. Sets key, number, path and origin in `cx`.
    ///
    /// # Errors
    /// As [`Operator::push`].
    fn deliver(&mut self, i: usize, entry: Child, cx: &mut LaneCx<'_>) -> Result<()>;
}

/// The place of an operator in its lane's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Child(pub u32);

/// Outputs of one lane and epoch, in rising order of tags.
#[derive(Debug, Default)]
pub struct Outputs {
    /// The records; topic number = [`SinkId`].
    pub batch: ProduceBatch,
    /// Their tags.
    pub tags: Tags,
}

impl Outputs {
    /// Bytes held.
    pub fn weight(&self) -> usize {
        self.batch.weight() + self.tags.weight()
    }
}

/// What an operator sees of its lane while it runs.
pub struct LaneCx<'a> {
    /// The lane's operators; `None` while one runs.
    pub nodes: &'a mut [Option<Box<dyn Operator>>],
    /// The ingest number.
    pub number: u64,
    /// The path of emission so far.
    pub path: Path,
    /// The key that the lane works for.
    pub key: CurrentKey,
    /// Time, as stamped by ingest.
    pub now: Now,
    /// The source record that all this comes from; `None` for what timers, punctuators and barriers cause.
    pub origin: Option<Origin>,
    /// What goes to sinks.
    pub outputs: &'a mut Outputs,
    /// Partition counts of the sinks, by [`SinkId`].
    pub sink_partitions: &'a [i32],
    /// What becomes of records that fail.
    pub gate: &'a mut LaneGate,
}

impl LaneCx<'_> {
    /// The place of what is being done in ingest order.
    #[inline]
    pub fn tag(&self) -> Tag {
        Tag { number: self.number, path: self.path.clone() }
    }

    /// Gives a record to a child. For operators that emit at most one record per call to one child.
    ///
    /// # Errors
    /// As [`Operator::push`].
    pub fn forward<K: 'static, V: 'static>(&mut self, child: Child, record: Record<K, V>) -> Result<()> {
        let mut node = self.nodes[child.0 as usize].take().expect("a topology has no cycles");
        let result = node.push(&mut Some(record), self);
        self.nodes[child.0 as usize] = Some(node);
        result
    }

    /// Gives a record to a child as the `ordinal`-th emission of this call.
    ///
    /// # Errors
    /// As [`Operator::push`].
    pub fn forward_nth<K: 'static, V: 'static>(
        &mut self,
        child: Child,
        ordinal: u32,
        record: Record<K, V>,
    ) -> Result<()> {
        let len = self.path.descend(ordinal);
        let result = self.forward(child, record);
        self.path.truncate(len);
        result
    }

    /// Writes a record to a sink. The partition is murmur2 of the key's bytes, as Kafka's Java client picks it; without
    /// a key it follows the partition of the source record, so that order is kept.
    pub fn emit(
        &mut self,
        sink: SinkId,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        timestamp: Timestamp,
        headers: Headers,
    ) {
        let n = self.sink_partitions[sink.0 as usize].max(1);
        let partition = match key {
            Some(k) => partition_for(k, n),
            None => self.origin.map_or(0, |o| (o.partition % n as u32) as i32),
        };
        self.outputs.batch.push(sink.0, partition, timestamp, key, value, headers);
        self.outputs.tags.push(self.number, &self.path);
    }
}

/// Puts a codec's complaint into words that name the place.
pub fn codec_error(what: &str, codec: &str, e: &CodecError) -> crate::Error {
    crate::Error::new(crate::ErrorKind::Codec, format!("{what} ({codec}): {e}"))
}
