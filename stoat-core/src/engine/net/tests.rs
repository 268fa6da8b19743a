//! Measurements; see the binaries.
