//! Rewrites old files of the journal without what nobody can read any more: compaction, and the space of records that
//! retention or a deleted topic took away. Small commits become larger pieces on the way, so memory has fewer to know.
//!
//! It works on files that are not appended to, in a thread of its own, oldest first, and knows what the journal said
//! when it began (all of that is on disk by then: what replaces a dropped entry cannot be lost). A new file is
//! written, synced and renamed before the files that it replaces go; after a crash between, the new one counts, for
//! its name covers theirs.
//!
//! Compaction keeps the last record of each key. A tombstone that is the last one stays for `delete.retention.ms` from
//! the pass that removed what was before it, so a reader that saw an old value has that long to meet the tombstone.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::format::{
    self, COMPACTED, Chunk, ChunkHead, ChunkReader, Commit, CommitParts, ENTRY_HEADER, Entry, FILE_HEADER, GroupOffset,
    file_header, read_entry, unframe,
};
use super::journal::{Bytes, FileId, JournalFile, Name, sync_dir};
use super::server::CHUNK_BYTES;
use super::state::State;
use crate::id::{NextOffset, Offset};

/// How many keys a pass looks at, about 32 bytes each; it ends behind the file that exceeds it.
const MAX_KEYS: usize = 1 << 20;
/// Kept records are gathered up to here before they are written as one entry.
const WINDOW_BYTES: usize = 1 << 20;
/// So many small files in a row are made one, also when there is nothing to drop.
const SMALL_FILES: usize = 4;

/// What a pass is to do.
pub(super) struct Plan {
    /// The files that are not appended to, oldest first.
    pub(super) inputs: Vec<Input>,
    /// Whether to drop superseded records of compacted topics.
    pub(super) compact: bool,
    pub(super) facts: Facts,
    pub(super) now: i64,
    pub(super) file_bytes: u64,
    pub(super) dir: Option<PathBuf>,
}

pub(super) struct Input {
    pub(super) id: FileId,
    pub(super) name: Name,
    pub(super) len: u64,
    /// Bytes that are dead already.
    pub(super) dead: u64,
    /// Whether it is to be rewritten whatever a compaction finds.
    pub(super) must: bool,
    pub(super) bytes: Bytes,
}

/// What the journal said when the pass began.
pub(super) struct Facts {
    topics: BTreeMap<u32, TopicFacts>,
    producers: BTreeMap<String, i64>,
    groups: BTreeMap<String, BTreeMap<(u32, i32), NextOffset>>,
}

struct TopicFacts {
    compact: bool,
    delete_retention_ms: i64,
    /// Start and end of each partition.
    bounds: Vec<(NextOffset, NextOffset)>,
}

impl Facts {
    pub(super) fn of(state: &State) -> Self {
        let topic = |t: &super::state::Topic| TopicFacts {
            compact: t.settings.compact,
            delete_retention_ms: t.settings.delete_retention_ms,
            bounds: t.partitions.iter().map(|p| (p.start, p.end)).collect(),
        };
        Self {
            topics: state.topics.iter().map(|(n, t)| (*n, topic(t))).collect(),
            producers: state.producers.clone(),
            groups: state.groups.clone(),
        }
    }

    /// The topic and the bounds of a chunk's partition, if any of it can still be read.
    fn live(&self, head: &ChunkHead) -> Option<(&TopicFacts, NextOffset)> {
        let topic = self.topics.get(&head.topic)?;
        let (start, end) = topic.bounds.get(usize::try_from(head.partition).ok()?)?;
        (head.next > *start).then_some((topic, *end))
    }
}

/// A file that replaces others.
pub(super) struct Rewritten {
    pub(super) old: Vec<FileId>,
    pub(super) file: JournalFile,
    pub(super) chunks: Vec<(ChunkHead, u64)>,
}

/// The last offset of each key that the pass knows. Keys are 128-bit hashes: two keys that agree in all bits do not occur.
type LastOffsets = HashMap<u128, Offset, FxBuildHasher>;

