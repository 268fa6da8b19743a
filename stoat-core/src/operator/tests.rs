use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::harness::{OneLane, processor, sink, source};
use super::{Child, LaneCx, Operator, Outputs};
use crate::codec::{Be, Bytes, Json, Nullable, Utf8};
use crate::engine::tag::Path;
use crate::error::{Error, ErrorKind, Result};
use crate::hash::{lane_hash, lane_of};
use crate::id::LaneIdx;
use crate::operator::hand_over::{ByCodec, ByLane, HandOverOperator};
use crate::processor::{Context, Fired, Handlers, Rekey};
use crate::record::{Origin, ProduceBatch, Record};
use crate::store::{Keyed, StoreKind};
use crate::time::{Now, Timestamp};
use crate::topology::lane_state::{DecodeOnly, Lane};
use crate::topology::{Branch, Topology};

source!(Lines, "lines", String, String, Utf8, Utf8, Lane<Utf8>);
source!(Loose, "loose", Option<String>, String, Nullable<Utf8>, Utf8, Lane<Nullable<Utf8>>);
source!(Numbers, "numbers", String, i64, Utf8, Json, Lane<Utf8>);
source!(ReadOnly, "read-only", String, i64, Utf8, Json, DecodeOnly<Utf8>);
sink!(Out, "out", String, String, Utf8, Utf8);
sink!(Counts, "counts", String, u64, Utf8, Json);
sink!(Sums, "sums", String, i64, Utf8, Json);
sink!(LooseOut, "loose-out", Option<String>, String, Nullable<Utf8>, Utf8);

fn run(declare: impl FnOnce(&mut Topology)) -> OneLane {
    let mut t = Topology::new("test");
    declare(&mut t);
    OneLane::new(t.build().unwrap())
}

fn lines(lane: &mut OneLane, records: &[(&str, &str, i64)]) -> Vec<String> {
    for (k, v, t) in records {
        lane.pipe("lines", Some(k.as_bytes()), Some(v.as_bytes()), *t).unwrap();
    }
    shown(lane)
}

fn shown(lane: &mut OneLane) -> Vec<String> {
    lane.outputs().into_iter().map(|(topic, k, v, t)| format!("{topic}:{k}={v}@{t}")).collect()
}

#[test]
fn stateless_steps_run_in_the_order_of_the_chain() {
    let mut lane = run(|t| {
        t.source::<Lines>()
            .filter(|_, v| v != "drop")
            .filter_not(|_, v| v == "drop too")
            .map_values(|v| v.to_uppercase())
            .flat_map_values(|v| vec![v.clone(), format!("{v}!")])
            .select_key(|k, _| format!("{k}{k}"))
            .map(|k, v| (k, format!("<{v}>")))
            .sink::<Out>();
    });
    let out = lines(&mut lane, &[("a", "x", 5), ("a", "drop", 6), ("b", "drop too", 7), ("b", "y", 8)]);
    assert_eq!(out, ["out:aa=<X>@5", "out:aa=<X!>@5", "out:bb=<Y>@8", "out:bb=<Y!>@8"]);
}

#[test]
fn an_error_of_a_step_is_the_error_of_the_record() {
    let mut lane = run(|t| {
        t.source::<Lines>()
            .try_map_values(|v| v.parse::<i64>().map_err(|e| Error::handler(e.to_string())))
            .sink::<Sums>();
    });
    lane.pipe("lines", Some(b"a"), Some(b"1"), 0).unwrap();
    let e = lane.pipe("lines", Some(b"a"), Some(b"one"), 0).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Handler);
    assert_eq!(shown(&mut lane), ["sums:a=1@0"]);
}

#[test]
fn each_branch_of_a_fan_out_gets_each_record_the_first_branch_first() {
    let mut lane = run(|t| {
        let [a, b, c] = t.source::<Lines>().fan_out();
        // Consumed in another order than declared.
        c.map_values(|v| v + "c").sink::<Out>();
        a.map_values(|v| v + "a").sink::<Out>();
        b.map_values(|v| v + "b").sink::<Out>();
    });
    let out = lines(&mut lane, &[("k", "1", 0), ("k", "2", 1)]);
    let want = ["1a@0", "1b@0", "1c@0", "2a@1", "2b@1", "2c@1"];
    assert_eq!(out, want.map(|v| format!("out:k={v}")));
}

