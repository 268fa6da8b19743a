//! Seeds that failed once. They run always, before the others.

/// The first seed of the test, which names it, and the seed that failed.
pub(super) const FAILED: &[(u64, u64)] = &[];
