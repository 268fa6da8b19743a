use std::collections::BTreeMap;
use std::task::Waker;
use std::time::Duration;

use super::*;
use crate::engine::message::NetEvent;
use crate::id::{Epoch, TopicPartition};
use crate::operator::ForeignTimer;
use crate::plan::SubPlan;
use crate::record::Headers;

/// Keeps what it is sent; lanes named in `full` have no room.
#[derive(Default)]
struct FakeNet {
    records: Vec<(u64, u32, Offset)>,
    lanes: BTreeMap<u64, LaneId>,
    controls: Vec<(u64, Control)>,
    full: bool,
    frontier: u64,
}

impl LaneNet for FakeNet {
    fn has_room(&self, _: LaneId) -> bool {
        !self.full
    }
    fn send(&mut self, lane: LaneId, batch: LaneBatch) {
        for item in batch.items {
            let source = &batch.sources[item.source as usize];
            assert!(item.number >= self.frontier, "nothing below the frontier follows");
            self.records.push((item.number, source.partition, source.batch.get(item.index as usize).offset));
            self.lanes.insert(item.number, lane);
        }
    }
    fn control(&mut self, number: u64, control: Control) {
        self.controls.push((number, control));
    }
    fn publish(&mut self, next: u64) {
        self.frontier = next;
    }
    fn exchange(&mut self, _: SubTopologyId, _: Epoch, _: Arc<Vec<ForeignTimer>>) {}
    fn uncommitted(&self) -> usize {
        0
    }
    fn lowest(&self) -> u64 {
        u64::MAX
    }
    fn wants_ticks(&self) -> bool {
        false
    }
    fn poll(&mut self, _: &mut Vec<NetEvent>) {}
    fn notify(&self, _: Waker) {}
    fn stop(&mut self) -> bool {
        true
    }
}

fn ingest(partitions: u32, idleness: u64) -> Ingest {
    let plan = Plan {
        application_id: "app".to_owned(),
        inputs: Vec::new(),
        subs: vec![SubPlan { name: "in".to_owned(), lanes: 3, feeders: Vec::new(), has_sources: true, foreign: false }],
        changelogs: Vec::new(),
        sink_topics: Arc::new([]),
        sink_partitions: Vec::new(),
        sink_limits: vec![],
        letters: None,
        peeks: false,
    };
    let spec = |i| InputSpec {
        sub: SubTopologyId(0),
        entry: Child(0),
        group: 0,
        lane_key: LaneKey::Raw,
        watermark: WatermarkStrategy {
            out_of_orderness: Duration::from_millis(2),
            idleness: Duration::from_millis(idleness),
            future_bound: Duration::from_secs(1),
        },
        name: format!("in-{i}"),
    };
    let cut = InputCut { next: 0, watermark: Timestamp::MIN };
    let cut = Cut { inputs: vec![cut; partitions as usize], marked: vec![Timestamp::MIN], wall: Timestamp(0) };
    let limits = Limits { max_wait: Duration::from_millis(100), fetch_budget: 1 << 20 };
    let specs = (0..partitions).map(spec).collect();
    Ingest::new(&plan, specs, &cut, limits, 0)
}

fn fetched(partition: u32, first: Offset, times: &[i64], caught_up: bool) -> Fetched {
    let mut batch = RecordBatch::default();
    for (i, t) in times.iter().enumerate() {
        batch.push(first + i as i64, Timestamp(*t), Some(&[i as u8]), Some(b"v"), Headers::default());
    }
    Fetched {
        partition: TopicPartition::new("in", partition as i32),
        batch,
        position: first + times.len() as i64,
        caught_up,
    }
}

fn order(net: &FakeNet) -> Vec<(u32, Offset)> {
    let mut rows = net.records.clone();
    rows.sort_unstable();
    rows.iter().map(|(_, p, o)| (*p, *o)).collect()
}

#[test]
fn i02_a_partition_is_never_reordered_and_heads_are_merged_by_time() {
    let (mut ingest, mut net) = (ingest(2, 0), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[5, 1, 9], true));
    ingest.fetched(1, fetched(1, 0, &[6, 7], true));
    let done = ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    assert_eq!(done, Dispatched { records: 5, stalled: false });
    assert_eq!(order(&net), [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2)]);
    assert_eq!(ingest.origin(5).unwrap(), Origin { partition: 0, offset: 2 });
    assert_eq!(ingest.origin(3).unwrap(), Origin { partition: 1, offset: 0 });
}

