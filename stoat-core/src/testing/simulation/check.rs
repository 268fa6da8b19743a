//! What must hold at every committed cut, whatever the topology.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::world::World;
use crate::config::EmitMode;
use crate::engine::epoch_record::{EPOCH_KEY, EpochRecord, decode};
use crate::engine::net::recording::{Entry, EpochResult, Replay, Segment, replay};
use crate::gate::{Gates, Verdicts};
use crate::id::{Epoch, TopicPartition};
use crate::plan::Plan;
use crate::topology::graph::Graph;

const EPOCHS: &str = "app-stoat-epochs";

/// A committed epoch, as it stands in the logs.
pub(crate) struct Cut {
    pub(crate) record: EpochRecord,
    pub(crate) result: EpochResult,
}

impl World {
    pub(crate) fn plan(&self, graph: &Graph) -> Plan {
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
    pub(crate) fn cuts(&self, graph: &Graph) -> Vec<Cut> {
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
    #[cfg(test)]
    pub(crate) fn cuts_with(&self, stores: &[&str]) -> Vec<Epoch> {
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
    pub(crate) fn check(&self, graph: &Graph) -> BTreeMap<Epoch, Segment> {
        let cuts = self.cuts(graph);
        let last = cuts.last().map_or(Epoch(0), |c| c.record.epoch);
        let history = self.recording.history(last);
        assert_eq!(history.len(), cuts.len(), "each committed epoch was recorded");
        for pair in cuts.windows(2) {
            let (before, after) = (&pair[0].result.watermarks, &pair[1].result.watermarks);
            assert!(
                before.iter().zip(after).all(|(b, a)| b <= a),
                "watermarks move forward only: {before:?}, {after:?}"
            );
        }
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
                emit: self.emit(),
                gates: self.gates(graph, &plan),
            };
            let again = replay(history, &with).unwrap();
            for cut in cuts {
                let epoch = cut.record.epoch;
                let mut want = cut.result.clone();
                if want.outputs.is_empty() && self.at_least_once() {
                    want.outputs.clone_from(&again[&epoch].outputs);
                }
                assert!(
                    again[&epoch] == want,
                    "epoch {epoch} again, with {lanes} lanes: {}",
                    difference(&again[&epoch], &want, &history[&epoch])
                );
            }
        }
    }

    fn emit(&self) -> EmitMode {
        let set = self.settings.iter().any(|(k, v)| *k == "stoat.emit.mode" && v == "on-barrier");
        if set { EmitMode::OnBarrier } else { EmitMode::Eager }
    }

    pub(crate) fn at_least_once(&self) -> bool {
        self.settings.iter().any(|(_, v)| v == "at_least_once")
    }
}

/// What differs between an epoch's replay and what was committed, and the records that it comes from.
fn difference(again: &EpochResult, want: &EpochResult, segment: &Segment) -> String {
    use std::fmt::Write;
    let mut text = String::new();
    let show = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    for at in want.outputs.keys().chain(again.outputs.keys()).collect::<std::collections::BTreeSet<_>>() {
        let of = |r: &EpochResult| r.outputs.get(at).cloned().unwrap_or_default();
        let (a, w) = (of(again), of(want));
        if let Some(i) = (0..w.len().max(a.len())).find(|i| a.get(*i) != w.get(*i)) {
            let _ = write!(text, "\noutput {i} to {at:?}: replayed {:?}, committed {:?}", a.get(i), w.get(i));
        }
    }
    let stores = want.rows.keys().chain(again.rows.keys());
    for store in stores.collect::<std::collections::BTreeSet<_>>() {
        let (none, empty) = (BTreeMap::new(), BTreeMap::new());
        let (a, w) = (again.rows.get(store).unwrap_or(&none), want.rows.get(store).unwrap_or(&empty));
        for key in a.keys().chain(w.keys()).collect::<std::collections::BTreeSet<_>>() {
            if a.get(key) != w.get(key) {
                let (a, w) = (a.get(key), w.get(key));
                let _ = write!(text, "\nrow {:?} of {store}: replayed {a:?}, committed {w:?}", show(key));
            }
        }
    }
    if again.watermarks != want.watermarks {
        let _ = write!(text, "\nwatermarks: replayed {:?}, committed {:?}", again.watermarks, want.watermarks);
    }
    for entry in &segment.entries {
        match entry {
            Entry::Record(r) => {
                let (key, value) = (r.key.as_deref().map(show), r.value.as_deref().map(show));
                let _ = write!(text, "\n  {}@{} {key:?} {value:?} at {}", r.partition, r.offset, r.timestamp);
            }
            Entry::Control(c) => {
                let _ = write!(text, "\n  {c:?}");
            }
        }
    }
    text
}
