use super::graph::{Graph, NodeKind};
use super::{Bind, Topology, bind_each};
use crate::codec::{Be, Json, Utf8};
use crate::error::ErrorKind;
use crate::operator::harness::{sink, source};
use crate::topology::lane_state::Lane;

source!(A, "a", String, String, Utf8, Utf8, Lane<Utf8>);
source!(B, "b", String, String, Utf8, Utf8, Lane<Utf8>);
source!(AlsoA, "a", String, String, Utf8, Utf8, Lane<Utf8>);
sink!(Out, "out", String, String, Utf8, Utf8);
sink!(OutJson, "out", String, String, Utf8, Json);
sink!(Counts, "counts", String, u64, Utf8, Be);

fn build(declare: impl FnOnce(&mut Topology)) -> crate::Result<Graph> {
    let mut t = Topology::new("test");
    declare(&mut t);
    t.build()
}

fn names(graph: &Graph) -> Vec<String> {
    graph.nodes.iter().map(|n| format!("{}:{}", n.sub, n.name)).collect()
}

fn problem(declare: impl FnOnce(&mut Topology)) -> String {
    let e = build(declare).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Topology);
    e.to_string()
}

#[test]
fn t40_names_come_from_lets_and_an_edit_elsewhere_renames_nothing() {
    let graph = build(|t| {
        let words = t.source::<A>().bound_to("words");
        let shouted = words.map_values(|v| v.to_uppercase()).filter(|_, _| true).bound_to("shouted");
        let [left, right] = bind_each(shouted.fan_out(), ["left", "right"]);
        left.map_values(|v| v).sink::<Out>();
        let n = right.group_by(|_, v| v.clone()).count().bound_to("n");
        n.to_stream().sink::<Counts>();
    })
    .unwrap();
    assert_eq!(
        names(&graph),
        [
            "0:words",
            "0:shouted",
            "0:shouted.fan_out",
            "0:left.map_values",
            "0:Out",
            "0:right.select_key",
            "0:n-repartition",
            "1:n",
            "1:Counts"
        ]
    );
    assert_eq!(graph.stores[0].name, "n");
    assert_eq!(graph.stores[0].sub.0, 1);
}

#[test]
fn an_explicit_name_is_stronger_than_a_let() {
    let graph = build(|t| {
        let a = t.source::<A>().named("explicit").bound_to("a");
        let b = a.bound_to("b");
        b.sink::<Out>();
    })
    .unwrap();
    assert_eq!(names(&graph), ["0:explicit", "0:Out"]);
}

#[test]
fn a_chain_of_stateless_steps_is_one_node_and_no_step_is_none() {
    let graph = build(|t| {
        t.source::<A>().map_values(|v| v).filter(|_, _| true).erase().erase().sink::<Out>();
    })
    .unwrap();
    assert_eq!(names(&graph), ["0:A", "0:A.filter", "0:Out"]);
    assert_eq!(graph.nodes[1].kind, NodeKind::Stateless);
}

#[test]
fn sources_that_meet_share_their_sub_topology() {
    let graph = build(|t| {
        let (a, b) = (t.source::<A>(), t.source::<B>());
        a.map_values(|v| v).merge(b).sink::<Out>();
    })
    .unwrap();
    assert_eq!(names(&graph), ["0:A", "0:B", "0:A.map_values", "0:A.map_values.merge", "0:Out"]);
    assert_eq!(graph.subs, 1);
}

#[test]
fn inputs_of_different_sub_topologies_are_handed_over_into_a_new_one() {
    let graph = build(|t| {
        let [a, again] = t.source::<A>().fan_out();
        let counted = a.group_by(|_, v| v.clone()).count().named("n").to_stream();
        counted.map_values(|n| n.to_string()).merge(again).named("both").sink::<Out>();
    })
    .unwrap();
    assert_eq!(
        names(&graph),
        [
            "0:A",
            "0:A.fan_out",
            "0:A.fan_out.select_key",
            "0:n-repartition",
            "1:n",
            "1:n.map_values",
            "1:both-repartition",
            "0:both-repartition-2",
            "2:both",
            "2:Out"
        ]
    );
    for n in &graph.nodes {
        for c in &n.children {
            let child = &graph.nodes[c.0 as usize];
            assert_eq!(child.sub != n.sub, n.kind == NodeKind::HandOver, "{} -> {}", n.name, child.name);
            assert!(n.sub <= child.sub, "feeders have smaller numbers");
        }
    }
}

#[test]
fn a_stream_that_was_repartitioned_meets_others_without_a_second_hand_over() {
    let graph = build(|t| {
        let a = t.source::<A>().repartition().named("moved");
        a.merge(t.source::<B>()).named("both").sink::<Out>();
    })
    .unwrap();
    assert_eq!(names(&graph), ["0:A", "0:moved", "1:B", "1:both-repartition", "2:both", "2:Out"]);
}

#[test]
fn the_lanes_of_a_group_behind_a_kept_key_are_those_of_the_source() {
    let graph = build(|t| {
        t.source::<A>().map_values(|v| v.len()).group_by_key().count().named("n");
    })
    .unwrap();
    assert_eq!(graph.subs, 1);
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text = problem(|t| {
        t.source::<A>().named("x").group_by_key().count();
        t.source::<AlsoA>().named("x").map_values(|v| v).erase().discard();
        drop(t.source::<B>().named("unused"));
    });
    for want in [
        "topology `test`: ",
        "two streams are named `x`",
        "the aggregation `x.count` has no name",
        "topic `a` is read by two sources, `x` and `x`: keep one and use `.fan_out()`",
        "nobody consumes the result of `unused`: end the chain with `.sink::<S>()`, `.for_each(..)` or `.discard()`",
    ] {
        assert!(text.contains(want), "{want} is not in: {text}");
    }
}

