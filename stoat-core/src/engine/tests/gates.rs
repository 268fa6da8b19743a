//! Error gates under crashes, lost answers and other lane counts: no dead letter is lost or doubled, no neighbour of a
//! record that was left out is.

use std::collections::{BTreeMap, BTreeSet};

use super::super::message::Mark;
use super::model::{Model, Output, Stored, numbers, texts, times, within};
use super::shapes::other_key;
use super::*;
use crate::error::ErrorKind;
use crate::id::TopicPartition;
use crate::record::kafka_size;

/// A record of `out` may take so many bytes.
const LIMIT: usize = 300;

/// Writes, sets and forwards, and fails then at records `bad..` and at timers of the keys `t..`.
#[processor(input = (String, String), output = String)]
struct First {
    #[state(codec = Be)]
    total: Keyed<u64>,
    #[state(codec = Utf8)]
    last: Keyed<String>,
    #[timer]
    soon: Timer,
    #[timer]
    often: Timers,
}

#[handlers]
impl First {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let was = self.last.take()?.unwrap_or_default();
        let n = self.total.update(|| 0, |n| std::mem::replace(n, *n + 1))?;
        if n % 4 == 3 {
            self.total.remove()?;
        }
        self.last.put(r.value.clone())?;
        self.soon.set(r.timestamp + Duration::from_millis(10))?;
        self.often.set(r.timestamp)?;
        self.often.cancel(r.timestamp - Duration::from_millis(2))?;
        cx.forward(format!("{n}:{was}:{}", r.value))?;
        cx.forward(format!("{}!", r.value))?;
        if r.value.starts_with("bad") { Err(Error::handler("no luck")) } else { Ok(()) }
    }

    #[on_timer(soon)]
    fn on_soon(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.total.update(|| 0, |n| *n += 100)?;
        cx.forward("soon".to_owned())?;
        if fired.key.starts_with('t') { Err(Error::handler("no luck")) } else { Ok(()) }
    }

    #[on_timer(often)]
    fn on_often(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward("often".to_owned())
    }
}

/// Fails at values that end in `4!`, when it has written; makes values that have a `big` in them too large.
#[processor(input = (String, String), output = String)]
struct Second {
    #[state(codec = Utf8)]
    seen: Keyed<String>,
}

fn fails_second(value: &str) -> bool {
    value.ends_with("4!")
}

fn grown(value: &str) -> String {
    if value.contains("big") { value.repeat(LIMIT) } else { value.to_owned() }
}

#[handlers]
impl Second {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        self.seen.put(r.value.clone())?;
        cx.forward(grown(&r.value))?;
        if fails_second(&r.value) { Err(Error::handler("no luck either")) } else { Ok(()) }
    }
}

fn gated(t: &mut Topology) {
    let first = t.source::<In>().process::<First>();
    let again = first.select_key(|_, v: &String| other_key(v)).repartition();
    again.process::<Second>().sink::<Out>();
}

#[derive(Default)]
struct Gated {
    letters: bool,
    total: BTreeMap<String, u64>,
    last: BTreeMap<String, String>,
    soon: BTreeMap<String, i64>,
    often: BTreeSet<(i64, String)>,
    seen: BTreeMap<String, String>,
    reached: i64,
    out: Vec<Output>,
    /// What was left out: at decode, in the first and the second handler, at the sink, at a timer.
    left_out: [u32; 5],
}

impl Gated {
    /// The source record goes to the dead-letter topic.
    fn letter(&mut self, gate: usize, source: (&str, &str), time: i64) {
        self.left_out[gate] += 1;
        if self.letters {
            let value = match source.1.strip_prefix('\u{fffd}') {
                Some(rest) => [b"\xff", rest.as_bytes()].concat(),
                None => source.1.as_bytes().to_vec(),
            };
            self.out.push(("letters", source.0.as_bytes().to_vec(), value, time));
        }
    }

    fn second(&mut self, source: (&str, &str), value: &str, time: i64) {
        let key = other_key(value);
        if fails_second(value) {
            return self.letter(2, source, time);
        }
        self.seen.insert(key.clone(), value.to_owned());
        let grown = grown(value);
        if kafka_size(Some(key.as_bytes()), Some(grown.as_bytes()), &Headers::default()) > LIMIT {
            return self.letter(3, source, time);
        }
        self.out.push(("out", key.into_bytes(), grown.into_bytes(), time));
    }
}

