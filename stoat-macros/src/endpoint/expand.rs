//! What the macro generates.

use proc_macro2::TokenStream;

use super::Endpoint;

pub(super) fn expand(_: &Endpoint) -> TokenStream {
    TokenStream::new()
}
