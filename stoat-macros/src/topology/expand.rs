//! What `#[topology]` generates.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use stoat_macro_support::{at, plain};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{Expr, ExprCall, ExprMethodCall, ItemFn, Stmt, Type, parse_quote, parse_quote_spanned};

use super::read::named_by_value;
use super::{Edit, FragmentCall, Topology};

/// ```ignore
/// fn sessions(t: &mut Topology) {
///     let clicks = bind(t.source::<Clicks>(), "clicks");      // the user's body, each `let` named
///     ..
///     const _: () = /* no topic twice, no store name twice */;
/// }
/// #[doc(hidden)] struct __topology_sessions {}
/// #[doc(hidden)] type sessions = __topology_sessions;          // the function's name stays free for bindings
/// impl __topology_sessions { const GRAPH: StaticGraph = ..; fn build() -> Result<Graph> { .. } fn app() -> App { .. } }
/// impl TopologyFn for __topology_sessions { .. }
/// ```
/// So only one line claims the name: where something else has it, a module for example, that is one error, on the
/// function's name.
pub(super) fn expand(mut t: Topology) -> TokenStream {
    let checks = checks(&t);
    let graph = graph(&t);
    rewrite(&mut t);
    // In front: items behind statements are a lint.
    t.item.block.stmts.splice(0..0, checks);
    let (krate, item, name) = (&t.krate, &t.item, &t.item.sig.ident);
    let declare = quote! {
        fn declare(t: &mut #krate::topology::Topology) {
            #name(t);
        }
    };
    let owner = owner(krate, item, &graph, &declare);
    quote!(#item #owner)
}

/// In the place of a function with another signature, which was reported: whoever names the topology does not complain too.
pub(super) fn stub(item: &ItemFn, krate: &TokenStream) -> TokenStream {
    let shown = plain(&item.sig.ident);
    let graph = quote!(#krate::topology::StaticGraph { name: #shown, nodes: &[] });
    owner(krate, item, &graph, &quote!(fn declare(_: &mut #krate::topology::Topology) {}))
}

/// What stands beside the function.
fn owner(krate: &TokenStream, item: &ItemFn, graph: &TokenStream, declare: &TokenStream) -> TokenStream {
    let (name, vis, shown) = (&item.sig.ident, &item.vis, plain(&item.sig.ident));
    let cfgs: Vec<_> = item.attrs.iter().filter(|a| a.path().is_ident("cfg")).collect();
    let owner = format_ident!("__topology_{shown}", span = name.span());
    let alias = quote_spanned!(name.span()=> type #name = #owner;);
    quote! {
        #(#cfgs)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #owner {}

        #(#cfgs)*
        #[doc(hidden)]
        #[allow(non_camel_case_types, dead_code)]
        #vis #alias

        #(#cfgs)*
        #[automatically_derived]
        #[allow(dead_code)]
        impl #owner {
            /// What the text of the function shows.
            #vis const GRAPH: #krate::topology::StaticGraph = <Self as #krate::topology::TopologyFn>::GRAPH;

            /// Runs the function and checks the result.
            #vis fn build() -> #krate::Result<#krate::topology::graph::Graph> {
                <Self as #krate::topology::TopologyFn>::build()
            }

            /// The topology as an application.
            #vis fn app() -> #krate::app::App {
                #krate::__private::app::<Self>()
            }
        }

        #(#cfgs)*
        #[automatically_derived]
        impl #krate::topology::TopologyFn for #owner {
            const NAME: &'static str = #shown;
            const GRAPH: #krate::topology::StaticGraph = #graph;
            #declare
        }
    }
}

fn graph(t: &Topology) -> TokenStream {
    let (krate, name) = (&t.krate, plain(&t.item.sig.ident));
    let names = t.names();
    let nodes = t.nodes.iter().zip(&names).map(|(n, name)| {
        let (step, of) = (&n.step, n.of.as_ref().map(text).unwrap_or_default());
        let inputs = n.parents.iter().map(|p| &names[*p]);
        quote! {
            #krate::topology::StaticNode { name: #name, step: #step, of: #of, inputs: &[#(#inputs),*] }
        }
    });
    quote! {
        #krate::topology::StaticGraph { name: #name, nodes: &[#(#nodes),*] }
    }
}

/// A type as the user wrote it, without the spaces of tokens.
fn text(ty: &Type) -> String {
    ty.to_token_stream().to_string().replace(' ', "").replace(',', ", ")
}

/// What the user's statements become.
pub(super) fn rewrite(t: &mut Topology) {
    let names = t.names();
    if !t.by_value.is_empty() {
        AsTypes(&t.by_value).visit_block_mut(&mut t.item.block);
    }
    let mut calls = Places { calls: &t.calls, names: &names, krate: &t.krate, builder: &t.builder };
    calls.visit_block_mut(&mut t.item.block);
    let krate = &t.krate;
    for (i, edit) in &t.edits {
        let stmt = &mut t.item.block.stmts[*i];
        match (edit, stmt) {
            (Edit::Bind(ident), Stmt::Local(local)) => {
                if let Some(init) = &mut local.init {
                    let (expr, name) = (&init.expr, plain(ident));
                    let bind = at(&quote!(#krate::__private::bind), expr.span());
                    *init.expr = parse_quote_spanned!(expr.span()=> #bind(#expr, #name));
                }
            }
            (Edit::BindEach(idents), Stmt::Local(local)) => {
                if let Some(init) = &mut local.init {
                    let expr = &init.expr;
                    let names = idents.iter().map(plain);
                    *init.expr = parse_quote_spanned!(expr.span()=> #krate::__private::bind_each(#expr, [#(#names),*]));
                }
            }
            (Edit::BindTuple(idents), Stmt::Local(local)) => {
                if let Some(init) = &mut local.init {
                    let expr = &init.expr;
                    let names = idents.iter().map(plain);
                    *init.expr = parse_quote_spanned! {expr.span()=> {
                        let (#(#idents,)*) = #expr;
                        (#(#krate::__private::bind(#idents, #names),)*)
                    }};
                }
            }
            (Edit::Ended(span), Stmt::Expr(expr, _)) => {
                let ended = at(&quote!(#krate::__private::ended), *span);
                *expr = parse_quote_spanned!(*span=> #ended(#expr));
            }
            _ => {}
        }
    }
    if !t.twice.is_empty() {
        Again(&t.twice).visit_block_mut(&mut t.item.block);
        t.item.block.stmts.insert(
            0,
            parse_quote! {
                #[allow(clippy::items_after_statements)]
                fn __again<T>(_: &T) -> T {
                    ::core::unreachable!()
                }
            },
        );
    }
}

/// Lets a type that is given as a value be what was meant: the error was reported.
struct AsTypes<'a>(&'a [usize]);

impl VisitMut for AsTypes<'_> {
    fn visit_expr_method_call_mut(&mut self, call: &mut ExprMethodCall) {
        if let Some((arg, ty)) = named_by_value(call)
            && self.0.contains(&std::ptr::from_ref(arg).addr())
        {
            call.turbofish = Some(parse_quote!(::<#ty>));
            call.args.clear();
        }
        visit_mut::visit_expr_method_call_mut(self, call);
    }
}

/// Tells the topology where fragments begin and end.
struct Places<'a> {
    calls: &'a [FragmentCall],
    names: &'a [String],
    krate: &'a TokenStream,
    builder: &'a Ident,
}

impl Places<'_> {
    fn rewritten(&self, found: &FragmentCall, call: &ExprCall) -> Expr {
        let (krate, func, name) = (self.krate, &call.func, &self.names[found.node]);
        let taken: Vec<Ident> = (0..call.args.len()).map(|i| format_ident!("__arg{i}")).collect();
        let from = &taken[found.from];
        let args = call.args.iter().map(|a| match a {
            // The builder is lent, as it would be without these lines.
            Expr::Path(p) if p.path.get_ident() == Some(self.builder) => quote!(&mut *#a),
            a => a.to_token_stream(),
        });
        let leave = at(&quote!(#krate::topology::leave), func.span());
        parse_quote_spanned! {func.span()=> {
            let (#(#taken,)*) = (#(#args,)*);
            let __fragment = #krate::topology::enter(&#from, #name);
            #leave(__fragment, #name, #func(#(#taken),*))
        }}
    }
}

impl VisitMut for Places<'_> {
    fn visit_expr_mut(&mut self, e: &mut Expr) {
        let found = match e {
            Expr::Call(call) => self.calls.iter().find(|c| c.at == FragmentCall::address(call)),
            _ => None,
        };
        visit_mut::visit_expr_mut(self, e);
        if let (Some(found), Expr::Call(call)) = (found, &*e) {
            *e = self.rewritten(found, call);
        }
    }
}

/// Lets a stream be used twice for the compiler: the error was reported.
struct Again<'a>(&'a [Ident]);

impl VisitMut for Again<'_> {
    fn visit_expr_mut(&mut self, e: &mut Expr) {
        if let Expr::Path(p) = e
            && let Some(i) = p.path.get_ident()
            && self.0.iter().any(|s| plain(s) == plain(i))
        {
            *e = parse_quote!(__again(&#i));
            return;
        }
        visit_mut::visit_expr_mut(self, e);
    }
    fn visit_expr_closure_mut(&mut self, _: &mut syn::ExprClosure) {}
}

/// Checks of constants; they stand in the function's body, where its types are in scope.
fn checks(t: &Topology) -> Vec<Stmt> {
    let krate = &t.krate;
    let of = |steps: &[&str]| -> Vec<&Type> {
        let all = t.nodes.iter().filter(|n| steps.contains(&n.step.as_str()));
        all.filter_map(|n| n.of.as_ref()).filter(|ty| is_plain(ty)).collect()
    };
    let pairs = |types: Vec<&Type>, probe: TokenStream, check: TokenStream| -> Vec<Stmt> {
        (1..types.len())
            .map(|i| {
                let (ty, earlier) = (types[i], &types[..i]);
                let others = earlier.iter().map(|e| quote!(#krate::__private::Probe::<#e>::#probe));
                let check = at(&quote!(#krate::__private::#check), ty.span());
                let call = quote_spanned! {ty.span()=>
                    #check(&[#(#others),*], #krate::__private::Probe::<#ty>::#probe)
                };
                parse_quote_spanned! {ty.span()=>
                    const _: () = {
                        #[allow(unused_imports)]
                        use #krate::__private::Unknown as _;
                        #call
                    };
                }
            })
            .collect()
    };
    let mut all = pairs(of(&["source"]), quote!(SOURCE), quote!(one_source_per_topic));
    all.extend(pairs(of(&["process", "process_with"]), quote!(STORES), quote!(one_store_per_name)));
    all
}

/// Whether no part of a type is left to inference.
fn is_plain(ty: &Type) -> bool {
    struct Infer(bool);
    impl<'ast> syn::visit::Visit<'ast> for Infer {
        fn visit_type_infer(&mut self, _: &'ast syn::TypeInfer) {
            self.0 = true;
        }
    }
    let mut infer = Infer(false);
    syn::visit::Visit::visit_type(&mut infer, ty);
    !infer.0
}
