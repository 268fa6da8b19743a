//! Attribute macros of `stoat-core`, which re-exports and documents them.

mod endpoint;
mod handlers;
mod main_fn;
mod processor;
mod topology;

use proc_macro::TokenStream;

use endpoint::Kind;

/// Declares a topic that is read.
#[proc_macro_attribute]
pub fn source(args: TokenStream, item: TokenStream) -> TokenStream {
    endpoint::expand(Kind::Source, args.into(), item.into()).into()
}

/// Declares a topic that is written.
#[proc_macro_attribute]
pub fn sink(args: TokenStream, item: TokenStream) -> TokenStream {
    endpoint::expand(Kind::Sink, args.into(), item.into()).into()
}

/// Declares a processor.
#[proc_macro_attribute]
pub fn processor(args: TokenStream, item: TokenStream) -> TokenStream {
    processor::expand(args.into(), item.into()).into()
}

/// Declares a processor's handlers.
#[proc_macro_attribute]
pub fn handlers(args: TokenStream, item: TokenStream) -> TokenStream {
    handlers::expand(args.into(), item.into()).into()
}

/// Declares a topology.
#[proc_macro_attribute]
pub fn topology(args: TokenStream, item: TokenStream) -> TokenStream {
    topology::expand(args.into(), item.into()).into()
}

/// Writes `fn main()`.
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    main_fn::expand(args.into(), item.into()).into()
}
