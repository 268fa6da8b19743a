//! What must hold at every committed cut, whatever the topology.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::epoch_record::{EPOCH_KEY, EpochRecord, decode};
use super::super::message::Control;
use super::super::net::recording::{Entry, EpochResult, Replay, Segment, replay};
use super::World;
use super::model::Model;
use crate::gate::{Gates, Verdicts};
use crate::hash::partition_for;
use crate::id::{Epoch, TopicPartition};
use crate::plan::Plan;
use crate::topology::graph::Graph;

const EPOCHS: &str = "app-stoat-epochs";

/// A committed epoch, as it stands in the logs.
pub(super) struct Cut {
    pub(super) record: EpochRecord,
    pub(super) result: EpochResult,
}

impl World {
    fn plan(&self, graph: &Graph) -> Plan {
        let topics = graph.sources.iter().map(|s| &s.topic).chain(graph.sinks.iter().map(|s| &s.topic));
        let counts = topics.map(|t| (t.clone(), self.cluster.partitions(t))).collect();
        let mut plan = Plan::new(graph, "app", 1, &counts).unwrap();
        if let Some(topic) = &self.config(1).dead_letter_topic {
            plan.add_letters(topic, self.cluster.partitions(topic));
        }
        plan
    }

    /// The gates of a replay: what the broker refused in the run is found to be too large at once.
    fn gates(&self, graph: &Graph, plan: &Plan) -> Arc<Gates> {
        let mut plan = plan.clone();
        plan.sink_limits = plan.sink_topics.iter().map(|t| self.cluster.limit(t).unwrap_or(usize::MAX)).collect();
        Arc::new(Gates::of(&self.config(1), graph, &plan, Verdicts::default()))
    }

    /// All committed epochs, claims left out. Checks that they follow each other (I-3).
    pub(super) fn cuts(&self, graph: &Graph) -> Vec<Cut> {
        let plan = self.plan(graph);
        let mut cuts: Vec<Cut> = Vec::new();
        let mut owner = String::new();
        for t in self.cluster.applied() {
            let of_epoch = |(tp, r): &(TopicPartition, _)| {
                let r: &crate::broker::sim::LogRecord = r;
                (&*tp.topic == EPOCHS && r.key.as_deref() == Some(EPOCH_KEY)).then(|| r.value.clone().unwrap())
            };
            if t.records.iter().all(|(_, r)| r.key.as_deref() == Some(b"probe")) {
                continue;
            }
            let mut found = t.records.iter().filter_map(of_epoch);
            let bytes = found.next().expect("each transaction has its epoch record");
            assert_eq!(found.next(), None, "and no other");
            let record: EpochRecord = decode("epoch", &bytes).unwrap();
            let last = cuts.last().map_or(Epoch(0), |c| c.record.epoch);
            if record.claim {
                owner.clone_from(&record.incarnation);
                assert_eq!(record.epoch, last, "a claim is of the epoch before it");
                continue;
            }
            assert_eq!(record.incarnation, owner, "I-10: nobody writes after another's claim");
            assert_eq!(record.epoch, Epoch(last.0 + 1), "epochs follow without a gap");
            let mut result = EpochResult::default();
            for (tp, r) in &t.records {
                let store = tp.topic.strip_prefix("app-").and_then(|n| n.strip_suffix("-changelog"));
                if let Some(store) = store {
                    let all = result.rows.entry(store.to_owned()).or_default();
                    let key = r.key.clone().unwrap();
                    let twice = all.insert(key, (r.value.clone(), r.timestamp));
                    assert!(twice.is_none(), "one changelog record per key and epoch");
                } else if &*tp.topic != EPOCHS {
                    let at = (tp.topic.to_string(), tp.partition);
                    let written = (r.key.clone(), r.value.clone(), r.timestamp);
                    result.outputs.entry(at).or_default().push(written);
                }
            }
            result.watermarks = plan.subs.iter().map(|s| record.watermarks[&s.name]).collect();
            cuts.push(Cut { record, result });
        }
        cuts
    }

    /// The epochs that wrote to all of these stores.
    pub(super) fn cuts_with(&self, stores: &[&str]) -> Vec<Epoch> {
        let mut epochs = Vec::new();
        for t in self.cluster.applied() {
            let wrote = |store: &&str| t.records.iter().any(|(tp, _)| *tp.topic == format!("app-{store}-changelog"));
            let record = t.records.iter().find(|(_, r)| r.key.as_deref() == Some(EPOCH_KEY));
            let Some((_, record)) = record else { continue };
            let record: EpochRecord = decode("epoch", record.value.as_ref().unwrap()).unwrap();
            if stores.iter().all(wrote) {
                epochs.push(record.epoch);
            }
        }
        epochs
    }

