//! Keys that may be missing, codecs that can only decode, tombstones.

use stoat_core::codec::Codec;
use stoat_core::prelude::*;
use stoat_core::sink::Sink;
use stoat_core::source::Source;
use stoat_ui_tests::*;

#[source(topic = "raw", value = Event)]
struct Raw;

#[source(topic = "maybe", key = Option<UserId>, value = Option<Event>, name = "perhaps")]
struct Maybe;

#[source(topic = "old", key = UserId, key_codec = Legacy, value = Event, decode_only, out_of_orderness = "1s", idleness = "1m", future_bound = "1d")]
struct Old;

#[sink(topic = "out", value = Option<Event>)]
struct Out;

fn types<S: Source<Key = K, Value = V>, K, V>() {}

fn main() {
    types::<Raw, Option<Vec<u8>>, Event>();
    types::<Maybe, Option<UserId>, Option<Event>>();
    assert_eq!(Maybe::NAME, "perhaps");
    assert_eq!(<<Maybe as Source>::KeyCodec as Codec>::NAME, "Utf8");
    assert_eq!(Old::watermark().idleness.as_secs(), 60);
    let default = stoat_core::time::WatermarkStrategy::default();
    assert_eq!(Raw::watermark().out_of_orderness, default.out_of_orderness);
    assert_eq!(Raw::watermark().idleness, default.idleness);
    assert_eq!(Out::TOPIC, "out");
}
