mod layout;
mod restore;
#[cfg(feature = "rocksdb")]
mod rocks;
mod suite;

use super::{Batch, ByteStore, Row, Stamp, StoreKind};
use crate::id::Epoch;
use crate::time::Timestamp;

const KINDS: [StoreKind; 4] =
    [StoreKind::KeyValue, StoreKind::TimestampedKeyValue, StoreKind::Timer, StoreKind::Timers];

fn put(key: &[u8], value: &[u8]) -> Row {
    Row { key: key.to_vec(), lane_key: key.len(), value: Some(value.to_vec()), timestamp: Timestamp(1_700_000_000_000) }
}

fn delete(key: &[u8]) -> Row {
    Row { value: None, ..put(key, b"") }
}

fn stamp(epoch: u64, offsets: &[(i32, i64)]) -> Stamp {
    Stamp {
        epoch: Epoch(epoch),
        time: Timestamp(1_700_000_000_000 + epoch as i64),
        topic_id: "topic-id".into(),
        offsets: offsets.iter().copied().collect(),
    }
}

fn batch(epoch: u64, rows: Vec<Row>) -> Batch {
    Batch { rows, stamp: stamp(epoch, &[(0, epoch as i64 * 10)]) }
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

fn scan(store: &dyn ByteStore, from: Option<&[u8]>, to: Option<&[u8]>) -> Pairs {
    let mut rows = Vec::new();
    let done = store.scan(from, to, &mut |key, value| {
        rows.push((key.to_vec(), value.to_vec()));
        true
    });
    done.unwrap();
    rows
}

fn all(store: &dyn ByteStore) -> Pairs {
    scan(store, None, None)
}
