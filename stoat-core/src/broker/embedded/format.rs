//! The bytes of the journal, version 1.
//!
//! All numbers are little-endian. A file is a header and entries:
//! ```text
//! file   = "STOATJNL" version:u32 crc:u32(of the 12 bytes before)  entry*
//! entry  = "STJE" len:u32 crc:u32(of len, synced, body) synced:u64 body[len]
//! body   = 1 topic:u32 partitions:i32 name:str id:str n:u16 (name:str value:str)*n      topic created
//!        | 2 topic:u32                                                                  topic deleted
//!        | 3 epoch:i64 transactional_id:str                                             producer initialised
//!        | 4 commit                                                                     committed
//!        | 5 commit                                                                     what a rewrite kept of commits
//!        | 6 topic:u32 partition:i32 start:i64                                          log start moved
//! commit = time:i64 transactional_id:str epoch:i64
//!          groups:u16 (group:str n:u32 (topic:u32 partition:i32 next:i64)*n)*groups
//!          chunks:u32 chunk*
//! chunk  = topic:u32 partition:i32 flags:u8 base:i64 next:i64 first_ts:i64 max_ts:i64 time:i64 horizon:i64
//!          count:u32 len:u32 crc:u32(of the records) record*
//! record = offset-base:uv timestamp-first_ts:sv key:opt value:opt n:uv (name:bytes value:opt)*n
//! str    = len:u16 utf8        bytes = len:uv bytes        opt = len+1:uv bytes | 0 (null)
//! uv, sv = LEB128; sv zigzag
//! ```
//! `synced` says how much of the file was on disk for sure when the entry was written: damage before that point is
//! not a torn tail. The offsets from `base` to `next` belong to the chunk; those without a record are markers, or
//! were compacted away.

use crate::id::{NextOffset, Offset};
use crate::record::{Headers, RecordBatch};
use crate::time::Timestamp;

const FILE_MAGIC: [u8; 8] = *b"STOATJNL";
/// The version of all that is written.
pub(super) const VERSION: u32 = 1;
/// The length of a file's header.
pub(super) const FILE_HEADER: usize = 16;
/// What each entry begins with; also what a search behind damage looks for.
pub(super) const ENTRY_MAGIC: [u8; 4] = *b"STJE";
/// The length of an entry's header.
pub(super) const ENTRY_HEADER: usize = 20;
/// The length of a chunk's header.
pub(super) const CHUNK_HEADER: usize = 69;
/// Chunk flag: a compaction went over it.
pub(super) const COMPACTED: u8 = 1;

/// Why bytes are not what they should be.
pub(super) type Bad = &'static str;

/// A file's header.
pub(super) fn file_header() -> [u8; FILE_HEADER] {
    let mut h = [0; FILE_HEADER];
    h[..8].copy_from_slice(&FILE_MAGIC);
    h[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let crc = crc32fast::hash(&h[..12]);
    h[12..].copy_from_slice(&crc.to_le_bytes());
    h
}

/// What a file's header says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum FileHeader {
    Ok,
    /// Another version of the format.
    Version(u32),
    Bad,
}

pub(super) fn check_file_header(h: &[u8]) -> FileHeader {
    if h.len() < FILE_HEADER || h[..8] != FILE_MAGIC || crc32fast::hash(&h[..12]) != u32_at(h, 12) {
        return FileHeader::Bad;
    }
    match u32_at(h, 8) {
        VERSION => FileHeader::Ok,
        other => FileHeader::Version(other),
    }
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(b[at..at + 4].try_into().expect("four bytes"))
}

fn entry_crc(len: u32, synced: u64, body: &[u8]) -> u32 {
    let mut h = crc32fast::Hasher::new();
    h.update(&len.to_le_bytes());
    h.update(&synced.to_le_bytes());
    h.update(body);
    h.finalize()
}

/// Begins an entry in `out`; the body is appended by the caller, then [`finish_entry`].
pub(super) fn begin_entry(out: &mut Vec<u8>) {
    out.clear();
    out.resize(ENTRY_HEADER, 0);
}

/// Fills in the header of an entry whose body is complete. `Err`: it is too large for one entry.
pub(super) fn finish_entry(out: &mut [u8], synced: u64) -> Result<(), Bad> {
    let len = u32::try_from(out.len() - ENTRY_HEADER).map_err(|_| "longer than 4 GiB")?;
    let crc = entry_crc(len, synced, &out[ENTRY_HEADER..]);
    out[..4].copy_from_slice(&ENTRY_MAGIC);
    out[4..8].copy_from_slice(&len.to_le_bytes());
    out[8..12].copy_from_slice(&crc.to_le_bytes());
    out[12..20].copy_from_slice(&synced.to_le_bytes());
    Ok(())
}

