//! Words, counted behind a re-key.

use std::collections::BTreeMap;

use super::model::{Model, Output, Stored, numbers};
use super::*;
use crate::id::TopicPartition;

#[sink(topic = "counts", key = String, value = u64, value_codec = Be)]
struct CountsOut;

pub(super) fn counts(t: &mut Topology) {
    let lines = t.source::<In>();
    let words = lines
        .flat_map_values(|v: String| v.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .group_by(|_key, word: &String| word.clone());
    let counted = words.count().named("counted");
    counted.to_stream().sink::<CountsOut>();
}

#[derive(Default)]
pub(super) struct Counts {
    counted: BTreeMap<String, u64>,
    latest: BTreeMap<String, i64>,
    out: Vec<Output>,
}

impl Model for Counts {
    fn record(&mut self, _topic: &str, _key: &str, value: &str, time: i64) {
        for word in value.split(' ') {
            let n = self.counted.entry(word.to_owned()).or_default();
            *n += 1;
            // As in Kafka Streams, a count has the largest time of what it counts.
            let latest = self.latest.entry(word.to_owned()).or_default();
            *latest = time.max(*latest);
            self.out.push(("counts", word.as_bytes().to_vec(), n.to_be_bytes().to_vec(), *latest));
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        numbers("counted", &self.counted)
    }
}

pub(super) fn line(r: &mut Random, n: u64) -> Fed {
    let words: Vec<String> = (0..=r.below(3)).map(|_| format!("w{}", r.below(7))).collect();
    fed(format!("k{}", r.below(10)), words.join(" "), START + n as i64)
}

#[test]
fn t35_t37_i03_i06_i09_counts_are_exact_under_crashes_lost_answers_and_other_lane_counts() {
    let graph = graph_of(counts);
    for seed in seeds(0, 30) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 200, faults(seed), line);
        let model = world.check_model(&graph, Counts::default());
        let mut want: BTreeMap<String, u64> = BTreeMap::new();
        for record in world.records("in") {
            for word in string(record.value.as_ref()).split(' ') {
                *want.entry(word.to_owned()).or_default() += 1;
            }
        }
        assert_eq!(model.counted, want, "all input was processed");
        for p in 0..PARTITIONS {
            let tp = TopicPartition::new("in", p);
            assert_eq!(world.cluster.committed("app", &tp), Some(world.cluster.log("in", p).len() as i64));
        }
    }
}

#[test]
fn i03_at_least_once_has_exact_state_and_every_output_at_least_once() {
    let graph = graph_of(counts);
    for seed in seeds(100, 15) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.set("stoat.processing-guarantee", "at_least_once");
        world.torment(&graph, 200, faults(seed), line);
        let model = world.check_model(&graph, Counts::default());
        let mut seen: BTreeMap<String, std::collections::BTreeSet<u64>> = BTreeMap::new();
        for record in world.records("counts") {
            let n = u64::from_be_bytes(record.value.clone().unwrap().try_into().unwrap());
            seen.entry(string(record.key.as_ref())).or_default().insert(n);
        }
        let want: BTreeMap<_, _> = model.counted.iter().map(|(w, n)| (w.clone(), (1..=*n).collect())).collect();
        assert_eq!(seen, want, "each word's updates are all there");
    }
}

#[test]
fn i07_i08_tiny_budgets_make_many_epochs_and_no_deadlock() {
    let graph = graph_of(counts);
    for seed in seeds(200, 6) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.set("stoat.memory.budget", ["1B", "600B", "4KiB"][seed as usize % 3]);
        world.set("stoat.commit.interval", "10s");
        world.torment(&graph, 150, Faults::default(), line);
        world.check_model(&graph, Counts::default());
    }
}