impl Model for Gated {
    fn record(&mut self, _topic: &str, key: &str, value: &str, time: i64) {
        let source = (key, value);
        if value.starts_with('\u{fffd}') {
            return self.letter(0, source, time);
        }
        if value.starts_with("bad") {
            return self.letter(1, source, time);
        }
        let n = self.total.get(key).copied().unwrap_or(0);
        if n % 4 == 3 {
            self.total.remove(key);
        } else {
            self.total.insert(key.to_owned(), n + 1);
        }
        let was = self.last.insert(key.to_owned(), value.to_owned()).unwrap_or_default();
        self.soon.insert(key.to_owned(), time + 10);
        self.often.insert((time, key.to_owned()));
        self.often.remove(&(time - 2, key.to_owned()));
        self.second(source, &format!("{n}:{was}:{value}"), time);
        self.second(source, &format!("{value}!"), time);
    }

    fn mark(&mut self, mark: &Mark) {
        self.reached = self.reached.max(mark.watermarks[0].0);
        let mut clock = i64::MIN;
        loop {
            let soon = self.soon.iter().map(|(k, t)| (*t, k.clone(), 0)).min();
            let often = self.often.first().map(|(t, k)| (*t, k.clone(), 1));
            let Some((time, key, field)) = soon.into_iter().chain(often).min() else { return };
            if !within(mark.limits[0].as_ref(), self.reached, clock, time, &key) {
                return;
            }
            clock = clock.max(time);
            if field == 1 {
                self.often.remove(&(time, key));
                self.second(("", ""), "often", time);
                continue;
            }
            self.soon.remove(&key);
            if key.starts_with('t') {
                self.left_out[4] += 1;
            } else {
                *self.total.entry(key).or_default() += 100;
                self.second(("", ""), "soon", time);
            }
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let mut all = numbers("total", &self.total);
        all.extend(texts("last", &self.last));
        all.extend(times("soon", &self.soon));
        all.extend(texts("seen", &self.seen));
        for (time, key) in &self.often {
            let row = [key.as_bytes(), &time.to_be_bytes()].concat();
            all.insert(("often".to_owned(), row), Vec::new());
        }
        all
    }
}

fn gates(world: &mut World, decision: &str) {
    for key in [
        "stoat.deserialization-exception-handler",
        "stoat.processing-exception-handler",
        "stoat.production-exception-handler",
    ] {
        world.set(key, decision);
    }
    world.set("stoat.dead-letter.topic", "letters");
}

/// Some records that fail at each gate. `timers`: there are keys whose timers fail, too.
fn mixed(timers: bool) -> impl FnMut(&mut Random, u64) -> Fed {
    move |r, n| {
        let kind = match r.below(12) {
            0 => "bad",
            1 => "\u{fffd}",
            2 => "big",
            _ => "v",
        };
        let key = if timers && r.below(5) == 0 { "t" } else { "k" };
        fed(format!("{key}{}", r.below(5)), format!("{kind}{n}"), START + n as i64)
    }
}

#[test]
fn i03_i09_what_is_left_out_is_left_out_once_and_alone_under_crashes_and_other_lane_counts() {
    let graph = graph_of(gated);
    let (mut left_out, mut refusals) = ([0; 5], 0);
    for seed in seeds(9_000, 30) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        let letters = seed % 2 == 0;
        gates(&mut world, if letters { "dead_letter" } else { "skip" });
        // Refusals are no faults while each is of another record.
        world.set("stoat.restart.max-faults", if faults(seed) == Faults::default() { "0" } else { "1000" });
        world.cluster.set_limit("out", LIMIT, seed % 5 == 0);
        world.torment(&graph, 150, faults(seed), mixed(!letters));
        let model = world.check_model(&graph, Gated { letters, ..Gated::default() });
        for (sum, n) in left_out.iter_mut().zip(model.left_out) {
            *sum += n;
        }
        refusals += world.cluster.refusals();
        for p in 0..PARTITIONS {
            let tp = TopicPartition::new("in", p);
            assert_eq!(world.cluster.committed("app", &tp), Some(world.cluster.log("in", p).len() as i64));
        }
    }
    assert!(left_out.iter().all(|n| *n > 10), "each gate had its share: {left_out:?}");
    assert!(refusals > 100, "the broker did refuse: {refusals}");
}

#[test]
fn i09_at_least_once_leaves_out_the_same() {
    let graph = graph_of(gated);
    for seed in seeds(9_100, 10) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        gates(&mut world, "skip");
        world.set("stoat.processing-guarantee", "at_least_once");
        world.cluster.set_limit("out", LIMIT, false);
        world.torment(&graph, 120, faults(seed), mixed(true));
        world.check_model(&graph, Gated::default());
    }
}

