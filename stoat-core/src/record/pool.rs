//! Buffers that are used again. An epoch's outputs and what is fetched are large blocks: a new one costs a page fault for
//! every 4 KiB, which is more than what is done with the records in it.

use std::sync::{Mutex, PoisonError};

/// A pair of buffers: bytes, and one entry per record in them.
pub(crate) type Buffers<E> = (Vec<u8>, Vec<E>);

/// Buffers without content, ready for use.
#[derive(Debug)]
pub(crate) struct Pool<E> {
    free: Mutex<Vec<Buffers<E>>>,
    most: usize,
    most_bytes: usize,
}

impl<E> Pool<E> {
    /// Keeps at most `most` pairs that hold `most_bytes` in all.
    pub(crate) fn new(most: usize, most_bytes: usize) -> Self {
        Self { free: Mutex::default(), most, most_bytes }
    }

    /// Gives the pair that was used last; empty ones where there is none.
    pub(crate) fn take(&self) -> Buffers<E> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes a pair back, whatever is in it.
    pub(crate) fn put(&self, (mut bytes, mut entries): Buffers<E>) {
        if bytes.capacity() == 0 && entries.capacity() == 0 {
            return;
        }
        bytes.clear();
        entries.clear();
        let back = (bytes, entries);
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < self.most && free.iter().chain([&back]).map(size).sum::<usize>() <= self.most_bytes {
            free.push(back);
        }
    }
}

fn size<E>((bytes, entries): &Buffers<E>) -> usize {
    bytes.capacity() + entries.capacity() * size_of::<E>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_back_without_content_and_no_more_than_allowed() {
        let pool = Pool::<u64>::new(2, 1 << 20);
        pool.put((Vec::new(), Vec::new()));
        assert_eq!(pool.free.lock().unwrap().len(), 0, "nothing is gained by keeping what holds nothing");
        for _ in 0..3 {
            pool.put((b"abc".to_vec(), vec![1, 2]));
        }
        assert_eq!(pool.free.lock().unwrap().len(), 2);
        let (bytes, entries) = pool.take();
        assert!(bytes.is_empty() && entries.is_empty() && bytes.capacity() >= 3);
    }

    #[test]
    fn i07_what_is_kept_for_later_is_bounded_in_bytes() {
        let pool = Pool::<u64>::new(9, 1000);
        pool.put((Vec::with_capacity(600), Vec::new()));
        pool.put((Vec::new(), Vec::with_capacity(60)));
        let held: usize = pool.free.lock().unwrap().iter().map(size).sum();
        assert_eq!(held, 600);
    }
}
