//! Benchmarks of Stoat: see the binaries.
