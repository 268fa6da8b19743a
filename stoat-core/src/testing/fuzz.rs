//! Fuzz targets: whatever the bytes are, reading them ends without a panic, and what could be read is written and read again
//! as the same. The folder `fuzz/` gives them to libFuzzer; the test below runs them over the corpus and mutations of it.

use crate::broker::embedded::fuzz::journal;
use crate::codec::{Be, Bytes, Codec, Decode, Encode, Json, Nullable, Utf8};
use crate::config::Config;
use crate::engine::epoch_record::{EpochRecord, PlanRecord, decode, encode};
use crate::id::TopicPartition;
use crate::record::{Headers, RecordBatch};
use crate::store::restore::{Placement, rows};
use crate::store::{StoreKind, layout};
use crate::time::Timestamp;

/// A target: its name, which its corpus' folder bears, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("codecs", codecs),
    ("journal", journal),
    ("coordination", coordination),
    ("changelog", changelog),
    ("configuration", configuration),
];

/// What a codec reads it writes again; a canonical one as the same bytes.
fn again<C: Codec + Encode<T> + Decode<T>, T: PartialEq + std::fmt::Debug>(bytes: &[u8]) {
    let Ok(value) = C::decode(bytes) else { return };
    let mut written = Vec::new();
    C::encode(&value, &mut written).expect("what was read can be written");
    if C::CANONICAL {
        assert_eq!(written, bytes, "{} is canonical", C::NAME);
    }
    let second = C::decode(&written).expect("what was written can be read");
    assert_eq!(second, value, "{}", C::NAME);
}

/// Keys and values as codecs read them.
pub fn codecs(bytes: &[u8]) {
    again::<Utf8, String>(bytes);
    again::<Be, u64>(bytes);
    again::<Be, i64>(bytes);
    again::<Be, u32>(bytes);
    again::<Bytes, Vec<u8>>(bytes);
    again::<Json, serde_json::Value>(bytes);
    again::<Json, (String, i64, Option<bool>)>(bytes);
    again::<Nullable<Utf8>, Option<String>>(bytes);
}

/// Records of an application's epoch topic.
pub fn coordination(bytes: &[u8]) {
    if let Ok(record) = decode::<EpochRecord>("epoch", bytes) {
        assert_eq!(decode::<EpochRecord>("epoch", &encode(&record)).ok(), Some(record));
    }
    if let Ok(record) = decode::<PlanRecord>("plan", bytes) {
        assert_eq!(decode::<PlanRecord>("plan", &encode(&record)).ok(), Some(record));
    }
}

/// A changelog's records as rows of each kind of store, and a store's own bytes.
pub fn changelog(bytes: &[u8]) {
    const KINDS: [StoreKind; 4] =
        [StoreKind::KeyValue, StoreKind::TimestampedKeyValue, StoreKind::Timer, StoreKind::Timers];
    let at = bytes.first().map_or(0, |n| usize::from(*n)).min(bytes.len());
    let (key, value) = bytes.split_at(at);
    let mut batch = RecordBatch::default();
    batch.push(0, Timestamp(7), Some(key), Some(value), Headers::default());
    batch.push(1, Timestamp(8), Some(key), None, Headers::default());
    batch.push(2, Timestamp(9), None, Some(value), Headers::default());
    let partition = TopicPartition::new("app-store-changelog", 0);
    for kind in KINDS {
        for placement in [Placement::Source, Placement::LaneKey { partitions: 3 }] {
            // The last record has no key: refused.
            assert!(rows(kind, &partition, placement, &batch).is_err());
        }
        let mut keyed = RecordBatch::default();
        keyed.push(0, Timestamp(7), Some(key), Some(value), Headers::default());
        for row in rows(kind, &partition, Placement::Source, &keyed).into_iter().flatten() {
            let local = layout::local_value(kind, &row).expect("a row with a value has one locally");
            let back = layout::row_of_local(kind, &row.key, &local).expect("what was stored can be read");
            assert_eq!((back.key, back.value, back.lane_key), (row.key.clone(), row.value.clone(), row.lane_key));
        }
        let _ = layout::row_of_local(kind, key, value);
        let _ = layout::split_local(kind, bytes);
    }
}

