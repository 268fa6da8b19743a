//! Keyword arguments: `name = value, flag`.

use std::time::Duration;

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{LitInt, LitStr, Path, Type};

use crate::{Errors, closest, parse_duration, plain};

/// One argument.
#[derive(Debug)]
pub struct Arg {
    /// The name as given.
    pub name: Ident,
    /// The known name: after a did-you-mean the one that was meant, so that one mistake gives one error.
    pub known: &'static str,
    /// What stands after `=`; `None` for a flag.
    pub value: Option<TokenStream>,
}

/// Syntax that an argument can have.
pub trait Wanted: Parse {
    /// Its name.
    const WHAT: &'static str;
    /// An example.
    const EXAMPLE: &'static str;
}

impl Wanted for Type {
    const WHAT: &'static str = "a type";
    const EXAMPLE: &'static str = "UserId";
}

impl Wanted for Path {
    const WHAT: &'static str = "a path";
    const EXAMPLE: &'static str = "Json";
}

impl Wanted for syn::Expr {
    const WHAT: &'static str = "an expression";
    const EXAMPLE: &'static str = "|r| r.value.time";
}

impl Wanted for Ident {
    const WHAT: &'static str = "the name of a field";
    const EXAMPLE: &'static str = "open";
}

/// The arguments of one attribute. Values stay tokens until somebody asks for them with a type.
#[derive(Debug)]
pub struct Args {
    /// The attribute, as in `source`.
    attribute: &'static str,
    list: Vec<Arg>,
    /// Positional tokens before the first keyword, where the attribute has them.
    pub positional: Option<TokenStream>,
}

impl Args {
    /// No arguments.
    pub fn none(attribute: &'static str) -> Self {
        Self { attribute, list: Vec::new(), positional: None }
    }

