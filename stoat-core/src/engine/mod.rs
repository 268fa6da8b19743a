//! The engine: ingest, lanes, epochs, commit, restart.

pub mod core;
pub mod epoch;
pub mod epoch_record;
pub mod executor;
pub mod ingest;
pub mod io;
mod inbox;
mod lane;
pub mod message;
pub mod run;
pub mod start;
pub mod net;
pub mod tag;
pub mod writer;
