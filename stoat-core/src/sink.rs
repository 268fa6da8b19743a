//! Sinks: topics that are written.

use crate::codec::Encode;

/// A topic that is written, with its types and codecs. Written by `#[sink(topic = "..", key = .., value = ..)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sink [S530]",
    label = "not a sink",
    note = "write `#[sink(topic = \"my-topic\", key = K, value = V)]` on `{Self}`"
)]
pub trait Sink: 'static {
    /// The type of the keys.
    type Key: Send + 'static;
    /// The type of the values.
    type Value: Send + 'static;
    /// The codec of the keys.
    type KeyCodec: Encode<Self::Key>;
    /// The codec of the values.
    type ValueCodec: Encode<Self::Value>;
    /// The topic.
    const TOPIC: &'static str;
    /// The name, for nodes and messages.
    const NAME: &'static str;
}
