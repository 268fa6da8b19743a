use quote::{ToTokens, quote};

use super::*;

fn read(args: TokenStream, item: TokenStream) -> (Processor, Vec<String>) {
    let mut errors = Errors::new();
    let p = parse::parse(args, item, &mut errors).unwrap();
    (p, errors.texts())
}

fn one(item: TokenStream, part: &str) {
    let (_, errors) = read(quote!(input = (UserId, Click), output = Session), item);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].contains(part), "{part} not in {errors:?}");
}

#[test]
fn timers_are_completed_with_the_key_and_codecs_with_the_codec() {
    let (p, errors) = read(
        quote!(input = (UserId, Click), output = (OrderId, Session)),
        quote! {
            struct P {
                #[timer] idle: Timer,
                #[timer(clock = wall, foreign, name = "again")] retries: stoat_core::Timers,
                #[timer] given: Timer<UserId, Json>,
                #[state(codec = Be)] n: Keyed<u64>,
                #[state] r#type: Keyed<u64>,
                #[local(Vec::new())] buffer: Vec<u8>,
                /// A limit.
                limit: u32,
            }
        },
    );
    assert!(errors.is_empty(), "{errors:?}");
    let types: Vec<String> = p.fields.iter().map(|f| f.ty.to_token_stream().to_string()).collect();
    assert_eq!(types[0], "Timer < UserId >");
    assert_eq!(
        types[1],
        "stoat_core :: Timers < UserId , < UserId as :: stoat_core :: key :: Key > :: Codec , :: stoat_core :: timer :: Foreign >"
    );
    assert_eq!(types[2], "Timer < UserId , Json >");
    assert_eq!(types[3], "Keyed < u64 , Be >");
    let names: Vec<_> = p.fields.iter().filter_map(|f| f.role.name()).collect();
    assert_eq!(names, ["idle", "again", "given", "n", "type"]);
    assert!(matches!(p.fields[1].role, Role::Timer { wall: true, .. }));
    assert!(matches!(p.output, Output::Rekey(..)));
    let item = p.item.to_token_stream().to_string();
    assert!(!item.contains("# [timer") && item.contains("A limit"), "{item}");
}

#[test]
fn each_fault_of_a_field_is_one_error() {
    one(quote! { struct P { #[state] a: u64 } }, "a `#[state]` field is a `Keyed<V>`");
    one(quote! { struct P { #[timer] a: MyTimer } }, "an alias cannot be completed");
    one(quote! { struct P { #[store] a: Vec<u8> } }, "a `#[store]` field is a `KeyValueStore<K, V>`");
    one(quote! { struct P { #[stat] a: Keyed<u8> } }, "unknown field attribute `stat`: did you mean `state`?");
    one(quote! { struct P { a: Keyed<u8> } }, "add `#[state]`");
    one(quote! { struct P { #[timer(clok = wall)] a: Timer } }, "did you mean `clock`?");
    one(quote! { struct P { #[state] #[timer] a: Timer } }, "more than one role");
    one(quote! { struct P(u8); }, "fields have names");
    one(quote! { struct P<'a> { a: &'a u8 } }, "it cannot borrow");
}

#[test]
fn stable_names_are_told_apart_without_raw_marks() {
    one(
        quote! { struct P { #[state] r#type: Keyed<u8>, #[store(name = "type")] b: KeyValueStore<u8, u8> } },
        "two fields of `P` are named `type`",
    );
    let (_, errors) = read(
        quote!(input = (K, V)),
        quote! { struct P { #[cfg(a)] #[state] x: Keyed<u8>, #[cfg(not(a))] #[state] x: Keyed<u16> } },
    );
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn input_is_asked_for_once() {
    for (args, part) in [
        (quote!(), "`P` names no input"),
        (quote!(inptu = (K, V)), "did you mean `input`?"),
        (quote!(input = K), "write `input = (K, V)`"),
    ] {
        let out = expand(args, quote! { struct P; }).to_string();
        assert_eq!(out.matches("compile_error").count(), 1, "{out}");
        assert!(out.contains(part), "{out}");
    }
}

#[test]
fn a_misspelt_type_of_a_field_is_told_the_right_one() {
    one(quote! { struct P { #[state] a: Keyd<Session> } }, "is named `Keyd`: did you mean `Keyed`?");
    one(quote! { struct P { #[timer] a: Tmer } }, "is named `Tmer`: did you mean `Timer`?");
    one(quote! { struct P { #[timer] a: Timrs<K> } }, "did you mean `Timers`?");
    one(quote! { struct P { #[store] a: KeyValStore<K, V> } }, "did you mean `KeyValueStore`?");
    one(quote! { struct P { #[state] a: Key } }, "write `a: Keyed<Key>`");
}

#[test]
fn a_field_that_is_declared_twice_is_left_to_the_compiler() {
    let (p, errors) =
        read(quote!(input = (K, V)), quote! { struct P { #[state] a: Keyed<u8>, #[state] a: Keyed<u8> } });
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((p.fields.len(), p.item.fields.len()), (1, 2));
}
