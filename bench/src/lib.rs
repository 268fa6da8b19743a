//! Four jobs to measure an engine by: topic `in` → topic `out`.

pub mod process;

use clap::ValueEnum;
use serde_json::Value;
use stoat_core::app::App;
use stoat_core::prelude::*;

/// Which job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Job {
    /// Bytes through.
    Pass,
    /// Records per key → key, 8-byte big-endian count.
    Count,
    /// Split the value at single spaces, re-key by word, count → word, count.
    Words,
    /// Parse the value, drop it when `amount` is even, add `"checked": true`.
    Json,
}

impl Job {
    /// All four.
    pub const ALL: [Self; 4] = [Self::Pass, Self::Count, Self::Words, Self::Json];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Count => "count",
            Self::Words => "words",
            Self::Json => "json",
        }
    }

    /// The application, with `stoat-<job>` for its id.
    ///
    /// # Errors
    /// None that can happen; the configuration says so by its types.
    pub fn app(self) -> Result<App> {
        let app = match self {
            Self::Pass => pass::app(),
            Self::Count => count::app(),
            Self::Words => words::app(),
            Self::Json => json::app(),
        };
        app.set("stoat.application-id", &format!("stoat-{}", self.name()))
    }
}

#[source(topic = "in", key = Option<Vec<u8>>, key_codec = Bytes, value = Option<Vec<u8>>, value_codec = Bytes)]
struct Raw;

#[sink(topic = "out", key = Option<Vec<u8>>, key_codec = Bytes, value = Option<Vec<u8>>, value_codec = Bytes)]
struct RawOut;

#[topology]
fn pass(t: &mut Topology) {
    let records = t.source::<Raw>();
    records.sink::<RawOut>();
}

#[source(topic = "in", key = Vec<u8>, value = Vec<u8>, value_codec = Bytes)]
struct Keyed;

#[sink(topic = "out", key = Vec<u8>, value = u64, value_codec = Be)]
struct Counts;

#[topology]
fn count(t: &mut Topology) {
    let records = t.source::<Keyed>();
    let counts = records.group_by_key().count();
    counts.to_stream().sink::<Counts>();
}

#[source(topic = "in", value = String, value_codec = Utf8)]
struct Lines;

#[sink(topic = "out", key = String, value = u64, value_codec = Be)]
struct WordCounts;

#[topology]
fn words(t: &mut Topology) {
    let lines = t.source::<Lines>();
    let words = lines
        .flat_map_values(|line| line.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .group_by(|_key, word: &String| word.clone());
    let counts = words.count();
    counts.to_stream().sink::<WordCounts>();
}

#[source(topic = "in", key = Option<Vec<u8>>, key_codec = Bytes, value = Value, value_codec = Json)]
struct Orders;

#[sink(topic = "out", key = Option<Vec<u8>>, key_codec = Bytes, value = Value, value_codec = Json)]
struct Checked;

#[topology]
fn json(t: &mut Topology) {
    let orders = t.source::<Orders>();
    let odd = orders.filter(|_key, order| order.get("amount").and_then(Value::as_i64).is_none_or(|a| a % 2 != 0));
    let checked = odd.map_values(|mut order| {
        if let Some(fields) = order.as_object_mut() {
            fields.insert("checked".to_owned(), Value::Bool(true));
        }
        order
    });
    checked.sink::<Checked>();
}
