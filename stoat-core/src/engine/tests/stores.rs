//! State: stores that come, go, change and lie behind; reads of other keys.

use std::collections::BTreeMap;

use super::counts::{Counts, counts, line};
use super::model::{Model, Output, Stored, numbers, texts};
use super::*;

// --- deletes ---------------------------------------------------------------------------------------------------------

/// Forwards what was there, then keeps the value; `-` deletes, `?` only looks.
#[processor(input = (String, String), output = String)]
struct Presence {
    #[state(codec = Utf8)]
    present: Keyed<String>,
}

#[handlers]
impl Presence {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(self.present.get()?.cloned().unwrap_or_else(|| "none".to_owned()))?;
        match r.value.as_str() {
            "-" => self.present.remove(),
            "?" => Ok(()),
            _ => self.present.put(r.value),
        }
    }
}

fn presence(t: &mut Topology) {
    t.source::<In>().process::<Presence>().sink::<Out>();
}

#[derive(Default)]
struct Present {
    present: BTreeMap<String, String>,
    out: Vec<Output>,
}

impl Model for Present {
    fn record(&mut self, _topic: &str, key: &str, value: &str, time: i64) {
        let was = self.present.get(key).cloned().unwrap_or_else(|| "none".to_owned());
        self.out.push(("out", key.as_bytes().to_vec(), was.into_bytes(), time));
        match value {
            "-" => drop(self.present.remove(key)),
            "?" => {}
            _ => drop(self.present.insert(key.to_owned(), value.to_owned())),
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        texts("present", &self.present)
    }
}

#[test]
fn i11_what_was_deleted_stays_deleted_through_crashes_and_compaction() {
    let graph = graph_of(presence);
    for seed in seeds(6_000, 20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.compacted = &["app-present-changelog", "app-stoat-epochs"];
        world.torment(&graph, 200, faults(seed), |r, n| {
            let value = [format!("v{n}"), "-".to_owned(), "?".to_owned()][r.below(3) as usize].clone();
            fed(format!("k{}", r.below(8)), value, START + n as i64)
        });
        world.check_model(&graph, Present::default());
    }
}

#[test]
fn n2_a_directory_that_is_older_than_tombstones_live_is_rebuilt() {
    const DAY: u64 = 24 * 3_600_000;
    let graph = graph_of(presence);
    // Within the retention the tombstones are still there, and the directory needs only the tail.
    for (days, rebuilt) in [(1, 0), (6, 0), (8, 1)] {
        let mut world = World::new(6);
        let put = |world: &mut World, value: &str, n: i64| {
            for k in 0..6 {
                world.feed(&fed(format!("k{k}"), value.to_owned(), START + n + k));
            }
        };
        put(&mut world, "v", 0);
        world.run(&graph, 2);
        let old = std::mem::replace(&mut world.disk, TwinDisk::new());
        put(&mut world, "-", 10);
        world.run(&graph, 2);
        world.now += days * DAY;
        world.cluster.compact("app-present-changelog", days > 7);
        world.disk = old;
        put(&mut world, "?", 20);
        let mut engine = world.engine(&graph, 3);
        while engine.status().state != State::Running {
            world.turn(&mut engine).unwrap();
        }
        assert_eq!(engine.status().restore.rebuilt, rebuilt, "after {days} days");
        world.finish(engine);
        world.check_model(&graph, Present::default());
    }
}

#[test]
fn n2_stamps_are_renewed_while_nothing_is_written() {
    const DAY: u64 = 24 * 3_600_000;
    let graph = graph_of(presence);
    let mut world = World::new(6);
    world.feed(&fed("k".to_owned(), "v".to_owned(), START));
    let mut engine = world.engine(&graph, 2);
    for _ in 0..400 {
        world.now += DAY / 16;
        for _ in 0..20 {
            world.turn(&mut engine).unwrap();
        }
    }
    drop(engine);
    world.disk.crash();
    let mut engine = world.engine(&graph, 2);
    while engine.status().state != State::Running {
        world.turn(&mut engine).unwrap();
    }
    let report = engine.status().restore;
    assert_eq!((report.rebuilt, report.replayed), (0, 0), "{report:?}");
}

// --- other keys ------------------------------------------------------------------------------------------------------

/// Reads another key and all keys, then counts its own.
#[processor(input = (String, String), output = String)]
struct Peers {
    #[store(codec = Be)]
    peers: KeyValueStore<String, u64>,
}

#[handlers]
impl Peers {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        let other = self.peers.get(&r.value)?.copied();
        let all: Vec<String> = self.peers.range(..)?.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
        if other.is_some_and(|n| n % 5 == 4) {
            self.peers.remove(&r.key)?;
        } else {
            self.peers.update(&r.key, || 0, |n| *n += 1)?;
        }
        let own = self.peers.get(&r.key)?.copied();
        cx.forward(format!("{other:?} {own:?} {}", all.join(",")))
    }
}

