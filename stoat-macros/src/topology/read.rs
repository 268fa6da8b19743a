//! Reads the body: which streams there are, who feeds whom, and what is not allowed.
//!
//! The body is ordinary Rust and stays as it is. What cannot be read is never skipped silently: a stream that goes where
//! this file cannot follow is an error.

use std::collections::BTreeMap;

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use stoat_macro_support::{Errors, plain};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, ExprMethodCall, GenericArgument, ItemFn, Lit, Local, Macro, Pat, Stmt};

use super::{Node, Topology};

/// Methods that end a stream.
const ENDS: &[&str] = &["sink", "for_each", "discard"];
/// Methods that make several streams out of one.
const SPLITS: &[&str] = &["fan_out", "split", "branch"];

const STRAIGHT: &str = "a topology is a straight line, so that its graph is known at compile time: decide inside an operator \
                        (`.filter(..)`), or write two `#[topology]` functions";
const END_IT: &str = "end the chain with `.sink::<S>()`, `.for_each(..)` or `.discard()`";

/// What an expression is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// The function's parameter.
    Builder,
    /// One stream, fed by this node.
    Stream(usize),
    /// Several streams, fed by this node.
    Many(usize),
    /// A stream that has ended.
    Ended,
    /// Something else: ordinary Rust.
    Other,
    /// An error was reported: whatever follows from it is not.
    Unknown,
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
    errors: &'e mut Errors,
}

pub(super) fn read(item: ItemFn, krate: TokenStream, builder: &Ident, errors: &mut Errors) -> Topology {
    let mut reader = Reader {
        builder: builder.clone(),
        streams: Vec::new(),
        by_name: BTreeMap::new(),
        nodes: Vec::new(),
        twice: Vec::new(),
        errors,
    };
    let mut bindings = Vec::new();
    for (i, stmt) in item.block.stmts.iter().enumerate() {
        if let Some(names) = reader.statement(stmt) {
            bindings.push((i, names));
        }
    }
    reader.finish();
    let (nodes, twice) = (reader.nodes, reader.twice);
    Topology {
        item,
        krate,
        nodes,
        bindings,
        twice,
    }
}

