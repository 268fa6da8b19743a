//! Schedules that read stores: they see one commit, whole, and never what is not committed.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::shapes::other_key;
use super::*;
use crate::schedule::{Emit, ReadStore, Reads, Schedule, Tick, When};

/// How many records of each key were counted.
struct Counted;

impl ReadStore for Counted {
    type Key = String;
    type Value = u64;
    type KeyCodec = Utf8;
    type ValueCodec = Be;
    const STORE: &'static str = "counted";
}

/// The same behind a re-key, in another sub-topology and by a processor.
struct Tallied;

impl ReadStore for Tallied {
    type Key = String;
    type Value = u64;
    type KeyCodec = Utf8;
    type ValueCodec = Be;
    const STORE: &'static str = "tallied";
}

#[processor(input = (String, String))]
struct Tally {
    #[state(codec = Be)]
    tallied: Keyed<u64>,
}

#[handlers]
impl Tally {
    #[process]
    fn on_record(&mut self, _: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.tallied.update(|| 0, |n| *n += 1)
    }
}

fn line<'a>(rows: impl IntoIterator<Item = (&'a String, &'a u64)>) -> String {
    rows.into_iter().fold(String::new(), |mut line, (k, n)| {
        let _ = write!(line, "{k}={n} ");
        line
    })
}

/// Writes all that it reads.
struct Reader;

impl Schedule for Reader {
    type Key = String;
    type Value = String;
    type KeyCodec = Utf8;
    type ValueCodec = Utf8;
    const NAME: &'static str = "Reader";
    const READS: &'static [Reads] = &[Reads::of::<Counted>(), Reads::of::<Tallied>()];

    fn when() -> When {
        When::every(Duration::from_millis(10))
    }

    fn emit(_: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
        let (counted, tallied) = (out.store::<Counted>()?, out.store::<Tallied>()?);
        let all: BTreeMap<String, u64> = counted.range(..)?.into_iter().collect();
        // Each way of reading says the same.
        for (key, n) in &all {
            assert_eq!(counted.get(key)?, Some(*n));
        }
        assert_eq!(counted.prefix(b"q3")?.len(), usize::from(all.contains_key("q3")));
        assert_eq!(
            counted.range("q2".to_owned().."q4".to_owned())?.len(),
            all.range("q2".to_owned().."q4".to_owned()).count()
        );
        let mut seen = BTreeMap::new();
        tallied.scan(None, None, |k, n| seen.insert(k, n).is_none())?;
        out.record(&"seen".to_owned(), &format!("{}/ {}", line(&all), line(&seen)))
    }
}

fn reading(t: &mut Topology) {
    let [a, b] = t.source::<In>().fan_out();
    a.group_by_key().count().named("counted");
    drop(b.select_key(|_, v: &String| other_key(v)).repartition().process::<Tally>());
    t.scheduled::<Reader>().sink::<Out>();
}

/// What the stores held after each committed epoch, in the words of the schedule; the first line is of before all.
fn states(world: &World, graph: &Graph) -> (Vec<String>, Vec<Vec<String>>) {
    let mut stores: [BTreeMap<String, u64>; 2] = Default::default();
    let show = |stores: &[BTreeMap<String, u64>; 2]| format!("{}/ {}", line(&stores[0]), line(&stores[1]));
    let (mut after, mut read) = (vec![show(&stores)], Vec::new());
    for cut in world.cuts(graph) {
        for (store, name) in stores.iter_mut().zip(["counted", "tallied"]) {
            for (key, (value, _)) in cut.result.rows.get(name).into_iter().flatten() {
                let n = u64::from_be_bytes(value.as_deref().unwrap().try_into().unwrap());
                store.insert(string(Some(key)), n);
            }
        }
        after.push(show(&stores));
        let outputs = cut.result.outputs.into_iter().filter(|((topic, _), _)| topic == "out");
        read.push(outputs.flat_map(|(_, records)| records).map(|(_, value, _)| string(value.as_ref())).collect());
    }
    (after, read)
}