fn peers(t: &mut Topology) {
    t.source::<In>().process::<Peers>().sink::<Out>();
}

fn peers_behind_a_rekey(t: &mut Topology) {
    let other = t.source::<In>().map(|k: String, v: String| (v, k)).repartition();
    other.process::<Peers>().sink::<Out>();
}

#[derive(Default)]
struct Peering {
    turned: bool,
    peers: BTreeMap<String, u64>,
    frozen: BTreeMap<String, u64>,
    applied: BTreeMap<String, u64>,
    out: Vec<Output>,
}

impl Model for Peering {
    fn record(&mut self, _topic: &str, key: &str, value: &str, time: i64) {
        let (key, value) = if self.turned { (value, key) } else { (key, value) };
        let see = |s: &Self, k: &str| {
            if k == key { s.peers.get(k).copied() } else { s.applied.get(k).copied() }
        };
        let other = see(self, value);
        let keys: std::collections::BTreeSet<&String> = self.peers.keys().chain(self.applied.keys()).collect();
        let all: Vec<String> = keys.into_iter().filter_map(|k| Some(format!("{k}={}", see(self, k)?))).collect();
        let all = all.join(",");
        if other.is_some_and(|n| n % 5 == 4) {
            self.peers.remove(key);
        } else {
            *self.peers.entry(key.to_owned()).or_default() += 1;
        }
        let own = self.peers.get(key).copied();
        let text = format!("{other:?} {own:?} {all}");
        self.out.push(("out", key.as_bytes().to_vec(), text.into_bytes(), time));
    }

    fn barrier(&mut self) {
        self.frozen.clone_from(&self.peers);
    }

    fn applied(&mut self) {
        self.applied.clone_from(&self.frozen);
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        numbers("peers", &self.peers)
    }
}

#[test]
fn i06_other_keys_are_read_as_of_one_commit_on_all_lanes() {
    for (turned, declare) in [(false, peers as fn(&mut Topology)), (true, peers_behind_a_rekey)] {
        let graph = graph_of(declare);
        for seed in seeds(6_100, 15) {
            let _seed = Seed(seed);
            let mut world = World::new(seed);
            world.torment(&graph, 160, faults(seed), |r, n| {
                fed(format!("k{}", r.below(6)), format!("k{}", r.below(6)), START + n as i64)
            });
            let model = Peering { turned, ..Peering::default() };
            world.check_model(&graph, model);
        }
    }
}

// --- stores that come, go and change ---------------------------------------------------------------------------------

