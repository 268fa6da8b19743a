use super::{Codec, CodecError, Decode, Encode};

/// Text in UTF-8, as Kafka's string serializer writes it. Canonical.
#[derive(Debug, Clone, Copy)]
pub struct Utf8;

impl Codec for Utf8 {
    const NAME: &'static str = "Utf8";
    const CANONICAL: bool = true;
    const PROVEN: bool = true;
}

impl Encode<String> for Utf8 {
    fn encode(value: &String, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value.as_bytes());
        Ok(())
    }
}

impl Decode<String> for Utf8 {
    fn decode(bytes: &[u8]) -> Result<String, CodecError> {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|e| CodecError::new(format!("not UTF-8: {e}")))
    }
}