#[test]
fn a_split_gives_each_record_to_the_first_branch_that_takes_it() {
    let mut lane = run(|t| {
        let [short, xs, rest] = t.source::<Lines>().split([
            Branch::when(|_, v: &String| v.len() < 2),
            Branch::when(|_, v: &String| v.starts_with('x')),
            Branch::rest(),
        ]);
        rest.map_values(|v| "rest ".to_owned() + &v).sink::<Out>();
        short.map_values(|v| "short ".to_owned() + &v).sink::<Out>();
        xs.map_values(|v| "xs ".to_owned() + &v).sink::<Out>();
    });
    let out = lines(&mut lane, &[("k", "x", 0), ("k", "xx", 1), ("k", "yy", 2)]);
    assert_eq!(out, ["out:k=short x@0", "out:k=xs xx@1", "out:k=rest yy@2"]);
}

#[test]
fn a_split_without_a_rest_drops_what_no_branch_takes() {
    let mut lane = run(|t| {
        let [a] = t.source::<Lines>().split([Branch::when(|_, v: &String| v == "a")]);
        a.sink::<Out>();
    });
    assert_eq!(lines(&mut lane, &[("k", "b", 0), ("k", "a", 1)]), ["out:k=a@1"]);
}

#[test]
fn a_merge_keeps_the_order_of_emission_of_its_inputs() {
    let mut lane = run(|t| {
        let [a, b] = t.source::<Lines>().fan_out();
        a.merge(b.map_values(|v| v + "'")).sink::<Out>();
    });
    assert_eq!(
        lines(&mut lane, &[("k", "1", 0), ("k", "2", 0)]),
        ["out:k=1@0", "out:k=1'@0", "out:k=2@0", "out:k=2'@0"]
    );
}

#[test]
fn a_count_forwards_each_update_with_the_largest_time_so_far() {
    let mut lane = run(|t| {
        t.source::<Lines>().group_by_key().count().named("n").to_stream().sink::<Counts>();
    });
    let out = lines(&mut lane, &[("a", "", 10), ("b", "", 3), ("a", "", 7), ("a", "", 12)]);
    assert_eq!(out, ["counts:a=1@10", "counts:b=1@3", "counts:a=2@10", "counts:a=3@12"]);

    let rows = lane.freeze();
    let rows: Vec<_> =
        rows["n"].iter().map(|r| (r.key.as_slice(), r.lane_key, r.value.clone().unwrap(), r.timestamp.0)).collect();
    assert_eq!(
        rows,
        [(b"a".as_slice(), 1, 3_u64.to_be_bytes().to_vec(), 12), (b"b".as_slice(), 1, 1_u64.to_be_bytes().to_vec(), 3),]
    );
}

#[test]
fn i11_an_aggregate_goes_on_where_its_store_ends() {
    let declare = || {
        let mut t = Topology::new("test");
        let totals = t.source::<Numbers>().group_by_key().aggregate(|| 100, |sum: &mut i64, _, v| *sum += v);
        totals.named("sum").to_stream().sink::<Sums>();
        t.build().unwrap()
    };
    let mut lane = OneLane::new(declare());
    lane.pipe("numbers", Some(b"a"), Some(b"5"), 50).unwrap();
    let rows = lane.freeze();
    // Not yet applied: the lane itself sees what it wrote.
    lane.pipe("numbers", Some(b"a"), Some(b"6"), 40).unwrap();
    assert_eq!(shown(&mut lane), ["sums:a=105@50", "sums:a=111@50"]);
    lane.apply(&rows);

    let mut next = OneLane::with_stores(declare(), lane.stores.clone());
    next.pipe("numbers", Some(b"a"), Some(b"1"), 1).unwrap();
    assert_eq!(shown(&mut next), ["sums:a=106@50"], "only the applied epoch counts");
}

