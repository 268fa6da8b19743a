//! Records: what flows through a topology.

pub(crate) mod pool;

use std::sync::Arc;

use crate::id::Offset;
use crate::time::Timestamp;
use pool::Pool;

/// A record as a user's code sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<K, V> {
    /// The key; `Option<K>` where a record may have none.
    pub key: K,
    /// The value.
    pub value: V,
    /// The event time.
    pub timestamp: Timestamp,
    /// The headers, in the order of the record.
    pub headers: Headers,
}

impl<K, V> Record<K, V> {
    /// Makes a record without headers.
    pub fn new(key: K, value: V, timestamp: Timestamp) -> Self {
        Self { key, value, timestamp, headers: Headers::default() }
    }

    /// Replaces the value, keeps the rest.
    pub fn with_value<W>(self, value: W) -> Record<K, W> {
        Record { key: self.key, value, timestamp: self.timestamp, headers: self.headers }
    }

    /// Replaces the key, keeps the rest.
    pub fn with_key<J>(self, key: J) -> Record<J, V> {
        Record { key, value: self.value, timestamp: self.timestamp, headers: self.headers }
    }
}

/// A record's headers. None costs no allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<Header>);

/// One header; Kafka allows the same name more than once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The header's name. Kafka's headers are UTF-8; other bytes are replaced on reading.
    pub name: Arc<str>,
    /// The value; `None` is Kafka's null.
    pub value: Option<Vec<u8>>,
}

impl Headers {
    /// Appends a header.
    pub fn push(&mut self, name: impl Into<Arc<str>>, value: Option<Vec<u8>>) {
        self.0.push(Header { name: name.into(), value });
    }

    /// The last value under a name, as Kafka's clients choose it.
    pub fn last(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().rev().find(|h| &*h.name == name).and_then(|h| h.value.as_deref())
    }

    /// All headers in order.
    pub fn iter(&self) -> impl Iterator<Item = &Header> {
        self.0.iter()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of headers.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

/// What a record alone would take as a batch on Kafka, uncompressed: what `max.message.bytes` is compared with.
pub fn kafka_size(key: Option<&[u8]>, value: Option<&[u8]>, headers: &Headers) -> usize {
    /// A batch's header.
    const BATCH: usize = 61;
    // Lengths are zigzag varints: 7 bits a byte, one of them for the sign.
    let varint = |n: usize| (usize::BITS - n.leading_zeros() + 1).div_ceil(7).max(1) as usize;
    let field = |b: Option<&[u8]>| b.map_or(1, |b| varint(b.len()) + b.len());
    let one = |h: &Header| varint(h.name.len()) + h.name.len() + field(h.value.as_deref());
    // Attributes, timestamp delta, offset delta: one byte each in the first record of a batch.
    let body = 3 + field(key) + field(value) + varint(headers.len()) + headers.iter().map(one).sum::<usize>();
    BATCH + varint(body) + body
}

/// Where a record's key and value lie in its batch's buffer: the key, and the value behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Spans {
    start: u32,
    key: u32,
    value: u32,
}

impl Spans {
    /// Stands for a length where there is no key or no value; no length reaches it, see [`Spans::put`].
    const NONE: u32 = u32::MAX;

    #[inline]
    fn put(data: &mut Vec<u8>, key: Option<&[u8]>, value: Option<&[u8]>) -> Self {
        let start = u32::try_from(data.len()).expect("a batch stays below 4 GiB: fetches and epochs are far smaller");
        let mut put = |bytes: Option<&[u8]>| match bytes {
            None => Self::NONE,
            Some(b) => {
                data.extend_from_slice(b);
                b.len() as u32
            }
        };
        Self { start, key: put(key), value: put(value) }
    }

    #[inline]
    fn key(self, data: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize;
        (self.key != Self::NONE).then(|| &data[start..start + self.key as usize])
    }

