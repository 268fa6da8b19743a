//! Running other programs, with the command line in every error.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What went wrong, as one paragraph for the person at the terminal.
pub(crate) struct Failure(String);

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// Says what was being done when a system call failed.
pub(crate) trait Context<T> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: fmt::Display> Context<T> for std::result::Result<T, E> {
    fn context(self, doing: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Failure(format!("{}: {error}", doing())))
    }
}

/// The root of the workspace that this program was built in.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in a folder of the workspace")
}

/// The folder that keeps what is built or fetched once for all clones: `$STOAT_ROCKSDB_CACHE`, or
/// `stoat-build` in `$XDG_CACHE_HOME` or `~/.cache`.
pub(crate) fn cache_root() -> Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let folder = set("STOAT_ROCKSDB_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|dir| dir.join("stoat-build")))
        .or_else(|| set("HOME").map(|dir| dir.join(".cache/stoat-build")))
        .ok_or("no folder for the build cache: set STOAT_ROCKSDB_CACHE, XDG_CACHE_HOME or HOME")?;
    // Handed on to compilers that run elsewhere, so it must not depend on the current folder.
    std::path::absolute(&folder).context(|| format!("cannot resolve the cache folder {}", folder.display()))
}

/// True where a person or a service said that this run decides about a change.
pub(crate) fn is_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

/// Cargo, as the one that started this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    command
}

/// Runs a command with its output on the terminal.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("  $ {}", shown(command));
    let status = command.status().context(|| format!("cannot start `{}`", shown(command)))?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed: {status}", shown(command)).into()) }
}

/// Runs a command and returns what it printed; where it fails, the error carries the end of what it printed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output().context(|| format!("cannot start `{}`", shown(command)))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let printed = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    Err(format!("`{}` failed: {}\n{}", shown(command), out.status, tail(&printed, 30)).into())
}

/// True where the command starts and ends with success; its output is dropped.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// The last `n` lines of a text.
pub(crate) fn tail(text: &str, n: usize) -> String {
    let lines: Vec<_> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// Numbers the steps of a command and says how long each took.
pub(crate) struct Steps {
    started: Instant,
    at: u32,
    of: u32,
}

impl Steps {
    pub(crate) fn new(of: u32) -> Self {
        Self { started: now(), at: 0, of }
    }

    /// Begins the next step.
    pub(crate) fn next(&mut self, what: &str) {
        self.at += 1;
        eprintln!("\n[{}/{}] {what}  ({} since the start)", self.at, self.of, seconds(self.started.elapsed()));
    }

    pub(crate) fn elapsed(&self) -> String {
        seconds(self.started.elapsed())
    }
}

fn seconds(time: Duration) -> String {
    format!("{}m{:02}s", time.as_secs() / 60, time.as_secs() % 60)
}

#[expect(clippy::disallowed_methods, reason = "xtask is an edge: it tells people how long a step took")]
fn now() -> Instant {
    Instant::now()
}
