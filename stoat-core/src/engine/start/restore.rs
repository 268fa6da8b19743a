//! From the changelogs to the stores (I-11).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::{RESTORE_FETCH, RestoreReport, Start, StartCx, Step};
use crate::broker::{Command, Fetched};
use crate::engine::writer::WriteJob;
use crate::error::Result;
use crate::id::{NextOffset, TopicPartition};
use crate::store::restore::{
    ChangelogFacts, FoundChangelog, Placement, RecordedChangelog, Replay, RestoreDecision, decide,
};

/// What clocks may differ and a restore may take, taken off the time that tombstones live.
const STAMP_MARGIN: Duration = Duration::from_mins(30);
/// Partitions that are restored side by side.
const RESTORE_WIDTH: usize = 8;

/// A restore under way.
pub(super) struct Restore {
    pub(super) replays: Vec<Replay>,
    pub(super) todo: Vec<(usize, TopicPartition, NextOffset)>,
    pub(super) open: BTreeMap<TopicPartition, usize>,
    /// Write jobs under way: the partition to go on with, and whether it is through.
    pub(super) writing: BTreeMap<u64, Option<(TopicPartition, bool)>>,
    pub(super) finishing: bool,
}

impl Start {
    pub(super) fn begin_restore(&mut self, cx: &mut StartCx<'_>) -> Result<()> {
        let record = self.record.clone().unwrap_or_default();
        if cx.stores.is_empty() {
            for c in &self.plan().changelogs {
                cx.stores.push(cx.set.open(&c.name, c.kind)?);
            }
        }
        let mut report = RestoreReport::default();
        let (mut replays, mut todo) = (Vec::new(), Vec::new());
        for (i, c) in self.plan().changelogs.iter().enumerate() {
            let store = &cx.stores[i];
            store.begin(cx.generation);
            let bounds = self.changelog_bounds.get(&*c.topic).cloned().unwrap_or_default();
            let target = &self.targets[i];
            let described = self.internals.get(i + 1).and_then(Option::as_ref);
            let found = match described {
                Some(t) => FoundChangelog::new(t, bounds.clone()),
                None => FoundChangelog {
                    topic_id: target.topic_id.clone(),
                    bounds: bounds.clone(),
                    delete_retention: target.delete_retention,
                },
            };
            let recorded =
                self.plan_record.as_ref().and_then(|p| p.changelogs.get(&*c.topic)).map(|r| RecordedChangelog {
                    topic_id: r.id.clone(),
                    ends: record.changelogs.get(&*c.topic).cloned().unwrap_or_default(),
                });
            let facts = ChangelogFacts { topic: c.topic.clone(), recorded, found: Some(found.clone()) };
            let stamp = store.stamp()?;
            let kept = match decide(stamp.as_ref(), &facts, cx.wall, STAMP_MARGIN) {
                RestoreDecision::Tail { .. } => stamp,
                RestoreDecision::Rebuild { reason } => {
                    if stamp.is_some() {
                        tracing::warn!("store `{}` is rebuilt from its changelog: {reason}", c.name);
                        store.clear()?;
                    }
                    report.rebuilt += 1;
                    None
                }
                RestoreDecision::Refuse { reason } => return Err(reason.into_error()),
            };
            let placement = Placement::LaneKey { partitions: target.partitions };
            let replay = Replay::new(c.kind, c.topic.clone(), &found, placement, kept.as_ref(), cx.wall);
            for (tp, from) in replay.positions() {
                let b = bounds[&tp.partition];
                report.in_changelogs += (b.end - b.start) as u64;
                if from < b.end {
                    todo.push((i, tp, from));
                }
            }
            replays.push(replay);
        }
        self.report = report;
        todo.reverse();
        self.go(Step::Restore, cx.now);
        self.restore =
            Some(Restore { replays, todo, open: BTreeMap::new(), writing: BTreeMap::new(), finishing: false });
        self.more(cx);
        Ok(())
    }

    pub(super) fn more(&mut self, cx: &mut StartCx<'_>) {
        let epoch = self.record.as_ref().map_or_else(Default::default, |r| r.epoch);
        let Some(r) = &mut self.restore else { return };
        while r.open.len() < RESTORE_WIDTH
            && let Some((i, tp, from)) = r.todo.pop()
        {
            cx.io.submit(Command::Open { partition: tp.clone(), offset: from });
            cx.io.fetch(tp.clone(), RESTORE_FETCH);
            r.open.insert(tp, i);
        }
        if r.open.is_empty() && r.writing.is_empty() && !r.finishing {
            r.finishing = true;
            let batches = r.replays.iter_mut().zip(cx.stores.iter()).map(|(p, s)| (Arc::clone(s), p.finish(epoch)));
            let batches: Vec<_> = batches.collect();
            let id = cx.io.write(|id| WriteJob { id, generation: cx.generation, batches, flush: true });
            r.writing.insert(id, None);
        }
    }

    pub(super) fn restored(&mut self, cx: &mut StartCx<'_>, f: &Fetched) -> Result<()> {
        let Some(r) = &mut self.restore else { return Ok(()) };
        let Some(&i) = r.open.get(&f.partition) else {
            return Ok(());
        };
        self.report.replayed += f.batch.len() as u64;
        let batch = r.replays[i].batch(f, cx.wall)?;
        let end = self.changelog_bounds[&*f.partition.topic][&f.partition.partition].end;
        let through = f.caught_up || f.position >= end;
        let batches = vec![(Arc::clone(&cx.stores[i]), batch)];
        let id = cx.io.write(|id| WriteJob { id, generation: cx.generation, batches, flush: false });
        r.writing.insert(id, Some((f.partition.clone(), through)));
        Ok(())
    }

    pub(super) fn written(&mut self, cx: &mut StartCx<'_>, job: u64, result: Result<()>) -> Result<()> {
        let Some(r) = &mut self.restore else { return Ok(()) };
        let Some(what) = r.writing.remove(&job) else {
            return Ok(());
        };
        result?;
        if let Some((tp, through)) = what {
            if through {
                r.open.remove(&tp);
                cx.io.submit(Command::Close { partition: tp });
            } else {
                cx.io.fetch(tp, RESTORE_FETCH);
            }
            self.more(cx);
        }
        Ok(())
    }
}
