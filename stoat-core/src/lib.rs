//! Stateful stream processing on Apache Kafka: one process, exactly once.

extern crate self as stoat_core;

pub mod app;
pub mod broker;
pub mod codec;
pub mod config;
pub mod engine;
pub mod error;
pub mod hash;
pub mod id;
pub mod key;
pub mod operator;
pub mod plan;
pub mod prelude;
pub mod processor;
pub mod record;
pub mod sink;
pub mod source;
pub mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod time;
pub mod timer;
pub mod topology;

#[doc(hidden)]
#[path = "private.rs"]
pub mod __private;

pub use error::{Error, ErrorKind, Result};
pub use stoat_derive::Key;
pub use stoat_macros::{handlers, main, processor, sink, source, topology};
