//! What the machine must have beside Rust, and how Debian calls it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::sh::{Result, run, succeeds};

#[cfg(test)]
mod tests;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Cxx,
    Make,
    PkgConfig,
    OpenSsl,
    Zlib,
    LibClang,
    Java,
    Maven,
}

/// What librdkafka's build needs.
pub(crate) const FOR_KAFKA_CLIENT: &[Need] = &[Need::Cxx, Need::Make, Need::PkgConfig, Need::OpenSsl, Need::Zlib];
/// What RocksDB's build needs.
pub(crate) const FOR_ROCKSDB: &[Need] = &[Need::Cxx, Need::LibClang];
/// What Apache Kafka itself needs.
pub(crate) const FOR_KAFKA_BROKER: &[Need] = &[Need::Java, Need::Maven];

/// The version of libclang that is known to work first, then the others from new to old.
const LIBCLANG: &[u32] = &[14, 21, 20, 19, 18, 17, 16, 15, 13];
const JAVA_AT_LEAST: u32 = 17;
const JAVA: &[u32] = &[17, 21, 25];

impl Need {
    fn purpose(self) -> &'static str {
        match self {
            Self::Cxx => "g++ (compiles librdkafka and RocksDB)",
            Self::Make => "make (builds librdkafka)",
            Self::PkgConfig => "pkg-config (finds OpenSSL and zlib)",
            Self::OpenSsl => "OpenSSL with headers (TLS to Kafka)",
            Self::Zlib => "zlib with headers (gzip to Kafka)",
            Self::LibClang => "libclang with its headers (reads RocksDB's C interface)",
            Self::Java => "Java 17 or newer (runs Apache Kafka)",
            Self::Maven => "Maven (fetches Apache Kafka)",
        }
    }

    /// The Debian packages that may serve, the preferred first.
    fn packages(self) -> Vec<Vec<String>> {
        let one = |name: &str| vec![vec![name.to_owned()]];
        match self {
            Self::Cxx => one("g++"),
            Self::Make => one("make"),
            Self::PkgConfig => one("pkg-config"),
            Self::OpenSsl => one("libssl-dev"),
            Self::Zlib => one("zlib1g-dev"),
            Self::LibClang => {
                LIBCLANG.iter().map(|v| vec![format!("libclang1-{v}"), format!("libclang-common-{v}-dev")]).collect()
            }
            Self::Java => JAVA.iter().map(|v| vec![format!("openjdk-{v}-jre-headless")]).collect(),
            Self::Maven => one("maven"),
        }
    }

    fn is_there(self) -> bool {
        let answers = |program: &str| succeeds(Command::new(program).arg("--version"));
        let library = |name: &str| succeeds(Command::new("pkg-config").args(["--exists", name]));
        match self {
            Self::Cxx => answers("g++"),
            Self::Make => answers("make"),
            Self::PkgConfig => answers("pkg-config"),
            Self::OpenSsl => library("openssl"),
            Self::Zlib => library("zlib"),
            Self::LibClang => libclang_is_in(&libclang_folders()),
            Self::Java => java_version().is_some_and(|version| version >= JAVA_AT_LEAST),
            Self::Maven => answers("mvn"),
        }
    }
}

/// Says what is needed, installs what is missing where `install` allows it, and returns what is still missing.
pub(crate) fn ensure(needs: &[Need], install: bool) -> Vec<Need> {
    let mut needed: Vec<Need> = Vec::new();
    for need in needs {
        if !needed.contains(need) {
            needed.push(*need);
        }
    }
    let missing: Vec<Need> = needed.iter().copied().filter(|need| !need.is_there()).collect();
    for need in &needed {
        let mark = if missing.contains(need) { "missing:" } else { "found:  " };
        eprintln!("  {mark} {}", need.purpose());
    }
    if missing.is_empty() || !install {
        return missing;
    }
    if let Err(error) = apt_install(&missing) {
        eprintln!("  The installation failed: {error}");
    }
    missing.into_iter().filter(|need| !need.is_there()).collect()
}

