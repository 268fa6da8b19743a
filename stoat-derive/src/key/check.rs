//! What cannot be part of a key.

use quote::ToTokens;
use stoat_macro_support::{Codec, Errors};
use syn::punctuated::Punctuated;
use syn::visit::{self, Visit};
use syn::{Attribute, Data, Meta, Token, Type};

use super::Key;

pub(crate) fn check(key: &Key, errors: &mut Errors) {
    if let Data::Union(u) = &key.input.data {
        errors.on(
            "S203",
            u.union_token,
            "a union cannot be a key: nobody knows which field is meant; write a struct or an enum",
        );
        return;
    }
    for field in key.fields() {
        Types { errors }.visit_type(&field.ty);
    }
    if !key.kind().delegates() {
        serde(&key.input.attrs, errors);
        if let Data::Enum(e) = &key.input.data {
            for v in &e.variants {
                serde(&v.attrs, errors);
            }
        }
        for f in key.fields() {
            serde(&f.attrs, errors);
        }
        return;
    }
    let (codec, shown, wraps) = match key.kind() {
        Codec::Utf8 => (&key.codec, "Utf8", "a `String`"),
        Codec::Be => (&key.codec, "Be", "an integer of fixed width"),
        _ => (&key.codec, "Bytes", "a `Vec<u8>`"),
    };
    match key.newtype() {
        None => errors.on("S206", 
            codec,
            format!(
                "codec `{shown}` cannot encode `{}`: it writes one value, so it takes a struct of one field; use `Json`, \
                 or a codec of your own",
                key.input.ident
            ),
        ),
        Some(field) => {
            if let Some(other) = other_codec(&field.ty).filter(|o| *o != shown) {
                let ty = field.ty.to_token_stream().to_string().replace(' ', "");
                errors.on("S207", 
                    codec,
                    format!("codec `{shown}` cannot encode `{ty}`: it writes {wraps}; use `{other}`"),
                );
            }
        }
    }
}

/// The codec of a type that has exactly one, by its name.
fn other_codec(ty: &Type) -> Option<&'static str> {
    Some(match ty.to_token_stream().to_string().replace(' ', "").as_str() {
        "String" => "Utf8",
        "Vec<u8>" => "Bytes",
        "i8" | "i16" | "i32" | "i64" | "i128" | "u8" | "u16" | "u32" | "u64" | "u128" => "Be",
        "bool" | "char" | "()" => "Json",
        _ => return None,
    })
}

struct Types<'a> {
    errors: &'a mut Errors,
}

impl<'ast> Visit<'ast> for Types<'_> {
    fn visit_type_path(&mut self, ty: &'ast syn::TypePath) {
        if let Some(last) = ty.path.segments.last() {
            let name = last.ident.to_string();
            let why = match name.as_str() {
                "f32" | "f64" => {
                    "floats have many encodings of one number (-0.0, NaN) and no total equality; use an integer of fixed \
                     scale, such as cents in `i64`"
                }
                "HashMap" => {
                    "its order differs between two equal maps, so equal keys would get unequal bytes; use `BTreeMap`"
                }
                "HashSet" => {
                    "its order differs between two equal sets, so equal keys would get unequal bytes; use `BTreeSet`"
                }
                "usize" => "its width differs between machines; use `u64` or `u32`",
                "isize" => "its width differs between machines; use `i64` or `i32`",
                _ => "",
            };
            if !why.is_empty() {
                self.errors.on("S204", &last.ident, format!("`{name}` cannot be part of a key: {why}"));
            }
        }
        visit::visit_type_path(self, ty);
    }
}

/// Attributes of serde under which unequal keys get equal bytes, or the bytes are nobody's promise.
const REFUSED: &[&str] = &[
    "skip",
    "skip_serializing",
    "skip_serializing_if",
    "skip_deserializing",
    "with",
    "serialize_with",
    "deserialize_with",
    "untagged",
    "flatten",
    "getter",
];

fn serde(attrs: &[Attribute], errors: &mut Errors) {
    for attr in attrs.iter().filter(|a| a.path().is_ident("serde")) {
        let Ok(list) = attr.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
            continue; // serde itself reports what it cannot read
        };
        for meta in &list {
            if let Some(name) = meta.path().get_ident().map(ToString::to_string)
                && REFUSED.contains(&&*name)
            {
                errors.on("S205", 
                    meta.path(),
                    format!(
                        "`#[serde({name})]` cannot be on a key: keys that are not equal could get the same bytes; remove it, or \
                         give the key a codec of your own"
                    ),
                );
            }
        }
    }
}
