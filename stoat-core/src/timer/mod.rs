//! Keyed timers: pending times of keys, fired on the lane of the key.
//!
//! The next timers of a lane are in memory, the others in the store, which knows them by time. How many are in memory
//! follows from the memory budget (`stoat.memory.budget`): timers share the part of it that caches get. A timer that is
//! set again and again costs no more than writing a value; a start reads what fires next, not all there is.

mod field;
mod many;
mod near;
mod one;
mod pending;
#[cfg(test)]
mod tests;

pub use many::Timers;
pub use one::Timer;

/// A timer field that sets and cancels timers of the current key only.
#[derive(Debug)]
pub struct Own;

/// A timer field that was declared `#[timer(foreign)]`: it may write timers of other keys.
#[derive(Debug)]
pub struct Foreign;

/// Whether a timer field may write timers of other keys: [`Own`] or [`Foreign`].
pub trait Reach: 'static {
    /// It may.
    const FOREIGN: bool;
}

impl Reach for Own {
    const FOREIGN: bool = false;
}

/// A timer that may be set for other keys.
#[diagnostic::on_unimplemented(
    message = "this timer is set for the current key only [S424]",
    label = "sets a timer of another key",
    note = "call `.set(at)` or `.cancel()`; or declare the field `#[timer(foreign)]`: such a write takes effect at the end of the epoch"
)]
pub trait SetsOthers: Reach {}
impl SetsOthers for Foreign {}

impl Reach for Foreign {
    const FOREIGN: bool = true;
}
