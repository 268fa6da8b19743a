//! A codec that wrongly claims to be canonical: what two lanes would work for is found before it is committed.

use super::*;
use crate::codec::{Codec, CodecError, Decode, Encode};
use crate::hash::{lane_hash, lane_of};
use crate::id::TopicPartition;
use crate::metrics::{Counters, LANE_MISMATCHES};

#[derive(Debug, Clone, Copy)]
struct Unquoting;

impl Codec for Unquoting {
    const NAME: &'static str = "Unquoting";
    const CANONICAL: bool = true;
}

impl Encode<Name> for Unquoting {
    fn encode(key: &Name, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(key.0.as_bytes());
        Ok(())
    }
}

impl Decode<Name> for Unquoting {
    fn decode(bytes: &[u8]) -> Result<Name, CodecError> {
        Ok(Name(String::from_utf8_lossy(bytes).trim_matches('"').to_owned()))
    }
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
#[key(codec = Unquoting)]
struct Name(String);

#[source(topic = "in", key = Name, value = String, value_codec = Utf8, out_of_orderness = "5ms")]
struct Names;

#[sink(topic = "out", key = Name, value = String, value_codec = Utf8)]
struct NamesOut;

#[processor(input = (Name, String), output = String)]
struct Sets {
    #[timer]
    idle: Timer,
}

#[handlers]
impl Sets {
    #[process]
    fn on_record(&mut self, r: Record<Name, String>, cx: &mut Context<Self>) -> Result<()> {
        match (self.idle.set(r.timestamp + Duration::from_millis(10)), &*r.value) {
            (_, "swallow") => {}
            (done, "unwrap") => done.unwrap(),
            (done, _) => done?,
        }
        cx.forward(r.value)
    }

    #[on_timer(idle)]
    fn on_idle(&mut self, _fired: Fired<Name>, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn sets(t: &mut Topology) {
    t.source::<Names>().process::<Sets>().sink::<NamesOut>();
}

const LANES: u32 = 8;

/// Keys whose two encodings pick one lane (`same`), or two; in quotes.
fn keys(same: bool) -> impl Iterator<Item = String> {
    let lane = |key: &str| lane_of(lane_hash(key.as_bytes()), LANES);
    (0..)
        .map(|n| (format!("k{n}"), format!("\"k{n}\"")))
        .filter(move |(k, q)| (lane(k) == lane(q)) == same)
        .map(|k| k.1)
}

#[test]
fn i16_a_split_ends_the_engine_before_its_epoch_is_committed_whatever_user_code_makes_of_it() {
    let graph = graph_of(sets);
    for (seed, does) in (9_000..).zip(["return", "swallow", "unwrap"]) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let control: Vec<String> = keys(true).take(20).collect();
        for (n, key) in control.iter().enumerate() {
            world.feed(&fed(key.clone(), does.to_owned(), START + n as i64));
        }
        world.run(&graph, LANES);
        assert_eq!(world.records("out").len(), control.len(), "control keys pass");
        let split = keys(false).next().unwrap();
        let at = TopicPartition::new("in", crate::hash::partition_for(split.as_bytes(), PARTITIONS));
        let offset = world.cluster.log("in", at.partition).len() as i64;
        let committed = world.records("out").len();
        world.feed(&fed(split.clone(), does.to_owned(), START + 50));
        // The same at each start: it is no fault that may pass.
        for _ in 0..2 {
            let mut engine = world.engine(&graph, LANES);
            let error = world.run_to_error(&mut engine);
            assert_eq!(error.kind(), ErrorKind::TimerLaneAffinity, "{error}");
            let text = error.to_string();
            assert!(text.contains(&format!("{at}@{offset}: ")) && text.contains("`idle` of `Sets`"), "{text}");
            assert_eq!(
                world.cluster.committed("app", &at),
                Some(offset).filter(|o| *o > 0),
                "the record is not behind us"
            );
            assert_eq!(world.records("out").len(), committed, "nothing of the epoch is committed");
        }
    }
}

#[test]
fn i16_warn_goes_on_and_counts_each_one_and_a_restart_fires_what_was_set() {
    let graph = graph_of(sets);
    for verdict in ["warn", "off"] {
        let mut world = World::new(9_100);
        world.set("stoat.processing.timer-lane-affinity-guard", verdict);
        world.set("stoat.processing.timer-lane-affinity-sampled-check", "off");
        for (n, key) in keys(false).take(10).chain(keys(true).take(10)).enumerate() {
            world.feed(&fed(key, "return".to_owned(), START + n as i64));
        }
        let counters = Counters::default();
        counters.during(|| world.run(&graph, LANES));
        assert_eq!(world.records("out").len(), 20);
        assert_eq!(counters.get(LANE_MISMATCHES), Some(if verdict == "warn" { 10 } else { 0 }), "{verdict}");
        world.check(&graph);
    }
}

#[test]
fn i17_the_sampled_check_ends_the_engine_on_request_and_counts_by_default() {
    let graph = graph_of(sets);
    for verdict in ["error", "warn"] {
        let mut world = World::new(9_200);
        world.set("stoat.processing.timer-lane-affinity-guard", "off");
        world.set("stoat.processing.timer-lane-affinity-sampled-check", verdict);
        for key in keys(true).take(5).chain(keys(false).take(5)) {
            world.feed(&fed(key, "return".to_owned(), START));
        }
        let counters = Counters::default();
        counters.during(|| {
            let mut engine = world.engine(&graph, LANES);
            assert_eq!(counters.get(LANE_MISMATCHES), Some(0), "there from the start, at zero");
            if verdict == "error" {
                assert_eq!(world.run_to_error(&mut engine).kind(), ErrorKind::TimerLaneAffinity);
            } else {
                world.finish(engine);
                assert_eq!(counters.get(LANE_MISMATCHES), Some(5));
            }
        });
    }
}
