//! Timers and punctuators, on both clocks, own and foreign.

use std::collections::{BTreeMap, BTreeSet};

use super::super::message::Mark;
use super::model::{Model, Output, Stored, numbers, texts, times, within};
use super::shapes::{Chain, other_key};
use super::*;

// --- sessions --------------------------------------------------------------------------------------------------------

/// Closes what was open 20 ms after the last record of a key.
#[processor(input = (String, String), output = String)]
struct Close {
    #[state(codec = Utf8)]
    open: Keyed<String>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl Close {
    #[process]
    fn on_record(&mut self, record: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        let open = self.open.take()?;
        self.open.put(open.map_or(record.value.clone(), |o| format!("{o},{}", record.value)))?;
        self.idle.set(record.timestamp + Duration::from_millis(20))
    }

    #[on_timer(idle)]
    fn close(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(open) = self.open.take()? {
            cx.forward(open)?;
        }
        Ok(())
    }
}

/// The same behind a re-key.
#[processor(input = (String, String), output = String)]
struct Close2 {
    #[state(codec = Utf8)]
    open2: Keyed<String>,
    #[timer]
    idle2: Timer,
}

#[handlers]
impl Close2 {
    #[process]
    fn on_record(&mut self, record: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        // Forwards at once as well, so that the order of records and firings shows.
        cx.forward(format!("+{}", record.value))?;
        let open = self.open2.take()?;
        self.open2.put(open.map_or(record.value.clone(), |o| format!("{o};{}", record.value)))?;
        self.idle2.set(record.timestamp + Duration::from_millis(10))
    }

    #[on_timer(idle2)]
    fn close(&mut self, _fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(open) = self.open2.take()? {
            cx.forward(open)?;
        }
        Ok(())
    }
}

fn closes(t: &mut Topology) {
    t.source::<In>().process::<Close>().sink::<Out>();
}

fn closes_twice(t: &mut Topology) {
    let closed = t.source::<In>().process::<Close>();
    let by_length = closed.select_key(|_, v: &String| length_key(v)).repartition();
    by_length.process::<Close2>().sink::<Out>();
}

pub(super) fn length_key(value: &str) -> String {
    format!("n{}", value.len() % 5)
}

#[derive(Default)]
pub(super) struct Closing {
    twice: bool,
    open: [BTreeMap<String, String>; 2],
    idle: [BTreeMap<String, i64>; 2],
    reached: [Option<i64>; 2],
    out: Vec<Output>,
}

impl Closing {
    pub(super) fn new(twice: bool) -> Self {
        Self { twice, ..Self::default() }
    }

    fn put(&mut self, stage: usize, key: &str, value: &str, time: i64) {
        if stage == 1 {
            self.emit(key, format!("+{value}"), time);
        }
        let sep = [",", ";"][stage];
        let open = self.open[stage].remove(key);
        self.open[stage].insert(key.to_owned(), open.map_or(value.to_owned(), |o| format!("{o}{sep}{value}")));
        self.idle[stage].insert(key.to_owned(), time + [20, 10][stage]);
    }

    fn emit(&mut self, key: &str, value: String, time: i64) {
        self.out.push(("out", key.as_bytes().to_vec(), value.into_bytes(), time));
    }

    /// Fires a stage; whether it holds the watermark back.
    fn fire(&mut self, stage: usize, mark: &Mark) -> bool {
        let Some(reached) = self.reached[stage] else {
            return false;
        };
        let mut clock = i64::MIN;
        loop {
            let next = self.idle[stage].iter().map(|(k, t)| (*t, k.clone())).min();
            let Some((time, key)) = next.filter(|(t, _)| *t <= reached) else {
                return false;
            };
            if !within(mark, stage, reached, clock, time, &key) {
                return true;
            }
            clock = clock.max(time);
            self.idle[stage].remove(&key);
            if let Some(open) = self.open[stage].remove(&key) {
                if self.twice && stage == 0 {
                    self.put(1, &length_key(&open), &open, time);
                } else {
                    self.emit(&key, open, time);
                }
            }
        }
    }
}

impl Model for Closing {
    fn record(&mut self, _topic: &str, key: &str, value: &str, time: i64) {
        self.put(0, key, value, time);
    }

