//! Who sends to whom, and a lane together with its inbox.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::Duration;

use super::super::inbox::{Inbox, Next, Parcel, Passed};
use super::super::lane::{Effects, Failure, Lane};
use super::super::message::{Control, NetEvent};
use super::super::tag::{Path, Tag};
use super::defect;
use crate::error::{Error, Result};
use crate::id::NodeId;
use crate::operator::{Child, ForeignTimer};
use crate::time::Timestamp;
use crate::topology::graph::{Graph, NodeKind};

/// A hand-over.
pub(super) struct Edge {
    pub(super) node: NodeId,
    pub(super) from: usize,
    pub(super) to: usize,
    entry: Child,
}

/// Where things go. Lanes are numbered through all sub-topologies.
pub(super) struct Wiring {
    /// In the order of nodes.
    pub(super) edges: Vec<Edge>,
    pub(super) first: Vec<usize>,
    counts: Vec<usize>,
    /// Whether ingest feeds the sub-topology.
    sources: Vec<bool>,
}

impl Wiring {
    pub(super) fn new(graph: &Graph, lane_counts: &[u32]) -> Result<Self> {
        let places = super::places(graph);
        let mut edges = Vec::new();
        for node in graph.nodes.iter().filter(|n| n.kind == NodeKind::HandOver) {
            let [child] = node.children[..] else {
                return Err(defect(format!("the hand-over `{}` has not one child", node.name)));
            };
            let to = graph.nodes[child.0 as usize].sub;
            if to <= node.sub {
                return Err(defect(format!("the hand-over `{}` goes from {} to {to}", node.name, node.sub)));
            }
            edges.push(Edge {
                node: node.id,
                from: node.sub.0 as usize,
                to: to.0 as usize,
                entry: places[child.0 as usize],
            });
        }
        let counts: Vec<usize> = lane_counts.iter().map(|&n| n as usize).collect();
        let mut first = vec![0];
        let mut sources = vec![false; counts.len()];
        for (sub, n) in counts.iter().enumerate() {
            first.push(first[sub] + n);
        }
        for s in &graph.sources {
            sources[graph.nodes[s.node.0 as usize].sub.0 as usize] = true;
        }
        for s in &graph.schedules {
            sources[graph.nodes[s.node.0 as usize].sub.0 as usize] = true;
        }
        for (sub, fed) in sources.iter().enumerate() {
            if !fed && !edges.iter().any(|e| e.to == sub) {
                return Err(defect(format!("nothing feeds sub-topology {sub}")));
            }
        }
        Ok(Self { edges, first, counts, sources })
    }

    /// The senders of a sub-topology's lanes, in the order of their places: ingest, then the feeding lanes.
    fn senders(&self, sub: usize) -> Vec<Option<usize>> {
        let mut all = Vec::new();
        if self.sources[sub] {
            all.push(None);
        }
        for from in (0..sub).filter(|&from| self.edges.iter().any(|e| e.from == from && e.to == sub)) {
            all.extend((self.first[from]..self.first[from + 1]).map(Some));
        }
        all
    }

    /// The queues of a sub-topology's lanes: ingest's, then edge by edge, lane by lane.
    fn slots(&self, sub: usize) -> Vec<(usize, Child)> {
        let senders = self.senders(sub);
        let mut slots = Vec::new();
        if self.sources[sub] {
            // The entry of what ingest sends stands in its batches.
            slots.push((0, Child(0)));
        }
        for e in self.edges.iter().filter(|e| e.to == sub) {
            for lane in self.first[e.from]..self.first[e.from + 1] {
                let sender = senders.iter().position(|s| *s == Some(lane));
                slots.push((sender.expect("each feeding lane is a sender"), e.entry));
            }
        }
        slots
    }

    /// The first slot of an edge at the lanes that it feeds.
    fn slot(&self, edge: &Edge) -> usize {
        let before = self.edges.iter().take_while(|e| e.node != edge.node);
        usize::from(self.sources[edge.to])
            + before.filter(|e| e.to == edge.to).map(|e| self.counts[e.from]).sum::<usize>()
    }

