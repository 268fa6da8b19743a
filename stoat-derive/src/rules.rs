//! As in `stoat-macros`: with a rule switched off, by its code, a case of `ui-tests` is no longer refused in its words.

use std::fs;
use std::path::Path;

use quote::ToTokens;
use stoat_macro_support::off;
use syn::Item;

#[test]
fn each_rule_is_what_refuses_one_of_the_cases() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui-tests/ui/key/fail");
    let paths: Vec<_> =
        fs::read_dir(cases).expect("the cases are there").map(|f| f.expect("readable").path()).collect();
    let expand = |program: &str| {
        let items = syn::parse_file(program).expect("a case parses").items;
        let keys = items.into_iter().filter(|i| match i {
            Item::Struct(s) => s.attrs.iter().any(|a| a.path().is_ident("derive")),
            Item::Enum(s) => s.attrs.iter().any(|a| a.path().is_ident("derive")),
            Item::Union(_) => true,
            _ => false,
        });
        keys.map(|i| crate::key::derive(i.to_token_stream()).to_string()).collect::<String>()
    };
    for rule in ["S201", "S202", "S203", "S204", "S205", "S206", "S207"] {
        let said = format!("[{rule}]");
        let mut worth = 0;
        for path in paths.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
            let program = fs::read_to_string(path).expect("readable");
            if expand(&program).contains(&said) {
                let kept = fs::read_to_string(path.with_extension("stderr")).unwrap_or_default();
                assert!(kept.contains(&said), "{}: the kept answer does not say {said}", path.display());
                assert!(!off::with(rule, || expand(&program)).contains(&said), "{}", path.display());
                worth += 1;
            }
        }
        assert!(worth > 0, "no case needs {rule}");
    }
}