    fn mark(&mut self, mark: &Mark) {
        let w = mark.watermarks[0].0;
        if w > i64::MIN {
            self.reached[0] = self.reached[0].max(Some(w));
        }
        let holds = self.fire(0, mark);
        if self.twice {
            if !holds {
                self.reached[1] = self.reached[1].max(self.reached[0]);
            }
            self.fire(1, mark);
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let mut all = texts("open", &self.open[0]);
        all.extend(times("idle", &self.idle[0]));
        all.extend(texts("open2", &self.open[1]));
        all.extend(times("idle2", &self.idle[1]));
        all
    }
}

/// Event time runs evenly, up to 5 ms out of order.
pub(super) fn even(r: &mut Random, n: u64) -> Fed {
    let time = START + (n * 4) as i64 - r.below(5) as i64;
    fed(format!("k{}", r.below(12)), format!("v{n}"), time)
}

/// Pushes the time of all partitions far on.
pub(super) fn end(world: &mut World) {
    for p in 0..PARTITIONS {
        world.cluster.append("in", p, format!("end{p}").as_bytes(), b"end", START + 1_000_000);
    }
}

#[test]
fn i11_i15_timers_close_each_session_once_under_crashes() {
    let graph = graph_of(closes);
    for seed in seeds(3_000, 20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 160, faults(seed), even);
        end(&mut world);
        world.run(&graph, 3);
        world.check_model(&graph, Closing::default());
        // What is certain whatever the interleaving: every value once, in order.
        let mut want: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for r in world.records("in") {
            let key = string(r.key.as_ref());
            if !key.starts_with("end") {
                want.entry(key).or_default().push(string(r.value.as_ref()));
            }
        }
        let mut seen: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for r in world.records("out") {
            let values = string(r.value.as_ref());
            seen.entry(string(r.key.as_ref())).or_default().extend(values.split(',').map(str::to_owned));
        }
        assert_eq!(seen, want);
    }
}

#[test]
fn i06_i15_timers_behind_a_rekey_wait_for_what_the_timers_before_it_forward() {
    let graph = graph_of(closes_twice);
    for seed in seeds(3_100, 20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 160, faults(seed), even);
        end(&mut world);
        world.run(&graph, 3);
        world.check_model(&graph, Closing::new(true));
    }
}

// --- foreign ---------------------------------------------------------------------------------------------------------

/// Values are commands: `s,key,ms` sets, `c,key` cancels; `S,key,ms` and `C,key,ms` do so with many times per key.
#[processor(input = (String, String), output = String)]
struct Alarms {
    #[state(codec = Utf8)]
    heard: Keyed<String>,
    #[timer(foreign)]
    one: Timer,
    #[timer(foreign)]
    many: Timers,
}

impl Alarms {
    fn obey(&mut self, commands: &str) -> Result<()> {
        for command in commands.split(';').filter(|c| !c.is_empty()) {
            let mut words = command.split(',');
            let (what, key) = (words.next().unwrap(), words.next().unwrap().to_owned());
            let time = Timestamp(words.next().map_or(0, |t| t.parse().unwrap()));
            match what {
                "s" => self.one.set_for(&key, time)?,
                "c" => self.one.cancel_for(&key)?,
                "S" => self.many.set_for(&key, time)?,
                _ => self.many.cancel_for(&key, time)?,
            }
        }
        Ok(())
    }

    fn hear(&mut self, what: &str, fired: &Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let heard = self.heard.take()?.unwrap_or_default();
        // Short, and still depends on all that was before.
        let heard = format!("{}{what}{}", &heard[heard.len().saturating_sub(30)..], fired.time.0 % 1_000);
        self.heard.put(heard.clone())?;
        cx.forward(heard)?;
        self.obey(&echo(what, &fired.key, fired.time.0))
    }
}