#[test]
fn a_branch_that_nobody_consumes_is_an_error() {
    let text = problem(|t| {
        let [a, _b] = t.source::<A>().fan_out();
        a.discard();
    });
    assert!(text.contains("nobody consumes the result of `A.fan_out`"), "{text}");
}

#[test]
fn one_topic_is_written_with_one_pair_of_codecs() {
    let text = problem(|t| {
        let [a, b] = t.source::<A>().fan_out();
        a.sink::<Out>();
        b.sink::<OutJson>();
    });
    assert!(text.contains("topic `out` is written by `Out` and `OutJson` with different codecs"), "{text}");
}

#[test]
fn two_stores_of_one_name_are_an_error() {
    let text = problem(|t| {
        let [a, b] = t.source::<A>().fan_out();
        a.group_by_key().count().named("n");
        b.group_by_key().count().named("n");
    });
    assert!(text.contains("both own a store named `n`"), "{text}");
}

#[test]
fn a_name_that_no_topic_can_have_is_an_error() {
    let text = problem(|t| {
        t.source::<A>().group_by_key().count().named("per user");
    });
    assert!(text.contains("`per user` cannot name a stream or a store"), "{text}");
}

fn counted() -> Graph {
    build(|t| {
        let words = t.source::<A>().bound_to("words");
        let n = words.group_by(|_, v| v.clone()).count().bound_to("n");
        n.to_stream().sink::<Counts>();
    })
    .unwrap()
}

#[test]
fn a_graph_is_described_in_the_form_of_kafka_streams() {
    assert_eq!(
        counted().describe(),
        "Topologies:
   Sub-topology: 0
    Source: words (topics: [a])
      --> words.select_key
    Processor: words.select_key (stores: [])
      --> n-repartition
      <-- words
    Hand-over: n-repartition (to: 1)
      --> n
      <-- words.select_key

   Sub-topology: 1
    Processor: n (stores: [n])
      --> Counts
      <-- n-repartition
    Sink: Counts (topic: counts)
      <-- n

"
    );
}

#[test]
fn a_graph_is_drawn_with_a_box_per_sub_topology() {
    assert_eq!(
        counted().mermaid(),
        "flowchart TD
  subgraph sub0[\"sub-topology 0\"]
    n0([\"words<br/>reads a\"])
    n1[\"words.select_key\"]
    n2>\"n-repartition\"]
  end
  subgraph sub1[\"sub-topology 1\"]
    n3[(\"n<br/>n\")]
    n4([\"Counts<br/>writes counts\"])
  end
  n0 --> n1
  n1 --> n2
  n2 -.-> n3
  n3 --> n4
"
    );
}

#[test]
fn a_graph_is_json_for_programs() {
    let json = counted().json();
    assert_eq!(json["nodes"][3]["kind"], "aggregate");
    assert_eq!(json["nodes"][3]["stores"][0], "n");
    assert_eq!(json["nodes"][0]["topic"], "a");
    assert_eq!(json["stores"][0]["kind"], "timestamped-key-value");
    assert_eq!(json["sub_topologies"], 2);
}

mod described {
    use crate::prelude::*;
    use crate::topology::{StaticGraph, StaticNode};

    #[source(topic = "lines", key = String, value = String, value_codec = Utf8)]
    struct Lines;

    #[sink(topic = "counts", key = String, value = u64, value_codec = Be)]
    struct WordCounts;

    #[topology]
    fn words(t: &mut Topology) {
        let lines = t.source::<Lines>();
        let counts = lines.filter(|_, l| !l.is_empty()).group_by(|_, l| l.clone()).count();
        counts.to_stream().sink::<WordCounts>();
    }

    #[test]
    fn the_text_of_a_topology_describes_what_is_built() {
        let built = words::build().unwrap();
        assert_eq!(words::GRAPH.difference(&built), None);
        assert_eq!(
            words::GRAPH.describe(),
            "Topologies:
   Topology: words
    Source: lines (source Lines)
      --> lines.select_key
    Processor: lines.select_key (select_key)
      --> counts
      <-- lines
    Processor: counts (count)
      --> WordCounts
      <-- lines.select_key
    Sink: WordCounts (sink WordCounts)
      <-- counts
"
        );
        assert_eq!(
            words::GRAPH.mermaid(),
            "flowchart TD
  n0([\"lines<br/>source Lines\"])
  n1[\"lines.select_key<br/>select_key\"]
  n2[\"counts<br/>count\"]
  n3([\"WordCounts<br/>sink\"])
  n0 --> n1
  n1 --> n2
  n2 --> n3
"
        );
        let json = words::GRAPH.json();
        assert_eq!(json["nodes"][2]["inputs"][0], "lines.select_key");
        assert_eq!(json["name"], "words");
    }

    #[test]
    fn a_description_that_is_not_what_is_built_is_found() {
        const NODE: StaticNode = StaticNode { name: "lines", step: "source", of: "Lines", inputs: &[] };
        let built = words::build().unwrap();
        let less = StaticGraph { name: "words", nodes: &[NODE] };
        assert!(less.difference(&built).is_some_and(|d| d.contains("WordCounts")));
        let mut nodes = words::GRAPH.nodes.to_vec();
        nodes[3].inputs = &["lines"];
        let other = StaticGraph { name: "words", nodes: nodes.leak() };
        assert!(other.difference(&built).is_some_and(|d| d.contains("`WordCounts` is fed by")));
    }
}
