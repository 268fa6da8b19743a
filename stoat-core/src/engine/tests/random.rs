//! Topologies that chance puts together: re-keys, merges of a stream with its own re-key, diamonds, several inputs; with
//! tiny credits and budgets, updates at once or at barriers. An interpreter of the same program is the model.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Model, Output, Stored, texts};
use super::shapes::{In2, after, other_key};
use super::*;
use crate::topology::Stream;
use crate::topology::lane_state::Lane;

#[sink(topic = "counts", key = String, value = String, value_codec = Utf8)]
struct Counts;

#[sink(topic = "late", key = String, value = String, value_codec = Utf8)]
struct Late;

/// What takes a stream and what it makes of it. Streams are numbered as they come to be.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Keeps a value per key that depends on all that came before, and forwards it.
    Chain {
        store: usize,
        out: usize,
    },
    Rekey {
        out: usize,
    },
    /// Two records under two keys.
    Twice {
        out: usize,
    },
    Filter {
        out: usize,
    },
    Fan {
        out: [usize; 2],
    },
    /// With the stream that has the same `out`.
    Merge {
        out: usize,
    },
    Sink {
        topic: &'static str,
    },
}

/// By number of stream: who takes it.
#[derive(Clone, Debug)]
struct Program {
    ops: Vec<Option<Op>>,
    two_inputs: bool,
    chains: usize,
}

const SINKS: [&str; 3] = ["out", "counts", "late"];

impl Program {
    fn new(r: &mut Random) -> Self {
        let two_inputs = r.below(2) == 0;
        let mut p = Self { ops: vec![None; 1 + usize::from(two_inputs)], two_inputs, chains: 0 };
        let mut open: Vec<usize> = (0..p.ops.len()).collect();
        let (mut twice, mut fans) = (0, 0);
        for _ in 0..4 + r.below(8) {
            let at = r.below(open.len() as u64) as usize;
            let taken = open[at];
            match r.below(7) {
                0 | 1 if p.chains < 6 => open[at] = p.chain(taken),
                2 => open[at] = p.one(taken, |out| Op::Rekey { out }),
                3 if twice < 2 => {
                    twice += 1;
                    open[at] = p.one(taken, |out| Op::Twice { out });
                }
                4 => open[at] = p.one(taken, |out| Op::Filter { out }),
                5 if fans < 3 => {
                    fans += 1;
                    let out = [p.stream(), p.stream()];
                    p.ops[taken] = Some(Op::Fan { out });
                    open[at] = out[0];
                    open.push(out[1]);
                }
                _ if open.len() > 1 => p.merge(r, &mut open),
                _ => {}
            }
        }
        while open.len() > SINKS.len() {
            p.merge(r, &mut open);
        }
        for (i, at) in open.into_iter().enumerate() {
            let at = if p.chains == 0 || r.below(2) == 0 { p.chain(at) } else { at };
            p.ops[at] = Some(Op::Sink { topic: SINKS[i] });
        }
        p
    }

    fn stream(&mut self) -> usize {
        self.ops.push(None);
        self.ops.len() - 1
    }

    fn one(&mut self, taken: usize, op: impl FnOnce(usize) -> Op) -> usize {
        let out = self.stream();
        self.ops[taken] = Some(op(out));
        out
    }

    fn chain(&mut self, taken: usize) -> usize {
        let store = self.chains;
        self.chains += 1;
        self.one(taken, |out| Op::Chain { store, out })
    }

    fn merge(&mut self, r: &mut Random, open: &mut Vec<usize>) {
        let a = open.remove(r.below(open.len() as u64) as usize);
        let b = open.remove(r.below(open.len() as u64) as usize);
        let out = self.stream();
        (self.ops[a], self.ops[b]) = (Some(Op::Merge { out }), Some(Op::Merge { out }));
        open.push(out);
    }

    fn build(&self) -> Graph {
        type S = Stream<String, String, Lane<Utf8>>;
        let mut t = Topology::new("random");
        let mut streams: Vec<Option<S>> = (0..self.ops.len()).map(|_| None).collect();
        streams[0] = Some(t.source::<In>());
        if self.two_inputs {
            streams[1] = Some(t.source::<In2>());
        }
        // Streams are made before they are taken; a merge waits for its second.
        let mut half: BTreeMap<usize, S> = BTreeMap::new();
        for (i, op) in self.ops.iter().enumerate() {
            let Some(s) = streams[i].take() else { continue };
            let name = format!("n{i}");
            match op.expect("each stream is taken") {
                Op::Chain { store, out } => {
                    let chained = s.group_by_key().stored_as::<Utf8>();
                    let chained = chained.aggregate(String::new, |a, _k, v: String| *a = after(Some(a), &v));
                    streams[out] = Some(chained.named(&format!("s{store}")).to_stream());
                }
                Op::Rekey { out } => streams[out] = Some(s.select_key(|_, v| other_key(v)).repartition().named(&name)),
                Op::Twice { out } => streams[out] = Some(s.flat_map(twice).repartition().named(&name)),
                Op::Filter { out } => streams[out] = Some(s.filter(|_, v| keeps(v)).named(&name)),
                Op::Fan { out } => {
                    let [a, b] = s.fan_out();
                    (streams[out[0]], streams[out[1]]) = (Some(a), Some(b));
                }
                Op::Merge { out } => match half.remove(&out) {
                    Some(other) => streams[out] = Some(other.merge(s).named(&name)),
                    None => {
                        half.insert(out, s);
                    }
                },
                Op::Sink { topic: "out" } => s.sink::<Out>(),
                Op::Sink { topic: "counts" } => s.sink::<Counts>(),
                Op::Sink { .. } => s.sink::<Late>(),
            }
        }
        t.build().expect("what chance puts together is right")
    }
}