#[test]
fn a_partition_with_more_to_come_is_waited_for_but_not_for_ever() {
    let (mut ingest, mut net) = (ingest(2, 0), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[5], true));
    ingest.fetched(1, fetched(1, 0, &[], false));
    assert_eq!(ingest.dispatch(&mut net, 10, Timestamp(0), 100).records, 0);
    assert_eq!(ingest.deadline(), Some(110));
    assert_eq!(ingest.dispatch(&mut net, 109, Timestamp(0), 100).records, 0);
    assert_eq!(ingest.dispatch(&mut net, 110, Timestamp(0), 100).records, 1);
}

#[test]
fn c07_a_caught_up_partition_holds_nobody_back() {
    let (mut ingest, mut net) = (ingest(2, 0), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[5], false));
    ingest.fetched(1, fetched(1, 0, &[], true));
    assert_eq!(ingest.dispatch(&mut net, 0, Timestamp(0), 100).records, 1);
}

#[test]
fn i02_what_is_committed_never_passes_an_undispatched_record() {
    let (mut ingest, mut net) = (ingest(1, 0), FakeNet::default());
    ingest.fetched(0, fetched(0, 4, &[1, 2, 3], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 2);
    assert_eq!(ingest.cuts()[0].next, 6);
    ingest.dispatch(&mut net, 0, Timestamp(0), 2);
    assert_eq!(ingest.cuts()[0].next, 7);
    // Two markers behind the last record: nothing is left before them.
    let mut end = fetched(0, 7, &[], true);
    end.position = 9;
    ingest.fetched(0, end);
    assert_eq!(ingest.cuts()[0].next, 9);
}

#[test]
fn n6_a_future_record_moves_no_watermark_and_holds_nobody_back() {
    let (mut ingest, mut net) = (ingest(2, 0), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[99_999_999, 10], true));
    ingest.fetched(1, fetched(1, 0, &[11], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    assert_eq!(order(&net), [(0, 0), (0, 1), (1, 0)]);
    assert_eq!(ingest.mark(vec![None]).unwrap().watermarks, [Timestamp(8)]);
}

#[test]
fn n6_a_record_without_a_timestamp_goes_to_its_lane_and_moves_no_watermark() {
    let (mut ingest, mut net) = (ingest(1, 0), FakeNet::default());
    ingest.fetched(0, fetched(0, 7, &[-1], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    assert_eq!(order(&net), [(0, 7)]);
    assert_eq!(ingest.mark(vec![None]), None);
    ingest.fetched(0, fetched(0, 8, &[10, -1], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    assert_eq!(ingest.mark(vec![None]).unwrap().watermarks, [Timestamp(8)]);
}

#[test]
fn c08_slow_is_not_idle_and_an_idle_partition_is_left_out_of_the_watermark() {
    let (mut ingest, mut net) = (ingest(2, 50), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[100], true));
    ingest.fetched(1, fetched(1, 0, &[10], false));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    ingest.dispatch(&mut net, 200, Timestamp(0), 100);
    ingest.find_idle(1_000, u64::MAX);
    assert_eq!(ingest.watermarks(), [Timestamp(8)], "partition 1 has more to come: slow, not idle");
    ingest.fetched(1, fetched(1, 1, &[], true));
    ingest.find_idle(1_000, 1);
    assert_eq!(ingest.watermarks(), [Timestamp(8)], "its record is still inside the engine");
    ingest.find_idle(1_000, u64::MAX);
    // Both are idle now: the watermark stands.
    assert_eq!(ingest.watermarks(), [Timestamp::MIN]);
    ingest.fetched(0, fetched(0, 1, &[200], true));
    ingest.dispatch(&mut net, 1_000, Timestamp(0), 100);
    assert_eq!(ingest.watermarks(), [Timestamp(198)]);
}

#[test]
fn a_lane_without_room_stops_the_turn_and_the_frontier_stays_before_what_waits() {
    let (mut ingest, mut net) = (ingest(1, 0), FakeNet { full: true, ..FakeNet::default() });
    ingest.fetched(0, fetched(0, 0, &[1; 200], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 1000);
    assert!(net.records.is_empty());
    assert_eq!(net.frontier, 1);
    ingest.control(&mut net, Control::Barrier(Epoch(1)));
    assert_eq!(net.records.len(), 200, "a barrier comes behind everything that was dispatched");
    assert_eq!(net.controls[0].0, 201);
}
