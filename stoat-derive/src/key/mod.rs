//! `#[derive(Key)]`.

mod check;
mod expand;
#[cfg(test)]
mod tests;

use proc_macro2::TokenStream;
use quote::ToTokens;
use stoat_macro_support::{Args, Codec, Errors, closest, krate};
use syn::{Data, DeriveInput, Field, Path};

/// What the derive has read.
pub(crate) struct Key {
    /// The user's type.
    input: DeriveInput,
    /// The runtime's path.
    krate: TokenStream,
    /// The codec as the user wrote it; `None`: there is an error.
    codec: Option<Path>,
}

impl Key {
    /// Which of the known codecs it is.
    fn kind(&self) -> Codec {
        self.codec.as_ref().map_or(Codec::Other, Codec::of)
    }

    /// The only field of a struct.
    fn newtype(&self) -> Option<&Field> {
        match &self.input.data {
            Data::Struct(s) if s.fields.len() == 1 => s.fields.iter().next(),
            _ => None,
        }
    }

    /// All fields, with those of variants.
    fn fields(&self) -> Vec<&Field> {
        match &self.input.data {
            Data::Struct(s) => s.fields.iter().collect(),
            Data::Enum(e) => e.variants.iter().flat_map(|v| v.fields.iter()).collect(),
            Data::Union(u) => u.fields.named.iter().collect(),
        }
    }
}

/// Expands the derive; on an error a stub follows, so that nothing else complains.
pub(crate) fn derive(tokens: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let input: DeriveInput = match syn::parse2(tokens) {
        Ok(i) => i,
        Err(e) => return e.to_compile_error(),
    };
    let key = read(input, &mut errors);
    check::check(&key, &mut errors);
    if errors.is_empty() {
        expand::expand(&key)
    } else {
        let mut out = errors.to_token_stream();
        // What a union lacks for a key is not the point.
        if !matches!(key.input.data, Data::Union(_)) {
            out.extend(expand::stub(&key));
        }
        out
    }
}

const KNOWN: &[&str] = &["codec", "crate"];

fn read(input: DeriveInput, errors: &mut Errors) -> Key {
    let attrs: Vec<_> = input.attrs.iter().filter(|a| a.path().is_ident("key")).collect();
    let args = match attrs.as_slice() {
        [] => Args::none("key"),
        [one, more @ ..] => {
            for a in more {
                errors.on("S202", a, "a key type has one `#[key(..)]`: keep one");
            }
            if let Ok(l) = one.meta.require_list() {
                Args::read("key", l.tokens.clone(), KNOWN, errors)
            } else {
                errors.on("S201", one, "name the key's codec: write `#[key(codec = Json)]` (or Utf8, Be, Bytes)");
                return Key { input, krate: quote::quote!(::stoat_core), codec: None };
            }
        }
    };
    let krate = krate(&args, errors);
    let codec = args.parse::<Path>("codec", errors);
    if !args.has("codec") {
        let misspelt = input
            .attrs
            .iter()
            .filter_map(|a| a.path().get_ident())
            .any(|i| closest(&i.to_string(), &["key"]).is_some() && i != "key");
        let name = &input.ident;
        if !misspelt {
            errors.on(
                "S201",
                name,
                format!(
                    "`{name}` names no codec: add `#[key(codec = Json)]` (or Utf8, Be, Bytes) below `#[derive(Key)]`"
                ),
            );
        }
    }
    Key { input, krate, codec }
}
