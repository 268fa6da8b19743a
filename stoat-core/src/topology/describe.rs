//! A graph in words and pictures: Kafka Streams' text form, Mermaid, JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::graph::{Graph, Node, NodeKind};
use super::{StaticGraph, StaticNode};
use crate::id::{NodeId, SubTopologyId};

impl Graph {
    /// The name that the text of the topology shows for a node: a fragment is one node there.
    fn shown_as(&self, node: NodeId) -> &str {
        let fragment = self.fragments.iter().find(|(id, _)| *id == node);
        fragment.map_or(self.nodes[node.0 as usize].name.as_str(), |(_, name)| name.as_str())
    }

    fn names(&self, nodes: &[NodeId]) -> String {
        let names: Vec<&str> = nodes.iter().map(|n| self.nodes[n.0 as usize].name.as_str()).collect();
        names.join(", ")
    }

    fn store_names(&self, node: &Node) -> Vec<&str> {
        node.stores.iter().map(|s| self.stores[s.0 as usize].name.as_str()).collect()
    }

    /// The stores that a schedule reads.
    fn reads(&self, node: &Node) -> Vec<&str> {
        let NodeKind::Schedule(i) = node.kind else { return Vec::new() };
        self.schedules[i as usize].stores.iter().map(|s| self.stores[s.0 as usize].name.as_str()).collect()
    }

    fn in_sub(&self, sub: u32) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(move |n| n.sub == SubTopologyId(sub))
    }

    fn topic(&self, node: &Node) -> Option<&str> {
        match node.kind {
            NodeKind::Source(i) => Some(&self.sources[i as usize].topic),
            NodeKind::Sink(i) => Some(&self.sinks[i.0 as usize].topic),
            _ => None,
        }
    }

    /// The graph in the form that Kafka Streams' `Topology::describe` prints.
    pub fn describe(&self) -> String {
        let mut out = String::from("Topologies:\n");
        for sub in 0..self.subs {
            let _ = writeln!(out, "   Sub-topology: {sub}");
            for n in self.in_sub(sub) {
                let topic = self.topic(n).unwrap_or_default();
                let _ = match n.kind {
                    NodeKind::Source(_) => writeln!(out, "    Source: {} (topics: [{topic}])", n.name),
                    NodeKind::Schedule(_) => {
                        writeln!(out, "    Schedule: {} (stores: [{}])", n.name, self.reads(n).join(", "))
                    }
                    NodeKind::Sink(_) => writeln!(out, "    Sink: {} (topic: {topic})", n.name),
                    NodeKind::HandOver => {
                        let to = n.children.first().map(|c| self.nodes[c.0 as usize].sub);
                        writeln!(out, "    Hand-over: {} (to: {})", n.name, to.unwrap_or_default())
                    }
                    NodeKind::Stateless
                    | NodeKind::FanOut
                    | NodeKind::Merge
                    | NodeKind::Processor
                    | NodeKind::Aggregate
                    | NodeKind::ForEach => {
                        writeln!(out, "    Processor: {} (stores: [{}])", n.name, self.store_names(n).join(", "))
                    }
                };
                if !n.children.is_empty() {
                    let _ = writeln!(out, "      --> {}", self.names(&n.children));
                } else if !matches!(n.kind, NodeKind::Sink(_)) {
                    let _ = writeln!(out, "      --> none");
                }
                if !n.parents.is_empty() {
                    let _ = writeln!(out, "      <-- {}", self.names(&n.parents));
                }
            }
            out.push('\n');
        }
        out
    }

    /// The graph as a Mermaid flowchart, one subgraph per sub-topology.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        for sub in 0..self.subs {
            let _ = writeln!(out, "  subgraph sub{sub}[\"sub-topology {sub}\"]");
            for n in self.in_sub(sub) {
                let id = n.id;
                let name = n.name.replace('"', "#quot;");
                let topic = self.topic(n).unwrap_or_default();
                let stores = self.store_names(n);
                let _ = match n.kind {
                    NodeKind::Source(_) => writeln!(out, "    n{id}([\"{name}<br/>reads {topic}\"])"),
                    NodeKind::Schedule(_) => {
                        let reads = self.reads(n).join(", ");
                        let reads = if reads.is_empty() { reads } else { format!("<br/>reads {reads}") };
                        writeln!(out, "    n{id}([\"{name}<br/>by the clock{reads}\"])")
                    }
                    NodeKind::Sink(_) => writeln!(out, "    n{id}([\"{name}<br/>writes {topic}\"])"),
                    NodeKind::HandOver => writeln!(out, "    n{id}>\"{name}\"]"),
                    _ if stores.is_empty() => writeln!(out, "    n{id}[\"{name}\"]"),
                    _ => writeln!(out, "    n{id}[(\"{name}<br/>{}\")]", stores.join(", ")),
                };
            }
            out.push_str("  end\n");
        }
        for n in &self.nodes {
            for c in &n.children {
                let arrow = if n.kind == NodeKind::HandOver { "-.->" } else { "-->" };
                let _ = writeln!(out, "  n{} {arrow} n{c}", n.id);
            }
        }
        out
    }

    /// The graph as JSON: nodes with their edges, stores and topics.
    pub fn json(&self) -> Value {
        let ids = |nodes: &[NodeId]| -> Vec<u32> { nodes.iter().map(|n| n.0).collect() };
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|n| {
                json!({
                    "id": n.id.0,
                    "name": n.name,
                    "kind": n.kind.word(),
                    "sub_topology": n.sub.0,
                    "parents": ids(&n.parents),
                    "children": ids(&n.children),
                    "stores": self.store_names(n),
                    "reads": self.reads(n),
                    "topic": self.topic(n),
                })
            })
            .collect();
        let stores: Vec<Value> = self
            .stores
            .iter()
            .map(|s| {
                json!({
                    "name": s.name,
                    "kind": s.kind,
                    "owner": self.nodes[s.owner.0 as usize].name,
                    "sub_topology": s.sub.0,
                    "key_codec": s.key_codec,
                })
            })
            .collect();
        json!({ "name": self.name, "sub_topologies": self.subs, "nodes": nodes, "stores": stores })
    }
}

