//! Reads the body: which streams there are, who feeds whom, and what is not allowed.
//!
//! The body is ordinary Rust and stays as it is. What cannot be read is never skipped silently: a stream that goes where
//! this file cannot follow is an error.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use stoat_macro_support::{Errors, plain, shown};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ExprCall, ExprMethodCall, GenericArgument, ItemFn, Lit, Local, Macro, Pat, Stmt, Type};

use super::{Edit, FragmentCall, Node, Topology};

/// Steps that become one node together with their neighbours.
const STATELESS: &[&str] = &[
    "map_values",
    "try_map_values",
    "filter",
    "filter_not",
    "flat_map_values",
    "flat_map",
    "map",
    "select_key",
    "peek",
    "with_key",
    "with_value",
    "drop_late",
];
/// Methods that end a stream.
const ENDS: &[&str] = &["sink", "for_each", "discard"];
/// Methods that make several streams out of one.
const SPLITS: &[&str] = &["fan_out", "split", "split_late"];
/// Methods that make a table out of records by key.
const AGGREGATIONS: &[&str] = &["count", "reduce", "aggregate"];
/// Methods that take what they name as a type and nothing else, and what that is.
const BY_TYPE: &[(&str, &str)] = &[("source", "source"), ("sink", "sink"), ("process", "processor")];
/// Methods of the builder that make no stream.
const SETTINGS: &[&str] = &["on_decode_error", "on_process_error", "on_produce_error"];
/// Methods whose node has the name of its type.
const TYPED: &[&str] = &["source", "scheduled", "sink", "process", "process_with"];

const STRAIGHT: &str = "a topology is a straight line, so that its graph is known at compile time: decide inside an operator \
                        (`.filter(..)`), or write two `#[topology]` functions";
const AGGREGATE: &str = "go on with `.count()`, `.reduce(..)` or `.aggregate(..)`";
const TO_STREAM: &str =
    "go on with `.to_stream()`; where its changelog topic is all that is wanted, `.to_stream().discard()` says so";
const END_IT: &str = "end the chain with `.sink::<S>()`, `.for_each(..)` or `.discard()`";

/// What an expression is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// The function's parameter.
    Builder,
    /// A stream.
    Stream(Flow),
    /// Several streams out of one node.
    Many(Flow),
    /// Records by key, before an aggregation.
    Group(Flow),
    /// The result of an aggregation.
    Table(Flow),
    /// What a fragment returns.
    Fragment(Flow),
    /// A stream that has ended.
    Ended,
    /// Something else: ordinary Rust.
    Other,
    /// An error was reported: whatever follows from it is not.
    Unknown,
}

/// Where a stream comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Flow {
    /// The node.
    at: usize,
    /// What derived names begin with.
    label: String,
    /// The last of the stateless steps that are no node yet.
    pending: Option<String>,
}

struct Stream {
    ident: Ident,
    value: Value,
    used: bool,
}

struct Reader<'e> {
    builder: Ident,
    streams: Vec<Stream>,
    by_name: BTreeMap<String, usize>,
    nodes: Vec<Node>,
    twice: Vec<Ident>,
    /// What is stored by its name: nodes, and the methods that make them.
    stored: Vec<(usize, Ident)>,
    calls: Vec<FragmentCall>,
    /// Arguments that should be types: where they lie in memory.
    by_value: Vec<usize>,
    errors: &'e mut Errors,
}

pub(super) fn read(item: ItemFn, krate: TokenStream, builder: &Ident, errors: &mut Errors) -> Topology {
    read_with(item, krate, builder, None, errors)
}

/// Reads the body of a fragment: `params` are the streams that it takes, and what it returns is consumed.
pub(crate) fn read_fragment(
    item: ItemFn,
    krate: TokenStream,
    builder: &Ident,
    params: Vec<Ident>,
    errors: &mut Errors,
) -> Topology {
    read_with(item, krate, builder, Some(params), errors)
}

