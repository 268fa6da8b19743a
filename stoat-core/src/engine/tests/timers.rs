//! Timers and punctuators, on both clocks, own and foreign.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::super::message::{Control, Mark, Tick};
use super::super::net::recording::Entry;
use super::model::{Model, Output, Stored, numbers, texts, times, within};
use super::shapes::{Chain, other_key};
use super::*;
use crate::store::{StoreKind, StoreSet};

// --- sessions --------------------------------------------------------------------------------------------------------

/// Closes what was open 20 ms after the last record of a key.
#[processor(input = (String, String), output = String)]
pub(super) struct Close {
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

pub(super) fn closes(t: &mut Topology) {
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
            if !within(mark.limits[stage].as_ref(), reached, clock, time, &key) {
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

/// Values are commands: `s,key,ms` sets, `c,key` cancels; `S,key,ms` and `C,key,ms` do so with many times per key; `t`, `u`,
/// `T` and `U` do the same on the wall clock.
#[processor(input = (String, String), output = String)]
struct Alarms {
    #[state(codec = Utf8)]
    heard: Keyed<String>,
    #[timer(foreign)]
    one: Timer,
    #[timer(foreign)]
    many: Timers,
    #[timer(foreign, clock = wall)]
    wone: Timer,
    #[timer(foreign, clock = wall)]
    wmany: Timers,
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
                "C" => self.many.cancel_for(&key, time)?,
                "t" => self.wone.set_for(&key, time)?,
                "u" => self.wone.cancel_for(&key)?,
                "T" => self.wmany.set_for(&key, time)?,
                _ => self.wmany.cancel_for(&key, time)?,
            }
        }
        Ok(())
    }

    fn hear(&mut self, what: &str, fired: &Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let heard = self.heard.take()?.unwrap_or_default();
        // Short, and still depends on all that was before, and on what is pending.
        let pending = [self.one.get()?, self.wone.get()?].map(|t| t.map_or(0, |t| t.0 % 100));
        let heard = format!("{}{what}{}{pending:?}", &heard[heard.len().saturating_sub(30)..], fired.time.0 % 1_000);
        self.heard.put(heard.clone())?;
        cx.forward(heard)?;
        self.obey(&echo(what, &fired.key, fired.time.0))
    }
}

