//! The engine: ingest, lanes, epochs, commit, restart.

pub mod core;
pub mod epoch;
pub mod epoch_record;
pub mod executor;
mod inbox;
pub mod ingest;
pub mod io;
mod lane;
pub mod message;
pub mod net;
pub mod pace;
pub mod remedy;
pub mod run;
pub mod schedules;
pub mod start;
pub mod tag;
#[cfg(test)]
mod tests;
pub mod writer;