/// What a firing sets and cancels in turn.
fn echo(what: &str, key: &str, time: i64) -> String {
    match time % 5 {
        0 => format!("S,k{},{};c,{key}", time % 7, time + 6),
        1 if what == "m" => format!("s,k{},{}", time % 7, time - 3),
        2 if what == "o" => format!("s,{key},{};C,k{},{}", time + 3, time % 7, time + 5),
        _ => String::new(),
    }
}

#[handlers]
impl Alarms {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.obey(&r.value)
    }

    #[on_timer(one)]
    fn on_one(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.hear("o", &fired, cx)
    }

    #[on_timer(many)]
    fn on_many(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.hear("m", &fired, cx)
    }
}

fn alarms(t: &mut Topology) {
    t.source::<In>().process::<Alarms>().sink::<Out>();
}

fn alarms_behind(t: &mut Topology) {
    let heard = t.source::<In>().process::<Alarms>();
    let heard = heard.select_key(|_, v: &String| other_key(v)).repartition();
    heard.process::<Chain>().sink::<Out>();
}

/// A write to the timer of another key, which waits for the barrier.
struct Waiting {
    place: u64,
    set: bool,
    many: bool,
    key: String,
    time: i64,
}

#[derive(Default)]
struct Alarmed {
    heard: BTreeMap<String, String>,
    one: BTreeMap<String, i64>,
    many: BTreeSet<(String, i64)>,
    foreign: Vec<Waiting>,
    /// The place of the last own write of this epoch: of `one` by key, of `many` by key and time.
    own_one: BTreeMap<String, u64>,
    own_many: BTreeMap<(String, i64), u64>,
    place: u64,
    reached: Option<i64>,
    out: Vec<Output>,
}

impl Alarmed {
    fn obey(&mut self, current: &str, commands: &str) {
        for command in commands.split(';').filter(|c| !c.is_empty()) {
            let words: Vec<&str> = command.split(',').collect();
            let w = Waiting {
                place: self.place,
                set: matches!(words[0], "s" | "S"),
                many: matches!(words[0], "S" | "C"),
                key: words[1].to_owned(),
                time: words.get(2).map_or(0, |t| t.parse().unwrap()),
            };
            self.place += 1;
            if w.key == current {
                if w.many {
                    self.own_many.insert((w.key.clone(), w.time), w.place);
                } else {
                    self.own_one.insert(w.key.clone(), w.place);
                }
                self.write(w);
            } else {
                self.foreign.push(w);
            }
        }
    }

    fn write(&mut self, w: Waiting) {
        match (w.many, w.set) {
            (false, true) => drop(self.one.insert(w.key, w.time)),
            (false, false) => drop(self.one.remove(&w.key)),
            (true, true) => drop(self.many.insert((w.key, w.time))),
            (true, false) => drop(self.many.remove(&(w.key, w.time))),
        }
    }
}

impl Model for Alarmed {
    fn record(&mut self, _topic: &str, key: &str, value: &str, _time: i64) {
        self.obey(key, value);
    }

    fn mark(&mut self, mark: &Mark) {
        let w = mark.watermarks[0].0;
        if w == i64::MIN {
            return;
        }
        self.reached = self.reached.max(Some(w));
        let reached = self.reached.unwrap();
        let mut clock = i64::MIN;
        loop {
            let ones = self.one.iter().map(|(k, t)| (*t, k.clone(), "o"));
            let many = self.many.iter().map(|(k, t)| (*t, k.clone(), "m"));
            // Of equal time and key, the field that is declared first comes first.
            let next = ones.chain(many).min_by_key(|(t, k, f)| (*t, k.clone(), *f == "m"));
            let Some((time, key, field)) = next else { return };
            if !within(mark, 0, reached, clock, time, &key) {
                return;
            }
            clock = clock.max(time);
            if field == "o" {
                self.one.remove(&key);
            } else {
                self.many.remove(&(key.clone(), time));
            }
            let heard = self.heard.get(&key).cloned().unwrap_or_default();
            let heard = format!("{}{field}{}", &heard[heard.len().saturating_sub(30)..], time % 1_000);
            self.heard.insert(key.clone(), heard.clone());
            self.out.push(("out", key.as_bytes().to_vec(), heard.into_bytes(), time));
            self.obey(&key, &echo(field, &key, time));
        }
    }

