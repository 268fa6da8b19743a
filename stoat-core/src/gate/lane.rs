//! The gates of one lane, and what all lanes share of them.

use std::sync::Arc;

use super::letter::{header, put};
use super::tally::{Dropped, Tally};
use super::verdict::{self, Verdict, Verdicts};
use super::{Deciders, Decision, Failed, Gate, Policy, is_data};
use crate::config::Config;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{SinkId, TopicPartition};
use crate::operator::LaneCx;
use crate::plan::Plan;
use crate::record::{Headers, RecordBatch, kafka_size};
use crate::time::Timestamp;
use crate::topology::graph::{Graph, SinkDecl};

/// So many records that are left out are logged by each lane as warnings; more would hide all else.
const LOGGED: u32 = 20;

/// What a record without headers takes beside its key and value, at most.
const FRAME: usize = 100;

/// Where dead letters go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letters {
    /// The topic.
    pub topic: Arc<str>,
    /// Its place behind the sinks.
    pub sink: SinkId,
}

/// What the gates of all lanes do, for one engine generation.
#[derive(Clone)]
pub struct Gates {
    pub(crate) decode: Policy,
    pub(crate) process: Policy,
    pub(crate) produce: Policy,
    pub(crate) letters: Option<Letters>,
    /// Whether what operators leave out becomes a dead letter.
    pub(crate) dropped: bool,
    /// By sink, dead letters included: the size above which the broker refuses a record.
    pub(crate) limits: Arc<[usize]>,
    pub(crate) sink_topics: Arc<[Arc<str>]>,
    /// The sinks' nodes, by sink.
    pub(crate) sink_nodes: Arc<[Arc<str>]>,
    /// The names of the input partitions, by place.
    pub(crate) inputs: Arc<[TopicPartition]>,
    pub(crate) verdicts: Verdicts,
}

impl std::fmt::Debug for Gates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gates")
            .field("letters", &self.letters)
            .field("verdicts", &self.verdicts)
            .finish_non_exhaustive()
    }
}

impl Default for Gates {
    /// All gates fail.
    fn default() -> Self {
        Self::new([None; 3], &Deciders::default())
    }
}

impl Gates {
    /// What is configured (decode, process, produce), else what the topology declares.
    pub fn new(configured: [Option<Decision>; 3], declared: &Deciders) -> Self {
        let [decode, process, produce] = configured;
        Self {
            decode: Policy::of(decode, declared.decode.as_ref()),
            process: Policy::of(process, declared.process.as_ref()),
            produce: Policy::of(produce, declared.produce.as_ref()),
            letters: None,
            dropped: false,
            limits: Arc::new([]),
            sink_topics: Arc::new([]),
            sink_nodes: Arc::new([]),
            inputs: Arc::new([]),
            verdicts: Verdicts::default(),
        }
    }

    pub(crate) fn policy(&self, gate: Gate) -> &Policy {
        match gate {
            Gate::Decode => &self.decode,
            Gate::Process => &self.process,
            Gate::Produce => &self.produce,
        }
    }

    /// The gates of an application whose plan is known.
    pub(crate) fn of(config: &Config, graph: &Graph, plan: &Plan, verdicts: Verdicts) -> Self {
        let node = |s: &SinkDecl| Arc::from(graph.nodes[s.node.0 as usize].name.as_str());
        Self {
            letters: plan.letters.map(|sink| Letters { topic: plan.sink_topics[sink.0 as usize].clone(), sink }),
            dropped: config.dead_letter_dropped,
            limits: plan.sink_limits.clone().into(),
            sink_topics: plan.sink_topics.clone(),
            sink_nodes: graph.sinks.iter().map(node).collect(),
            inputs: plan.inputs.iter().map(|i| i.partition.clone()).collect(),
            verdicts,
            ..Self::new(config.gates(), &graph.handlers)
        }
    }

    /// Whether anything may be written to a dead-letter topic.
    pub(crate) fn writes_letters(&self) -> bool {
        self.dropped || [&self.decode, &self.process, &self.produce].iter().any(|p| p.writes_letters())
    }

    /// The size above which a sink's records are refused.
    fn limit(&self, sink: SinkId) -> usize {
        self.limits.get(sink.0 as usize).copied().unwrap_or(usize::MAX)
    }
}

/// The gates of one lane.
#[derive(Debug)]
pub struct LaneGate {
    pub(crate) shared: Arc<Gates>,
    /// Whether the source record is kept at hand: only where something behind the source may need it.
    pub(crate) keep: bool,
    /// Whether handlers keep what they overwrite.
    pub(crate) undo: bool,
    /// Whether outputs may meet a verdict.
    judged: bool,
    raw: Option<(Arc<RecordBatch>, u32)>,
    pub(crate) tally: Tally,
    logged: u32,
}

