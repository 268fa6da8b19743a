//! What a byte store costs: µs per row applied in batches of 1,000, and per get.
//!
//! `store_cost [ROWS [MEMORY_MIB]]`, default 1,000,000 rows and 16 MiB. Keys of 16 bytes, values of 100 bytes that do not
//! compress. Times are wall | CPU of the whole process, RocksDB's background threads included.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use stoat_core::id::{Epoch, Generation};
use stoat_core::store::memory::MemoryStoreSet;
use stoat_core::store::rocks::{RocksConfig, RocksStoreSet};
use stoat_core::store::{Batch, Row, Stamp, StoreKind, StoreSet};
use stoat_core::time::Timestamp;

const BATCH: u64 = 1_000;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut args = std::env::args().skip(1);
    let rows = args.next().map_or(Ok(1_000_000), |n| n.parse())?;
    let memory: usize = args.next().map_or(Ok(16), |n| n.parse())?;
    println!("{rows} rows of 16 + 100 bytes, batches of {BATCH}; µs: wall | cpu");
    run("memory", &mut MemoryStoreSet::new(), rows).map_err(stoat_core::Error::into_std)?;

    let dir = Scratch::new()?;
    let config = RocksConfig { memory: memory << 20, ..RocksConfig::new(&dir.0, "store-cost") };
    let mut set = RocksStoreSet::open(&config).map_err(stoat_core::Error::into_std)?;
    run(&format!("rocksdb, {memory} MiB"), &mut set, rows).map_err(stoat_core::Error::into_std)?;
    println!("  memory used {} KiB, of it memtables {} KiB", set.memory_used() >> 10, set.memtables_used() >> 10);
    Ok(())
}

/// A directory that ends with the value.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        let dir = std::env::temp_dir().join(format!("stoat-store-cost-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        Ok(Self(dir))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Nothing depends on it; what is left lies in the system's temporary directory.
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn run(name: &str, set: &mut dyn StoreSet, rows: u64) -> stoat_core::Result<()> {
    let store = set.open("cost", StoreKind::TimestampedKeyValue)?;
    println!("{name}:");
    let mut numbers = Numbers(1);
    let mut epoch = 0;
    let mut apply = |what: &str, count: u64, numbers: &mut dyn FnMut() -> u64| -> stoat_core::Result<()> {
        let mut spent = Spent::default();
        for _ in 0..count / BATCH {
            epoch += 1;
            let batch = batch(epoch, numbers);
            spent.measure(|| store.apply(Generation(1), &batch))?;
        }
        spent.print(what, count);
        Ok(())
    };
    let mut next = 0;
    apply("apply, new keys in random order", rows, &mut || {
        next += 1;
        mixed(next)
    })?;
    apply("apply, keys that are there", rows / 2, &mut || mixed(1 + numbers.next() % rows))?;
    let mut spent = Spent::default();
    spent.measure(|| store.flush())?;
    spent.print("flush, once", 1);

    let get = |what: &str, mut key: Box<dyn FnMut() -> u64>, hit: bool| -> stoat_core::Result<()> {
        let count = rows / 4;
        let keys: Vec<_> = (0..count).map(|_| key_bytes(key())).collect();
        let mut spent = Spent::default();
        spent.measure(|| {
            for key in &keys {
                assert_eq!(store.get(key)?.is_some(), hit, "{what}");
            }
            Ok(())
        })?;
        spent.print(what, count);
        Ok(())
    };
    let mut numbers = [Numbers(2), Numbers(3), Numbers(4)];
    let [a, b, c] = &mut numbers;
    let (mut a, mut b, mut c) = (Numbers(a.next()), Numbers(b.next()), Numbers(c.next()));
    get("get, all keys at random", Box::new(move || mixed(1 + a.next() % rows)), true)?;
    get("get, 10,000 hot keys", Box::new(move || mixed(1 + b.next() % rows.min(10_000))), true)?;
    get("get, keys that are not there", Box::new(move || mixed(rows + 1 + c.next() % rows)), false)?;

    let mut spent = Spent::default();
    let mut seen = 0;
    spent.measure(|| {
        store.scan(None, None, &mut |_, _| {
            seen += 1;
            true
        })
    })?;
    spent.print("scan, per row", seen);
    Ok(())
}

fn key_bytes(n: u64) -> [u8; 16] {
    (u128::from(n) << 64 | u128::from(n ^ 0x5555)).to_be_bytes()
}

fn batch(epoch: u64, number: &mut dyn FnMut() -> u64) -> Batch {
    let mut values = Numbers(epoch);
    let rows = (0..BATCH).map(|_| {
        let key = key_bytes(number()).to_vec();
        let mut value: Vec<u8> = (0..13).flat_map(|_| values.next().to_be_bytes()).collect();
        value.truncate(100);
        Row { lane_key: key.len(), key, value: Some(value), timestamp: Timestamp(epoch as i64) }
    });
    let rows = rows.collect();
    let offsets = (0..8).map(|p| (p, epoch as i64)).collect();
    let stamp = Stamp { epoch: Epoch(epoch), time: Timestamp(1), topic_id: "0123456789abcdef012345".into(), offsets };
    Batch { rows, stamp }
}

/// Spreads numbers one to one (splitmix64's finaliser).
fn mixed(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Numbers that look random and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }
}

#[derive(Default)]
struct Spent {
    wall: Duration,
    cpu: Duration,
}

impl Spent {
    fn measure(&mut self, act: impl FnOnce() -> stoat_core::Result<()>) -> stoat_core::Result<()> {
        let (wall, cpu) = (Instant::now(), cpu_time());
        act()?;
        self.wall += wall.elapsed();
        self.cpu += cpu_time().saturating_sub(cpu);
        Ok(())
    }

    fn print(&self, what: &str, count: u64) {
        let per = |d: Duration| d.as_secs_f64() * 1e6 / count.max(1) as f64;
        println!("  {what:<34}{:8.2} | {:.2}", per(self.wall), per(self.cpu));
    }
}

/// CPU time of all threads, from Linux' own count in ticks of 10 ms; zero elsewhere.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: u64 = after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}
