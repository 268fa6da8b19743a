use std::sync::Arc;

use super::*;
use crate::id::SinkId;
use crate::topology::graph::{LaneKey, Node, SinkDecl, SourceDecl, StoreDecl};

fn node(id: u32, name: &str, kind: NodeKind, sub: u32, parents: &[u32], children: &[u32]) -> Node {
    Node {
        id: NodeId(id),
        name: name.to_owned(),
        kind,
        sub: SubTopologyId(sub),
        parents: parents.iter().map(|p| NodeId(*p)).collect(),
        children: children.iter().map(|c| NodeId(*c)).collect(),
        stores: Vec::new(),
        factory: Arc::new(|_| unreachable!("a plan builds nothing")),
    }
}

fn source(node: u32, topic: &str) -> SourceDecl {
    SourceDecl {
        node: NodeId(node),
        topic: topic.to_owned(),
        lane_key: LaneKey::Raw,
        watermark: crate::time::WatermarkStrategy::default(),
        key_codec: "k".to_owned(),
        value_codec: "v".to_owned(),
    }
}

/// `lines` (sub 0) → hand-over → `counts` (sub 1) → sink; `other` (sub 2) → an end in user code.
fn graph() -> Graph {
    let mut g = Graph {
        name: "t".to_owned(),
        handlers: crate::gate::Deciders::default(),
        nodes: vec![
            node(0, "lines", NodeKind::Source(0), 0, &[], &[1]),
            node(1, "words", NodeKind::HandOver, 0, &[0], &[2]),
            node(2, "counts", NodeKind::Aggregate, 1, &[1], &[3]),
            node(3, "out", NodeKind::Sink(SinkId(0)), 1, &[2], &[]),
            node(4, "other", NodeKind::Source(1), 2, &[], &[5]),
            node(5, "end", NodeKind::ForEach, 2, &[4], &[]),
        ],
        sources: vec![source(0, "lines"), source(4, "other")],
        schedules: vec![],
        sinks: vec![SinkDecl {
            node: NodeId(3),
            topic: "out".to_owned(),
            key_codec: "k".to_owned(),
            value_codec: "v".to_owned(),
        }],
        stores: vec![StoreDecl {
            name: "counts".to_owned(),
            kind: StoreKind::TimestampedKeyValue,
            owner: NodeId(2),
            sub: SubTopologyId(1),
            key_codec: "k".to_owned(),
            value: None,
            foreign: false,
            peeks: false,
        }],
        subs: 3,
        ..Graph::default()
    };
    g.nodes[2].stores.push(StoreId(0));
    g
}

#[test]
fn a_changelog_has_as_many_partitions_as_the_largest_source_upstream() {
    let counts = [("lines", 6), ("other", 9), ("out", 4)].map(|(t, n)| (t.to_owned(), n)).into();
    let plan = Plan::new(&graph(), "app", 3, &counts).unwrap();
    assert_eq!(&*plan.changelogs[0].topic, "app-counts-changelog");
    assert_eq!(plan.changelogs[0].partitions, 6);
    assert_eq!(plan.sink_partitions, [4]);
    assert_eq!(plan.inputs.len(), 15);
    assert_eq!(&*epoch_topic("app"), "app-stoat-epochs");
}

#[test]
fn sources_wait_for_each_other_only_where_they_meet() {
    let counts = [("lines", 1), ("other", 1), ("out", 1)].map(|(t, n)| (t.to_owned(), n)).into();
    let plan = Plan::new(&graph(), "app", 2, &counts).unwrap();
    assert_ne!(plan.inputs[0].group, plan.inputs[1].group);
    assert_eq!(plan.subs[1].feeders, [SubTopologyId(0)]);
    assert!(plan.subs[0].has_sources && !plan.subs[1].has_sources);
    assert_eq!(plan.subs[1].name, "counts");
}

#[test]
fn a_topic_without_a_known_count_is_named() {
    let e = Plan::new(&graph(), "app", 2, &BTreeMap::new()).unwrap_err();
    assert!(e.to_string().contains("`lines`"), "{e}");
}
