//! The journal's files: names, appending, syncing, reading, and what is done about torn tails.
//!
//! A directory holds `{first}-{last}-{generation}.journal`: the files numbered `first` to `last`, as one after a rewrite.
//! A file whose numbers lie within those of another is what that one was made of, and is removed on open. Only the
//! last file is appended to; all before it are on disk for sure before the next one is made.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind as Io, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::format::{
    self, Bad, ENTRY_HEADER, ENTRY_MAGIC, FILE_HEADER, FileHeader, VERSION, check_file_header, file_header, unframe,
};
use crate::broker::BrokerErrorKind;
use crate::error::{Error, ErrorKind, Result};

/// A file in memory: its number in this process, never used twice.
pub(super) type FileId = u32;

/// Where a file's bytes are.
pub(super) enum Bytes {
    Disk { file: File, path: PathBuf },
    Memory(Arc<Vec<u8>>),
}

impl Bytes {
    pub(super) fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Disk { file, .. } => {
                let mut file = file;
                file.seek(SeekFrom::Start(at))?;
                file.read_exact(buf)
            }
            Self::Memory(all) => {
                let from = usize::try_from(at).map_err(io::Error::other)?;
                let part = all.get(from..from + buf.len()).ok_or(Io::UnexpectedEof)?;
                buf.copy_from_slice(part);
                Ok(())
            }
        }
    }

    /// The same bytes for another thread. Only for files that are not appended to.
    pub(super) fn share(&self) -> io::Result<Self> {
        Ok(match self {
            // Opened anew: a cloned handle would share the read position.
            Self::Disk { path, .. } => Self::Disk { file: File::open(path)?, path: path.clone() },
            Self::Memory(all) => Self::Memory(Arc::clone(all)),
        })
    }

    pub(super) fn describe(&self) -> String {
        match self {
            Self::Disk { path, .. } => format!("`{}`", path.display()),
            Self::Memory(_) => "the journal in memory".to_owned(),
        }
    }
}

/// The numbers that a file stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) generation: u32,
}

impl Name {
    pub(super) fn file_name(self) -> String {
        format!("{:010}-{:010}-{:04}.journal", self.first, self.last, self.generation)
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_suffix(".journal")?.split('-');
        let name = Self {
            first: parts.next()?.parse().ok()?,
            last: parts.next()?.parse().ok()?,
            generation: parts.next()?.parse().ok()?,
        };
        (parts.next().is_none() && name.first <= name.last).then_some(name)
    }

    fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last && self.generation > other.generation
    }
}

/// One file of the journal.
pub(super) struct JournalFile {
    pub(super) name: Name,
    pub(super) len: u64,
    pub(super) bytes: Bytes,
}

/// A failed append; nothing of it is visible.
#[derive(Debug)]
pub(super) struct AppendError {
    pub(super) kind: BrokerErrorKind,
    pub(super) message: String,
}

/// All files, and the one that is appended to.
pub(super) struct Journal {
    dir: Option<PathBuf>,
    files: BTreeMap<FileId, JournalFile>,
    /// In the order of their numbers; the last is the active one.
    order: Vec<FileId>,
    next_id: FileId,
    file_bytes: u64,
    /// How much of the active file is on disk for sure.
    synced: u64,
    /// Whether nobody syncs: then what was written counts as on disk, so that damage is told from a torn tail.
    never_synced: bool,
    /// A failed append left a piece behind that could not be cut off yet.
    torn: bool,
    /// Held as long as the journal is open.
    _lock: Option<File>,
    #[cfg(test)]
    pub(super) disk_limit: Option<Arc<std::sync::atomic::AtomicU64>>,
    #[cfg(test)]
    pub(super) syncs: Option<Arc<std::sync::atomic::AtomicU64>>,
}

fn state(dir: &Path, what: &str, e: io::Error) -> Error {
    let advice = match e.kind() {
        Io::StorageFull | Io::QuotaExceeded => "make room on its disk",
        Io::PermissionDenied | Io::ReadOnlyFilesystem => {
            "make it writable for this process, or choose another directory"
        }
        Io::NotADirectory | Io::AlreadyExists => "choose another directory: there is a file of this name",
        _ => "check the disk, or choose another directory",
    };
    let message = format!("the embedded broker cannot {what} in `{}` ({advice})", dir.display());
    Error::with_source(ErrorKind::State, message, e)
}

/// Makes the directory's entries durable.
pub(super) fn sync_dir(dir: &Path) -> io::Result<()> {
    if cfg!(unix) { File::open(dir)?.sync_all() } else { Ok(()) }
}

fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| state(dir, "make the lock file", e))?;
    // Whose lock it is stands in a file of its own: a locked one cannot be read everywhere.
    let owner = dir.join("owner");
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let who = fs::read_to_string(&owner).unwrap_or_default();
            let who = if who.trim().is_empty() { "another process".to_owned() } else { who.trim().to_owned() };
            return Err(Error::new(
                ErrorKind::Fenced,
                format!(
                    "the embedded broker's directory `{}` is in use by {who}: stop it, or choose another directory; several applications share a broker only in one process",
                    dir.display()
                ),
            ));
        }
        Err(TryLockError::Error(e)) => return Err(state(dir, "lock its directory", e)),
    }
    let program = std::env::args_os().next().map(|p| p.to_string_lossy().into_owned()).unwrap_or_default();
    fs::write(&owner, format!("process {} ({program})\n", std::process::id()))
        .map_err(|e| state(dir, "write the owner's name", e))?;
    Ok(file)
}

/// What is done with each entry on open: file, position of the body, body.
pub(super) type Visit<'a> = dyn FnMut(FileId, u64, &[u8]) -> Result<(), Bad> + 'a;

impl Journal {
    /// Opens or makes the journal of a directory and visits all its entries in order.
    pub(super) fn open(
        dir: Option<PathBuf>,
        file_bytes: u64,
        never_synced: bool,
        visit: &mut Visit<'_>,
    ) -> Result<Self> {
        let lock = match &dir {
            None => None,
            Some(dir) => {
                fs::create_dir_all(dir).map_err(|e| state(dir, "create its directory", e))?;
                Some(lock(dir)?)
            }
        };
        let mut journal = Self {
            dir: dir.clone(),
            files: BTreeMap::new(),
            order: Vec::new(),
            next_id: 0,
            file_bytes,
            synced: 0,
            never_synced,
            torn: false,
            _lock: lock,
            #[cfg(test)]
            disk_limit: None,
            #[cfg(test)]
            syncs: None,
        };
        let Some(dir) = dir else {
            journal.create(0).expect("memory does not fail");
            return Ok(journal);
        };
        let names = tidy(&dir)?;
        let last = names.len().saturating_sub(1);
        for (i, name) in names.iter().enumerate() {
            journal.load(&dir, *name, i == last, visit)?;
        }
        if names.is_empty() {
            journal.create(0).map_err(|e| state(&dir, "begin its journal", e))?;
        }
        Ok(journal)
    }

    fn load(&mut self, dir: &Path, name: Name, last: bool, visit: &mut Visit<'_>) -> Result<()> {
        let path = dir.join(name.file_name());
        let io = |e| state(dir, &format!("read `{}`", name.file_name()), e);
        let file = OpenOptions::new().read(true).write(true).open(&path).map_err(io)?;
        let mut all = Vec::new();
        (&file).read_to_end(&mut all).map_err(io)?;
        let damaged = |at: usize, what: &str| {
            Error::new(
                ErrorKind::State,
                format!(
                    "the embedded broker's journal is damaged: `{}`, byte {at}: {what}. Restore the directory from a copy, or remove it to begin with an empty broker",
                    path.display()
                ),
            )
        };
        let id = self.next_id;
        self.next_id += 1;
        let mut at = FILE_HEADER;
        match check_file_header(&all) {
            FileHeader::Ok => {}
            FileHeader::Version(v) => {
                return Err(Error::new(
                    ErrorKind::State,
                    format!(
                        "`{}` has version {v} of the journal's format; this program knows version {VERSION}: use a program that knows it, or choose another directory",
                        path.display()
                    ),
                ));
            }
            // A crash while the file was made: nothing was appended yet.
            FileHeader::Bad if last && valid_behind(&all, 0).is_none() => at = 0,
            FileHeader::Bad => return Err(damaged(0, "this is no journal file")),
        }
        if at > 0 {
            while at < all.len() {
                let Some(entry) = unframe(&all[at..]) else { break };
                visit(id, (at + ENTRY_HEADER) as u64, entry.body).map_err(|bad| damaged(at, bad))?;
                at += ENTRY_HEADER + entry.body.len();
            }
            if at < all.len() && (!last || valid_behind(&all, at + 1).is_some_and(|synced| synced > at as u64)) {
                return Err(damaged(at, "an entry's checksum is wrong"));
            }
        }
        let cut = |e| state(dir, &format!("cut the torn tail of `{}`", name.file_name()), e);
        if at < all.len() || at == 0 {
            tracing::warn!(file = %path.display(), from = at, to = all.len(), "cut a torn tail off the journal");
            file.set_len(at as u64).map_err(cut)?;
            if at == 0 {
                (&file).seek(SeekFrom::Start(0)).map_err(cut)?;
                (&file).write_all(&file_header()).map_err(cut)?;
                at = FILE_HEADER;
            }
        }
        if last {
            // What was read may still be in the system's cache only.
            file.sync_all().map_err(cut)?;
            self.synced = at as u64;
        }
        self.files.insert(id, JournalFile { name, len: at as u64, bytes: Bytes::Disk { file, path } });
        self.order.push(id);
        Ok(())
    }

