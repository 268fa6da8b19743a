//! The house rules that neither the compiler nor clippy knows.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::sh::{Context as _, Result, output, root};

#[cfg(test)]
mod tests;

/// Crates that are unmaintained or that we have a better one for; `deny.toml` gives the reasons.
const BANNED_CRATES: &[&str] =
    &["async-std", "bincode", "fxhash", "lazy_static", "paste", "proc-macro-error", "serde_yaml", "serde_yml"];
/// Banned as our own dependency only: `tracing-subscriber` brings it.
const TOLERATED_BELOW: &[&str] = &["lazy_static"];
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";
/// Only here is code that the compiler cannot check.
const UNSAFE_ALLOWED: &str = "stoat-core/src/broker/kafka";

/// A broken rule: where, and what to do.
#[derive(Debug, PartialEq, Eq)]
struct Finding {
    line: usize,
    rule: String,
}

/// Checks every file that git knows or would add.
pub(crate) fn run() -> Result<()> {
    let mut git = Command::new("git");
    git.current_dir(root()).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let files = output(&mut git)?;
    let (mut checked, mut findings) = (0, Vec::new());
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let path = root().join(file);
        // Deleted and not committed yet, or a link to somewhere else.
        if !path.is_file() {
            continue;
        }
        let bytes = fs::read(&path).context(|| format!("cannot read {}", path.display()))?;
        let Ok(text) = String::from_utf8(bytes) else { continue };
        checked += 1;
        findings
            .extend(check(file, &text).into_iter().map(|finding| format!("{file}:{}: {}", finding.line, finding.rule)));
    }
    if findings.is_empty() {
        eprintln!("  {checked} files keep the house rules");
        return Ok(());
    }
    Err(format!("{} house rules are broken:\n  {}", findings.len(), findings.join("\n  ")).into())
}

fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |line: usize, rule: String| findings.push(Finding { line: line + 1, rule });
    let mut section = String::new();
    let mut in_tests = is_test_file(file);
    let lines: Vec<&str> = text.lines().collect();
    for (at, &line) in lines.iter().enumerate() {
        if let Some(path) = machine_path(line) {
            find(
                at,
                format!("`{path}` exists on one machine only: take the path from the environment or make it relative"),
            );
        }
        if let Some(host) = private_host(line) {
            find(at, format!("`{host}` is reached from one network only: leave the host out"));
        }
        if line.starts_with('[') {
            line.trim_end().clone_into(&mut section);
        }
        if file == "Cargo.lock" {
            if line.starts_with("source = ") && !line.contains(CRATES_IO) {
                find(at, "a crate from elsewhere than crates.io: take it from there".to_owned());
            }
            if let Some(name) = line.strip_prefix("name = ").map(|name| name.trim_matches('"'))
                && BANNED_CRATES.contains(&name)
                && !TOLERATED_BELOW.contains(&name)
            {
                find(at, format!("the crate `{name}` is banned: deny.toml says why"));
            }
        } else if file.ends_with("Cargo.toml") {
            if let Some(name) = dependency(&section, line).filter(|name| BANNED_CRATES.contains(name)) {
                find(at, format!("the crate `{name}` is banned: deny.toml says why"));
            }
        } else if file.ends_with(".cargo/config.toml") {
            if line.starts_with("[source") || line.starts_with("[registries") || line.starts_with("replace-with") {
                find(at, "registries are set on the machine, not in the project".to_owned());
            }
        } else if file.ends_with("pom.xml") {
            if line.contains("<repository>") || line.contains("<mirror>") {
                find(at, "repositories are set on the machine, not in the project".to_owned());
            }
        } else if is_rust(file) {
            in_tests |=
                line.trim() == "#[cfg(test)]" && lines.get(at + 1).is_some_and(|next| next.trim_end().ends_with('{'));
            let code = line.split("//").next().unwrap_or(line);
            if in_tests && code.contains("sleep(") && !has_reason(&lines, at) {
                find(
                    at,
                    "a test awaits an event; where there is none to await, say so in a comment `// sleep: why`"
                        .to_owned(),
                );
            }
            let is_unsafe = ["unsafe {", "unsafe fn", "unsafe impl"].iter().any(|word| code.contains(word));
            if is_unsafe && file.starts_with("stoat-core/") && !file.starts_with(UNSAFE_ALLOWED) {
                find(at, format!("unsafe code is allowed in {UNSAFE_ALLOWED} only"));
            }
        }
    }
    findings
}

fn is_rust(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|extension| extension == "rs")
}

fn is_test_file(file: &str) -> bool {
    is_rust(file) && (file.ends_with("/tests.rs") || file.split('/').any(|folder| folder == "tests"))
}

fn has_reason(lines: &[&str], at: usize) -> bool {
    lines[at.saturating_sub(1)..=at].iter().any(|line| line.contains("// sleep: "))
}

/// A path below somebody's own folder.
fn machine_path(line: &str) -> Option<&'static str> {
    // Spelt in two halves, so that this file keeps its own rule.
    const FOLDERS: [&str; 3] = [concat!("/ro", "ot/"), concat!("/ho", "me/"), concat!("/wo", "rk/")];
    FOLDERS.into_iter().find(|folder| {
        line.match_indices(folder).any(|(at, _)| {
            // Within another path the word is only a folder's name.
            !line[..at].ends_with(|before: char| before.is_alphanumeric() || "._-~}*".contains(before))
        })
    })
}

/// The host of an address that only one network knows.
fn private_host(line: &str) -> Option<&str> {
    line.match_indices("://").find_map(|(at, mark)| {
        let rest = &line[at + mark.len()..];
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '-').unwrap_or(rest.len());
        let host = &rest[..end];
        let private =
            ["10.", "192.168."].iter().any(|net| host.starts_with(net) && host.ends_with(|c: char| c.is_ascii_digit()))
                || [".internal", ".corp", ".lan", ".intra", ".local"].iter().any(|zone| host.ends_with(zone));
        private.then_some(host)
    })
}

/// The crate that a line of a manifest depends on.
fn dependency<'a>(section: &'a str, line: &'a str) -> Option<&'a str> {
    let table = section.trim_start_matches('[').trim_end_matches(']');
    if let Some((table, name)) = table.rsplit_once('.')
        && table.ends_with("dependencies")
    {
        // `[dependencies.name]`: reported once, on its own line.
        return line.starts_with('[').then_some(name);
    }
    let name = line.split(['=', '.']).next()?.trim();
    (table.ends_with("dependencies") && line.contains('=') && !name.starts_with('#')).then_some(name)
}
