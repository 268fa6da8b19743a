//! Topologies run in the test driver against what Kafka Streams gave for the same input (`fixtures/oracle`, captured from
//! its own test driver), each case with 1 and with 16 lanes.
//!
//! Compared are, for each output topic and key, the sequence of (input index, value, timestamp); the order between keys is
//! free. Where we mean to differ, `fixtures/oracle/ours` has what we give instead, and `docs/differences.md` a section with
//! the reason; a case there that agrees with Kafka Streams after all is a failure.
//!
//! `STOAT_ORACLE_OURS=shape` prints that shape's cases that differ, as a file for `fixtures/oracle/ours`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stoat_core::codec::Nullable;
use stoat_core::prelude::*;
use stoat_core::testing::TestDriver;

#[source(topic = "a", key = Option<String>, value = Option<String>, value_codec = Utf8, out_of_orderness = "0s")]
struct A;

#[source(topic = "b", key = Option<String>, value = Option<String>, value_codec = Utf8, out_of_orderness = "0s")]
struct B;

#[source(topic = "c", key = Option<String>, value = Option<String>, value_codec = Utf8, out_of_orderness = "0s")]
struct C;

#[sink(topic = "out", key = Option<String>, value = Option<String>, value_codec = Utf8)]
struct Out;

#[sink(topic = "lo", key = Option<String>, value = Option<String>, value_codec = Utf8)]
struct Lo;

#[sink(topic = "hi", key = Option<String>, value = Option<String>, value_codec = Utf8)]
struct Hi;

#[sink(topic = "even", key = Option<String>, value = Option<String>, value_codec = Utf8)]
struct Even;

#[sink(topic = "odd", key = Option<String>, value = Option<String>, value_codec = Utf8)]
struct Odd;

#[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
struct OutText;

#[sink(topic = "out", key = String, value = Option<String>, value_codec = Utf8)]
struct OutNullable;

#[sink(topic = "out", key = Option<String>, value = String, value_codec = Utf8)]
struct OutBang;

type Text = Option<String>;

/// The whole number that a text spells; 0 for null and the empty text.
fn n(v: Option<&String>) -> i64 {
    v.filter(|v| !v.is_empty()).map_or(0, |v| v.parse().expect("the vectors' values are numbers"))
}

fn word(v: Option<&String>) -> &str {
    v.map_or("null", String::as_str)
}

fn bang(v: Text) -> String {
    format!("{}!", v.as_deref().unwrap_or("null"))
}

fn pass_through(t: &mut Topology) {
    t.source::<A>().peek(|_, _| {}).sink::<Out>();
}

fn branch_merge(t: &mut Topology) {
    let both = t.source::<A>().merge(t.source::<B>());
    let [s, m, b] = both.split([
        Branch::when(|_, v: &Text| n(v.as_ref()) < 5),
        Branch::when(|_, v: &Text| n(v.as_ref()) < 12),
        Branch::rest(),
    ]);
    let marked = |mark: &'static str| move |v: Text| v.map(|v| format!("{mark}{v}"));
    s.map_values(marked("s")).merge(m.map_values(marked("m"))).merge(b.map_values(marked("b"))).sink::<Out>();
}

fn branch_no_default(t: &mut Topology) {
    let [lo, hi] = t
        .source::<A>()
        .split([Branch::when(|_, v: &Text| n(v.as_ref()) < 10), Branch::when(|_, v: &Text| n(v.as_ref()) % 2 == 0)]);
    lo.sink::<Lo>();
    hi.sink::<Hi>();
}

fn dynamic_sink(t: &mut Topology) {
    let [even, odd] = t.source::<A>().split([Branch::when(|_, v: &Text| n(v.as_ref()) % 2 == 0), Branch::rest()]);
    even.sink::<Even>();
    odd.sink::<Odd>();
}

fn flat_map_select_key(t: &mut Topology) {
    t.source::<A>()
        .flat_map_values(|v: Text| {
            let number = n(v.as_ref());
            if number > 15 { Vec::new() } else { vec![v, Some((number * 10).to_string())] }
        })
        .select_key(|k: &Text, v: &Text| format!("{}{}", word(k.as_ref()), n(v.as_ref()) % 2))
        .flat_map(|k: String, v: Text| [(Some(k.clone()), v.clone()), (v, Some(k))])
        .sink::<Out>();
}