impl Default for LaneGate {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl LaneGate {
    /// A lane's share.
    pub(crate) fn new(shared: Arc<Gates>) -> Self {
        let ask = |p: &Policy| matches!(p, Policy::Ask(_));
        Self {
            keep: shared.letters.is_some() && shared.writes_letters() || ask(&shared.process),
            undo: shared.process.leaves_out(),
            judged: !shared.verdicts.is_empty(),
            shared,
            raw: None,
            tally: Tally::default(),
            logged: 0,
        }
    }

    /// Remembers the source record that is worked on, where that is needed.
    #[inline]
    pub(crate) fn hold(&mut self, batch: &Arc<RecordBatch>, index: u32) {
        if !self.keep {
            return;
        }
        match &mut self.raw {
            Some((held, i)) if Arc::ptr_eq(held, batch) => *i = index,
            raw => *raw = Some((Arc::clone(batch), index)),
        }
    }

    /// Lets the source record go: a lane at rest must not pin what was fetched.
    #[inline]
    pub(crate) fn release(&mut self) {
        self.raw = None;
    }

    /// The source record that is worked on, to be handed over.
    pub(crate) fn held(&self) -> Option<&(Arc<RecordBatch>, u32)> {
        self.raw.as_ref()
    }
}

impl LaneCx<'_> {
    /// Asks a gate about an error. `Ok`: go on without this record.
    ///
    /// # Errors
    /// The error, where it is not about data or the gate does not leave the record out.
    #[cold]
    pub(crate) fn gate(&mut self, gate: Gate, node: &str, error: Error) -> Result<()> {
        self.gate_output(gate, node, error, None)
    }

    /// As [`LaneCx::gate`]; `output`: the record that was to be written.
    #[cold]
    pub(crate) fn gate_output(
        &mut self,
        gate: Gate,
        node: &str,
        error: Error,
        output: Option<Output<'_>>,
    ) -> Result<()> {
        if !is_data(&error) {
            return Err(error);
        }
        let shared = Arc::clone(&self.gate.shared);
        let source = self.origin.and_then(|o| Some((shared.inputs.get(o.partition as usize)?, o.offset)));
        let none = Headers::default();
        let raw = self.origin.and_then(|_| self.gate.raw.clone());
        let raw = raw.as_ref().map(|(batch, i)| batch.get(*i as usize));
        let own = self.key.present.then_some(self.key.bytes.as_slice());
        let (key, value, headers, timestamp) = match (&output, &raw) {
            (Some(o), _) => (o.key, o.value, o.headers, o.timestamp),
            (None, Some(r)) => (r.key, r.value, r.headers, r.timestamp),
            (None, None) => (own, None, &none, self.now.watermark),
        };
        let failed = Failed { gate, node, source, key, value, headers, timestamp, error: &error };
        match shared.policy(gate).decide(&failed) {
            Decision::Fail => Err(error),
            Decision::Retry => Err(error.into_kind(ErrorKind::Handler)),
            decision => self.leave_out(gate, node, decision, error.kind(), &error.to_string()),
        }
    }

    /// Leaves a record out, as decided.
    #[cold]
    fn leave_out(&mut self, gate: Gate, node: &str, decision: Decision, kind: ErrorKind, text: &str) -> Result<()> {
        self.gate.tally.failed[gate as usize] += 1;
        self.gate.logged += 1;
        if self.gate.logged <= LOGGED {
            let place = self.place();
            let more = if self.gate.logged == LOGGED { "; this lane does not log more of them" } else { "" };
            let done = if decision == Decision::DeadLetter { "goes to the dead-letter topic" } else { "is skipped" };
            tracing::warn!(gate = gate.name(), node, "{place}: the record {done}: {text}{more}");
        }
        if decision == Decision::DeadLetter {
            self.letter(gate.name(), node, &format!("{kind:?}"), text)
        } else {
            Ok(())
        }
    }

    /// Where this comes from, for people.
    fn place(&self) -> String {
        let named = self.origin.and_then(|o| Some((self.gate.shared.inputs.get(o.partition as usize)?, o.offset)));
        match named {
            Some((tp, offset)) => format!("{tp}@{offset}"),
            None if self.key.present => format!("key `{}`", String::from_utf8_lossy(&self.key.bytes)),
            None => "a record".to_owned(),
        }
    }

    /// An operator leaves the current record out because of what it is.
    #[cold]
    pub(crate) fn dropped(&mut self, reason: Dropped) -> Result<()> {
        self.gate.tally.dropped[reason as usize] += 1;
        if self.gate.shared.dropped {
            return self.letter("dropped", reason.name(), reason.name(), reason.text());
        }
        Ok(())
    }