fn twice(key: String, v: String) -> Vec<(String, String)> {
    vec![(other_key(&v), v.clone()), (key, format!("{v}!"))]
}

fn keeps(v: &str) -> bool {
    !v.bytes().map(u64::from).sum::<u64>().is_multiple_of(4)
}

struct Interpreter {
    program: Program,
    /// The stores in the order in which they hand on what a barrier tells; none where updates go on at once.
    at_barriers: Option<Vec<usize>>,
    chains: Vec<BTreeMap<String, String>>,
    latest: Vec<BTreeMap<String, i64>>,
    changed: Vec<BTreeSet<String>>,
    out: Vec<Output>,
}

impl Interpreter {
    fn push(&mut self, stream: usize, key: &str, value: &str, time: i64) {
        match self.program.ops[stream].expect("each stream is taken") {
            Op::Chain { store, out } => {
                let next = after(self.chains[store].get(key).map(String::as_str), value);
                let latest = self.latest[store].entry(key.to_owned()).or_insert(time);
                *latest = time.max(*latest);
                let time = *latest;
                self.chains[store].insert(key.to_owned(), next.clone());
                if self.at_barriers.is_some() {
                    self.changed[store].insert(key.to_owned());
                } else {
                    self.push(out, key, &next, time);
                }
            }
            Op::Rekey { out } => self.push(out, &other_key(value), value, time),
            Op::Twice { out } => {
                for (k, v) in twice(key.to_owned(), value.to_owned()) {
                    self.push(out, &k, &v, time);
                }
            }
            Op::Filter { out } => {
                if keeps(value) {
                    self.push(out, key, value, time);
                }
            }
            Op::Fan { out } => {
                for out in out {
                    self.push(out, key, value, time);
                }
            }
            Op::Merge { out } => self.push(out, key, value, time),
            Op::Sink { topic } => self.out.push((topic, key.as_bytes().to_vec(), value.as_bytes().to_vec(), time)),
        }
    }
}

impl Model for Interpreter {
    fn record(&mut self, topic: &str, key: &str, value: &str, time: i64) {
        self.push(usize::from(topic == "in2"), key, value, time);
    }

    fn barrier(&mut self) {
        for store in self.at_barriers.clone().unwrap_or_default() {
            let chain = |op: &Option<Op>| match op {
                Some(Op::Chain { store: s, out }) if *s == store => Some(*out),
                _ => None,
            };
            let out = self.program.ops.iter().find_map(chain).expect("each store has its chain");
            for key in std::mem::take(&mut self.changed[store]) {
                let (value, time) = (self.chains[store][&key].clone(), self.latest[store][&key]);
                self.push(out, &key, &value, time);
            }
        }
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    fn state(&self) -> Stored {
        self.chains.iter().enumerate().flat_map(|(i, c)| texts(&format!("s{i}"), c)).collect()
    }
}

fn run(seed: u64) {
    let _seed = Seed(seed);
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    random.below(2);
    let program = Program::new(&mut random);
    let graph = program.build();
    let mut world = World::new(seed);
    let budget = random.one_of(&["", "1B", "600B", "4KiB"]);
    if !budget.is_empty() {
        world.set("stoat.memory.budget", budget);
    }
    let at_barriers = random.below(3) == 0;
    if at_barriers {
        world.set("stoat.emit.mode", "on-barrier");
    }
    let two = program.two_inputs;
    world.torment(&graph, 60, faults(seed), |r, n| Fed {
        topic: if two && r.below(2) == 0 { "in2" } else { "in" },
        key: format!("q{}", r.below(6)),
        value: format!("v{n}"),
        time: START + (n * 3) as i64 - r.below(40) as i64,
    });
    let mut order: Vec<usize> = (0..program.chains).collect();
    order.sort_by_key(|i| {
        let store = graph.stores.iter().find(|s| s.name == format!("s{i}")).expect("each chain has its store");
        (store.sub, store.owner)
    });
    let chains = program.chains;
    let model = Interpreter {
        program,
        at_barriers: at_barriers.then_some(order),
        chains: vec![BTreeMap::new(); chains],
        latest: vec![BTreeMap::new(); chains],
        changed: vec![BTreeSet::new(); chains],
        out: Vec::new(),
    };
    world.check_model(&graph, model);
}

#[test]
fn i06_i07_topologies_put_together_by_chance_give_what_their_interpreter_gives() {
    for seed in seeds(8_000, 60) {
        run(seed);
    }
}
