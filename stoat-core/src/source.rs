//! Sources: topics that are read.

use crate::codec::Decode;
use crate::time::WatermarkStrategy;
use crate::topology::lane_state::SourceLane;

/// A topic that is read, with its types and codecs. Written by `#[source(topic = "..", key = .., value = ..)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a source [S530]",
    label = "not a source",
    note = "write `#[source(topic = \"my-topic\", key = K, value = V)]` on `{Self}`"
)]
pub trait Source: 'static {
    /// The type of the keys; `Option<K>` where a record may have none.
    type Key: Send + 'static;
    /// The type of the values; `Option<V>` where a record may have none.
    type Value: Send + 'static;
    /// The codec of the keys.
    type KeyCodec: Decode<Self::Key>;
    /// The codec of the values.
    type ValueCodec: Decode<Self::Value>;
    /// What the lanes of its records follow: [`Lane`](crate::topology::lane_state::Lane) or
    /// [`DecodeOnly`](crate::topology::lane_state::DecodeOnly) of the key's codec.
    type Lane: SourceLane<Self::Key>;
    /// The topic.
    const TOPIC: &'static str;
    /// The name, for nodes and messages.
    const NAME: &'static str;

    /// How the watermark follows the records.
    fn watermark() -> WatermarkStrategy {
        WatermarkStrategy::default()
    }
}