fn read_with(
    item: ItemFn,
    krate: TokenStream,
    builder: &Ident,
    params: Option<Vec<Ident>>,
    errors: &mut Errors,
) -> Topology {
    let mut reader = Reader {
        builder: builder.clone(),
        streams: Vec::new(),
        by_name: BTreeMap::new(),
        nodes: Vec::new(),
        twice: Vec::new(),
        stored: Vec::new(),
        calls: Vec::new(),
        by_value: Vec::new(),
        errors,
    };
    let is_fragment = params.is_some();
    for ident in params.unwrap_or_default() {
        let label = plain(&ident);
        let at = reader.node("input".to_owned(), label.clone(), None, Vec::new()).at;
        reader.bind(ident, Value::Stream(Flow { at, label, pending: None }));
    }
    let last = item.block.stmts.len().saturating_sub(1);
    let mut edits = BTreeMap::new();
    for (i, stmt) in item.block.stmts.iter().enumerate() {
        if is_fragment && i == last && matches!(stmt, Stmt::Expr(_, None)) {
            reader.returned(stmt);
        } else if let Some(edit) = reader.statement(stmt) {
            edits.insert(i, edit);
        }
    }
    reader.finish();
    let (nodes, twice, calls, by_value) = (reader.nodes, reader.twice, reader.calls, reader.by_value);
    Topology { item, krate, nodes, edits, twice, calls, by_value, builder: builder.clone() }
}