fn flat_map_values_with_key(t: &mut Topology) {
    t.source::<A>()
        .flat_map(|k: Text, v: Text| {
            let many = if v.is_none() { 0 } else { n(v.as_ref()) % 4 };
            let value = |i| format!("{}{i}{}", word(k.as_ref()), word(v.as_ref()));
            (0..many).map(|i| (k.clone(), Some(value(i)))).collect::<Vec<_>>()
        })
        .sink::<Out>();
}

fn many_topics(t: &mut Topology) {
    t.source::<A>().merge(t.source::<B>()).merge(t.source::<C>()).map_values(bang).sink::<OutBang>();
}

fn map_pairs(t: &mut Topology) {
    t.source::<A>()
        .map(|k: Text, v: Text| {
            let value = format!("{}:{}", word(k.as_ref()), word(v.as_ref()));
            ((n(v.as_ref()) % 4).to_string(), value)
        })
        .sink::<OutText>();
}

fn merge_with_itself(t: &mut Topology) {
    let [a, again] = t.source::<A>().fan_out();
    a.merge(again).map_values(bang).sink::<OutBang>();
}

fn repartition(t: &mut Topology) {
    t.source::<A>()
        .select_key(|_, v: &Text| (n(v.as_ref()) % 3).to_string())
        .repartition()
        .process::<WithKeyInFront>()
        .sink::<OutText>();
}

#[processor(input = (String, Option<String>), output = String)]
struct WithKeyInFront {}

#[handlers]
impl WithKeyInFront {
    #[process]
    fn on_record(&mut self, r: Record<String, Option<String>>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(format!("{}:{}", r.key, word(r.value.as_ref())))
    }
}

fn stateless_chain(t: &mut Topology) {
    t.source::<A>()
        .filter(|_, v| v.is_some())
        .map_values(|v: Text| Some((n(v.as_ref()) + 1).to_string()))
        .filter(|_, v| n(v.as_ref()) % 2 == 0)
        .filter_not(|_, v| n(v.as_ref()) % 6 == 0)
        .sink::<Out>();
}

fn aggregate_to_null(t: &mut Topology) {
    t.source::<A>()
        .with_key()
        .with_value()
        .group_by_key()
        .stored_as::<Nullable<Utf8>>()
        .aggregate(
            || None,
            |sum: &mut Text, _, v: String| {
                let next = n(sum.as_ref()) + n(Some(&v));
                *sum = (next < 20).then(|| next.to_string());
            },
        )
        .named("sums")
        .to_stream()
        .sink::<OutNullable>();
}

fn cogroup(t: &mut Topology) {
    let a = t.source::<A>().with_key().with_value().map_values(|v| format!("a{v}"));
    let b = t.source::<B>().with_key().with_value().map_values(|v| format!("b{v}"));
    a.merge(b)
        .group_by_key()
        .stored_as::<Utf8>()
        .aggregate(String::new, |text: &mut String, _, v: String| text.push_str(&v))
        .named("texts")
        .to_stream()
        .sink::<OutText>();
}

fn cogroup_three_rekeyed(t: &mut Topology) {
    let a = t.source::<A>().with_key().with_value().map_values(|v| n(Some(&v)));
    let b = t.source::<B>().with_key().with_value().map_values(|v| -n(Some(&v)));
    let letter = |v: &String| ["a", "b", "c"][n(Some(v)) as usize % 3].to_owned();
    let c = t.source::<C>().with_value().select_key(move |_, v| letter(v)).map_values(|_| 100).repartition();
    a.merge(b)
        .merge(c)
        .group_by_key()
        .stored_as::<Be>()
        .aggregate(|| 0, |sum: &mut i64, _, v: i64| *sum += v)
        .named("sums")
        .to_stream()
        .map_values(|sum| sum.to_string())
        .sink::<OutText>();
}

fn count_by_key(t: &mut Topology) {
    let counts = t.source::<A>().with_key().with_value().group_by_key().count().named("counts");
    counts.to_stream().map_values(|n| n.to_string()).sink::<OutText>();
}

