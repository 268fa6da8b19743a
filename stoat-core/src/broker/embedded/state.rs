//! What the journal says: topics, where their records lie, producers' epochs and groups' offsets.
//!
//! There is one way to change it: [`State::apply`] of an entry that is in the journal, now or on open.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::format::{self, Bad, CHUNK_HEADER, COMPACTED, ChunkHead, Entry};
use super::journal::FileId;
use crate::id::{NextOffset, Offset};

/// A topic.
#[derive(Clone)]
pub(super) struct Topic {
    pub(super) name: Arc<str>,
    pub(super) id: String,
    pub(super) config: Vec<(String, String)>,
    pub(super) settings: Settings,
    pub(super) partitions: Vec<Partition>,
}

/// A topic's settings as far as the broker acts on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) compact: bool,
    pub(super) delete: bool,
    pub(super) max_message_bytes: usize,
    /// Negative: for ever.
    pub(super) retention_ms: i64,
    /// Negative: no limit.
    pub(super) retention_bytes: i64,
    pub(super) delete_retention_ms: i64,
}

/// Kafka's defaults; what a topic says replaces them.
pub(super) const DEFAULTS: [(&str, &str); 5] = [
    ("cleanup.policy", "delete"),
    ("delete.retention.ms", "86400000"),
    ("max.message.bytes", "1048588"),
    ("retention.bytes", "-1"),
    ("retention.ms", "604800000"),
];

impl Settings {
    /// Reads them; the error says what is wrong with which.
    pub(super) fn parse(config: &[(String, String)]) -> Result<Self, String> {
        let text = |name: &str| {
            let default = DEFAULTS.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v);
            config.iter().rev().find(|(n, _)| n == name).map_or(default, |(_, v)| v.as_str()).trim().to_owned()
        };
        let number = |name: &str| {
            let t = text(name);
            t.parse::<i64>().map_err(|_| format!("`{name}` is `{t}`, which is not a whole number"))
        };
        let mut settings = Self {
            compact: false,
            delete: false,
            max_message_bytes: usize::try_from(number("max.message.bytes")?)
                .map_err(|_| "`max.message.bytes` is negative".to_owned())?,
            retention_ms: number("retention.ms")?,
            retention_bytes: number("retention.bytes")?,
            delete_retention_ms: number("delete.retention.ms")?,
        };
        for policy in text("cleanup.policy").split(',').map(str::trim) {
            match policy {
                "compact" => settings.compact = true,
                "delete" => settings.delete = true,
                other => {
                    return Err(format!("`cleanup.policy` has `{other}`; there are `compact` and `delete`"));
                }
            }
        }
        Ok(settings)
    }
}

/// A partition's log: its bounds and where its chunks lie.
#[derive(Clone, Default)]
pub(super) struct Partition {
    pub(super) start: NextOffset,
    pub(super) end: NextOffset,
    /// In the order of offsets.
    pub(super) chunks: VecDeque<Place>,
    /// The bytes of `chunks`.
    pub(super) bytes: u64,
}

/// Where a chunk lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) base: Offset,
    pub(super) next: NextOffset,
    /// Retention counts from here: the later of the newest timestamp and the time of the commit. (So records with
    /// timestamps of long ago stay for the retention time after they were written; on Kafka they go at once.)
    pub(super) stamp: i64,
    pub(super) at: u64,
    pub(super) file: FileId,
    /// Header and records.
    pub(super) len: u32,
}

impl Place {
    pub(super) fn of(head: &ChunkHead, file: FileId, at: u64) -> Self {
        Self {
            base: head.base,
            next: head.next,
            stamp: head.max_ts.max(head.time),
            at,
            file,
            len: CHUNK_HEADER as u32 + head.len,
        }
    }
}

/// What a file's bytes are good for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usage {
    /// Nobody can read them any more.
    pub(super) dead: u64,
    /// Of compacted topics, a compaction went over them.
    pub(super) clean: u64,
    /// Of compacted topics, no compaction went over them.
    pub(super) dirty: u64,
    /// The number of pieces that memory has to know.
    pub(super) chunks: u64,
}