#[test]
fn a_reduce_begins_with_the_first_value() {
    let mut lane = run(|t| {
        t.source::<Numbers>()
            .group_by_key()
            .stored_as::<Be>()
            .reduce(i64::max)
            .named("largest")
            .to_stream()
            .sink::<Sums>();
    });
    for v in ["3", "1", "7"] {
        lane.pipe("numbers", Some(b"k"), Some(v.as_bytes()), 0).unwrap();
    }
    assert_eq!(shown(&mut lane), ["sums:k=3@0", "sums:k=3@0", "sums:k=7@0"]);
    assert_eq!(lane.freeze()["largest"][0].value, Some(7_i64.to_be_bytes().to_vec()));
}

#[test]
fn a_group_behind_a_changed_key_runs_in_a_sub_topology_of_its_own() {
    let mut lane = run(|t| {
        t.source::<Lines>()
            .flat_map_values(|l| l.split(' ').map(str::to_owned).collect::<Vec<_>>())
            .group_by(|_, word| word.clone())
            .count()
            .named("words")
            .to_stream()
            .sink::<Counts>();
    });
    assert_eq!(lane.graph.subs, 2);
    assert_eq!(
        lines(&mut lane, &[("1", "to be or not to be", 0)]),
        ["to=1", "be=1", "or=1", "not=1", "to=2", "be=2"].map(|v| format!("counts:{v}@0"))
    );
}

#[test]
fn a_record_without_a_key_passes_stateless_steps_and_sinks() {
    let mut lane = run(|t| t.source::<Loose>().map_values(|v| v + "!").sink::<LooseOut>());
    lane.pipe("loose", None, Some(b"a"), 0).unwrap();
    lane.pipe("loose", Some(b"k"), Some(b"b"), 0).unwrap();
    assert_eq!(shown(&mut lane), ["loose-out:null=a!@0", "loose-out:k=b!@0"]);
}

#[test]
fn with_key_drops_records_without_a_key_so_that_others_can_be_counted() {
    let mut lane = run(|t| {
        t.source::<Loose>().with_key().group_by_key().count().named("n").to_stream().sink::<Counts>();
    });
    lane.pipe("loose", None, Some(b"a"), 0).unwrap();
    lane.pipe("loose", Some(b"k"), Some(b"b"), 0).unwrap();
    assert_eq!(shown(&mut lane), ["counts:k=1@0"]);
    assert_eq!(lane.graph.subs, 1);
}

#[test]
fn bytes_that_cannot_be_decoded_are_told_with_node_and_codec() {
    let mut lane = run(|t| t.source::<Numbers>().named("amounts").sink::<Sums>());
    let e = lane.pipe("numbers", Some(b"k"), Some(b"{"), 0).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Codec);
    let text = e.to_string();
    assert!(text.starts_with("value of amounts (Json): malformed JSON: "), "{text}");
    let e = lane.pipe("numbers", None, Some(b"1"), 0).unwrap_err();
    assert!(e.to_string().starts_with("key of amounts (Utf8): it is null"), "{e}");
}

#[test]
fn for_each_and_peek_see_records_and_a_discarded_stream_ends() {
    let seen = Arc::new(AtomicU64::new(0));
    let (peeked, ended) = (seen.clone(), seen.clone());
    let mut lane = run(|t| {
        let [a, b] = t.source::<Lines>().fan_out();
        a.peek(move |_, _| {
            peeked.fetch_add(1, Ordering::Relaxed);
        })
        .discard();
        b.for_each(move |_, _| {
            ended.fetch_add(100, Ordering::Relaxed);
        });
    });
    lines(&mut lane, &[("k", "v", 0), ("k", "v", 0)]);
    assert_eq!(seen.load(Ordering::Relaxed), 202);
}

processor!(Doubler, (String, i64) => Keep(String, i64), {});

impl Handlers for Doubler {
    const ON_TIMER: &'static [&'static str] = &[];
    fn process(&mut self, record: Record<String, i64>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(record.value)?;
        cx.forward_at(Timestamp(record.timestamp.0 + 1), record.value * 2)
    }
    fn fire(&mut self, field: usize, _: Fired<String>, _: &mut Context<Self>) -> Result<()> {
        crate::__private::no_handler::<Self>(field)
    }
}

