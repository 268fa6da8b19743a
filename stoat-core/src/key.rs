//! Key types: what may pick a lane.

use std::hash::Hash;
use std::marker::PhantomData;

use crate::codec::{Be, Bytes, Decode, Encode, Utf8};

/// A type that records may be keyed by where state, timers or aggregations need the key. It names its one codec, so one
/// key has one encoding and one lane.
///
/// Derive it: `#[derive(Key)]` with `#[key(codec = Utf8)]`. `String` has [`Utf8`], `Vec<u8>` has [`Bytes`], the integers
/// of fixed width have [`Be`].
///
/// # Examples
/// ```
/// use stoat_core::codec::Utf8;
/// use stoat_core::key::Key;
///
/// fn codec_of<K: Key>() -> &'static str {
///     <K::Codec as stoat_core::codec::Codec>::NAME
/// }
/// assert_eq!(codec_of::<String>(), "Utf8");
/// ```
#[diagnostic::on_unimplemented(
    message = "the key type `{Self}` has no declared codec [S111]",
    label = "this key would have to pick a lane",
    note = "write `#[derive(Key)]` and `#[key(codec = Json)]` (or Utf8, Be, Bytes) on `{Self}`",
    note = "an `Option<..>` is no key: drop the records without one first, with `.with_key()`"
)]
pub trait Key: Clone + Eq + Hash + Send + Sync + Sized + 'static {
    /// The codec.
    type Codec: Encode<Self> + Decode<Self>;
}

/// A type that may stand in a field of a derived key: equal values have equal bytes.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be part of a key [S208]",
    label = "it is not known whether equal values have equal bytes",
    note = "a type of yours derives `Key`; of another keep the encoded form in the key (a string, an integer)"
)]
pub trait KeyField {}

/// Types that a value is about and holds none of.
pub(crate) type Types<T> = PhantomData<fn() -> T>;

impl Key for String {
    type Codec = Utf8;
}

impl Key for Vec<u8> {
    type Codec = Bytes;
}

macro_rules! keys {
    ($($t:ty),*) => {$(
        impl Key for $t {
            type Codec = Be;
        }
        impl KeyField for $t {}
    )*};
}

keys!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128);

macro_rules! key_fields {
    ($($t:ty),*) => {$(
        impl KeyField for $t {}
    )*};
}

key_fields!(bool, char, String, (), crate::time::Timestamp);

impl<T: KeyField> KeyField for Vec<T> {}
impl<T: KeyField> KeyField for Option<T> {}
impl<T: KeyField> KeyField for Box<T> {}
impl<T: KeyField, const N: usize> KeyField for [T; N] {}
impl<T: KeyField> KeyField for std::collections::BTreeSet<T> {}
impl<K: KeyField, V: KeyField> KeyField for std::collections::BTreeMap<K, V> {}
impl<A: KeyField, B: KeyField> KeyField for (A, B) {}
impl<A: KeyField, B: KeyField, C: KeyField> KeyField for (A, B, C) {}
