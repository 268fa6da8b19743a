//! Counts words: three topics of lines are merged, split into words, re-keyed by word and counted, exactly once.
//!
//! Topics: `lines-a`, `lines-b`, `lines-c` (value: a line, UTF-8) → `word-counts` (key: word, UTF-8; value: its count,
//! 8 bytes big-endian). A word is a maximal run of Unicode letters and digits, lower-cased.
//!
//! ```mermaid
//! flowchart TD
//!   subgraph sub0["sub-topology 0"]
//!     n0(["a<br/>reads lines-a"])
//!     n1(["b<br/>reads lines-b"])
//!     n2(["c<br/>reads lines-c"])
//!     n3["a.merge"]
//!     n4["lines"]
//!     n5["lines.select_key"]
//!     n6>"counts-repartition"]
//!   end
//!   subgraph sub1["sub-topology 1"]
//!     n7[("counts<br/>counts")]
//!     n8(["WordCounts<br/>writes word-counts"])
//!   end
//!   n0 --> n3
//!   n1 --> n3
//!   n2 --> n4
//!   n3 --> n4
//!   n4 --> n5
//!   n5 --> n6
//!   n6 -.-> n7
//!   n7 --> n8
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::prelude::*;
use stoat_examples::{InputRecord, Story, say};

#[source(topic = "lines-a", value = String, value_codec = Utf8)]
struct LinesA;

#[source(topic = "lines-b", value = String, value_codec = Utf8)]
struct LinesB;

#[source(topic = "lines-c", value = String, value_codec = Utf8)]
struct LinesC;

#[sink(topic = "word-counts", key = String, value = u64, value_codec = Be)]
struct WordCounts;

fn words(line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty());
    words.map(str::to_lowercase).collect()
}

#[topology]
fn word_count(t: &mut Topology) {
    let a = t.source::<LinesA>();
    let b = t.source::<LinesB>();
    let c = t.source::<LinesC>();
    let lines = a.merge(b).merge(c);
    let words = lines.flat_map_values(|line| words(&line)).group_by(|_key, word: &String| word.clone());
    let counts = words.count();
    counts.to_stream().sink::<WordCounts>();
}

fn input() -> Vec<InputRecord> {
    let plays = [
        ("lines-a", include_str!("../../data/lines-a.txt")),
        ("lines-b", include_str!("../../data/lines-b.txt")),
        ("lines-c", include_str!("../../data/lines-c.txt")),
    ];
    let mut records = Vec::new();
    for (topic, text) in plays {
        for (i, line) in text.lines().enumerate() {
            // The plays have no clock: one line a second from a fixed origin.
            let timestamp = Timestamp::from_millis(1_700_000_000_000 + i as i64 * 1_000);
            records.push(InputRecord { topic, key: None, value: line.as_bytes().to_vec(), timestamp });
        }
    }
    records.sort_by_key(|r| r.timestamp);
    records
}

fn result(client: &mut BlockingClient) -> Result<()> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    let updates = client.read_all("word-counts", |_, r| {
        if let (Some(k), Some(Ok(v))) = (r.key, r.value.map(<[u8; 8]>::try_from)) {
            counts.insert(String::from_utf8_lossy(k).into_owned(), u64::from_be_bytes(v));
        }
    })?;
    let mut rows: Vec<_> = counts.iter().collect();
    rows.sort_by_key(|(word, n)| (std::cmp::Reverse(**n), *word));
    say!("\n{} different words, {} in all, {updates} updates written", rows.len(), counts.values().sum::<u64>());
    for (word, n) in rows.iter().take(15) {
        say!("{n:>8}  {word}");
    }
    Ok(())
}

fn main() -> ExitCode {
    Story {
        about: "Counts words: three topics of lines are merged, split, re-keyed by word and counted, exactly once",
        app: word_count::app(),
        sources: &["lines-a", "lines-b", "lines-c"],
        input,
        result,
    }
    .main()
}

#[cfg(test)]
mod tests {
    use super::word_count;

    #[test]
    fn the_picture_in_the_documentation_is_this_topology() {
        let graph = word_count::build().unwrap();
        assert_eq!(stoat_examples::picture(include_str!("word_count.rs")), graph.mermaid());
        assert_eq!(word_count::GRAPH.difference(&graph), None);
    }
}
