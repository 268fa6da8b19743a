//! `#[source]` and `#[sink]`: topics with their types.

mod expand;
mod parse;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use stoat_macro_support::Errors;
use syn::{Expr, ItemStruct, Path, Type};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Source,
    Sink,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Sink => "sink",
        }
    }
}

/// What was read.
pub(crate) struct Endpoint {
    kind: Kind,
    item: ItemStruct,
    krate: TokenStream,
    topic: Option<syn::LitStr>,
    /// The stable name: `name = ".."` or the struct's.
    name: String,
    /// `None`: bytes that may be missing.
    key: Option<Type>,
    value: Option<Type>,
    key_codec: Option<Path>,
    value_codec: Option<Path>,
    decode_only: bool,
    /// In ms; `None`: the strategy's default.
    out_of_orderness: Option<u64>,
    idleness: Option<u64>,
    future_bound: Option<u64>,
    close_on_idle: Option<u64>,
    /// One of [`parse::NO_TIMESTAMP`].
    no_timestamp: Option<&'static str>,
    /// The type that derives the watermark.
    watermark: Option<Type>,
    /// What takes the time from a record.
    timestamp: Option<Expr>,
}

pub(crate) fn expand(kind: Kind, args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let Some(endpoint) = parse::parse(kind, args, item.clone(), &mut errors) else {
        let mut out = errors.to_token_stream();
        out.extend(item);
        return out;
    };
    let item = &endpoint.item;
    // An impl for a generic struct would have an error of its own.
    let code = item.generics.params.is_empty().then(|| expand::expand(&endpoint));
    quote!(#item #errors #code)
}
