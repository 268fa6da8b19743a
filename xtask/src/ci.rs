//! Everything that a change must pass, in the order of what is quick.

use std::path::PathBuf;

use crate::sh::{Result, Steps, cache_root, cargo, is_ci, run as run_command, succeeds};
use crate::sim;
use crate::suite::Machine;
use crate::tidy;

/// Seeds that no run before had.
const NEW_SEEDS: u64 = 500;

pub(crate) fn run(install: bool) -> Result<()> {
    let target = target()?;
    let mut steps = Steps::new(10);
    let mut failures = Vec::new();
    // A failure does not hide what the later steps would say.
    let mut note = |result: Result<()>| {
        if let Err(failure) = result {
            eprintln!("\nerror: {failure}");
            failures.push(failure.to_string());
        }
    };

    steps.next("format");
    note(run_command(cargo().args(["fmt", "--all", "--", "--check"])));

    steps.next("house rules");
    note(tidy::run());

    steps.next("licences, advisories, bans");
    if succeeds(cargo().args(["deny", "--version"])) {
        note(run_command(cargo().args(["deny", "--all-features", "check"])));
    } else {
        eprintln!("  skipped: cargo-deny is not installed (`cargo install cargo-deny --locked`, some minutes)");
    }

    steps.next("what the checks need: Rust 1.95, and");
    let machine = Machine::prepare(install, target)?;
    let cargo = || machine.cargo();

    steps.next("lints");
    note(run_command(cargo().args([
        "clippy",
        "--keep-going",
        "--workspace",
        "--all-targets",
        "--all-features",
        "--",
        "-D",
        "warnings",
    ])));

    steps.next("the library without its features");
    note(run_command(cargo().args(["check", "--package", "stoat-core", "--no-default-features"])));

    steps.next("documentation");
    let mut doc = cargo();
    doc.args(["doc", "--keep-going", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings");
    note(run_command(&mut doc));

    steps.next("tests");
    note(machine.test(&[]));

    steps.next("models of what is synchronised by hand");
    note(run_command(cargo().args([
        "test",
        "--quiet",
        "--release",
        "--locked",
        "--manifest-path",
        "models/Cargo.toml",
    ])));

    steps.next("simulator, new seeds");
    note(sim::on(cargo(), NEW_SEEDS, None));

    eprintln!("\n{} of 10 steps failed, in {}", failures.len(), steps.elapsed());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// A service builds each change in a new clone: one target folder outside of them keeps what did not change.
fn target() -> Result<Option<PathBuf>> {
    if !is_ci() || std::env::var_os("CARGO_TARGET_DIR").is_some() {
        return Ok(None);
    }
    let folder = cache_root()?.join("target");
    eprintln!("CI is set: builds in {}", folder.display());
    Ok(Some(folder))
}
