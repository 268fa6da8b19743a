//! The pages of `docs/errors`: each is made of a case and its mended program, and both are compiled here. So a page cannot say
//! something else than the compiler.
//!
//! `STOAT_BLESS=1 cargo test -p stoat-ui-tests --test errors` writes the pages anew.

#[path = "errors/table.rs"]
mod table;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use table::{PAGES, Page};

fn ui() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

impl Page {
    fn wrong(&self) -> String {
        read(&ui().join(format!("{}.rs", self.case)))
    }

    /// What the compiler says: the first line, the place, and the notes that are ours.
    fn message(&self) -> String {
        let all = read(&ui().join(format!("{}.stderr", self.case)));
        let first = all.split("\n\n").next().unwrap_or_default();
        let is_more = |l: &str| ["= ", "help:", "note:"].iter().any(|m| l.trim_start().starts_with(m));
        let excerpt = first.lines().take_while(|l| !is_more(l));
        let ours = first.lines().filter(|l| {
            let theirs = ["required", "this error originates", "expected", "`"];
            l.trim_start().strip_prefix("= note: ").is_some_and(|n| !theirs.iter().any(|t| n.starts_with(t)))
        });
        let lines = excerpt.chain(ours).map(str::trim_end);
        lines.fold(String::new(), |text, line| text + line + "\n")
    }

    fn mended(&self) -> String {
        self.mend.iter().fold(self.wrong(), |text, (from, to)| {
            assert!(text.contains(from), "{}: `{from}` is not in the program:\n{text}", self.code);
            text.replacen(from, to, 1)
        })
    }

    fn text(&self) -> String {
        let Self { code, title, why, .. } = self;
        // What every program has is left out.
        let shown = |program: String| {
            let lines = program.lines().filter(|l| {
                *l != "use stoat_ui_tests::*;" && *l != "use stoat_core::prelude::*;" && *l != "fn main() {}"
            });
            lines.collect::<Vec<_>>().join("\n").trim().to_owned()
        };
        format!(
            "# {code}: {title}\n\n```rust,ignore\n{}\n```\n\n```text\n{}```\n\n{why}\n\n## Mended\n\n```rust,ignore\n{}\n```\n",
            shown(self.wrong()),
            self.message(),
            shown(self.mended())
        )
    }
}

fn index() -> String {
    let mut text = "# What the compiler says about a topology\n\nEach message of the macros ends with a code, such as `[S505]`. Its page has a wrong \
                    program, what would have happened at run time, and the mended program. Tests compile both.\n\n\
                    The pages are written by `STOAT_BLESS=1 cargo test -p stoat-ui-tests --test errors`; their text stands in \
                    `ui-tests/tests/errors/table.rs`.\n\n| code | mistake |\n|---|---|\n"
        .to_owned();
    for p in PAGES {
        writeln!(text, "| [{0}]({0}.md) | {1} |", p.code, p.title).expect("a string takes everything");
    }
    text
}

/// Compares a file with what it should be, or writes it.
fn keep(path: &Path, text: &str) {
    if std::env::var_os("STOAT_BLESS").is_some() {
        fs::create_dir_all(path.parent().expect("a file has a folder")).expect("the folder can be made");
        fs::write(path, text).expect("the file can be written");
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "{} has drifted: look at it with STOAT_BLESS=1 and git diff", path.display());
}

#[test]
fn each_code_has_its_page_and_each_page_its_programs() {
    for page in PAGES {
        keep(&docs().join(format!("{}.md", page.code)), &page.text());
        let first = page.message();
        assert!(
            first.lines().next().is_some_and(|l| l.contains(&format!("[{}]", page.code))),
            "{}: {first}",
            page.code
        );
    }
    keep(&docs().join("README.md"), &index());
    let files = fs::read_dir(docs()).expect("the pages are there");
    let names: BTreeSet<String> =
        files.map(|f| f.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    let want: BTreeSet<String> =
        PAGES.iter().map(|p| format!("{}.md", p.code)).chain(["README.md".to_owned()]).collect();
    assert_eq!(names, want);
}

/// One program with a module per page; trybuild builds it (`ui/errors/pass`).
#[test]
fn mended_programs_are_what_is_compiled() {
    let mut text = "//! The mended programs of `docs/errors`: written by `tests/errors.rs`, do not edit.\n\
                    #![allow(dead_code, unused_imports, unused_variables, unused_mut)]\n"
        .to_owned();
    for page in PAGES {
        writeln!(text, "\n/// {}\nmod {} {{", page.title, page.code.to_lowercase()).expect("a string takes everything");
        for line in page.mended().trim().lines() {
            let indent = if line.is_empty() { "" } else { "    " };
            writeln!(text, "{indent}{line}").expect("a string takes everything");
        }
        text.push_str("}\n");
    }
    text.push_str("\nfn main() {}\n");
    keep(&ui().join("errors/pass/mended.rs"), &text);
}

/// All codes that the sources of the library and the macros can print.
fn codes() -> BTreeSet<String> {
    fn visit(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(dir).expect("the sources are there") {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                visit(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = read(&path);
                for (i, _) in text.match_indices('S') {
                    let code = &text.as_bytes()[i..];
                    let quoted = i > 0 && matches!(text.as_bytes()[i - 1], b'"' | b'[') && code.len() > 4;
                    if quoted && code[1..4].iter().all(u8::is_ascii_digit) && matches!(code[4], b'"' | b']') {
                        found.insert(text[i..i + 4].to_owned());
                    }
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    for krate in ["stoat-core", "stoat-macros", "stoat-derive", "stoat-macro-support"] {
        visit(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(krate).join("src"), &mut found);
    }
    found
}

#[test]
fn every_code_that_can_be_printed_has_a_page() {
    let pages: BTreeSet<String> = PAGES.iter().map(|p| p.code.to_owned()).collect();
    assert_eq!(codes(), pages);
}
