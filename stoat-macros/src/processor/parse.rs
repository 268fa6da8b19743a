//! Reads the struct: what each field is for.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote};
use stoat_macro_support::{Args, Errors, closest, krate, plain, shown, wrong_item};
use syn::{
    Attribute, DeriveInput, Expr, Fields, GenericArgument, ItemStruct, Meta, Path, PathArguments, Token, Type,
    parse_quote,
};

use super::{Field, FieldCodec, Input, Output, Processor, Role};

const KNOWN: &[&str] = &["input", "output", "crate"];
const ROLES: &[&str] = &["state", "timer", "store", "local"];
const STORES: &[&str] = &["KeyValueStore"];

pub(super) fn parse(args: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Processor> {
    let mut item = match syn::parse2::<ItemStruct>(item.clone()) {
        Ok(i) => i,
        Err(e) => {
            let text = "`#[processor]` goes on a struct; its handlers stand in an impl under `#[handlers]`";
            wrong_item("S301", "struct", &item, e, text, errors);
            return None;
        }
    };
    let args = Args::read("processor", args, KNOWN, errors);
    let krate = krate(&args, errors);
    let input = input(&args, &item.ident);
    let output = output(&args, errors);
    if let Some(l) = item.generics.lifetimes().next() {
        errors.on(
            "S304",
            l,
            "a processor lives as long as its lane: it cannot borrow; let it own what it needs (`String`, `Arc<..>`)",
        );
    }
    let key = match &input {
        Input::Types(t) => t.0.clone(),
        // Any key: it is compared with a type that has an error.
        Input::Error(_) => parse_quote!(::std::string::String),
    };
    let fields = match &mut item.fields {
        Fields::Named(named) => named.named.iter_mut().map(|f| field(f, &key, &krate, errors)).collect(),
        Fields::Unit => Vec::new(),
        Fields::Unnamed(f) => {
            errors.on(
                "S305",
                f,
                "a processor's fields have names: they name its stores; write `struct P { open: .. }`",
            );
            item.fields = Fields::Unit;
            item.semi_token = Some(Token![;](Span::call_site()));
            Vec::new()
        }
    };
    let fields = declared_once(fields);
    duplicates(&item.ident, &fields, errors);
    Some(Processor { item, krate, input, output, fields })
}

/// A processor without fields, in the place of an enum or a union.
pub(super) fn stub(args: TokenStream, item: &TokenStream) -> Option<Processor> {
    let item: DeriveInput = syn::parse2(item.clone()).ok()?;
    let (name, vis, generics) = (&item.ident, &item.vis, &item.generics);
    let place: ItemStruct = parse_quote!(#vis struct #name #generics;);
    parse(args, quote!(#place), &mut Errors::new())
}

fn input(args: &Args, name: &Ident) -> Input {
    // The first error stands for the type, and says no less.
    let mut found = Errors::new();
    if !args.has("input") {
        let text = format!("`{name}` names no input: write `#[processor(input = (K, V), output = W)]`");
        found.at("S302", name.span(), text);
        return Input::Error(found.to_token_stream());
    }
    match args.parse::<Type>("input", &mut found) {
        Some(Type::Tuple(t)) if t.elems.len() == 2 => {
            Input::Types(Box::new((t.elems[0].clone(), t.elems[1].clone(), t.paren_token.span.join())))
        }
        Some(other) => {
            let text = "`input` is a key type and a value type: write `input = (K, V)`";
            found.on("S303", other, text);
            Input::Error(found.to_token_stream())
        }
        None => Input::Error(found.to_token_stream()),
    }
}

fn output(args: &Args, errors: &mut Errors) -> Output {
    match args.parse::<Type>("output", errors) {
        Some(Type::Tuple(t)) if t.elems.len() == 2 => Output::Rekey(Box::new((t.elems[0].clone(), t.elems[1].clone()))),
        Some(ty) => Output::Keep(Box::new(ty)),
        None => Output::None,
    }
}

fn field(f: &mut syn::Field, key: &Type, krate: &TokenStream, errors: &mut Errors) -> Field {
    let ident = f.ident.clone().expect("the fields are named");
    let cfgs = f.attrs.iter().filter(|a| a.path().is_ident("cfg")).cloned().collect();
    let mut roles = Vec::new();
    f.attrs.retain(|a| {
        let Some(name) = a.path().get_ident().map(ToString::to_string) else {
            return true;
        };
        if let Some(role) = ROLES.iter().find(|r| **r == name) {
            roles.push((*role, a.clone()));
            false
        } else if a.meta.require_name_value().is_err()
            && !["doc", "cfg", "allow", "expect", "warn", "deny", "serde"].contains(&&*name)
            && let Some(role) = closest(&name, ROLES)
        {
            errors.on("S306", a.path(), format!("unknown field attribute `{name}`: did you mean `{role}`?"));
            roles.push((role, a.clone()));
            false
        } else {
            true
        }
    });
    if let [_, (second, a), ..] = roles.as_slice() {
        errors.on(
            "S307",
            a,
            format!("`{}` has more than one role: keep `#[{}]` or `#[{second}]`", plain(&ident), roles[0].0),
        );
    }
    // Where the role is not clear, nothing more is said about it.
    let mut unclear = Errors::new();
    let errors = if roles.len() > 1 { &mut unclear } else { errors };
    let role = match roles.into_iter().next() {
        None => match unmarked(&ident, &f.ty, errors) {
            // It goes on with the mark that it should have.
            Some(role) => owned(role, &role_alone(role), &ident, &mut f.ty, (key, krate), &mut Errors::new()),
            None => Role::Config,
        },
        Some(("local", a)) => local(&a, errors),
        Some((role, a)) => owned(role, &a, &ident, &mut f.ty, (key, krate), errors),
    };
    Field { ident, ty: f.ty.clone(), cfgs, role }
}

/// The role of a field type that only the engine can make.
fn role_of(ty: &Type) -> Option<(&'static str, String)> {
    let last = last_name(ty)?;
    let role = match last.as_str() {
        "Keyed" => "state",
        "Timer" | "Timers" => "timer",
        "KeyValueStore" => "store",
        _ => return None,
    };
    Some((role, last))
}

fn unmarked(ident: &Ident, ty: &Type, errors: &mut Errors) -> Option<&'static str> {
    let (role, last) = role_of(ty)?;
    errors.on("S308", ident, format!("`{}` is a `{last}` and has no mark: add `#[{role}]`", plain(ident)));
    Some(role)
}

/// `#[role]`
fn role_alone(role: &str) -> Attribute {
    let role = Ident::new(role, Span::call_site());
    parse_quote!(#[#role])
}

/// Says that a field's type is not that of its mark. The error stands in the type too, which then is one: whatever the handlers
/// do with the field, nobody complains again.
fn wrong_type(code: &'static str, ty: &mut Type, text: String, instead: Type, errors: &mut Errors) {
    let mut found = Errors::new();
    found.on(code, &*ty, text);
    *ty = if found.is_empty() { instead } else { parse_quote!([(); #found]) };
    errors.append(found);
}

/// What is said of a field's type whose name is close to one that the mark is for. (Without arguments a `Key` is a value's type,
/// and no misspelt `Keyed`.)
fn misspelt(ty: &Type, names: &[&str], role: &str) -> Option<String> {
    let last = last_name(ty)?;
    nth_arg(ty, 0).filter(|_| role != "timer").or_else(|| (role == "timer").then(|| ty.clone()))?;
    // `MyTimer` is somebody's alias.
    let meant = closest(&last, names).filter(|name| !last.ends_with(name))?;
    Some(format!("no type of a `#[{role}]` field is named `{last}`: did you mean `{meant}`?"))
}

fn local(attr: &Attribute, errors: &mut Errors) -> Role {
    match &attr.meta {
        Meta::Path(_) => Role::Local(None),
        Meta::List(l) => Role::Local(errors.keep(syn::parse2::<Expr>(l.tokens.clone()))),
        Meta::NameValue(nv) => {
            errors.on("S314", nv, "write `#[local(expr)]`");
            Role::Local(Some(nv.value.clone()))
        }
    }
}

fn owned(
    role: &'static str,
    attr: &Attribute,
    ident: &Ident,
    ty: &mut Type,
    (key, krate): (&Type, &TokenStream),
    errors: &mut Errors,
) -> Role {
    // A type that belongs to another mark decides: one mistake, one error.
    if let Some((right, last)) = role_of(ty).filter(|(right, _)| *right != role) {
        let code = match role {
            "state" => "S309",
            "timer" => "S310",
            _ => "S311",
        };
        let text = format!("`{}` is a `{last}`: mark it `#[{right}]`, not `#[{role}]`", plain(ident));
        errors.on(code, attr.path(), text);
        return owned(right, &role_alone(right), ident, ty, (key, krate), &mut Errors::new());
    }
    let known: &[&str] = match role {
        "timer" => &["clock", "foreign", "name", "codec"],
        _ => &["codec", "name"],
    };
    let args = attr_args(role, attr, known, errors);
    let name = args.string("name", errors).map_or_else(|| plain(ident), |n| n.value());
    let codec: FieldCodec = args.parse("codec", errors);
    match role {
        "state" => {
            if last_name(ty).as_deref() == Some("Keyed") {
                complete(ty, codec.as_ref(), 1, errors);
            } else {
                let inner = ty.clone();
                let text = if let Some(text) = misspelt(ty, &["Keyed"], role) {
                    text
                } else if let (Some("HashMap" | "BTreeMap"), Some(k), Some(v)) =
                    (last_name(ty).as_deref(), nth_arg(ty, 0), nth_arg(ty, 1))
                {
                    let (one, many) = (shown(&quote!(Keyed<#v>)), shown(&quote!(KeyValueStore<#k, #v>)));
                    format!(
                        "a `#[state]` field is no map: write `{ident}: {one}` for one value of the record's key, or \
                         `#[store] {ident}: {many}` for more"
                    )
                } else {
                    let want = shown(&quote!(Keyed<#inner>));
                    format!("a `#[state]` field is a `Keyed<V>`, the value of the current key: write `{ident}: {want}`")
                };
                wrong_type("S309", ty, text, parse_quote!(#krate::store::Keyed<#inner>), errors);
            }
            Role::State { name }
        }
        "timer" => {
            if matches!(last_name(ty).as_deref(), Some("Timer" | "Timers")) {
                if let Some(args) = last_args(ty)
                    && matches!(args, PathArguments::None)
                {
                    *args = PathArguments::AngleBracketed(parse_quote!(<#key>));
                }
                complete(ty, codec.as_ref(), 1, errors);
            } else {
                let text = misspelt(ty, &["Timer", "Timers"], role).unwrap_or_else(|| {
                    "a `#[timer]` field is a `Timer` (one pending time per key) or `Timers` (many), written as such: an alias \
                     cannot be completed with the key type"
                        .to_owned()
                });
                wrong_type("S310", ty, text, parse_quote!(#krate::timer::Timer<#key>), errors);
            }
            if args.flag("foreign", errors) {
                foreign(ty, key, krate);
            }
            Role::Timer { name, wall: args.word("clock", &["event", "wall"], errors) == Some("wall") }
        }
        _ => {
            if last_name(ty).is_some_and(|n| STORES.contains(&&*n)) {
                complete(ty, codec.as_ref(), 2, errors);
            } else {
                let text = misspelt(ty, STORES, role).unwrap_or_else(|| {
                    format!("a `#[store]` field is a `KeyValueStore<K, V>`: write `{ident}: KeyValueStore<K, V>`")
                });
                wrong_type("S311", ty, text, parse_quote!(#krate::store::KeyValueStore<#key, ()>), errors);
            }
            Role::Store { name }
        }
    }
}

/// Writes the marker of `foreign` into a timer's type, behind its key and codec.
fn foreign(ty: &mut Type, key: &Type, krate: &TokenStream) {
    let Some(PathArguments::AngleBracketed(args)) = last_args(ty) else {
        return;
    };
    if args.args.len() == 1 {
        args.args.push(GenericArgument::Type(parse_quote!(<#key as #krate::key::Key>::Codec)));
    }
    args.args.push(GenericArgument::Type(parse_quote!(#krate::timer::Foreign)));
}

/// Writes a named codec into the field's type, behind `n` parameters.
fn complete(ty: &mut Type, codec: Option<&Path>, n: usize, errors: &mut Errors) {
    let (Some(codec), Some(PathArguments::AngleBracketed(args))) = (codec, last_args(ty)) else {
        return;
    };
    if args.args.len() > n {
        errors.on("S312", codec, "the codec is named twice, here and in the field's type: keep one");
    } else {
        args.args.push(GenericArgument::Type(parse_quote!(#codec)));
    }
}

fn attr_args(role: &'static str, attr: &Attribute, known: &[&'static str], errors: &mut Errors) -> Args {
    match &attr.meta {
        Meta::Path(_) => Args::none(role),
        Meta::List(l) => Args::read(role, l.tokens.clone(), known, errors),
        Meta::NameValue(nv) => {
            errors.on("S314", nv, format!("arguments stand in brackets: write `#[{role}(name = \"..\")]`"));
            Args::none(role)
        }
    }
}

fn last_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(p) => p.path.segments.last().map(|s| s.ident.to_string()),
        Type::Group(g) => last_name(&g.elem),
        _ => None,
    }
}

fn nth_arg(ty: &Type, n: usize) -> Option<Type> {
    let PathArguments::AngleBracketed(args) = last_args(&mut ty.clone())?.clone() else { return None };
    match args.args.into_iter().nth(n)? {
        GenericArgument::Type(t) => Some(t),
        _ => None,
    }
}

fn last_args(ty: &mut Type) -> Option<&mut PathArguments> {
    match ty {
        Type::Path(p) => p.path.segments.last_mut().map(|s| &mut s.arguments),
        Type::Group(g) => last_args(&mut g.elem),
        _ => None,
    }
}

/// Without the second of two fields of one name: the compiler has the words for that, and nothing more is to be said.
fn declared_once(fields: Vec<Field>) -> Vec<Field> {
    let mut seen = BTreeSet::new();
    let key = |f: &Field| {
        let cfgs = &f.cfgs;
        (plain(&f.ident), quote!(#(#cfgs)*).to_string())
    };
    fields.into_iter().filter(|f| seen.insert(key(f))).collect()
}

fn duplicates(name: &Ident, fields: &[Field], errors: &mut Errors) {
    let mut seen = BTreeMap::new();
    for f in fields {
        let Some(stable) = f.role.name() else { continue };
        // Fields under different `#[cfg(..)]` may be alternatives of each other.
        let cfgs = &f.cfgs;
        if let Some(other) = seen.insert(stable, quote!(#(#cfgs)*).to_string())
            && other == quote!(#(#cfgs)*).to_string()
        {
            errors.on("S313", 
                &f.ident,
                format!(
                    "two fields of `{name}` are named `{stable}`: a store or timer name keys its changelog, so give one \
                     `#[{}(name = \"..\")]`",
                    match f.role {
                        Role::State { .. } => "state",
                        Role::Timer { .. } => "timer",
                        _ => "store",
                    }
                ),
            );
        }
    }
}
