//! The examples as an operator meets them: killed, started twice, fed with what they cannot read. One program, so that it
//! is linked once; what needs Kafka runs one after another, because the examples' topics have fixed names.
#![expect(clippy::disallowed_methods, reason = "it waits for processes by real time, beside any engine")]

mod bad_input;
mod faults;
mod lane_split;
#[cfg(feature = "kafka")]
mod own_kafka;
#[cfg(unix)]
mod poison;
mod support;
mod time;
mod two_processes;
