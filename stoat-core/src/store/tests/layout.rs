use super::KINDS;
use crate::error::ErrorKind;
use crate::store::layout::{check_value, lane_key_len, local_value, row_of_local, split_local};
use crate::store::{Row, StoreKind};
use crate::time::Timestamp;

/// Rows as in the changelog, and their local values: golden bytes (I-13).
const GOLDEN: [(StoreKind, &[u8], usize, &[u8], i64, &[u8]); 6] = [
    (StoreKind::KeyValue, b"ant", 3, b"7", 5, b"7"),
    (
        StoreKind::TimestampedKeyValue,
        b"ant",
        3,
        b"7",
        1_700_000_000_000,
        b"\x00\x00\x01\x8b\xcf\xe5\x68\x007",
    ),
    (
        StoreKind::TimestampedKeyValue,
        b"",
        0,
        b"",
        -1,
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
    ),
    (
        StoreKind::Timer,
        b"ant",
        3,
        b"\x00\x00\x01\x8b\xcf\xe5\x68\x00",
        5,
        b"\x00\x00\x01\x8b\xcf\xe5\x68\x00",
    ),
    (
        StoreKind::Timers,
        b"ant\x00\x00\x01\x8b\xcf\xe5\x68\x00",
        3,
        b"",
        5,
        b"",
    ),
    (StoreKind::Timers, b"\x80\x00\x00\x00\x00\x00\x00\x00", 0, b"", 5, b""),
];

#[test]
fn i13_rows_have_the_local_layout_of_the_golden_bytes() {
    for (kind, key, lane_key, value, time, local) in GOLDEN {
        let row = Row {
            key: key.to_vec(),
            lane_key,
            value: Some(value.to_vec()),
            timestamp: Timestamp(time),
        };
        assert_eq!(local_value(kind, &row).as_deref(), Some(local), "{kind:?}");
        let back = row_of_local(kind, key, local).unwrap();
        let timestamp = if kind == StoreKind::TimestampedKeyValue {
            time
        } else {
            -1
        };
        assert_eq!(
            back,
            Row {
                timestamp: Timestamp(timestamp),
                ..row.clone()
            },
            "{kind:?}"
        );
        assert_eq!(
            local_value(kind, &Row { value: None, ..row }),
            None,
            "a delete has no local value"
        );
    }
}

#[test]
fn i13_the_golden_changelog_values_of_kafka_streams_are_what_we_read_and_write() {
    // From the file of a taken-over timestamped store: value alone in the changelog, its timestamp the record's.
    let row = Row {
        key: b"a".to_vec(),
        lane_key: 1,
        value: Some(3_i64.to_be_bytes().to_vec()),
        timestamp: Timestamp(1_700_000_000_000),
    };
    let local = local_value(StoreKind::TimestampedKeyValue, &row).unwrap();
    let (time, value) = split_local(StoreKind::TimestampedKeyValue, &local).unwrap();
    assert_eq!((time, value), (Some(row.timestamp), row.value.as_deref().unwrap()));
}

#[test]
fn bytes_that_a_kind_does_not_store_are_refused() {
    let refused = |what: &str, e: Option<crate::Error>| {
        let e = e.unwrap_or_else(|| panic!("{what} is taken"));
        assert_eq!(e.kind(), ErrorKind::State, "{what}");
    };
    refused(
        "7 bytes of timestamped value",
        split_local(StoreKind::TimestampedKeyValue, &[0; 7]).err(),
    );
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
