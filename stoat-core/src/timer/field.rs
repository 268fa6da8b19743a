use super::pending::{Pending, TimerRow};
use crate::error::Result;
use crate::id::{Epoch, StoreId};
use crate::operator::{Field, ForeignTimer, PendingTimers, Weight};
use crate::store::Row;
use crate::time::{TimeDomain, Timestamp};

/// A timer field as its lane sees it.
pub(super) trait TimerOps: Send + 'static {
    type Row: TimerRow;

    fn pending(&self) -> &Pending<Self::Row>;
    fn pending_mut(&mut self) -> &mut Pending<Self::Row>;
    /// See [`PendingTimers::apply_foreign`].
    fn apply_foreign(&mut self, write: &ForeignTimer) -> Result<()>;
}

impl<T: TimerOps> Field for T {
    fn store(&self) -> StoreId {
        self.pending().store
    }

    fn freeze(&mut self, _epoch: Epoch, rows: &mut Vec<Row>) -> Result<()> {
        self.pending_mut().freeze(rows)
    }

    fn applied(&mut self, _epoch: Epoch) {
        self.pending_mut().rows.applied();
    }

    fn weight(&self) -> Weight {
        self.pending().weight()
    }

    fn trim(&mut self, bytes: usize) {
        self.pending_mut().trim(bytes);
    }

    fn keys(&self, of_lane: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>> {
        self.pending().keys(of_lane)
    }

    fn timers(&mut self) -> Option<&mut dyn PendingTimers> {
        Some(self)
    }
}

impl<T: TimerOps> PendingTimers for T {
    fn domain(&self) -> TimeDomain {
        self.pending().clock
    }

    fn first(&mut self, upto: Timestamp) -> Result<Option<(Timestamp, &[u8])>> {
        self.pending_mut().first(upto)
    }

    fn nth(&mut self, n: usize) -> Result<Option<(Timestamp, Vec<u8>)>> {
        self.pending_mut().nth(n)
    }

    fn take_first(&mut self) {
        self.pending_mut().take_first();
    }

    fn take_foreign(&mut self) -> Vec<ForeignTimer> {
        self.pending_mut().take_foreign()
    }

    fn apply_foreign(&mut self, write: &ForeignTimer) -> Result<()> {
        TimerOps::apply_foreign(self, write)
    }
}
