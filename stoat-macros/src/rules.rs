//! What each rule is worth: with a rule switched off, by its code, a case of `ui-tests` is no longer refused in its words.
//!
//! So no check can be lost unseen: its case would fail. Rules that are bounds of traits are not here; `docs/errors` has them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::TokenStream;
use quote::ToTokens;
use stoat_macro_support::off;
use syn::{Attribute, Item, Meta};

use crate::endpoint::Kind;
use crate::{endpoint, handlers, main_fn, processor, topology};

/// All programs that must not compile.
fn cases() -> Vec<(PathBuf, String)> {
    let ui = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui-tests/ui");
    let mut all = Vec::new();
    for group in fs::read_dir(ui).expect("the cases are there") {
        let fail = group.expect("readable").path().join("fail");
        for file in fs::read_dir(fail).into_iter().flatten() {
            let path = file.expect("readable").path();
            if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("readable");
                all.push((path, text));
            }
        }
    }
    all.sort();
    all
}

fn attributes(item: &mut Item) -> Option<&mut Vec<Attribute>> {
    Some(match item {
        Item::Struct(i) => &mut i.attrs,
        Item::Enum(i) => &mut i.attrs,
        Item::Fn(i) => &mut i.attrs,
        Item::Impl(i) => &mut i.attrs,
        _ => return None,
    })
}

/// What the attribute macros make of a program.
fn expand(program: &str) -> String {
    let mut out = TokenStream::new();
    for mut item in syn::parse_file(program).expect("a case parses").items {
        let Some(attrs) = attributes(&mut item) else { continue };
        let ours = ["source", "sink", "processor", "handlers", "topology", "fragment", "main"];
        let name = |a: &Attribute| a.path().segments.last().map(|s| s.ident.to_string()).unwrap_or_default();
        let Some(i) = attrs.iter().position(|a| ours.contains(&&*name(a))) else { continue };
        let attr = attrs.remove(i);
        let args = match &attr.meta {
            Meta::List(l) => l.tokens.clone(),
            _ => TokenStream::new(),
        };
        let item = item.to_token_stream();
        out.extend(match &*name(&attr) {
            "source" => endpoint::expand(Kind::Source, args, item),
            "sink" => endpoint::expand(Kind::Sink, args, item),
            "processor" => processor::expand(args, item),
            "handlers" => handlers::expand(args, item),
            "topology" => topology::expand(args, item),
            "fragment" => topology::fragment::expand(args, item),
            _ => main_fn::expand(args, item),
        });
    }
    out.to_string()
}

/// The codes in a crate's sources, as the collector gets them.
fn codes(dir: &Path, found: &mut BTreeSet<&'static str>) {
    for entry in fs::read_dir(dir).expect("the sources are there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            codes(&path, found);
        } else if !path.ends_with("rules.rs") {
            let text: &'static str = fs::read_to_string(&path).expect("readable").leak();
            let words = text.split('"');
            found.extend(
                words.filter(|w| w.len() == 4 && w.starts_with('S') && w[1..].bytes().all(|b| b.is_ascii_digit())),
            );
        }
    }
}

#[test]
fn each_rule_is_what_refuses_one_of_the_cases() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut rules = BTreeSet::new();
    codes(&root.join("src"), &mut rules);
    codes(&root.join("../stoat-macro-support/src"), &mut rules);
    assert!(rules.len() > 45, "{rules:?}");
    let cases = cases();
    let mut lost = Vec::new();
    for rule in rules {
        let said = format!("[{rule}]");
        let mut worth = 0;
        for (path, program) in &cases {
            if !expand(program).contains(&said) {
                continue;
            }
            let kept = fs::read_to_string(path.with_extension("stderr")).unwrap_or_default();
            assert!(kept.contains(&said), "{}: the kept answer does not say {said}", path.display());
            let without = off::with(rule, || expand(program));
            assert!(!without.contains(&said), "{}: with {rule} off it is still said", path.display());
            worth += 1;
        }
        if worth == 0 {
            lost.push(rule);
        }
    }
    assert!(lost.is_empty(), "no case needs these rules: {lost:?}");
}

/// Closes what is open: an editor hands over matched brackets.
fn close(text: &str) -> String {
    let (mut out, mut open) = (String::new(), Vec::new());
    for c in text.chars() {
        match c {
            '(' => open.push(')'),
            '{' => open.push('}'),
            ')' | '}' => {
                while let Some(closing) = open.pop() {
                    if closing == c {
                        break;
                    }
                    out.push(closing);
                }
            }
            _ => {}
        }
        out.push(c);
    }
    out.extend(open.into_iter().rev());
    out
}