    /// Writes the source record that is worked on to the dead-letter topic.
    fn letter(&mut self, gate: &str, node: &str, exception: &str, text: &str) -> Result<()> {
        let shared = Arc::clone(&self.gate.shared);
        let Some(letters) = &shared.letters else {
            return Err(Error::new(
                ErrorKind::Config,
                format!(
                    "{}: a record is to become a dead letter, but there is no topic for it ({text}): set \
                     `stoat.dead-letter.topic`",
                    self.place()
                ),
            ));
        };
        let raw = self.origin.and_then(|_| self.gate.raw.clone());
        let raw = raw.as_ref().map(|(batch, i)| batch.get(*i as usize));
        let own = self.key.present.then(|| self.key.bytes.clone());
        let (mut key, mut value, mut headers, timestamp) = match &raw {
            Some(r) => (r.key, r.value, r.headers.clone(), r.timestamp),
            None => (own.as_deref(), None, Headers::default(), self.now.watermark),
        };
        put(&mut headers, header::EXCEPTION, exception);
        put(&mut headers, header::MESSAGE, text);
        if let Some((tp, offset)) = self.origin.and_then(|o| Some((shared.inputs.get(o.partition as usize)?, o.offset)))
        {
            put(&mut headers, header::TOPIC, &tp.topic);
            put(&mut headers, header::PARTITION, &tp.partition.to_string());
            put(&mut headers, header::OFFSET, &offset.to_string());
        }
        put(&mut headers, header::GATE, gate);
        put(&mut headers, header::NODE, node);
        let limit = shared.limit(letters.sink);
        let mut omitted = Vec::new();
        if kafka_size(key, value, &headers) > limit {
            omitted.extend(value.take().map(|v| format!("value: {} bytes", v.len())));
        }
        if kafka_size(key, value, &headers) > limit {
            omitted.extend(key.take().map(|k| format!("key: {} bytes", k.len())));
        }
        if !omitted.is_empty() {
            put(&mut headers, header::OMITTED, &omitted.join(", "));
        }
        self.gate.tally.letters += 1;
        // A record may lack a time; the broker refuses that too.
        let timestamp = timestamp.max(Timestamp::from_millis(0));
        self.emit(letters.sink, key, value, timestamp, headers);
        Ok(())
    }

    /// Whether an output may go out; what may not has been to the gate.
    #[inline]
    pub(crate) fn admits(&mut self, node: &str, sink: SinkId, output: Output<'_>) -> Result<bool> {
        let Output { key, value, timestamp, headers } = output;
        // Never less than what it takes, and quick.
        let most = key.map_or(0, <[u8]>::len) + value.map_or(0, <[u8]>::len) + FRAME;
        if !self.gate.judged && timestamp.0 >= 0 && headers.is_empty() && most <= self.gate.shared.limit(sink) {
            return Ok(true);
        }
        self.check(node, sink, output)
    }

    fn check(&mut self, node: &str, sink: SinkId, output: Output<'_>) -> Result<bool> {
        let Output { key, value, timestamp, headers } = output;
        let shared = Arc::clone(&self.gate.shared);
        if !shared.verdicts.is_empty() {
            let bytes = verdict::bytes(key, value, timestamp, headers);
            if let Some(v) = shared.verdicts.find(self.origin, &self.path, sink, bytes) {
                let Verdict { decision, kind, text, .. } = v;
                return self.leave_out(Gate::Produce, node, *decision, *kind, text).map(|()| false);
            }
        }
        let topic = || shared.sink_topics.get(sink.0 as usize).map_or(node, |t| t);
        let limit = shared.limit(sink);
        let size = if limit == usize::MAX { 0 } else { kafka_size(key, value, headers) };
        let why = if size > limit {
            format!(
                "a record for topic `{}` takes {size} bytes, and the topic's `max.message.bytes` is {limit}: raise that \
                 or write less",
                topic()
            )
        } else if timestamp.0 < 0 {
            format!("a record for topic `{}` has the timestamp {timestamp}: the broker takes none before 1970", topic())
        } else {
            return Ok(true);
        };
        self.gate_output(Gate::Produce, node, Error::new(ErrorKind::Refused, why).at(node), Some(output))
            .map(|()| false)
    }
}

/// A record that is about to be written.
#[derive(Clone, Copy)]
pub(crate) struct Output<'a> {
    pub(crate) key: Option<&'a [u8]>,
    pub(crate) value: Option<&'a [u8]>,
    pub(crate) timestamp: Timestamp,
    pub(crate) headers: &'a Headers,
}
