//! The engine: ingest, lanes, epochs, commit, restart.

pub mod message;
pub mod net;
pub mod tag;
