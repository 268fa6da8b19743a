//! Reads the arguments and checks what can be seen in them.

use proc_macro2::TokenStream;
use stoat_macro_support::{Args, Errors, krate, plain, wrong_item};
use syn::ItemStruct;

use super::{Endpoint, Kind};

const SOURCE: &[&str] = &[
    "topic",
    "key",
    "value",
    "key_codec",
    "value_codec",
    "name",
    "out_of_orderness",
    "idleness",
    "future_bound",
    "decode_only",
    "crate",
];
const SINK: &[&str] = &["topic", "key", "value", "key_codec", "value_codec", "name", "crate"];

pub(super) fn parse(kind: Kind, args: TokenStream, item: TokenStream, errors: &mut Errors) -> Option<Endpoint> {
    let word = kind.word();
    let item: ItemStruct = match syn::parse2(item.clone()) {
        Ok(i) => i,
        Err(e) => {
            let text = format!("`#[{word}]` goes on a struct that names the {word}: `struct Name;`");
            wrong_item("S101", "struct", &item, e, &text, errors);
            return None;
        }
    };
    if !item.generics.params.is_empty() {
        errors.on("S102", &item.generics, format!("a {word} is one topic with fixed types: it cannot be generic"));
    }
    let args = Args::read(word, args, if kind == Kind::Source { SOURCE } else { SINK }, errors);
    let krate = krate(&args, errors);
    let topic = args.string("topic", errors);
    if let Some(t) = &topic
        && let Some(why) = bad_topic(&t.value())
    {
        errors.on("S103", t, why);
    }
    let name = &item.ident;
    let missing: Vec<&str> = ["topic", "value"].into_iter().filter(|a| !args.has(a)).collect();
    if !missing.is_empty() {
        errors.on(
            "S104",
            name,
            format!(
                "`{name}` names no {}: write `#[{word}(topic = \"my-topic\", key = K, value = V)]`",
                missing.join(" and no ")
            ),
        );
    }
    let decode_only = args.flag("decode_only", errors);
    if decode_only && !args.has("key_codec") {
        errors.at(
            "S105",
            args.span("decode_only").expect("the flag was found"),
            "`decode_only` needs `key_codec = ..`: the key type's own codec can encode",
        );
    }
    if args.has("key_codec") && !args.has("key") {
        errors.at("S106", 
            args.span("key_codec").expect("the argument was found"),
            "`key_codec` without `key`: name the key's type, `key = K`; without it the key is bytes that may be missing",
        );
    }
    let stable = args.string("name", errors).map_or_else(|| plain(&item.ident), |n| n.value());
    let key = args.parse("key", errors);
    let value = args.parse("value", errors);
    let key_codec = args.parse("key_codec", errors);
    let value_codec = args.parse("value_codec", errors);
    let mut millis = |name| args.duration(name, errors).map(|d| d.as_millis() as u64);
    Some(Endpoint {
        kind,
        krate,
        topic,
        name: stable,
        key,
        value,
        key_codec,
        value_codec,
        decode_only,
        out_of_orderness: millis("out_of_orderness"),
        idleness: millis("idleness"),
        future_bound: millis("future_bound"),
        item,
    })
}

/// Kafka's rule for names of topics.
fn bad_topic(topic: &str) -> Option<String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.len() > 249 {
        Some("a topic's name has at most 249 characters".to_owned())
    } else if topic == "." || topic == ".." || !topic.chars().all(legal) {
        Some(format!("`{topic}` cannot be a topic's name: Kafka allows letters, digits, `.`, `_` and `-`"))
    } else {
        None
    }
}
