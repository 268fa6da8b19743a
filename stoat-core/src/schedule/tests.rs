//! Stores that schedules read: what is refused when a topology is built, and what a driver's schedules see.

use super::{Emit, Missed, ReadStore, Reads, Schedule, Tick, When};
use crate::prelude::*;
use crate::testing::{Options, TestDriver};
use crate::topology::graph::Graph;

#[source(topic = "in", key = String, value = String, value_codec = Utf8)]
struct In;

#[sink(topic = "out", key = String, value = String, value_codec = Utf8)]
struct Out;

#[processor(input = (String, String))]
struct Keeps {
    #[state(codec = Be)]
    lengths: Keyed<u64>,
    #[store(codec = Utf8)]
    last: KeyValueStore<String, String>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl Keeps {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.lengths.update(|| 0, |n| *n += r.value.len() as u64)?;
        self.last.put(&r.key, r.value)?;
        self.idle.set(r.timestamp + Duration::from_mins(1))
    }

    #[on_timer(idle)]
    fn on_idle(&mut self, fired: Fired<String>, _cx: &mut Context<Self>) -> Result<()> {
        self.last.remove(&fired.key)
    }
}

macro_rules! store {
    ($name:ident, $store:literal, $value:ty, $codec:ty $(, $key_codec:ty)?) => {
        struct $name;
        impl ReadStore for $name {
            type Key = String;
            type Value = $value;
            type KeyCodec = store!(@ $($key_codec)?);
            type ValueCodec = $codec;
            const STORE: &'static str = $store;
        }
    };
    (@) => { Utf8 };
    (@ $codec:ty) => { $codec };
}

store!(Lengths, "lengths", u64, Be);
store!(Last, "last", String, Utf8);
store!(Misspelt, "lenghts", u64, Be);
store!(Unknown, "quite-another", u64, Be);
store!(OtherType, "lengths", i64, Be);
store!(OtherCodec, "lengths", u64, Json);
store!(OtherKeys, "lengths", u64, Be, Json);
store!(TimersOf, "idle", u64, Be);

/// A schedule of a minute that reads these.
macro_rules! reads {
    ($name:ident: $($store:ty),*) => {
        struct $name;
        impl Schedule for $name {
            type Key = String;
            type Value = String;
            type KeyCodec = Utf8;
            type ValueCodec = Utf8;
            const NAME: &'static str = stringify!($name);
            const READS: &'static [Reads] = &[$(Reads::of::<$store>()),*];
            fn when() -> When {
                When::every(Duration::from_mins(1))
            }
            fn missed() -> Missed {
                Missed::Each
            }
            fn emit(_: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
                $(
                    for (key, value) in out.store::<$store>()?.range(..)? {
                        out.record(&key, &value.to_string())?;
                    }
                )*
                Ok(())
            }
        }
    };
}

reads!(Both: Lengths, Last);

fn graph<S: Schedule<Key = String, Value = String, KeyCodec = Utf8>>() -> Result<Graph> {
    let mut t = Topology::new("test");
    drop(t.source::<In>().process::<Keeps>());
    t.scheduled::<S>().sink::<Out>();
    t.build()
}

#[test]
fn a_store_that_is_not_there_or_holds_something_else_is_refused_when_the_topology_is_built() {
    macro_rules! refused {
        ($store:ty, $($text:literal),+) => {{
            reads!(Wrong: $store);
            let error = graph::<Wrong>().unwrap_err().to_string();
            assert!(error.contains("schedule `Wrong`"), "{error}");
            $(assert!(error.contains($text), "{error}");)+
        }};
    }
    refused!(Misspelt, "there is no store `lenghts`: did you mean `lengths`?");
    refused!(Unknown, "there is no store `quite-another`; there are `lengths`, `last`, `idle`");
    refused!(OtherType, "reads `lengths` as a store of `i64` with Be", "but it is one of `u64` with Be");
    refused!(OtherCodec, "`u64` with Json", "but it is one of `u64` with Be");
    refused!(OtherKeys, "reads the keys of store `lengths` with Json", "they are written with Utf8");
    refused!(TimersOf, "`idle` holds timers, not values");
    graph::<Both>().unwrap();
}