fn flat_map_count(t: &mut Topology) {
    let divisors = t.source::<A>().flat_map(|_, v: Text| {
        let number = n(v.as_ref());
        [2, 3, 5].into_iter().filter(move |d| number % d == 0).map(move |d| (d.to_string(), v.clone()))
    });
    let counts = divisors.group_by_key().count().named("counts");
    counts.to_stream().map_values(|n| n.to_string()).sink::<OutText>();
}

fn group_by_null_key(t: &mut Topology) {
    let some = t.source::<A>().with_value().filter(|_, v| n(Some(v)) % 5 != 0);
    let counts = some.group_by(|_, v| (n(Some(v)) % 2).to_string()).count().named("counts");
    counts.to_stream().map_values(|n| n.to_string()).sink::<OutText>();
}

fn group_by_rekey_sum(t: &mut Topology) {
    t.source::<A>()
        .group_by(|_, v: &Text| (n(v.as_ref()) % 3).to_string())
        .stored_as::<Be>()
        .aggregate(|| 0, |sum: &mut i64, _, v: Text| *sum += n(v.as_ref()))
        .named("sums")
        .to_stream()
        .map_values(|sum| sum.to_string())
        .sink::<OutText>();
}

fn reduce_concat(t: &mut Topology) {
    t.source::<A>()
        .with_key()
        .with_value()
        .group_by_key()
        .stored_as::<Utf8>()
        .reduce(|x: String, y: String| format!("{x},{y}"))
        .named("texts")
        .to_stream()
        .sink::<OutText>();
}

#[processor(input = (String, Option<String>), output = (String, Option<String>))]
struct ForwardMany {}

#[handlers]
impl ForwardMany {
    #[process]
    fn on_record(&mut self, r: Record<String, Option<String>>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(r.key.clone(), r.value.clone())?;
        cx.forward_at(r.timestamp + Duration::from_secs(1), format!("{}+", r.key), r.value.clone())?;
        if n(r.value.as_ref()) % 2 == 0 {
            cx.forward(format!("{}-", r.key), None)?;
        }
        Ok(())
    }
}

fn process_forward_many(t: &mut Topology) {
    t.source::<A>().with_key().process::<ForwardMany>().sink::<OutNullable>();
}

/// The two processors of the shape share one store; here one processor takes both streams.
#[processor(input = (String, (bool, Option<String>)), output = Option<String>)]
struct SharedStore {
    #[state(codec = Utf8)]
    texts: Keyed<String>,
}

#[handlers]
impl SharedStore {
    #[process]
    fn on_record(&mut self, r: Record<String, (bool, Option<String>)>, cx: &mut Context<Self>) -> Result<()> {
        match r.value {
            (true, Some(v)) => self.texts.update(String::new, |text| text.push_str(&v)),
            (true, None) => Ok(()),
            (false, _) => {
                let text = self.texts.take()?;
                cx.forward(text)
            }
        }
    }
}

fn process_shared_store(t: &mut Topology) {
    let a = t.source::<A>().with_key().map_values(|v| (true, v));
    let b = t.source::<B>().with_key().map_values(|v| (false, v));
    a.merge(b).process::<SharedStore>().sink::<OutNullable>();
}

#[processor(input = (String, Option<String>), output = String)]
struct ValuesWithStore {
    #[state(codec = Be)]
    seen: Keyed<u64>,
}

#[handlers]
impl ValuesWithStore {
    #[process]
    fn on_record(&mut self, r: Record<String, Option<String>>, cx: &mut Context<Self>) -> Result<()> {
        let count = self.seen.update(
            || 0,
            |n| {
                *n += 1;
                *n
            },
        )?;
        cx.forward(format!("{}#{count}", word(r.value.as_ref())))
    }
}

fn process_values_with_store(t: &mut Topology) {
    t.source::<A>().with_key().process::<ValuesWithStore>().sink::<OutText>();
}

#[processor(input = (String, Option<String>), output = String)]
struct CountsOfTheInterval {
    #[state(codec = Be)]
    counts: Keyed<u64>,
}

