//! Lanes on one thread, in an order that a seed chooses.

use super::Lanes;

/// All lanes on the caller's thread. A seed is a schedule: the same seed is the same run.
pub struct DeterministicNet {}

impl DeterministicNet {
    /// Drives lanes by a seed; 0 takes them in turn.
    pub fn new(_lanes: Lanes, _seed: u64) -> Self {
        todo!()
    }

    /// Runs until no lane can do anything more.
    pub fn run_to_rest(&mut self) {
        todo!()
    }
}

impl crate::engine::message::LaneNet for DeterministicNet {
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