#[test]
fn a_processor_without_state_runs_on_any_lane_and_keeps_the_key() {
    let mut lane = run(|t| {
        let [a, b] = t.source::<ReadOnly>().fan_out();
        a.process::<Doubler>().sink::<Sums>();
        b.select_key(|k, _| k.to_uppercase()).process::<Doubler>().sink::<Sums>();
    });
    lane.pipe("read-only", Some(b"k"), Some(b"4"), 9).unwrap();
    assert_eq!(shown(&mut lane), ["sums:k=4@9", "sums:k=8@10", "sums:K=4@9", "sums:K=8@10"]);
}

processor!(ByLength, (String, String) => Rekey(u64, String), { last: Keyed<String> });

impl Handlers for ByLength {
    const ON_TIMER: &'static [&'static str] = &[];
    fn process(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        if record.value == "fail" {
            self.last.put("written before".into())?;
            cx.forward(0, "forwarded before".into())?;
            return Err(Error::handler("refused"));
        }
        let before = self.last.get()?.cloned().unwrap_or_default();
        self.last.put(record.value.clone())?;
        cx.forward(record.value.len() as u64, format!("{before}>{}", record.value))
    }
    fn fire(&mut self, field: usize, _: Fired<String>, _: &mut Context<Self>) -> Result<()> {
        crate::__private::no_handler::<Self>(field)
    }
}
sink!(ByLengthOut, "by-length", u64, String, Json, Utf8);

#[test]
fn a_processor_that_names_keys_changes_the_key() {
    let _: fn(Rekey) = drop;
    let mut lane = run(|t| {
        let lengths = t.source::<Lines>().process::<ByLength>();
        lengths.repartition().named("by-length").sink::<ByLengthOut>();
    });
    assert_eq!(lane.graph.subs, 2);
    assert_eq!(
        lines(&mut lane, &[("a", "xx", 1), ("a", "y", 2), ("b", "z", 3)]),
        ["by-length:2=>xx@1", "by-length:1=xx>y@2", "by-length:1=>z@3"]
    );
}

#[test]
fn what_a_handler_that_fails_forwarded_goes_nowhere() {
    let mut lane = run(|t| t.source::<Lines>().process::<ByLength>().sink::<ByLengthOut>());
    let e = lane.pipe("lines", Some(b"a"), Some(b"fail"), 1).unwrap_err();
    assert_eq!(e.to_string(), "ByLength: refused");
    assert_eq!(e.kind(), ErrorKind::Handler);
    assert_eq!(lines(&mut lane, &[("b", "y", 2)]), ["by-length:1=>y@2"]);
}

