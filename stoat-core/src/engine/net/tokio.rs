//! Lanes as tasks of a tokio runtime.

use super::Lanes;
use crate::error::Result;

/// One task per lane on a runtime with several threads.
pub struct TokioNet {}

impl TokioNet {
    /// Starts the lanes on a runtime of their own with that many threads.
    ///
    /// # Errors
    /// When the threads cannot be started.
    pub fn start(_lanes: Lanes, _threads: usize) -> Result<Self> {
        todo!()
    }

    /// Starts the lanes on a runtime that is there.
    pub fn start_on(_lanes: Lanes, _runtime: &::tokio::runtime::Handle) -> Self {
        todo!()
    }
}

impl crate::engine::message::LaneNet for TokioNet {
    fn has_room(&self, _lane: crate::id::LaneId) -> bool {
        todo!()
    }
    fn send(&mut self, _lane: crate::id::LaneId, _batch: crate::engine::message::LaneBatch) {
        todo!()
    }
    fn control(&mut self, _number: u64, _control: crate::engine::message::Control) {
        todo!()
    }
    fn publish(&mut self, _next: u64) {
        todo!()
    }
    fn exchange(
        &mut self,
        _sub: crate::id::SubTopologyId,
        _epoch: crate::id::Epoch,
        _writes: std::sync::Arc<Vec<crate::operator::ForeignTimer>>,
    ) {
        todo!()
    }
    fn uncommitted(&self) -> usize {
        todo!()
    }
    fn lowest(&self) -> u64 {
        todo!()
    }
    fn wants_ticks(&self) -> bool {
        todo!()
    }
    fn poll(&mut self, _out: &mut Vec<crate::engine::message::NetEvent>) {
        todo!()
    }
    fn notify(&self, _waker: std::task::Waker) {
        todo!()
    }
    fn stop(&mut self) {
        todo!()
    }
}
