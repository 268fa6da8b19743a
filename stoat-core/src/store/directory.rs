//! The state directory of one application: who may use it, and in which format it is.
//!
//! | file | holds |
//! |---|---|
//! | `LOCK` | the process id of the one process that uses the directory, which also holds the file's lock |
//! | `FORMAT` | three lines: `stoat-state`, `version 1`, `application "<id>"` (the id as a JSON string) |
//! | `rocksdb/` | the stores |

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};

const MAGIC: &str = "stoat-state";
const VERSION: u32 = 1;

/// A state directory that this process has locked. The lock ends with the value, or with the process.
#[derive(Debug)]
pub(super) struct StateDirectory {
    path: PathBuf,
    _lock: File,
}

impl StateDirectory {
    /// Makes the directory if it is new, locks it and checks its format.
    pub(super) fn open(path: &Path, application_id: &str) -> Result<Self> {
        fs::create_dir_all(path).map_err(|e| unusable(path, "made", e))?;
        let lock = lock(path)?;
        check_format(path, application_id)?;
        Ok(Self { path: path.to_owned(), _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn rocksdb(&self) -> PathBuf {
        rocksdb(&self.path)
    }
}

fn rocksdb(path: &Path) -> PathBuf {
    path.join("rocksdb")
}

fn lock(path: &Path) -> Result<File> {
    let file = path.join("LOCK");
    let mut lock = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&file)
        .map_err(|e| unusable(path, "written", e))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder may not have written its number yet; the message does without it then.
            let _ = lock.read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "another process".to_owned(),
                pid => format!("process {pid}"),
            };
            return Err(Error::new(
                ErrorKind::Fenced,
                format!(
                    "the state directory `{}` is in use by {holder}: stop it first, or give this instance a directory of its own",
                    path.display()
                ),
            ));
        }
        Err(TryLockError::Error(e)) => return Err(unusable(path, "locked", e)),
    }
    let write = |lock: &mut File| {
        lock.set_len(0)?;
        lock.rewind()?;
        writeln!(lock, "{}", std::process::id())
    };
    write(&mut lock).map_err(|e| unusable(path, "written", e))?;
    Ok(lock)
}

fn check_format(path: &Path, application_id: &str) -> Result<()> {
    let file = path.join("FORMAT");
    let found = match fs::read(&file) {
        Ok(found) => found,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            // FORMAT is on disk before RocksDB begins, so state without it was not left behind by a crash.
            if rocksdb(path).exists() {
                return Err(refused(path, "holds `rocksdb/` but no `FORMAT` file", application_id));
            }
            return write_format(path, application_id).map_err(|e| unusable(path, "written", e));
        }
        Err(e) => return Err(unusable(path, "read", e)),
    };
    let found = String::from_utf8_lossy(&found);
    match parse_format(&found) {
        Format::Ours { application } if application == application_id => Ok(()),
        Format::Ours { application } => Err(Error::new(
            ErrorKind::State,
            format!(
                "the state directory `{}` belongs to application `{application}`, not to `{application_id}`: give each \
                 application a directory of its own",
                path.display()
            ),
        )),
        Format::Version(version) => Err(Error::new(
            ErrorKind::State,
            format!(
                "the state directory `{}` has format version {version}, but this program knows version {VERSION} only: \
                 upgrade the program, or delete the directory (it is a cache and is rebuilt from the changelogs)",
                path.display()
            ),
        )),
        Format::Unknown => {
            let first: String = found.lines().next().unwrap_or_default().chars().take(40).collect();
            Err(refused(
                path,
                &format!("has a `FORMAT` file that begins with `{}`", first.escape_debug()),
                application_id,
            ))
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Format {
    Ours { application: String },
    Version(u32),
    Unknown,
}

fn parse_format(text: &str) -> Format {
    let mut lines = text.lines();
    if lines.next() != Some(MAGIC) {
        return Format::Unknown;
    }
    let version = lines.next().and_then(|l| l.strip_prefix("version ")).and_then(|v| v.parse().ok());
    match version {
        Some(VERSION) => {}
        Some(other) => return Format::Version(other),
        None => return Format::Unknown,
    }
    let application = lines.next().and_then(|l| l.strip_prefix("application "));
    match (application.and_then(|a| serde_json::from_str(a).ok()), lines.next()) {
        (Some(application), None) => Format::Ours { application },
        _ => Format::Unknown,
    }
}

pub(super) fn format_text(application_id: &str) -> String {
    // As a JSON string, so that no id can look like another line.
    let application = serde_json::Value::from(application_id);
    format!("{MAGIC}\nversion {VERSION}\napplication {application}\n")
}

/// Writes the file whole or not at all, and waits until it is on disk.
fn write_format(path: &Path, application_id: &str) -> io::Result<()> {
    let draft = path.join("FORMAT.new");
    let mut file = File::create(&draft)?;
    file.write_all(format_text(application_id).as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path.join("FORMAT"))?;
    File::open(path)?.sync_all()
}

fn refused(path: &Path, found: &str, application_id: &str) -> Error {
    Error::new(
        ErrorKind::State,
        format!(
            "the state directory `{}` {found}, where `{MAGIC}`, version {VERSION}, application `{application_id}` is \
             expected: choose another directory, or delete this one if it is Stoat's (then it is a cache and is \
             rebuilt from the changelogs)",
            path.display()
        ),
    )
}

fn unusable(path: &Path, done: &str, e: io::Error) -> Error {
    let advice = match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "free space on its disk, then start again",
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make it writable for this user, or choose another directory"
        }
        io::ErrorKind::Unsupported => "choose a directory on a local disk, where files can be locked",
        _ => "check the path, its permissions and its disk, or choose another directory",
    };
    Error::new(ErrorKind::State, format!("the state directory `{}` cannot be {done} ({e}): {advice}", path.display()))
}
