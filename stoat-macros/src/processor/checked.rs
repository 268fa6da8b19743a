//! Field types that ask for what they need, once.
//!
//! A key without a codec or a value that its codec cannot write would be an error wherever the field is used. So each is
//! asked for in a constant that the field's type is taken with: where the answer is no, that is the one error,
//! on the user's type, and the field's type is an error too, about which nobody complains again.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use stoat_macro_support::{asks, at, checked, checked_key, plain, same_tokens};
use syn::spanned::Spanned;
use syn::{Fields, GenericArgument, Generics, PathArguments, Type, TypePath, parse_quote};

use super::{Field, Input, Processor, Role};

/// Completes the types of the fields, in the struct too. Returns an alias for each type that asks for something: so it asks
/// at one place, and what is generated stays short.
pub(super) fn complete(p: &mut Processor) -> TokenStream {
    let Processor { item, krate, input, fields, .. } = p;
    let Fields::Named(named) = &mut item.fields else { return TokenStream::new() };
    let key = match &*input {
        Input::Types(t) => Some(t.0.clone()),
        Input::Error(_) => None,
    };
    let ask = Ask { krate, key, generics: &item.generics };
    let mut aliases = TokenStream::new();
    for field in fields {
        let is_it = |e: &&mut syn::Field| e.ident.as_ref() == Some(&field.ident) && same_tokens(&e.ty, &field.ty);
        let Some(emitted) = named.named.iter_mut().find(is_it) else { continue };
        let Some(ty) = ask.field(field) else { continue };
        let name = format!("__{}_{}", plain(&item.ident), plain(&field.ident));
        let (alias, cfgs) = (Ident::new(&name, field.ty.span()), &field.cfgs);
        aliases.extend(quote! {
            #(#cfgs)*
            #[doc(hidden)]
            #[allow(non_camel_case_types, unused_qualifications)]
            type #alias = #ty;
        });
        field.ty = parse_quote!(#alias);
        emitted.ty = field.ty.clone();
    }
    aliases
}

/// The input's key type; a field that is kept by key asks for it.
pub(super) fn in_key(p: &Processor, key: &Type) -> TokenStream {
    // A field under `#[cfg(..)]` may not be there.
    let by_key = p.fields.iter().any(|f| f.role.name().is_some() && f.cfgs.is_empty());
    if by_key && !is_open(&p.item.generics, key) { checked_key(&p.krate, key, key) } else { key.to_token_stream() }
}

/// A part of the input, where the handler takes the same. (Constants of a type with parameters cannot ask; the handler's call
/// does.)
pub(super) fn agreed(p: &Processor, (key, value, span): &(Type, Type, Span), part: &TokenStream) -> TokenStream {
    if !p.item.generics.params.is_empty() {
        return part.clone();
    }
    let (krate, name) = (&p.krate, &p.item.ident);
    // At the pair, for both parts: two equal errors are shown once.
    let span = *span;
    let module = at(&quote!(#krate::__private), span);
    let name = at(&name.to_token_stream(), span);
    let constant = quote_spanned! {span=>
        #[allow(unused_imports)]
        use #module::InputUnknown as _;
        #module::Input::<#name>::TAKEN.checked::<#key, #value>()
    };
    checked(krate, &constant, part)
}

struct Ask<'a> {
    krate: &'a TokenStream,
    key: Option<Type>,
    generics: &'a Generics,
}

impl Ask<'_> {
    fn field(&self, f: &Field) -> Option<Type> {
        let mut ty = f.ty.clone();
        let args: Vec<Type> = arguments(&mut ty).into_iter().map(|t| t.clone()).collect();
        match (&f.role, args.as_slice()) {
            (Role::Timer { .. }, [own, ..]) => self.keyed_by(own, ty),
            (Role::State { .. }, [value, codec @ ..]) => self.values(value, codec.first(), true, &ty),
            (Role::Store { .. }, [own, value, codec @ ..]) => {
                let ty = self.keyed_by(own, ty.clone()).unwrap_or(ty);
                Some(self.values(value, codec.first(), false, &ty).unwrap_or(ty))
            }
            _ => None,
        }
    }

    /// The field's type `ty`, where its first argument is a key. One that is the input's is asked for where that stands: two
    /// places would be two errors.
    fn keyed_by(&self, own: &Type, mut ty: Type) -> Option<Type> {
        if is_open(self.generics, own) {
            return None;
        }
        let asked = self.key.as_ref().filter(|k| same_tokens(*k, own)).unwrap_or(own);
        let key: Type = syn::parse2(checked_key(self.krate, asked, own)).ok()?;
        for (i, arg) in arguments(&mut ty).into_iter().enumerate() {
            match arg {
                arg if i == 0 => *arg = key.clone(),
                // Its codec, where the marker of `foreign` stands behind it.
                Type::Path(TypePath { qself: Some(q), .. }) if same_tokens(&q.ty, own) => *q.ty = key.clone(),
                _ => {}
            }
        }
        Some(ty)
    }

    /// The field's type `ty`, where the codec takes the values.
    fn values(&self, value: &Type, codec: Option<&Type>, keyed: bool, ty: &Type) -> Option<Type> {
        let krate = self.krate;
        if is_open(self.generics, value) || codec.is_some_and(|c| is_open(self.generics, c)) {
            return None;
        }
        let named = codec.map(|c| if keyed { self.codec(c) } else { c.to_token_stream() });
        let span = codec.map_or_else(|| value.span(), Spanned::span);
        let codec = named.unwrap_or_else(|| at(&quote!(#krate::codec::Json), span));
        let constant = asks(krate, &codec, &quote!(FieldCodec<#value>), span);
        syn::parse2(checked(krate, &constant, ty)).ok()
    }

    /// What stands behind the value of a `Keyed`, where it is a codec. At its place, where it is asked for more.
    fn codec(&self, codec: &Type) -> TokenStream {
        let (krate, span) = (self.krate, codec.span());
        let constant = asks(krate, codec, &quote!(KeyedCodec), span);
        let checked = at(&quote!(#krate::__private::Checked), span);
        quote_spanned!(span=> #checked<{ #constant }, #codec>)
    }
}

/// The type arguments of a path.
fn arguments(ty: &mut Type) -> Vec<&mut Type> {
    let args = match ty {
        Type::Path(p) => p.path.segments.last_mut().map(|s| &mut s.arguments),
        Type::Group(g) => return arguments(&mut g.elem),
        _ => None,
    };
    let Some(PathArguments::AngleBracketed(args)) = args else { return Vec::new() };
    let types = args.args.iter_mut().filter_map(|a| match a {
        GenericArgument::Type(t) => Some(t),
        _ => None,
    });
    types.collect()
}

/// Whether a type names a parameter: what depends on one cannot stand in such a constant.
fn is_open(generics: &Generics, ty: &Type) -> bool {
    fn names(tokens: TokenStream, is: &dyn Fn(&str) -> bool) -> bool {
        tokens.into_iter().any(|t| match t {
            TokenTree::Ident(i) => is(&plain(&i)),
            TokenTree::Group(g) => names(g.stream(), is),
            _ => false,
        })
    }
    let params: Vec<String> = generics
        .type_params()
        .map(|t| plain(&t.ident))
        .chain(generics.const_params().map(|c| plain(&c.ident)))
        .collect();
    names(ty.to_token_stream(), &|i| i == "Self" || params.iter().any(|p| p == i))
}
