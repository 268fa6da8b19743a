//! An epoch's end as pure functions: outputs of all lanes merged in ingest order, changelog records, stamps.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::epoch_record::{EPOCH_KEY, EpochRecord, PLAN_KEY, PlanRecord, encode};
use super::tag::TagCursor;
use crate::hash::partition_for;
use crate::id::{Epoch, NextOffset, StoreId, TopicPartition};
use crate::operator::Outputs;
use crate::record::{Headers, ProduceBatch};
use crate::store::{Batch, Row, Stamp};
use crate::time::Timestamp;

/// The order of all lanes' outputs by tag, as (lane's place, record). Each lane's are in rising order already.
pub fn merge(lanes: &[Outputs]) -> Vec<(u32, u32)> {
    let total = lanes.iter().map(|o| o.tags.len()).sum();
    let mut order = Vec::with_capacity(total);
    let mut heads: Vec<(u32, TagCursor<'_>)> = (0..).zip(lanes.iter().map(|o| o.tags.cursor())).collect();
    loop {
        heads.retain(|(_, head)| head.number().is_some());
        // The lane with the smallest head, and the smallest head of the others: up to there it is one run.
        let (mut best, mut second): (Option<usize>, Option<usize>) = (None, None);
        for i in 0..heads.len() {
            let less = |j: Option<usize>| j.is_none_or(|j| before(&heads[i].1, &heads[j].1));
            if less(best) {
                second = best;
                best = Some(i);
            } else if less(second) {
                second = Some(i);
            }
        }
        let Some(best) = best else { return order };
        let bound = second.map(|j| heads[j].1);
        let (lane, head) = &mut heads[best];
        while head.number().is_some() && bound.is_none_or(|b| !before(&b, head)) {
            order.push((*lane, head.at() as u32));
            head.advance();
        }
    }
}

/// Whether one tag comes before another. Mostly the numbers alone decide.
#[inline]
fn before(a: &TagCursor<'_>, b: &TagCursor<'_>) -> bool {
    match a.number().cmp(&b.number()) {
        Ordering::Equal => a.path() < b.path(),
        other => other.is_lt(),
    }
}

/// Where a store's changelog is.
#[derive(Clone, Debug)]
pub struct ChangelogTarget {
    /// The topic.
    pub topic: Arc<str>,
    /// The broker's id of it.
    pub topic_id: String,
    /// Its partition count.
    pub partitions: i32,
    /// How long its tombstones stay; `None`: as long as all else.
    pub delete_retention: Option<Duration>,
}

/// Changelog records of all stores, by [`StoreId`].
pub fn changelog_batch(targets: &[ChangelogTarget], stores: &[(StoreId, Vec<Row>)]) -> ProduceBatch {
    let rows = || stores.iter().flat_map(|(_, rows)| rows);
    let bytes = rows().map(|r| r.key.len() + r.value.as_ref().map_or(0, Vec::len)).sum();
    let topics = targets.iter().map(|t| t.topic.clone()).collect();
    let mut batch = ProduceBatch::with_capacity(topics, rows().count(), bytes);
    for (store, rows) in stores {
        let target = &targets[store.0 as usize];
        for row in rows {
            let partition = partition_for(&row.key[..row.lane_key], target.partitions);
            batch.push(store.0, partition, row.timestamp, Some(&row.key), row.value.as_deref(), Headers::default());
        }
    }
    batch
}

/// The epoch record, and the plan record where it is written too, as a batch for the epoch topic.
pub fn epoch_batch(topic: &Arc<str>, record: &EpochRecord, plan: Option<&PlanRecord>, now: Timestamp) -> ProduceBatch {
    let mut batch = ProduceBatch::new(Arc::new([topic.clone()]));
    if let Some(plan) = plan {
        batch.push(0, 0, now, Some(PLAN_KEY), Some(&encode(plan)), Headers::default());
    }
    batch.push(0, 0, now, Some(EPOCH_KEY), Some(&encode(record)), Headers::default());
    batch
}

/// What is written to each store once the epoch is committed: its rows and the changelog offsets that it reaches.
/// With `renew` also stores without rows get a new stamp.
pub fn store_batches(
    targets: &[ChangelogTarget],
    stores: Vec<(StoreId, Vec<Row>)>,
    ends: &[(TopicPartition, NextOffset)],
    epoch: Epoch,
    now: Timestamp,
    renew: bool,
) -> Vec<(StoreId, Batch)> {
    let mut rows: BTreeMap<StoreId, Vec<Row>> = BTreeMap::new();
    for (store, more) in stores {
        rows.entry(store).or_default().extend(more);
    }
    let mut batches = Vec::new();
    for (i, target) in targets.iter().enumerate() {
        let store = StoreId(i as u32);
        let rows = rows.remove(&store).unwrap_or_default();
        if rows.is_empty() && !renew {
            continue;
        }
        let offsets =
            ends.iter().filter(|(tp, _)| tp.topic == target.topic).map(|(tp, o)| (tp.partition, *o)).collect();
        let stamp = Stamp { epoch, time: now, topic_id: target.topic_id.clone(), offsets };
        batches.push((store, Batch { rows, stamp }));
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::tag::{Path, Tags};

    fn outputs(tags: &[(u64, u32)]) -> Outputs {
        let mut all = Tags::default();
        for (number, emission) in tags {
            let mut path = Path::default();
            if *emission > 0 {
                path.descend(*emission);
            }
            all.push(*number, &path);
        }
        Outputs { batch: ProduceBatch::default(), tags: all }
    }

    #[test]
    fn i01_outputs_of_all_lanes_go_out_in_ingest_order() {
        let lane = |numbers: &[u64]| outputs(&numbers.iter().map(|n| (*n, 0)).collect::<Vec<_>>());
        let lanes = [lane(&[1, 2, 7]), lane(&[3, 6]), lane(&[]), lane(&[4, 5, 8])];
        let places = [(0, 0), (0, 1), (1, 0), (3, 0), (3, 1), (1, 1), (0, 2), (3, 2)];
        assert_eq!(merge(&lanes), places);
    }

    #[test]
    fn i01_outputs_of_one_record_on_several_lanes_go_out_by_their_paths() {
        let lanes =
            [outputs(&[(1, 2), (1, 3), (2, 1)]), outputs(&[(1, 0), (1, 4), (2, 0), (3, 0)]), outputs(&[(1, 1)])];
        let places = [(1, 0), (2, 0), (0, 0), (0, 1), (1, 1), (1, 2), (0, 2), (1, 3)];
        assert_eq!(merge(&lanes), places);
    }

    #[test]
    fn i12_a_changelog_record_goes_to_the_partition_of_its_lane_key() {
        let targets = [ChangelogTarget {
            topic: "app-t-changelog".into(),
            topic_id: String::new(),
            partitions: 5,
            delete_retention: None,
        }];
        let mut key = b"abc".to_vec();
        key.extend_from_slice(&7_u64.to_be_bytes());
        let row = Row { key, lane_key: 3, value: Some(Vec::new()), timestamp: Timestamp(1) };
        let batch = changelog_batch(&targets, &[(StoreId(0), vec![row])]);
        assert_eq!(batch.get(0).partition, partition_for(b"abc", 5));
    }

    #[test]
    fn a_store_without_rows_gets_a_stamp_only_when_stamps_are_renewed() {
        let target = |t: &str| ChangelogTarget {
            topic: t.into(),
            topic_id: "id".to_owned(),
            partitions: 1,
            delete_retention: None,
        };
        let targets = [target("a"), target("b")];
        let row = Row { key: b"k".to_vec(), lane_key: 1, value: None, timestamp: Timestamp(1) };
        let ends = [(TopicPartition::new("a", 0), 5), (TopicPartition::new("other", 0), 9)];
        let rows = vec![(StoreId(0), vec![row])];
        let some = store_batches(&targets, rows.clone(), &ends, Epoch(3), Timestamp(4), false);
        assert_eq!(some.len(), 1);
        assert_eq!(some[0].1.stamp.offsets, BTreeMap::from([(0, 5)]));
        let all = store_batches(&targets, rows, &ends, Epoch(3), Timestamp(4), true);
        assert_eq!(all.len(), 2);
        assert!(all[1].1.stamp.offsets.is_empty() && all[1].1.rows.is_empty());
    }
}