/// All of it.
#[derive(Default)]
pub(super) struct State {
    pub(super) topics: BTreeMap<u32, Topic>,
    pub(super) names: BTreeMap<Arc<str>, u32>,
    /// The newest epoch of each transactional id.
    pub(super) producers: BTreeMap<String, i64>,
    pub(super) groups: BTreeMap<String, BTreeMap<(u32, i32), NextOffset>>,
    pub(super) files: BTreeMap<FileId, Usage>,
    /// Numbers are never used twice: old chunks may still bear them.
    pub(super) next_topic: u32,
}

impl State {
    /// Takes in an entry of the journal. `at`: where its body begins in its file.
    pub(super) fn apply(&mut self, file: FileId, at: u64, body: &[u8]) -> Result<(), Bad> {
        match format::read_entry(body)? {
            Entry::Created { topic, partitions, name, id, config } => {
                let settings = Settings::parse(&config).map_err(|_| "a topic's settings cannot be read")?;
                let name: Arc<str> = name.into();
                let n = usize::try_from(partitions).map_err(|_| "a topic's partition count is negative")?;
                self.names.insert(Arc::clone(&name), topic);
                let partitions = vec![Partition::default(); n];
                self.topics.insert(topic, Topic { name, id: id.to_owned(), config, settings, partitions });
                self.next_topic = self.next_topic.max(topic + 1);
            }
            Entry::Deleted { topic } => {
                self.next_topic = self.next_topic.max(topic + 1);
                if let Some(t) = self.topics.remove(&topic) {
                    self.names.remove(&t.name);
                    for chunk in t.partitions.iter().flat_map(|p| &p.chunks) {
                        self.files.entry(chunk.file).or_default().dead += u64::from(chunk.len);
                    }
                    for group in self.groups.values_mut() {
                        group.retain(|(t, _), _| *t != topic);
                    }
                }
            }
            Entry::Producer { epoch, id } => self.see_producer(id, epoch),
            Entry::Commit(commit) => {
                self.see_producer(commit.producer.0, commit.producer.1);
                for o in &commit.offsets {
                    if self.topics.contains_key(&o.topic) {
                        // Looked up first: the group is nearly always there.
                        if !self.groups.contains_key(o.group) {
                            self.groups.insert(o.group.to_owned(), BTreeMap::new());
                        }
                        let group = self.groups.get_mut(o.group).expect("just made");
                        group.insert((o.topic, o.partition), o.next);
                    }
                }
                let chunks: u64 = commit.chunks.iter().map(|(h, _)| u64::from(h.len) + CHUNK_HEADER as u64).sum();
                if !commit.kept {
                    // Offsets and epochs of a commit are soon replaced by those of a later one.
                    let usage = self.files.entry(file).or_default();
                    usage.dead += (format::ENTRY_HEADER + body.len()) as u64 - chunks;
                }
                for (head, in_body) in &commit.chunks {
                    self.add_chunk(head, file, at + *in_body as u64)?;
                }
            }
            Entry::LogStart { topic, partition, start } => {
                let Some(p) = self.partition_mut(topic, partition) else {
                    return Ok(());
                };
                p.start = p.start.max(start);
                p.end = p.end.max(start);
                let mut dead = Vec::new();
                while p.chunks.front().is_some_and(|c| c.next <= start) {
                    let c = p.chunks.pop_front().expect("looked at");
                    p.bytes -= u64::from(c.len);
                    dead.push((c.file, u64::from(c.len)));
                }
                for (file, len) in dead {
                    self.files.entry(file).or_default().dead += len;
                }
            }
        }
        Ok(())
    }

    fn see_producer(&mut self, id: &str, epoch: i64) {
        match self.producers.get_mut(id) {
            Some(e) => *e = (*e).max(epoch),
            None if id.is_empty() => {}
            None => {
                self.producers.insert(id.to_owned(), epoch);
            }
        }
    }