    fn barrier(&mut self) {
        let mut foreign = std::mem::take(&mut self.foreign);
        foreign.sort_by_key(|w| w.place);
        for w in foreign {
            let own = if w.many { self.own_many.get(&(w.key.clone(), w.time)) } else { self.own_one.get(&w.key) };
            if own.is_none_or(|p| *p < w.place) {
                self.write(w);
            }
        }
        self.own_one.clear();
        self.own_many.clear();
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let mut all = texts("heard", &self.heard);
        all.extend(times("one", &self.one));
        for (key, time) in &self.many {
            let mut row = key.as_bytes().to_vec();
            row.extend_from_slice(&time.to_be_bytes());
            all.insert(("many".to_owned(), row), Vec::new());
        }
        all
    }
}

fn orders(r: &mut Random, n: u64) -> Fed {
    let now = START + (n * 3) as i64;
    let mut commands = String::new();
    for _ in 0..=r.below(3) {
        let (key, time) = (r.below(7), now - 10 + r.below(60) as i64);
        let what = r.one_of(&["s", "s", "c", "S", "S", "C"]);
        commands.extend([what, ",k", &key.to_string(), ",", &time.to_string(), ";"]);
    }
    fed(format!("k{}", r.below(7)), commands, now - r.below(5) as i64)
}

#[test]
fn i06_i15_timers_set_for_the_past_keep_their_place_behind_a_rekey() {
    let graph = graph_of(alarms_behind);
    for seed in seeds(3_250, 15) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 120, faults(seed), orders);
        world.check(&graph);
    }
}

#[test]
fn i15_foreign_timers_fire_on_their_keys_lane_and_the_later_write_wins() {
    let graph = graph_of(alarms);
    for seed in seeds(3_200, 30) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 160, faults(seed), orders);
        for p in 0..PARTITIONS {
            world.cluster.append("in", p, b"k0", b"", START + 100_000);
        }
        world.run(&graph, 3);
        let model = world.check_model(&graph, Alarmed::default());
        assert!(!model.heard.is_empty(), "some fired");
    }
}

// --- wall clock and punctuators --------------------------------------------------------------------------------------

#[processor(input = (String, String), output = String)]
struct Watch {
    #[state(codec = Be)]
    n: Keyed<u64>,
    #[timer(clock = wall)]
    soon: Timer,
    #[timer]
    late: Timer,
}

#[handlers]
impl Watch {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, cx: &mut Context<Self>) -> Result<()> {
        self.n.update(|| 0, |n| *n += 1)?;
        self.soon.set(cx.wall_clock() + Duration::from_millis(13))?;
        self.late.set(r.timestamp + Duration::from_millis(9))
    }

    #[on_timer(soon)]
    fn soon(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let n = self.n.get()?.copied();
        cx.forward(format!("soon {} {n:?}", fired.time.0 - START))
    }

    #[on_timer(late)]
    fn late(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let n = self.n.get()?.copied();
        cx.forward(format!("late {} {n:?}", fired.time.0 - START))
    }

    #[punctuate(every = "150ms", clock = wall, over = n)]
    fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
        let n = self.n.get()?.copied();
        cx.forward(format!("wall {n:?}"))?;
        if n >= Some(4) {
            self.n.remove()?;
        }
        Ok(())
    }

    #[punctuate(every = "25ms", over = n)]
    fn mark(&mut self, cx: &mut Context<Self>) -> Result<()> {
        let n = self.n.get()?.copied();
        cx.forward(format!("event {n:?}"))
    }
}

