//! Derive macros of `stoat-core`, which re-exports and documents them.

mod key;
#[cfg(test)]
mod rules;

use proc_macro::TokenStream;

/// Declares a type as a key: names its one codec, and refuses what has no stable bytes.
///
/// A key's bytes choose its lane, its partition and its place in every store, so equal keys must have equal bytes, on
/// every machine and in every version. `#[key(codec = ..)]` below the derive names the codec:
///
/// - `Utf8`, `Be`, `Bytes` (canonical): a struct of one field is written as what it wraps;
/// - `Json`: through serde;
/// - your own: any codec that encodes and decodes the type.
///
/// Refused: floats, hash maps and hash sets, `usize` and `isize`, and, where serde writes the key, attributes that make
/// unequal keys look alike (`skip`, `with`, `serialize_with`, `untagged`, `flatten`).
///
/// `#[key(crate = path)]` names the runtime crate where it has another name.
///
/// ```ignore
/// #[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
/// #[key(codec = Utf8)]
/// struct UserId(String);
/// ```
#[proc_macro_derive(Key, attributes(key))]
pub fn key(input: TokenStream) -> TokenStream {
    key::derive(input.into()).into()
}
