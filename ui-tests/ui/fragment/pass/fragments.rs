//! Parts of a topology that are functions of their own; the static description agrees with the built graph.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

use stoat_core::topology::lane_state::Lane;

#[sink(topic = "counts", key = UserId, value = u64)]
struct Counts;

/// One stream in, one out.
#[fragment]
fn valid<L: 'static>(events: Stream<UserId, Event, L>, least: u32) -> Stream<UserId, Event, L> {
    let kept = events.filter(move |_, e| e.count >= least);
    kept.map_values(|e| e)
}

/// Several out.
#[fragment]
fn halves<L: 'static>(events: Stream<UserId, Event, L>) -> [Stream<UserId, Event, L>; 2] {
    let [a, b] = events.fan_out();
    [a.filter(|_, e| e.count % 2 == 0), b.filter(|_, e| e.count % 2 == 1)]
}

/// State of its own, called by the name inside.
#[fragment]
fn counted(events: Stream<UserId, Event, Lane<Utf8>>) {
    let counts = events.group_by_key().count();
    counts.to_stream().sink::<Counts>();
}

/// Begins with a source; calls another one.
#[fragment]
fn all(t: &mut Topology) -> (Stream<UserId, Event, Lane<Utf8>>, Stream<OrderId, Order, Lane<Be>>) {
    let events = t.source::<Events>();
    let good = valid(events, 1);
    let orders = t.source::<Orders>();
    (good, orders.peek(|_, _| {}))
}

#[topology]
fn pipeline(t: &mut Topology) {
    let (events, orders) = all(t);
    orders.discard();
    let [even, odd] = halves(events);
    let looked = even.peek(|_, _| {});
    let checked = valid(looked.merge(odd), 2);
    let [left, right] = valid(checked, 3).fan_out();
    counted(left);
    right.process::<Sessionize>().sink::<Sessions>();
}

fn main() {
    let graph = pipeline::build().expect("the topology is valid");
    assert_eq!(pipeline::GRAPH.difference(&graph), None, "{}", graph.describe());
    let names: Vec<&str> = pipeline::GRAPH.nodes.iter().map(|n| n.name).collect();
    assert_eq!(names[0], "all");
    assert!(names.contains(&"checked") && names.contains(&"valid") && names.contains(&"counted"));
    let stores: Vec<&str> = graph.stores.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(stores, ["counted.counts", "open", "idle"]);
    assert!(graph.nodes.iter().any(|n| n.name == "checked.kept"));
    assert!(graph.nodes.iter().any(|n| n.name == "all.good.kept"));
}
