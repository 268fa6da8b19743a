use super::KINDS;
use crate::error::ErrorKind;
use crate::store::layout::{check_value, lane_key_len, local_value, row_of_local, split_local};
use crate::store::{Row, StoreKind};
use crate::time::Timestamp;

/// Kind, key, length of the lane key, value and timestamp as in the changelog; local value.
type Golden = (StoreKind, &'static [u8], usize, &'static [u8], i64, &'static [u8]);

/// Golden bytes (I-13).
const GOLDEN: [Golden; 6] = [
    (StoreKind::KeyValue, b"ant", 3, b"7", 5, b"7"),
    (StoreKind::TimestampedKeyValue, b"ant", 3, b"7", 1_700_000_000_000, b"\x00\x00\x01\x8b\xcf\xe5\x68\x007"),
    (StoreKind::TimestampedKeyValue, b"", 0, b"", -1, b"\xff\xff\xff\xff\xff\xff\xff\xff"),
    (StoreKind::Timer, b"ant", 3, b"\x00\x00\x01\x8b\xcf\xe5\x68\x00", 5, b"\x00\x00\x01\x8b\xcf\xe5\x68\x00"),
    (StoreKind::Timers, b"ant\x00\x00\x01\x8b\xcf\xe5\x68\x00", 3, b"", 5, b""),
    (StoreKind::Timers, b"\x80\x00\x00\x00\x00\x00\x00\x00", 0, b"", 5, b""),
];

#[test]
fn i13_rows_have_the_local_layout_of_the_golden_bytes() {
    for (kind, key, lane_key, value, time, local) in GOLDEN {
        let row = Row { key: key.to_vec(), lane_key, value: Some(value.to_vec()), timestamp: Timestamp(time) };
        assert_eq!(local_value(kind, &row).as_deref(), Some(local), "{kind:?}");
        let back = row_of_local(kind, key, local).unwrap();
        let timestamp = if kind == StoreKind::TimestampedKeyValue { time } else { -1 };
        assert_eq!(back, Row { timestamp: Timestamp(timestamp), ..row.clone() }, "{kind:?}");
        assert_eq!(local_value(kind, &Row { value: None, ..row }), None, "a delete has no local value");
    }
}

#[test]
fn bytes_that_a_kind_does_not_store_are_refused() {
    let refused = |what: &str, e: Option<crate::Error>| {
        let e = e.unwrap_or_else(|| panic!("{what} is taken"));
        assert_eq!(e.kind(), ErrorKind::State, "{what}");
    };
    refused("7 bytes of timestamped value", split_local(StoreKind::TimestampedKeyValue, &[0; 7]).err());
    refused("7 bytes of timer", split_local(StoreKind::Timer, &[0; 7]).err());
    refused("9 bytes of timer", check_value(StoreKind::Timer, &[0; 9]).err());
    refused("a value in timers", check_value(StoreKind::Timers, &[0]).err());
    refused("a short key in timers", lane_key_len(StoreKind::Timers, &[0; 7]).err());
}

#[test]
fn kinds_have_the_names_that_serde_gives_them() {
    for kind in KINDS {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(StoreKind::from_name(kind.name()), Some(kind));
    }
    assert_eq!(StoreKind::from_name("window"), None);
}
