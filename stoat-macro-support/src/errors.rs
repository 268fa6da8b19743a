//! The error collector.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// All errors of one macro call. A macro reports every mistake that it finds, and goes on.
///
/// Each has the code of its page in `docs/errors`, which is part of the message.
#[derive(Debug, Default)]
pub struct Errors {
    list: Vec<syn::Error>,
}

impl Errors {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an error on these tokens.
    pub fn on(&mut self, code: &'static str, tokens: impl ToTokens, message: impl Display) {
        if !off::is(code) {
            self.push(syn::Error::new_spanned(tokens, format!("{message} [{code}]")));
        }
    }

    /// Adds an error at a place.
    pub fn at(&mut self, code: &'static str, span: Span, message: impl Display) {
        if !off::is(code) {
            self.push(syn::Error::new(span, format!("{message} [{code}]")));
        }
    }

    /// Adds an error of the parser about what is no Rust: it has no code, the compiler's words are the right ones.
    pub fn push(&mut self, error: syn::Error) {
        self.list.push(error);
    }

    /// Takes over another list.
    pub fn append(&mut self, other: Self) {
        self.list.extend(other.list);
    }

    /// Keeps a value, or its error.
    pub fn keep<T>(&mut self, result: syn::Result<T>) -> Option<T> {
        match result {
            Ok(v) => Some(v),
            Err(e) => {
                self.push(e);
                None
            }
        }
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The texts without codes, in order; for tests.
    pub fn texts(&self) -> Vec<String> {
        let all = self.list.iter().flat_map(|e| e.clone().into_iter().map(|e| e.to_string()));
        all.map(|t| t.rsplit_once(" [").map_or(t.clone(), |(text, _)| text.to_owned())).collect()
    }
}

impl ToTokens for Errors {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        for e in &self.list {
            tokens.extend(e.to_compile_error());
        }
    }
}

/// For tests that show what each rule is worth: one rule is switched off, by its code.
#[cfg(any(test, feature = "mutants"))]
pub mod off {
    use std::cell::Cell;

    thread_local! {
        static CODE: Cell<Option<&'static str>> = const { Cell::new(None) };
    }

    /// Runs with one rule off: its errors are not reported.
    pub fn with<T>(code: &'static str, run: impl FnOnce() -> T) -> T {
        CODE.set(Some(code));
        let result = run();
        CODE.set(None);
        result
    }

    pub(super) fn is(code: &str) -> bool {
        CODE.get() == Some(code)
    }
}

#[cfg(not(any(test, feature = "mutants")))]
mod off {
    pub(super) fn is(_: &str) -> bool {
        false
    }
}