/// A configuration file, the environment, the command line.
pub fn configuration(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut config = Config::default();
    if config.yaml(text).is_ok() {
        // What is shown can be read again.
        let mut again = Config::default();
        for (key, value) in config.masked().into_iter().filter(|(_, v)| !v.is_empty() && !v.contains("******")) {
            again.set(&key, &value).expect("a value as it is shown can be set");
        }
    }
    let vars = text.lines().filter_map(|l| l.split_once('=')).map(|(k, v)| (k.to_owned(), v.to_owned()));
    let _ = Config::default().env(vars);
    for (key, value) in text.lines().filter_map(|l| l.split_once('=')) {
        let _ = Config::default().set(key, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::engine::epoch_record::InputCut;
    use crate::id::Epoch;

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            (self.0 >> 11) as usize % n.max(1)
        }
    }

    fn folder(target: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target)
    }

    fn corpus(target: &str) -> Vec<Vec<u8>> {
        let files = std::fs::read_dir(folder(target)).expect("each target has a corpus");
        let mut files: Vec<PathBuf> = files.map(|f| f.unwrap().path()).collect();
        files.sort();
        files.iter().map(|f| std::fs::read(f).unwrap()).collect()
    }

    /// Changes some bytes, as a fuzzer does: bits, numbers at the edges, pieces cut out, doubled and taken from another.
    fn mutate(bytes: &mut Vec<u8>, other: &[u8], r: &mut Random) {
        for _ in 0..=r.below(4) {
            let at = r.below(bytes.len() + 1);
            match r.below(7) {
                0 if at < bytes.len() => bytes[at] ^= 1 << r.below(8),
                1 if at < bytes.len() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b':'][r.below(8)],
                2 => bytes.insert(at, r.below(256) as u8),
                3 => drop(bytes.drain(at..(at + r.below(9)).min(bytes.len()))),
                4 => {
                    let piece = bytes[at..(at + r.below(17)).min(bytes.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
                5 => {
                    let from = r.below(other.len() + 1);
                    let piece = other[from..(from + r.below(33)).min(other.len())].to_vec();
                    bytes.splice(at..at, piece);
                }
                _ => {
                    let width = [2, 4, 8][r.below(3)];
                    let number = [i64::MIN, i64::MAX, -1, 0, 1 << 31][r.below(5)].to_le_bytes();
                    for (i, b) in bytes.iter_mut().skip(at).take(width).enumerate() {
                        *b = number[i];
                    }
                }
            }
        }
        bytes.truncate(4_096);
    }

    /// Says which bytes a panic belongs to.
    struct Input<'a>(&'a str, &'a [u8]);

    impl Drop for Input<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("target {}: put these bytes into fuzz/corpus/{}: {:02x?}", self.0, self.0, self.1);
            }
        }
    }

    #[test]
    fn i13_no_bytes_make_a_reader_panic() {
        // `STOAT_FUZZ_RUNS=n`: n times as many.
        let times = std::env::var("STOAT_FUZZ_RUNS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
        for (name, target) in TARGETS {
            let corpus = corpus(name);
            for bytes in &corpus {
                let _input = Input(name, bytes);
                target(bytes);
            }
            let mut r = Random(0x5eed);
            for _ in 0..4_000 * times {
                let mut bytes = corpus[r.below(corpus.len())].clone();
                let other = &corpus[r.below(corpus.len())];
                mutate(&mut bytes, other, &mut r);
                let _input = Input(name, &bytes);
                target(&bytes);
            }
        }
    }

    /// What each target has at least in its corpus.
    fn samples() -> BTreeMap<&'static str, Vec<(&'static str, Vec<u8>)>> {
        let mut record = EpochRecord { epoch: Epoch(7), incarnation: "a1".to_owned(), ..EpochRecord::default() };
        record.set_input(&TopicPartition::new("in", 1), InputCut { next: 12, watermark: Timestamp(99) });
        record.watermarks.insert("in".to_owned(), Timestamp::MIN);
        record.changelogs.entry("app-s-changelog".to_owned()).or_default().insert(0, 3);
        let plan = br#"STOAT{"sources":{"in":"id"},"changelogs":{"app-s-changelog":{"store":"s","id":"x","partitions":3,"rule":"hash","codec":"utf8","kind":"timers"}}}"#;
        let mut plan = plan.to_vec();
        plan.insert(5, 1);
        let lines = |text: &str| text.as_bytes().to_vec();
        BTreeMap::from([
            (
                "codecs",
                vec![
                    ("utf8", "wörld".as_bytes().to_vec()),
                    ("be8", 42_u64.to_be_bytes().to_vec()),
                    ("be4", 7_u32.to_be_bytes().to_vec()),
                    ("json", lines(r#"{"a":[1,-2.5,null,"\u00fc"],"b":{"c":1e300}}"#)),
                    ("tuple", lines(r#"["x",-9223372036854775808,true]"#)),
                    ("empty", Vec::new()),
                ],
            ),
            ("journal", crate::broker::embedded::fuzz::samples()),
            ("coordination", vec![("epoch", encode(&record)), ("plan", plan)]),
            (
                "changelog",
                vec![
                    ("value", b"\x04keyvalue".to_vec()),
                    ("timer", [&b"\x04key"[..], &1_700_000_000_000_i64.to_be_bytes()].concat()),
                    ("timers", [&b"\x0ckey"[..], &1_700_000_000_000_i64.to_be_bytes()].concat()),
                ],
            ),
            (
                "configuration",
                vec![
                    (
                        "nested",
                        lines("stoat:\n  commit:\n    interval: 100ms\n  lanes: 16\nstoat.memory.budget: 256MiB\n"),
                    ),
                    (
                        "client",
                        lines("stoat:\n  kafka:\n    client:\n      sasl.password: hunter2\n  state: {dir: x}\n"),
                    ),
                    (
                        "environment",
                        lines("STOAT__COMMIT__INTERVAL_MIN=20ms\nSTOAT__KAFKA__CLIENT__SASL__PASSWORD=x\n"),
                    ),
                    ("keys", lines("stoat.emit.mode=on-barrier\nstoat.start.offsets=group\nstoat.lanes=0\n")),
                ],
            ),
        ])
    }

    #[test]
    fn each_target_has_its_samples_in_the_corpus() {
        let write = std::env::var_os("STOAT_FUZZ_WRITE").is_some();
        for (target, samples) in samples() {
            for (name, bytes) in samples {
                let file = folder(target).join(name);
                if write {
                    std::fs::create_dir_all(folder(target)).unwrap();
                    std::fs::write(&file, &bytes).unwrap();
                }
                let held = std::fs::read(&file).unwrap_or_default();
                assert_eq!(held, bytes, "{}: STOAT_FUZZ_WRITE=1 writes it", file.display());
            }
        }
    }
}
