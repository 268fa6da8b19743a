//! The engine: ingest, lanes, epochs, commit, restart.

pub mod epoch_record;
pub mod ingest;
pub mod message;
pub mod tag;