    /// Checks all that is promised whatever the topology does; returns the committed ingest order.
    pub(super) fn check(&self, graph: &Graph) -> BTreeMap<Epoch, Segment> {
        let cuts = self.cuts(graph);
        let last = cuts.last().map_or(Epoch(0), |c| c.record.epoch);
        let history = self.recording.history(last);
        assert_eq!(history.len(), cuts.len(), "each committed epoch was recorded");
        self.check_offsets(graph, &cuts, &history);
        self.check_replays(graph, &cuts, &history);
        history
    }

    /// I-2, I-3: what an epoch processed is what lies between its offsets and those before it.
    fn check_offsets(&self, graph: &Graph, cuts: &[Cut], history: &BTreeMap<Epoch, Segment>) {
        let plan = self.plan(graph);
        let mut next: Vec<i64> = vec![0; plan.inputs.len()];
        for cut in cuts {
            let segment = &history[&cut.record.epoch];
            for (i, input) in plan.inputs.iter().enumerate() {
                let tp = &input.partition;
                let upto = cut.record.input(tp).expect("all assigned partitions stand in the record").next;
                assert!(upto >= next[i], "{tp}: offsets rise");
                let log = self.cluster.log(&tp.topic, tp.partition);
                let want = (next[i]..upto).filter(|o| !log[*o as usize].marker);
                let did = segment.entries.iter().filter_map(|e| match e {
                    Entry::Record(r) if r.partition as usize == i => Some(r.offset),
                    _ => None,
                });
                assert!(want.eq(did), "{tp} in epoch {}: each record once, in order", cut.record.epoch);
                next[i] = upto;
            }
        }
        if let Some(last) = cuts.last() {
            for input in &plan.inputs {
                let copy = self.cluster.committed("app", &input.partition);
                assert_eq!(copy, last.record.input(&input.partition).map(|c| c.next), "the group has a copy");
            }
        }
    }

    /// I-6: the same ingest order with other lanes.
    fn check_replays(&self, graph: &Graph, cuts: &[Cut], history: &BTreeMap<Epoch, Segment>) {
        let plan = self.plan(graph);
        for lanes in [1, 2, 3, 16] {
            let with = Replay {
                graph,
                sink_partitions: &plan.sink_partitions,
                lanes,
                seed: self.seed * 4 + u64::from(lanes) + 1,
                wall: self.recording.wall(),
                gates: self.gates(graph, &plan),
            };
            let again = replay(history, &with).unwrap();
            for cut in cuts {
                let epoch = cut.record.epoch;
                let mut want = cut.result.clone();
                if want.outputs.is_empty() && self.at_least_once() {
                    want.outputs.clone_from(&again[&epoch].outputs);
                }
                assert_eq!(again[&epoch], want, "epoch {epoch} again, with {lanes} lanes");
            }
        }
    }

    pub(super) fn at_least_once(&self) -> bool {
        self.settings.iter().any(|(_, v)| v == "at_least_once")
    }

    /// As [`World::check`], and each cut is what the model says.
    pub(super) fn check_model<M: Model>(&self, graph: &Graph, mut model: M) -> M {
        let history = self.check(graph);
        let plan = self.plan(graph);
        let cuts = self.cuts(graph);
        let mut state: BTreeMap<(String, Vec<u8>), Vec<u8>> = BTreeMap::new();
        for cut in &cuts {
            let epoch = cut.record.epoch;
            let segment = &history[&epoch];
            if segment.begins {
                model.applied();
            }
            for entry in &segment.entries {
                match entry {
                    Entry::Record(r) => {
                        let topic = &plan.inputs[r.partition as usize].partition.topic;
                        let text = |b: &Option<Vec<u8>>| String::from_utf8_lossy(b.as_ref().unwrap()).into_owned();
                        model.record(topic, &text(&r.key), &text(&r.value), r.timestamp.0);
                    }
                    Entry::Control(Control::Mark(m)) => model.mark(m),
                    Entry::Control(Control::Tick(t)) => model.tick(t.0),
                    Entry::Control(Control::Barrier(_)) => model.barrier(),
                    Entry::Control(Control::Applied(_)) => model.applied(),
                }
            }
            let mut outputs: BTreeMap<(String, i32), Vec<_>> = BTreeMap::new();
            for (topic, key, value, time) in model.outputs() {
                let at = (topic.to_owned(), partition_for(&key, self.cluster.partitions(topic)));
                let written = (Some(key), Some(value), crate::time::Timestamp(time));
                outputs.entry(at).or_default().push(written);
            }
            if !self.at_least_once() {
                assert_eq!(cut.result.outputs, outputs, "outputs of epoch {epoch}");
            }
            for (store, rows) in &cut.result.rows {
                for (key, (value, _)) in rows {
                    let at = (store.clone(), key.clone());
                    match value {
                        Some(v) => state.insert(at, v.clone()),
                        None => state.remove(&at),
                    };
                }
            }
            assert_eq!(state, model.state(), "state at the end of epoch {epoch}");
        }
        model
    }
}