#[handlers]
impl CountsOfTheInterval {
    #[process]
    fn on_record(&mut self, _r: Record<String, Option<String>>, _cx: &mut Context<Self>) -> Result<()> {
        self.counts.update(|| 0, |n| *n += 1)
    }

    #[punctuate(every = "20ms", over = counts)]
    fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
        match self.counts.take()? {
            Some(n) => cx.forward_at(cx.watermark(), n.to_string()),
            None => Ok(()),
        }
    }
}

fn punctuate_stream_time(t: &mut Topology) {
    t.source::<A>().with_key().process::<CountsOfTheInterval>().sink::<OutText>();
}

type Declare = fn(&mut Topology);

const SHAPES: &[(&str, Declare)] = &[
    ("aggregate-to-null", aggregate_to_null),
    ("branch-merge", branch_merge),
    ("branch-no-default", branch_no_default),
    ("cogroup", cogroup),
    ("cogroup-three-rekeyed", cogroup_three_rekeyed),
    ("count-by-key", count_by_key),
    ("dynamic-sink", dynamic_sink),
    ("flat-map-count", flat_map_count),
    ("flat-map-select-key", flat_map_select_key),
    ("flat-map-values-with-key", flat_map_values_with_key),
    ("group-by-null-key", group_by_null_key),
    ("group-by-rekey-sum", group_by_rekey_sum),
    ("many-topics-one-source", many_topics),
    ("map-pairs", map_pairs),
    ("merge-with-itself", merge_with_itself),
    ("pass-through", pass_through),
    ("process-forward-many", process_forward_many),
    ("process-shared-store", process_shared_store),
    ("process-values-with-store", process_values_with_store),
    ("punctuate-stream-time", punctuate_stream_time),
    ("reduce-concat", reduce_concat),
    ("repartition", repartition),
    ("stateless-chain", stateless_chain),
];

/// Input index, topic, key, value, timestamp.
type Row = (u64, String, Text, Text, i64);

fn text(v: &Value) -> Text {
    v.as_str().map(str::to_owned)
}

fn rows(case: &Value) -> Vec<Row> {
    let out = case["out"].as_array().expect("a case has outputs");
    out.iter()
        .map(|r| {
            let topic = r[1].as_str().expect("a topic is a text").to_owned();
            (r[0].as_u64().expect("an index"), topic, text(&r[2]), text(&r[3]), r[4].as_i64().expect("a time"))
        })
        .collect()
}

fn run(declare: Declare, outputs: &[Value], case: &Value, lanes: u32) -> Result<Vec<Row>> {
    let mut topology = Topology::new("oracle");
    declare(&mut topology);
    let mut driver = TestDriver::with_lanes(topology.build()?, lanes)?;
    let mut rows = Vec::new();
    let bytes = |v: &Value| v.as_str().map(|t| t.as_bytes().to_vec());
    let string = |b: Option<Vec<u8>>| b.map(|b| String::from_utf8(b).expect("the shapes write UTF-8"));
    for (i, r) in case["in"].as_array().expect("a case has inputs").iter().enumerate() {
        let (topic, time) = (r[0].as_str().expect("a topic is a text"), r[3].as_i64().expect("a time"));
        driver.pipe_raw(topic, bytes(&r[1]).as_deref(), bytes(&r[2]).as_deref(), time, Headers::default())?;
        for topic in outputs.iter().filter_map(Value::as_str) {
            for out in driver.read_raw(topic)? {
                let (key, value) = (string(out.key), string(out.value));
                rows.push((i as u64, topic.to_owned(), key, value, out.timestamp.as_millis()));
            }
        }
    }
    Ok(rows)
}

/// What is compared: per topic and key the sequence of index, value, timestamp.
type ByKey<'a> = BTreeMap<(&'a str, &'a Text), Vec<(u64, &'a Text, i64)>>;

fn by_key(rows: &[Row]) -> ByKey<'_> {
    let mut all = ByKey::new();
    for (i, topic, key, value, time) in rows {
        all.entry((topic.as_str(), key)).or_default().push((*i, value, *time));
    }
    all
}

