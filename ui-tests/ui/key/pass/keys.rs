//! What may be a key.

use serde::de::DeserializeOwned;
use stoat_core::key::KeyField;
use stoat_core::prelude::*;

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
#[key(codec = Utf8)]
struct Name {
    r#type: String,
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
#[key(codec = Be)]
struct Number(i64);

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash)]
#[key(codec = Bytes)]
struct Raw(Vec<u8>);

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
#[serde(rename_all = "kebab-case")]
enum Place {
    Nowhere,
    Street { city: String, number: Option<u32> },
    Nested(Box<Other>),
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
struct Other(std::collections::BTreeSet<u8>, (u8, bool));

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Json)]
#[serde(bound = "")]
struct Pair<A>(A, A)
where
    A: Key + KeyField + Serialize + DeserializeOwned;

fn round<K: Key + std::fmt::Debug>(key: K, bytes: &[u8]) {
    let mut out = Vec::new();
    K::Codec::encode(&key, &mut out).unwrap();
    assert_eq!(out, bytes);
    assert_eq!(K::Codec::decode(bytes).unwrap(), key);
}

fn main() {
    round(Name { r#type: "a".to_owned() }, b"a");
    round(Number(258), &[0, 0, 0, 0, 0, 0, 1, 2]);
    round(Raw(vec![7]), &[7]);
    round(Place::Street { city: "a".to_owned(), number: None }, br#"{"street":{"city":"a","number":null}}"#);
    round(Place::Nested(Box::new(Other([1].into(), (1, true)))), br#"{"nested":[[1],[1,true]]}"#);
    round(Pair("a".to_owned(), "b".to_owned()), br#"["a","b"]"#);
    round(Place::Nowhere, br#""nowhere""#);
}
