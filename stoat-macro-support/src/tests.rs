use quote::quote;
use syn::Type;

use super::*;

const KNOWN: &[&str] = &["topic", "key", "value", "foreign", "clock", "every"];

fn read(tokens: proc_macro2::TokenStream) -> (Args, Errors) {
    let mut errors = Errors::new();
    let args = Args::read("source", tokens, KNOWN, &mut errors);
    (args, errors)
}

#[test]
fn commas_inside_brackets_and_generics_do_not_split() {
    let (args, mut errors) = read(quote!(key = HashMap<A, (B, C)>, value = fn(A) -> B, topic = "t", foreign));
    assert!(same_tokens(&args.parse::<Type>("key", &mut errors), &quote!(HashMap<A, (B, C)>)));
    assert!(same_tokens(&args.parse::<Type>("value", &mut errors), &quote!(fn(A) -> B)));
    assert_eq!(args.string("topic", &mut errors).unwrap().value(), "t");
    assert!(args.flag("foreign", &mut errors));
    assert!(errors.is_empty(), "{:?}", errors.texts());
}

#[test]
fn a_misspelt_argument_gives_one_error_and_counts_as_given() {
    let (args, mut errors) = read(quote!(topik = "t"));
    assert_eq!(args.string("topic", &mut errors).unwrap().value(), "t");
    assert_eq!(errors.texts(), ["unknown argument `topik` in `#[source(..)]`: did you mean `topic`?"]);
}

#[test]
fn an_argument_unlike_all_others_is_answered_with_the_list() {
    let (_, errors) = read(quote!(partitions = 3));
    assert_eq!(errors.texts().len(), 1);
    assert!(errors.texts()[0].contains("known names are `topic`, `key`"), "{:?}", errors.texts());
}

#[test]
fn faults_of_values_say_what_to_write() {
    let (args, mut errors) = read(quote!(topic = 3, clock = wal, every = "10 parsecs", topic = "again"));
    args.string("topic", &mut errors);
    assert_eq!(args.word("clock", &["event", "wall"], &mut errors), Some("wall"));
    args.duration("every", &mut errors);
    let texts = errors.texts().join("\n");
    for part in [
        "`topic` is given twice",
        "`topic` takes a string",
        "unknown clock `wal`: did you mean `wall`?",
        "`10 parsecs` is not a duration",
    ] {
        assert!(texts.contains(part), "{part} not in {texts}");
    }
}

#[test]
fn durations_have_units() {
    for (text, millis) in [("10s", 10_000), ("500ms", 500), ("5m", 300_000), ("1h", 3_600_000), ("7d", 604_800_000)] {
        assert_eq!(parse_duration(text).unwrap().as_millis(), millis);
    }
    for text in ["", "10", "s", "-1s", "1.5s", "99999999999999999d"] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
}

#[test]
fn a_suggestion_is_close_or_there_is_none() {
    assert_eq!(closest("proces", &["process", "on_timer"]), Some("process"));
    assert_eq!(closest("inline", &["process", "on_timer"]), None);
    assert_eq!(closest("test", &["process", "on_timer"]), None);
}

#[test]
fn raw_identifiers_lose_their_mark() {
    assert_eq!(plain(&syn::parse_quote!(r#type)), "type");
    assert_eq!(plain(&syn::parse_quote!(idle)), "idle");
}

#[test]
fn options_are_seen_by_name() {
    assert!(option_inner(&syn::parse_quote!(std::option::Option<u8>)).is_some());
    assert!(option_inner(&syn::parse_quote!(Vec<u8>)).is_none());
}
