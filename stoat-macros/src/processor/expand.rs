//! What `#[processor]` generates.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use stoat_macro_support::{at, plain, shown};
use syn::spanned::Spanned;
use syn::{GenericParam, parse_quote};

use super::checked;
use super::{Field, Input, Output, Processor, Role};

/// ```ignore
/// impl Processor for Sessionize { /* types, NAME, FIELDS, visit_fields */ }
/// impl<K, L> FitsLane<K, L> for Sessionize where L: FitsField<Self, Keyed<Session>>, .. {}
/// impl Sessionize { fn init(/* unmarked fields */) -> Init<Self> { .. } }
/// impl Unconfigured for Sessionize { .. }          // where no field is unmarked
/// const _: () = timer_has_handler(..);             // one per timer
/// ```
pub(super) fn expand(p: &Processor) -> TokenStream {
    let (processor, fits, init, handled) = (processor(p), fits_lane(p), init(p), handled(p));
    quote! {
        #processor
        #fits
        #init
        #handled
    }
}

/// For something that is no struct, which was reported: it counts as a processor, but nobody can make one.
pub(super) fn stub(p: &Processor) -> TokenStream {
    let (processor, fits, krate, name) = (processor(p), fits_lane(p), &p.krate, &p.item.ident);
    let (generics, args, bounds) = p.item.generics.split_for_impl();
    quote! {
        #processor
        #fits
        #[automatically_derived]
        impl #generics #krate::processor::Unconfigured for #name #args #bounds {
            fn init() -> #krate::processor::Init<Self> {
                ::core::unreachable!()
            }
        }
    }
}

/// The fields that own bytes.
fn owned(p: &Processor) -> impl Iterator<Item = &Field> {
    p.fields.iter().filter(|f| f.role.name().is_some())
}