#[test]
fn n4_one_refused_output_costs_one_replay_and_names_its_source_record() {
    let graph = graph_of(|t| {
        t.source::<In>().map_values(|v: String| if v == "4" || v == "6" { v.repeat(5_000) } else { v }).sink::<Out>();
    });
    for (decision, told) in [("dead_letter", false), ("dead_letter", true), ("skip", false)] {
        for seed in seeds(9_200, 4) {
            let _seed = Seed(seed);
            let mut world = World::new(seed);
            gates(&mut world, decision);
            world.set("stoat.restart.max-faults", "0");
            world.cluster.set_limit("out", 1_000, told);
            for n in 0..10 {
                world.cluster.append("in", 0, b"k", n.to_string().as_bytes(), START + n);
            }
            let lanes = world.lanes();
            let mut engine = world.engine(&graph, lanes);
            // Killed between the refusal and the replay, or not at all.
            if seed % 2 == 0 {
                while engine.status().restarts == 0 && engine.status().run.commits == 0 {
                    world.turn(&mut engine).unwrap();
                }
                drop(engine);
                world.crash();
                engine = world.engine(&graph, lanes);
            }
            world.finish(engine);
            let out: Vec<String> = world.records("out").iter().map(|r| string(r.value.as_ref())).collect();
            assert_eq!(out, ["0", "1", "2", "3", "5", "7", "8", "9"]);
            let letters = world.records("letters");
            assert_eq!(letters.len(), if decision == "skip" { 0 } else { 2 });
            for (letter, n) in letters.iter().zip(["4", "6"]) {
                assert_eq!((string(letter.key.as_ref()).as_str(), string(letter.value.as_ref()).as_str()), ("k", n));
                let header = |name: &str| String::from_utf8_lossy(letter.headers.last(name).unwrap()).into_owned();
                assert_eq!(header("__streams.errors.topic"), "in");
                assert_eq!(header("__streams.errors.partition"), "0");
                assert_eq!(header("__streams.errors.offset"), n);
                assert!(header("__streams.errors.message").contains("`out`"), "{}", header("__streams.errors.message"));
                assert_eq!(header("__stoat.errors.gate"), "produce");
            }
            assert_eq!(world.cluster.committed("app", &TopicPartition::new("in", 0)), Some(10));
        }
    }
}

#[test]
fn n4_a_refused_output_ends_the_process_by_default_and_retry_spends_the_budget() {
    let graph =
        graph_of(|t| t.source::<In>().map_values(|v: String| v.repeat(if v == "4" { 5_000 } else { 1 })).sink::<Out>());
    for (decision, told) in [("fail", false), ("fail", true), ("retry", false)] {
        let mut world = World::new(3);
        gates(&mut world, decision);
        world.set("stoat.restart.max-faults", "5");
        world.cluster.set_limit("out", 1_000, told);
        for n in 0..10 {
            world.cluster.append("in", 0, b"k", n.to_string().as_bytes(), START + n);
        }
        let mut engine = world.engine(&graph, 2);
        let error = world.run_to_error(&mut engine);
        let text = error.to_string();
        assert!(text.contains("in-0@4") && text.contains("`out`"), "{text}");
        if decision == "retry" {
            assert_eq!(error.kind(), ErrorKind::FaultBudget);
        } else {
            assert_eq!(error.kind(), ErrorKind::Refused);
            assert!(!told || text.contains("is 1000"), "{text}");
        }
        let committed = world.cluster.committed("app", &TopicPartition::new("in", 0));
        assert!(committed.is_none_or(|c| c <= 4), "{committed:?}");
    }
}

#[test]
fn a_dead_letter_that_is_too_large_goes_without_its_value_and_one_that_is_refused_ends_the_process() {
    let graph = graph_of(|t| t.source::<In>().try_map_values(|_| Err::<String, _>(Error::handler("no"))).sink::<Out>());
    for told in [true, false] {
        let mut world = World::new(4);
        gates(&mut world, "dead_letter");
        world.cluster.set_limit("letters", 500, told);
        world.cluster.append("in", 1, b"k", "long ".repeat(200).as_bytes(), START);
        let mut engine = world.engine(&graph, 2);
        if told {
            world.finish(engine);
            let letters = world.records("letters");
            assert_eq!(letters.len(), 1);
            assert_eq!(letters[0].value, None);
            assert_eq!(letters[0].headers.last("__stoat.errors.omitted"), Some(&b"value: 1000 bytes"[..]));
        } else {
            let text = world.run_to_error(&mut engine).to_string();
            assert!(text.contains("in-1@0") && text.contains("dead letter") && text.contains("`letters`"), "{text}");
        }
    }
}

#[test]
fn dead_letters_need_a_topic_that_is_there_and_not_read() {
    let graph = graph_of(gated);
    for (topic, says) in [("", "set `stoat.dead-letter.topic`"), ("in", "comes again"), ("none", "topic `none`")] {
        let mut world = World::new(5);
        world.set("stoat.processing-exception-handler", "dead_letter");
        if !topic.is_empty() {
            world.set("stoat.dead-letter.topic", topic);
        }
        let mut engine = world.engine(&graph, 2);
        let text = world.run_to_error(&mut engine).to_string();
        assert!(text.contains(says), "{text}");
    }
}