/// What the text of a `#[topology]` function shows, without running it: no topics and stores, which types know.
impl StaticGraph {
    fn outputs(&self, of: &StaticNode) -> Vec<&'static str> {
        self.nodes.iter().filter(|n| n.inputs.contains(&of.name)).map(|n| n.name).collect()
    }

    /// The graph in the form that Kafka Streams' `Topology::describe` prints, each node with its step.
    pub fn describe(&self) -> String {
        let mut out = format!("Topologies:\n   Topology: {}\n", self.name);
        for n in self.nodes {
            let kind = match n.step {
                "source" => "Source",
                "sink" => "Sink",
                _ => "Processor",
            };
            let step = if n.of.is_empty() { n.step.to_owned() } else { format!("{} {}", n.step, n.of) };
            let _ = writeln!(out, "    {kind}: {} ({step})", n.name);
            let outputs = self.outputs(n);
            if !outputs.is_empty() {
                let _ = writeln!(out, "      --> {}", outputs.join(", "));
            } else if n.step != "sink" {
                let _ = writeln!(out, "      --> none");
            }
            if !n.inputs.is_empty() {
                let _ = writeln!(out, "      <-- {}", n.inputs.join(", "));
            }
        }
        out
    }

    /// The graph as a Mermaid flowchart.
    pub fn mermaid(&self) -> String {
        let mut out = String::from("flowchart TD\n");
        for (i, n) in self.nodes.iter().enumerate() {
            let label = if n.of.is_empty() || n.of == n.name {
                format!("{}<br/>{}", n.name, n.step)
            } else {
                format!("{}<br/>{} {}", n.name, n.step, n.of)
            };
            let label = label.replace('"', "#quot;");
            let _ = match n.step {
                "source" | "sink" => writeln!(out, "  n{i}([\"{label}\"])"),
                _ => writeln!(out, "  n{i}[\"{label}\"]"),
            };
        }
        for (i, n) in self.nodes.iter().enumerate() {
            for input in n.inputs {
                if let Some(from) = self.nodes.iter().position(|n| n.name == *input) {
                    let _ = writeln!(out, "  n{from} --> n{i}");
                }
            }
        }
        out
    }

    /// The graph as JSON.
    pub fn json(&self) -> Value {
        let nodes: Vec<Value> = self
            .nodes
            .iter()
            .map(|n| json!({ "name": n.name, "step": n.step, "of": n.of, "inputs": n.inputs }))
            .collect();
        json!({ "name": self.name, "nodes": nodes })
    }

    /// Where the built graph is another than the text shows; `None`: they agree. A hand-over that follows from types is in
    /// no text.
    pub fn difference(&self, built: &Graph) -> Option<String> {
        let said: Vec<&str> = self.nodes.iter().map(|n| n.name).collect();
        // A fragment is one node in the text.
        let shown_as = |n: &Node| built.shown_as(n.id);
        let implied = |n: &Node| n.kind == NodeKind::HandOver && !said.contains(&shown_as(n));
        let mut names: Vec<&str> = Vec::new();
        for name in built.nodes.iter().filter(|n| !implied(n)).map(shown_as) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        if said != names {
            return Some(format!("the text shows {said:?}, built are {names:?}"));
        }
        for said in self.nodes {
            let mut inputs: Vec<&str> = Vec::new();
            for node in built.nodes.iter().filter(|n| !implied(n) && shown_as(n) == said.name) {
                for p in &node.parents {
                    let mut from = &built.nodes[p.0 as usize];
                    while implied(from) {
                        from = &built.nodes[from.parents[0].0 as usize];
                    }
                    let from = shown_as(from);
                    if from != said.name && !inputs.contains(&from) {
                        inputs.push(from);
                    }
                }
            }
            let mut wanted = said.inputs.to_vec();
            if said.step == "fragment" {
                // In which order it takes them is its own business.
                inputs.sort_unstable();
                wanted.sort_unstable();
                wanted.dedup();
            }
            if inputs != wanted {
                return Some(format!(
                    "`{}` is fed by {:?} in the text, by {inputs:?} as built",
                    said.name, said.inputs
                ));
            }
        }
        None
    }
}

impl NodeKind {
    /// The kind in one word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Source(_) => "source",
            Self::Schedule(_) => "schedule",
            Self::Stateless => "stateless",
            Self::FanOut => "fan-out",
            Self::Merge => "merge",
            Self::Processor => "processor",
            Self::Aggregate => "aggregate",
            Self::HandOver => "hand-over",
            Self::Sink(_) => "sink",
            Self::ForEach => "for-each",
        }
    }
}