#[test]
fn pictures_show_which_stores_a_schedule_reads() {
    let graph = graph::<Both>().unwrap();
    assert!(graph.describe().contains("    Schedule: Both (stores: [lengths, last])\n"), "{}", graph.describe());
    assert!(graph.mermaid().contains("Both<br/>by the clock<br/>reads lengths, last\"])"), "{}", graph.mermaid());
    let json = graph.json();
    let nodes = json["nodes"].as_array().unwrap();
    let node = nodes.iter().find(|n| n["kind"] == "schedule").unwrap();
    assert_eq!(node["reads"], serde_json::json!(["lengths", "last"]));
    assert!(nodes.iter().all(|n| n["kind"] == "schedule" || n["reads"] == serde_json::json!([])));
}

#[test]
fn a_topology_without_stores_says_so() {
    let mut t = Topology::new("test");
    t.scheduled::<Both>().sink::<Out>();
    let error = t.build().unwrap_err().to_string();
    assert!(error.contains("there is no store `lengths`: this topology has none"), "{error}");
}

fn seen(driver: &mut TestDriver) -> Vec<String> {
    let records = driver.read::<Out>().unwrap();
    let mut seen: Vec<String> = records.into_iter().map(|r| format!("{}={}", r.key, r.value)).collect();
    seen.sort();
    seen
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn a_schedule_sees_what_is_committed_whatever_the_lanes() {
    for lanes in [1, 16] {
        let options = Options { lanes, commit_each: false, ..Options::default() };
        let mut driver = TestDriver::with_options(graph::<Both>().unwrap(), options).unwrap();
        driver.pipe::<In>(&"ann".into(), &"abc".into(), 0).unwrap();
        driver.advance_wall_clock(MINUTE).unwrap();
        driver.commit().unwrap();
        assert_eq!(seen(&mut driver), [""; 0], "nothing was committed yet");
        driver.pipe::<In>(&"ann".into(), &"de".into(), 0).unwrap();
        driver.pipe::<In>(&"bob".into(), &"f".into(), 0).unwrap();
        driver.advance_wall_clock(MINUTE * 2).unwrap();
        driver.commit().unwrap();
        assert_eq!(
            seen(&mut driver),
            ["ann=3", "ann=3", "ann=abc", "ann=abc"],
            "each of two ticks sees the same commit"
        );
        driver.fire::<Both>().unwrap();
        driver.advance_watermark(60_000).unwrap();
        driver.commit().unwrap();
        assert_eq!(seen(&mut driver), ["ann=5", "ann=de", "bob=1", "bob=f"]);
        driver.fire::<Both>().unwrap();
        driver.commit().unwrap();
        assert_eq!(seen(&mut driver), ["ann=5", "bob=1"], "what is removed is gone");
    }
}

/// Reads through another description of a store that it may read.
struct Sneaks;

impl Schedule for Sneaks {
    type Key = String;
    type Value = String;
    type KeyCodec = Utf8;
    type ValueCodec = Utf8;
    const NAME: &'static str = "Sneaks";
    const READS: &'static [Reads] = &[Reads::of::<Lengths>()];
    fn when() -> When {
        When::every(MINUTE)
    }
    fn emit(_: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
        out.store::<OtherType>().map(drop)
    }
}

#[test]
fn another_description_of_a_store_that_is_read_is_an_error_of_the_tick() {
    let mut driver = TestDriver::new(graph::<Sneaks>().unwrap()).unwrap();
    let error = driver.fire::<Sneaks>().unwrap_err().to_string();
    assert!(error.contains("schedule `Sneaks`, tick at") && error.contains("OtherType"), "{error}");
}
