//! What `#[source]` and `#[sink]` generate.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use stoat_macro_support::{asks, at, checked, checked_key, nullable, option_inner};
use syn::Type;
use syn::spanned::Spanned;

use super::{Endpoint, Kind};

/// ```ignore
/// #[automatically_derived]
/// impl Source for Clicks {
///     type Key = UserId;
///     type Value = Click;
///     type KeyCodec = <UserId as Key>::Codec;
///     type ValueCodec = Json;
///     type Lane = Lane<Self::KeyCodec>;
///     const TOPIC: &'static str = "clicks";
///     const NAME: &'static str = "Clicks";
///     fn watermark() -> WatermarkStrategy { .. }      // where an option is given
/// }
/// ```
pub(super) fn expand(e: &Endpoint) -> TokenStream {
    let (krate, name, stable) = (&e.krate, &e.item.ident, &e.name);
    let (key, key_codec) = key(e);
    let value = e.value.as_ref().map_or_else(|| quote!(()), |v| quote!(#v));
    let value_codec = e.value_codec.as_ref().map_or_else(
        || at(&quote!(#krate::codec::Json), e.value.as_ref().map_or_else(|| name.span(), Spanned::span)),
        |c| quote!(#c),
    );
    let value_codec = e
        .value
        .as_ref()
        .map_or_else(|| quote!(#krate::codec::Json), |v| nullable(krate, v, checked_codec(e, v, &value_codec)));
    let topic = e.topic.as_ref().map_or_else(|| quote!(""), |t| quote!(#t));
    let common = quote! {
        type Key = #key;
        type Value = #value;
        type KeyCodec = #key_codec;
        type ValueCodec = #value_codec;
        const TOPIC: &'static str = #topic;
        const NAME: &'static str = #stable;
    };
    match e.kind {
        Kind::Sink => quote! {
            #[automatically_derived]
        #[allow(unused_qualifications)]
            impl #krate::sink::Sink for #name { #common }
        },
        Kind::Source => {
            let state = if e.decode_only { quote!(DecodeOnly) } else { quote!(Lane) };
            let span = e.key_codec.as_ref().map(Spanned::span).or_else(|| e.key.as_ref().map(Spanned::span));
            let lane = quote!(#krate::topology::lane_state::#state<<Self as #krate::source::Source>::KeyCodec>);
            let lane = at(&lane, span.unwrap_or_else(|| name.span()));
            let watermark = watermark(e);
            quote! {
                    #[automatically_derived]
            #[allow(unused_qualifications)]
                    impl #krate::source::Source for #name {
                        #common
                        type Lane = #lane;
                        #watermark
                    }
                }
        }
    }
}

/// The codec of the values, checked to take them.
fn checked_codec(e: &Endpoint, value: &Type, codec: &TokenStream) -> TokenStream {
    let krate = &e.krate;
    let value = option_inner(value).unwrap_or(value);
    let wanted = match e.kind {
        Kind::Source => quote!(SourceCodec),
        Kind::Sink => quote!(SinkCodec),
    };
    let span = e.value_codec.as_ref().map_or_else(|| value.span(), Spanned::span);
    checked(krate, &asks(krate, codec, &quote!(#wanted<#value>), span), codec)
}

/// The key's type and codec. Without `key`: bytes that may be missing.
fn key(e: &Endpoint) -> (TokenStream, TokenStream) {
    let krate = &e.krate;
    let Some(key) = &e.key else {
        return (
            quote!(::core::option::Option<::std::vec::Vec<u8>>),
            quote!(#krate::codec::Nullable<#krate::codec::Bytes>),
        );
    };
    let inner = option_inner(key).unwrap_or(key);
    let codec = e.key_codec.as_ref().map_or_else(
        || {
            let key = at(&quote!(#krate::key::Key), inner.span());
            let inner = checked_key(krate, inner, inner);
            quote!(<#inner as #key>::Codec)
        },
        |c| match e.kind {
            // The lane would ask for it once more.
            Kind::Source => {
                let decode = at(&quote!(#krate::codec::Decode), c.span());
                let decode = quote_spanned!(c.span()=> <#c as #decode<#inner>>::decode);
                checked(krate, &quote!({ let _ = #decode; 0 }), c)
            }
            Kind::Sink => quote!(#c),
        },
    );
    (quote!(#key), nullable(krate, key, codec))
}

fn watermark(e: &Endpoint) -> Option<TokenStream> {
    let krate = &e.krate;
    let time = quote!(#krate::time);
    let millis = |m: u64| quote!(::core::time::Duration::from_millis(#m));
    let some = |value: TokenStream| quote!(::core::option::Option::Some(#value));
    let mut options: Vec<TokenStream> = Vec::new();
    let durations = [
        (quote!(out_of_orderness), e.out_of_orderness),
        (quote!(idleness), e.idleness),
        (quote!(future_bound), e.future_bound),
    ];
    for (name, value) in durations {
        options.extend(value.map(|m| {
            let value = millis(m);
            quote!(#name: #value)
        }));
    }
    options.extend(e.close_on_idle.map(|m| {
        let value = some(millis(m));
        quote!(close_on_idle: #value)
    }));
    options.extend(e.no_timestamp.map(|word| {
        let variant = if word == "skip" { quote!(Skip) } else { quote!(Fail) };
        quote!(no_timestamp: #time::NoTimestamp::#variant)
    }));
    options.extend(e.watermark.as_ref().map(|generator| {
        let of = quote_spanned!(generator.span()=> #time::Generator::of::<#generator>());
        let value = some(of);
        quote!(generator: #value)
    }));
    options.extend(e.timestamp.as_ref().map(|extract| {
        let of = quote_spanned!(extract.span()=> #krate::__private::timestamps::<Self, _>(#extract));
        let value = some(of);
        quote!(timestamps: #value)
    }));
    if options.is_empty() {
        return None;
    }
    Some(quote! {
        fn watermark() -> #time::WatermarkStrategy {
            #time::WatermarkStrategy {
                #(#options,)*
                ..<#time::WatermarkStrategy as ::core::default::Default>::default()
            }
        }
    })
}
