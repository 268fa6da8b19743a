//! Two hashes: Kafka's murmur2, which chooses partitions, and the lane hash, which nothing stored depends on.

/// Murmur2 as Kafka's Java client computes it (`org.apache.kafka.common.utils.Utils.murmur2`).
pub fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut h: u32 = 0x9747_b28c ^ data.len() as u32;
    let mut chunks = data.chunks_exact(4);
    for c in &mut chunks {
        let mut k = u32::from_le_bytes(c.try_into().expect("chunks of four"));
        k = k.wrapping_mul(M);
        k ^= k >> 24;
        k = k.wrapping_mul(M);
        h = h.wrapping_mul(M) ^ k;
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        for (i, b) in rest.iter().enumerate() {
            h ^= u32::from(*b) << (8 * i);
        }
        h = h.wrapping_mul(M);
    }
    h ^= h >> 13;
    h = h.wrapping_mul(M);
    h ^ (h >> 15)
}

/// The partition that Kafka's Java client picks for a key.
pub fn partition_for(key: &[u8], partitions: i32) -> i32 {
    ((murmur2(key) & 0x7fff_ffff) as i32) % partitions
}

/// The hash that picks a lane (and a place in the caches): fast and spread over all bits, private to one process.
#[inline]
pub fn lane_hash(key: &[u8]) -> u64 {
    use std::hash::Hasher;
    let mut h = rustc_hash::FxHasher::default();
    h.write(key);
    let x = h.finish();
    // FxHasher leaves the low bits of short keys weak; one round of a finaliser spreads them (splitmix64).
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// The lane of a hash among `lanes`.
#[inline]
pub fn lane_of(hash: u64, lanes: u32) -> u32 {
    // Multiply-shift on the high bits: no division, no bias worth the name.
    ((u128::from(hash) * u128::from(lanes)) >> 64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn murmur2_agrees_with_the_java_client() {
        // Values from the unit test of Kafka's own `Utils.murmur2`.
        for (text, want) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
        ] {
            assert_eq!(murmur2(text.as_bytes()) as i32, want, "{text}");
        }
        assert_eq!(murmur2(b"abc") as i32, 479_470_107);
    }
}
