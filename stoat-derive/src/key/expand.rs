//! What the derive generates.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::Member;
use syn::spanned::Spanned;

use super::Key;

/// ```ignore
/// const _: () = {
///     use ::stoat_core::__private as __stoat;
///     impl __stoat::Key for UserId { type Codec = Utf8; }
///     impl __stoat::Encode<UserId> for Utf8 { fn encode(..) { <Utf8 as Encode<String>>::encode(&value.0, out) } }
///     impl __stoat::Decode<UserId> for Utf8 { .. }
/// };
/// ```
pub(crate) fn expand(key: &Key) -> TokenStream {
    let codec = &key.codec;
    let delegate = key.kind().delegates().then(|| delegate(key));
    wrap(key, &quote!(#codec), &delegate.unwrap_or_default())
}

/// The same trait with a codec that takes everything: an error was reported, and one is enough.
pub(crate) fn stub(key: &Key) -> TokenStream {
    let krate = &key.krate;
    let none = quote! {
        pub struct NoCodec;
        impl __stoat::Codec for NoCodec {
            const NAME: &'static str = "";
            const CANONICAL: bool = true;
        }
        impl<T> __stoat::Encode<T> for NoCodec {
            fn encode(_: &T, _: &mut ::std::vec::Vec<u8>) -> ::core::result::Result<(), #krate::codec::CodecError> {
                ::core::unreachable!()
            }
        }
        impl<T> __stoat::Decode<T> for NoCodec {
            fn decode(_: &[u8]) -> ::core::result::Result<T, #krate::codec::CodecError> {
                ::core::unreachable!()
            }
        }
    };
    wrap(key, &quote!(NoCodec), &none)
}

fn wrap(key: &Key, codec: &TokenStream, more: &TokenStream) -> TokenStream {
    let (krate, name) = (&key.krate, &key.input.ident);
    let (generics, args, bounds) = key.input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        const _: () = {
            use #krate::__private as __stoat;
            impl #generics __stoat::Key for #name #args #bounds {
                type Codec = #codec;
            }
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
    let encode = quote_spanned!(inner.span()=> <#codec as __stoat::Encode<#inner>>::encode(&value.#member, out));
    let decode = quote_spanned!(inner.span()=> <#codec as __stoat::Decode<#inner>>::decode(bytes));
    quote! {
        impl #generics __stoat::Encode<#name #args> for #codec #bounds {
            fn encode(
                value: &#name #args,
                out: &mut ::std::vec::Vec<u8>,
            ) -> ::core::result::Result<(), #krate::codec::CodecError> {
                #encode
            }
        }
        impl #generics __stoat::Decode<#name #args> for #codec #bounds {
            fn decode(bytes: &[u8]) -> ::core::result::Result<#name #args, #krate::codec::CodecError> {
                #decode.map(|inner| #name { #member: inner })
            }
        }
    }
}
