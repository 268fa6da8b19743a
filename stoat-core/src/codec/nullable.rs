use std::marker::PhantomData;

use super::{Codec, CodecError, Decode, Encode};

/// A codec with a place for Kafka's null: `None` is null, `Some(v)` is what `C` writes for `v`.
#[derive(Debug, Clone, Copy)]
pub struct Nullable<C>(PhantomData<C>);

impl<C: Codec> Codec for Nullable<C> {
    const NAME: &'static str = C::NAME;
    const CANONICAL: bool = C::CANONICAL;
    const PROVEN: bool = C::PROVEN;
}

impl<T, C: Encode<T>> Encode<Option<T>> for Nullable<C> {
    fn encode(value: &Option<T>, out: &mut Vec<u8>) -> Result<(), CodecError> {
        value.as_ref().map_or(Ok(()), |v| C::encode(v, out))
    }

    fn is_null(value: &Option<T>) -> bool {
        value.is_none()
    }
}

impl<T, C: Decode<T>> Decode<Option<T>> for Nullable<C> {
    fn decode(bytes: &[u8]) -> Result<Option<T>, CodecError> {
        C::decode(bytes).map(Some)
    }

    fn decode_null() -> Result<Option<T>, CodecError> {
        Ok(None)
    }
}
