//! Dead letters: the headers that say what happened, under the names that Kafka Streams uses.

use crate::record::Headers;

/// Names of the headers that a dead letter gets behind those of its record. Those that Kafka Streams writes too (since
/// 4.2, KIP-1034) have its names, so that what reads its dead letters reads these. All values are UTF-8 text.
pub mod header {
    /// The kind of error.
    pub const EXCEPTION: &str = "__streams.errors.exception";
    /// What happened, where, and what to do.
    pub const MESSAGE: &str = "__streams.errors.message";
    /// The topic of the source record; missing where a timer or a punctuator failed.
    pub const TOPIC: &str = "__streams.errors.topic";
    /// The partition of the source record.
    pub const PARTITION: &str = "__streams.errors.partition";
    /// The offset of the source record.
    pub const OFFSET: &str = "__streams.errors.offset";
    /// The gate: `decode`, `process` or `produce`; `dropped` for a record that an operator left out.
    pub const GATE: &str = "__stoat.errors.gate";
    /// The node that failed.
    pub const NODE: &str = "__stoat.errors.node";
    /// What of the record was too large for the dead-letter topic and is missing here.
    pub const OMITTED: &str = "__stoat.errors.omitted";
}

/// Appends one text.
pub(super) fn put(headers: &mut Headers, name: &'static str, value: &str) {
    headers.push(name, Some(value.as_bytes().to_vec()));
}