fn hash_key(topic: u32, partition: i32, key: &[u8]) -> u128 {
    let half = |salt: u8| {
        let mut h = DefaultHasher::new();
        (salt, topic, partition, key).hash(&mut h);
        u128::from(h.finish())
    };
    half(0) << 64 | half(1)
}

/// Runs a pass: gives each rewritten file to `done`, oldest first. Returns the files that it looked at.
pub(super) fn run(plan: &Plan, cancel: &AtomicBool, done: &mut dyn FnMut(Rewritten)) -> Result<Vec<FileId>, String> {
    let stop = |e| move |input: &Input| format!("rewriting {}: {e}", input.bytes.describe());
    let mut last = LastOffsets::default();
    let mut inputs = plan.inputs.as_slice();
    if plan.compact {
        for (i, input) in plan.inputs.iter().enumerate() {
            collect(plan, input, cancel, &mut last).map_err(|e| stop(e)(input))?;
            if last.len() > MAX_KEYS {
                inputs = &plan.inputs[..=i];
                break;
            }
        }
    }
    let mut group = Group::default();
    for input in inputs {
        let (gain, must) = look(plan, input, cancel, &last).map_err(|e| stop(e)(input))?;
        let left = input.len.saturating_sub(gain);
        if !must && left >= plan.file_bytes / 2 {
            group.rewrite(plan, &last, cancel, done)?;
            continue;
        }
        if !group.inputs.is_empty() && group.left + left > plan.file_bytes {
            group.rewrite(plan, &last, cancel, done)?;
        }
        group.inputs.push(input);
        group.left += left;
        group.must |= must;
    }
    group.rewrite(plan, &last, cancel, done)?;
    Ok(inputs.iter().map(|i| i.id).collect())
}

/// Neighbouring files that become one.
#[derive(Default)]
struct Group<'a> {
    inputs: Vec<&'a Input>,
    left: u64,
    must: bool,
}

impl Group<'_> {
    fn rewrite(
        &mut self,
        plan: &Plan,
        last: &LastOffsets,
        cancel: &AtomicBool,
        done: &mut dyn FnMut(Rewritten),
    ) -> Result<(), String> {
        let group = std::mem::take(self);
        if group.inputs.is_empty() || !(group.must || group.inputs.len() >= SMALL_FILES) {
            return Ok(());
        }
        let name = Name {
            first: group.inputs[0].name.first,
            last: group.inputs[group.inputs.len() - 1].name.last,
            generation: group.inputs.iter().map(|i| i.name.generation).max().unwrap_or(0) + 1,
        };
        let mut writer = Writer::new(plan, last, name).map_err(|e| format!("making {}: {e}", name.file_name()))?;
        let wrote = group.inputs.iter().try_for_each(|input| {
            entries(input, cancel, |body| writer.take(body))
                .map_err(|e| format!("rewriting {}: {e}", input.bytes.describe()))
        });
        let finished = wrote.and_then(|()| writer.finish().map_err(|e| format!("writing {}: {e}", name.file_name())));
        match finished {
            Ok((file, chunks)) => {
                done(Rewritten { old: group.inputs.iter().map(|i| i.id).collect(), file, chunks });
                Ok(())
            }
            Err(e) => {
                if let Some(dir) = &plan.dir {
                    let _ = fs::remove_file(dir.join(name.file_name() + ".tmp"));
                }
                Err(e)
            }
        }
    }
}