/// A whole entry at the front of some bytes.
pub(super) struct Framed<'a> {
    pub(super) synced: u64,
    pub(super) body: &'a [u8],
}

/// The entry at the front of `bytes`; `None` when there is no whole one.
pub(super) fn unframe(bytes: &[u8]) -> Option<Framed<'_>> {
    let h = bytes.get(..ENTRY_HEADER)?;
    if h[..4] != ENTRY_MAGIC {
        return None;
    }
    let len = u32_at(h, 4);
    let synced = u64::from_le_bytes(h[12..20].try_into().expect("eight bytes"));
    let body = bytes.get(ENTRY_HEADER..ENTRY_HEADER + len as usize)?;
    (entry_crc(len, synced, body) == u32_at(h, 8)).then_some(Framed { synced, body })
}

/// An entry's body, read.
pub(super) enum Entry<'a> {
    Created { topic: u32, partitions: i32, name: &'a str, id: &'a str, config: Vec<(String, String)> },
    Deleted { topic: u32 },
    Producer { epoch: i64, id: &'a str },
    Commit(Commit<'a>),
    LogStart { topic: u32, partition: i32, start: NextOffset },
}

/// A commit, its records unread.
pub(super) struct Commit<'a> {
    /// Written by a rewrite.
    pub(super) kept: bool,
    pub(super) producer: (&'a str, i64),
    pub(super) offsets: Vec<GroupOffset<'a>>,
    /// Each with its position in the body.
    pub(super) chunks: Vec<(ChunkHead, usize)>,
}

#[derive(Clone, Copy)]
pub(super) struct GroupOffset<'a> {
    pub(super) group: &'a str,
    pub(super) topic: u32,
    pub(super) partition: i32,
    pub(super) next: NextOffset,
}

/// A chunk's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHead {
    pub(super) topic: u32,
    pub(super) partition: i32,
    pub(super) flags: u8,
    pub(super) base: Offset,
    pub(super) next: NextOffset,
    pub(super) first_ts: i64,
    pub(super) max_ts: i64,
    /// The broker's clock at the commit.
    pub(super) time: i64,
    /// When its tombstones may go; 0: not before a compaction has set it.
    pub(super) horizon: i64,
    pub(super) count: u32,
    pub(super) len: u32,
    pub(super) crc: u32,
}

/// Reads numbers and strings from the front of bytes.
pub(super) struct Cursor<'a> {
    all: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(all: &'a [u8]) -> Self {
        Self { all, at: 0 }
    }

    fn take(&mut self, n: usize) -> Result<&'a [u8], Bad> {
        let end = self.at.checked_add(n).filter(|e| *e <= self.all.len()).ok_or("it ends too early")?;
        let taken = &self.all[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        Ok(self.take(N)?.try_into().expect("as many as asked for"))
    }

    fn u8(&mut self) -> Result<u8, Bad> {
        Ok(self.array::<1>()?[0])
    }
    fn u16(&mut self) -> Result<u16, Bad> {
        self.array().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Result<u32, Bad> {
        self.array().map(u32::from_le_bytes)
    }
    fn i32(&mut self) -> Result<i32, Bad> {
        self.array().map(i32::from_le_bytes)
    }
    fn i64(&mut self) -> Result<i64, Bad> {
        self.array().map(i64::from_le_bytes)
    }

    fn str(&mut self) -> Result<&'a str, Bad> {
        let n = self.u16()?;
        std::str::from_utf8(self.take(usize::from(n))?).map_err(|_| "a name is not UTF-8")
    }

    fn uv(&mut self) -> Result<u64, Bad> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.u8()?;
            value |= u64::from(b & 0x7f) << shift;
            if b < 0x80 {
                return Ok(value);
            }
        }
        Err("a number is too long")
    }

    fn sv(&mut self) -> Result<i64, Bad> {
        let v = self.uv()?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Bad> {
        let n = self.uv()?;
        self.take(usize::try_from(n).map_err(|_| "a length is too large")?)
    }

    fn opt(&mut self) -> Result<Option<&'a [u8]>, Bad> {
        match self.uv()? {
            0 => Ok(None),
            n => self.take(usize::try_from(n - 1).map_err(|_| "a length is too large")?).map(Some),
        }
    }

    fn chunk_head(&mut self) -> Result<ChunkHead, Bad> {
        Ok(ChunkHead {
            topic: self.u32()?,
            partition: self.i32()?,
            flags: self.u8()?,
            base: self.i64()?,
            next: self.i64()?,
            first_ts: self.i64()?,
            max_ts: self.i64()?,
            time: self.i64()?,
            horizon: self.i64()?,
            count: self.u32()?,
            len: self.u32()?,
            crc: self.u32()?,
        })
    }
}

