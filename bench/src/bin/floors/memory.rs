//! The engine without Kafka and without a disk: lanes, epochs and commits over the embedded broker in memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use stoat_bench::Job;
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::broker::embedded::{ClientConfig, EmbeddedBroker, EmbeddedConfig};
use stoat_core::config::Config;
use stoat_core::engine::core::{Engine, EngineParts, Status};
use stoat_core::engine::executor::Executor;
use stoat_core::engine::message::LaneNet;
use stoat_core::engine::net::{NetBuild, TokioNet, build_lanes};
use stoat_core::engine::writer::ThreadedWriter;
use stoat_core::record::{Headers, ProduceBatch};
use stoat_core::store::memory::MemoryStoreSet;
use stoat_core::time::Timestamp;

use super::input::Input;
use super::process::cpu_time;
use super::{PARTITIONS, Result};

/// A last commit in memory takes milliseconds.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Runs a job over `records` records; prints nanoseconds per record, of CPU and of wall time.
pub(super) fn run(job: Job, records: usize) -> Result<()> {
    let executor = Executor::new();
    let mut engine = prepare(job, records, executor.now()).map_err(|e| e.to_string())?;
    let (cpu, begin) = (cpu_time("self")?, Instant::now());
    let mut end = None;
    let watch = |status: &Status| {
        let done = status.run.settled && status.run.records == records as u64;
        if done && end.is_none() {
            end = Some(begin.elapsed());
        }
        !done
    };
    executor.run(&mut engine, STOP_TIMEOUT, Duration::from_millis(20), watch).map_err(|e| e.to_string())?;
    let cpu = cpu_time("self")?.saturating_sub(cpu);
    let each = |d: Duration| d.as_nanos() / records as u128;
    println!("{} {}", each(cpu), each(end.unwrap_or_default()));
    Ok(())
}

/// An engine over a broker that has the input.
fn prepare(job: Job, records: usize, now: u64) -> stoat_core::Result<Engine> {
    let broker = EmbeddedBroker::open(EmbeddedConfig::memory())?;
    let mut client = BlockingClient::new(Box::new(broker.client(ClientConfig::new("load", "load"))));
    for topic in ["in", "out"] {
        client.create_topic(topic, PARTITIONS)?;
    }
    let table: Arc<[Arc<str>]> = [Arc::from("in")].into();
    let (mut key, mut value) = (String::new(), String::new());
    for first in (0..records).step_by(10_000) {
        let mut batch = ProduceBatch::new(Arc::clone(&table));
        for i in first..records.min(first + 10_000) {
            Input::of(job).record(i, &mut key, &mut value);
            let (key, value) = (Some(key.as_bytes()), Some(value.as_bytes()));
            batch.push(0, i as i32 % PARTITIONS, Timestamp(1 + i as i64), key, value, Headers::default());
        }
        client.produce(batch)?;
    }
    let mut config = Config { application_id: Some(job.name().to_owned()), ..Config::default() };
    config.set("stoat.commit.interval", "100ms")?;
    let parts = EngineParts {
        graph: job.app()?.graph()?,
        config,
        broker: Box::new(broker.client(ClientConfig::new(job.name(), job.name()))),
        stores: Box::new(MemoryStoreSet::new()),
        writer: Box::new(ThreadedWriter::new()?),
        net: Box::new(
            |build: &NetBuild<'_>| Ok(Box::new(TokioNet::start(build_lanes(build)?, 2)?) as Box<dyn LaneNet>),
        ),
        incarnation: "floors".to_owned(),
        seed: 1,
    };
    Ok(Engine::new(parts, now))
}
