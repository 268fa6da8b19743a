//! `#[fragment]`: a part of a topology that is a function of its own.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote};
use stoat_macro_support::{Args, Errors, body, krate, wrong_item};
use syn::{Expr, ExprArray, ExprTuple, FnArg, ItemFn, Pat, ReturnType, Stmt, Type, parse_quote};

use super::expand::rewrite;
use super::read::read_fragment;

const SHAPE: &str = "expected `fn name<L: 'static>(events: Stream<K, V, L>) -> Stream<K, V, L>`";

/// ```ignore
/// fn valid<L: 'static>(events: Stream<UserId, Event, L>) -> Fragment<Stream<UserId, Event, L>> {
///     let kept = bind(events.filter(..), "kept");          // the user's body, each `let` named
///     Fragment::new(kept.map_values(..))
/// }
/// ```
/// What it returns can only be taken out by a `#[topology]` or another fragment, which know its place in the graph.
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let parsed = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(parsed) => parsed,
        Err(e) => {
            // A body that does not parse is the compiler's business.
            if body(item.clone()).is_none() {
                let text = "`#[fragment]` goes on a function that takes streams and returns streams: `fn name<L: 'static>(events: \
                            Stream<K, V, L>) -> Stream<K, V, L>`";
                wrong_item("S701", "fn", &item, e, text, &mut errors);
            }
            return quote!(#item #errors);
        }
    };
    let args = Args::read("fragment", args, &["crate"], &mut errors);
    let krate = krate(&args, &mut errors);
    let Some((builder, params)) = signature(&parsed, &mut errors) else {
        return quote!(#[allow(unused_variables)] #parsed #errors);
    };
    let mut read = read_fragment(parsed, krate.clone(), &builder, params, &mut errors);
    rewrite(&mut read);
    let mut item = read.item;
    let fragment = quote!(#krate::topology::Fragment);
    match item.block.stmts.last_mut() {
        Some(Stmt::Expr(expr, None)) => {
            // Elements of an array have one type only when the steps are forgotten.
            if let Expr::Array(ExprArray { elems, .. }) | Expr::Tuple(ExprTuple { elems, .. }) = &mut *expr {
                for e in elems {
                    *e = parse_quote!(#krate::topology::Streams::erased(#e));
                }
            }
            *expr = parse_quote!(#fragment::new(#expr));
        }
        _ => item.block.stmts.push(Stmt::Expr(parse_quote!(#fragment::new(())), None)),
    }
    item.sig.output = match &item.sig.output {
        ReturnType::Default => parse_quote!(-> #fragment<()>),
        ReturnType::Type(_, ty) => parse_quote!(-> #fragment<#ty>),
    };
    if !errors.is_empty() {
        item.attrs.push(parse_quote!(#[allow(unused_variables)]));
    }
    quote!(#item #errors)
}

/// Checks the function's shape; gives the names of its builder and its streams.
fn signature(item: &ItemFn, errors: &mut Errors) -> Option<(Ident, Vec<Ident>)> {
    if let Some(a) = &item.sig.asyncness {
        errors.on("S703", a, format!("a fragment must not be `async`: it only declares; {SHAPE}"));
        return None;
    }
    let (mut builder, mut streams) = (None, Vec::new());
    for arg in &item.sig.inputs {
        let FnArg::Typed(arg) = arg else {
            errors.on("S703", arg, format!("a fragment is a function of its own, not a method; {SHAPE}"));
            return None;
        };
        let Pat::Ident(pat) = &*arg.pat else { continue };
        match last_name(&arg.ty).as_deref() {
            Some("Stream") => streams.push(pat.ident.clone()),
            Some("Topology") => builder = Some(pat.ident.clone()),
            _ => {}
        }
    }
    if builder.is_none() && streams.is_empty() {
        let at = if item.sig.inputs.is_empty() {
            item.sig.ident.to_token_stream()
        } else {
            item.sig.inputs.to_token_stream()
        };
        errors.on("S703", at, format!("a fragment takes a stream, or `t: &mut Topology`; {SHAPE}"));
        return None;
    }
    Some((builder.unwrap_or_else(|| format_ident!("__topology")), streams))
}

/// The last name of a type, behind a reference.
fn last_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(p) => p.path.segments.last().map(|s| s.ident.to_string()),
        Type::Reference(r) => last_name(&r.elem),
        Type::Group(g) => last_name(&g.elem),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(item: TokenStream) -> String {
        expand(TokenStream::new(), item).to_string()
    }

    #[test]
    fn the_body_is_read_as_that_of_a_topology() {
        let out = texts(quote! {
            fn valid<L: 'static>(events: Stream<K, V, L>) -> Stream<K, V, L> {
                let kept = events.filter(|_, v| v.ok);
                kept.map_values(|v| v)
            }
        });
        assert!(!out.contains("compile_error"), "{out}");
        assert!(out.contains("bind (events . filter") && out.contains("Fragment :: new (kept . map_values"), "{out}");
        assert!(out.contains("-> :: stoat_core :: topology :: Fragment < Stream < K , V , L > >"), "{out}");
        let twice = texts(quote! { fn f(a: Stream<K, V, L>) { a.discard(); a.discard(); } });
        assert!(twice.contains("is used twice"), "{twice}");
        let unused = texts(quote! { fn f(a: Stream<K, V, L>, b: Stream<K, V, L>) -> Stream<K, V, L> { a } });
        assert!(unused.contains("nobody consumes `b`"), "{unused}");
    }

    #[test]
    fn a_fragment_may_return_several_streams_or_none() {
        let out = texts(quote! { fn f(a: Stream<K, V, L>) { a.discard(); } });
        assert!(out.contains("Fragment :: new (())") && !out.contains("compile_error"), "{out}");
        let out = texts(quote! {
            fn f(t: &mut Topology) -> (Stream<K, V, L>, Stream<K, V, L>) { let a = t.source::<A>(); (a, inner(t)) }
        });
        assert!(out.contains("topology :: leave") && !out.contains("compile_error"), "{out}");
    }
}
