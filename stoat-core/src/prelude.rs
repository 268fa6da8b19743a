//! What a topology needs: `use stoat_core::prelude::*;`.

pub use std::time::Duration;

pub use serde::{Deserialize, Serialize};

pub use crate::codec::{Be, Bytes, Codec, CodecError, Decode, Encode, Json, Utf8};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::key::Key;
pub use crate::processor::{Context, End, Fired};
pub use crate::record::{Headers, Record};
pub use crate::sink::Sink;
pub use crate::source::Source;
pub use crate::store::{KeyValueStore, Keyed};
pub use crate::time::{Timestamp, WatermarkStrategy};
pub use crate::timer::{Timer, Timers};
pub use crate::topology::{Branch, Stream, Table, Topology};

// By this name `#[stoat_core::main(..)]` finds out whether the prelude is in scope.
#[doc(hidden)]
pub use crate::__private::main as __stoat_main;

pub use stoat_derive::Key;
pub use stoat_macros::{fragment, handlers, processor, sink, source, topology};
