//! Builds RocksDB once for all profiles, projects and clones.
//!
//! The build script of `librocksdb-sys` compiles some 340 files one by one, for each profile and target folder
//! anew, and spends most of that time on the same headers. Here the files of one folder are compiled in units of
//! twenty-five, a third of the work, into a static library that `ROCKSDB_LIB_DIR` and `ROCKSDB_STATIC` point to.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::sh::{Context as _, Result, cache_root, cargo, output};

#[cfg(test)]
mod tests;

/// What the build script of the crate passes on Linux, with lz4 as the only compression.
const FLAGS: &[&str] = &[
    "-std=c++20",
    "-O2",
    "-w",
    "-fPIC",
    "-ffunction-sections",
    "-fdata-sections",
    "-include",
    "cstdint",
    "-DNDEBUG=1",
    "-DLZ4=1",
    "-DOS_LINUX",
    "-DHAVE_ALIGNED_NEW",
    "-DHAVE_UINT128_EXTENSION",
    "-DROCKSDB_PLATFORM_POSIX",
    "-DROCKSDB_LIB_IO_POSIX",
    "-DROCKSDB_SCHED_GETCPU_PRESENT",
    "-DROCKSDB_AUXV_GETAUXVAL_PRESENT",
    "-DROCKSDB_FALLOCATE_PRESENT",
    "-DROCKSDB_RANGESYNC_PRESENT",
];
/// Checksums with SSE 4.2, which every x86-64 machine since 2009 has; without it they dominate the profile.
const FLAGS_X86_64: &[&str] = &["-msse4.2", "-mpclmul", "-mcrc32"];
/// Large enough, or too fond of names that others use too, to be units of their own.
const ALONE: &[&str] = &["db/c.cc", "db/db_impl/db_impl.cc", "db/version_set.cc", "options/options_helper.cc"];
const FILES_PER_UNIT: usize = 25;

/// The locked crate.
struct Sys {
    version: String,
    folder: PathBuf,
}

/// Builds the library unless it is there, and returns the folder for `ROCKSDB_LIB_DIR`.
pub(crate) fn ensure(manifest: Option<&Path>) -> Result<PathBuf> {
    let sys = locked(manifest)?;
    let folder = cache_root()?.join(format!("librocksdb-sys-{}-O2-lz4", sys.version));
    let library = folder.join("librocksdb.a");
    fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    // A second run waits for the first instead of doing its work again; the lock goes with the process.
    let lock = File::create(folder.join("lock")).context(|| format!("cannot write into {}", folder.display()))?;
    lock.lock().context(|| format!("cannot lock {}", folder.display()))?;
    if !library.exists() {
        let work = folder.join("work");
        // What an interrupted run left is not worth keeping: the lock says that nobody uses it.
        let _ = fs::remove_dir_all(&work);
        fs::create_dir(&work).context(|| format!("cannot create {}", work.display()))?;
        let built = build(&sys, &work, &library);
        let _ = fs::remove_dir_all(&work);
        built?;
    }
    Ok(folder)
}

/// Points a cargo command at the library.
pub(crate) fn set(command: &mut Command, folder: Option<&Path>) {
    if let Some(folder) = folder {
        command.env("ROCKSDB_LIB_DIR", folder).env("ROCKSDB_STATIC", "1");
    }
}

fn locked(manifest: Option<&Path>) -> Result<Sys> {
    let mut metadata = cargo();
    metadata.args(["metadata", "--format-version", "1", "--all-features"]);
    if let Some(manifest) = manifest {
        let manifest = fs::canonicalize(manifest).context(|| format!("no manifest at {}", manifest.display()))?;
        metadata.arg("--manifest-path").arg(manifest);
    }
    parse(&output(&mut metadata)?)
}

fn parse(metadata: &str) -> Result<Sys> {
    let metadata: serde_json::Value =
        serde_json::from_str(metadata).context(|| "`cargo metadata` printed no JSON".to_owned())?;
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let sys = packages.iter().find(|package| package["name"] == "librocksdb-sys");
    let field = |name: &str| sys.and_then(|package| package[name].as_str());
    match (field("version"), field("manifest_path").and_then(|path| Path::new(path).parent())) {
        (Some(version), Some(folder)) => Ok(Sys { version: version.to_owned(), folder: folder.to_owned() }),
        _ => Err("librocksdb-sys is not among the dependencies: there is nothing to build".into()),
    }
}

