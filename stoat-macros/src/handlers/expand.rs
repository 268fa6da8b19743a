//! What `#[handlers]` generates.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use stoat_macro_support::{at, plain};
use syn::spanned::Spanned;
use syn::{GenericArgument, PathArguments, Type};

use super::{Handler, Handlers};

/// ```ignore
/// impl Handlers for Sessionize {
///     const ON_TIMER: &'static [&'static str] = &["idle"];
///     const PUNCTUATORS: &'static [Punctuator] = &[..];
///     fn process(&mut self, record, cx) -> Result<()> { /* checks the types, calls `on_click` */ }
///     fn fire(&mut self, field, fired, cx) -> Result<()> { /* one `if` per timer */ }
///     fn punctuate(&mut self, which, cx) -> Result<()> { .. }
///     fn call(&mut self, call, cx) -> CallFuture { .. }    // instead of these, where a handler is `async`
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

    let waiting = is_async(h);
    let names = h.timers.iter().map(|t| {
        let (cfgs, name) = (&t.handler.cfgs, plain(&t.field));
        quote!(#(#cfgs)* #name)
    });
    let faulty = &h.faulty;
    let process = h.process.as_ref().filter(|_| !waiting).map_or_else(
        // An error was reported, or `call` has it.
        || {
            quote!({
                let _ = (record, cx);
                #krate::__private::no_handler::<Self>(0)
            })
        },
        |p| call(krate, p, &[(quote!(record), &record, false), (quote!(cx), &context, true)]),
    );
    let arms = h.timers.iter().filter(|_| !waiting).map(|t| {
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
    let waits = if waiting { waits(h, [&record, &fired, &context]) } else { TokenStream::new() };
    let used = if h.timers.is_empty() || waiting { quote!(let _ = (field, fired, cx);) } else { TokenStream::new() };
    let takes = takes(h);
    quote! {
        #takes
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
            #waits
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
    if is_async(h) {
        return quote!(const PUNCTUATORS: &'static [#krate::operator::Punctuator] = &[#(#decls),*];);
    }
    let ended = ended(krate);
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

/// The context of a punctuator without a key.
fn ended(krate: &TokenStream) -> TokenStream {
    quote!(#krate::processor::Context<Self, #krate::processor::End>)
}

/// Whether a handler may wait.
fn is_async(h: &Handlers) -> bool {
    let timers = h.timers.iter().map(|t| &t.handler);
    h.process.iter().chain(timers).chain(h.punctuators.iter().map(|p| &p.handler)).any(|h| h.is_async)
}

/// All handlers as futures, where one is `async`.
fn waits(h: &Handlers, [record, fired, context]: [&TokenStream; 3]) -> TokenStream {
    let krate = &h.krate;
    let process = h.process.as_ref().map(|p| {
        let call = future(krate, p, &[(quote!(record), record, false), (quote!(cx), context, true)]);
        quote!(#call)
    });
    let process = process.unwrap_or_else(|| quote!(#krate::__private::ready(#krate::__private::no_handler::<Self>(0))));
    let timers = h.timers.iter().map(|t| {
        let (cfgs, index) = (&t.handler.cfgs, index(krate, &t.field));
        let call = future(krate, &t.handler, &[(quote!(fired), fired, false), (quote!(cx), context, true)]);
        quote!(#(#cfgs)* if field == #index { return #call; })
    });
    let ended = ended(krate);
    let punctuators = h.punctuators.iter().map(|p| {
        let cfgs = &p.handler.cfgs;
        let call = if p.over.is_some() {
            future(krate, &p.handler, &[(quote!(cx), context, true)])
        } else {
            // Its context is another one, which the future owns.
            let called = called(krate, &p.handler, &[(quote!(&mut cx), &ended, true)]);
            let called = if p.handler.is_async { quote!(#called.await) } else { called };
            let result = result(krate, &p.handler, &called);
            quote! {
                ::std::boxed::Box::pin(async move {
                    let mut cx: #ended = #krate::processor::Context::without_key(cx);
                    #result
                })
            }
        };
        quote! {
            #(#cfgs)*
            if which == nth { return #call; }
            #(#cfgs)*
            let nth = nth + 1;
        }
    });
    quote! {
        const ASYNC: bool = true;
        #[allow(unused_variables)]
        fn call<'__a>(
            &'__a mut self,
            call: #krate::processor::Call<Self>,
            cx: &'__a mut #context,
        ) -> #krate::processor::CallFuture<'__a> {
            match call {
                #krate::processor::Call::Record(record) => #process,
                #krate::processor::Call::Fired(field, fired) => {
                    #(#timers)*
                    #krate::__private::ready(#krate::__private::no_handler::<Self>(field))
                }
                #krate::processor::Call::Punctuate(which) => {
                    let nth = 0_usize;
                    #(#punctuators)*
                    #krate::__private::ready(#krate::__private::no_handler::<Self>(which))
                }
            }
        }
    }
}

/// A handler as a future. What is not `Send` in it is reported on the handler's name.
fn future(krate: &TokenStream, handler: &Handler, given: &[(TokenStream, &TokenStream, bool)]) -> TokenStream {
    if !handler.is_async {
        let call = call(krate, handler, given);
        return quote!(#krate::__private::ready(#call));
    }
    // The call wholly at the name: what is wrong with the future is reported where the future is. Arguments at their types.
    let names: Vec<Ident> = (0..given.len()).map(|i| format_ident!("__arg{i}")).collect();
    let args = args(krate, handler, given).zip(&names).map(|(arg, name)| quote!(let #name = #arg;));
    let (ident, into) = (&handler.ident, into_result(krate, handler));
    let waits = at(&quote!(#krate::__private::waits), ident.span());
    let call = quote_spanned!(ident.span()=> #waits(Self::#ident(self, #(#names),*), #into));
    quote!({ #(#args)* #call })
}

/// The place of a field in `Processor::FIELDS`.
fn index(krate: &TokenStream, field: &Ident) -> TokenStream {
    let name = plain(field);
    quote!(const { #krate::__private::index(<Self as #krate::processor::Processor>::FIELDS, #name) })
}

/// Calls a handler: each argument is given with its type spelt out, so that a wrong one has our message on the user's
/// type.
fn call(krate: &TokenStream, handler: &Handler, given: &[(TokenStream, &TokenStream, bool)]) -> TokenStream {
    result(krate, handler, &called(krate, handler, given))
}

fn called(krate: &TokenStream, handler: &Handler, given: &[(TokenStream, &TokenStream, bool)]) -> TokenStream {
    let (args, ident) = (args(krate, handler, given), &handler.ident);
    quote!(Self::#ident(self, #(#args),*))
}

/// The arguments of a handler's call, each at its type.
fn args<'a>(
    krate: &'a TokenStream,
    handler: &'a Handler,
    given: &'a [(TokenStream, &TokenStream, bool)],
) -> impl Iterator<Item = TokenStream> + 'a {
    handler.args.iter().zip(given).map(move |(ty, (value, got, by_ref))| {
        let (ty, method) = match ungrouped(ty) {
            Type::Reference(r) if *by_ref => (&*r.elem, quote!(HandlerContext<Self, #got>>::from_given_mut)),
            ty => (ty, quote!(HandlerArg<Self, #got>>::from_given)),
        };
        quote_spanned!(ty.span()=> <#ty as #krate::processor::#method(#value))
    })
}

/// The pair of a handler's `Record<K, V>`, which `#[processor]` compares with its input.
fn takes(h: &Handlers) -> Option<TokenStream> {
    let handler = h.process.as_ref().filter(|p| p.cfgs.is_empty() && h.item.generics.params.is_empty())?;
    let Type::Path(record) = ungrouped(handler.args.first()?) else { return None };
    let last = record.path.segments.last().filter(|s| s.ident == "Record")?;
    let PathArguments::AngleBracketed(args) = &last.arguments else { return None };
    let types: Vec<&GenericArgument> = args.args.iter().collect();
    let [GenericArgument::Type(key), GenericArgument::Type(value)] = types.as_slice() else { return None };
    let (krate, owner) = (&h.krate, &h.item.self_ty);
    Some(quote! {
        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #krate::__private::Takes for #owner {
            type Pair = (#key, #value);
        }
    })
}

fn ungrouped(ty: &Type) -> &Type {
    match ty {
        Type::Group(g) => ungrouped(&g.elem),
        ty => ty,
    }
}

/// What turns a handler's result into ours; a handler without a return type has an error.
fn into_result(krate: &TokenStream, handler: &Handler) -> Option<TokenStream> {
    let ty = handler.output.as_ref()?;
    let result = at(&quote!(#krate::processor::HandlerResult<Self>), ty.span());
    Some(quote_spanned!(ty.span()=> <#ty as #result>::into_result))
}

fn result(krate: &TokenStream, handler: &Handler, called: &TokenStream) -> TokenStream {
    let into = into_result(krate, handler);
    let span = handler.output.as_ref().map_or_else(|| handler.ident.span(), Spanned::span);
    quote_spanned!(span=> #into(#called))
}
