//! A codec that is not what it says, and what finds it.
//!
//! Topic `visits` (key: visitor, a JSON string, so in quotes; value: page, UTF-8) → `visits-ended` (key: visitor, UTF-8;
//! value: the visitor's last page), a minute after the last visit.
//!
//! ```mermaid
//! flowchart TD
//!   subgraph sub0["sub-topology 0"]
//!     n0(["visits<br/>reads visits"])
//!     n1[("ended<br/>page, away")]
//!     n2(["VisitsEnded<br/>writes visits-ended"])
//!   end
//!   n0 --> n1
//!   n1 --> n2
//! ```
//!
//! `Unquoting` reads `"ada"` as `ada` and writes `ada` without quotes. That is a fair codec, if it says so: records of
//! such a source are laned by the key as it is written. But this one says that it is canonical, so that the source lanes
//! by the bytes as they come. The records of `"ada"` then run on one lane, and `ada`, as anybody else writes her key, may
//! belong to another: two lanes would each keep half of her state and set a timer of hers. With the codec of the topic
//! and a timer that is declared with another, nothing of this would compile; no type can see that a constant is wrong.
//!
//! So the application stops, before anything of that epoch is committed. Start it with
//! `--set stoat.processing.timer-lane-affinity-guard=warn` to let it go on and count, with `--lanes 1` to have nothing to
//! count, or set `CANONICAL` to `false` to have it right.

use std::process::ExitCode;
use std::time::Duration;

use stoat_core::broker::blocking::BlockingClient;
use stoat_core::prelude::*;
use stoat_examples::{InputRecord, Story, say};

/// JSON strings without escapes, read without their quotes. Wrong about being canonical.
#[derive(Debug, Clone, Copy)]
struct Unquoting;

impl Codec for Unquoting {
    const NAME: &'static str = "Unquoting";
    // What is wrong here: `encode(decode("\"ada\""))` is `ada`.
    const CANONICAL: bool = true;
}

impl Decode<Visitor> for Unquoting {
    fn decode(bytes: &[u8]) -> Result<Visitor, CodecError> {
        let text = std::str::from_utf8(bytes).map_err(|e| CodecError::new(format!("not UTF-8: {e}")))?;
        Ok(Visitor(text.trim_matches('"').to_owned()))
    }
}

impl Encode<Visitor> for Unquoting {
    fn encode(key: &Visitor, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(key.0.as_bytes());
        Ok(())
    }
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
#[key(codec = Unquoting)]
struct Visitor(String);

#[source(topic = "visits", key = Visitor, value = String, value_codec = Utf8)]
struct Visits;

#[sink(topic = "visits-ended", key = Visitor, value = String, value_codec = Utf8)]
struct VisitsEnded;

#[processor(input = (Visitor, String), output = String)]
struct LastPage {
    #[state(codec = Utf8)]
    page: Keyed<String>,
    #[timer]
    away: Timer,
}

#[handlers]
impl LastPage {
    #[process]
    fn on_visit(&mut self, visit: Record<Visitor, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.page.put(visit.value)?;
        self.away.set(visit.timestamp + Duration::from_mins(1))
    }

    #[on_timer(away)]
    fn ended(&mut self, _fired: Fired<Visitor>, cx: &mut Context<Self>) -> Result<()> {
        match self.page.take()? {
            Some(page) => cx.forward(page),
            None => Ok(()),
        }
    }
}

#[topology]
fn lane_split(t: &mut Topology) {
    let visits = t.source::<Visits>();
    let ended = visits.process::<LastPage>();
    ended.sink::<VisitsEnded>();
}

/// Visits ten seconds apart.
fn input() -> Vec<InputRecord> {
    let visit = |(n, line): (usize, &str)| {
        let (visitor, page) = line.split_once(' ')?;
        Some(InputRecord {
            topic: "visits",
            key: Some(format!("\"{visitor}\"").into_bytes()),
            value: page.as_bytes().to_vec(),
            timestamp: Timestamp::from_millis(1_700_000_000_000 + n as i64 * 10_000),
        })
    };
    include_str!("../../data/visits.txt").lines().enumerate().filter_map(visit).collect()
}

fn result(client: &mut BlockingClient) -> Result<()> {
    let mut ended = Vec::new();
    client.read_all("visits-ended", |_, r| {
        let text = |b: Option<&[u8]>| String::from_utf8_lossy(b.unwrap_or_default()).into_owned();
        ended.push((text(r.key), text(r.value)));
    })?;
    ended.sort();
    say!("\n{} visits ended:", ended.len());
    for (visitor, page) in ended {
        say!("  {visitor}  {page}");
    }
    Ok(())
}

fn main() -> ExitCode {
    Story {
        about: "A key codec that wrongly claims to be canonical: the lane checks stop the application before it splits a key",
        app: lane_split::app(),
        sources: &["visits"],
        input,
        result,
    }
    .main()
}

#[cfg(test)]
mod tests {
    use stoat_core::config::Verdict;
    use stoat_core::hash::{lane_hash, lane_of};
    use stoat_core::metrics::LANE_MISMATCHES;
    use stoat_core::testing::{LaneChecks, Options, TestDriver};

    use super::*;

    /// Whether the two encodings of a visitor pick different lanes of 16, as many as a test driver has.
    fn split(visitor: &str) -> bool {
        let lane = |key: &[u8]| lane_of(lane_hash(key), 16);
        lane(visitor.as_bytes()) != lane(format!("\"{visitor}\"").as_bytes())
    }

    fn pipe(driver: &mut TestDriver, r: &InputRecord) -> Result<()> {
        driver.pipe_raw(r.topic, r.key.as_deref(), Some(&r.value), r.timestamp.as_millis(), Headers::default())
    }

    fn visitor(r: &InputRecord) -> String {
        String::from_utf8_lossy(r.key.as_deref().unwrap_or_default()).trim_matches('"').to_owned()
    }

    #[test]
    fn the_picture_in_the_documentation_is_this_topology() {
        let graph = lane_split::build().unwrap();
        assert_eq!(stoat_examples::picture(include_str!("lane_split.rs")), graph.mermaid());
        assert_eq!(lane_split::GRAPH.difference(&graph), None);
    }

    #[test]
    fn i16_i17_a_test_finds_the_codec_that_is_not_canonical() {
        for lane_checks in [LaneChecks::each(), LaneChecks::strict()] {
            let options = Options { lane_checks, ..Options::default() };
            let mut driver = TestDriver::with_options(lane_split::build().unwrap(), options).unwrap();
            let (same, other): (Vec<_>, Vec<_>) = input().into_iter().partition(|r| !split(&visitor(r)));
            assert!(!same.is_empty() && !other.is_empty(), "the input has visitors of both kinds");
            for visit in &same {
                pipe(&mut driver, visit).unwrap();
            }
            let error = pipe(&mut driver, &other[0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimerLaneAffinity, "{error}");
            assert!(error.to_string().starts_with(&format!("visits-0@{}: ended: ", same.len())), "{error}");
        }
    }

    #[test]
    fn i16_warn_counts_what_it_lets_through() {
        let checks = LaneChecks { guard: Verdict::Warn, sampled: Verdict::Off, ..LaneChecks::each() };
        let options = Options { lane_checks: checks, ..Options::default() };
        let mut driver = TestDriver::with_options(lane_split::build().unwrap(), options).unwrap();
        let visits = input();
        for visit in &visits {
            pipe(&mut driver, visit).unwrap();
        }
        let split = visits.iter().filter(|r| split(&visitor(r))).count();
        assert_eq!(driver.counter(LANE_MISMATCHES), split as u64);
    }
}