/// What a firing sets and cancels in turn.
fn echo(what: &str, key: &str, time: i64) -> String {
    let to = time % 7;
    match (time % 5, what) {
        (0, "o" | "m") => format!("S,k{to},{};c,{key}", time + 6),
        (1, "m") => format!("s,k{to},{}", time - 3),
        (2, "o") => format!("s,{key},{};C,k{to},{}", time + 3, time + 5),
        (0, _) => format!("T,k{to},{};u,{key};S,{key},{}", time + 6, time - 40),
        (1, "M") => format!("t,k{to},{}", time - 3),
        (2, "O") => format!("t,{key},{};U,k{to},{}", time + 3, time + 5),
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

    #[on_timer(wone)]
    fn on_wall_one(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.hear("O", &fired, cx)
    }

    #[on_timer(wmany)]
    fn on_wall_many(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.hear("M", &fired, cx)
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

/// The timers of one clock.
#[derive(Default)]
struct Clock {
    one: BTreeMap<String, i64>,
    many: BTreeSet<(String, i64)>,
    foreign: Vec<Waiting>,
    /// The place of the last own write of this epoch: of `one` by key, of `many` by key and time.
    own_one: BTreeMap<String, u64>,
    own_many: BTreeMap<(String, i64), u64>,
}

impl Clock {
    fn write(&mut self, w: Waiting) {
        match (w.many, w.set) {
            (false, true) => drop(self.one.insert(w.key, w.time)),
            (false, false) => drop(self.one.remove(&w.key)),
            (true, true) => drop(self.many.insert((w.key, w.time))),
            (true, false) => drop(self.many.remove(&(w.key, w.time))),
        }
    }

    /// Of equal time and key, the field that is declared first comes first.
    fn next(&self) -> Option<(i64, String, bool)> {
        let ones = self.one.iter().map(|(k, t)| (*t, k.clone(), false));
        ones.chain(self.many.iter().map(|(k, t)| (*t, k.clone(), true))).min()
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
}

#[derive(Default)]
struct Alarmed {
    heard: BTreeMap<String, String>,
    event: Clock,
    wall: Clock,
    place: u64,
    reached: Option<i64>,
    out: Vec<Output>,
    /// How many fired: by clock, then one or many.
    fired: [[u32; 2]; 2],
}

impl Alarmed {
    fn obey(&mut self, current: &str, commands: &str) {
        for command in commands.split(';').filter(|c| !c.is_empty()) {
            let words: Vec<&str> = command.split(',').collect();
            let w = Waiting {
                place: self.place,
                set: matches!(words[0], "s" | "S" | "t" | "T"),
                many: matches!(words[0], "S" | "C" | "T" | "U"),
                key: words[1].to_owned(),
                time: words.get(2).map_or(0, |t| t.parse().unwrap()),
            };
            self.place += 1;
            let event = matches!(words[0], "s" | "c" | "S" | "C");
            let clock = if event { &mut self.event } else { &mut self.wall };
            if w.key == current {
                if w.many {
                    clock.own_many.insert((w.key.clone(), w.time), w.place);
                } else {
                    clock.own_one.insert(w.key.clone(), w.place);
                }
                clock.write(w);
            } else {
                clock.foreign.push(w);
            }
        }
    }

    fn fire(&mut self, wall: bool, time: i64, key: &str, many: bool) {
        let clock = if wall { &mut self.wall } else { &mut self.event };
        if many {
            clock.many.remove(&(key.to_owned(), time));
        } else {
            clock.one.remove(key);
        }
        self.fired[usize::from(wall)][usize::from(many)] += 1;
        let what = [["o", "m"], ["O", "M"]][usize::from(wall)][usize::from(many)];
        let pending = [&self.event, &self.wall].map(|c| c.one.get(key).map_or(0, |t| t % 100));
        let heard = self.heard.get(key).cloned().unwrap_or_default();
        let heard = format!("{}{what}{}{pending:?}", &heard[heard.len().saturating_sub(30)..], time % 1_000);
        self.heard.insert(key.to_owned(), heard.clone());
        self.out.push(("out", key.as_bytes().to_vec(), heard.into_bytes(), time));
        self.obey(key, &echo(what, key, time));
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
        while let Some((time, key, many)) = self.event.next() {
            if !within(mark.limits[0].as_ref(), reached, clock, time, &key) {
                return;
            }
            clock = clock.max(time);
            self.fire(false, time, &key, many);
        }
    }

    fn tick(&mut self, tick: &Tick) {
        let mut clock = i64::MIN;
        while let Some((time, key, many)) = self.wall.next() {
            if !within(tick.limits[0].as_ref(), tick.wall.0, clock, time, &key) {
                return;
            }
            clock = clock.max(time);
            self.fire(true, time, &key, many);
        }
    }

    fn barrier(&mut self) {
        self.event.barrier();
        self.wall.barrier();
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let mut all = texts("heard", &self.heard);
        for (clock, one, many) in [(&self.event, "one", "many"), (&self.wall, "wone", "wmany")] {
            all.extend(times(one, &clock.one));
            for (key, time) in &clock.many {
                let mut row = key.as_bytes().to_vec();
                row.extend_from_slice(&time.to_be_bytes());
                all.insert((many.to_owned(), row), Vec::new());
            }
        }
        all
    }
}

fn orders(r: &mut Random, n: u64) -> Fed {
    orders_at(r, START + (n * 3) as i64)
}

/// As [`orders`], and three times event time jumps over all that is pending.
fn orders_and_jumps(world: &mut World, n: u64) {
    let now = START + (n * 3 + n / 40 * 3_000) as i64;
    if n > 0 && n.is_multiple_of(40) {
        move_on(world, now - START);
    }
    let record = orders_at(&mut world.random, now);
    world.feed(&record);
}

fn orders_at(r: &mut Random, now: i64) -> Fed {
    let mut commands = String::new();
    for _ in 0..=r.below(3) {
        // Most soon; some so late that they are far for long.
        let ahead = r.one_of(&[60, 60, 400, 2_000]);
        let (key, time) = (r.below(7), now - 10 + r.below(ahead) as i64);
        let what = r.one_of(&["s", "s", "c", "S", "S", "C", "t", "t", "u", "T", "T", "U"]);
        commands.extend([what, ",k", &key.to_string(), ",", &time.to_string(), ";"]);
    }
    fed(format!("k{}", r.below(7)), commands, now - r.below(5) as i64)
}

/// How often a barrier, and how often the end of a process or a generation, came between two pieces of what one watermark
/// made due.
fn cut_between_pieces(world: &World, graph: &Graph) -> [u32; 2] {
    let last = world.cuts(graph).last().expect("something is committed").record.epoch;
    let mut between = [0; 2];
    let (mut piece, mut barrier, mut began) = (None, false, false);
    for segment in world.recording.history(last).values() {
        began |= segment.begins;
        for entry in &segment.entries {
            match entry {
                Entry::Control(Control::Barrier(_)) => barrier = true,
                // The first mark of a generation lets nothing fire.
                Entry::Control(Control::Mark(m)) if m.limits[0].as_ref().is_none_or(|l| l.time > Timestamp::MIN) => {
                    if piece == Some(m.watermarks[0]) {
                        between[0] += u32::from(barrier);
                        between[1] += u32::from(began);
                    }
                    piece = m.limits[0].is_some().then_some(m.watermarks[0]);
                    (barrier, began) = (false, false);
                }
                _ => {}
            }
        }
    }
    between
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
    let mut between = [0; 2];
    let mut fired = [0; 4];
    for seed in seeds(3_200, 30) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment_with(&graph, 160, faults(seed), orders_and_jumps);
        for p in 0..PARTITIONS {
            world.cluster.append("in", p, b"k0", b"", START + 100_000);
        }
        world.run(&graph, 3);
        let model = world.check_model(&graph, Alarmed::default());
        for (all, n) in fired.iter_mut().zip(model.fired.as_flattened()) {
            *all += n;
        }
        for (all, n) in between.iter_mut().zip(cut_between_pieces(&world, &graph)) {
            *all += n;
        }
    }
    if seeds(3_200, 30).count() > 1 {
        assert!(fired.iter().all(|n| *n > 0), "some fired on both clocks: {fired:?}");
        assert!(between.iter().all(|n| *n > 0), "barriers and crashes between pieces: {between:?}");
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
            if !within(mark.limits[0].as_ref(), reached, clock, time, &key) {
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

    fn tick(&mut self, tick: &Tick) {
        let (before, wall) = (self.wall, tick.wall.0);
        self.wall = wall;
        let mut clock = i64::MIN;
        while let Some((time, key)) = self.soon.iter().map(|(k, t)| (*t, k.clone())).min() {
            if !within(tick.limits[0].as_ref(), wall, clock, time, &key) {
                break;
            }
            clock = clock.max(time);
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

// --- complaints ------------------------------------------------------------------------------------------------------

/// `+10` registers the key's timer for 10, `-5` deletes that for 5, `+10w` is of the wall clock. Says what fires; what fires
/// at a time that ends in 7 registers another 3 earlier.
#[processor(input = (String, String), output = String)]
struct Register {
    calls: Arc<AtomicU32>,
    #[timer]
    event: Timers,
    #[timer(clock = wall)]
    wall: Timers,
}

#[handlers]
impl Register {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        for word in r.value.split(' ').filter(|w| w.starts_with(['+', '-'])) {
            let at = Timestamp(START + word[1..].trim_end_matches('w').parse::<i64>().unwrap());
            match (word.ends_with('w'), word.starts_with('+')) {
                (false, true) => self.event.set(at)?,
                (false, false) => self.event.cancel(at)?,
                (true, true) => self.wall.set(at)?,
                (true, false) => self.wall.cancel(at)?,
            }
        }
        Ok(())
    }

    #[on_timer(event)]
    fn event(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        if fired.time.0 % 10 == 7 {
            self.event.set(Timestamp(fired.time.0 - 3))?;
        }
        cx.forward(format!("{}", fired.time.0 - START))
    }

    #[on_timer(wall)]
    fn wall(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward(format!("{}w", fired.time.0 - START))
    }
}

fn register(calls: &Arc<AtomicU32>) -> Graph {
    let mut t = Topology::new("register");
    let calls = calls.clone();
    t.source::<In>().process_with(move || Register::init(calls.clone())).sink::<Out>();
    t.build().unwrap()
}

/// Gives every partition a record that moves its watermark to `START + to`.
fn move_on(world: &World, to: i64) {
    for p in 0..PARTITIONS {
        world.cluster.append("in", p, format!("p{p}").as_bytes(), b"", START + to + 5);
    }
}

fn values(world: &World) -> Vec<String> {
    world.records("out").iter().map(|r| string(r.value.as_ref())).collect()
}

#[test]
fn t27_a_timer_is_set_once_per_key_and_time_deleted_exactly_and_fires_once_in_order() {
    let calls = Arc::new(AtomicU32::new(0));
    let graph = register(&calls);
    for (seed, lanes) in [(1, 1), (2, 2), (3, 16)] {
        calls.store(0, Ordering::SeqCst);
        let mut world = World::new(seed);
        // The same time on both clocks is two timers.
        world.feed(&fed("k".into(), "+10 +10 +5 -5 +10w".into(), START));
        move_on(&world, 9);
        world.run(&graph, lanes);
        assert_eq!(values(&world), ["10w"], "the wall clock is beyond 10, the watermark is not");
        move_on(&world, 20);
        world.run(&graph, lanes);
        assert_eq!(values(&world), ["10w", "10"]);
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        // By time, then key; and what a timer sets for a time that is reached fires in the same advance.
        for key in ["b", "a"] {
            world.feed(&fed(key.into(), "+40 +37 +30".into(), START + 25));
        }
        move_on(&world, 60);
        let epoch = world.cuts(&graph).last().unwrap().record.epoch;
        world.run(&graph, lanes);
        let by_key = |key: &str| -> Vec<String> {
            let of = world.records("out").into_iter().filter(|r| r.key.as_deref() == Some(key.as_bytes()));
            of.map(|r| string(r.value.as_ref())).collect()
        };
        assert_eq!(by_key("a"), ["30", "37", "34", "40"]);
        assert_eq!(by_key("b"), ["30", "37", "34", "40"]);
        let fired = world.cuts(&graph).into_iter().filter(|c| c.record.epoch > epoch && !c.result.outputs.is_empty());
        assert_eq!(fired.count(), 1, "in one advance");
    }
}

#[test]
fn t27_t28_killed_at_any_moment_around_a_firing_it_is_seen_once() {
    let calls = Arc::new(AtomicU32::new(0));
    let graph = register(&calls);
    let (mut again, mut before) = (0, 0);
    for turns in 0..60 {
        calls.store(0, Ordering::SeqCst);
        let mut world = World::new(turns * 7 + 1);
        world.feed(&fed("k".into(), "+10 +12".into(), START));
        world.run(&graph, 2);
        // The end of both is reached, and the process is killed so many turns later.
        move_on(&world, 11);
        let mut engine = world.engine(&graph, 2);
        for _ in 0..turns {
            world.turn(&mut engine).unwrap();
        }
        let (fired, seen) = (calls.load(Ordering::SeqCst), values(&world));
        assert!(seen.is_empty() || seen == ["10"], "{seen:?}");
        drop(engine);
        world.crash();
        world.run(&graph, 3);
        assert_eq!(values(&world), ["10"], "killed after {turns} turns");
        again += u32::from(fired == 1 && seen.is_empty() && calls.load(Ordering::SeqCst) == 2);
        before += u32::from(fired == 0);
        move_on(&world, 20);
        world.run(&graph, 1);
        assert_eq!(values(&world), ["10", "12"], "killed after {turns} turns");
    }
    assert!(again > 0, "it was killed between firing and commit");
    assert!(before > 0, "it was killed before the firing");
}

/// Keeps a value for 100 ms.
#[processor(input = (String, String))]
struct Expire {
    #[state(codec = Utf8)]
    kept: Keyed<String>,
    #[timer]
    ends: Timer,
}

#[handlers]
impl Expire {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        self.ends.set(r.timestamp + Duration::from_millis(100))?;
        self.kept.put(r.value)
    }

    #[on_timer(ends)]
    fn end(&mut self, _fired: Fired<String>, _cx: &mut Context<Self>) -> Result<()> {
        self.kept.remove()
    }
}

#[test]
fn t26_i14_what_a_timer_expires_is_gone_from_the_store_and_from_its_changelog() {
    let graph = graph_of(|t| drop(t.source::<In>().process::<Expire>()));
    let mut world = World::new(26);
    world.feed(&fed("k".into(), "v".into(), START));
    world.run(&graph, 2);
    move_on(&world, 150);
    world.run(&graph, 2);
    let last = |world: &World| {
        let of = world.records("app-kept-changelog").into_iter().rfind(|r| r.key.as_deref() == Some(b"k"));
        of.unwrap().value
    };
    assert_eq!(last(&world), None);
    for disk in [world.disk.clone(), TwinDisk::new()] {
        world.disk = disk;
        world.run(&graph, 3);
        let stored = world.disk.open_set().open("kept", StoreKind::KeyValue).unwrap();
        assert_eq!(stored.get(b"k").unwrap(), None);
        assert_eq!(last(&world), None);
    }
}

#[test]
fn tn06_before_the_first_record_no_timer_fires() {
    let calls = Arc::new(AtomicU32::new(0));
    let graph = register(&calls);
    let mut world = World::new(6);
    // One partition has a record far behind the delay; the others have none, so there is no watermark yet.
    world.cluster.append("in", 0, b"k", b"+-100000 +10", START + 1_000);
    let mut engine = world.engine(&graph, 2);
    for _ in 0..300 {
        world.turn(&mut engine).unwrap();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    drop(engine);
    for p in 1..PARTITIONS {
        world.cluster.append("in", p, b"x", b"", START + 1_000);
    }
    world.run(&graph, 2);
    assert_eq!(values(&world), ["-100000", "10"]);
}

// --- many due at once ------------------------------------------------------------------------------------------------

/// Sets so many timers, 1 ms apart, as the value says; forwards what fires.
#[processor(input = (String, String), output = String)]
struct Burst {
    #[timer]
    event: Timers,
    #[timer(clock = wall)]
    wall: Timers,
}

#[handlers]
impl Burst {
    #[process]
    fn on_record(&mut self, r: Record<String, String>, _cx: &mut Context<Self>) -> Result<()> {
        let (clock, n) = r.value.split_once(' ').unwrap_or(("", "0"));
        for i in 0..n.parse::<i64>().unwrap() {
            let at = Timestamp(START + 100_000 + i);
            if clock == "wall" { self.wall.set(at)? } else { self.event.set(at)? }
        }
        Ok(())
    }

    #[on_timer(event)]
    fn event(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward((fired.time.0 - START).to_string())
    }

    #[on_timer(wall)]
    fn wall(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        cx.forward((fired.time.0 - START).to_string())
    }
}

#[test]
fn i07_many_timers_that_are_due_at_once_stay_within_the_budget_and_are_cut_by_barriers() {
    let graph = graph_of(|t| t.source::<In>().process::<Burst>().sink::<Out>());
    // 1 ms apart, or all at the same time.
    let (apart, together) = ((40, 250), (3_000, 1));
    for (seed, clock, (keys, timers)) in [
        (4, "event", apart),
        (5, "wall", apart),
        (6, "event", apart),
        (7, "wall", apart),
        (8, "event", together),
        (9, "wall", together),
    ] {
        let mut world = World::new(seed);
        // A quarter may be uncommitted: 64 KiB, where what is due would take thousands of times some hundred bytes.
        world.set("stoat.memory.budget", "256KiB");
        world.set("stoat.commit.interval", "10s");
        for k in 0..keys {
            world.feed(&fed(format!("k{k}"), format!("{clock} {timers}"), START));
        }
        move_on(&world, 0);
        world.run(&graph, 2);
        assert!(world.records("out").is_empty());
        let before = world.cuts(&graph).last().unwrap().record.epoch;
        // Both clocks jump.
        world.now += 1_000_000;
        move_on(&world, 1_000_000);
        world.recording.forget_peak();
        world.run(&graph, 3);
        let mut seen: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for r in world.records("out") {
            seen.entry(string(r.key.as_ref())).or_default().push(string(r.value.as_ref()).parse().unwrap());
        }
        assert_eq!(seen.len(), keys);
        let each: Vec<i64> = (100_000..100_000 + timers).collect();
        assert!(seen.values().all(|times| *times == each), "each once, in order");
        let cuts = world.cuts(&graph);
        let firing = cuts.iter().filter(|c| c.record.epoch > before && !c.result.outputs.is_empty()).count();
        assert!(firing >= 10, "cut by {firing} barriers");
        let peak = world.recording.peak();
        assert!(peak <= 2 * (64 << 10), "{peak} bytes were uncommitted");
    }
}

#[test]
fn i15_what_is_due_at_once_fires_once_though_the_process_ends_between_its_pieces() {
    let graph = graph_of(|t| t.source::<In>().process::<Burst>().sink::<Out>());
    for (seed, clock, keys, each) in
        [(1, "event", 40, 25), (2, "wall", 40, 25), (3, "event", 900, 1), (4, "wall", 900, 1)]
    {
        let mut world = World::new(seed);
        world.set("stoat.memory.budget", "128KiB");
        for k in 0..keys {
            world.feed(&fed(format!("k{k}"), format!("{clock} {each}"), START));
        }
        move_on(&world, 0);
        world.run(&graph, 2);
        world.now += 1_000_000;
        move_on(&world, 1_000_000);
        let mut ended = 0;
        for lanes in [2, 16, 1, 3, 2] {
            let before = world.records("out").len();
            let mut engine = world.engine(&graph, lanes);
            let mut turns = 0;
            while world.records("out").len() == before && before < keys * each as usize {
                world.turn(&mut engine).unwrap();
                turns += 1;
                assert!(turns < 100_000, "nothing more fires");
            }
            ended += u32::from(world.records("out").len() < keys * each as usize);
            drop(engine);
            world.crash();
        }
        assert!(ended >= 3, "ended {ended} times before all had fired");
        world.run(&graph, 3);
        let mut seen: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for r in world.records("out") {
            seen.entry(string(r.key.as_ref())).or_default().push(string(r.value.as_ref()).parse().unwrap());
        }
        let want: Vec<i64> = (100_000..100_000 + each).collect();
        assert_eq!(seen.len(), keys);
        assert!(seen.values().all(|times| *times == want), "each once, in order");
        world.check(&graph);
    }
}
