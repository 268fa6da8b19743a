//! `money`: transfers between accounts, and what their balances must be; at every committed cut they add up to nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::hash::partition_for;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

use super::clicks::changelog_wrong;
use super::{BATCH, Outcome, Random, Report, Story, text};
use crate::KEPT;

const ACCOUNTS: u64 = 200;
const PARTITIONS: i32 = 3;

/// Transfers between 200 accounts.
pub struct Transfers {
    random: Random,
    clock: i64,
}

impl Transfers {
    /// Makes the topics. Those of outputs have one partition, so that a reader sees where each transaction ends.
    ///
    /// # Errors
    /// When the broker does not answer, or the topic of balances has several partitions.
    pub fn prepare(client: &mut BlockingClient, seed: u64) -> Outcome<Self> {
        client.create_topic_with("transfers", PARTITIONS, KEPT).map_err(text)?;
        for topic in ["balances", "totals"] {
            client.create_topic_with(topic, 1, KEPT).map_err(text)?;
            if client.bounds(topic).map_err(text)?.len() != 1 {
                return Err(format!("the topic `{topic}` must have one partition"));
            }
        }
        Ok(Self { random: Random(seed | 1), clock: 1_700_000_000_000 })
    }
}

/// The account, and what the value of its newest record says: balance and transfers.
type Accounts = BTreeMap<String, (i64, u64)>;

/// The number behind a name in a flat JSON object.
fn number<T: std::str::FromStr>(json: &str, name: &str) -> Option<T> {
    let rest = json.split_once(&format!("\"{name}\":"))?.1;
    rest.split([',', '}']).next()?.trim().parse().ok()
}

impl Story for Transfers {
    fn program(&self) -> &'static str {
        "money"
    }

    fn sources(&self) -> &'static [&'static str] {
        &["transfers"]
    }

    fn feed(&mut self, client: &mut BlockingClient, records: usize) -> Outcome<()> {
        let mut left = records;
        while left > 0 {
            let mut batch = ProduceBatch::new(Arc::new(["transfers".into()]));
            for _ in 0..BATCH.min(left) {
                self.clock += 1;
                let from = format!("a{}", self.random.below(ACCOUNTS));
                let (to, amount) = (self.random.below(ACCOUNTS), 1 + self.random.below(1_000));
                let value = format!("{{\"to\":\"a{to}\",\"amount\":{amount}}}");
                let place = partition_for(from.as_bytes(), PARTITIONS);
                let (key, value) = (Some(from.as_bytes()), Some(value.as_bytes()));
                batch.push(0, place, Timestamp(self.clock), key, value, Headers::default());
            }
            left -= batch.len();
            client.produce(batch).map_err(text)?;
        }
        Ok(())
    }

    fn end(&mut self, _client: &mut BlockingClient) -> Outcome<()> {
        Ok(())
    }

    fn compare(&self, client: &mut BlockingClient, application_id: &str, mut report: Report) -> Outcome<Report> {
        let mut model = Accounts::new();
        report.input = client
            .read_all("transfers", |_, r| {
                let from = String::from_utf8_lossy(r.key.unwrap_or_default()).into_owned();
                let value = String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned();
                let amount: i64 = number(&value, "amount").unwrap_or_default();
                let to = value.split('"').nth(3).unwrap_or_default().to_owned();
                for (account, amount) in [(from, -amount), (to, amount)] {
                    let at = model.entry(account).or_default();
                    *at = (at.0 + amount, at.1 + 1);
                }
            })
            .map_err(text)?;
        let mut seen = Accounts::new();
        let (mut sum, mut next, mut twice) = (0_i64, 0, 0_u64);
        let mut this_cut = std::collections::BTreeSet::new();
        report.output = client
            .read_all("balances", |_, r| {
                if r.offset != next && next > 0 {
                    // The marker of a transaction takes an offset: here one ends, and what was read so far is a cut.
                    report.cuts += 1;
                    report.cuts_wrong += u64::from(sum != 0);
                    this_cut.clear();
                }
                next = r.offset + 1;
                let account = String::from_utf8_lossy(r.key.unwrap_or_default()).into_owned();
                let value = String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned();
                twice += u64::from(!this_cut.insert(account.clone()));
                let at = seen.entry(account).or_default();
                sum -= at.0;
                *at = (number(&value, "balance").unwrap_or(i64::MIN / 2), number(&value, "transfers").unwrap_or(0));
                sum += at.0;
            })
            .map_err(text)?;
        report.cuts += 1;
        report.cuts_wrong += u64::from(sum != 0) + twice;
        client
            .read_all("totals", |_, r| {
                report.totals += 1;
                report.cuts_wrong += u64::from(r.value != Some(b"0"));
            })
            .map_err(text)?;
        report.lost = model.iter().map(|(a, m)| m.1.saturating_sub(seen.get(a).map_or(0, |s| s.1))).sum();
        report.doubled = seen.iter().map(|(a, s)| s.1.saturating_sub(model.get(a).map_or(0, |m| m.1))).sum();
        // As many transfers, and another balance: one was lost and another doubled.
        report.lost +=
            model.iter().filter(|(a, m)| seen.get(*a).is_some_and(|s| s.1 == m.1 && s.0 != m.0)).count() as u64;
        let rows = model.iter().map(|(a, (balance, transfers))| {
            (a.clone().into_bytes(), format!("{{\"balance\":{balance},\"transfers\":{transfers}}}").into_bytes())
        });
        report.changelog_wrong =
            changelog_wrong(client, &format!("{application_id}-balances-changelog"), &rows.collect())?;
        Ok(report)
    }
}