/// Reads a body.
pub(super) fn read_entry(body: &[u8]) -> Result<Entry<'_>, Bad> {
    let c = &mut Cursor::new(body);
    let entry = match c.u8()? {
        1 => Entry::Created {
            topic: c.u32()?,
            partitions: c.i32()?,
            name: c.str()?,
            id: c.str()?,
            config: (0..c.u16()?)
                .map(|_| Ok((c.str()?.to_owned(), c.str()?.to_owned())))
                .collect::<Result<_, Bad>>()?,
        },
        2 => Entry::Deleted { topic: c.u32()? },
        3 => Entry::Producer { epoch: c.i64()?, id: c.str()? },
        kind @ (4 | 5) => {
            let _time = c.i64()?;
            let (id, epoch) = (c.str()?, c.i64()?);
            let mut offsets = Vec::new();
            for _ in 0..c.u16()? {
                let group = c.str()?;
                for _ in 0..c.u32()? {
                    offsets.push(GroupOffset { group, topic: c.u32()?, partition: c.i32()?, next: c.i64()? });
                }
            }
            let mut chunks = Vec::new();
            for _ in 0..c.u32()? {
                let at = c.at;
                let head = c.chunk_head()?;
                c.take(head.len as usize)?;
                chunks.push((head, at));
            }
            Entry::Commit(Commit { kept: kind == 5, producer: (id, epoch), offsets, chunks })
        }
        6 => Entry::LogStart { topic: c.u32()?, partition: c.i32()?, start: c.i64()? },
        _ => return Err("an entry is of an unknown kind"),
    };
    if c.at == body.len() { Ok(entry) } else { Err("an entry is longer than what it says") }
}

fn put_str(out: &mut Vec<u8>, s: &str) {
    let n = u16::try_from(s.len()).expect("names and settings are checked to be shorter than 64 KiB");
    out.extend_from_slice(&n.to_le_bytes());
    out.extend_from_slice(s.as_bytes());
}

fn put_uv(out: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        out.push(v as u8 | 0x80);
        v >>= 7;
    }
    out.push(v as u8);
}

fn put_sv(out: &mut Vec<u8>, v: i64) {
    put_uv(out, ((v << 1) ^ (v >> 63)) as u64);
}

fn put_opt(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.push(0),
        Some(b) => {
            put_uv(out, b.len() as u64 + 1);
            out.extend_from_slice(b);
        }
    }
}

pub(super) fn put_created(
    out: &mut Vec<u8>,
    topic: u32,
    partitions: i32,
    name: &str,
    id: &str,
    config: &[(String, String)],
) {
    out.push(1);
    out.extend_from_slice(&topic.to_le_bytes());
    out.extend_from_slice(&partitions.to_le_bytes());
    put_str(out, name);
    put_str(out, id);
    let n = u16::try_from(config.len()).expect("settings are checked to be few");
    out.extend_from_slice(&n.to_le_bytes());
    for (name, value) in config {
        put_str(out, name);
        put_str(out, value);
    }
}

pub(super) fn put_deleted(out: &mut Vec<u8>, topic: u32) {
    out.push(2);
    out.extend_from_slice(&topic.to_le_bytes());
}

pub(super) fn put_producer(out: &mut Vec<u8>, id: &str, epoch: i64) {
    out.push(3);
    out.extend_from_slice(&epoch.to_le_bytes());
    put_str(out, id);
}

pub(super) fn put_log_start(out: &mut Vec<u8>, topic: u32, partition: i32, start: NextOffset) {
    out.push(6);
    out.extend_from_slice(&topic.to_le_bytes());
    out.extend_from_slice(&partition.to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
}

/// A commit to be written. `offsets`: neighbours of one group are written as one group.
pub(super) struct CommitParts<'a> {
    pub(super) kept: bool,
    pub(super) time: i64,
    pub(super) producer: (&'a str, i64),
    pub(super) offsets: &'a [GroupOffset<'a>],
    pub(super) chunks: &'a [Chunk],
}

pub(super) fn put_commit(out: &mut Vec<u8>, c: &CommitParts<'_>) {
    out.push(if c.kept { 5 } else { 4 });
    out.extend_from_slice(&c.time.to_le_bytes());
    put_str(out, c.producer.0);
    out.extend_from_slice(&c.producer.1.to_le_bytes());
    let groups: Vec<_> = c.offsets.chunk_by(|a, b| a.group == b.group).collect();
    let n = u16::try_from(groups.len()).expect("groups are far fewer than 64 Ki");
    out.extend_from_slice(&n.to_le_bytes());
    for group in groups {
        put_str(out, group[0].group);
        out.extend_from_slice(&(group.len() as u32).to_le_bytes());
        for o in group {
            out.extend_from_slice(&o.topic.to_le_bytes());
            out.extend_from_slice(&o.partition.to_le_bytes());
            out.extend_from_slice(&o.next.to_le_bytes());
        }
    }
    out.extend_from_slice(&(c.chunks.len() as u32).to_le_bytes());
    for chunk in c.chunks {
        chunk.put(out);
    }
}

