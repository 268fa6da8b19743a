use quote::quote;

use super::*;

fn faults(tokens: TokenStream) -> Vec<String> {
    let mut errors = Errors::new();
    let key = read(syn::parse2(tokens).unwrap(), &mut errors);
    check::check(&key, &mut errors);
    errors.texts()
}

fn one(tokens: TokenStream, part: &str) {
    let texts = faults(tokens);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains(part), "{part} not in {texts:?}");
}

#[test]
fn fields_without_stable_bytes_are_refused_at_any_depth() {
    one(quote! { #[key(codec = Json)] struct K { a: f64 } }, "`f64` cannot be part of a key");
    one(quote! { #[key(codec = Json)] struct K(Vec<(u8, Option<f32>)>); }, "`f32` cannot be part of a key");
    one(quote! { #[key(codec = Json)] enum K { A, B { x: [usize; 2] } } }, "use `u64`");
    one(quote! { #[key(codec = Json)] struct K(std::collections::HashMap<u8, u8>); }, "use `BTreeMap`");
    one(quote! { #[key(codec = Json)] struct K(HashSet<u8>); }, "use `BTreeSet`");
}

#[test]
fn serde_attributes_that_make_unequal_keys_alike_are_refused_where_serde_writes_the_key() {
    for name in ["skip", "skip_serializing", "with", "serialize_with", "flatten", "skip_serializing_if"] {
        let attr: TokenStream = if name.contains("with") || name.ends_with("if") {
            format!("#[serde({name} = \"f\")]")
        } else {
            format!("#[serde(default, {name})]")
        }
        .parse()
        .unwrap();
        one(quote! { #[key(codec = Json)] struct K { #attr a: u8 } }, name);
        assert!(faults(quote! { #[key(codec = Be)] struct K { #attr a: u8 } }).is_empty());
    }
    one(quote! { #[key(codec = Json)] #[serde(untagged)] enum K { A(u8) } }, "untagged");
    one(quote! { #[key(codec = Json)] enum K { #[serde(skip)] A(u8) } }, "skip");
    assert!(faults(quote! { #[key(codec = Json)] #[serde(rename_all = "kebab-case")] enum K { A } }).is_empty());
}

#[test]
fn the_codec_is_asked_for_once() {
    one(quote! { struct K(u8); }, "`K` names no codec");
    one(quote! { #[key(codc = Be)] struct K(u8); }, "did you mean `codec`?");
    one(quote! { #[key(codec = Utf8)] struct K(u8, u8); }, "takes a struct of one field");
    one(quote! { #[key(codec = Json)] union K { a: u8 } }, "union");
}

#[test]
fn several_mistakes_are_reported_together() {
    let texts = faults(quote! { struct K { a: f64, b: usize } });
    assert_eq!(texts.len(), 3, "{texts:?}");
}