    /// Makes the file numbered `number` and appends to it from now on.
    fn create(&mut self, number: u64) -> io::Result<()> {
        let name = Name { first: number, last: number, generation: 0 };
        let bytes = match &self.dir {
            None => Bytes::Memory(Arc::new(file_header().to_vec())),
            Some(dir) => {
                let path = dir.join(name.file_name());
                let made = (|| -> io::Result<File> {
                    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
                    (&file).write_all(&file_header())?;
                    file.sync_all()?;
                    sync_dir(dir)?;
                    Ok(file)
                })();
                let file = made.inspect_err(|_| {
                    let _ = fs::remove_file(&path);
                })?;
                Bytes::Disk { file, path }
            }
        };
        let id = self.next_id;
        self.next_id += 1;
        self.files.insert(id, JournalFile { name, len: FILE_HEADER as u64, bytes });
        self.order.push(id);
        self.synced = FILE_HEADER as u64;
        Ok(())
    }

    /// The file that is appended to.
    pub(super) fn active(&self) -> FileId {
        *self.order.last().expect("there is always an active file")
    }

    fn active_file(&mut self) -> &mut JournalFile {
        let id = self.active();
        self.files.get_mut(&id).expect("the active file is open")
    }

    /// The files that are not appended to any more, oldest first.
    pub(super) fn sealed(&self) -> &[FileId] {
        &self.order[..self.order.len() - 1]
    }

    pub(super) fn file(&self, id: FileId) -> Option<&JournalFile> {
        self.files.get(&id)
    }

    pub(super) fn dir(&self) -> Option<&Path> {
        self.dir.as_deref()
    }

    /// Appends an entry (begun with [`format::begin_entry`]); gives the file and the position of the body.
    pub(super) fn append(&mut self, entry: &mut [u8]) -> Result<(FileId, u64), AppendError> {
        self.cut_torn()?;
        let len = self.active_file().len;
        if len > FILE_HEADER as u64 && len + entry.len() as u64 > self.file_bytes {
            // If no new file can be made, this one grows; the append tells if that does not work either.
            if let Err(e) = self.roll() {
                tracing::warn!(error = %e, "the journal goes on in the same file: no new one can be made");
            }
        }
        let at = self.active_file().len;
        let synced = if self.never_synced { at } else { self.synced };
        format::finish_entry(entry, synced).map_err(|bad| AppendError {
            kind: BrokerErrorKind::Abort,
            message: format!("a transaction is {bad}: commit more often"),
        })?;
        #[cfg(test)]
        let limit = self.disk_limit.as_ref().map(|l| l.load(std::sync::atomic::Ordering::SeqCst));
        let active = self.active_file();
        let wrote = match &mut active.bytes {
            Bytes::Memory(all) => {
                Arc::make_mut(all).extend_from_slice(entry);
                Ok(())
            }
            Bytes::Disk { file, .. } => {
                let mut file = &*file;
                file.seek(SeekFrom::Start(at)).and_then(|_| {
                    #[cfg(test)]
                    if let Some(left) = limit.filter(|l| *l < entry.len() as u64) {
                        file.write_all(&entry[..left as usize])?;
                        return Err(Io::StorageFull.into());
                    }
                    file.write_all(entry)
                })
            }
        };
        if let Err(e) = wrote {
            let full = matches!(e.kind(), Io::StorageFull | Io::QuotaExceeded);
            let advice = if full { "make room on its disk; it is tried again" } else { "check the disk" };
            let message = format!(
                "the embedded broker cannot append {} bytes to {}: {e} ({advice})",
                entry.len(),
                active.bytes.describe()
            );
            self.torn = true;
            // When it fails here, it is tried again before the next append.
            let _ = self.cut_torn();
            let kind = if full { BrokerErrorKind::Retriable } else { BrokerErrorKind::Fatal };
            return Err(AppendError { kind, message });
        }
        active.len += entry.len() as u64;
        Ok((self.active(), at + ENTRY_HEADER as u64))
    }