#[test]
fn i05_i06_a_schedule_reads_all_stores_as_of_one_commit_under_crashes_and_with_any_number_of_lanes() {
    let graph = graph_of(reading);
    let (mut of_last, mut of_one_before) = (0, 0);
    for seed in seeds(11_700, 12) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 200, faults(seed), |r, n| {
            fed(format!("q{}", r.below(6)), format!("v{n}"), START + n as i64)
        });
        // Replays with 1, 2, 3 and 16 lanes.
        world.check(&graph);
        let (after, read) = states(&world, &graph);
        for (epoch, lines) in read.iter().enumerate() {
            for line in lines {
                // A tick of this epoch: the one before is committed and applied, or else the one before that.
                let (last, before) = (&after[epoch], &after[epoch.saturating_sub(1)]);
                assert!(line == last || line == before, "epoch {}: {line}\nof {before}\nor {last}", epoch + 1);
                of_last += u32::from(line == last && last != before);
                of_one_before += u32::from(line == before && last != before);
            }
        }
    }
    assert!(of_last > 50 && of_one_before > 5, "both happen: {of_last}, {of_one_before}");
}

#[test]
fn after_a_crash_a_schedule_sees_what_was_committed_and_nothing_that_was_not() {
    for lanes in [1, 16] {
        let graph = graph_of(reading);
        let mut world = World::new(11_801);
        let mut engine = world.engine(&graph, lanes);
        let mut fed_so_far = 0;
        // The process ends where commits are many and some of what it wrote is lost.
        for _ in 0..8 {
            for _ in 0..60 {
                world.feed(&fed(format!("q{}", fed_so_far % 6), format!("v{fed_so_far}"), START + fed_so_far));
                fed_so_far += 1;
                world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
            }
            drop(engine);
            // All that was not flushed is lost, so the changelog's tail has to bring it back.
            world.disk.crash();
            let committed = states(&world, &graph).0.pop().unwrap();
            let epochs = world.cuts(&graph).len();
            engine = world.engine(&graph, lanes);
            while world.cuts(&graph).len() == epochs {
                world.turn(&mut engine).unwrap_or_else(|e| panic!("{e}"));
            }
            let first = states(&world, &graph).1[epochs].clone();
            assert!(first.iter().all(|line| *line == committed), "{first:?}\nafter {committed}");
        }
        world.finish(engine);
        world.check(&graph);
    }
}

/// A schedule that makes nothing of its errors.
struct Careless;

impl Schedule for Careless {
    type Key = String;
    type Value = String;
    type KeyCodec = Utf8;
    type ValueCodec = Utf8;
    const NAME: &'static str = "Careless";
    const READS: &'static [Reads] = &[Reads::of::<Counted>()];

    fn when() -> When {
        When::every(Duration::from_millis(10))
    }

    fn emit(_: Tick, out: &mut Emit<'_, Self>) -> Result<()> {
        let n = out.store::<Counted>()?.range(..).map_or(0, |rows| rows.len());
        out.record(&"seen".to_owned(), &n.to_string())
    }
}

#[test]
fn i10_damaged_local_state_ends_the_application_though_the_schedule_swallows_the_error() {
    let graph = graph_of(|t| {
        t.source::<In>().group_by_key().count().named("counted");
        t.scheduled::<Careless>().sink::<Out>();
    });
    let mut world = World::new(11_901);
    let engine = world.engine(&graph, 2);
    world.finish(engine);
    let mut engine = world.engine(&graph, 2);
    while engine.status().state != State::Running {
        world.turn(&mut engine).unwrap();
    }
    // From now on the stores belong to another process.
    world.disk.crash();
    let error = world.run_to_error(&mut engine);
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::State, "{text}");
    assert!(text.contains("schedule `Careless`, tick at ") && text.contains("store `counted`"), "{text}");
}
