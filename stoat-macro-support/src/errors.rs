//! The error collector.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};
use quote::ToTokens;

/// All errors of one macro call. A macro reports every mistake that it finds, and goes on.
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
    pub fn on(&mut self, tokens: impl ToTokens, message: impl Display) {
        self.list.push(syn::Error::new_spanned(tokens, message));
    }

    /// Adds an error at a place.
    pub fn at(&mut self, span: Span, message: impl Display) {
        self.list.push(syn::Error::new(span, message));
    }

    /// Adds an error of the parser.
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

    /// The texts, in order; for tests.
    pub fn texts(&self) -> Vec<String> {
        self.list.iter().flat_map(|e| e.clone().into_iter().map(|e| e.to_string())).collect()
    }
}

impl ToTokens for Errors {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        for e in &self.list {
            tokens.extend(e.to_compile_error());
        }
    }
}