impl Reader<'_> {
    fn statement(&mut self, stmt: &Stmt) -> Option<Edit> {
        if let Some(cfg) = cfg(stmt)
            && self.says_stream(stmt)
        {
            self.errors.on("S504", 
                cfg,
                "a step that may not be there would make the known graph wrong: write two `#[topology]` functions, each under \
                 its `#[cfg(..)]`",
            );
        }
        let mut exits = Exits(Vec::new());
        exits.visit_stmt(stmt);
        for at in &exits.0 {
            self.errors.at("S503", *at, STRAIGHT);
        }
        match stmt {
            Stmt::Local(local) => self.local(local),
            Stmt::Expr(expr, _) => {
                let value = self.expr(expr);
                self.must_end(value, expr)
            }
            Stmt::Macro(m) => {
                self.in_macro(&m.mac);
                None
            }
            Stmt::Item(_) => None,
        }
    }

    fn local(&mut self, local: &Local) -> Option<Edit> {
        let init = local.init.as_ref()?;
        let value = self.expr(&init.expr);
        if let Some((_, other)) = &init.diverge
            && value != Value::Other
        {
            self.errors.at("S503", other.span(), STRAIGHT);
        }
        let pat = match &local.pat {
            Pat::Type(t) => &*t.pat,
            p => p,
        };
        let flow = match value {
            Value::Ended | Value::Other => return None,
            Value::Builder => {
                self.errors.on(
                    "S510",
                    &init.expr,
                    format!("`{}` has one name here: use it as it is", plain(&self.builder)),
                );
                return None;
            }
            Value::Unknown => {
                // Names bound here stand for streams whose use nobody can count.
                for ident in names(pat) {
                    self.bind(ident, Value::Unknown);
                }
                return None;
            }
            Value::Many(flow) => return self.local_each(pat, &flow),
            Value::Fragment(flow) => return self.local_fragment(pat, flow),
            Value::Stream(ref f) | Value::Group(ref f) | Value::Table(ref f) => f.clone(),
        };
        match pat {
            Pat::Ident(p) => {
                let name = plain(&p.ident);
                let value = match value {
                    Value::Stream(_) => {
                        let at = self.erase(flow).at;
                        if !self.by_name.contains_key(&name) {
                            self.free(at, &name, &p.ident);
                        }
                        self.name(at, &name, false);
                        Value::Stream(Flow { at, label: name, pending: None })
                    }
                    Value::Table(_) => {
                        self.name(flow.at, &name, false);
                        value
                    }
                    value => value,
                };
                self.bind(p.ident.clone(), value);
                Some(Edit::Bind(p.ident.clone()))
            }
            Pat::Wild(w) => {
                self.errors.on("S505", w, format!("nobody consumes this stream: {END_IT}"));
                None
            }
            other => {
                self.errors.on("S510", other, "a stream is bound to one name: `let name = ..;`");
                None
            }
        }
    }

    /// What a fragment returns: one stream, an array or a tuple of them.
    fn local_fragment(&mut self, pat: &Pat, flow: Flow) -> Option<Edit> {
        match pat {
            Pat::Ident(p) => {
                let name = plain(&p.ident);
                if !self.by_name.contains_key(&name) {
                    self.free(flow.at, &name, &p.ident);
                }
                self.name(flow.at, &name, false);
                self.bind(p.ident.clone(), Value::Stream(Flow { label: name, ..flow }));
                Some(Edit::Bind(p.ident.clone()))
            }
            Pat::Tuple(tuple) => {
                let elems: Vec<Ident> = tuple.elems.iter().flat_map(names).collect();
                self.nodes[flow.at].single = false;
                for ident in &elems {
                    let label = plain(ident);
                    self.bind(ident.clone(), Value::Stream(Flow { at: flow.at, label, pending: None }));
                }
                if elems.len() != tuple.elems.len() {
                    self.errors.on("S511", tuple, format!("each stream needs a name, and a consumer: {END_IT}"));
                    return None;
                }
                Some(Edit::BindTuple(elems))
            }
            Pat::Wild(w) => {
                self.errors.on("S505", w, format!("nobody consumes what this fragment returns: {END_IT}"));
                None
            }
            other => self.local_each(other, &flow),
        }
    }

    /// The end of a fragment's body: what stands there is consumed by whoever calls it.
    fn returned(&mut self, stmt: &Stmt) {
        let mut exits = Exits(Vec::new());
        exits.visit_stmt(stmt);
        for at in &exits.0 {
            self.errors.at("S503", *at, STRAIGHT);
        }
        if let Stmt::Expr(expr, _) = stmt {
            match expr {
                Expr::Tuple(t) => t.elems.iter().for_each(|e| {
                    self.expr(e);
                }),
                Expr::Array(a) => a.elems.iter().for_each(|e| {
                    self.expr(e);
                }),
                e => {
                    self.expr(e);
                }
            }
        }
    }

    /// A call of a function that takes streams: it has to be a fragment, which its type shows.
    fn fragment(&mut self, call: &ExprCall) -> Value {
        let Expr::Path(func) = &*call.func else {
            self.mentions(call.args.iter());
            self.errors.on("S510", &call.func, "a fragment is called by its name, so that the graph can show it");
            return Value::Unknown;
        };
        let (mut flows, mut from) = (Vec::new(), None);
        for (i, arg) in call.args.iter().enumerate() {
            if matches!(arg, Expr::Path(p) if p.path.get_ident() == Some(&self.builder)) {
                from.get_or_insert(i);
                continue;
            }
            let before = flows.len();
            self.argument(arg, &mut flows);
            if flows.len() > before && !matches!(arg, Expr::Array(_) | Expr::Tuple(_)) {
                from.get_or_insert(i);
            }
        }
        let Some(from) = from else {
            if !flows.is_empty() {
                self.errors.on("S510", &call.args, "a fragment takes its streams one by one");
            }
            return Value::Unknown;
        };
        let parents = self.erase_all(flows);
        let name = func.path.segments.last().map(|s| plain(&s.ident)).unwrap_or_default();
        let of = Type::Path(syn::TypePath { attrs: Vec::new(), qself: None, path: func.path.clone() });
        let node = self.node("fragment".to_owned(), name, Some(of), parents);
        self.calls.push(FragmentCall { at: FragmentCall::address(call), node: node.at, from });
        Value::Fragment(node)
    }

    fn local_each(&mut self, pat: &Pat, flow: &Flow) -> Option<Edit> {
        let Pat::Slice(slice) = pat else {
            self.errors.on("S511", pat, "these are several streams: take them apart, `let [a, b] = ..;`");
            for ident in names(pat) {
                self.bind(ident, Value::Unknown);
            }
            return None;
        };
        let mut all = Vec::new();
        self.nodes[flow.at].single = slice.elems.len() == 1;
        for elem in &slice.elems {
            if let Pat::Ident(p) = elem {
                let label = plain(&p.ident);
                self.name(flow.at, &label, false);
                self.bind(p.ident.clone(), Value::Stream(Flow { at: flow.at, label, pending: None }));
                all.push(p.ident.clone());
            } else {
                self.errors.on("S511", elem, format!("each stream needs a name, and a consumer: {END_IT}"));
            }
        }
        (all.len() == slice.elems.len()).then_some(Edit::BindEach(all))
    }

    fn bind(&mut self, ident: Ident, value: Value) {
        let name = plain(&ident);
        if let Some(old) = self.by_name.get(&name) {
            let old = &self.streams[*old];
            if old.value != Value::Unknown && value != Value::Unknown {
                self.taken(&name, &ident);
            }
        }
        self.by_name.insert(name, self.streams.len());
        self.streams.push(Stream { ident, used: value == Value::Unknown, value });
    }

    /// As the builder does: stateless steps become a node when something else follows.
    fn erase(&mut self, flow: Flow) -> Flow {
        let Some(step) = flow.pending else { return flow };
        let derived = format!("{}.{step}", flow.label);
        self.node(step, derived, None, vec![flow.at])
    }

    fn node(&mut self, step: String, derived: String, of: Option<Type>, parents: Vec<usize>) -> Flow {
        self.nodes.push(Node { given: None, derived: derived.clone(), step, of, parents, single: true });
        Flow { at: self.nodes.len() - 1, label: derived, pending: None }
    }

    /// Whether no other node was given this name.
    fn free(&mut self, node: usize, name: &str, at: impl ToTokens) {
        if self.nodes.iter().enumerate().any(|(i, n)| i != node && n.given.as_deref() == Some(name)) {
            self.taken(name, at);
        }
    }

    fn taken(&mut self, name: &str, at: impl ToTokens) {
        self.errors.on(
            "S507",
            at,
            format!(
                "two streams are named `{name}`: the name of a stream names its node, its stores and its changelog topics; \
                 give this one another name"
            ),
        );
    }

    fn name(&mut self, node: usize, name: &str, replace: bool) {
        let node = &mut self.nodes[node];
        if node.single && (replace || node.given.is_none()) {
            node.given = Some(name.to_owned());
        }
    }

    fn label(&self, node: usize) -> String {
        let node = &self.nodes[node];
        node.given.clone().unwrap_or_else(|| node.derived.clone())
    }

    fn expr(&mut self, expr: &Expr) -> Value {
        match expr {
            Expr::Paren(e) => self.expr(&e.expr),
            Expr::Group(e) => self.expr(&e.expr),
            Expr::Path(p) => match p.path.get_ident() {
                Some(i) if *i == self.builder => Value::Builder,
                Some(i) => self.use_stream(i),
                None => Value::Other,
            },
            Expr::MethodCall(call) => self.call(call),
            Expr::Call(call) => {
                if self.says(call.args.iter()) {
                    return self.fragment(call);
                }
                Value::Other
            }
            Expr::Array(a) => self.parts(a.elems.iter()),
            Expr::Tuple(t) => self.parts(t.elems.iter()),
            Expr::Closure(_) => Value::Other,
            Expr::Macro(m) => self.in_macro(&m.mac),
            Expr::If(_)
            | Expr::Match(_)
            | Expr::While(_)
            | Expr::ForLoop(_)
            | Expr::Loop(_)
            | Expr::Block(_)
            | Expr::Unsafe(_)
            | Expr::Async(_)
            | Expr::Const(_) => {
                if self.mentions([expr]).is_empty() {
                    return Value::Other;
                }
                let at = expr.to_token_stream().into_iter().next().map_or_else(|| expr.span(), |t| t.span());
                self.errors.at("S503", at, STRAIGHT);
                Value::Unknown
            }
            // Reported as an exit already.
            Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) | Expr::Try(_) | Expr::Await(_) => {
                self.mentions([expr]);
                Value::Unknown
            }
            Expr::Assign(a) => {
                if self.mentions([expr]).is_empty() {
                    return Value::Other;
                }
                self.errors.on("S510", &a.left, "a stream is bound by `let`, once: `let name = ..;`");
                Value::Unknown
            }
            other => {
                if self.mentions([other]).is_empty() {
                    return Value::Other;
                }
                self.errors.on("S510", other, "a stream is used by its methods only; here the graph cannot be read");
                Value::Unknown
            }
        }
    }

    /// Elements of an array or a tuple: as arguments of a method.
    fn parts<'a>(&mut self, elems: impl Iterator<Item = &'a Expr>) -> Value {
        let values: Vec<Value> = elems.map(|e| self.expr(e)).collect();
        if values.iter().all(|v| *v == Value::Other) { Value::Other } else { Value::Unknown }
    }

    fn call(&mut self, call: &ExprMethodCall) -> Value {
        let receiver = self.expr(&call.receiver);
        let method = plain(&call.method);
        match receiver {
            Value::Builder if SETTINGS.contains(&&*method) => Value::Other,
            Value::Builder => {
                let others = self.arguments(call);
                let of = first_type(call).or_else(|| self.by_value(call));
                let typed = TYPED.contains(&&*method);
                let derived = if typed { type_name(of.as_ref()) } else { method.clone() };
                let parents = self.erase_all(others);
                Value::Stream(self.node(method, derived, of, parents))
            }
            Value::Stream(flow) | Value::Fragment(flow) => self.stream_call(call, method, flow),
            Value::Group(flow) => {
                if method == "stored_as" {
                    return Value::Group(flow);
                }
                self.arguments(call);
                if !AGGREGATIONS.contains(&&*method) {
                    // The compiler knows that there is no such method.
                    return Value::Unknown;
                }
                let derived = format!("{}.{method}", flow.label);
                let table = self.node(method, derived, None, vec![flow.at]);
                self.stored.push((table.at, call.method.clone()));
                Value::Table(table)
            }
            Value::Table(flow) => match method.as_str() {
                "named" => {
                    if let Some(name) = literal(call) {
                        self.free(flow.at, &name, &call.args);
                        self.name(flow.at, &name, true);
                    }
                    Value::Table(flow)
                }
                "to_stream" => Value::Stream(Flow { label: self.label(flow.at), ..flow }),
                _ => {
                    let label = self.label(flow.at);
                    self.stream_call(call, method, Flow { label, ..flow })
                }
            },
            Value::Many(_) => {
                self.errors.on(
                    "S511",
                    &call.method,
                    "these are several streams: take them apart first, `let [a, b] = ..;`",
                );
                self.mentions(call.args.iter());
                Value::Unknown
            }
            Value::Ended | Value::Other => {
                let mentioned = self.mentions(call.args.iter());
                let Some(stream) = mentioned.first().map(plain) else {
                    return receiver;
                };
                self.errors.on(
                    "S510",
                    &call.method,
                    format!(
                        "`{stream}` goes into `.{method}(..)`, which is no step of a topology, so the graph would have a gap: go on \
                         with its own methods, `{stream}.map_values(..)`"
                    ),
                );
                Value::Unknown
            }
            Value::Unknown => {
                self.mentions(call.args.iter());
                Value::Unknown
            }
        }
    }

    fn stream_call(&mut self, call: &ExprMethodCall, method: String, flow: Flow) -> Value {
        let others = self.arguments(call);
        if STATELESS.contains(&&*method) {
            return Value::Stream(Flow { pending: Some(method), ..flow });
        }
        let grouped = method == "group_by";
        let mut flow = self.erase(if grouped { Flow { pending: Some("select_key".to_owned()), ..flow } } else { flow });
        match method.as_str() {
            "erase" => return Value::Stream(flow),
            "group_by" | "group_by_key" => return Value::Group(flow),
            "named" => {
                if let Some(name) = literal(call) {
                    self.free(flow.at, &name, &call.args);
                    self.name(flow.at, &name, true);
                    flow.label = name;
                }
                return Value::Stream(flow);
            }
            _ => {}
        }
        let mut parents = vec![flow.at];
        parents.extend(self.erase_all(others));
        let of = first_type(call).or_else(|| self.by_value(call));
        let derived = if TYPED.contains(&&*method) {
            type_name(of.as_ref().or(made(call).as_ref()))
        } else {
            format!("{}.{method}", flow.label)
        };
        let next = self.node(method.clone(), derived, of, parents);
        if method == "repartition" {
            self.stored.push((next.at, call.method.clone()));
        }
        if ENDS.contains(&&*method) {
            Value::Ended
        } else if SPLITS.contains(&&*method) {
            self.nodes[next.at].single = false;
            Value::Many(next)
        } else {
            Value::Stream(next)
        }
    }

    /// `.process(P)` in the place of `.process::<P>()`: the type that was meant.
    fn by_value(&mut self, call: &ExprMethodCall) -> Option<Type> {
        let method = plain(&call.method);
        let (_, what) = BY_TYPE.iter().find(|(m, _)| *m == method)?;
        let (arg, ty) = named_by_value(call)?;
        let name = shown(&ty);
        let dot = if what == &"source" { format!("{}.", plain(&self.builder)) } else { ".".to_owned() };
        self.errors.on("S513", arg, format!("a {what} is named by its type: write `{dot}{method}::<{name}>()`"));
        self.by_value.push(std::ptr::from_ref(arg).addr());
        Some(ty)
    }

    fn erase_all(&mut self, flows: Vec<Flow>) -> Vec<usize> {
        flows.into_iter().map(|f| self.erase(f).at).collect()
    }

    /// Streams among the arguments of a method.
    fn arguments(&mut self, call: &ExprMethodCall) -> Vec<Flow> {
        let mut flows = Vec::new();
        for arg in &call.args {
            self.argument(arg, &mut flows);
        }
        flows
    }

    fn argument(&mut self, arg: &Expr, flows: &mut Vec<Flow>) {
        match arg {
            Expr::Array(a) => a.elems.iter().for_each(|e| self.argument(e, flows)),
            Expr::Tuple(t) => t.elems.iter().for_each(|e| self.argument(e, flows)),
            _ => match self.expr(arg) {
                Value::Stream(f) | Value::Many(f) | Value::Group(f) | Value::Table(f) | Value::Fragment(f) => {
                    flows.push(f);
                }
                Value::Ended => self.errors.on("S510", arg, "this stream has ended: it cannot feed another"),
                Value::Builder => self.errors.on("S510", arg, "the builder is no stream: use its methods"),
                Value::Other | Value::Unknown => {}
            },
        }
    }

    fn use_stream(&mut self, ident: &Ident) -> Value {
        let Some(i) = self.by_name.get(&plain(ident)).copied() else {
            return Value::Other;
        };
        let stream = &mut self.streams[i];
        if stream.used && stream.value != Value::Unknown {
            let name = plain(ident);
            self.errors.on("S506", 
                ident,
                format!(
                    "`{name}` is used twice, but a stream is consumed by its use: split it first, `let [{name}_a, {name}_b] = \
                     {name}.fan_out();`"
                ),
            );
            self.twice.push(stream.ident.clone());
        }
        stream.used = true;
        stream.value.clone()
    }

    /// Streams (and the builder) in expressions that are not read; they count as used.
    fn mentions<'a>(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) -> Vec<Ident> {
        let mut found =
            Mentions { names: self.by_name.keys().cloned().chain([plain(&self.builder)]).collect(), found: Vec::new() };
        for e in exprs {
            found.visit_expr(e);
        }
        for ident in &found.found {
            if let Some(i) = self.by_name.get(&plain(ident)) {
                self.streams[*i].used = true;
            }
        }
        found.found
    }

    /// Whether expressions have to do with streams.
    fn says<'a>(&self, exprs: impl IntoIterator<Item = &'a Expr>) -> bool {
        let mut found =
            Mentions { names: self.by_name.keys().cloned().chain([plain(&self.builder)]).collect(), found: Vec::new() };
        for e in exprs {
            found.visit_expr(e);
        }
        !found.found.is_empty()
    }

    /// Whether a statement has to do with streams.
    fn says_stream(&self, stmt: &Stmt) -> bool {
        let mut found =
            Mentions { names: self.by_name.keys().cloned().chain([plain(&self.builder)]).collect(), found: Vec::new() };
        found.visit_stmt(stmt);
        !found.found.is_empty()
    }

    fn in_macro(&mut self, mac: &Macro) -> Value {
        let names: Vec<String> = self.by_name.keys().cloned().chain([plain(&self.builder)]).collect();
        let mut found = Vec::new();
        idents(mac.tokens.clone(), &names, &mut found);
        let Some(first) = found.first() else {
            return Value::Other;
        };
        self.errors.on(
            "S509",
            first,
            format!(
                "`{}` goes into a macro, which is not read: write the steps here, as methods of the stream",
                plain(first)
            ),
        );
        for ident in &found {
            if let Some(i) = self.by_name.get(&plain(ident)) {
                self.streams[*i].used = true;
            }
        }
        Value::Unknown
    }

    fn must_end(&mut self, value: Value, expr: &Expr) -> Option<Edit> {
        let end = end(&value);
        let (Value::Stream(flow) | Value::Many(flow) | Value::Group(flow) | Value::Table(flow)) = &value else {
            return None;
        };
        let Expr::MethodCall(call) = expr else {
            self.errors.on("S505", expr, format!("nobody consumes this stream: {END_IT}"));
            return None;
        };
        if matches!(value, Value::Table(_)) && self.nodes[flow.at].given.is_none() {
            // It has no name, which is the first thing to mend.
            return None;
        }
        let method = plain(&call.method);
        if flow.pending.is_none() && matches!(method.as_str(), "process" | "process_with") {
            // Only types know whether it forwards anything.
            return Some(Edit::Ended(call.method.span()));
        }
        self.errors.on("S505", &call.method, format!("nobody consumes the result of `.{method}(..)`: {end}"));
        None
    }

    fn finish(&mut self) {
        for (node, method) in &self.stored {
            if self.nodes[*node].given.is_none() {
                let what = if method == "repartition" {
                    "boundary `.repartition(..)` has no name, under which the progress of what follows is committed"
                } else {
                    &format!(
                        "aggregation `.{}(..)` has no name, which its store and its changelog topic need",
                        plain(method)
                    )
                };
                let text = format!("the {what}: bind it, `let name = ..;`, or call `.named(\"..\")`");
                self.errors.on("S512", method, text);
            }
        }
        for s in &self.streams {
            if !s.used {
                let end = end(&s.value);
                self.errors.on("S505", &s.ident, format!("nobody consumes `{}`: {end}", plain(&s.ident)));
            }
        }
    }
}