    pub(super) fn worker(&self, lane: Lane) -> Worker {
        let id = lane.id();
        let (sub, idx) = (id.sub.0 as usize, id.lane.0 as usize);
        let flat = self.first[sub] + idx;
        let outs = self.edges.iter().filter(|e| e.from == sub);
        let outs: Vec<Out> = outs.map(|e| Out { first: self.first[e.to], slot: self.slot(e) + idx }).collect();
        let mut receivers = Vec::new();
        for to in (sub..self.counts.len()).filter(|&to| self.edges.iter().any(|e| e.from == sub && e.to == to)) {
            let sender = self.senders(to).iter().position(|s| *s == Some(flat));
            let slots = self.edges.iter().filter(|e| e.from == sub && e.to == to);
            let slots: Vec<usize> = slots.map(|e| self.slot(e) + idx).collect();
            for lane in self.first[to]..self.first[to + 1] {
                receivers.push(Receiver {
                    lane,
                    sender: sender.expect("an edge makes its lanes senders"),
                    slots: slots.clone(),
                });
            }
        }
        let senders = self.senders(sub);
        Worker {
            lane,
            inbox: Inbox::new(senders.len(), self.slots(sub)),
            fed: self.sources[sub],
            senders,
            outs,
            receivers,
            effects: Effects::default(),
            outgoing: Vec::new(),
            published: Tag::record(0),
            barrier: 0,
            woken: None,
            failed: false,
        }
    }
}

struct Out {
    first: usize,
    slot: usize,
}

/// A lane that another sends to.
pub(super) struct Receiver {
    pub(super) lane: usize,
    /// The sender's place at that lane.
    pub(super) sender: usize,
    slots: Vec<usize>,
}

/// A parcel on its way.
pub(super) struct Outgoing {
    pub(super) lane: usize,
    pub(super) sender: usize,
    pub(super) slot: usize,
    pub(super) parcel: Parcel,
}

/// Remembers that a future wants to be polled, and tells the driver.
struct Woken {
    woken: Arc<AtomicBool>,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.store(true, Ordering::SeqCst);
        (self.tell)();
    }
}

/// A lane and its inbox: what a driver drives.
pub(super) struct Worker {
    pub(super) lane: Lane,
    pub(super) inbox: Inbox,
    /// Whether ingest feeds it; then ingest is sender 0 and has slot 0.
    pub(super) fed: bool,
    /// By sender's place: the lane, or ingest.
    pub(super) senders: Vec<Option<usize>>,
    outs: Vec<Out>,
    pub(super) receivers: Vec<Receiver>,
    effects: Effects,
    /// What the last step sends, by rising lane; the driver takes it.
    pub(super) outgoing: Vec<Outgoing>,
    /// The frontier that receivers know.
    published: Tag,
    /// The number of the barrier at which the lane waits for an exchange.
    barrier: u64,
    /// Whether the future of the call that waits wants to be polled; `None`: no handler of the lane waits.
    woken: Option<Arc<AtomicBool>>,
    pub(super) failed: bool,
}

impl Worker {
    /// Whether a step would do something; credit is the driver's business.
    pub(super) fn ready(&self) -> bool {
        if self.failed || self.lane.waits_for_exchange() {
            false
        } else if self.lane.waits_at().is_some() {
            self.woken.as_ref().is_some_and(|w| w.load(Ordering::SeqCst))
        } else {
            self.inbox.next() != Next::Wait
        }
    }

    /// Has `tell` called when a future of a handler wants to be polled. Called once, before the first step.
    pub(super) fn tell_wakes(&mut self, tell: impl Fn() + Send + Sync + 'static) {
        if self.lane.is_async() {
            let woken = Arc::new(AtomicBool::new(false));
            self.woken = Some(woken.clone());
            self.lane.wake_by(Waker::from(Arc::new(Woken { woken, tell: Box::new(tell) })));
        }
    }

    /// Which call waits: none of the lane has the same number twice.
    pub(super) fn call(&mut self) -> Option<u64> {
        self.lane.waits_at().filter(|_| !self.failed)?;
        self.lane.call().map(|c| c.nth)
    }

    /// Gives up the call that waits: its time is over.
    pub(super) fn time_out(&mut self, after: Duration, events: &mut Vec<NetEvent>) {
        let Some(call) = self.lane.call().filter(|_| !self.failed) else { return };
        let error = Error::handler(format!(
            "the handler has waited for {}, longer than `stoat.handler.timeout` allows: let what it awaits give up sooner, \
             or allow more (less than `stoat.commit.timeout`)",
            humantime::format_duration(after)
        ));
        self.finish(Err(Failure { origin: call.origin, error: error.at(call.place) }), events);
    }

