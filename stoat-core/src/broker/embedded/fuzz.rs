//! The journal's bytes, whatever they are: read without a panic.

use super::format::{
    CHUNK_HEADER, ChunkReader, Entry, FILE_HEADER, begin_entry, check_file_header, finish_entry, read_entry, unframe,
};
use crate::record::RecordBatch;

/// Reads bytes as a file's beginning, as a framed entry, and as the body of an entry whose checksums are right.
pub(crate) fn journal(bytes: &[u8]) {
    if let Some(header) = bytes.get(..FILE_HEADER) {
        check_file_header(header);
    }
    if let Some(framed) = unframe(bytes) {
        let _ = read_entry(framed.body);
    }
    let mut entry = Vec::new();
    begin_entry(&mut entry);
    entry.extend_from_slice(bytes);
    if finish_entry(&mut entry, 0).is_ok() {
        let framed = unframe(&entry).expect("an entry that was just framed is whole");
        assert_eq!(framed.body, bytes);
    }
    let Ok(Entry::Commit(commit)) = read_entry(bytes) else { return };
    for (head, at) in &commit.chunks {
        let mut chunk = bytes[*at..*at + CHUNK_HEADER + head.len as usize].to_vec();
        let crc = crc32fast::hash(&chunk[CHUNK_HEADER..]);
        chunk[CHUNK_HEADER - 4..CHUNK_HEADER].copy_from_slice(&crc.to_le_bytes());
        let mut reader = ChunkReader::new(&chunk).expect("its checksum was just put right");
        let mut batch = RecordBatch::default();
        while let Ok(Some(record)) = reader.next() {
            if record.push_to(&mut batch).is_err() {
                break;
            }
        }
    }
}

/// Entries as they are written, to begin with.
#[cfg(test)]
pub(crate) fn samples() -> Vec<(&'static str, Vec<u8>)> {
    use super::format::{
        Chunk, CommitParts, GroupOffset, put_commit, put_created, put_deleted, put_log_start, put_producer,
    };
    use crate::record::Headers;
    use crate::time::Timestamp;

    let mut chunk = Chunk::new(3, 1, 40, 1_000);
    let mut headers = Headers::default();
    headers.push("trace", Some(b"1".to_vec()));
    chunk.push(40, Timestamp(900), Some(b"k"), Some(b"v"), &headers);
    chunk.push(42, Timestamp(950), None, None, &Headers::default());
    let offsets = [GroupOffset { group: "orders", topic: 3, partition: 1, next: 17 }];
    let commit = CommitParts { kept: false, time: 1_000, producer: ("orders", 7), offsets: &offsets, chunks: &[chunk] };
    let made = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        write(&mut out);
        out
    };
    vec![
        ("header", super::format::file_header().to_vec()),
        ("commit", made(&|out| put_commit(out, &commit))),
        ("deleted", made(&|out| put_deleted(out, 3))),
        ("producer", made(&|out| put_producer(out, "orders", 7))),
        ("log-start", made(&|out| put_log_start(out, 3, 1, 99))),
        ("created", made(&|out| put_created(out, 3, 6, "in", "id-3", &[("retention.ms".to_owned(), "-1".to_owned())]))),
    ]
}
