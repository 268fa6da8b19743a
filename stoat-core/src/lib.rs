//! Stateful stream processing on Apache Kafka: one process, exactly once.
//!
//! Annotate structs, wire them in one `#[topology]` function, and get a program that reads topics, keeps state, fires
//! keyed timers and writes topics. Outputs, state and offsets of an *epoch* commit in one Kafka transaction. Records of
//! one key run on one *lane*, one at a time, in order, without locks. Mistakes in the wiring are compile errors.
//!
//! # Examples
//! ```
//! use stoat_core::prelude::*;
//!
//! #[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
//! #[key(codec = Utf8)]
//! struct UserId(String);
//!
//! #[derive(Clone, Debug, Serialize, Deserialize)]
//! struct Click {
//!     page: String,
//! }
//!
//! #[source(topic = "clicks", key = UserId, value = Click, value_codec = Json)]
//! struct Clicks;
//!
//! #[sink(topic = "clicks-per-page", key = String, value = u64, value_codec = Be)]
//! struct PerPage;
//!
//! #[topology]
//! fn pages(t: &mut Topology) {
//!     let clicks = t.source::<Clicks>();
//!     let per_page = clicks.group_by(|_user, click: &Click| click.page.clone()).count();
//!     per_page.to_stream().sink::<PerPage>();
//! }
//!
//! // `pages::app().run()` runs it, by `stoat.yaml`, the environment and the command line; see [`app`].
//! let graph = pages::build()?;
//! assert_eq!(graph.stores[0].name, "per_page");
//! println!("{}", graph.mermaid());
//! # Ok::<(), stoat_core::Error>(())
//! ```
//!
//! # Where things are
//! - What a program is written with: [`prelude`], [`codec`], [`mod@topology`], [`mod@processor`], [`timer`], [`time`], [`schedule`].
//! - How it is run: [`app`], [`config`], [`error`], [`gate`], [`metrics`].
//! - Where its records and its state are: [`broker`] (Apache Kafka, or one directory), [`store`].
//! - What runs it: [`engine`], [`plan`], [`operator`]. Public for tests and tools; users do not call it.
//!
//! # Features
//! `kafka` (default): Apache Kafka through librdkafka. `rocksdb` (default): local state in RocksDB; without it state is
//! kept in memory and read back from the changelogs at each start. `testing`: the driver for tests of topologies and the
//! simulated broker.

extern crate self as stoat_core;

pub mod affinity;
pub mod app;
pub mod broker;
pub mod codec;
pub mod config;
pub mod engine;
pub mod error;
pub mod gate;
pub mod hash;
pub mod id;
pub mod key;
pub mod metrics;
pub mod operator;
pub mod plan;
pub mod prelude;
pub mod processor;
pub mod record;
pub mod schedule;
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
pub use stoat_macros::{fragment, handlers, main, processor, sink, source, topology};