fn watch(t: &mut Topology) {
    t.source::<In>().process::<Watch>().sink::<Out>();
}

struct Watched {
    n: BTreeMap<String, u64>,
    soon: BTreeMap<String, i64>,
    late: BTreeMap<String, i64>,
    wall: i64,
    reached: Option<i64>,
    punctuated: Option<i64>,
    out: Vec<Output>,
}

impl Watched {
    fn emit(&mut self, key: &str, text: String, time: i64) {
        self.out.push(("out", key.as_bytes().to_vec(), text.into_bytes(), time));
    }

    fn punctuate(&mut self, wall: bool, every: i64, before: i64, now: i64) {
        let at = now.div_euclid(every) * every;
        if at <= before {
            return;
        }
        for (key, n) in self.n.clone() {
            let what = if wall { "wall" } else { "event" };
            self.emit(&key, format!("{what} {:?}", Some(n)), at);
            if wall && n >= 4 {
                self.n.remove(&key);
            }
        }
    }
}

impl Model for Watched {
    fn record(&mut self, _topic: &str, key: &str, _value: &str, time: i64) {
        *self.n.entry(key.to_owned()).or_default() += 1;
        self.soon.insert(key.to_owned(), self.wall + 13);
        self.late.insert(key.to_owned(), time + 9);
    }

    fn mark(&mut self, mark: &Mark) {
        let w = mark.watermarks[0].0;
        if w == i64::MIN {
            return;
        }
        self.reached = self.reached.max(Some(w));
        let reached = self.reached.unwrap();
        let mut clock = i64::MIN;
        while let Some((time, key)) = self.late.iter().map(|(k, t)| (*t, k.clone())).min() {
            if !within(mark, 0, reached, clock, time, &key) {
                break;
            }
            clock = clock.max(time);
            self.late.remove(&key);
            let n = self.n.get(&key).copied();
            self.emit(&key, format!("late {} {n:?}", time - START), time);
        }
        if mark.limits[0].as_ref().is_none_or(|l| l.time.0 > reached) {
            if let Some(before) = self.punctuated {
                self.punctuate(false, 25, before, reached);
            }
            self.punctuated = Some(reached);
        }
    }

    fn tick(&mut self, wall: i64) {
        let before = self.wall;
        self.wall = wall;
        while let Some((time, key)) = self.soon.iter().map(|(k, t)| (*t, k.clone())).min() {
            if time > wall {
                break;
            }
            self.soon.remove(&key);
            let n = self.n.get(&key).copied();
            self.emit(&key, format!("soon {} {n:?}", time - START), time);
        }
        self.punctuate(true, 150, before, wall);
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let mut all = numbers("n", &self.n);
        all.extend(times("soon", &self.soon));
        all.extend(times("late", &self.late));
        all
    }
}

#[test]
fn i06_i15_wall_clock_timers_and_punctuators_run_once_per_key_and_across_restarts() {
    let graph = graph_of(watch);
    let mut seen = BTreeSet::new();
    for seed in seeds(3_300, 20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 160, faults(seed), |r, n| {
            let time = START + (n * 4) as i64 - r.below(5) as i64;
            fed(format!("k{}", r.below(5)), "x".to_owned(), time)
        });
        let model = Watched {
            n: BTreeMap::new(),
            soon: BTreeMap::new(),
            late: BTreeMap::new(),
            wall: world.recording.wall().0,
            reached: None,
            punctuated: None,
            out: Vec::new(),
        };
        world.check_model(&graph, model);
        for r in world.records("out") {
            seen.extend(string(r.value.as_ref()).split(' ').next().map(str::to_owned));
        }
    }
    if seeds(3_300, 20).count() > 1 {
        let all = ["event", "late", "soon", "wall"];
        assert_eq!(seen.iter().collect::<Vec<_>>(), all, "each of them happened");
    }
}
