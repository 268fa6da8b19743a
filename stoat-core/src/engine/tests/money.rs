//! Transfers between accounts: at every committed cut the sum of all balances is what it was (I-5).

use std::collections::BTreeMap;

use super::*;

#[sink(topic = "out", key = String, value = i64, value_codec = Json)]
struct Balances;

/// A transfer is one record; both accounts are touched behind a re-key.
fn transfers(t: &mut Topology) {
    let legs = t.source::<In>().flat_map(|from: String, v: String| {
        let (to, amount) = v.split_once(' ').expect("account and amount");
        let amount: i64 = amount.parse().expect("a number");
        vec![(from, -amount), (to.to_owned(), amount)]
    });
    let balances = legs.group_by_key().reduce(|a, b| a + b).named("balances");
    balances.to_stream().sink::<Balances>();
}

#[test]
fn i05_the_sum_of_all_balances_is_constant_at_every_committed_cut() {
    let graph = graph_of(transfers);
    for seed in seeds(4_000, 20) {
        let _seed = Seed(seed);
        let mut world = World::new(seed);
        world.torment(&graph, 200, faults(seed), |r, n| {
            let (from, to) = (r.below(8), r.below(8));
            fed(format!("a{from}"), format!("a{to} {}", 1 + r.below(100)), START + n as i64)
        });
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
