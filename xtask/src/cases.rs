//! The mistakes that the compiler explains, with what it says: from the answers that `ui-tests` keeps.

use std::fs;
use std::path::PathBuf;

use crate::sh::{Context as _, Result, root};

fn entries(folder: &PathBuf) -> Result<Vec<PathBuf>> {
    let read = fs::read_dir(folder).context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = read.filter_map(|e| e.ok().map(|e| e.path())).collect();
    paths.sort();
    Ok(paths)
}

/// Prints each case with its number of errors and the first line.
pub(crate) fn print() -> Result<()> {
    println!("| case | errors | first line |\n|---|---|---|");
    let (mut cases, mut several) = (0, 0);
    for group in entries(&root().join("ui-tests/ui"))? {
        let fail = group.join("fail");
        if !fail.is_dir() {
            continue;
        }
        for path in entries(&fail)?.into_iter().filter(|p| p.extension().is_some_and(|e| e == "stderr")) {
            let text = fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
            let errors: Vec<&str> = text.lines().filter(|l| l.starts_with("error")).collect();
            let name = format!(
                "{}/{}",
                group.file_name().unwrap_or_default().to_string_lossy(),
                path.file_stem().unwrap_or_default().to_string_lossy()
            );
            let first = errors.first().copied().unwrap_or_default().replace('|', "\\|");
            println!("| {name} | {} | {first} |", errors.len());
            cases += 1;
            several += u32::from(errors.len() > 1);
        }
    }
    println!("\n{cases} cases, {several} of them with more than one error");
    Ok(())
}
