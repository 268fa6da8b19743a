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
    with(partitions, |s| s.idleness = Duration::from_millis(idleness))
}

fn with(partitions: u32, change: impl Fn(&mut WatermarkStrategy)) -> Ingest {
    let mut watermark = WatermarkStrategy {
        out_of_orderness: Duration::from_millis(2),
        idleness: Duration::ZERO,
        future_bound: Duration::from_secs(1),
        ..WatermarkStrategy::default()
    };
    change(&mut watermark);
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
        watermark: watermark.clone(),
        name: format!("in-{i}"),
    };
    let cut = InputCut { next: 0, watermark: Timestamp::MIN };
    let cut = Cut { inputs: vec![cut; partitions as usize], marked: vec![Timestamp::MIN], wall: Timestamp(0) };
    let limits = Limits { max_wait: Duration::from_millis(100), fetch_budget: 1 << 20, batch_bytes: 1 << 20 };
    let specs = (0..partitions).map(spec).collect();
    Ingest::new(&plan, specs, &cut, limits, 0)
}

/// Finds idle partitions as an engine does that asks a broker where partitions end.
fn find_idle(ingest: &mut Ingest, now: u64, lowest: u64, ends: &[NextOffset]) -> Vec<u32> {
    let asked = ingest.silent(now, lowest, Timestamp::MIN);
    let answer: Vec<_> = asked.iter().map(|i| (*i, ends[*i as usize])).collect();
    ingest.ends(now, &answer, lowest);
    asked
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
fn t7_a_caught_up_partition_holds_nobody_back() {
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
fn t8_slow_is_not_idle_and_an_idle_partition_is_left_out_of_the_watermark() {
    let (mut ingest, mut net) = (ingest(2, 50), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[100], true));
    ingest.fetched(1, fetched(1, 0, &[10], false));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    ingest.dispatch(&mut net, 200, Timestamp(0), 100);
    find_idle(&mut ingest, 1_000, u64::MAX, &[1, 2]);
    assert_eq!(ingest.watermarks(), [Timestamp(8)], "partition 1 has more to come: slow, not idle");
    ingest.fetched(1, fetched(1, 1, &[], true));
    find_idle(&mut ingest, 1_000, 1, &[1, 1]);
    assert_eq!(ingest.watermarks(), [Timestamp(8)], "its record is still inside the engine");
    find_idle(&mut ingest, 1_000, u64::MAX, &[1, 1]);
    assert_eq!(ingest.watermarks(), [Timestamp(98)], "both are idle now: none holds the other back");
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

#[test]
fn i07_what_lanes_are_sent_ahead_is_bounded_in_bytes_too() {
    let (mut ingest, mut net) = (ingest(1, 0), FakeNet { full: true, ..FakeNet::default() });
    ingest.batch_bytes = 20;
    ingest.fetched(0, fetched(0, 0, &[1; 200], true));
    let done = ingest.dispatch(&mut net, 0, Timestamp(0), 1000);
    // Three lanes, records of two bytes: no more than three batches of ten.
    assert!(done.stalled && (10..=30).contains(&done.records), "{done:?}");
    net.full = false;
    ingest.dispatch(&mut net, 0, Timestamp(0), 1000);
    assert_eq!(net.records.len(), 200);
}

#[test]
fn i07_a_record_larger_than_a_batch_goes_alone() {
    let (mut ingest, mut net) = (ingest(1, 0), FakeNet::default());
    ingest.batch_bytes = 1;
    ingest.fetched(0, fetched(0, 0, &[1; 5], true));
    assert_eq!(ingest.dispatch(&mut net, 0, Timestamp(0), 1000), Dispatched { records: 5, stalled: false });
    assert_eq!(net.records.len(), 5);
}

#[test]
fn t8_a_partition_that_the_broker_knows_more_of_is_slow_and_asked_about_again_a_timeout_later() {
    let (mut ingest, mut net) = (ingest(1, 50), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[100], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    // Five records lie there, and the fetch that is on its way does not bring them.
    assert_eq!(find_idle(&mut ingest, 50, u64::MAX, &[6]), [0]);
    assert_eq!(find_idle(&mut ingest, 99, u64::MAX, &[6]), [0; 0]);
    assert_eq!(find_idle(&mut ingest, 100, u64::MAX, &[6]), [0]);
    assert!(!ingest.inputs[0].idle);
    ingest.fetched(0, fetched(0, 1, &[110, 111, 112, 113, 114], true));
    ingest.dispatch(&mut net, 120, Timestamp(0), 100);
    assert_eq!(find_idle(&mut ingest, 169, u64::MAX, &[6]), [0; 0]);
    assert_eq!(find_idle(&mut ingest, 170, u64::MAX, &[6]), [0]);
    assert!(ingest.inputs[0].idle);
}

#[test]
fn t8_an_answer_that_records_have_overtaken_makes_nothing_idle() {
    let (mut ingest, mut net) = (ingest(1, 50), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[100], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    assert_eq!(ingest.silent(50, u64::MAX, Timestamp::MIN), [0]);
    ingest.fetched(0, fetched(0, 1, &[110], true));
    ingest.dispatch(&mut net, 55, Timestamp(0), 100);
    ingest.ends(50, &[(0, 1)], u64::MAX);
    assert!(!ingest.inputs[0].idle);
    // And while nobody could answer, nobody was silent.
    ingest.heard_nothing(200);
    assert_eq!(ingest.silent(249, u64::MAX, Timestamp::MIN), [0; 0]);
    assert_eq!(ingest.silent(250, u64::MAX, Timestamp::MIN), [0]);
}

#[test]
fn t9_event_time_goes_on_with_the_wall_clock_where_all_partitions_are_silent() {
    let close = |s: &mut WatermarkStrategy| s.close_on_idle = Some(Duration::from_millis(100));
    let (mut ingest, mut net) = (with(2, close), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[0, 500], true));
    ingest.fetched(1, fetched(1, 0, &[300], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    find_idle(&mut ingest, 100, u64::MAX, &[2, 9]);
    assert_eq!(ingest.watermarks(), [Timestamp(298)], "partition 1 has more to come");
    find_idle(&mut ingest, 250, u64::MAX, &[2, 1]);
    assert_eq!(ingest.watermarks(), [Timestamp(750)], "the largest time, and the silence");
    let mark = ingest.mark(vec![None]).unwrap();
    ingest.control(&mut net, Control::Mark(Arc::new(mark)));
    // A record ends the silence; what closed stays closed.
    ingest.fetched(0, fetched(0, 2, &[700], true));
    ingest.dispatch(&mut net, 260, Timestamp(0), 100);
    find_idle(&mut ingest, 350, u64::MAX, &[3, 1]);
    assert_eq!(ingest.watermarks(), [Timestamp(750)]);
    find_idle(&mut ingest, 400, u64::MAX, &[3, 1]);
    assert_eq!(ingest.watermarks(), [Timestamp(840)]);
}

#[test]
fn t9_nobody_asks_before_the_silence_would_reach_what_waits() {
    let close = |s: &mut WatermarkStrategy| s.close_on_idle = Some(Duration::from_millis(100));
    let (mut ingest, mut net) = (with(1, close), FakeNet::default());
    ingest.fetched(0, fetched(0, 0, &[500], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    assert_eq!(ingest.silent(499, u64::MAX, Timestamp(1_000)), [0; 0]);
    assert_eq!(ingest.silent(500, u64::MAX, Timestamp::MAX), [0; 0], "nothing waits");
    assert_eq!(ingest.silent(500, u64::MAX, Timestamp(1_000)), [0]);
}

#[test]
fn t9_a_partition_whose_source_does_not_close_holds_the_others_until_it_is_idle() {
    let plain = with(2, |s| s.idleness = Duration::from_millis(300));
    let specs: Vec<InputSpec> = plain.inputs.iter().map(|i| i.spec.clone()).collect();
    let (mut ingest, mut net) = (plain, FakeNet::default());
    for (input, mut spec) in ingest.inputs.iter_mut().zip(specs) {
        spec.watermark.close_on_idle =
            (input.keyless == lane_hash(&0_u32.to_be_bytes())).then_some(Duration::from_millis(100));
        input.spec = spec;
    }
    ingest.fetched(0, fetched(0, 0, &[500], true));
    ingest.fetched(1, fetched(1, 0, &[300], true));
    ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    find_idle(&mut ingest, 200, u64::MAX, &[1, 1]);
    assert_eq!(ingest.watermarks(), [Timestamp(298)]);
    find_idle(&mut ingest, 300, u64::MAX, &[1, 1]);
    assert_eq!(ingest.watermarks(), [Timestamp(800)]);
}

/// A partition whose records say how far it is: the first byte of the value.
#[derive(Default)]
struct Said(i64);

impl WatermarkGenerator for Said {
    fn on_record(&mut self, _timestamp: Timestamp, record: &crate::record::RawRecord<'_>) -> Watermark {
        self.0 = i64::from(record.value.and_then(|v| v.first()).copied().unwrap_or_default());
        Timestamp(self.0)
    }
}

#[test]
fn a_generator_of_the_users_moves_the_watermark_forward_only_and_not_beyond_the_bound() {
    let custom = |s: &mut WatermarkStrategy| s.generator = Some(crate::time::Generator::of::<Said>());
    let (mut ingest, mut net) = (with(1, custom), FakeNet::default());
    for (offset, says, watermark) in [(0, 20_u8, 20), (1, 10, 20), (2, 90, 50)] {
        let mut batch = RecordBatch::default();
        batch.push(offset, Timestamp(1), Some(b"k"), Some(&[says]), Headers::default());
        let partition = TopicPartition::new("in", 0);
        ingest.fetched(0, Fetched { partition, batch, position: offset + 1, caught_up: true });
        // The wall clock is 950 ms before 1970, the bound a second.
        ingest.dispatch(&mut net, 0, Timestamp(-950), 100);
        assert_eq!(ingest.watermarks(), [Timestamp(watermark)]);
    }
}

#[test]
fn n6_a_record_without_a_timestamp_is_skipped_on_request_and_its_offset_passed() {
    let counters = metrics::Counters::default();
    counters.during(|| {
        let (mut ingest, mut net) = (with(1, |s| s.no_timestamp = NoTimestamp::Skip), FakeNet::default());
        ingest.fetched(0, fetched(0, 0, &[5, -1, 7, -1], true));
        assert_eq!(ingest.dispatch(&mut net, 0, Timestamp(0), 100).records, 4);
        assert_eq!(order(&net), [(0, 0), (0, 2)]);
        assert_eq!((ingest.cuts()[0].next, ingest.records()), (4, 4), "there is something to commit");
        assert_eq!(ingest.origin(2).unwrap(), Origin { partition: 0, offset: 2 });
    });
    assert_eq!(counters.get(metrics::DROPPED_RECORDS), Some(2));
}

#[test]
fn n6_late_and_future_records_are_counted() {
    let counters = metrics::Counters::default();
    counters.during(|| {
        let (mut ingest, mut net) = (ingest(1, 0), FakeNet::default());
        ingest.fetched(0, fetched(0, 0, &[100, 5_000, 10], true));
        ingest.dispatch(&mut net, 0, Timestamp(0), 100);
        let mark = ingest.mark(vec![None]).unwrap();
        assert_eq!(mark.watermarks, [Timestamp(98)]);
        assert_eq!(counters.get(metrics::LATE_RECORDS), Some(0), "what counts is the mark before the record");
        ingest.control(&mut net, Control::Mark(Arc::new(mark)));
        ingest.fetched(0, fetched(0, 3, &[97, 98], true));
        ingest.dispatch(&mut net, 0, Timestamp(0), 100);
    });
    assert_eq!(counters.get(metrics::LATE_RECORDS), Some(1));
    assert_eq!(counters.get(metrics::FUTURE_RECORDS), Some(1));
}

/// Keeps all that the lane of the first record is sent.
#[derive(Default)]
struct SlowLane {
    slow: Option<LaneId>,
    kept: Vec<LaneBatch>,
}

impl SlowLane {
    /// Bytes of fetched batches that it keeps alive.
    fn holds(&self) -> usize {
        let sources = self.kept.iter().flat_map(|b| &b.sources);
        let batches: BTreeMap<_, _> = sources.map(|s| (Arc::as_ptr(&s.batch), s.batch.weight())).collect();
        batches.values().sum()
    }
}

impl LaneNet for SlowLane {
    fn has_room(&self, _: LaneId) -> bool {
        true
    }
    fn send(&mut self, lane: LaneId, batch: LaneBatch) {
        if *self.slow.get_or_insert(lane) == lane {
            self.kept.push(batch);
        }
    }
    fn control(&mut self, _: u64, _: Control) {}
    fn publish(&mut self, _: u64) {}
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

#[test]
fn i07_a_slow_lane_with_a_record_of_each_fetch_before_it_holds_a_few_fetches_and_not_all() {
    let (mut ingest, mut net) = (ingest(1, 0), SlowLane::default());
    let (mut next, mut demand) = (0, Vec::new());
    let mut turn = |ingest: &mut Ingest, net: &mut SlowLane| {
        demand.clear();
        ingest.demand(&mut demand);
        for _ in &demand {
            let mut batch = RecordBatch::default();
            for key in 0..60_u8 {
                batch.push(next, Timestamp(1), Some(&[key]), Some(&[0; 10_000]), Headers::default());
                next += 1;
            }
            let partition = TopicPartition::new("in", 0);
            ingest.fetched(0, Fetched { partition, batch, position: next, caught_up: false });
        }
        ingest.dispatch(net, 0, Timestamp(0), 10_000);
        !demand.is_empty()
    };
    for _ in 0..100 {
        turn(&mut ingest, &mut net);
    }
    assert!(net.holds() < 4 << 20, "{} bytes", net.holds());
    assert!(ingest.held(), "it is looked at again");
    net.kept.clear();
    assert!(turn(&mut ingest, &mut net), "it goes on");
    assert!(!ingest.held());
}
