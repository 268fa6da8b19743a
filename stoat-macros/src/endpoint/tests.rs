use quote::quote;

use super::*;

fn read(kind: Kind, args: TokenStream) -> (Endpoint, Vec<String>) {
    let mut errors = Errors::new();
    let e = parse::parse(
        kind,
        args,
        quote!(
            struct Clicks;
        ),
        &mut errors,
    )
    .unwrap();
    (e, errors.texts())
}

#[test]
fn arguments_are_read() {
    let (e, errors) = read(
        Kind::Source,
        quote!(topic = "clicks", key = UserId, value = Click, value_codec = Json, out_of_orderness = "10s"),
    );
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(e.name, "Clicks");
    assert_eq!(e.out_of_orderness, Some(10_000));
    assert_eq!(e.idleness, None);
}

#[test]
fn what_is_missing_is_said_once() {
    let (_, errors) = read(Kind::Sink, quote!());
    assert_eq!(
        errors,
        ["`Clicks` names no topic and no value: write `#[sink(topic = \"my-topic\", key = K, value = V)]`"]
    );
    let (_, errors) = read(Kind::Source, quote!(topik = "clicks", value = V));
    assert_eq!(errors, ["unknown argument `topik` in `#[source(..)]`: did you mean `topic`?"]);
}

#[test]
fn arguments_that_do_not_go_together_are_told() {
    for (args, part) in [
        (quote!(topic = "a", value = V, key = K, decode_only), "`decode_only` needs `key_codec = ..`"),
        (quote!(topic = "a", value = V, key_codec = C), "`key_codec` without `key`"),
        (quote!(topic = "a b", value = V), "cannot be a topic's name"),
        (quote!(topic = "a", value = V, idleness = "soon"), "is not a duration"),
        (
            quote!(topic = "a", value = V, monotonic, out_of_orderness = "1s"),
            "`out_of_orderness` and `monotonic` both say",
        ),
        (quote!(topic = "a", value = V, watermark = W, monotonic), "`watermark` and `monotonic` both say"),
        (quote!(topic = "a", value = V, close_on_idle = "0s"), "`close_on_idle` is zero"),
        (quote!(topic = "a", value = V, no_timestamp = skipp), "did you mean `skip`?"),
        (quote!(topic = "a", value = V, no_timestamp = wall), "it is one of `fail`, `skip`"),
        (quote!(topic = "a", value = V, timestamp), "`timestamp` needs a value"),
    ] {
        let (_, errors) = read(Kind::Source, args);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].contains(part), "{errors:?}");
    }
    let (_, errors) = read(Kind::Sink, quote!(topic = "a", value = V, idleness = "1s"));
    assert!(errors[0].contains("unknown argument `idleness`"), "{errors:?}");
}

#[test]
fn an_item_that_is_not_a_struct_is_kept() {
    let out = expand(
        Kind::Source,
        quote!(topic = "a", value = V),
        quote!(
            enum E {
                A,
            }
        ),
    )
    .to_string();
    assert!(out.contains("compile_error") && out.contains("enum E"), "{out}");
}