fn build(sys: &Sys, work: &Path, library: &Path) -> Result<()> {
    let list = sys.folder.join("rocksdb_lib_sources.txt");
    let list = fs::read_to_string(&list).context(|| format!("cannot read {}", list.display()))?;
    let lz4 = lz4_header(&sys.folder)?;
    let includes = [sys.folder.join("rocksdb/include"), sys.folder.join("rocksdb"), sys.folder.clone(), lz4];
    let compile = |name: &str, files: &[&str]| -> Result<PathBuf> {
        let (source, object) = (work.join(format!("{name}.cc")), work.join(format!("{name}.o")));
        let text: String = files.iter().map(|file| include(&sys.folder, file)).collect();
        fs::write(&source, text).context(|| format!("cannot write {}", source.display()))?;
        let mut compiler = Command::new("g++");
        compiler.args(FLAGS);
        if cfg!(target_arch = "x86_64") {
            compiler.args(FLAGS_X86_64);
        }
        for folder in &includes {
            compiler.arg("-I").arg(folder);
        }
        output(compiler.arg("-c").arg(&source).arg("-o").arg(&object))?;
        Ok(object)
    };

    let units = units(&list);
    let (version, n) = (&sys.version, units.len());
    eprintln!("  RocksDB of librocksdb-sys {version}: {n} units, about 6 minutes on 2 cores, once");
    let mut objects = Vec::new();
    let mut failed = Vec::new();
    let named: Vec<_> = units.iter().enumerate().map(|(i, files)| (format!("unit-{i}"), files.clone())).collect();
    for (result, (_, files)) in in_parallel(&named, |(name, files)| compile(name, files)).into_iter().zip(&named) {
        match result {
            Ok(object) => objects.push(object),
            Err(_) => failed.extend(files),
        }
    }
    // Files of another version may clash in one unit; alone they compile as cargo would compile them.
    let named: Vec<_> = failed.iter().enumerate().map(|(i, file)| (format!("file-{i}"), vec![*file])).collect();
    for result in in_parallel(&named, |(name, files)| compile(name, files)) {
        objects.push(result?);
    }

    let part = work.join("librocksdb.a");
    output(Command::new("ar").arg("rcsD").arg(&part).args(&objects))?;
    fs::rename(&part, library).context(|| format!("cannot move the library to {}", library.display()))
}

/// The files of each top folder in units, the large units first so that no core idles at the end.
fn units(list: &str) -> Vec<Vec<&str>> {
    let mut units: Vec<Vec<&str>> = Vec::new();
    let mut open: Vec<(&str, Vec<&str>)> = Vec::new();
    // `build_version.cc` lies beside RocksDB's folder: the crate writes its own.
    units.push(vec!["../build_version.cc"]);
    for file in list.lines().map(str::trim).filter(|file| !file.is_empty() && !file.ends_with("build_version.cc")) {
        if ALONE.contains(&file) || Path::new(file).extension().is_none_or(|extension| extension != "cc") {
            units.push(vec![file]);
            continue;
        }
        let top = file.split('/').next().unwrap_or(file);
        let at = open.iter().position(|(name, _)| *name == top).unwrap_or_else(|| {
            open.push((top, Vec::new()));
            open.len() - 1
        });
        open[at].1.push(file);
        if open[at].1.len() == FILES_PER_UNIT {
            units.push(std::mem::take(&mut open[at].1));
        }
    }
    units.extend(open.into_iter().map(|(_, files)| files).filter(|files| !files.is_empty()));
    units.sort_by_key(|files| std::cmp::Reverse(files.len()));
    units
}

fn include(sys: &Path, file: &str) -> String {
    format!("#include \"{}\"\n", sys.join("rocksdb").join(file).display())
}

/// The folder of `lz4.h`: stated, the system's, or in the crate `lz4-sys` that was unpacked beside this one.
fn lz4_header(sys: &Path) -> Result<PathBuf> {
    let mut folders = Vec::from_iter(std::env::var_os("LZ4_INCLUDE_DIR").map(PathBuf::from));
    folders.push("/usr/include".into());
    let beside = sys.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten();
    let mut crates: Vec<PathBuf> = beside
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("lz4-sys-"))
        .map(|entry| entry.path().join("liblz4/lib"))
        .collect();
    crates.sort();
    folders.extend(crates.into_iter().rev());
    folders
        .into_iter()
        .find(|folder| folder.join("lz4.h").exists())
        .ok_or_else(|| "no lz4.h: turn on the feature `lz4` of rocksdb, or install liblz4-dev".into())
}

/// Runs the work on all cores; the results come in the order of the items.
fn in_parallel<I: Sync, T: Send>(items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(2, usize::from).min(items.len());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((at, item)) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|at| Some((at, items.get(at)?)))
                {
                    let result = work(item);
                    let mut done = done.lock().expect("no worker panics while it holds the lock");
                    done.push((at, result));
                    eprintln!("  compiled {}/{}", done.len(), items.len());
                }
            });
        }
    });
    let mut done = done.into_inner().expect("no worker panics while it holds the lock");
    done.sort_by_key(|(at, _)| *at);
    done.into_iter().map(|(_, result)| result).collect()
}
