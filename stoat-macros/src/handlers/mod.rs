//! `#[handlers]`: what a processor does with records and timers.

mod expand;
mod parse;
#[cfg(test)]
mod tests;

use std::time::Duration;

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use stoat_macro_support::Errors;
use syn::{Attribute, ItemImpl, Type};

/// What was read.
pub(crate) struct Handlers {
    /// The user's impl; helper attributes are gone.
    item: ItemImpl,
    krate: TokenStream,
    /// `#[process]`; `None`: there is an error.
    process: Option<Handler>,
    timers: Vec<OnTimer>,
    /// Timers whose handler has an error: they count as handled.
    faulty: Vec<String>,
    punctuators: Vec<Punctuate>,
}

/// A method that the engine calls.
pub(crate) struct Handler {
    ident: Ident,
    cfgs: Vec<Attribute>,
    /// The types after `&mut self`.
    args: Vec<Type>,
    /// The return type; `None`: none is written.
    output: Option<Type>,
    /// Whether it may wait.
    is_async: bool,
}

/// `#[on_timer(field)]`
pub(crate) struct OnTimer {
    field: Ident,
    handler: Handler,
}

/// `#[punctuate(every = "..", clock = .., over = field)]`
pub(crate) struct Punctuate {
    every: Duration,
    wall: bool,
    over: Option<Ident>,
    handler: Handler,
}

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let Some(handlers) = parse::parse(args, item.clone(), &mut errors) else {
        let mut out = errors.to_token_stream();
        out.extend(item);
        return out;
    };
    let (code, item) = (expand::expand(&handlers), &handlers.item);
    quote!(#item #errors #code)
}