    fn add_chunk(&mut self, head: &ChunkHead, file: FileId, at: u64) -> Result<(), Bad> {
        let place = Place::of(head, file, at);
        let usage = self.files.entry(file).or_default();
        // A rewrite may have dropped the topic's own entries already, while later files still have its records.
        self.next_topic = self.next_topic.max(head.topic + 1);
        let topic = self.topics.get_mut(&head.topic);
        let compact = topic.as_ref().is_some_and(|t| t.settings.compact);
        let partition = topic.and_then(|t| usize::try_from(head.partition).ok().and_then(|i| t.partitions.get_mut(i)));
        let Some(p) = partition.filter(|p| head.next > p.start) else {
            usage.dead += u64::from(place.len);
            return Ok(());
        };
        if p.chunks.back().is_some_and(|c| head.base < c.next) {
            return Err("the offsets of a partition do not rise");
        }
        match (compact, head.flags & COMPACTED != 0) {
            (true, true) => usage.clean += u64::from(place.len),
            (true, false) => usage.dirty += u64::from(place.len),
            (false, _) => {}
        }
        usage.chunks += 1;
        p.chunks.push_back(place);
        p.bytes += u64::from(place.len);
        p.end = p.end.max(head.next);
        Ok(())
    }

    /// The number of a topic.
    pub(super) fn topic(&self, name: &str) -> Option<u32> {
        self.names.get(name).copied()
    }

    /// A partition.
    pub(super) fn partition(&self, topic: u32, partition: i32) -> Option<&Partition> {
        self.topics.get(&topic)?.partitions.get(usize::try_from(partition).ok()?)
    }

    fn partition_mut(&mut self, topic: u32, partition: i32) -> Option<&mut Partition> {
        self.topics.get_mut(&topic)?.partitions.get_mut(usize::try_from(partition).ok()?)
    }

    /// Puts the chunks of a rewritten file in the place of those of the files that it was made of.
    pub(super) fn replace(&mut self, old: &[FileId], new: FileId, chunks: &[(ChunkHead, u64)]) {
        for file in old {
            self.files.remove(file);
        }
        let mut usage = Usage::default();
        let mut by_partition: BTreeMap<(u32, i32), Vec<(Place, bool)>> = BTreeMap::new();
        for (head, at) in chunks {
            let place = (Place::of(head, new, *at), head.flags & COMPACTED != 0);
            by_partition.entry((head.topic, head.partition)).or_default().push(place);
        }
        for (number, topic) in &mut self.topics {
            for (i, p) in topic.partitions.iter_mut().enumerate() {
                let mut new = by_partition.remove(&(*number, i as i32)).unwrap_or_default();
                let old_at = p.chunks.iter().position(|c| old.contains(&c.file));
                if new.is_empty() && old_at.is_none() {
                    continue;
                }
                new.retain(|(place, _)| {
                    let live = place.next > p.start;
                    if !live {
                        usage.dead += u64::from(place.len);
                    }
                    live
                });
                usage.chunks += new.len() as u64;
                for (place, clean) in new.iter().filter(|_| topic.settings.compact) {
                    *(if *clean { &mut usage.clean } else { &mut usage.dirty }) += u64::from(place.len);
                }
                // The chunks of neighbouring files are neighbours.
                let before: Vec<Place> = p.chunks.drain(..).collect();
                let (head, tail) = before.split_at(old_at.unwrap_or_else(|| {
                    let first = new.first().map_or(i64::MAX, |(place, _)| place.base);
                    before.partition_point(|c| c.base < first)
                }));
                p.chunks.extend(head);
                p.chunks.extend(new.iter().map(|(place, _)| *place));
                p.chunks.extend(tail.iter().filter(|c| !old.contains(&c.file)));
                p.bytes = p.chunks.iter().map(|c| u64::from(c.len)).sum();
            }
        }
        // What is left belongs to topics that were deleted meanwhile.
        usage.dead += by_partition.values().flatten().map(|(place, _)| u64::from(place.len)).sum::<u64>();
        self.files.insert(new, usage);
    }
}
