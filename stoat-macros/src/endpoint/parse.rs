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
    "monotonic",
    "watermark",
    "close_on_idle",
    "timestamp",
    "no_timestamp",
    "decode_only",
    "crate",
];
/// What can become of a record without a timestamp.
pub(super) const NO_TIMESTAMP: &[&str] = &["fail", "skip"];
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
    let monotonic = args.flag("monotonic", errors);
    let strategies: Vec<&str> =
        ["monotonic", "out_of_orderness", "watermark"].into_iter().filter(|a| args.has(a)).collect();
    if let [first, second, ..] = strategies[..] {
        errors.at(
            "S107",
            args.span(second).expect("the argument was found"),
            format!(
                "`{second}` and `{first}` both say how the watermark follows the records: keep one. `monotonic` is for \
                 timestamps that only rise, `out_of_orderness = \"10s\"` for those that are late by a bounded time, \
                 `watermark = G` for a generator of your own"
            ),
        );
    }
    let no_timestamp = args.word("no_timestamp", NO_TIMESTAMP, errors);
    let watermark = args.parse("watermark", errors);
    let timestamp = args.parse("timestamp", errors);
    let mut millis = |name| {
        let d = args.duration(name, errors)?;
        Some(d.as_millis() as u64)
    };
    let close_on_idle = millis("close_on_idle");
    let out_of_orderness = millis("out_of_orderness").or(monotonic.then_some(0));
    let (idleness, future_bound) = (millis("idleness"), millis("future_bound"));
    if close_on_idle == Some(0) {
        errors.at(
            "S108",
            args.span("close_on_idle").expect("the argument was found"),
            "`close_on_idle` is zero: each pause between two records would close what is open; give a time of silence, or \
             leave it out",
        );
    }
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
        out_of_orderness,
        idleness,
        future_bound,
        close_on_idle,
        no_timestamp,
        watermark,
        timestamp,
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
