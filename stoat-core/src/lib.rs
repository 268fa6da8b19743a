//! Stateful stream processing on Apache Kafka: one process, exactly once.

extern crate self as stoat_core;

pub mod broker;
pub mod codec;
pub mod config;
pub mod engine;
pub mod error;
pub mod hash;
pub mod id;
pub mod operator;
pub mod plan;
pub mod record;
pub mod store;
pub mod time;
pub mod topology;

pub use error::{Error, ErrorKind, Result};