/// A chunk that is being filled: some records of one partition, in order.
#[derive(Clone, Debug)]
pub(super) struct Chunk {
    pub(super) head: ChunkHead,
    data: Vec<u8>,
}

impl Chunk {
    pub(super) fn new(topic: u32, partition: i32, base: Offset, time: i64) -> Self {
        let head = ChunkHead {
            topic,
            partition,
            flags: 0,
            base,
            next: base,
            first_ts: 0,
            max_ts: i64::MIN,
            time,
            horizon: 0,
            count: 0,
            len: 0,
            crc: 0,
        };
        Self { head, data: Vec::new() }
    }

    /// The bytes of its records.
    pub(super) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Appends a record; `next` is then behind it.
    pub(super) fn push(
        &mut self,
        offset: Offset,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &Headers,
    ) {
        let h = &mut self.head;
        if h.count == 0 {
            h.first_ts = timestamp.0;
        }
        h.count += 1;
        h.max_ts = h.max_ts.max(timestamp.0);
        h.next = h.next.max(offset + 1);
        put_uv(&mut self.data, (offset - h.base) as u64);
        put_sv(&mut self.data, timestamp.0.wrapping_sub(h.first_ts));
        put_opt(&mut self.data, key);
        put_opt(&mut self.data, value);
        put_uv(&mut self.data, headers.len() as u64);
        for header in headers.iter() {
            put_uv(&mut self.data, header.name.len() as u64);
            self.data.extend_from_slice(header.name.as_bytes());
            put_opt(&mut self.data, header.value.as_deref());
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        let h = &self.head;
        out.extend_from_slice(&h.topic.to_le_bytes());
        out.extend_from_slice(&h.partition.to_le_bytes());
        out.push(h.flags);
        for number in [h.base, h.next, h.first_ts, h.max_ts, h.time, h.horizon] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for number in [h.count, self.data.len() as u32, crc32fast::hash(&self.data)] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(&self.data);
    }
}

/// A chunk as it lies in a file, its header and checksum read.
pub(super) struct ChunkReader<'a> {
    pub(super) head: ChunkHead,
    records: Cursor<'a>,
    left: u32,
    last: Option<Offset>,
}

impl<'a> ChunkReader<'a> {
    /// Reads a chunk's header from its front and checks its records.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, Bad> {
        let mut c = Cursor::new(bytes);
        let head = c.chunk_head()?;
        let data = c.take(head.len as usize)?;
        if crc32fast::hash(data) != head.crc {
            return Err("the checksum of its records is wrong");
        }
        Ok(Self { head, records: Cursor::new(data), left: head.count, last: None })
    }

    /// The next record: offset, timestamp, key, value; the headers are read by [`Headed::headers`].
    pub(super) fn next(&mut self) -> Result<Option<Headed<'a>>, Bad> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        let c = &mut self.records;
        let offset = self.head.base.checked_add_unsigned(c.uv()?).ok_or("an offset is larger than any")?;
        if self.last.is_some_and(|last| offset <= last) {
            return Err("its offsets do not rise");
        }
        self.last = Some(offset);
        let timestamp = Timestamp(self.head.first_ts.wrapping_add(c.sv()?));
        let (key, value) = (c.opt()?, c.opt()?);
        let n = c.uv()?;
        let from = c.at;
        for _ in 0..n {
            c.bytes()?;
            c.opt()?;
        }
        Ok(Some(Headed { offset, timestamp, key, value, n_headers: n, headers: &c.all[from..c.at] }))
    }
}

/// A record of a chunk, its headers unread.
pub(super) struct Headed<'a> {
    pub(super) offset: Offset,
    pub(super) timestamp: Timestamp,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    n_headers: u64,
    headers: &'a [u8],
}

impl Headed<'_> {
    pub(super) fn headers(&self) -> Result<Headers, Bad> {
        let mut headers = Headers::default();
        let mut c = Cursor::new(self.headers);
        for _ in 0..self.n_headers {
            let name = std::str::from_utf8(c.bytes()?).map_err(|_| "a header's name is not UTF-8")?;
            headers.push(name, c.opt()?.map(<[u8]>::to_vec));
        }
        Ok(headers)
    }

    pub(super) fn push_to(&self, batch: &mut RecordBatch) -> Result<(), Bad> {
        batch.push(self.offset, self.timestamp, self.key, self.value, self.headers()?);
        Ok(())
    }
}