fn counts_and_presence(t: &mut Topology) {
    let [a, b] = t.source::<In>().fan_out();
    let words = a
        .flat_map_values(|v: String| v.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .group_by(|_key, word: &String| word.clone());
    words.count().named("counted").to_stream().discard();
    b.process::<Presence>().sink::<Out>();
}

#[test]
fn i11_a_store_may_come_and_go_and_finds_its_state_again() {
    let (one, two) = (graph_of(counts), graph_of(counts_and_presence));
    let mut world = World::new(11);
    for (round, graph) in [&one, &two, &one, &two].into_iter().enumerate() {
        for n in 0..30 {
            let record = line(&mut world.random, n);
            world.feed(&record);
        }
        if round == 3 {
            // Gone from here, the store comes back from its changelog.
            world.disk = TwinDisk::new();
        }
        world.run(graph, 2);
    }
    let mut counted: BTreeMap<String, u64> = BTreeMap::new();
    for r in world.records("in") {
        for word in string(r.value.as_ref()).split(' ') {
            *counted.entry(word.to_owned()).or_default() += 1;
        }
    }
    let mut state = BTreeMap::new();
    for r in world.records("app-counted-changelog") {
        state.insert(string(r.key.as_ref()), u64::from_be_bytes(r.value.unwrap().try_into().unwrap()));
    }
    assert_eq!(state, counted);
    // In the rounds with the store, in order: 30 records each, the second time with what the first left.
    let mut present: BTreeMap<String, String> = BTreeMap::new();
    let mut want: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let history = world.recording.history(crate::id::Epoch(u64::MAX));
    let with_store: Vec<_> =
        world.cuts_with(&["present"]).into_iter().flat_map(|e| history[&e].entries.clone()).collect();
    for entry in with_store {
        if let super::super::net::recording::Entry::Record(r) = entry {
            let (key, value) = (string(r.key.as_ref()), string(r.value.as_ref()));
            let was = present.insert(key.clone(), value).unwrap_or_else(|| "none".to_owned());
            want.entry(key).or_default().push(was);
        }
    }
    let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for r in world.records("out") {
        seen.entry(string(r.key.as_ref())).or_default().push(string(r.value.as_ref()));
    }
    assert_eq!(seen, want);
    assert_eq!(seen.values().map(Vec::len).sum::<usize>(), 60);
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
struct Word(String);

#[sink(topic = "counts", key = Word, value = u64, value_codec = Be)]
struct WordCounts;

fn counts_by_json(t: &mut Topology) {
    let words = t.source::<In>().group_by(|_key, word: &String| Word(word.clone()));
    words.count().named("counted").to_stream().sink::<WordCounts>();
}

#[processor(input = (String, String))]
struct CountedTimer {
    #[timer(name = "counted")]
    counted: Timer,
}

#[handlers]
impl CountedTimer {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.counted.set(r.timestamp)
    }

    #[on_timer(counted)]
    fn fired(&mut self, _fired: Fired<String>, _cx: &mut Context<Self>) -> Result<()> {
        Ok(())
    }
}

fn counted_timer(t: &mut Topology) {
    t.source::<In>().process::<CountedTimer>().discard();
}

#[test]
fn i18_another_key_codec_or_kind_of_a_store_is_refused_and_the_old_one_goes_on() {
    let mut world = World::new(12);
    let graph = graph_of(counts);
    for n in 0..30 {
        let record = line(&mut world.random, n);
        world.feed(&record);
    }
    world.run(&graph, 2);
    let before = world.cuts(&graph).len();
    let mut engine = world.engine(&graph_of(counts_by_json), 2);
    let error = world.run_to_error(&mut engine).to_string();
    assert!(error.contains("app-counted-changelog") && error.contains("codec"), "{error}");
    let mut engine = world.engine(&graph_of(counted_timer), 2);
    let error = world.run_to_error(&mut engine).to_string();
    assert!(error.contains("counted") && error.contains("Timer"), "{error}");
    assert_eq!(world.cuts(&graph).len(), before, "nothing was written");
    world.run(&graph, 3);
    world.check_model(&graph, Counts::default());
}

#[test]
fn i11_a_changelog_that_ends_before_the_recorded_end_is_refused() {
    let graph = graph_of(counts);
    let mut world = World::new(14);
    // The ends in a record are those as of the epoch before: two runs, so that there are some.
    for _ in 0..2 {
        for n in 0..30 {
            let record = line(&mut world.random, n);
            world.feed(&record);
        }
        world.run(&graph, 2);
    }
    for p in 0..PARTITIONS {
        let half = world.cluster.log("app-counted-changelog", p).len() / 2 + 1;
        world.cluster.lose_end("app-counted-changelog", p, half);
    }
    let mut engine = world.engine_on(&TwinDisk::new(), &graph, 2);
    let error = world.run_to_error(&mut engine).to_string();
    assert!(error.contains("app-counted-changelog") && error.contains("but the application committed"), "{error}");
}

#[test]
fn i11_a_changelog_that_the_plan_knows_must_be_there_and_the_same() {
    let graph = graph_of(counts);
    for again in [false, true] {
        let mut world = World::new(13);
        for n in 0..30 {
            let record = line(&mut world.random, n);
            world.feed(&record);
        }
        world.run(&graph, 2);
        world.cluster.delete("app-counted-changelog");
        if again {
            world.cluster.create("app-counted-changelog", PARTITIONS);
        }
        for disk in [world.disk.clone(), TwinDisk::new()] {
            let mut engine = world.engine_on(&disk, &graph, 2);
            let error = world.run_to_error(&mut engine).to_string();
            let why = if again { "made anew" } else { "is missing" };
            assert!(error.contains("app-counted-changelog") && error.contains(why), "{error}");
        }
    }
}

/// Remembers the values of a key, and says them at the times that it is told: `late` once, `each` for every record.
macro_rules! remembers {
    ($processor:ident, $key:ty) => {
        #[processor(input = ($key, String), output = (String, String))]
        struct $processor {
            #[state(codec = Utf8)]
            values: Keyed<String>,
            #[timer]
            late: Timer,
            #[timer]
            each: Timers,
        }

        #[handlers]
        impl $processor {
            #[process]
            fn on_record(&mut self, r: Record<$key, String>, _cx: &mut Context<Self>) -> Result<()> {
                let values = self.values.take()?.unwrap_or_default();
                self.values.put(format!("{values}{},", r.value))?;
                self.each.set(r.timestamp + Duration::from_secs(100))?;
                self.late.set(r.timestamp + Duration::from_secs(200))
            }

            #[on_timer(each)]
            fn each(&mut self, fired: Fired<$key>, cx: &mut Context<Self>) -> Result<()> {
                let values = self.values.get()?.cloned();
                cx.forward(text_of(&fired.key), format!("{} {values:?}", fired.time.0 - START))
            }

            #[on_timer(late)]
            fn late(&mut self, fired: Fired<$key>, cx: &mut Context<Self>) -> Result<()> {
                let values = self.values.take()?;
                cx.forward(text_of(&fired.key), format!("{} late {values:?}", fired.time.0 - START))
            }
        }
    };
}

fn text_of(key: &(impl ToText + ?Sized)) -> String {
    key.to_text()
}

trait ToText {
    fn to_text(&self) -> String;
}

impl ToText for String {
    fn to_text(&self) -> String {
        self.clone()
    }
}

impl ToText for Word {
    fn to_text(&self) -> String {
        self.0.clone()
    }
}

remembers!(RememberByJson, Word);
remembers!(Remember, String);

fn remembered_by_json(t: &mut Topology) {
    let words = t.source::<In>().select_key(|k: &String, _| Word(k.clone())).repartition();
    words.process::<RememberByJson>().sink::<Out>();
}

fn remembered(t: &mut Topology) {
    let words = t.source::<In>().select_key(|k: &String, _| k.clone()).repartition();
    words.process::<Remember>().sink::<Out>();
}

const REMEMBERED: [&str; 3] = ["values", "late", "each"];

/// Some keys with values and timers that are due in the far future, under the old codec.
fn remember(seed: u64) -> World {
    let mut world = World::new(seed);
    for n in 0..20 {
        world.feed(&fed(format!("k {}", n % 7), format!("v{n}"), START + n));
    }
    world.run(&graph_of(remembered_by_json), 2);
    world
}

/// The rows that are there, as changelogs have them.
fn live(world: &World, store: &str) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
    let topic = format!("app-{store}-changelog");
    let mut rows = BTreeMap::new();
    for p in 0..world.cluster.partitions(&topic) {
        for r in world.cluster.log(&topic, p).into_iter().filter(|r| !r.marker) {
            let key = r.key.unwrap();
            let lane_key = if store == "each" { &key[..key.len() - 8] } else { &key[..] };
            assert_eq!(p, crate::hash::partition_for(lane_key, world.cluster.partitions(&topic)), "{key:?}");
            rows.insert(key, r.value);
        }
    }
    rows.retain(|_, v| v.is_some());
    rows
}

