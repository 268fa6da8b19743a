//! The simulator on many seeds.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sh::{Context as _, Result, Steps, cargo};

/// Seeds that all tests together run where nothing else is said, at least.
const ROUND: u64 = 500;
/// A failure's own words: as many lines as it takes to see what happened.
const SHOWN: usize = 60;

/// What a run of the simulator told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// By test: how many seeds it ran.
    seeds: BTreeMap<u64, u64>,
    /// Tests and seeds that failed, in the order in which they did.
    pub(crate) failed: Vec<(String, u64)>,
    /// Whether every test passed.
    pub(crate) passed: bool,
    words: Vec<String>,
}

impl Told {
    pub(crate) fn seeds(&self) -> u64 {
        self.seeds.values().sum()
    }

    fn hear(&mut self, line: String) {
        if let Some(rest) = line.strip_prefix("seeds: ") {
            let mut numbers = rest.split(' ').filter_map(|n| n.parse().ok());
            if let (Some(test), Some(n)) = (numbers.next(), numbers.next()) {
                self.seeds.insert(test, n);
            }
            return;
        }
        if let Some(rest) = line.strip_prefix("failing seed: ") {
            let (seed, test) = rest.split_once(' ').unwrap_or((rest, ""));
            let test = test.split_once("in ").map_or("", |(_, t)| t).trim_end_matches(')');
            // A line that another one ran into tells nothing.
            if let (Ok(seed), false) = (seed.parse(), test.is_empty()) {
                self.failed.push((test.to_owned(), seed));
            }
        }
        if self.words.len() < SHOWN && !line.starts_with("test ") && !line.trim().is_empty() {
            self.words.push(line);
        }
    }
}

/// The newest seeds that no run before had, as far as a clock can tell.
pub(crate) fn new_base() -> Result<u64> {
    #[expect(clippy::disallowed_methods, reason = "xtask is an edge: it chooses seeds that differ between runs")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).context(|| "the clock stands before 1970".to_owned())?;
    Ok(now.as_secs())
}

/// The command that runs the simulator's tests in `cargo`'s folder.
pub(crate) fn simulator(mut cargo: Command) -> Command {
    let arguments = ["test", "--package", "stoat-core", "--no-default-features", "--lib", "engine::tests::"];
    cargo.args(arguments).args(["--", "--nocapture"]);
    cargo
}

/// Runs it and hears what it tells.
pub(crate) fn listen(mut command: Command) -> Result<Told> {
    let mut told = Told::default();
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().context(|| "cargo cannot be started".to_owned())?;
    let errors = child.stderr.take().ok_or("cargo has no standard error")?;
    BufReader::new(errors).lines().map_while(std::result::Result::ok).for_each(|line| told.hear(line));
    let status = child.wait().context(|| "cargo cannot be waited for".to_owned())?;
    told.passed = status.success();
    Ok(told)
}

/// Runs at least so many seeds, from a base of its own unless one is named.
pub(crate) fn run(seeds: u64, base: Option<u64>) -> Result<()> {
    let steps = Steps::new(1);
    on(cargo(), seeds, base)?;
    eprintln!("  in {}", steps.elapsed());
    Ok(())
}

pub(crate) fn on(cargo: Command, seeds: u64, base: Option<u64>) -> Result<()> {
    let base = base.map_or_else(new_base, Ok)?;
    eprintln!("  seed base {base}: `cargo xtask sim --seeds {seeds} --base {base}` runs the same seeds again");
    let mut command = simulator(cargo);
    command.env("STOAT_SIM_BASE", base.to_string()).env("STOAT_SIM_SEEDS", seeds.div_ceil(ROUND).to_string());
    let told = listen(command)?;
    if !told.passed {
        for (test, seed) in &told.failed {
            eprintln!("  seed {seed} of {test}: add it to stoat-core/src/engine/tests/failed.rs");
        }
        return Err(format!("the simulator failed, seed base {base}:\n{}", told.words.join("\n")).into());
    }
    if told.seeds() < seeds {
        return Err(format!("only {} seeds ran, not {seeds}", told.seeds()).into());
    }
    eprintln!("  {} seeds passed", told.seeds());
    Ok(())
}