fn apt_install(missing: &[Need]) -> Result<()> {
    if !Path::new("/usr/bin/apt-get").exists() {
        return Err("this system has no apt-get".into());
    }
    let packages = if let Ok(packages) = choose(missing, is_known) {
        packages
    } else {
        // A new machine may have no package lists yet.
        apt(&["update"])?;
        choose(missing, is_known)?
    };
    eprintln!("  Installs by apt-get: {}", packages.join(" "));
    // What is there stays as it is: this program adds, it does not keep the system up to date.
    let mut arguments = vec!["install", "-y", "--no-install-recommends", "--no-upgrade"];
    arguments.extend(packages.iter().map(String::as_str));
    if apt(&arguments).is_err() {
        // The lists on the machine may name versions that the archive has replaced since.
        apt(&["update"])?;
        apt(&arguments)?;
    }
    Ok(())
}

/// As [`ensure`], for what a command cannot do without.
pub(crate) fn require(needs: &[Need], install: bool) -> Result<()> {
    let missing = ensure(needs, install);
    if missing.is_empty() { Ok(()) } else { Err(advice(&missing).into()) }
}

/// One paragraph that names what is missing and how to get it.
pub(crate) fn advice(missing: &[Need]) -> String {
    let what: Vec<_> = missing.iter().map(|need| need.purpose()).collect();
    let packages = choose(missing, is_known)
        .unwrap_or_else(|_| missing.iter().filter_map(|need| need.packages().into_iter().next()).flatten().collect());
    format!("missing: {}. On Debian: apt-get install {}", what.join(", "), packages.join(" "))
}

/// The first packages for each need that the archive knows.
fn choose(missing: &[Need], known: impl Fn(&str) -> bool) -> Result<Vec<String>> {
    let mut chosen = Vec::new();
    for need in missing {
        let packages = need.packages().into_iter().find(|packages| packages.iter().all(|package| known(package)));
        chosen.extend(packages.ok_or_else(|| format!("the package archive has nothing for {}", need.purpose()))?);
    }
    Ok(chosen)
}

fn is_known(package: &str) -> bool {
    succeeds(Command::new("apt-cache").args(["show", "--no-all-versions", package]))
}

fn apt(arguments: &[&str]) -> Result<()> {
    let root = Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout.trim_ascii() == b"0");
    let mut command = Command::new(if root { "env" } else { "sudo" });
    if !root {
        command.arg("env");
    }
    run(command.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]).args(arguments))
}

fn java_version() -> Option<u32> {
    let out = Command::new("java").arg("-version").output().ok()?;
    parse_java_version(&String::from_utf8_lossy(&out.stderr))
}

/// `openjdk version "17.0.15" 2025-04-15` is 17, `java version "1.8.0_392"` is 8.
fn parse_java_version(text: &str) -> Option<u32> {
    let version = text.split('"').nth(1)?;
    let version = version.strip_prefix("1.").unwrap_or(version);
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Where bindgen looks for the library.
fn libclang_folders() -> Vec<PathBuf> {
    let mut folders = Vec::from_iter(std::env::var_os("LIBCLANG_PATH").map(PathBuf::from));
    for folder in ["/usr/lib", "/usr/lib64", "/usr/local/lib"] {
        folders.push(folder.into());
        for entry in entries(Path::new(folder)) {
            folders.push(entry.join("lib"));
            folders.push(entry);
        }
    }
    folders
}

/// True where the library and the headers that come with the compiler (`stddef.h`) are both there.
fn libclang_is_in(folders: &[PathBuf]) -> bool {
    let is_library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        (name.starts_with("libclang.so") || name.starts_with("libclang-")) && name.contains(".so")
    };
    let has_header = |folder: &PathBuf| {
        entries(&folder.join("clang")).iter().any(|version| version.join("include/stddef.h").exists())
    };
    folders.iter().any(|folder| entries(folder).iter().any(is_library)) && folders.iter().any(has_header)
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
