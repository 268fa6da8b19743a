//! The runtime's path, and types that the macros know by their names.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{GenericArgument, Path, PathArguments, Type};

use crate::Args;
use crate::Errors;

/// The path of the runtime crate: `crate = path`, else `::stoat_core`.
pub fn krate(args: &Args, errors: &mut Errors) -> TokenStream {
    args.parse::<Path>("crate", errors).map_or_else(|| quote!(::stoat_core), |p| p.to_token_stream())
}

/// `K` of `Option<K>`, by its last name: an alias is not seen.
pub fn option_inner(ty: &Type) -> Option<&Type> {
    let Type::Path(p) = ty else { return None };
    let last = p.path.segments.last()?;
    if last.ident != "Option" {
        return None;
    }
    let PathArguments::AngleBracketed(args) = &last.arguments else {
        return None;
    };
    match args.args.first()? {
        GenericArgument::Type(t) if args.args.len() == 1 => Some(t),
        _ => None,
    }
}

/// Wraps a codec into `Nullable` where the type has a place for Kafka's null.
pub fn nullable(krate: &TokenStream, ty: &Type, codec: TokenStream) -> TokenStream {
    if option_inner(ty).is_some() { quote!(#krate::codec::Nullable<#codec>) } else { codec }
}

/// The codecs whose bytes are those of one inner value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// Text.
    Utf8,
    /// Big-endian integers.
    Be,
    /// Bytes.
    Bytes,
    /// Through serde.
    Json,
    /// The user's own.
    Other,
}

impl Codec {
    /// By the path's last name.
    pub fn of(path: &Path) -> Self {
        match path.segments.last().map(|s| s.ident.to_string()).as_deref() {
            Some("Utf8") => Self::Utf8,
            Some("Be") => Self::Be,
            Some("Bytes") => Self::Bytes,
            Some("Json") => Self::Json,
            _ => Self::Other,
        }
    }

    /// Whether a newtype is written as what it wraps.
    pub fn delegates(self) -> bool {
        matches!(self, Self::Utf8 | Self::Be | Self::Bytes)
    }
}

/// `ty`, where `constant` can be computed; else that is the one error, and the type is one too. See
/// `stoat_core::__private::Checked`.
pub fn checked(krate: &TokenStream, constant: &TokenStream, ty: &impl ToTokens) -> TokenStream {
    quote!(#krate::__private::Checked<{ #constant }, #ty>)
}

/// A key's type, checked to be a `Key` at the place of `asked`.
pub fn checked_key(krate: &TokenStream, asked: &Type, ty: &impl ToTokens) -> TokenStream {
    checked(krate, &asks(krate, asked, &quote!(HasCodec), asked.span()), ty)
}

/// The constant that asks for a trait of `stoat_core::__private`. It stands at `span`, and each token of the user where it does:
/// a name that is not known is then reported once.
pub fn asks(krate: &TokenStream, of: &impl ToTokens, wanted: &TokenStream, span: Span) -> TokenStream {
    let module = at(&quote!(#krate::__private), span);
    quote_spanned!(span=> <#of as #module::#wanted>::CHECKED)
}

/// Whether two pieces of syntax are spelt alike.
pub fn same_tokens(a: &impl ToTokens, b: &impl ToTokens) -> bool {
    a.to_token_stream().to_string() == b.to_token_stream().to_string()
}

/// The same tokens at another place: an error on a generated path is then reported there, as if the user had written it.
/// (So two equal errors about one type are shown once.) Whoever emits them allows `unused_qualifications`.
pub fn at(tokens: &TokenStream, span: Span) -> TokenStream {
    tokens
        .clone()
        .into_iter()
        .map(|mut t| {
            if let TokenTree::Group(g) = &t {
                t = TokenTree::Group(Group::new(g.delimiter(), at(&g.stream(), span)));
            }
            t.set_span(span);
            t
        })
        .collect()
}
