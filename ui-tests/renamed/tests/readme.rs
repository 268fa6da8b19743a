//! The program of this crate is the README's, with the library under another name and every lint that we promise to keep.
//!
//! `STOAT_BLESS=1 cargo test -p stoat-renamed-test` writes it anew.

use std::path::Path;

const HEAD: &str = "//! The README's program, with the library under another name. Written by `tests/readme.rs`: do not edit.\n\
                    #![forbid(unsafe_code)]\n\
                    #![deny(warnings, missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic)]\n\n";

/// The first whole program of the README, with the runtime's other name.
fn program() -> String {
    let readme =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md")).expect("it is there");
    let (_, rest) = readme.split_once("```rust,ignore\n").expect("the README has a program");
    let (program, _) = rest.split_once("\n```").expect("the program ends");
    let mut text = HEAD.to_owned();
    for line in program.lines() {
        // Comments at the end of a line are the README's.
        let line = line.split("  //").next().unwrap_or_default().trim_end();
        let line = line
            .replace("stoat_core::main(sessions)", "weir::main(sessions, crate = weir)")
            .replace("stoat_core", "weir");
        let line = match line.as_str() {
            "#[handlers]" => "#[handlers(crate = weir)]".to_owned(),
            "#[topology]" => "#[topology(crate = weir)]".to_owned(),
            l if ["#[source(", "#[sink(", "#[processor(", "#[key("].iter().any(|a| l.starts_with(a)) => {
                l.replace(")]", ", crate = weir)]")
            }
            _ => line,
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Without what rustfmt decides.
fn bare(text: &str) -> String {
    text.split_whitespace().collect::<String>().replace(",}", "}")
}

#[test]
fn the_program_is_that_of_the_readme() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/main.rs");
    let program = program();
    if std::env::var_os("STOAT_BLESS").is_some() {
        std::fs::write(&path, &program).expect("it can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("it is there");
    assert!(bare(&kept) == bare(&program), "write it with STOAT_BLESS=1, format it, and look at git diff");
}
