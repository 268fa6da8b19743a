//! Fan-out, merge, stateless steps, ordinary Rust between them; the static description agrees with the built graph.

use stoat_core::prelude::*;
use stoat_ui_tests::*;

#[topology]
fn pipeline(t: &mut Topology) {
    let limit = if cfg!(debug_assertions) { 10 } else { 1_000 };
    let events = t.source::<Events>();
    let [small, large] = events.filter(|r| r.value.count > 0).fan_out();
    let small = small.filter(move |r| r.value.count < limit).process::<Sessionize>();
    let changed = large.map_values(|e| Session { count: e.count });
    let both = small.merge(changed);
    both.sink::<Sessions>();
}

fn main() {
    let graph = pipeline::build().expect("the topology is valid");
    assert_eq!(pipeline::GRAPH.nodes.len(), graph.nodes.len());
    for (said, built) in pipeline::GRAPH.nodes.iter().zip(&graph.nodes) {
        assert_eq!(said.name, built.name);
        let parents: Vec<usize> = built.parents.iter().map(|p| p.0 as usize).collect();
        assert_eq!(said.parents, parents);
    }
}
