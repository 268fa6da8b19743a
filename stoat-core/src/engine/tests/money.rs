//! Transfers between accounts: at every committed cut the sum of all balances is what it was (I-5).

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Model, Output, Stored};
use super::*;

#[sink(topic = "out", key = String, value = i64, value_codec = Json)]
struct Balances;

/// A transfer is one record; both accounts are touched behind a re-key.
fn legs(from: String, v: String) -> Vec<(String, i64)> {
    let (to, amount) = v.split_once(' ').expect("account and amount");
    let amount: i64 = amount.parse().expect("a number");
    vec![(from, -amount), (to.to_owned(), amount)]
}

fn transfers(t: &mut Topology) {
    let legs = t.source::<In>().flat_map(legs);
    let balances = legs.group_by_key().reduce(|a, b| a + b).named("balances");
    balances.to_stream().sink::<Balances>();
}

fn transfer(r: &mut Random, n: u64) -> Fed {
    let (from, to) = (r.below(8), r.below(8));
    fed(format!("a{from}"), format!("a{to} {}", 1 + r.below(100)), START + n as i64)
}

#[test]
fn i05_the_sum_of_all_balances_is_constant_at_every_committed_cut() {
    let graph = graph_of(transfers);
    for seed in seeds(4_000, 20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 200, faults(seed), transfer);
        world.check(&graph);
        let number = |v: &[u8]| std::str::from_utf8(v).unwrap().parse::<i64>().unwrap();
        let (mut stored, mut seen) = (BTreeMap::new(), BTreeMap::new());
        let mut moved = 0;
        for cut in world.cuts(&graph) {
            for (key, (value, _)) in cut.result.rows.get("balances").into_iter().flatten() {
                stored.insert(key.clone(), number(value.as_ref().unwrap()));
            }
            for (key, value, _) in cut.result.outputs.values().flatten() {
                seen.insert(key.clone().unwrap(), number(value.as_ref().unwrap()));
                moved += 1;
            }
            let epoch = cut.record.epoch;
            assert_eq!(stored.values().sum::<i64>(), 0, "epoch {epoch}: {stored:?}");
            assert_eq!(seen, stored, "epoch {epoch}: who reads the outputs sees the same cut");
        }
        assert_eq!(moved, 400, "each transfer moved two balances once");
    }
}

// --- emitted at barriers ---------------------------------------------------------------------------------------------

#[sink(topic = "counts", key = String, value = i64, value_codec = Json)]
struct Totals;

/// Forwards by how much a balance has changed.
#[processor(input = (String, i64), output = i64)]
struct Delta {
    #[state]
    last: Keyed<i64>,
}

#[handlers]
impl Delta {
    #[process]
    fn on_balance(&mut self, r: Record<String, i64>, cx: &mut Context<Self>) -> Result<()> {
        let before = self.last.get()?.copied().unwrap_or(0);
        self.last.put(r.value)?;
        cx.forward(r.value - before)
    }
}

/// The total of all balances, computed downstream, behind a second re-key: it can be constant only where it sees all that
/// an epoch changed before it says anything.
fn ledger(t: &mut Topology) {
    let legs = t.source::<In>().flat_map(legs);
    let balances = legs.group_by_key().reduce(|a, b| a + b).named("balances");
    let [a, b] = balances.to_stream().fan_out();
    a.sink::<Balances>();
    let deltas = b.process::<Delta>().select_key(|_, _| "all".to_owned());
    let total = deltas.group_by_key().reduce(|a, b| a + b).named("total");
    total.to_stream().sink::<Totals>();
}

#[derive(Default)]
struct Ledger {
    balances: BTreeMap<String, (i64, i64)>,
    last: BTreeMap<String, i64>,
    total: Option<(i64, i64)>,
    changed: BTreeSet<String>,
    out: Vec<Output>,
}

impl Model for Ledger {
    fn record(&mut self, _topic: &str, key: &str, value: &str, time: i64) {
        for (account, amount) in legs(key.to_owned(), value.to_owned()) {
            let (balance, latest) = self.balances.entry(account.clone()).or_insert((0, time));
            *balance += amount;
            *latest = time.max(*latest);
            self.changed.insert(account);
        }
    }

