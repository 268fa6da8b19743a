use super::{Codec, CodecError, Decode, Encode};

/// Fixed-width big-endian integers, as Kafka's integer serializers write them. Canonical.
#[derive(Debug, Clone, Copy)]
pub struct Be;

impl Codec for Be {
    const NAME: &'static str = "Be";
    const CANONICAL: bool = true;
    const PROVEN: bool = true;
}

macro_rules! be {
    ($($t:ty),*) => {$(
        impl Encode<$t> for Be {
            fn encode(value: &$t, out: &mut Vec<u8>) -> Result<(), CodecError> {
                out.extend_from_slice(&value.to_be_bytes());
                Ok(())
            }
        }
        impl Decode<$t> for Be {
            fn decode(bytes: &[u8]) -> Result<$t, CodecError> {
                let array = bytes.try_into().map_err(|_| {
                    CodecError::new(format!(
                        "{} bytes where a big-endian {} has {}",
                        bytes.len(), stringify!($t), size_of::<$t>()
                    ))
                })?;
                Ok(<$t>::from_be_bytes(array))
            }
        }
    )*};
}

be!(i8, i16, i32, i64, i128, u8, u16, u32, u64, u128);