/// How to go on with what nobody consumes.
fn end(value: &Value) -> &'static str {
    match value {
        Value::Group(_) => AGGREGATE,
        Value::Table(_) => TO_STREAM,
        _ => END_IT,
    }
}

/// The `#[cfg(..)]` of a statement.
fn cfg(stmt: &Stmt) -> Option<&Attribute> {
    let attrs = match stmt {
        Stmt::Local(l) => &l.attrs,
        Stmt::Macro(m) => &m.attrs,
        Stmt::Expr(Expr::MethodCall(e), _) => {
            // The attribute of a statement hangs on the first expression of its chain.
            let mut e = e;
            loop {
                if !e.attrs.is_empty() {
                    break &e.attrs;
                }
                match &*e.receiver {
                    Expr::MethodCall(inner) => e = inner,
                    Expr::Path(p) => break &p.attrs,
                    _ => return None,
                }
            }
        }
        _ => return None,
    };
    attrs.iter().find(|a| a.path().is_ident("cfg"))
}

fn first_type(call: &ExprMethodCall) -> Option<Type> {
    match call.turbofish.as_ref()?.args.first()? {
        GenericArgument::Type(t) => Some(t.clone()),
        _ => None,
    }
}

/// The type that stands as the one argument of a method, in the place of its type argument.
pub(super) fn named_by_value(call: &ExprMethodCall) -> Option<(&Expr, Type)> {
    if call.turbofish.is_some() || call.args.len() != 1 {
        return None;
    }
    let arg = call.args.first()?;
    let path = match arg {
        Expr::Path(p) if p.qself.is_none() => &p.path,
        Expr::Struct(s) if s.qself.is_none() => &s.path,
        _ => return None,
    };
    // A variable is no type.
    let is_type = plain(&path.segments.last()?.ident).starts_with(char::is_uppercase);
    is_type.then(|| (arg, syn::parse_quote!(#path)))
}

/// The name of a type's last part: what its `NAME` is, unless the user gave it another.
fn type_name(ty: Option<&Type>) -> String {
    match ty {
        Some(Type::Path(p)) => p.path.segments.last().map(|s| plain(&s.ident)).unwrap_or_default(),
        _ => String::new(),
    }
}

/// The processor of `process_with(move || P::init(..))`.
fn made(call: &ExprMethodCall) -> Option<Type> {
    struct Init(Option<Type>);
    impl<'ast> Visit<'ast> for Init {
        fn visit_expr_path(&mut self, p: &'ast syn::ExprPath) {
            if p.path.segments.last().is_some_and(|s| s.ident == "init") && p.path.segments.len() > 1 {
                let mut path = p.path.clone();
                path.segments.pop();
                path.segments.pop_punct();
                self.0 = Some(syn::parse_quote!(#path));
            }
        }
    }
    let mut init = Init(None);
    call.args.iter().for_each(|a| init.visit_expr(a));
    init.0
}

fn literal(call: &ExprMethodCall) -> Option<String> {
    match call.args.first()? {
        Expr::Lit(l) => match &l.lit {
            Lit::Str(s) => Some(s.value()),
            _ => None,
        },
        _ => None,
    }
}

fn names(pat: &Pat) -> Vec<Ident> {
    struct Names(Vec<Ident>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, p: &'ast syn::PatIdent) {
            self.0.push(p.ident.clone());
        }
    }
    let mut all = Names(Vec::new());
    all.visit_pat(pat);
    all.0
}

/// Words of a macro call that are names of streams. After a dot they are something else.
fn idents(tokens: TokenStream, names: &[String], found: &mut Vec<Ident>) {
    let mut after_dot = false;
    for t in tokens {
        match t {
            TokenTree::Ident(i) => {
                if !after_dot && names.contains(&plain(&i)) {
                    found.push(i);
                }
                after_dot = false;
            }
            TokenTree::Group(g) => {
                idents(g.stream(), names, found);
                after_dot = false;
            }
            TokenTree::Punct(p) => after_dot = p.as_char() == '.',
            TokenTree::Literal(_) => after_dot = false,
        }
    }
}

struct Mentions {
    names: Vec<String>,
    found: Vec<Ident>,
}

impl<'ast> Visit<'ast> for Mentions {
    fn visit_expr_path(&mut self, p: &'ast syn::ExprPath) {
        if let Some(i) = p.path.get_ident()
            && self.names.contains(&plain(i))
        {
            self.found.push(i.clone());
        }
    }
    fn visit_macro(&mut self, m: &'ast Macro) {
        idents(m.tokens.clone(), &self.names, &mut self.found);
    }
    // A closure's parameters may have a stream's name; what it captures by mistake, rustc tells.
    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}

/// Places where the function could end early.
struct Exits(Vec<Span>);

impl<'ast> Visit<'ast> for Exits {
    fn visit_expr_return(&mut self, e: &'ast syn::ExprReturn) {
        self.0.push(e.return_token.span);
        visit::visit_expr_return(self, e);
    }
    fn visit_expr_try(&mut self, e: &'ast syn::ExprTry) {
        self.0.push(e.question_token.span());
        visit::visit_expr_try(self, e);
    }
    fn visit_expr_closure(&mut self, _: &'ast syn::ExprClosure) {}
    fn visit_expr_async(&mut self, _: &'ast syn::ExprAsync) {}
    fn visit_item(&mut self, _: &'ast syn::Item) {}
}
