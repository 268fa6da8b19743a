//! Codecs: bytes and values.
//!
//! A codec is a zero-sized type. [`Encode`] and [`Decode`] are separate traits, so a codec that can only decode is a
//! type error where keys must be encoded. A codec is *canonical* when `encode(decode(b)) == b` for every valid `b`.

mod be;
mod bytes;
mod json;
mod nullable;
#[cfg(test)]
mod tests;
mod utf8;

pub use be::Be;
pub use bytes::Bytes;
pub use json::Json;
pub use nullable::Nullable;
pub use utf8::Utf8;

use std::fmt;

/// Bytes that a codec could not read, or a value that it could not write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodecError {
    message: String,
}

impl CodecError {
    /// Makes an error with a text that says what was wrong with the bytes or the value.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CodecError {}

/// A way to write values as bytes; a zero-sized type.
pub trait Codec: 'static {
    /// The name, for messages and for the stored plan. Two codecs of one name in different modules differ:
    /// see [`codec_id`].
    const NAME: &'static str;
    /// Whether `encode(decode(b)) == b` for every valid `b`.
    const CANONICAL: bool;
    /// Whether [`Codec::CANONICAL`] is known to be right, so that nobody needs to look.
    #[doc(hidden)]
    const PROVEN: bool = false;
}

/// The identity of a codec as it is stored: its name and the path of its type.
pub fn codec_id<C: Codec>() -> String {
    format!("{} ({})", C::NAME, std::any::type_name::<C>())
}

/// Writes values of type `T`.
#[diagnostic::on_unimplemented(
    message = "codec `{Self}` cannot encode `{T}` [S110]",
    label = "needs `{Self}: Encode<{T}>`",
    note = "use a codec that can encode this type, such as `Json` for a type with `Serialize`; a source whose codec can only read keys is `decode_only`"
)]
pub trait Encode<T: ?Sized>: Codec {
    /// Appends the value's bytes to `out`.
    ///
    /// # Errors
    /// When the value has no encoding.
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError>;

    /// Whether the value is written as Kafka's null: no key, or a tombstone.
    fn is_null(_value: &T) -> bool {
        false
    }
}

/// Reads values of type `T`.
#[diagnostic::on_unimplemented(
    message = "codec `{Self}` cannot decode `{T}` [S110]",
    label = "needs `{Self}: Decode<{T}>`",
    note = "use a codec that can decode this type, such as `Json` for a type with `Deserialize`"
)]
pub trait Decode<T>: Codec {
    /// Reads a value.
    ///
    /// # Errors
    /// When the bytes are not what the codec writes.
    fn decode(bytes: &[u8]) -> Result<T, CodecError>;

    /// Reads Kafka's null.
    ///
    /// # Errors
    /// Unless the type has a place for it ([`Nullable`]).
    fn decode_null() -> Result<T, CodecError> {
        Err(CodecError::new("it is null; declare it as `Option<..>` where null is possible"))
    }
}

/// Reads a value that may be Kafka's null.
///
/// # Errors
/// As [`Decode::decode`] and [`Decode::decode_null`].
pub fn decode_opt<C: Decode<T>, T>(bytes: Option<&[u8]>) -> Result<T, CodecError> {
    match bytes {
        Some(b) => C::decode(b),
        None => C::decode_null(),
    }
}
