//! Tests of topologies without a broker: [`TestDriver`] and [`assert_records`], and under faults: [`Simulation`]. Needs the
//! feature `testing`.
//!
//! # Examples
//! ```
//! use stoat_core::prelude::*;
//! use stoat_core::testing::{TestDriver, assert_records};
//!
//! #[source(topic = "words", key = String, value = String, value_codec = Utf8)]
//! struct Words;
//!
//! #[sink(topic = "counts", key = String, value = u64, value_codec = Be)]
//! struct Counts;
//!
//! #[topology]
//! fn word_count(t: &mut Topology) {
//!     let words = t.source::<Words>();
//!     let counts = words.group_by(|_, word: &String| word.clone()).count();
//!     counts.to_stream().sink::<Counts>();
//! }
//!
//! # fn main() -> Result<()> {
//! use stoat_core::topology::TopologyFn;
//!
//! let mut driver = TestDriver::new(word_count::build()?)?;
//! driver.pipe::<Words>(&"line 1".into(), &"ant".into(), 1_000)?;
//! driver.pipe::<Words>(&"line 2".into(), &"ant".into(), 2_000)?;
//! assert_records(&driver.read::<Counts>()?, &[("ant", 1, 1_000), ("ant", 2, 2_000)]);
//! # Ok(())
//! # }
//! ```

mod assert;
mod driver;
#[doc(hidden)]
pub mod fuzz;
pub mod simulation;
#[cfg(test)]
mod tests;

pub use crate::affinity::LaneChecks;
pub use assert::assert_records;
pub use driver::{Options, RawRecord, StoreRow, TestDriver};
pub use simulation::{Simulated, Simulation};

/// The page of the documentation: its examples are run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/testing.md")]
struct Page;
