//! Benchmarks; each is a program in `src/bin`.
