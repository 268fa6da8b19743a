//! `sessions`: clicks, and the sessions that they must have become.

use std::collections::BTreeMap;
use std::sync::Arc;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::hash::partition_for;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::time::Timestamp;

use super::{BATCH, Outcome, Random, Report, Story, ends, text};
use crate::KEPT;

/// The gap that ends a session, and how far clicks are out of order, in ms.
const IDLE: i64 = 30 * 60 * 1_000;
const BOUND: i64 = 10_000;
const PARTITIONS: i32 = 6;

/// Clicks of 500 users, each on the average 17 minutes apart.
pub struct Clicks {
    before: BTreeMap<i32, i64>,
    random: Random,
    clock: i64,
}

/// Start, end and clicks of a session.
type Session = (i64, i64, u64);

fn written((start, end, clicks): Session) -> String {
    format!("{{\"start\":{start},\"end\":{end},\"clicks\":{clicks}}}")
}

impl Clicks {
    /// Makes the topics and remembers where the output topic ends. What is in the topic of clicks already is read by the
    /// application, and so by the model; time goes on behind it.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub fn prepare(client: &mut BlockingClient, seed: u64) -> Outcome<Self> {
        client.create_topic_with("clicks", PARTITIONS, KEPT).map_err(text)?;
        client.create_topic_with("user-sessions", PARTITIONS, KEPT).map_err(text)?;
        let before = ends(client, "user-sessions")?;
        let mut clock = 1_700_000_000_000;
        client.read_all("clicks", |_, r| clock = clock.max(r.timestamp.0 + BOUND)).map_err(text)?;
        Ok(Self { before, random: Random(seed | 1), clock })
    }
}

fn push(batch: &mut ProduceBatch, partition: i32, time: i64, user: &[u8]) {
    let value = Some(&b"{\"page\":\"/\"}"[..]);
    batch.push(0, partition, Timestamp(time), Some(user), value, Headers::default());
}

impl Story for Clicks {
    fn program(&self) -> &'static str {
        "sessions"
    }

    fn sources(&self) -> &'static [&'static str] {
        &["clicks"]
    }

    fn feed(&mut self, client: &mut BlockingClient, records: usize) -> Outcome<()> {
        let mut left = records;
        while left > 0 {
            let mut batch = ProduceBatch::new(Arc::new(["clicks".into()]));
            for _ in 0..BATCH.min(left) {
                self.clock += self.random.below(40_000) as i64 / 10;
                let user = format!("u{}", self.random.below(500)).into_bytes();
                let time = self.clock - self.random.below(BOUND as u64 - 1) as i64;
                push(&mut batch, partition_for(&user, PARTITIONS), time, &user);
            }
            left -= batch.len();
            client.produce(batch).map_err(text)?;
        }
        Ok(())
    }

    /// All partitions end at the same time, so that the watermark does not depend on how long one was silent.
    fn end(&mut self, client: &mut BlockingClient) -> Outcome<()> {
        self.clock += BOUND;
        let mut batch = ProduceBatch::new(Arc::new(["clicks".into()]));
        for p in 0..PARTITIONS {
            let user =
                (0..u32::MAX).map(|n| format!("end-{n}").into_bytes()).find(|u| partition_for(u, PARTITIONS) == p);
            push(&mut batch, p, self.clock, &user.unwrap_or_default());
        }
        client.produce(batch).map_err(text).map(drop)
    }

    fn compare(&self, client: &mut BlockingClient, application_id: &str, mut report: Report) -> Outcome<Report> {
        // A user's clicks are in one partition, so each user's sessions follow from that partition's order alone; the
        // watermark, the smallest of all partitions, only says which of the last ones have closed.
        let mut open: BTreeMap<Vec<u8>, Session> = BTreeMap::new();
        let mut model: BTreeMap<(Vec<u8>, String), i64> = BTreeMap::new();
        let mut newest: BTreeMap<i32, i64> = BTreeMap::new();
        report.input = client
            .read_all("clicks", |p, r| {
                let (user, at) = (r.key.unwrap_or_default().to_vec(), r.timestamp.0);
                let latest = newest.entry(p).or_insert(at);
                *latest = (*latest).max(at);
                match open.get_mut(&user) {
                    Some(s) if at <= s.1 + IDLE => *s = (s.0.min(at), s.1.max(at), s.2 + 1),
                    Some(s) => {
                        let done = std::mem::replace(s, (at, at, 1));
                        *model.entry((user, written(done))).or_default() += 1;
                    }
                    None => {
                        open.insert(user, (at, at, 1));
                    }
                }
            })
            .map_err(text)?;
        let watermark = newest.values().min().copied().unwrap_or_default() - BOUND;
        let closed: Vec<Vec<u8>> =
            open.iter().filter(|(_, s)| s.1 + IDLE < watermark).map(|(user, _)| user.clone()).collect();
        for user in closed {
            if let Some(s) = open.remove(&user) {
                *model.entry((user, written(s))).or_default() += 1;
            }
        }
        let mut output = 0;
        client
            .read_all("user-sessions", |p, r| {
                if r.offset < self.before.get(&p).copied().unwrap_or(0) {
                    return;
                }
                let value = String::from_utf8_lossy(r.value.unwrap_or_default()).into_owned();
                *model.entry((r.key.unwrap_or_default().to_vec(), value)).or_default() -= 1;
                output += 1;
            })
            .map_err(text)?;
        report.output = output;
        report.lost = model.values().map(|n| (*n).max(0) as u64).sum();
        report.doubled = model.values().map(|n| (-*n).max(0) as u64).sum();
        let sessions = open.iter().map(|(user, s)| (user.clone(), written(*s).into_bytes())).collect();
        let timers = open.iter().map(|(user, s)| (user.clone(), (s.1 + IDLE + 1).to_be_bytes().to_vec())).collect();
        report.changelog_wrong = changelog_wrong(client, &format!("{application_id}-open-changelog"), &sessions)?
            + changelog_wrong(client, &format!("{application_id}-idle-changelog"), &timers)?;
        Ok(report)
    }
}

/// How many entries of a changelog, read to its end, differ from what they should be.
pub(super) fn changelog_wrong(
    client: &mut BlockingClient,
    topic: &str,
    want: &BTreeMap<Vec<u8>, Vec<u8>>,
) -> Outcome<u64> {
    let mut state: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    client
        .read_all(topic, |_, r| {
            let key = r.key.unwrap_or_default().to_vec();
            match r.value {
                Some(v) => state.insert(key, v.to_vec()),
                None => state.remove(&key),
            };
        })
        .map_err(text)?;
    let wrong = want.iter().filter(|(k, v)| state.get(*k) != Some(v)).count();
    let more = state.keys().filter(|k| !want.contains_key(*k)).count();
    Ok((wrong + more) as u64)
}