#[test]
fn i18_keys_are_written_anew_by_another_codec_once_whatever_happens_meanwhile() {
    let mut graph = graph_of(remembered);
    for store in REMEMBERED {
        graph.reencode::<String, Json, Utf8>(store).unwrap();
    }
    // What the same records give where the codec was never another.
    let mut never = World::new(1);
    for n in 0..20 {
        never.feed(&fed(format!("k {}", n % 7), format!("v{n}"), START + n));
    }
    never.run(&graph_of(remembered), 2);
    let sorted = |world: &World| {
        let mut all: Vec<(String, String)> = Vec::new();
        for key in 0..7 {
            let key = format!("k {key}");
            let of = world.records("out").into_iter().filter(|r| r.key.as_deref() == Some(key.as_bytes()));
            all.extend(of.map(|r| (key.clone(), string(r.value.as_ref()))));
        }
        all
    };
    let mut killed_before = 0;
    for (i, turns) in (0..260).step_by(5).enumerate() {
        let _seed = Seed(turns);
        let mut world = remember(turns + 100);
        assert!(live(&world, "late").keys().all(|k| k.starts_with(b"\"")), "JSON strings have quotes");
        world.cluster.set_faults(faults(turns / 5));
        let mut engine = world.engine(&graph, [1, 3, 16][i % 3]);
        for _ in 0..turns {
            world.turn(&mut engine).unwrap();
        }
        drop(engine);
        killed_before += u32::from(live(&world, "late").keys().any(|k| k.starts_with(b"\"")));
        world.crash();
        world.cluster.set_faults(Faults::default());
        world.cluster.deliver_late();
        world.run(&graph, 3);
        for store in REMEMBERED {
            assert_eq!(live(&world, store), live(&never, store), "{store}, killed after {turns} turns");
        }
        // Nothing more to do; and who does not ask for it any more starts as well.
        let written = world.records("app-late-changelog").len();
        world.run(&graph_of(remembered), 2);
        assert_eq!(world.records("app-late-changelog").len(), written);
        for w in [&mut world, &mut never] {
            if w.records("out").is_empty() {
                for p in 0..PARTITIONS {
                    w.cluster.append("in", p, b"end", b"end", START + 1_000_000);
                }
                w.run(&graph_of(remembered), 2);
            }
        }
        assert_eq!(sorted(&world), sorted(&never), "killed after {turns} turns");
        never = {
            // As it was before its timers fired.
            let mut again = World::new(1);
            for n in 0..20 {
                again.feed(&fed(format!("k {}", n % 7), format!("v{n}"), START + n));
            }
            again.run(&graph_of(remembered), 2);
            again
        };
    }
    assert!((1..50).contains(&killed_before), "killed before it and after it: {killed_before}");
}

