//! Shapes of topologies whose results depend on the order behind re-keys.

use std::collections::BTreeMap;

use super::model::{Model, Output, Stored, texts};
use super::*;

#[source(topic = "in2", key = String, value = String, value_codec = Utf8, out_of_orderness = "5ms", idleness = "0s")]
pub(super) struct In2;

/// What comes after what was there: depends on the order of all that a key got.
pub(super) fn after(before: Option<&str>, value: &str) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for b in before.unwrap_or_default().bytes().chain([b'|']).chain(value.bytes()) {
        hash = (hash ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// A key that differs from the record's.
pub(super) fn other_key(value: &str) -> String {
    format!("q{}", value.bytes().map(u64::from).sum::<u64>() % 6)
}

#[processor(input = (String, String), output = String)]
pub(super) struct Chain {
    #[state(codec = Utf8)]
    chained: Keyed<String>,
}

#[handlers]
impl Chain {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let next = after(self.chained.get()?.map(String::as_str), &r.value);
        self.chained.put(next.clone())?;
        cx.forward(next)
    }
}

#[processor(input = (String, String), output = String)]
struct Chain2 {
    #[state(codec = Utf8)]
    chained2: Keyed<String>,
}

#[handlers]
impl Chain2 {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let next = after(self.chained2.get()?.map(String::as_str), &r.value);
        self.chained2.put(next.clone())?;
        cx.forward(next.clone())?;
        // More than one, so that paths of emission matter.
        cx.forward(format!("{next}+"))
    }
}

fn two_rekeys(t: &mut Topology) {
    let first = t.source::<In>().select_key(|_, v: &String| other_key(v)).repartition();
    let first = first.process::<Chain2>();
    let second = first.select_key(|_, v: &String| other_key(v)).repartition();
    second.process::<Chain>().sink::<Out>();
}

fn own_rekey(t: &mut Topology) {
    let [a, b] = t.source::<In>().fan_out();
    let b = b.select_key(|_, v: &String| other_key(v)).repartition();
    let a = a.repartition();
    a.merge(b).process::<Chain>().sink::<Out>();
}

fn own_rekey_of_lane(t: &mut Topology) {
    let [a, b] = t.source::<In>().fan_out();
    let a = a.process::<Chain2>();
    let b = b.select_key(|_, v: &String| other_key(v)).repartition();
    a.merge(b).process::<Chain>().sink::<Out>();
}

fn diamond(t: &mut Topology) {
    let [a, b] = t.source::<In>().process::<Chain2>().fan_out();
    let a = a.select_key(|k: &String, _| format!("a{k}")).repartition();
    let b = b.flat_map(|_, v: String| vec![(other_key(&v), v.clone()), (other_key(&v), format!("{v}!"))]).repartition();
    a.merge(b).process::<Chain>().sink::<Out>();
}

fn two_sources(t: &mut Topology) {
    let a = t.source::<In>();
    let b = t.source::<In2>();
    a.merge(b).process::<Chain>().sink::<Out>();
}

fn source_and_rekey(t: &mut Topology) {
    let a = t.source::<In>().select_key(|_, v: &String| other_key(v)).repartition();
    let b = t.source::<In2>();
    a.merge(b).process::<Chain>().sink::<Out>();
}

#[derive(Clone, Copy, Debug)]
enum Shape {
    TwoRekeys,
    OwnRekey,
    OwnRekeyOfLane,
    Diamond,
    TwoSources,
    SourceAndRekey,
}

struct Shaped {
    shape: Shape,
    chained: BTreeMap<String, String>,
    chained2: BTreeMap<String, String>,
    out: Vec<Output>,
}

impl Shaped {
    fn chain(&mut self, key: &str, value: &str, time: i64) {
        let next = after(self.chained.get(key).map(String::as_str), value);
        self.chained.insert(key.to_owned(), next.clone());
        self.out.push(("out", key.as_bytes().to_vec(), next.into_bytes(), time));
    }

    fn chain2(&mut self, key: &str, value: &str) -> [String; 2] {
        let next = after(self.chained2.get(key).map(String::as_str), value);
        self.chained2.insert(key.to_owned(), next.clone());
        [next.clone(), format!("{next}+")]
    }
}

impl Model for Shaped {
    fn record(&mut self, topic: &str, key: &str, value: &str, time: i64) {
        match self.shape {
            Shape::TwoRekeys => {
                for v in self.chain2(&other_key(value), value) {
                    self.chain(&other_key(&v), &v, time);
                }
            }
            Shape::OwnRekey => {
                self.chain(key, value, time);
                self.chain(&other_key(value), value, time);
            }
            Shape::OwnRekeyOfLane => {
                for v in self.chain2(key, value) {
                    self.chain(key, &v, time);
                }
                self.chain(&other_key(value), value, time);
            }
            Shape::Diamond => {
                for v in self.chain2(key, value) {
                    self.chain(&format!("a{key}"), &v, time);
                    self.chain(&other_key(&v), &v, time);
                    self.chain(&other_key(&v), &format!("{v}!"), time);
                }
            }
            Shape::SourceAndRekey if topic == "in" => self.chain(&other_key(value), value, time),
            Shape::TwoSources | Shape::SourceAndRekey => self.chain(key, value, time),
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let mut all = texts("chained", &self.chained);
        all.extend(texts("chained2", &self.chained2));
        all
    }
}

fn check(shape: Shape, declare: fn(&mut Topology), first: u64) {
    let graph = graph_of(declare);
    for seed in seeds(first, 8) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let two = matches!(shape, Shape::TwoSources | Shape::SourceAndRekey);
        world.torment(&graph, 120, faults(seed), |r, n| Fed {
            topic: if two && r.below(2) == 0 { "in2" } else { "in" },
            key: format!("q{}", r.below(6)),
            value: format!("v{n}"),
            // One topic lags behind the other, and each is a little out of order.
            time: START + (n * 3) as i64 - r.below(40) as i64,
        });
        let model = Shaped { shape, chained: BTreeMap::new(), chained2: BTreeMap::new(), out: Vec::new() };
        world.check_model(&graph, model);
    }
}

#[test]
fn i06_a_chain_of_two_rekeys_keeps_ingest_order() {
    check(Shape::TwoRekeys, two_rekeys, 1_000);
}

#[test]
fn i06_a_merge_of_a_stream_with_its_own_rekey_keeps_ingest_order() {
    check(Shape::OwnRekey, own_rekey, 1_100);
    check(Shape::OwnRekeyOfLane, own_rekey_of_lane, 1_150);
}

#[test]
fn i06_a_diamond_keeps_ingest_order() {
    check(Shape::Diamond, diamond, 1_200);
}

#[test]
fn i06_two_sources_of_different_times_keep_ingest_order() {
    check(Shape::TwoSources, two_sources, 1_300);
    check(Shape::SourceAndRekey, source_and_rekey, 1_350);
}