    /// Reads keyword arguments.
    pub fn read(attribute: &'static str, tokens: TokenStream, known: &[&'static str], errors: &mut Errors) -> Self {
        Self::read_any(attribute, tokens, known, false, errors)
    }

    /// Reads an optional positional argument, then keyword arguments.
    pub fn read_positional(
        attribute: &'static str,
        tokens: TokenStream,
        known: &[&'static str],
        errors: &mut Errors,
    ) -> Self {
        Self::read_any(attribute, tokens, known, true, errors)
    }

    fn read_any(
        attribute: &'static str,
        tokens: TokenStream,
        known: &[&'static str],
        positional: bool,
        errors: &mut Errors,
    ) -> Self {
        let mut args = Self::none(attribute);
        for (i, part) in split(tokens).into_iter().enumerate() {
            match keyword.parse2(part.clone()) {
                Ok((name, value)) if !positional || i > 0 || value.is_some() || known.contains(&&*plain(&name)) => {
                    args.add(name, value, known, errors);
                }
                _ if positional && i == 0 => args.positional = Some(part),
                Ok((name, value)) => args.add(name, value, known, errors),
                Err(_) => errors.on(
                    "S001",
                    part,
                    format!("expected `name = value` in `#[{attribute}(..)]`; known names are {}", list(known)),
                ),
            }
        }
        args
    }

    fn add(&mut self, name: Ident, value: Option<TokenStream>, known: &[&'static str], errors: &mut Errors) {
        let given = plain(&name);
        let attribute = self.attribute;
        let meant = if let Some(k) = known.iter().find(|k| **k == given) {
            k
        } else if let Some(k) = closest(&given, known) {
            errors.on(
                "S002",
                &name,
                format!("unknown argument `{given}` in `#[{attribute}(..)]`: did you mean `{k}`?"),
            );
            k
        } else if known.is_empty() {
            errors.on("S002", &name, format!("unknown argument `{given}`: `#[{attribute}]` takes none"));
            return;
        } else {
            errors.on(
                "S002",
                &name,
                format!("unknown argument `{given}` in `#[{attribute}(..)]`; known names are {}", list(known)),
            );
            return;
        };
        if self.has(meant) {
            errors.on("S003", &name, format!("`{given}` is given twice in `#[{attribute}(..)]`"));
            return;
        }
        self.list.push(Arg { name, known: meant, value });
    }

    /// The argument of this name.
    pub fn get(&self, name: &str) -> Option<&Arg> {
        self.list.iter().find(|a| a.known == name)
    }

    /// Whether the argument was given, well or badly.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The place of an argument's name.
    pub fn span(&self, name: &str) -> Option<Span> {
        self.get(name).map(|a| a.name.span())
    }

    /// The argument as this syntax.
    pub fn parse<T: Wanted>(&self, name: &str, errors: &mut Errors) -> Option<T> {
        let arg = self.get(name)?;
        let what = if name.ends_with("codec") { "a codec" } else { T::WHAT };
        let Some(value) = arg.value.as_ref().filter(|v| !v.is_empty()) else {
            let text = format!("`{name}` needs a value, {what}: write `{name} = {}`", T::EXAMPLE);
            errors.on("S004", &arg.name, text);
            return None;
        };
        let value = value.clone();
        if let Ok(parsed) = syn::parse2(value.clone()) {
            return Some(parsed);
        }
        let quoted = syn::parse2::<LitStr>(value.clone()).ok();
        let example = if name.ends_with("codec") {
            let given = quoted.map_or_else(|| value.to_string(), |s| s.value());
            closest_codec(&given).to_owned()
        } else {
            quoted.filter(|s| s.parse::<T>().is_ok()).map_or_else(|| T::EXAMPLE.to_owned(), |s| s.value())
        };
        errors.on("S004", value, format!("`{name}` takes {what}: write `{name} = {example}`"));
        None
    }

    /// The argument as a string literal.
    pub fn string(&self, name: &str, errors: &mut Errors) -> Option<LitStr> {
        let arg = self.get(name)?;
        let Some(value) = arg.value.as_ref().filter(|v| !v.is_empty()) else {
            errors.on("S004", &arg.name, format!("`{name}` needs a value: write `{name} = \"..\"`"));
            return None;
        };
        match syn::parse2::<LitStr>(value.clone()) {
            Ok(s) if s.value().is_empty() => {
                errors.on("S004", s, format!("`{name}` is empty: write `{name} = \"..\"`"));
                None
            }
            Ok(s) => Some(s),
            Err(_) => {
                let example = syn::parse2::<Ident>(value.clone()).map_or_else(|_| "..".to_owned(), |i| plain(&i));
                errors.on("S004", value, format!("`{name}` takes a string: write `{name} = \"{example}\"`"));
                None
            }
        }
    }

    /// The argument as a duration.
    pub fn duration(&self, name: &str, errors: &mut Errors) -> Option<Duration> {
        let value = self.get(name)?.value.clone().unwrap_or_default();
        if !value.is_empty() && syn::parse2::<LitStr>(value.clone()).is_err() {
            let seconds =
                syn::parse2::<LitInt>(value.clone()).ok().and_then(|n| n.base10_parse::<u64>().ok()).unwrap_or(10);
            let text = format!("`{name}` takes a duration, a whole number and a unit: write `{name} = \"{seconds}s\"`");
            errors.on("S004", value, text);
            return None;
        }
        let text = self.string(name, errors)?;
        parse_duration(&text.value()).map_err(|e| errors.on("S006", &text, e)).ok()
    }

    /// The argument as one of these words.
    pub fn word(&self, name: &str, words: &[&'static str], errors: &mut Errors) -> Option<&'static str> {
        let ident: Ident = {
            let arg = self.get(name)?;
            let value = arg.value.clone().unwrap_or_default();
            if let Ok(i) = Ident::parse_any.parse2(value.clone()) {
                i
            } else {
                let at = if value.is_empty() { arg.name.to_token_stream() } else { value };
                errors.on("S005", at, format!("`{name}` is one of {}", list(words)));
                return None;
            }
        };
        let given = plain(&ident);
        if let Some(w) = words.iter().find(|w| **w == given) {
            return Some(w);
        }
        if let Some(w) = closest(&given, words) {
            errors.on("S005", &ident, format!("unknown {name} `{given}`: did you mean `{w}`?"));
            Some(w)
        } else {
            errors.on("S005", &ident, format!("unknown {name} `{given}`: it is one of {}", list(words)));
            None
        }
    }

    /// Whether the flag is set.
    pub fn flag(&self, name: &str, errors: &mut Errors) -> bool {
        let Some(arg) = self.get(name) else { return false };
        if let Some(v) = &arg.value {
            errors.on("S004", v, format!("`{name}` takes no value: write `{name}` alone"));
        }
        true
    }
}

fn keyword(input: ParseStream<'_>) -> syn::Result<(Ident, Option<TokenStream>)> {
    let name = input.call(Ident::parse_any)?;
    if input.is_empty() {
        return Ok((name, None));
    }
    input.parse::<syn::Token![=]>()?;
    Ok((name, Some(input.parse()?)))
}

/// Splits at commas that stand outside of brackets and of `<..>`.
fn split(tokens: TokenStream) -> Vec<TokenStream> {
    let mut parts = vec![TokenStream::new()];
    let mut depth = 0_i32;
    let mut dash = false;
    for t in tokens {
        if let TokenTree::Punct(p) = &t {
            match p.as_char() {
                '<' => depth += 1,
                '>' if !dash => depth -= 1,
                ',' if depth <= 0 => {
                    parts.push(TokenStream::new());
                    dash = false;
                    continue;
                }
                _ => {}
            }
            dash = matches!(p.as_char(), '-' | '=');
        } else {
            dash = false;
        }
        if let Some(last) = parts.last_mut() {
            // A group without delimiters comes from a `macro_rules!` fragment; its content is one expression or type.
            match t {
                TokenTree::Group(g) if g.delimiter() == Delimiter::None => last.extend(g.stream()),
                t => last.extend([t]),
            }
        }
    }
    parts.retain(|p| !p.is_empty());
    parts
}

/// The codec that somebody may have meant.
fn closest_codec(given: &str) -> &'static str {
    const CODECS: &[(&str, &str)] =
        &[("json", "Json"), ("utf8", "Utf8"), ("string", "Utf8"), ("be", "Be"), ("bytes", "Bytes")];
    let given: String = given.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let words: Vec<&str> = CODECS.iter().map(|(word, _)| *word).collect();
    let word = closest(&given, &words).unwrap_or("json");
    CODECS.iter().find(|(w, _)| *w == word).map_or("Json", |(_, codec)| codec)
}

fn list(names: &[&str]) -> String {
    names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")
}
