//! Each committed cut is what a model says.

use std::collections::BTreeMap;

use super::super::message::Control;
use super::super::net::recording::Entry;
use super::World;
use super::model::Model;

use crate::hash::partition_for;
use crate::topology::graph::Graph;

impl World {
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
                    Entry::Control(Control::Tick(t)) => model.tick(t),
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
