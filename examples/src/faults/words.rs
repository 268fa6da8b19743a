//! `word_count`: lines of words, and how often each word must have been counted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

use super::{BATCH, Outcome, Random, Report, Story, ends, text};
use crate::KEPT;

/// The topics that `word_count` reads.
pub(super) const LINES: [&str; 3] = ["lines-a", "lines-b", "lines-c"];

/// Writes lines of words, `from` to `to`.
///
/// # Errors
/// When the broker does not take them.
pub fn produce_lines(client: &mut BlockingClient, seed: u64, from: usize, to: usize) -> Outcome<()> {
    let mut random = Random(seed | 1);
    let topics: Arc<[Arc<str>]> = LINES.iter().map(|t| Arc::from(*t)).collect();
    let mut at = from;
    while at < to {
        let mut batch = ProduceBatch::new(topics.clone());
        for i in at..(at + BATCH).min(to) {
            // Skewed: small numbers come more often, as words do.
            let mut word = || {
                let n = random.below(2_000) * random.below(2_000) / 2_000;
                format!("w{n}")
            };
            let line = [word(), word(), word()].join(" ");
            let time = Timestamp(1_700_000_000_000 + i as i64);
            let place = random.below(18) as i32;
            batch.push((place / 6) as u32, place % 6, time, None, Some(line.as_bytes()), Headers::default());
        }
        at += BATCH;
        client.produce(batch).map_err(text)?;
    }
    Ok(())
}

/// What an application `word_count` finds before it starts.
pub struct Words {
    before: BTreeMap<i32, i64>,
    random: Random,
    fed: usize,
}

impl Words {
    /// Makes the topics and remembers where the output topic ends.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn prepare(client: &mut BlockingClient) -> Outcome<Self> {
        Self::with_seed(client, 1)
    }

    /// As [`Words::prepare`]; the seed chooses the words.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn with_seed(client: &mut BlockingClient, seed: u64) -> Outcome<Self> {
        for topic in LINES {
            client.create_topic_with(topic, 6, KEPT).map_err(text)?;
        }
        client.create_topic_with("word-counts", 6, KEPT).map_err(text)?;
        Ok(Self { before: ends(client, "word-counts")?, random: Random(seed | 1), fed: 0 })
    }

    /// Compares what one application wrote since with its input.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn compare(&self, client: &mut BlockingClient, application_id: &str, mut report: Report) -> Outcome<Report> {
        let mut model: HashMap<String, u64> = HashMap::new();
        for topic in LINES {
            report.input += client
                .read_all(topic, |_, r| {
                    let line = String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned();
                    for word in line.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
                        *model.entry(word.to_lowercase()).or_default() += 1;
                    }
                })
                .map_err(text)?;
        }
        // Each word's updates are 1, 2, 3 and so on: a gap is a loss, a repetition a doubling.
        let mut seen: HashMap<String, u64> = HashMap::new();
        let (mut output, mut doubled) = (0, 0);
        client
            .read_all("word-counts", |p, r| {
                if r.offset < self.before.get(&p).copied().unwrap_or(0) {
                    return;
                }
                let word = String::from_utf8_lossy(r.key.unwrap_or_default()).into_owned();
                let count = r.value.and_then(|v| v.try_into().ok()).map_or(0, u64::from_be_bytes);
                let last = seen.entry(word).or_default();
                if count == *last + 1 {
                    *last = count;
                } else {
                    doubled += 1;
                }
                output += 1;
            })
            .map_err(text)?;
        report.output = output;
        report.doubled = doubled + seen.keys().filter(|w| !model.contains_key(*w)).count() as u64;
        report.lost = model.iter().map(|(w, n)| n.saturating_sub(seen.get(w).copied().unwrap_or(0))).sum();
        let mut state: HashMap<String, u64> = HashMap::new();
        client
            .read_all(&format!("{application_id}-counts-changelog"), |_, r| {
                let word = String::from_utf8_lossy(r.key.unwrap_or_default()).into_owned();
                match r.value.and_then(|v| v.try_into().ok()) {
                    Some(v) => state.insert(word, u64::from_be_bytes(v)),
                    None => state.remove(&word),
                };
            })
            .map_err(text)?;
        report.changelog_wrong = differing(&model, &state);
        Ok(report)
    }
}

impl Story for Words {
    fn program(&self) -> &'static str {
        "word_count"
    }

    fn sources(&self) -> &'static [&'static str] {
        &LINES
    }

    fn feed(&mut self, client: &mut BlockingClient, records: usize) -> Outcome<()> {
        let from = self.fed;
        self.fed += records;
        produce_lines(client, self.random.below(u64::MAX), from, self.fed)
    }

    fn end(&mut self, _client: &mut BlockingClient) -> Outcome<()> {
        Ok(())
    }

    fn compare(&self, client: &mut BlockingClient, application_id: &str, report: Report) -> Outcome<Report> {
        Words::compare(self, client, application_id, report)
    }
}

fn differing(model: &HashMap<String, u64>, state: &HashMap<String, u64>) -> u64 {
    let wrong = model.iter().filter(|(w, n)| state.get(*w) != Some(n)).count();
    let more = state.keys().filter(|w| !model.contains_key(*w)).count();
    (wrong + more) as u64
}
