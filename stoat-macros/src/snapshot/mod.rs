//! The expansion of the design's first program, prettified: read it to know what the macros generate.
//!
//! `STOAT_BLESS=1 cargo test -p stoat-macros` writes it anew.

use proc_macro2::TokenStream;
use quote::quote;

use crate::endpoint::Kind;
use crate::{endpoint, handlers, main_fn, processor, topology};

fn sessions(krate: &TokenStream) -> TokenStream {
    let mut out = endpoint::expand(
        Kind::Source,
        quote!(topic = "clicks", key = UserId, value = Click, value_codec = Json, out_of_orderness = "10s", crate = #krate),
        quote! { struct Clicks; },
    );
    out.extend(endpoint::expand(
        Kind::Sink,
        quote!(topic = "sessions", key = UserId, value = Session, value_codec = Json, crate = #krate),
        quote! { struct Sessions; },
    ));
    out.extend(processor::expand(
        quote!(input = (UserId, Click), output = Session, crate = #krate),
        quote! {
            struct Sessionize {
                #[state]
                open: Keyed<Session>,
                #[timer]
                idle: Timer,
            }
        },
    ));
    out.extend(handlers::expand(
        quote!(crate = #krate),
        quote! {
            impl Sessionize {
                #[process]
                fn on_click(&mut self, click: Record<UserId, Click>, cx: &mut Context<Self>) -> Result<()> {
                    self.open.update(Session::default, |s| s.add(&click.value))?;
                    self.idle.set(click.timestamp + IDLE)
                }

                #[on_timer(idle)]
                fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
                    if let Some(session) = self.open.take()? {
                        cx.forward(session)?;
                    }
                    Ok(())
                }

                #[punctuate(every = "10s", clock = wall, over = open)]
                fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
                    Ok(())
                }
            }
        },
    ));
    out.extend(topology::expand(
        quote!(crate = #krate),
        quote! {
            fn sessions(t: &mut Topology) {
                let clicks = t.source::<Clicks>();
                let closed = clicks.process::<Sessionize>();
                closed.sink::<Sessions>();
            }
        },
    ));
    out.extend(main_fn::expand(quote!(sessions, crate = #krate), quote! { struct App; }));
    out
}

#[test]
fn the_first_program_expands_to_what_is_kept() {
    let file = syn::parse2(sessions(&quote!(::stoat_core))).expect("the expansion parses");
    let text = format!("// Written by the test of snapshot/mod.rs: do not edit.\n\n{}", prettyplease::unparse(&file));
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/snapshot/sessions.expanded.rs");
    if std::env::var_os("STOAT_BLESS").is_some() {
        std::fs::write(path, &text).expect("the snapshot can be written");
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == text, "the expansion has changed; look at it with STOAT_BLESS=1 and git diff:\n{text}");
}

#[test]
fn the_runtime_is_named_by_its_given_path_only() {
    let text = sessions(&quote!(my::stoat)).to_string();
    assert!(!text.contains("stoat_core"), "{text}");
}