#[test]
fn i18_what_is_not_asked_for_is_refused_with_the_way_and_nothing_is_written() {
    let mut world = remember(5);
    let mut graph = graph_of(remembered);
    graph.reencode::<String, Json, Utf8>("values").unwrap();
    graph.reencode::<String, Json, Utf8>("late").unwrap();
    let before = REMEMBERED.map(|store| live(&world, store));
    let mut engine = world.engine(&graph, 2);
    let error = world.run_to_error(&mut engine).to_string();
    assert!(error.contains("app-each-changelog") && error.contains("reencode::<Key, Old, New>(\"each\")"), "{error}");
    assert_eq!(REMEMBERED.map(|store| live(&world, store)), before);
    // Not the codec that wrote them.
    let mut graph = graph_of(remembered);
    for store in REMEMBERED {
        graph.reencode::<String, Utf8, Utf8>(store).unwrap();
    }
    let mut engine = world.engine(&graph, 2);
    assert!(world.run_to_error(&mut engine).to_string().contains("reencode"));
    let unknown = graph.reencode::<String, Json, Utf8>("other").unwrap_err().to_string();
    assert!(unknown.contains("`other`") && unknown.contains("values, late, each"), "{unknown}");
    let twisted = graph.reencode::<String, Utf8, Json>("late").unwrap_err().to_string();
    assert!(twisted.contains("`late`"), "{twisted}");
    // Too much for the memory that it may take.
    let mut graph = graph_of(remembered);
    for store in REMEMBERED {
        graph.reencode::<String, Json, Utf8>(store).unwrap();
    }
    world.set("stoat.memory.budget", "1KiB");
    let mut engine = world.engine(&graph, 2);
    let error = world.run_to_error(&mut engine).to_string();
    assert!(error.contains("stoat.memory.budget"), "{error}");
    world.settings.clear();
    world.run(&graph_of(remembered_by_json), 2);
    assert_eq!(REMEMBERED.map(|store| live(&world, store)), before, "the old program goes on");
    world.run(&graph, 2);
    let mut engine = world.engine(&graph_of(remembered_by_json), 2);
    assert!(world.run_to_error(&mut engine).to_string().contains("codec"), "and is refused once it is done");
}
