//! What the derive generates.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote, quote_spanned};
use stoat_macro_support::{Codec, asks, at, checked};
use syn::spanned::Spanned;
use syn::{Member, parse_quote};

use super::Key;

/// ```ignore
/// const _: () = {
///     impl Key for UserId { type Codec = Utf8; }
///     impl KeyField for UserId where String: KeyField {}        // the bound: where serde writes the key
///     impl Encode<UserId> for Utf8 { fn encode(..) { <Utf8 as Codes<String>>::encode_field(&value.0, out) } }
///     impl Decode<UserId> for Utf8 { .. }
/// };
/// ```
pub(crate) fn expand(key: &Key) -> TokenStream {
    let codec = checked_codec(key);
    let delegate = key.kind().delegates().then(|| delegate(key));
    wrap(key, &codec, &delegate.unwrap_or_default(), key.kind() == Codec::Json)
}

/// The codec, which must take the key. (One that delegates is asked for the field; what has parameters cannot stand in
/// a constant of a type.)
fn checked_codec(key: &Key) -> TokenStream {
    let (krate, name, codec) = (&key.krate, &key.input.ident, &key.codec);
    if key.kind().delegates() || !key.input.generics.params.is_empty() {
        return codec.to_token_stream();
    }
    checked(krate, &asks(krate, codec, &quote!(KeyCodec<#name>), codec.span()), codec)
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
    // A bound without parameters would be reported with the compiler's words about such bounds.
    let is_generic = !field_generics.params.is_empty();
    let checks = key.fields().into_iter().filter(|_| bound_fields && !is_generic).map(|field| {
        let ty = &field.ty;
        let check = at(&quote!(#krate::__private::key_field), ty.span());
        quote_spanned!(ty.span()=> #check::<#ty>();)
    });
    let checks: TokenStream = checks.collect();
    let checks = (!checks.is_empty()).then(|| quote!(#[allow(unused_qualifications)] const _: fn() = || { #checks };));
    if bound_fields && is_generic {
        let clause = field_generics.make_where_clause();
        for field in key.fields() {
            let ty = &field.ty;
            clause.predicates.push(parse_quote!(#ty: #krate::key::KeyField));
        }
    }
    let (_, _, field_bounds) = field_generics.split_for_impl();
    quote! {
        const _: () = {
            #[automatically_derived]
            #[allow(unused_qualifications)]
            impl #generics #krate::key::Key for #name #args #bounds {
                type Codec = #codec;
            }
            #[automatically_derived]
            impl #generics #krate::key::KeyField for #name #args #field_bounds {}
            #checks
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
    let member = field.ident.clone().map_or_else(|| Member::Unnamed(0.into()), Member::Named);
    let encode = quote!(<#codec as #krate::__private::Codes<#inner>>::encode_field(&value.#member, out));
    let decode = quote!(<#codec as #krate::__private::Codes<#inner>>::decode_field(bytes)?);
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
