use super::*;

fn round<T: PartialEq + fmt::Debug, C: Encode<T> + Decode<T>>(value: T, bytes: &[u8]) {
    let mut out = Vec::new();
    C::encode(&value, &mut out).unwrap();
    assert_eq!(out, bytes);
    assert_eq!(C::decode(bytes).unwrap(), value);
}

#[test]
fn each_codec_reads_what_it_writes() {
    round::<_, Bytes>(vec![0_u8, 255], &[0, 255]);
    round::<_, Utf8>("grün".to_owned(), "grün".as_bytes());
    round::<i64, Be>(-2, &[255, 255, 255, 255, 255, 255, 255, 254]);
    round::<u16, Be>(258, &[1, 2]);
    round::<_, Json>(vec![1, 2], b"[1,2]");
    round::<Option<String>, Nullable<Utf8>>(Some(String::new()), b"");
}

#[test]
fn null_is_an_error_unless_the_type_has_a_place_for_it() {
    assert_eq!(decode_opt::<Nullable<Utf8>, Option<String>>(None).unwrap(), None);
    assert!(Nullable::<Utf8>::is_null(&None::<String>));
    let e = decode_opt::<Utf8, String>(None).unwrap_err();
    assert!(e.to_string().contains("Option"), "{e}");
}

#[test]
fn bad_bytes_are_errors_that_say_what_was_expected() {
    assert_eq!(<Be as Decode<i64>>::decode(b"abc").unwrap_err().to_string(), "3 bytes where a big-endian i64 has 8");
    assert!(<Utf8 as Decode<String>>::decode(&[0xff]).unwrap_err().to_string().contains("not UTF-8"));
    assert!(<Json as Decode<u8>>::decode(b"{").unwrap_err().to_string().contains("malformed JSON"));
}