/// Reads a file entry by entry.
fn entries(
    input: &Input,
    cancel: &AtomicBool,
    mut take: impl FnMut(&[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let mut at = FILE_HEADER as u64;
    let mut buf = Vec::new();
    while at < input.len {
        if cancel.load(Ordering::Relaxed) {
            return Err("the broker is closed".to_owned());
        }
        let damaged = |what: &str| format!("damaged at byte {at}: {what}; restore the directory from a copy");
        buf.resize(ENTRY_HEADER, 0);
        input.bytes.read(at, &mut buf).map_err(|e| e.to_string())?;
        let len = u32::from_le_bytes(buf[4..8].try_into().expect("four bytes")) as usize;
        if at + (ENTRY_HEADER + len) as u64 > input.len {
            return Err(damaged("an entry is longer than the file"));
        }
        buf.resize(ENTRY_HEADER + len, 0);
        input.bytes.read(at + ENTRY_HEADER as u64, &mut buf[ENTRY_HEADER..]).map_err(|e| e.to_string())?;
        let entry = unframe(&buf).ok_or_else(|| damaged("an entry's checksum is wrong"))?;
        take(entry.body)?;
        at += (ENTRY_HEADER + len) as u64;
    }
    Ok(())
}

/// Reads the chunks of a file that can still be read and belong to compacted topics.
fn compacted_chunks(
    plan: &Plan,
    input: &Input,
    cancel: &AtomicBool,
    mut take: impl FnMut(ChunkReader<'_>) -> Result<(), format::Bad>,
) -> Result<(), String> {
    entries(input, cancel, |body| {
        let Entry::Commit(commit) = read_entry(body)? else { return Ok(()) };
        for (head, at) in &commit.chunks {
            if plan.facts.live(head).is_some_and(|(topic, _)| topic.compact) {
                take(ChunkReader::new(&body[*at..])?)?;
            }
        }
        Ok(())
    })
}

/// Remembers the last offset of each key in the parts that no compaction went over.
fn collect(plan: &Plan, input: &Input, cancel: &AtomicBool, last: &mut LastOffsets) -> Result<(), String> {
    compacted_chunks(plan, input, cancel, |mut chunk| {
        let h = chunk.head;
        if h.flags & COMPACTED != 0 {
            return Ok(());
        }
        while let Some(r) = chunk.next()? {
            if let Some(key) = r.key {
                last.insert(hash_key(h.topic, h.partition, key), r.offset);
            }
        }
        Ok(())
    })
}

/// What becomes of a record in a compacted topic.
#[derive(PartialEq, Eq)]
enum Fate {
    Keep,
    /// It is the last of its key and says that there is no value: it goes once its time has come.
    KeepTombstone,
    Drop,
}

fn fate(plan: &Plan, h: &ChunkHead, r: &format::Headed<'_>, last: &LastOffsets) -> Fate {
    let Some(key) = r.key else { return Fate::Keep };
    if plan.compact && last.get(&hash_key(h.topic, h.partition, key)).is_some_and(|newest| *newest > r.offset) {
        return Fate::Drop;
    }
    match r.value {
        Some(_) => Fate::Keep,
        None if h.horizon != 0 && plan.now >= h.horizon => Fate::Drop,
        None => Fate::KeepTombstone,
    }
}

/// How many bytes a rewrite of the file gains, and whether it has to be.
fn look(plan: &Plan, input: &Input, cancel: &AtomicBool, last: &LastOffsets) -> Result<(u64, bool), String> {
    let mut gain = input.dead;
    let mut must = input.must;
    if plan.compact {
        compacted_chunks(plan, input, cancel, |mut chunk| {
            let h = chunk.head;
            while let Some(r) = chunk.next()? {
                match fate(plan, &h, &r, last) {
                    Fate::Keep => {}
                    // A pass that cleaned all before it has to give it its time.
                    Fate::KeepTombstone => must |= h.horizon == 0,
                    Fate::Drop => {
                        must = true;
                        gain += (r.key.map_or(0, <[u8]>::len) + r.value.map_or(0, <[u8]>::len)) as u64;
                    }
                }
            }
            Ok(())
        })?;
    }
    Ok((gain, must))
}

/// Writes the file that replaces a group.
struct Writer<'a> {
    plan: &'a Plan,
    last: &'a LastOffsets,
    name: Name,
    out: Output,
    len: u64,
    /// Chunks that are being filled, and which one is a partition's last.
    window: Vec<Chunk>,
    newest: FxHashMap<(u32, i32), usize>,
    window_bytes: usize,
    offsets: Vec<(String, u32, i32, NextOffset)>,
    chunks: Vec<(ChunkHead, u64)>,
    entry: Vec<u8>,
}

enum Output {
    Disk(BufWriter<File>, PathBuf),
    Memory(Vec<u8>),
}

impl<'a> Writer<'a> {
    fn new(plan: &'a Plan, last: &'a LastOffsets, name: Name) -> io::Result<Self> {
        let out = match &plan.dir {
            None => Output::Memory(Vec::new()),
            Some(dir) => {
                let path = dir.join(name.file_name() + ".tmp");
                let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
                Output::Disk(BufWriter::with_capacity(256 << 10, file), path)
            }
        };
        let mut writer = Self {
            plan,
            last,
            name,
            out,
            len: 0,
            window: Vec::new(),
            newest: FxHashMap::default(),
            window_bytes: 0,
            offsets: Vec::new(),
            chunks: Vec::new(),
            entry: Vec::new(),
        };
        writer.put(&file_header())?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.out {
            Output::Disk(file, _) => file.write_all(bytes)?,
            Output::Memory(all) => all.extend_from_slice(bytes),
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Writes one entry whose body is made by `body`.
    fn entry(&mut self, body: impl FnOnce(&mut Vec<u8>)) -> Result<(), String> {
        let mut entry = std::mem::take(&mut self.entry);
        format::begin_entry(&mut entry);
        body(&mut entry);
        // The whole file is on disk before it counts.
        format::finish_entry(&mut entry, self.len)?;
        if let Entry::Commit(commit) = read_entry(&entry[ENTRY_HEADER..])? {
            let from = self.len + ENTRY_HEADER as u64;
            self.chunks.extend(commit.chunks.iter().map(|(head, at)| (*head, from + *at as u64)));
        }
        self.put(&entry).map_err(|e| e.to_string())?;
        self.entry = entry;
        Ok(())
    }

    /// Takes over what still counts of an entry.
    fn take(&mut self, body: &[u8]) -> Result<(), String> {
        let facts = &self.plan.facts;
        let keep = match read_entry(body)? {
            Entry::Created { topic, .. } => facts.topics.contains_key(&topic),
            // Once no older file can have anything of the topic.
            Entry::Deleted { .. } => self.name.first > 0,
            Entry::Producer { epoch, id } => facts.producers.get(id) == Some(&epoch),
            Entry::LogStart { topic, partition, start } => {
                let bounds = facts.topics.get(&topic).and_then(|t| t.bounds.get(usize::try_from(partition).ok()?));
                bounds.is_some_and(|(s, _)| *s == start)
            }
            Entry::Commit(commit) => return self.take_commit(&commit, body),
        };
        if keep {
            // What was gathered comes first: the order of entries stays.
            self.flush()?;
            self.entry(|out| out.extend_from_slice(body))?;
        }
        Ok(())
    }

    fn take_commit(&mut self, commit: &Commit<'_>, body: &[u8]) -> Result<(), String> {
        for o in &commit.offsets {
            let newest = self.plan.facts.groups.get(o.group).and_then(|g| g.get(&(o.topic, o.partition)));
            if newest == Some(&o.next) {
                self.offsets.push((o.group.to_owned(), o.topic, o.partition, o.next));
            }
        }
        for (head, at) in &commit.chunks {
            self.take_chunk(head, &body[*at..])?;
            if self.window_bytes >= WINDOW_BYTES {
                self.flush()?;
            }
        }
        if self.offsets.len() >= 10_000 {
            self.flush()?;
        }
        Ok(())
    }

    fn take_chunk(&mut self, head: &ChunkHead, bytes: &[u8]) -> Result<(), String> {
        let Some((topic, end)) = self.plan.facts.live(head) else { return Ok(()) };
        let compacting = self.plan.compact && topic.compact;
        let flags = if compacting { head.flags | COMPACTED } else { head.flags };
        let mut reader = ChunkReader::new(bytes)?;
        let mut kept = Vec::new();
        let mut tombstones = false;
        while let Some(r) = reader.next()? {
            match if topic.compact { fate(self.plan, head, &r, self.last) } else { Fate::Keep } {
                Fate::Keep => kept.push(r),
                Fate::KeepTombstone => {
                    tombstones = true;
                    kept.push(r);
                }
                Fate::Drop => {}
            }
        }
        let horizon = match head.horizon {
            0 if compacting => self.plan.now.saturating_add(topic.delete_retention_ms).max(1),
            set => set,
        };
        let horizon = if tombstones { horizon } else { 0 };
        // An empty chunk only has to tell where the log ends.
        if kept.is_empty() && head.next != end {
            return Ok(());
        }
        let key = (head.topic, head.partition);
        let fits = |c: &Chunk| {
            let h = &c.head;
            let agree = h.horizon == horizon || h.horizon == 0 || horizon == 0;
            c.bytes() < CHUNK_BYTES && h.flags == flags && agree
        };
        let i = if let Some(i) = self.newest.get(&key).copied().filter(|i| fits(&self.window[*i])) {
            i
        } else {
            let mut chunk = Chunk::new(head.topic, head.partition, head.base, head.time);
            chunk.head.flags = flags;
            self.window.push(chunk);
            self.newest.insert(key, self.window.len() - 1);
            self.window.len() - 1
        };
        let chunk = &mut self.window[i];
        let before = chunk.bytes();
        for r in kept {
            chunk.push(r.offset, r.timestamp, r.key, r.value, &r.headers()?);
        }
        chunk.head.next = head.next;
        chunk.head.time = chunk.head.time.max(head.time);
        chunk.head.horizon = chunk.head.horizon.max(horizon);
        self.window_bytes += chunk.bytes() - before;
        Ok(())
    }

    /// Writes what was gathered.
    fn flush(&mut self) -> Result<(), String> {
        if self.window.is_empty() && self.offsets.is_empty() {
            return Ok(());
        }
        let chunks = std::mem::take(&mut self.window);
        self.newest.clear();
        self.window_bytes = 0;
        let mut gathered = std::mem::take(&mut self.offsets);
        // Stable: of one partition the last one stays last.
        gathered.sort_by(|a, b| a.0.cmp(&b.0));
        let offsets: Vec<_> = gathered
            .iter()
            .map(|(group, topic, partition, next)| GroupOffset {
                group,
                topic: *topic,
                partition: *partition,
                next: *next,
            })
            .collect();
        let parts =
            CommitParts { kept: true, time: self.plan.now, producer: ("", 0), offsets: &offsets, chunks: &chunks };
        self.entry(|out| format::put_commit(out, &parts))
    }

    /// Puts the file in its place, on disk.
    fn finish(mut self) -> Result<(JournalFile, Vec<(ChunkHead, u64)>), String> {
        self.flush()?;
        let bytes = match self.out {
            Output::Memory(all) => Bytes::Memory(Arc::new(all)),
            Output::Disk(file, tmp) => {
                let dir = self.plan.dir.as_deref().expect("a file on disk has a directory");
                let path = dir.join(self.name.file_name());
                let placed = || -> io::Result<File> {
                    let file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
                    file.sync_all()?;
                    fs::rename(&tmp, &path)?;
                    sync_dir(dir)?;
                    Ok(file)
                };
                let file = placed().map_err(|e| e.to_string())?;
                Bytes::Disk { file, path }
            }
        };
        Ok((JournalFile { name: self.name, len: self.len, bytes }, self.chunks))
    }
}