    /// Takes up to so many records, or one control message. Leaves what it sends in `outgoing`.
    pub(super) fn step(&mut self, most: usize, events: &mut Vec<NetEvent>) {
        if self.lane.waits_at().is_some() {
            if let Some(woken) = &self.woken {
                // Before the poll: who wakes during it wants another one.
                woken.store(false, Ordering::SeqCst);
            }
            let result = self.lane.resume(&mut self.effects);
            return self.finish(result, events);
        }
        let result = match self.inbox.next() {
            Next::Wait => return,
            Next::Run { .. } => self.lane.records(&mut self.inbox, most, &mut self.effects).map(|_| ()),
            Next::Control => {
                let message = self.inbox.take_control();
                if let Control::Barrier(_) = message.control {
                    self.barrier = message.number;
                }
                self.lane.control(message, &mut self.effects)
            }
        };
        self.finish(result, events);
    }

    /// Takes the foreign writes of all lanes of its sub-topology.
    pub(super) fn exchange(&mut self, writes: &[ForeignTimer], events: &mut Vec<NetEvent>) {
        if !self.failed && self.lane.waits_for_exchange() {
            let result = self.lane.exchange(writes, &mut self.effects);
            self.finish(result, events);
        }
    }

    /// Puts a parcel into the inbox.
    pub(super) fn put(&mut self, slot: usize, parcel: Parcel, events: &mut Vec<NetEvent>) {
        if self.failed {
            return;
        }
        if let Err(error) = self.inbox.put(slot, parcel) {
            self.finish(Err(Failure { origin: None, error }), events);
        }
    }

    fn finish(&mut self, result: Result<(), Failure>, events: &mut Vec<NetEvent>) {
        events.append(&mut self.effects.events);
        if let Err(Failure { origin, error }) = result {
            self.failed = true;
            self.effects = Effects::default();
            events.push(NetEvent::Fault { lane: self.lane.id(), origin, error });
            return;
        }
        for (edge, lane, batch) in self.effects.sends.drain(..).filter(|(_, _, b)| !b.is_empty()) {
            let out = &self.outs[edge];
            let lane = out.first + lane.0 as usize;
            let i = self.receivers.partition_point(|r| r.lane < lane);
            self.outgoing.push(Outgoing {
                lane,
                sender: self.receivers[i].sender,
                slot: out.slot,
                parcel: Parcel::Hand(batch),
            });
        }
        if let Some(passed) = self.effects.control.take() {
            for r in &self.receivers {
                for &slot in &r.slots {
                    self.outgoing.push(Outgoing {
                        lane: r.lane,
                        sender: r.sender,
                        slot,
                        parcel: Parcel::Control(passed.clone()),
                    });
                }
            }
        }
        self.outgoing.sort_by_key(|o| o.lane);
    }

    /// The smallest tag that the lane may still send, where that has risen since the last call.
    pub(super) fn frontier(&mut self) -> Option<Tag> {
        if self.receivers.is_empty() || self.failed {
            return None;
        }
        // What a call that waits will send belongs to what was taken already. Receivers must know how far the lane is also
        // then, or they could not give back the credit that the call needs to end.
        let mut tag = self.lane.waits_at().cloned().unwrap_or_else(|| self.inbox.bound());
        if tag.path == Path::end() {
            // What a control message makes this stage send comes before the message itself.
            tag.path = Path::stage(self.lane.id().sub);
        }
        (tag > self.published).then(|| {
            self.published = tag.clone();
            tag
        })
    }

    /// The smallest number that the lane has to work on.
    pub(super) fn lowest(&self) -> u64 {
        if self.failed {
            u64::MAX
        } else if self.lane.waits_for_exchange() {
            self.barrier
        } else {
            self.lane.waits_at().map_or(u64::MAX, |t| t.number).min(self.inbox.lowest())
        }
    }
}

/// What ingest sends to the lanes that it feeds.
pub(super) fn from_ingest(number: u64, control: &Control, sub: usize) -> Parcel {
    let watermark = match control {
        Control::Mark(mark) => mark.watermarks[sub],
        _ => Timestamp::MIN,
    };
    Parcel::Control(Passed { number, control: control.clone(), watermark })
}
