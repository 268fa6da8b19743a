//! All that a source can say about time.

use stoat_core::prelude::*;
use stoat_core::record::RawRecord;
use stoat_core::time::{NoTimestamp, Watermark, WatermarkGenerator};
use stoat_ui_tests::*;

#[derive(Default)]
struct Punctuated(i64);

impl WatermarkGenerator for Punctuated {
    fn on_record(&mut self, timestamp: Timestamp, record: &RawRecord<'_>) -> Watermark {
        if record.value.is_none() {
            self.0 = timestamp.as_millis();
        }
        Timestamp::from_millis(self.0)
    }
}

fn time_of(record: &Record<UserId, Event>) -> Option<Timestamp> {
    Some(record.timestamp + Duration::from_secs(1))
}

#[source(
    topic = "a",
    key = UserId,
    value = Event,
    monotonic,
    idleness = "1m",
    close_on_idle = "5m",
    future_bound = "10m",
    timestamp = time_of,
    no_timestamp = skip,
)]
struct A;

#[source(topic = "b", key = UserId, value = Event, watermark = Punctuated, timestamp = |r| r.timestamp)]
struct B;

fn main() {
    let a = A::watermark();
    assert_eq!((a.out_of_orderness, a.close_on_idle), (Duration::ZERO, Some(Duration::from_mins(5))));
    assert_eq!((a.no_timestamp, a.timestamps.is_some()), (NoTimestamp::Skip, true));
    assert!(B::watermark().generator.is_some());
}