/// How two results differ; the rows that only one of them has first.
fn difference(got: &[Row], want: &[Row]) -> Option<String> {
    let (ours, theirs) = (by_key(got), by_key(want));
    if ours == theirs {
        return None;
    }
    let mut text = String::new();
    for row in want.iter().filter(|w| !got.contains(w)) {
        writeln!(text, "    - {row:?}").expect("a string takes everything");
    }
    for row in got.iter().filter(|g| !want.contains(g)) {
        writeln!(text, "    + {row:?}").expect("a string takes everything");
    }
    let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for key in keys.into_iter().filter(|k| ours.get(*k) != theirs.get(*k)) {
        writeln!(text, "    {key:?}\n      want {:?}\n      got  {:?}", theirs.get(key), ours.get(key))
            .expect("a string takes everything");
    }
    Some(text)
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/oracle")
}

fn load(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn shapes_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).expect("the fixtures are there");
    let names = entries.map(|e| e.expect("the folder can be read").file_name().into_string().expect("UTF-8"));
    names.filter_map(|n| n.strip_suffix(".json").map(str::to_owned)).collect()
}

#[test]
fn every_shape_gives_what_kafka_streams_gave_or_what_is_registered() {
    let print = std::env::var("STOAT_ORACLE_OURS").ok();
    let registered = shapes_in(&folder().join("ours"));
    let (mut cases, mut agreed, mut differed, mut failures) = (0, 0, 0, String::new());
    for (shape, declare) in SHAPES {
        let file = load(&folder().join(format!("{shape}.json")));
        assert_eq!(file["compare"], "per-key", "{shape}");
        let ours: BTreeMap<String, Vec<Row>> = if registered.contains(*shape) {
            let file = load(&folder().join(format!("ours/{shape}.json")));
            let cases = file["cases"].as_array().expect("a shape has cases");
            cases.iter().map(|c| (c["case"].to_string(), rows(c))).collect()
        } else {
            BTreeMap::new()
        };
        let outputs = file["outputs"].as_array().expect("a shape has outputs");
        let mut met = BTreeSet::new();
        let mut printed = Vec::new();
        for case in file["cases"].as_array().expect("a shape has cases") {
            let name = case["case"].to_string();
            cases += 1;
            let want = rows(case);
            let mut good = true;
            for lanes in [1, 16] {
                let got = run(*declare, outputs, case, lanes).unwrap_or_else(|e| panic!("{shape} {name}: {e}"));
                let theirs = difference(&got, &want);
                let problem = match ours.get(&name) {
                    None => theirs.clone(),
                    Some(_) if theirs.is_none() => Some("    is registered and agrees after all\n".to_owned()),
                    Some(registered) => difference(&got, registered),
                };
                if theirs.is_some() && lanes == 1 && print.as_deref() == Some(*shape) {
                    printed.push(json!({ "case": case["case"], "in": case["in"], "out": got }));
                }
                if let Some(problem) = problem {
                    good = false;
                    writeln!(failures, "  {shape} {name} with {lanes} lanes:\n{problem}")
                        .expect("a string takes everything");
                }
            }
            if ours.contains_key(&name) {
                met.insert(name);
                differed += u32::from(good);
            } else {
                agreed += u32::from(good);
            }
        }
        assert_eq!(met.len(), ours.len(), "{shape}: a registered case is none of the oracle's");
        if print.as_deref() == Some(*shape) {
            let lines: Vec<String> = printed.iter().map(|c| format!("  {c}")).collect();
            let head = json!({ "shape": shape, "inputs": file["inputs"], "outputs": file["outputs"] }).to_string();
            println!("{},\n \"cases\": [\n{}\n ]\n}}", head.trim_end_matches('}'), lines.join(",\n"));
        }
    }
    println!("{} shapes, {cases} cases, {agreed} agreed, {differed} registered", SHAPES.len());
    assert!(failures.is_empty(), "(- Kafka Streams, + ours)\n{failures}");
}

#[test]
fn no_vector_is_left_out_and_each_registered_difference_has_its_reason() {
    let run: BTreeSet<String> = SHAPES.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(shapes_in(&folder()), run);
    let text = include_str!("../../docs/differences.md");
    for shape in shapes_in(&folder().join("ours")) {
        assert!(text.contains(&format!("\n## {shape}\n")), "docs/differences.md has no section `{shape}`");
    }
}