fn with_cx<R>(
    nodes: &mut [Option<Box<dyn Operator>>],
    number: u64,
    origin: Option<Origin>,
    call: impl FnOnce(&mut LaneCx<'_>) -> R,
) -> R {
    let mut outputs = Outputs::default();
    let mut cx = LaneCx {
        nodes,
        number,
        path: Path::default(),
        key: super::CurrentKey::default(),
        now: Now { watermark: Timestamp::MIN, wall: Timestamp::MIN },
        origin,
        outputs: &mut outputs,
        sink_partitions: &[],
        gate: &mut crate::gate::LaneGate::default(),
    };
    call(&mut cx)
}

/// Collects what reaches it: (key, value, current key, number, origin).
struct Probe(Arc<std::sync::Mutex<Vec<String>>>);

impl Operator for Probe {
    fn push(&mut self, record: &mut dyn std::any::Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let r = super::take::<String, u32>(record);
        self.0.lock().unwrap().push(format!(
            "{}={} key {:?} number {} hash {} offset {}",
            r.key,
            r.value,
            String::from_utf8_lossy(&cx.key.bytes),
            cx.number,
            cx.key.hash == lane_hash(&cx.key.bytes),
            cx.origin.unwrap().offset
        ));
        Ok(())
    }
}

#[test]
fn i1_a_hand_over_sends_each_key_to_the_lane_of_its_bytes_in_rising_order_of_tags() {
    let lanes = 5;
    let by = ByCodec::<Utf8> { name: "test".into(), codec: std::marker::PhantomData };
    let mut op = HandOverOperator::<String, u32, _>::new(by, lanes);
    for i in 0..100_u32 {
        let origin = Origin { partition: 3, offset: i64::from(i) };
        with_cx(&mut [], u64::from(i), Some(origin), |cx| {
            let record = Record::new(format!("key {}", i % 10), i, Timestamp(0));
            op.push(&mut Some(record), cx).unwrap();
        });
    }
    let mut batches = Vec::new();
    op.outbound().unwrap().take(&mut batches);
    assert_eq!(batches.iter().map(|(_, b)| b.len()).sum::<usize>(), 100);
    assert!(batches.len() > 1, "ten keys fall on more than one of five lanes");
    for (LaneIdx(lane), mut batch) in batches {
        assert!((1..batch.len()).all(|i| batch.tag(i - 1) < batch.tag(i)));
        assert!(batch.weight() > batch.len() * size_of::<Record<String, u32>>());
        let seen = Arc::default();
        let mut nodes: Vec<Option<Box<dyn Operator>>> = vec![Some(Box::new(Probe(Arc::clone(&seen))))];
        for i in 0..batch.len() {
            with_cx(&mut nodes, 0, None, |cx| {
                cx.path = Path::end();
                batch.deliver(i, Child(0), cx).unwrap();
                assert!(cx.path.is_root());
            });
        }
        for line in seen.lock().unwrap().iter() {
            let n: u32 = line.split(['=', ' ']).nth(2).unwrap().parse().unwrap();
            let key = format!("key {}", n % 10);
            assert_eq!(line, &format!("{key}={n} key {key:?} number {n} hash true offset {n}"));
            assert_eq!(lane_of(lane_hash(key.as_bytes()), lanes), lane);
        }
    }
    let mut again = Vec::new();
    op.outbound().unwrap().take(&mut again);
    assert!(again.is_empty(), "each record is sent once");
}

#[test]
fn a_record_without_a_key_is_handed_over_by_its_source_partition() {
    let mut op = HandOverOperator::<Option<String>, u32, _>::new(ByLane, 4);
    for partition in [2_u32, 5, 2] {
        with_cx(&mut [], 1, Some(Origin { partition, offset: 0 }), |cx| {
            op.push(&mut Some(Record::new(None::<String>, 0_u32, Timestamp(0))), cx).unwrap();
        });
    }
    let mut batches = Vec::new();
    op.outbound().unwrap().take(&mut batches);
    let lanes: Vec<(u32, usize)> = batches.iter().map(|(l, b)| (l.0, b.len())).collect();
    assert_eq!(lanes, [(1, 1), (2, 2)]);
}

#[test]
fn i7_a_value_weighs_its_encoded_length_from_the_freeze_on_and_goes_when_it_is_clean() {
    let mut lane = run(|t| {
        t.source::<Lines>().group_by_key().stored_as::<Utf8>().reduce(|a, b| a + &b).named("all").to_stream().discard();
    });
    lane.pipe("lines", Some(b"k"), Some("x".repeat(1000).as_bytes()), 0).unwrap();
    let (before, _) = lane.weight();
    assert!(before > 0);
    lane.trim(0);
    assert_eq!(lane.weight().0, before, "what is written stays");
    let rows = lane.freeze();
    let (frozen, total) = lane.weight();
    assert_eq!(frozen, before - size_of::<String>() + 1000, "until then it is taken for what it takes decoded");
    lane.trim(0);
    assert_eq!(lane.weight(), (frozen, total), "what is frozen stays");
    lane.apply(&rows);
    assert_eq!(lane.weight(), (0, total));
    lane.trim(0);
    assert_eq!(lane.weight(), (0, 0));
    assert_eq!(lane.freeze()["all"], [], "nothing was written since");
}

#[test]
fn bytes_keys_and_kinds_are_as_declared() {
    source!(Raw, "raw", Vec<u8>, Vec<u8>, Bytes, Bytes, Lane<Bytes>);
    let mut t = Topology::new("test");
    t.source::<Raw>().group_by_key().count().named("n");
    let graph = t.build().unwrap();
    assert_eq!(graph.stores[0].kind, StoreKind::TimestampedKeyValue);
    assert!(graph.stores[0].key_codec.starts_with("Bytes ("));
    let _ = ProduceBatch::default();
}