/// What an editor needs while somebody types: the user's item is always there.
#[test]
fn half_typed_items_are_kept() {
    let tokens = |text: &str| text.parse::<TokenStream>().expect("tokens");
    type Macro = fn(TokenStream, TokenStream) -> TokenStream;
    let source: Macro = |args, item| endpoint::expand(Kind::Source, args, item);
    let sink: Macro = |args, item| endpoint::expand(Kind::Sink, args, item);
    let all: &[(Macro, &str, &str, &[&str])] = &[
        // Arguments that are not finished.
        (source, "topic = ", "struct Clicks;", &["struct Clicks ;", "Source for Clicks"]),
        (source, "topic = \"clicks\", key = , value", "struct Clicks;", &["struct Clicks ;", "Source for Clicks"]),
        (source, "topic = \"clicks\", key = Option<", "struct Clicks;", &["struct Clicks ;", "Source for Clicks"]),
        (sink, "topic", "pub struct Clicks;", &["pub struct Clicks ;", "Sink for Clicks"]),
        (
            processor::expand,
            "input = (UserId, ",
            "struct P { #[state] open: Keyed<u64> }",
            &["struct P", "Processor for P"],
        ),
        (
            processor::expand,
            "input",
            "struct P { #[state(name = )] open: Keyed<u64> }",
            &["struct P", "Processor for P"],
        ),
        (processor::expand, "inp", "struct P { #[timer(cl)] idle: Timer }", &["struct P", "Processor for P"]),
        (main_fn::expand, "sess::", "struct App;", &["struct App ;", "fn main ()"]),
        // A body that is not finished.
        (
            handlers::expand,
            "",
            "impl P { #[process] fn on_click(&mut self, r: Record<K, V>, cx: &mut Context<Self>) -> Result<()> { self.open. } fn other(&self) { let } }",
            &["fn on_click", "self . open .", "fn other", "Handlers for P"],
        ),
        (
            topology::expand,
            "",
            "fn sessions(t: &mut Topology) { let clicks = t.source::<Clicks>(); clicks. }",
            &["fn sessions", "clicks .", "type sessions", "TopologyFn for"],
        ),
        (topology::expand, "", "fn sessions(t: &mut Topology) { let clicks = t. }", &["fn sessions", "TopologyFn for"]),
        // A signature that is not finished.
        (handlers::expand, "", "impl P { #[process] fn on_click(&mut self) {} }", &["fn on_click", "Handlers for P"]),
        (handlers::expand, "", "impl P { #[on_timer()] fn close(&mut self) {} }", &["fn close", "Handlers for P"]),
        (handlers::expand, "", "impl P { #[process] fn on_click(&mut self, r: }", &["fn on_click"]),
        (
            topology::fragment::expand,
            "",
            "fn valid(events: Stream<K, V, L>) -> Stream<K, V, L> { events. }",
            &["fn valid", "events ."],
        ),
        (
            topology::fragment::expand,
            "cra",
            "fn valid(events: Stream<K, V, L>) { events.discard() }",
            &["fn valid", "events . discard"],
        ),
        (topology::fragment::expand, "", "fn valid(events: Stream<K, ", &["fn valid"]),
        (topology::expand, "crate = ", "fn sessions(t: &mut Topology) {}", &["fn sessions", "type sessions"]),
        (
            handlers::expand,
            "crate",
            "impl P { #[process] fn on_click(&mut self) {} }",
            &["fn on_click", "Handlers for"],
        ),
        (source, "topic = \"clicks\"", "struct Clicks { page: }", &["struct Clicks", "page :"]),
        (sink, "topic = \"clicks\"", "struct Clicks<", &["struct Clicks"]),
        (main_fn::expand, "sessions", "struct App { name: }", &["struct App", "name :"]),
        (topology::expand, "", "fn sessions() {}", &["fn sessions"]),
        (topology::expand, "", "fn sessions(t: ", &["fn sessions"]),
        (processor::expand, "input = (K, V)", "struct P { open: }", &["struct P"]),
    ];
    for (expand, args, item, parts) in all {
        let out = expand(tokens(&close(args)), tokens(&close(item))).to_string();
        for part in *parts {
            let squeezed = |s: &str| s.replace(' ', "");
            assert!(squeezed(&out).contains(&squeezed(part)), "`{part}` not in what `{item}` ({args}) becomes: {out}");
        }
    }
}
