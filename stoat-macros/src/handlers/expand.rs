//! What `#[handlers]` generates.

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use stoat_macro_support::{at, plain};
use syn::Type;
use syn::spanned::Spanned;

use super::{Handler, Handlers};

/// ```ignore
/// impl Handlers for Sessionize {
///     const ON_TIMER: &'static [&'static str] = &["idle"];
///     const PUNCTUATORS: &'static [Punctuator] = &[..];
///     fn process(&mut self, record, cx) -> Result<()> { /* checks the types, calls `on_click` */ }
///     fn fire(&mut self, field, fired, cx) -> Result<()> { /* one `if` per timer */ }
///     fn punctuate(&mut self, which, cx) -> Result<()> { .. }
/// }
/// ```
pub(super) fn expand(h: &Handlers) -> TokenStream {
    let krate = &h.krate;
    let owner = &h.item.self_ty;
    let (generics, _, bounds) = h.item.generics.split_for_impl();
    let result = quote!(#krate::Result<()>);
    let context = quote!(#krate::processor::Context<Self>);
    let in_key = quote!(<Self as #krate::processor::Processor>::InKey);
    let in_value = quote!(<Self as #krate::processor::Processor>::InValue);
    let record = quote!(#krate::record::Record<#in_key, #in_value>);
    let fired = quote!(#krate::processor::Fired<#in_key>);

    let names = h.timers.iter().map(|t| {
        let (cfgs, name) = (&t.handler.cfgs, plain(&t.field));
        quote!(#(#cfgs)* #name)
    });
    let faulty = &h.faulty;
    let process = h.process.as_ref().map_or_else(
        // An error was reported.
        || {
            quote!({
                let _ = (record, cx);
                ::core::unreachable!()
            })
        },
        |p| call(krate, p, &[(quote!(record), &record, false), (quote!(cx), &context, true)]),
    );
    let arms = h.timers.iter().map(|t| {
        let (cfgs, index) = (&t.handler.cfgs, index(krate, &t.field));
        let call = call(krate, &t.handler, &[(quote!(fired), &fired, false), (quote!(cx), &context, true)]);
        quote! {
            #(#cfgs)*
            if field == #index {
                return #call;
            }
        }
    });
    let checks = h.timers.iter().map(|t| {
        let (cfgs, field) = (&t.handler.cfgs, &t.field);
        let check = at(&quote!(#krate::__private::is_timer), field.span());
        let check = quote_spanned!(field.span()=> #check(&self.#field));
        quote!(#(#cfgs)* #check;)
    });
    let over_checks = h.punctuators.iter().filter_map(|p| {
        let (cfgs, field) = (&p.handler.cfgs, p.over.as_ref()?);
        let check = quote_spanned!(field.span()=> &self.#field);
        Some(quote!(#(#cfgs)* let _ = #check;))
    });
    let punctuators = punctuators(h, &context);
    let used = if h.timers.is_empty() { quote!(let _ = (field, fired, cx);) } else { TokenStream::new() };
    quote! {
        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #generics #krate::processor::Handlers for #owner #bounds {
            const ON_TIMER: &'static [&'static str] = &[#(#names,)* #(#faulty),*];
            fn process(&mut self, record: #record, cx: &mut #context) -> #result {
                #process
            }
            fn fire(&mut self, field: usize, fired: #fired, cx: &mut #context) -> #result {
                #(#checks)*
                #(#over_checks)*
                #(#arms)*
                #used
                #krate::__private::no_handler::<Self>(field)
            }
            #punctuators
        }
    }
}

fn punctuators(h: &Handlers, context: &TokenStream) -> TokenStream {
    if h.punctuators.is_empty() {
        return TokenStream::new();
    }
    let krate = &h.krate;
    let decls = h.punctuators.iter().map(|p| {
        let cfgs = &p.handler.cfgs;
        let millis = p.every.as_millis() as u64;
        let clock = if p.wall { quote!(Wall) } else { quote!(Event) };
        let over = p.over.as_ref().map_or_else(
            || quote!(::core::option::Option::None),
            |f| {
                let index = index(krate, f);
                quote!(::core::option::Option::Some(#index))
            },
        );
        quote! {
            #(#cfgs)*
            #krate::operator::Punctuator {
                every: ::core::time::Duration::from_millis(#millis),
                domain: #krate::time::TimeDomain::#clock,
                over: #over,
            }
        }
    });
    let ended = quote!(#krate::processor::Context<Self, #krate::processor::End>);
    let arms = h.punctuators.iter().map(|p| {
        let cfgs = &p.handler.cfgs;
        let call = if p.over.is_some() {
            call(krate, &p.handler, &[(quote!(cx), context, true)])
        } else {
            let call = call(krate, &p.handler, &[(quote!(cx), &ended, true)]);
            quote!(#krate::processor::Context::ended(cx, |cx: &mut #ended| #call))
        };
        quote! {
            #(#cfgs)*
            if which == nth {
                return #call;
            }
            #(#cfgs)*
            let nth = nth + 1;
        }
    });
    quote! {
        const PUNCTUATORS: &'static [#krate::operator::Punctuator] = &[#(#decls),*];
        #[allow(unused_variables)]
        fn punctuate(&mut self, which: usize, cx: &mut #context) -> #krate::Result<()> {
            let nth = 0_usize;
            #(#arms)*
            #krate::__private::no_handler::<Self>(which)
        }
    }
}

/// The place of a field in `Processor::FIELDS`.
fn index(krate: &TokenStream, field: &Ident) -> TokenStream {
    let name = plain(field);
    quote!(const { #krate::__private::index(<Self as #krate::processor::Processor>::FIELDS, #name) })
}

/// Calls a handler: each argument is given with its type spelt out, so that a wrong one has our message on the user's
/// type.
fn call(krate: &TokenStream, handler: &Handler, given: &[(TokenStream, &TokenStream, bool)]) -> TokenStream {
    let args = handler.args.iter().zip(given).map(|(ty, (value, got, by_ref))| {
        let (ty, method) = match ty {
            Type::Reference(r) if *by_ref => (&*r.elem, quote!(from_given_mut)),
            ty => (ty, quote!(from_given)),
        };
        quote_spanned!(ty.span()=> <#ty as #krate::processor::HandlerArg<Self, #got>>::#method(#value))
    });
    let ident = &handler.ident;
    let called = quote!(Self::#ident(self, #(#args),*));
    match &handler.output {
        Some(ty) => {
            let result = at(&quote!(#krate::processor::HandlerResult<Self>), ty.span());
            quote_spanned!(ty.span()=> <#ty as #result>::into_result(#called))
        }
        None => called,
    }
}