fn processor(p: &Processor) -> TokenStream {
    let krate = &p.krate;
    let (name, shown) = (&p.item.ident, plain(&p.item.ident));
    let (generics, args, bounds) = p.item.generics.split_for_impl();
    let in_key = quote!(<Self as #krate::processor::Processor>::InKey);
    let (key, value) = match &p.input {
        Input::Types(t) => {
            let (key, value) = (checked::in_key(p, &t.0), t.1.to_token_stream());
            (checked::agreed(p, t, &key), checked::agreed(p, t, &value))
        }
        Input::Error(e) if e.is_empty() => (quote!(()), in_key),
        // An expression that is an error makes the type one, about which nobody complains.
        Input::Error(e) => (quote!([(); #e]), in_key),
    };
    let (out_key, out_value, mode) = match &p.output {
        Output::None => {
            (quote!(<Self as #krate::processor::Processor>::InKey), quote!(::core::convert::Infallible), quote!(End))
        }
        // Not the key's type once more: a mistake in it would be reported twice.
        Output::Keep(v) => (quote!(<Self as #krate::processor::Processor>::InKey), v.to_token_stream(), quote!(Keep)),
        Output::Rekey(t) => (t.0.to_token_stream(), t.1.to_token_stream(), quote!(Rekey)),
    };
    let decls = owned(p).map(|f| {
        let (cfgs, ty, field) = (&f.cfgs, &f.ty, plain(&f.ident));
        let stable = f.role.name().unwrap_or_default();
        let named = if stable == field {
            quote!(::core::option::Option::None)
        } else {
            quote!(::core::option::Option::Some(#stable))
        };
        let clock = if matches!(f.role, Role::Timer { wall: true, .. }) { quote!(Wall) } else { quote!(Event) };
        let of = at(&quote!(#krate::processor::FieldDecl::of), ty.span());
        let of = quote_spanned!(ty.span()=> #of::<#ty>);
        quote! {
            #(#cfgs)*
            #of(#field, #krate::processor::FieldOptions { name: #named, clock: #krate::time::TimeDomain::#clock })
        }
    });
    let visits = owned(p).map(|f| {
        let (cfgs, ty, ident) = (&f.cfgs, &f.ty, &f.ident);
        let visit = at(&quote!(#krate::processor::FieldVisitor::<Self>::visit), ty.span());
        let visit = quote_spanned!(ty.span()=> #visit::<#ty>);
        quote! { #(#cfgs)* #visit(visitor, &mut self.#ident); }
    });
    let visitor = owned(p).next().map_or_else(|| quote!(_), |_| quote!(visitor));
    quote! {
        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #generics #krate::processor::Processor for #name #args #bounds {
            type InKey = #key;
            type InValue = #value;
            type OutKey = #out_key;
            type OutValue = #out_value;
            type Mode = #krate::processor::#mode;
            const NAME: &'static str = #shown;
            const FIELDS: &'static [#krate::processor::FieldDecl] = &[#(#decls),*];
            fn visit_fields<__V: #krate::processor::FieldVisitor<Self>>(&mut self, #visitor: &mut __V) {
                #(#visits)*
            }
        }
    }
}

fn fits_lane(p: &Processor) -> TokenStream {
    let krate = &p.krate;
    let name = &p.item.ident;
    let mut generics = p.item.generics.clone();
    let clause = generics.make_where_clause();
    if !p.item.generics.params.is_empty() {
        clause.predicates.push(parse_quote!(Self: #krate::processor::Handlers));
    }
    for f in owned(p) {
        let ty = &f.ty;
        // A field under `#[cfg(..)]` may not be there; its bound holds for nothing worse than its type.
        if f.cfgs.is_empty() {
            clause
                .predicates
                .push(syn::parse_quote_spanned!(ty.span()=> __L: #krate::topology::lane_state::FitsField<Self, #ty>));
        }
    }
    // Generic over the key: a wrong one is then one error, that of the stream.
    let (key, lane): (GenericParam, GenericParam) = (parse_quote!(__K), parse_quote!(__L));
    generics.params.extend([key, lane]);
    let (generics, _, bounds) = generics.split_for_impl();
    let (_, args, _) = p.item.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        #[allow(unused_qualifications)]
        impl #generics #krate::processor::FitsLane<__K, __L> for #name #args #bounds {}
    }
}

fn init(p: &Processor) -> TokenStream {
    let krate = &p.krate;
    let (name, vis) = (&p.item.ident, &p.item.vis);
    let (generics, args, bounds) = p.item.generics.split_for_impl();
    let config: Vec<&Field> = p.fields.iter().filter(|f| matches!(f.role, Role::Config)).collect();
    let params = config.iter().map(|f| {
        let (cfgs, ident, ty) = (&f.cfgs, &f.ident, &f.ty);
        quote!(#(#cfgs)* #ident: #ty)
    });
    let counts = p.fields.iter().any(|f| !f.cfgs.is_empty());
    let mut index = 0_usize;
    let fields = p.fields.iter().map(|f| {
        let (cfgs, ident, ty) = (&f.cfgs, &f.ident, &f.ty);
        match &f.role {
            Role::Config => quote!(#(#cfgs)* #ident),
            Role::Local(None) => quote!(#(#cfgs)* #ident: <#ty as ::core::default::Default>::default()),
            Role::Local(Some(e)) => quote!(#(#cfgs)* #ident: #e),
            _ if counts => quote! {
                #(#cfgs)* #ident: {
                    let field = #krate::processor::FieldBuild::field::<#ty>(__build, __next);
                    __next += 1;
                    field
                }
            },
            _ => {
                let i = index;
                index += 1;
                quote!(#(#cfgs)* #ident: #krate::processor::FieldBuild::field::<#ty>(__build, #i))
            }
        }
    });
    let made: Vec<TokenStream> = fields.collect();
    let literal = if p.fields.is_empty() { quote!(Self {}) } else { quote!(Self { #(#made),* }) };
    let next = counts.then(|| quote!(let mut __next = 0_usize;));
    let build = if owned(p).next().is_some() { quote!(__build) } else { quote!(_) };
    let checks = generic_checks(p);
    let doc = if config.is_empty() {
        "Makes one lane's instance."
    } else {
        "Makes one lane's instance, with the values of its fields in their order."
    };
    // Without configuration, or where `#[cfg(..)]` takes all of it away.
    let gone = config.iter().map(|f| {
        let conditions = f.cfgs.iter().filter_map(|c| c.meta.require_list().ok()).map(|l| &l.tokens);
        quote!(not(all(#(#conditions),*)))
    });
    let gone = (!config.is_empty()).then(|| quote!(#[cfg(all(#(#gone),*))]));
    let unconfigured = config.iter().all(|f| !f.cfgs.is_empty()).then(|| {
        quote! {
            #gone
            #[automatically_derived]
        #[allow(unused_qualifications)]
            impl #generics #krate::processor::Unconfigured for #name #args #bounds {
                fn init() -> #krate::processor::Init<Self> {
                    Self::init()
                }
            }
        }
    });
    let needs = needs_values(p, &config);
    quote! {
        #[automatically_derived]
        #[allow(unused_qualifications, dead_code, private_interfaces, clippy::pedantic)]
        impl #generics #name #args #bounds {
            #[doc = #doc]
            #vis fn init(#(#params),*) -> #krate::processor::Init<Self> {
                #checks
                #krate::processor::Init::new(move |#build: &mut #krate::processor::FieldBuild<'_>| {
                    #next
                    #literal
                })
            }
        }
        #unconfigured
        #needs
    }
}

/// What `process::<P>()` says of a processor that needs values.
fn needs_values(p: &Processor, config: &[&Field]) -> Option<TokenStream> {
    let (krate, owner) = (&p.krate, plain(&p.item.ident));
    // A field under `#[cfg(..)]` may not be there.
    let named: Vec<String> = config.iter().filter(|f| f.cfgs.is_empty()).map(|f| plain(&f.ident)).collect();
    let first = named.first()?;
    let message = if let [field] = &*named {
        format!("`{owner}` has the field `{field}` of its own, so it needs its value [S525]")
    } else {
        let names = named.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ");
        format!("`{owner}` has fields of its own, {names}, so it needs their values [S525]")
    };
    let call = format!("call `.process_with(move || {owner}::init({}))`", named.join(", "));
    let local = format!("or, where each lane begins with its default value, mark it: `#[local] {first}: ..`");
    let name = &p.item.ident;
    let mut generics = p.item.generics.clone();
    generics.params.push(parse_quote!(__L: NeedsValues));
    let (generics, _, bounds) = generics.split_for_impl();
    let (_, args, _) = p.item.generics.split_for_impl();
    Some(quote! {
        const _: () = {
            #[diagnostic::on_unimplemented(message = #message, label = "needs configuration", note = #call, note = #local)]
            #[allow(unreachable_pub)]
            pub trait NeedsValues {}
            #[automatically_derived]
            #[allow(unused_qualifications)]
            impl #generics #krate::processor::Unconfigured<__L> for #name #args #bounds {
                fn init() -> #krate::processor::Init<Self> {
                    ::core::unreachable!()
                }
            }
        };
    })
}

/// The call that checks one timer, in a constant.
fn check(p: &Processor, f: &Field, owner: &Ident) -> TokenStream {
    let krate = &p.krate;
    let field = plain(&f.ident);
    let key = match &p.input {
        Input::Types(t) => shown(&t.0),
        Input::Error(_) => "K".to_owned(),
    };
    let advice = format!(
        "timer `{field}` of `{name}` has no handler: add `#[on_timer({field})] fn on_{field}(&mut self, fired: Fired<{key}>, cx: &mut \
         Context<Self>) -> Result<()>` to `#[handlers] impl {name}` [S322]",
        name = plain(&p.item.ident)
    );
    quote_spanned! {f.ident.span()=>
        ::core::assert!(
            #krate::__private::handled(
                <#owner as #krate::processor::Handlers>::ON_TIMER,
                <#owner as #krate::processor::Processor>::FIELDS,
                #field,
            ),
            #advice
        )
    }
}

fn timers(p: &Processor) -> impl Iterator<Item = &Field> {
    p.fields.iter().filter(|f| matches!(f.role, Role::Timer { .. }))
}

/// Constants of a processor without parameters are evaluated by `cargo check`.
fn handled(p: &Processor) -> TokenStream {
    if !p.item.generics.params.is_empty() {
        return TokenStream::new();
    }
    let name = &p.item.ident;
    let checks = timers(p).map(|f| {
        let (cfgs, check) = (&f.cfgs, check(p, f, name));
        quote_spanned!(f.ident.span()=> #(#cfgs)* const _: () = #check;)
    });
    quote!(#(#checks)*)
}

/// Those of a generic one only where it is made.
fn generic_checks(p: &Processor) -> TokenStream {
    if p.item.generics.params.is_empty() {
        return TokenStream::new();
    }
    let checks = timers(p).map(|f| {
        let (cfgs, check) = (&f.cfgs, check(p, f, &format_ident!("Self")));
        quote!(#(#cfgs)* const { #check };)
    });
    quote!(#(#checks)*)
}
