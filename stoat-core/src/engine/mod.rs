//! The engine: ingest, lanes, epochs, commit, restart.

mod inbox;
mod lane;
pub mod message;
pub mod net;
pub mod tag;