    fn cut_torn(&mut self) -> Result<(), AppendError> {
        if !self.torn {
            return Ok(());
        }
        let active = self.active_file();
        if let Bytes::Disk { file, path } = &active.bytes {
            file.set_len(active.len).map_err(|e| AppendError {
                kind: BrokerErrorKind::Fatal,
                message: format!("the embedded broker cannot cut a torn append off `{}`: {e}", path.display()),
            })?;
        }
        self.torn = false;
        Ok(())
    }

    /// Begins a new file. What was appended before is on disk for sure then.
    fn roll(&mut self) -> io::Result<()> {
        self.sync()?;
        let number = self.active_file().name.last + 1;
        self.create(number)
    }

    /// Puts on disk what was appended.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        let active = self.active_file();
        let len = active.len;
        if let Bytes::Disk { file, .. } = &active.bytes {
            file.sync_data()?;
        }
        #[cfg(test)]
        if let Some(syncs) = &self.syncs {
            syncs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
        self.synced = len;
        Ok(())
    }

    /// Whether something was appended that is not on disk for sure.
    pub(super) fn unsynced(&self) -> bool {
        self.dir.is_some() && self.files[&self.active()].len > self.synced
    }

    /// Reads part of a file.
    pub(super) fn read(&self, id: FileId, at: u64, buf: &mut [u8]) -> Result<(), String> {
        let file = self.files.get(&id).ok_or("a file of the journal is not open")?;
        file.bytes.read(at, buf).map_err(|e| {
            format!("the embedded broker cannot read {}, byte {at}: {e}; check the disk", file.bytes.describe())
        })
    }

    /// Puts a rewritten file in the place of those that it was made of, and removes them.
    pub(super) fn replace(&mut self, old: &[FileId], new: JournalFile) -> FileId {
        let id = self.next_id;
        self.next_id += 1;
        let at =
            self.order.iter().position(|f| *f == old[0]).expect("rewritten files are known until they are replaced");
        self.order.splice(at..at + old.len(), [id]);
        self.files.insert(id, new);
        for file in old {
            let Some(JournalFile { bytes: Bytes::Disk { file, path }, .. }) = self.files.remove(file) else { continue };
            drop(file);
            // If it stays, the next open removes it: the new one covers it.
            if let Err(e) = fs::remove_file(&path) {
                tracing::warn!(file = %path.display(), error = %e, "cannot remove a rewritten journal file");
            }
        }
        id
    }
}

/// Removes what crashes left behind; the names of the files that count, in order and without a gap.
fn tidy(dir: &Path) -> Result<Vec<Name>> {
    let io = |e| state(dir, "list its files", e);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        let name = name.to_string_lossy();
        if name.ends_with(".journal.tmp") {
            fs::remove_file(dir.join(&*name)).map_err(|e| state(dir, "remove an unfinished file", e))?;
        } else if let Some(parsed) = Name::parse(&name) {
            names.push(parsed);
        }
    }
    let superseded: Vec<Name> = names.iter().filter(|n| names.iter().any(|other| other.covers(**n))).copied().collect();
    for name in &superseded {
        fs::remove_file(dir.join(name.file_name())).map_err(|e| state(dir, "remove a rewritten file", e))?;
    }
    names.retain(|n| !superseded.contains(n));
    names.sort_by_key(|n| (n.first, n.last));
    let mut next = 0;
    for name in &names {
        if name.first != next {
            return Err(Error::new(
                ErrorKind::State,
                format!(
                    "the embedded broker's journal in `{}` is incomplete: before `{}` there is no file that begins with number {next}. Restore the directory from a copy, or remove it to begin with an empty broker",
                    dir.display(),
                    name.file_name()
                ),
            ));
        }
        next = name.last + 1;
    }
    Ok(names)
}

/// Looks for whole entries from `from` on; the largest `synced` that one of them tells.
fn valid_behind(all: &[u8], mut from: usize) -> Option<u64> {
    let mut found = None;
    while let Some(at) = all.get(from..).and_then(|rest| rest.windows(4).position(|w| w == ENTRY_MAGIC)) {
        let at = from + at;
        from = match unframe(&all[at..]) {
            Some(entry) => {
                found = found.max(Some(entry.synced));
                at + ENTRY_HEADER + entry.body.len()
            }
            None => at + 1,
        };
    }
    found
}
