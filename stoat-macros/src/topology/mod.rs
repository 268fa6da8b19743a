//! `#[topology]`: reads the function that wires a topology.

mod expand;
pub(crate) mod fragment;
mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use stoat_macro_support::{Args, Errors, body, krate, wrong_item};
use syn::{ExprCall, FnArg, ItemFn, Pat, PatType, ReturnType, Type, parse_quote};

/// What was read.
pub(crate) struct Topology {
    item: ItemFn,
    krate: TokenStream,
    nodes: Vec<Node>,
    /// What statements need: by their place.
    edits: BTreeMap<usize, Edit>,
    /// Streams that are used twice: an error was reported, and rustc need not repeat it.
    twice: Vec<Ident>,
    /// Calls of fragments.
    calls: Vec<FragmentCall>,
    /// Arguments that should be types: where they lie in memory. An error was reported, and rustc need not repeat it.
    by_value: Vec<usize>,
    /// The function's parameter.
    builder: Ident,
}

/// A call of a function that takes streams.
#[derive(Debug)]
pub(crate) struct FragmentCall {
    /// Which expression: where it lies in memory, while nothing was rewritten.
    at: usize,
    /// Its node.
    node: usize,
    /// The argument that leads to the topology.
    from: usize,
}

impl FragmentCall {
    fn address(call: &ExprCall) -> usize {
        std::ptr::from_ref(call).addr()
    }
}

/// What becomes of a statement.
#[derive(Debug)]
pub(crate) enum Edit {
    /// `let name = ..`: the value is bound to its stable name.
    Bind(Ident),
    /// `let [a, b] = ..`
    BindEach(Vec<Ident>),
    /// `let (a, b) = ..`
    BindTuple(Vec<Ident>),
    /// A processor at the end of a chain: fine if it forwards nothing. The place is its method's.
    Ended(Span),
}

/// A node of the static description.
#[derive(Debug)]
pub(crate) struct Node {
    /// The stable name: a `let` or `.named(..)`.
    given: Option<String>,
    /// The name without that, as the builder makes it: of its type, or `{stream}.{step}`.
    derived: String,
    /// The method that makes it, as the user wrote it.
    step: String,
    /// The first type argument: the source, processor or sink.
    of: Option<Type>,
    /// Places of the nodes that feed it.
    parents: Vec<usize>,
    /// Whether one stream comes out of it: then a `let` names it.
    single: bool,
}

impl Topology {
    /// The nodes' names as the builder settles them: given ones first, then the others, numbered where taken.
    fn names(&self) -> Vec<String> {
        let mut taken: BTreeSet<String> = self.nodes.iter().filter_map(|n| n.given.clone()).collect();
        self.nodes
            .iter()
            .map(|n| {
                n.given.clone().unwrap_or_else(|| {
                    let mut name = n.derived.clone();
                    let mut i = 1;
                    while !taken.insert(name.clone()) {
                        i += 1;
                        name = format!("{}-{i}", n.derived);
                    }
                    name
                })
            })
            .collect()
    }
}

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let (mut parsed, put_back) = match syn::parse2::<ItemFn>(item.clone()) {
        Ok(parsed) => (parsed, None),
        Err(e) => {
            let Some((parsed, put_back)) = body(item.clone()) else {
                let text = "`#[topology]` goes on a function: `fn name(t: &mut Topology) { .. }`";
                wrong_item("S501", "fn", &item, e, text, &mut errors);
                let mut out = errors.to_token_stream();
                out.extend(item);
                return out;
            };
            // The compiler has its own words for a body that does not parse; the rest is there.
            (parsed, Some(put_back))
        }
    };
    let args = Args::read("topology", args, &["crate"], &mut errors);
    let krate = krate(&args, &mut errors);
    let Some(builder) = signature(&parsed, &mut errors) else {
        // Taken by value it would have to be `mut`, which is not what is wrong.
        for arg in &mut parsed.sig.inputs {
            if let FnArg::Typed(PatType { pat, ty, .. }) = arg
                && let (Pat::Ident(p), Type::Path(_)) = (&mut **pat, &**ty)
            {
                p.mutability = Some(parse_quote!(mut));
            }
        }
        if let Some(put_back) = put_back {
            put_back(&mut parsed);
        }
        let stub = expand::stub(&parsed, &krate);
        return quote!(#[allow(unused_variables, unused_mut)] #parsed #errors #stub);
    };
    let mut topology = read::read(parsed, krate, &builder, &mut errors);
    if let Some(put_back) = put_back {
        put_back(&mut topology.item);
    }
    if !errors.is_empty() {
        topology.item.attrs.push(parse_quote!(#[allow(unused_variables)]));
    }
    let code = expand::expand(topology);
    quote!(#code #errors)
}

/// Checks the function's shape; gives the name of its parameter.
fn signature(item: &ItemFn, errors: &mut Errors) -> Option<Ident> {
    let sig = &item.sig;
    let name = &sig.ident;
    let mut faults = Vec::new();
    if let Some(a) = &sig.asyncness {
        faults.push(("not be `async`: it only declares", a.to_token_stream()));
    }
    if !sig.generics.params.is_empty() {
        faults.push(("have no type parameters: its types are fixed", sig.generics.to_token_stream()));
    }
    if let ReturnType::Type(_, t) = &sig.output
        && !matches!(&**t, Type::Tuple(t) if t.elems.is_empty())
    {
        faults.push(("return nothing", t.to_token_stream()));
    }
    let builder = match sig.inputs.iter().collect::<Vec<_>>().as_slice() {
        [FnArg::Typed(arg)] => match (&*arg.pat, &*arg.ty) {
            (Pat::Ident(p), Type::Reference(_)) => Some(p.ident.clone()),
            _ => None,
        },
        _ => None,
    };
    if builder.is_none() {
        let at = if sig.inputs.is_empty() { name.to_token_stream() } else { sig.inputs.to_token_stream() };
        faults.push(("take one argument, `t: &mut Topology`", at));
    }
    if faults.is_empty() {
        return builder;
    }
    for (what, at) in faults {
        errors.on("S502", at, format!("a topology function must {what}; expected `fn {name}(t: &mut Topology)`"));
    }
    None
}
