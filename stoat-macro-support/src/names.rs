//! Names: what leaves the program, and what a user may have meant.

use proc_macro2::Ident;
use quote::ToTokens;

/// The name without `r#`: what leaves the program (stores, changelogs, nodes, metrics).
pub fn plain(ident: &Ident) -> String {
    let s = ident.to_string();
    s.strip_prefix("r#").map_or_else(|| s.clone(), str::to_owned)
}

/// The known name that a misspelt one is close to.
pub fn closest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(given, k), *k))
        .filter(|(d, k)| *d <= 1 + k.len().max(given.len()) / 5)
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// A type, a pattern or an expression as its author would write it: without the spaces of tokens.
pub fn shown(tokens: &impl ToTokens) -> String {
    let pairs = [
        (" <", "<"),
        ("< ", "<"),
        (" >", ">"),
        (" ::", "::"),
        (":: ", "::"),
        (" ,", ","),
        ("& ", "&"),
        ("( ", "("),
        (" )", ")"),
    ];
    let text = tokens.to_token_stream().to_string();
    pairs.iter().fold(text, |text, (from, to)| text.replace(from, to))
}
