use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Codec, CodecError, Decode, Encode};

/// JSON through serde. Not canonical: one value has many spellings.
#[derive(Debug, Clone, Copy)]
pub struct Json;

impl Codec for Json {
    const NAME: &'static str = "Json";
    const CANONICAL: bool = false;
}

impl<T: Serialize> Encode<T> for Json {
    fn encode(value: &T, out: &mut Vec<u8>) -> Result<(), CodecError> {
        serde_json::to_writer(out, value).map_err(|e| CodecError::new(format!("cannot be written as JSON: {e}")))
    }
}

impl<T: DeserializeOwned> Decode<T> for Json {
    fn decode(bytes: &[u8]) -> Result<T, CodecError> {
        serde_json::from_slice(bytes).map_err(|e| CodecError::new(format!("malformed JSON: {e}")))
    }
}
