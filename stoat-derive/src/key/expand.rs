//! What the derive generates.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use stoat_macro_support::Codec;
use syn::spanned::Spanned;
use syn::{Member, WherePredicate, parse_quote_spanned};

use super::Key;

/// ```ignore
/// const _: () = {
///     impl Key for UserId { type Codec = Utf8; }
///     impl KeyField for UserId where String: KeyField {}        // the bound: where serde writes the key
///     impl Encode<UserId> for Utf8 { fn encode(..) { <Utf8 as Encode<String>>::encode(&value.0, out) } }
///     impl Decode<UserId> for Utf8 { .. }
/// };
/// ```
pub(crate) fn expand(key: &Key) -> TokenStream {
    let codec = &key.codec;
    let delegate = key.kind().delegates().then(|| delegate(key));
    wrap(
        key,
        &quote!(#codec),
        &delegate.unwrap_or_default(),
        key.kind() == Codec::Json,
    )
}

/// The same trait with a codec that takes everything: an error was reported, and one is enough.
pub(crate) fn stub(key: &Key) -> TokenStream {
    let krate = &key.krate;
    let none = quote! {
        pub struct NoCodec;
        impl #krate::codec::Codec for NoCodec {
            const NAME: &'static str = "";
            const CANONICAL: bool = true;
        }
        impl<T> #krate::codec::Encode<T> for NoCodec {
            fn encode(_: &T, _: &mut ::std::vec::Vec<u8>) -> ::core::result::Result<(), #krate::codec::CodecError> {
                ::core::unreachable!()
            }
        }
        impl<T> #krate::codec::Decode<T> for NoCodec {
            fn decode(_: &[u8]) -> ::core::result::Result<T, #krate::codec::CodecError> {
                ::core::unreachable!()
            }
        }
    };
    wrap(key, &quote!(NoCodec), &none, false)
}

fn wrap(key: &Key, codec: &TokenStream, more: &TokenStream, bound_fields: bool) -> TokenStream {
    let (krate, name) = (&key.krate, &key.input.ident);
    let (generics, args, bounds) = key.input.generics.split_for_impl();
    let mut field_generics = key.input.generics.clone();
    if bound_fields {
        let clause = field_generics.make_where_clause();
        for field in key.fields() {
            let ty = &field.ty;
            let bound: WherePredicate = parse_quote_spanned!(ty.span()=> #ty: #krate::key::KeyField);
            clause.predicates.push(bound);
        }
    }
    let (_, _, field_bounds) = field_generics.split_for_impl();
    quote! {
        const _: () = {
            #[automatically_derived]
            impl #generics #krate::key::Key for #name #args #bounds {
                type Codec = #codec;
            }
            #[automatically_derived]
            impl #generics #krate::key::KeyField for #name #args #field_bounds {}
            #more
        };
    }
}

fn delegate(key: &Key) -> TokenStream {
    let (krate, name, codec) = (&key.krate, &key.input.ident, &key.codec);
    let (generics, args, bounds) = key.input.generics.split_for_impl();
    let Some(field) = key.newtype() else {
        return TokenStream::new();
    };
    let inner = &field.ty;
    let member = field
        .ident
        .clone()
        .map_or_else(|| Member::Unnamed(0.into()), Member::Named);
    let encode = quote_spanned!(inner.span()=> <#codec as #krate::codec::Encode<#inner>>::encode(&value.#member, out));
    let decode = quote_spanned!(inner.span()=> <#codec as #krate::codec::Decode<#inner>>::decode(bytes)?);
    quote! {
        #[automatically_derived]
        impl #generics #krate::codec::Encode<#name #args> for #codec #bounds {
            fn encode(
                value: &#name #args,
                out: &mut ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<(), #krate::codec::CodecError> {
                #encode
            }
        }
        #[automatically_derived]
        impl #generics #krate::codec::Decode<#name #args> for #codec #bounds {
            fn decode(bytes: &[u8]) -> ::core::result::Result<#name #args, #krate::codec::CodecError> {
                ::core::result::Result::Ok(#name { #member: #decode })
            }
        }
    }
}