    #[inline]
    fn value(self, data: &[u8]) -> Option<&[u8]> {
        let start = self.start as usize + if self.key == Self::NONE { 0 } else { self.key as usize };
        (self.value != Self::NONE).then(|| &data[start..start + self.value as usize])
    }
}

/// Where one record lies in a [`RecordBatch`].
#[derive(Clone, Debug)]
pub(crate) struct RawEntry {
    offset: Offset,
    timestamp: Timestamp,
    spans: Spans,
    /// Index + 1 into `headers`, or 0.
    headers: u32,
}

/// Records of one partition as bytes, in offset order, in one buffer.
#[derive(Clone, Debug, Default)]
pub struct RecordBatch {
    data: Vec<u8>,
    entries: Vec<RawEntry>,
    headers: Vec<Headers>,
    /// Where the buffers go in the end.
    home: Option<Arc<Pool<RawEntry>>>,
}

impl Drop for RecordBatch {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.put((std::mem::take(&mut self.data), std::mem::take(&mut self.entries)));
        }
    }
}

/// One record of a [`RecordBatch`], borrowed.
#[derive(Clone, Copy, Debug)]
pub struct RawRecord<'a> {
    /// The record's position.
    pub offset: Offset,
    /// The event time as the broker gives it; -1 when the record has none.
    pub timestamp: Timestamp,
    /// The key's bytes.
    pub key: Option<&'a [u8]>,
    /// The value's bytes.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a Headers,
}

static NO_HEADERS: Headers = Headers(Vec::new());

impl RecordBatch {
    /// Makes an empty batch with room for `records` of `bytes` in all.
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        let (data, entries) = (Vec::with_capacity(bytes), Vec::with_capacity(records));
        Self { data, entries, headers: Vec::new(), home: None }
    }

    /// Makes an empty batch of used buffers, which go back in the end.
    #[cfg(feature = "kafka")]
    pub(crate) fn reusing(home: &Arc<Pool<RawEntry>>, records: usize, bytes: usize) -> Self {
        let (mut data, mut entries) = home.take();
        data.reserve(bytes);
        entries.reserve(records);
        Self { data, entries, headers: Vec::new(), home: Some(Arc::clone(home)) }
    }

    /// Appends a record; offsets must rise.
    pub fn push(
        &mut self,
        offset: Offset,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers,
    ) {
        debug_assert!(self.entries.last().is_none_or(|e| e.offset < offset), "offsets rise within a batch");
        let spans = Spans::put(&mut self.data, key, value);
        let headers = if headers.is_empty() {
            0
        } else {
            self.headers.push(headers);
            self.headers.len() as u32
        };
        self.entries.push(RawEntry { offset, timestamp, spans, headers });
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes that the batch holds, its bookkeeping included.
    pub fn weight(&self) -> usize {
        self.data.len() + self.entries.len() * size_of::<RawEntry>()
    }

    /// The `i`-th record.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn get(&self, i: usize) -> RawRecord<'_> {
        let e = &self.entries[i];
        RawRecord {
            offset: e.offset,
            timestamp: e.timestamp,
            key: e.spans.key(&self.data),
            value: e.spans.value(&self.data),
            headers: if e.headers == 0 { &NO_HEADERS } else { &self.headers[e.headers as usize - 1] },
        }
    }

    /// The `i`-th record's timestamp.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn timestamp(&self, i: usize) -> Timestamp {
        self.entries[i].timestamp
    }

    /// Gives each record the timestamp that is found for it.
    pub(crate) fn stamp(&mut self, mut find: impl FnMut(&RawRecord<'_>) -> Timestamp) {
        for i in 0..self.len() {
            self.entries[i].timestamp = find(&self.get(i));
        }
    }

    /// All records in order.
    pub fn iter(&self) -> impl Iterator<Item = RawRecord<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }
}