    fn barrier(&mut self) {
        let mut said = false;
        for account in std::mem::take(&mut self.changed) {
            let (balance, time) = self.balances[&account];
            self.out.push(("out", account.clone().into_bytes(), balance.to_string().into_bytes(), time));
            let delta = balance - self.last.insert(account, balance).unwrap_or(0);
            let (sum, latest) = self.total.get_or_insert((0, time));
            *sum += delta;
            *latest = time.max(*latest);
            said = true;
        }
        if let Some((sum, time)) = self.total.filter(|_| said) {
            self.out.push(("counts", b"all".to_vec(), sum.to_string().into_bytes(), time));
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        let row =
            |store: &str, key: &str, v: i64| ((store.to_owned(), key.as_bytes().to_vec()), v.to_string().into_bytes());
        let mut all: Stored = self.balances.iter().map(|(k, (v, _))| row("balances", k, *v)).collect();
        all.extend(self.last.iter().map(|(k, v)| row("last", k, *v)));
        all.extend(self.total.map(|(v, _)| row("total", "all", v)));
        all
    }
}

/// What the totals say that one run writes.
fn totals(world: &World) -> Vec<i64> {
    world.records("counts").iter().map(|r| string(r.value.as_ref()).parse().unwrap()).collect()
}

#[test]
fn i05_emitted_at_barriers_each_key_comes_once_per_epoch_and_a_total_downstream_is_constant() {
    let graph = graph_of(ledger);
    for seed in seeds(4_100, 20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.set("stoat.emit.mode", "on-barrier");
        world.torment(&graph, 160, faults(seed), transfer);
        world.check_model(&graph, Ledger::default());
        let totals = totals(&world);
        assert!(!totals.is_empty() && totals.iter().all(|t| *t == 0), "{totals:?}");
    }
}

#[test]
fn i05_emitted_at_once_a_total_downstream_is_not_constant() {
    let graph = graph_of(ledger);
    let mut world = World::new(4_200);
    world.torment(&graph, 160, Faults::default(), transfer);
    assert!(totals(&world).iter().any(|t| *t != 0), "this is what emitting at barriers is for");
}

#[test]
fn i05_i15_timers_that_emissions_at_barriers_set_fire_once_and_on_their_keys_lane() {
    let graph = graph_of(reminded);
    for seed in seeds(4_300, 12) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.set("stoat.emit.mode", "on-barrier");
        world.torment(&graph, 120, faults(seed), |r, n| {
            fed(format!("k{}", r.below(6)), "x".to_owned(), START + (n * 3) as i64)
        });
        for p in 0..PARTITIONS {
            world.cluster.append("in", p, b"end", b"x", START + 100_000);
        }
        world.run(&graph, 3);
        world.check(&graph);
        let fired = world.records("out");
        assert!(fired.iter().any(|r| string(r.value.as_ref()).starts_with("for")), "some fired");
    }
}

/// Reminds another key of each count that it hears of at a barrier.
#[processor(input = (String, u64), output = String)]
struct Remind {
    #[state(codec = Be)]
    heard: Keyed<u64>,
    #[timer(foreign)]
    reminder: Timer,
}

#[handlers]
impl Remind {
    #[process]
    fn on_count(&mut self, r: Record<String, u64>, cx: &mut Context<Self>) -> Result<()> {
        self.heard.put(r.value)?;
        self.reminder.set_for(&format!("k{}", r.value % 6), r.timestamp + Duration::from_millis(5))?;
        cx.forward(format!("heard {}", r.value))
    }

    #[on_timer(reminder)]
    fn remind(&mut self, fired: Fired<String>, cx: &mut Context<Self>) -> Result<()> {
        let heard = self.heard.get()?.copied();
        cx.forward(format!("for {} {heard:?}", fired.time.0 - START))
    }
}

fn reminded(t: &mut Topology) {
    let counts = t.source::<In>().group_by_key().count().named("seen");
    counts.to_stream().process::<Remind>().sink::<Out>();
}
