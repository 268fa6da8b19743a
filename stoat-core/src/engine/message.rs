//! What ingest, lanes and the committer say to each other.

use std::sync::Arc;
use std::task::Waker;

use crate::error::Error;
use crate::gate::Tally;
use crate::id::{Epoch, LaneId, StoreId, SubTopologyId};
use crate::operator::{Child, ForeignTimer, Outputs};
use crate::record::{Origin, RecordBatch};
use crate::store::Row;
use crate::time::{Timestamp, Watermark};

/// Records on their way from ingest to one lane, in rising order of numbers.
#[derive(Debug, Default)]
pub struct LaneBatch {
    /// The fetched batches that the records lie in.
    pub sources: Vec<LaneSource>,
    /// The records.
    pub items: Vec<LaneItem>,
    /// Re-encoded lane keys, one behind the other; see [`LaneItem::key`].
    pub keys: Vec<u8>,
    /// Bytes of the records' keys and values.
    pub bytes: usize,
}

/// One fetched batch of a [`LaneBatch`].
#[derive(Clone, Debug)]
pub struct LaneSource {
    /// The records.
    pub batch: Arc<RecordBatch>,
    /// The partition's place in the plan's list of input partitions.
    pub partition: u32,
    /// The source operator.
    pub entry: Child,
}

/// One record of a [`LaneBatch`].
#[derive(Clone, Copy, Debug)]
pub struct LaneItem {
    /// Its ingest number.
    pub number: u64,
    /// Its batch in [`LaneBatch::sources`].
    pub source: u32,
    /// Its place in that batch.
    pub index: u32,
    /// Its lane hash.
    pub hash: u64,
    /// Where its lane key lies in [`LaneBatch::keys`], as start and length; `None`: it is the raw key.
    pub key: Option<(u32, u32)>,
}

/// What goes through all lanes, in ingest order with the records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// The watermarks moved.
    Mark(Arc<Mark>),
    /// The wall clock moved.
    Tick(Arc<Tick>),
    /// The epoch ends here.
    Barrier(Epoch),
    /// The bytes of this epoch are in the stores: other keys are read as of it from here on.
    Applied(Epoch),
}

/// A watermark mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The watermark of each sub-topology's own sources; [`Timestamp::MIN`] where it has none, or none yet.
    pub watermarks: Vec<Watermark>,
    /// Up to where each sub-topology fires; `None`: to its watermark.
    pub limits: Vec<Option<Position>>,
}

/// A tick of the wall clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tick {
    /// What the clock says.
    pub wall: Timestamp,
    /// Up to where each sub-topology fires; `None`: to what the clock says.
    pub limits: Vec<Option<Position>>,
}

/// A place in the order in which timers fire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The time.
    pub time: Timestamp,
    /// The key.
    pub key: Vec<u8>,
}

/// What a lane hands to the committer at a barrier.
#[derive(Debug)]
pub struct Frozen {
    /// The lane.
    pub lane: LaneId,
    /// The epoch.
    pub epoch: Epoch,
    /// What goes to sinks.
    pub outputs: Outputs,
    /// What goes to changelogs and stores; one entry per store, rows in any order of keys.
    pub stores: Vec<(StoreId, Vec<Row>)>,
    /// The watermark that the lane has reached (its last mark).
    pub watermark: Watermark,
    /// Up to which watermark event-time punctuators have been called; behind `watermark` where a limit cut the last mark.
    pub punctuated: Watermark,
    /// What was left out.
    pub tally: Tally,
}

/// What the lanes tell the control side.
#[derive(Debug)]
pub enum NetEvent {
    /// A lane has frozen an epoch.
    Frozen(Box<Frozen>),
    /// A lane of a sub-topology with foreign timers is at the barrier and waits for [`LaneNet::exchange`]. The control
    /// side answers when all lanes of the sub-topology are there.
    Exchange {
        /// The lane.
        lane: LaneId,
        /// The epoch.
        epoch: Epoch,
        /// Its writes for other keys.
        writes: Vec<ForeignTimer>,
    },
    /// A lane has gone through a mark.
    Marked {
        /// The lane.
        lane: LaneId,
        /// The mark's ingest number.
        number: u64,
        /// Whether timers at or before its watermark are left (the mark's limit stopped it).
        more_due: bool,
        /// The position of its n-th pending event timer, where that lies at or before a watermark soon to come.
        nth: Option<Position>,
        /// The time of its first pending event timer.
        first: Option<Timestamp>,
    },
    /// A lane has gone through a tick.
    Ticked {
        /// The lane.
        lane: LaneId,
        /// The tick's ingest number.
        number: u64,
        /// Whether timers at or before what the clock says are left.
        more_due: bool,
        /// The position of its n-th pending wall-clock timer; `None`: it has no more than n.
        nth: Option<Position>,
    },
    /// A handler failed, or something else that ends this engine generation.
    Fault {
        /// The lane.
        lane: LaneId,
        /// The record that was processed.
        origin: Option<Origin>,
        /// What happened.
        error: Error,
    },
}

/// The lanes as ingest and the committer see them. One implementation runs on tokio, one is deterministic.
pub trait LaneNet: Send {
    /// Whether the lane takes another batch now.
    fn has_room(&self, lane: LaneId) -> bool;

    /// Hands a batch to a lane.
    fn send(&mut self, lane: LaneId, batch: LaneBatch);

    /// Hands a control message to all lanes that ingest feeds; they pass it on. A lane takes it whatever room it has.
    fn control(&mut self, number: u64, control: Control);

    /// Nothing with a number below `next` follows from ingest. (Also called when nothing was sent.)
    fn publish(&mut self, next: u64);

    /// Gives each lane of a sub-topology that waits at a barrier the foreign writes of all its lanes, in rising order of
    /// (tag, index); each lane takes those for its own keys, then freezes.
    fn exchange(&mut self, sub: SubTopologyId, epoch: Epoch, writes: Arc<Vec<ForeignTimer>>);

    /// Bytes that lanes hold uncommitted: written state, outputs, what is queued between lanes.
    fn uncommitted(&self) -> usize;

    /// The smallest ingest number that any lane still has to work on; `u64::MAX`: all lanes are at rest.
    fn lowest(&self) -> u64;

    /// Whether any lane has wall-clock timers or punctuators: only then are ticks sent.
    fn wants_ticks(&self) -> bool;

    /// Appends what happened.
    fn poll(&mut self, out: &mut Vec<NetEvent>);

    /// Has `waker` woken (once) when there is room again or something happened.
    fn notify(&self, waker: Waker);

    /// Stops all lanes and drops them. Waits for what runs, within a bound (I-8); `false`: a lane still runs.
    fn stop(&mut self) -> bool;
}
