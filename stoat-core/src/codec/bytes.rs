use super::{Codec, CodecError, Decode, Encode};

/// Bytes as they are. Canonical.
#[derive(Debug, Clone, Copy)]
pub struct Bytes;

impl Codec for Bytes {
    const NAME: &'static str = "Bytes";
    const CANONICAL: bool = true;
    const PROVEN: bool = true;
}

impl Encode<Vec<u8>> for Bytes {
    fn encode(value: &Vec<u8>, out: &mut Vec<u8>) -> Result<(), CodecError> {
        out.extend_from_slice(value);
        Ok(())
    }
}

impl Decode<Vec<u8>> for Bytes {
    fn decode(bytes: &[u8]) -> Result<Vec<u8>, CodecError> {
        Ok(bytes.to_vec())
    }
}