/// One record of a [`ProduceBatch`], borrowed.
#[derive(Clone, Copy, Debug)]
pub struct OutRecord<'a> {
    /// The topic's name.
    pub topic: &'a Arc<str>,
    /// The topic's place in the batch's table.
    pub topic_idx: u32,
    /// The partition; always chosen by the engine.
    pub partition: i32,
    /// The event time.
    pub timestamp: Timestamp,
    /// The key's bytes.
    pub key: Option<&'a [u8]>,
    /// The value's bytes.
    pub value: Option<&'a [u8]>,
    /// The headers.
    pub headers: &'a Headers,
}

/// Where one record lies in a [`ProduceBatch`].
#[derive(Clone, Debug)]
pub(crate) struct OutEntry {
    topic: u32,
    partition: i32,
    timestamp: Timestamp,
    spans: Spans,
    headers: u32,
}

/// Records to be written, as bytes in one buffer, in order.
#[derive(Clone, Debug, Default)]
pub struct ProduceBatch {
    topics: Arc<[Arc<str>]>,
    data: Vec<u8>,
    entries: Vec<OutEntry>,
    headers: Vec<Headers>,
    /// Where the buffers go in the end.
    home: Option<Arc<Pool<OutEntry>>>,
}

impl Drop for ProduceBatch {
    fn drop(&mut self) {
        if let Some(home) = &self.home {
            home.put((std::mem::take(&mut self.data), std::mem::take(&mut self.entries)));
        }
    }
}

impl ProduceBatch {
    /// Makes an empty batch that writes to topics of this table.
    pub fn new(topics: Arc<[Arc<str>]>) -> Self {
        Self { topics, data: Vec::new(), entries: Vec::new(), headers: Vec::new(), home: None }
    }

    /// The same with room for so many records of so many bytes of keys and values in all.
    pub(crate) fn with_capacity(topics: Arc<[Arc<str>]>, records: usize, bytes: usize) -> Self {
        let (data, entries) = (Vec::with_capacity(bytes), Vec::with_capacity(records));
        Self { topics, data, entries, headers: Vec::new(), home: None }
    }

    /// The same of used buffers, which go back in the end.
    pub(crate) fn reusing(topics: Arc<[Arc<str>]>, home: &Arc<Pool<OutEntry>>) -> Self {
        let (data, entries) = home.take();
        Self { topics, data, entries, headers: Vec::new(), home: Some(Arc::clone(home)) }
    }

    /// The table of topics.
    pub fn topics(&self) -> &Arc<[Arc<str>]> {
        &self.topics
    }

    /// Appends a record to topic number `topic` of the table.
    pub fn push(
        &mut self,
        topic: u32,
        partition: i32,
        timestamp: Timestamp,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers,
    ) {
        let spans = Spans::put(&mut self.data, key, value);
        let headers = if headers.is_empty() {
            0
        } else {
            self.headers.push(headers);
            self.headers.len() as u32
        };
        self.entries.push(OutEntry { topic, partition, timestamp, spans, headers });
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes that the batch holds, its bookkeeping included.
    pub fn weight(&self) -> usize {
        self.data.len() + self.entries.len() * size_of::<OutEntry>()
    }

    /// The `i`-th record.
    ///
    /// # Panics
    /// When there are not that many.
    pub fn get(&self, i: usize) -> OutRecord<'_> {
        let e = &self.entries[i];
        OutRecord {
            topic: &self.topics[e.topic as usize],
            topic_idx: e.topic,
            partition: e.partition,
            timestamp: e.timestamp,
            key: e.spans.key(&self.data),
            value: e.spans.value(&self.data),
            headers: if e.headers == 0 { &NO_HEADERS } else { &self.headers[e.headers as usize - 1] },
        }
    }

    /// All records in order.
    pub fn iter(&self) -> impl Iterator<Item = OutRecord<'_>> {
        (0..self.len()).map(|i| self.get(i))
    }
}

/// Where a record came from: for errors, dead letters and verdicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The source partition's place in the plan's list of input partitions.
    pub partition: u32,
    /// The record's position.
    pub offset: Offset,
}
