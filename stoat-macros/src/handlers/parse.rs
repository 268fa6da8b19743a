//! Reads the impl: which method handles what, and whether its shape is right.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use stoat_macro_support::{Args, Errors, RawBodies, closest, krate, plain, shown, wrong_item};
use syn::{
    Attribute, FnArg, ImplItem, ImplItemFn, ItemImpl, Meta, PatType, PathArguments, ReceiverKind, ReturnType, Type,
    parse_quote,
};

use super::{Handler, Handlers, OnTimer, Punctuate};

const MARKS: &[&str] = &["process", "on_timer", "punctuate"];

pub(super) fn parse(args: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Handlers> {
    let (signatures, bodies) = RawBodies::take(item.clone());
    let mut item = match syn::parse2::<ItemImpl>(signatures) {
        Ok(i) => i,
        Err(e) => {
            wrong_item("S401", "impl", &item, e, "`#[handlers]` goes on `impl P { .. }` of a processor `P`", errors);
            return None;
        }
    };
    let args = Args::read("handlers", args, &["crate"], errors);
    let krate = krate(&args, errors);
    if let Some((path, _)) = &item.trait_ {
        errors.on("S401", path, "`#[handlers]` goes on an inherent impl: write `impl P { .. }`");
        return None;
    }
    let mut all = Handlers {
        krate,
        process: None,
        timers: Vec::new(),
        faulty: Vec::new(),
        punctuators: Vec::new(),
        item: item.clone(),
    };
    let owner = owner(&item.self_ty);
    // A handler that is there, but misspelt or misshapen, is not missing.
    let mut present = false;
    // A method that takes a record is probably the handler, and its mark was forgotten.
    let mut likely = None;
    for member in &mut item.items {
        let ImplItem::Fn(f) = member else { continue };
        if let Some((mark, attr)) = take_mark(f, errors) {
            present |= mark == "process";
            method(&mut all, &owner, mark, &attr, f, errors);
        } else if takes_record(f) {
            likely.get_or_insert(f.sig.ident.clone());
        }
    }
    match likely {
        _ if present => {}
        Some(f) => errors.on(
            "S402",
            &f,
            format!("`{owner}` has no `#[process]` handler: write `#[process]` above `fn {}`", plain(&f)),
        ),
        None => errors.on(
            "S402",
            &item.self_ty,
            format!(
                "`{owner}` has no `#[process]` handler: add `#[process] fn on_record(&mut self, record: Record<K, V>, cx: &mut \
                 Context<Self>) -> Result<()>`"
            ),
        ),
    }
    bodies.put(&mut item);
    all.item = item;
    Some(all)
}

fn takes_record(f: &ImplItemFn) -> bool {
    f.sig.inputs.iter().any(|a| matches!(a, FnArg::Typed(t) if last_name(&t.ty).is_some_and(|n| n == "Record")))
}

/// The type's name without its parameters.
fn owner(ty: &Type) -> String {
    match ty {
        Type::Path(p) => p.path.segments.last().map(|s| plain(&s.ident)).unwrap_or_default(),
        other => other.to_token_stream().to_string(),
    }
}

/// Takes the helper attribute off a method. A misspelt one counts as the one that was meant.
fn take_mark(f: &mut ImplItemFn, errors: &mut Errors) -> Option<(&'static str, Attribute)> {
    let mut found: Option<(&'static str, Attribute)> = None;
    f.attrs.retain(|a| {
        let Some(name) = a.path().get_ident().map(ToString::to_string) else {
            return true;
        };
        let mark = if let Some(m) = MARKS.iter().find(|m| **m == name) {
            m
        } else if let Some(m) = closest(&name, MARKS) {
            errors.on("S403", a.path(), format!("unknown handler attribute `{name}`: did you mean `{m}`?"));
            m
        } else {
            return true;
        };
        match &found {
            Some((first, _)) => {
                errors.on("S404", a, format!("a method handles one thing: it already has `#[{first}]`"));
            }
            None => found = Some((mark, a.clone())),
        }
        false
    });
    found
}

fn method(
    all: &mut Handlers,
    owner: &str,
    mark: &'static str,
    attr: &Attribute,
    f: &mut ImplItemFn,
    errors: &mut Errors,
) {
    match mark {
        "process" => {
            if let Meta::List(l) = &attr.meta
                && !l.tokens.is_empty()
            {
                errors.on("S405", &l.tokens, "`#[process]` takes no arguments");
            }
            let Some(handler) = handler(f, "process", errors) else {
                return;
            };
            match &all.process {
                Some(first) => errors.on(
                    "S406",
                    &handler.ident,
                    format!(
                        "`{owner}` already has a `#[process]` handler, `{}`: a processor has one input; keep one",
                        plain(&first.ident)
                    ),
                ),
                None => all.process = Some(handler),
            }
        }
        "on_timer" => {
            let field = match &attr.meta {
                Meta::List(l) => syn::parse2::<Ident>(l.tokens.clone()).ok(),
                _ => None,
            };
            let handler = handler(f, "on_timer", errors);
            let Some(field) = field else {
                errors.on("S407", attr, "`#[on_timer]` names one timer field: write `#[on_timer(idle)]`");
                return;
            };
            let Some(handler) = handler else {
                all.faulty.push(plain(&field));
                return;
            };
            match all.timers.iter().find(|t| plain(&t.field) == plain(&field)) {
                Some(first) => errors.on(
                    "S408",
                    &handler.ident,
                    format!(
                        "timer `{}` of `{owner}` already has a handler, `{}`: keep one",
                        plain(&field),
                        plain(&first.handler.ident)
                    ),
                ),
                None => all.timers.push(OnTimer { field, handler }),
            }
        }
        _ => {
            let args = match &attr.meta {
                Meta::List(l) => Args::read("punctuate", l.tokens.clone(), &["every", "clock", "over"], errors),
                _ => Args::none("punctuate"),
            };
            if !args.has("every") {
                errors.on("S409", attr, "how often? write `#[punctuate(every = \"10s\")]`");
            }
            let every = args.duration("every", errors);
            if every.is_some_and(|e| e.is_zero()) {
                errors.at("S409", args.span("every").expect("it was given"), "`every` must be longer than zero");
            }
            let wall = args.word("clock", &["event", "wall"], errors) == Some("wall");
            let over = args.parse::<Ident>("over", errors);
            if !args.has("over") {
                without_key(f, &all.krate);
            }
            // Whether there is a key is not known.
            let unclear = args.has("over") && over.is_none();
            let Some(handler) = handler(f, "punctuate", errors).filter(|_| !unclear) else {
                return;
            };
            all.punctuators.push(Punctuate { every: every.unwrap_or_default(), wall, over, handler });
        }
    }
}

/// Without `over` there is no current key: `Context<Self>` becomes `Context<Self, End>`, which cannot forward.
fn without_key(f: &mut ImplItemFn, krate: &TokenStream) {
    let Some(FnArg::Typed(arg)) = f.sig.inputs.last_mut() else {
        return;
    };
    if let Type::Reference(r) = &mut *arg.ty
        && let Type::Path(p) = &mut *r.elem
        && let Some(last) = p.path.segments.last_mut()
        && last.ident == "Context"
        && let PathArguments::AngleBracketed(args) = &mut last.arguments
        && args.args.len() == 1
    {
        args.args.push(parse_quote!(#krate::processor::End));
    }
}

/// What is said of a context in the place of the record, and where.
fn swapped(f: &ImplItemFn) -> Option<(TokenStream, String)> {
    let args: Vec<_> = f.sig.inputs.iter().collect();
    let [FnArg::Receiver(_), FnArg::Typed(first), FnArg::Typed(second)] = args.as_slice() else { return None };
    if !is_context(&first.ty) || is_context(&second.ty) {
        return None;
    }
    let text = |arg: &PatType| format!("{}: {}", shown(&arg.pat), shown(&arg.ty));
    let (pat, ty) = (&first.pat, &first.ty);
    let waits = if f.sig.asyncness.is_some() { "async " } else { "" };
    Some((
        quote!(#pat: #ty),
        format!(
            "the arguments are in the wrong order, the context is the last one: write `{waits}fn {}(&mut self, {}, {})`",
            f.sig.ident,
            text(second),
            text(first)
        ),
    ))
}

/// Whether a type is a context, by its last name; borrowed or not.
fn is_context(ty: &Type) -> bool {
    match ty {
        Type::Reference(r) => is_context(&r.elem),
        ty => last_name(ty).is_some_and(|n| n == "Context"),
    }
}

fn is_reference(ty: &Type) -> bool {
    match ty {
        Type::Group(g) => is_reference(&g.elem),
        ty => matches!(ty, Type::Reference(_)),
    }
}

fn last_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(p) => p.path.segments.last().map(|s| plain(&s.ident)),
        Type::Group(g) => last_name(&g.elem),
        _ => None,
    }
}

/// Checks a method's shape. Its parameters may stay unused.
fn handler(f: &mut ImplItemFn, mark: &str, errors: &mut Errors) -> Option<Handler> {
    let name = plain(&f.sig.ident);
    let what = match mark {
        "process" => Some(("record", "Record", "<K, V>")),
        "on_timer" => Some(("fired", "Fired", "<K>")),
        _ => None,
    };
    let wanted = 1 + usize::from(what.is_some());
    let receiver = matches!(
        f.sig.receiver(),
        Some(r) if matches!(&r.kind, ReceiverKind::Reference(_, _, Some(_)))
    );
    let rest: Vec<_> = f
        .sig
        .inputs
        .iter()
        .filter_map(|a| match a {
            FnArg::Typed(t) => Some((*t.ty).clone()),
            FnArg::Receiver(_) => None,
        })
        .collect();
    let expected = {
        // In the author's own types, where they stand somewhere.
        let taken = what.map(|(arg, name, args)| {
            let own = rest.iter().find(|ty| last_name(ty).is_some_and(|n| n == name)).map(shown);
            format!("{arg}: {}, ", own.unwrap_or_else(|| format!("{name}{args}")))
        });
        format!("fn {name}(&mut self, {}cx: &mut Context<Self>) -> Result<()>", taken.unwrap_or_default())
    };
    let swapped = swapped(f);
    let output = match &f.sig.output {
        ReturnType::Default => None,
        ReturnType::Type(_, t) => Some((**t).clone()),
    };
    for arg in &mut f.sig.inputs {
        if let FnArg::Typed(t) = arg {
            t.attrs.push(parse_quote!(#[allow(unused_variables)]));
        }
    }
    // A handler's shape is given; what it does not need of it is no fault of its author.
    f.attrs.push(parse_quote! {
        #[allow(
            clippy::needless_pass_by_value,
            clippy::needless_pass_by_ref_mut,
            clippy::unused_self,
            clippy::unnecessary_wraps,
            clippy::unused_async
        )]
    });
    let mut faults = Vec::new();
    if !receiver {
        faults.push("take `&mut self` first".to_owned());
    }
    if rest.len() != wanted {
        let s = if wanted == 1 { "" } else { "s" };
        faults.push(format!("take {wanted} argument{s} after `&mut self`, not {}", rest.len()));
    }
    if output.is_none() {
        faults.push("return `Result<()>`".to_owned());
    }
    if f.sig.generics.type_params().next().is_some() || f.sig.generics.const_params().next().is_some() {
        faults.push("have no type parameters".to_owned());
    }
    if rest.len() == wanted && swapped.is_none() && rest.last().is_some_and(|ty| !is_reference(ty)) {
        faults.push("take its context by reference, as the last argument".to_owned());
    }
    if !faults.is_empty() {
        errors.on("S410", &f.sig.ident, format!("`{name}` must {}; expected `{expected}`", faults.join(", and ")));
        return None;
    }
    if let Some((at, text)) = swapped {
        errors.on("S410", at, text);
        return None;
    }
    Some(Handler {
        ident: f.sig.ident.clone(),
        cfgs: f.attrs.iter().filter(|a| a.path().is_ident("cfg")).cloned().collect(),
        args: rest,
        output,
        is_async: f.sig.asyncness.is_some(),
    })
}
