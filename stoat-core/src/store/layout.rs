//! What a store's rows look like in memory and on disk: pure functions, pinned by golden bytes.
//!
//! The *changelog* layout is what [`Row`] carries; the *local* layout is what [`ByteStore::get`](super::ByteStore::get)
//! gives. They differ in one kind only: a timestamped value bears its timestamp in front locally, while in the changelog
//! the timestamp is the record's own.
//!
//! | kind | key, both | changelog value | local value |
//! |---|---|---|---|
//! | key-value | K | V | V |
//! | timestamped-key-value | K | V | timestamp 8, V |
//! | timer | K | time 8 | time 8 |
//! | timers | K, time 8 | nothing (0 bytes) | nothing (0 bytes) |
//!
//! All integers are big-endian and signed.
//!
//! Stores of timers also know their rows by time. This order is local only: it follows from the rows. An entry of it is
//! the time, 8 bytes with the sign bit flipped so that bytes order as times do, then K; see [`due_key`].

use std::borrow::Cow;

use smallvec::SmallVec;

use super::{Row, StoreKind};
use crate::error::{Error, ErrorKind, Result};
use crate::time::Timestamp;

/// The timestamp that Kafka gives to a record that has none.
const NO_TIMESTAMP: Timestamp = Timestamp(-1);

impl StoreKind {
    /// The name of the kind, as it stands in formats and messages.
    ///
    /// ```
    /// # use stoat_core::store::StoreKind;
    /// assert_eq!(StoreKind::TimestampedKeyValue.name(), "timestamped-key-value");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyValue => "key-value",
            Self::TimestampedKeyValue => "timestamped-key-value",
            Self::Timer => "timer",
            Self::Timers => "timers",
        }
    }

    /// Whether the rows are pending timers, which [`ByteStore::due`](super::ByteStore::due) gives in the order of time.
    pub const fn is_timers(self) -> bool {
        matches!(self, Self::Timer | Self::Timers)
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::KeyValue, Self::TimestampedKeyValue, Self::Timer, Self::Timers].into_iter().find(|k| k.name() == name)
    }
}

/// How many of the key's first bytes are the lane key.
///
/// # Errors
/// When the key is too short for the kind.
pub fn lane_key_len(kind: StoreKind, key: &[u8]) -> Result<usize> {
    match kind {
        StoreKind::KeyValue | StoreKind::TimestampedKeyValue | StoreKind::Timer => Ok(key.len()),
        StoreKind::Timers => key
            .len()
            .checked_sub(8)
            .ok_or_else(|| bad(kind, format!("a key of {} bytes, where 8 bytes of time end each key", key.len()))),
    }
}

/// The value in the local layout of a row that is written; `None`: the row is deleted.
pub fn local_value(kind: StoreKind, row: &Row) -> Option<Cow<'_, [u8]>> {
    let value = row.value.as_deref()?;
    Some(match kind {
        StoreKind::TimestampedKeyValue => {
            let mut local = Vec::with_capacity(8 + value.len());
            local.extend_from_slice(&row.timestamp.0.to_be_bytes());
            local.extend_from_slice(value);
            Cow::Owned(local)
        }
        StoreKind::KeyValue | StoreKind::Timer | StoreKind::Timers => Cow::Borrowed(value),
    })
}

/// Takes a local value apart into its timestamp, where the kind keeps one, and the value as in the changelog.
///
/// # Errors
/// When the bytes are not what the kind stores.
pub fn split_local(kind: StoreKind, local: &[u8]) -> Result<(Option<Timestamp>, &[u8])> {
    match kind {
        StoreKind::TimestampedKeyValue => match local.split_first_chunk::<8>() {
            Some((time, value)) => Ok((Some(Timestamp(i64::from_be_bytes(*time))), value)),
            None => Err(bad(kind, format!("a value of {} bytes, where 8 bytes of timestamp begin each", local.len()))),
        },
        StoreKind::KeyValue | StoreKind::Timer | StoreKind::Timers => {
            check_value(kind, local)?;
            Ok((None, local))
        }
    }
}

/// The row that a local key and value came from. Where the kind keeps no timestamp, it is -1, Kafka's "none".
///
/// # Errors
/// When the bytes are not what the kind stores.
pub fn row_of_local(kind: StoreKind, key: &[u8], local: &[u8]) -> Result<Row> {
    let (timestamp, value) = split_local(kind, local)?;
    Ok(Row {
        key: key.to_vec(),
        lane_key: lane_key_len(kind, key)?,
        value: Some(value.to_vec()),
        timestamp: timestamp.unwrap_or(NO_TIMESTAMP),
    })
}

/// Checks a value as in the changelog against its kind.
///
/// # Errors
/// When the kind cannot have written it.
pub fn check_value(kind: StoreKind, value: &[u8]) -> Result<()> {
    let want = match kind {
        StoreKind::KeyValue | StoreKind::TimestampedKeyValue => return Ok(()),
        StoreKind::Timer => 8,
        StoreKind::Timers => 0,
    };
    if value.len() == want {
        Ok(())
    } else {
        Err(bad(kind, format!("a value of {} bytes, where each has {want}", value.len())))
    }
}

/// An entry of the order by time: bytes that compare as (time, key) does.
pub fn due_key(time: Timestamp, key: &[u8]) -> SmallVec<[u8; 64]> {
    let mut entry = SmallVec::with_capacity(8 + key.len());
    entry.extend_from_slice(&((time.0 as u64) ^ (1 << 63)).to_be_bytes());
    entry.extend_from_slice(key);
    entry
}

/// Takes an entry of the order by time apart; `None`: it is none.
pub fn split_due(entry: &[u8]) -> Option<(Timestamp, &[u8])> {
    let (time, key) = entry.split_first_chunk::<8>()?;
    Some((Timestamp((u64::from_be_bytes(*time) ^ (1 << 63)) as i64), key))
}

/// The entry of a local row in the order by time; `None`: the kind has no such order, or the bytes are none of its.
pub fn due_of(kind: StoreKind, key: &[u8], local: &[u8]) -> Option<SmallVec<[u8; 64]>> {
    let (key, time) = match kind {
        StoreKind::KeyValue | StoreKind::TimestampedKeyValue => return None,
        StoreKind::Timer => (key, local.try_into().ok()?),
        StoreKind::Timers => key.split_last_chunk::<8>()?,
    };
    Some(due_key(Timestamp(i64::from_be_bytes(*time)), key))
}

fn bad(kind: StoreKind, what: String) -> Error {
    Error::new(ErrorKind::State, format!("not a row of a store of kind `{}`: {what}", kind.name()))
}
