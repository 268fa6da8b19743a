//! The records.

use std::fmt::Write;

use stoat_bench::Job;

/// Distinct keys, and words of the vocabulary.
const KEYS: usize = 10_000;
/// Bytes of a plain record's value.
const VALUE: usize = 100;

/// What the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// 100 bytes.
    Bytes,
    /// Five words.
    Words,
    /// A small object.
    Json,
}

impl Input {
    pub(super) fn of(job: Job) -> Self {
        match job {
            Job::Pass | Job::Count => Self::Bytes,
            Job::Words => Self::Words,
            Job::Json => Self::Json,
        }
    }

    /// Writes the `i`-th record; always the same.
    pub(super) fn record(self, i: usize, key: &mut String, value: &mut String) {
        let at = |n: usize| mix((i * 8 + n) as u64) as usize % KEYS;
        key.clear();
        value.clear();
        // Writing to a string cannot fail.
        let _ = write!(key, "user-{:05}", at(0));
        match self {
            Self::Bytes => value.extend(std::iter::repeat_n('x', VALUE)),
            Self::Words => {
                for n in 1..=5 {
                    let gap = if n == 1 { "" } else { " " };
                    let _ = write!(value, "{gap}word-{:04}", at(n));
                }
            }
            Self::Json => {
                let (amount, item) = (at(1), at(2));
                let _ = write!(value, r#"{{"id":{i},"item":"item-{item}","amount":{amount},"paid":true}}"#);
            }
        }
    }
}

/// Spreads numbers (the last step of splitmix64).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}