impl Reader<'_> {
    /// Reads a statement; gives the names of the streams that it binds.
    fn statement(&mut self, stmt: &Stmt) -> Option<Vec<Ident>> {
        let mut exits = Exits(Vec::new());
        exits.visit_stmt(stmt);
        for at in &exits.0 {
            self.errors.at(*at, STRAIGHT);
        }
        match stmt {
            Stmt::Local(local) => self.local(local),
            Stmt::Expr(expr, _) => {
                let value = self.expr(expr);
                self.must_end(value, expr);
                None
            }
            Stmt::Macro(m) => {
                self.in_macro(&m.mac);
                None
            }
            Stmt::Item(_) => None,
        }
    }

    fn local(&mut self, local: &Local) -> Option<Vec<Ident>> {
        let init = local.init.as_ref()?;
        let value = self.expr(&init.expr);
        if let Some((_, other)) = &init.diverge
            && value != Value::Other
        {
            self.errors.at(other.span(), STRAIGHT);
        }
        let node = match value {
            Value::Stream(n) | Value::Many(n) => n,
            Value::Builder => {
                self.errors.on(
                    &init.expr,
                    format!("`{}` has one name here: use it as it is", plain(&self.builder)),
                );
                return None;
            }
            Value::Unknown => {
                // Names bound here stand for streams whose use nobody can count.
                for ident in names(&local.pat) {
                    self.bind(ident, Value::Unknown);
                }
                return None;
            }
            Value::Ended | Value::Other => return None,
        };
        let pat = match &local.pat {
            Pat::Type(t) => &*t.pat,
            p => p,
        };
        match pat {
            Pat::Ident(p) => {
                if matches!(value, Value::Stream(_)) && self.nodes[node].name.is_none() {
                    self.nodes[node].name = Some(plain(&p.ident));
                }
                self.bind(p.ident.clone(), value);
                Some(vec![p.ident.clone()])
            }
            Pat::Slice(_) | Pat::Tuple(_) if matches!(value, Value::Many(_)) => {
                let elems = match pat {
                    Pat::Slice(s) => s.elems.iter(),
                    Pat::Tuple(t) => t.elems.iter(),
                    _ => return None,
                };
                let mut all = Vec::new();
                for elem in elems {
                    match elem {
                        Pat::Ident(p) => {
                            self.bind(p.ident.clone(), Value::Stream(node));
                            all.push(p.ident.clone());
                        }
                        other => self
                            .errors
                            .on(other, format!("each stream needs a name, and a consumer: {END_IT}")),
                    }
                }
                Some(all)
            }
            Pat::Wild(w) => {
                self.errors.on(w, format!("nobody consumes this stream: {END_IT}"));
                None
            }
            other => {
                self.errors.on(other, "a stream is bound to one name: `let name = ..;`");
                None
            }
        }
    }

    fn bind(&mut self, ident: Ident, value: Value) {
        let name = plain(&ident);
        if let Some(old) = self.by_name.get(&name) {
            let old = &self.streams[*old];
            if old.value != Value::Unknown && value != Value::Unknown {
                self.errors.on(
                    &ident,
                    format!(
                        "two streams are named `{name}`: the name of a stream names its node, its stores and its changelog \
                         topics; give this one another name"
                    ),
                );
            }
        }
        self.by_name.insert(name, self.streams.len());
        self.streams.push(Stream {
            ident,
            value,
            used: value == Value::Unknown,
        });
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
                if !self.mentions(call.args.iter()).is_empty() {
                    let f = call.func.to_token_stream().to_string().replace(' ', "");
                    self.errors.on(
                        &call.func,
                        format!(
                            "`{f}` is not read, so the graph would have a gap: write its steps here, as methods of the stream"
                        ),
                    );
                    return Value::Unknown;
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
                let at = expr
                    .to_token_stream()
                    .into_iter()
                    .next()
                    .map_or_else(|| expr.span(), |t| t.span());
                self.errors.at(at, STRAIGHT);
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
                self.errors
                    .on(&a.left, "a stream is bound by `let`, once: `let name = ..;`");
                Value::Unknown
            }
            other => {
                if self.mentions([other]).is_empty() {
                    return Value::Other;
                }
                self.errors.on(
                    other,
                    "a stream is used by its methods only; here the graph cannot be read",
                );
                Value::Unknown
            }
        }
    }

    /// Elements of an array or a tuple: as arguments of a method.
    fn parts<'a>(&mut self, elems: impl Iterator<Item = &'a Expr>) -> Value {
        let values: Vec<Value> = elems.map(|e| self.expr(e)).collect();
        if values.iter().all(|v| *v == Value::Other) {
            Value::Other
        } else {
            Value::Unknown
        }
    }

    fn call(&mut self, call: &ExprMethodCall) -> Value {
        let receiver = self.expr(&call.receiver);
        let mut parents = match receiver {
            Value::Builder => Vec::new(),
            Value::Stream(n) | Value::Many(n) => vec![n],
            Value::Ended | Value::Other => {
                if self.mentions(call.args.iter()).is_empty() {
                    return receiver;
                }
                self.errors.on(
                    &call.method,
                    format!(
                        "`{}` is not a method of a stream, so the graph would have a gap",
                        call.method
                    ),
                );
                return Value::Unknown;
            }
            Value::Unknown => {
                self.mentions(call.args.iter());
                return Value::Unknown;
            }
        };
        let method = plain(&call.method);
        if method == "named" {
            if let (Some(Expr::Lit(l)), Value::Stream(n)) = (call.args.first(), receiver)
                && let Lit::Str(s) = &l.lit
            {
                self.nodes[n].name = Some(s.value());
            }
            return receiver;
        }
        for arg in &call.args {
            self.argument(arg, &mut parents);
        }
        let node = self.nodes.len();
        self.nodes.push(Node {
            name: None,
            method: call.method.clone(),
            ty: call.turbofish.as_ref().and_then(first_type),
            parents,
        });
        if ENDS.contains(&&*method) {
            Value::Ended
        } else if SPLITS.contains(&&*method) {
            Value::Many(node)
        } else {
            Value::Stream(node)
        }
    }

    fn argument(&mut self, arg: &Expr, parents: &mut Vec<usize>) {
        match arg {
            Expr::Array(a) => a.elems.iter().for_each(|e| self.argument(e, parents)),
            Expr::Tuple(t) => t.elems.iter().for_each(|e| self.argument(e, parents)),
            _ => match self.expr(arg) {
                Value::Stream(n) | Value::Many(n) => parents.push(n),
                Value::Ended => self.errors.on(arg, "this stream has ended: it cannot feed another"),
                Value::Builder | Value::Other | Value::Unknown => {}
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
            self.errors.on(
                ident,
                format!(
                    "`{name}` is used twice, but a stream is consumed by its use: split it first, `let [{name}_a, {name}_b] = \
                     {name}.fan_out();`"
                ),
            );
            self.twice.push(stream.ident.clone());
        }
        stream.used = true;
        stream.value
    }

    /// Streams (and the builder) in expressions that are not read; they count as used.
    fn mentions<'a>(&mut self, exprs: impl IntoIterator<Item = &'a Expr>) -> Vec<Ident> {
        let mut found = Mentions {
            names: self.by_name.keys().cloned().chain([plain(&self.builder)]).collect(),
            found: Vec::new(),
        };
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

    fn in_macro(&mut self, mac: &Macro) -> Value {
        let names: Vec<String> = self.by_name.keys().cloned().chain([plain(&self.builder)]).collect();
        let mut found = Vec::new();
        idents(mac.tokens.clone(), &names, &mut found);
        let Some(first) = found.first() else {
            return Value::Other;
        };
        self.errors.on(
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

    fn must_end(&mut self, value: Value, expr: &Expr) {
        if !matches!(value, Value::Stream(_) | Value::Many(_)) {
            return;
        }
        if let Expr::MethodCall(call) = expr {
            let (at, method) = (&call.method, plain(&call.method));
            self.errors
                .on(at, format!("nobody consumes the result of `.{method}(..)`: {END_IT}"));
        } else {
            self.errors.on(expr, format!("nobody consumes this stream: {END_IT}"));
        }
    }

    fn finish(&mut self) {
        for s in &self.streams {
            if !s.used {
                self.errors
                    .on(&s.ident, format!("nobody consumes `{}`: {END_IT}", plain(&s.ident)));
            }
        }
    }
}

fn first_type(args: &syn::AngleBracketedGenericArguments) -> Option<GenericArgument> {
    args.args.first().cloned()
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
