//! `#[stoat_core::main(topology)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use stoat_macro_support::{Args, Errors, krate};
use syn::{ItemStruct, Path};

/// ```ignore
/// struct App;
/// fn main() -> ExitCode { app::main(app::<sessions>()) }
/// ```
pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let args = Args::read_positional("main", args, &["crate"], &mut errors);
    let krate = krate(&args, &mut errors);
    let topology = if let Some(t) = &args.positional {
        let path = syn::parse2::<Path>(t.clone()).ok();
        if path.is_none() {
            errors.on("S601", t, "the topology is named by its path: write `#[stoat_core::main(name)]`");
        }
        path
    } else {
        errors.at(
            "S601",
            Span::call_site(),
            "which topology? write `#[stoat_core::main(name)]` with the name of a `#[topology]` function",
        );
        None
    };
    if syn::parse2::<ItemStruct>(item.clone()).is_err() {
        errors.at(
            "S602",
            Span::call_site(),
            "`#[stoat_core::main(..)]` goes on a struct, `struct App;`, and writes `fn main()` beside it",
        );
        let mut out = errors.to_token_stream();
        out.extend(item);
        return out;
    }
    let body = topology.map_or_else(
        || quote!(::std::process::ExitCode::FAILURE),
        |t| quote!(#krate::app::main(#krate::__private::app::<#t>())),
    );
    quote! {
        #[allow(dead_code)]
        #item
        #errors
        fn main() -> ::std::process::ExitCode {
            #body
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topology_may_be_a_path() {
        let out = expand(
            quote!(my::sessions, crate = stoat),
            quote!(
                struct App;
            ),
        )
        .to_string();
        assert!(
            out.contains("stoat :: __private :: app :: < my :: sessions >") && !out.contains("stoat_core"),
            "{out}"
        );
    }

    #[test]
    fn mistakes_are_told_and_main_stays() {
        for (args, item, text) in [
            (
                quote!(),
                quote!(
                    struct App;
                ),
                "which topology?",
            ),
            (
                quote!(sessions, kind = 1),
                quote!(
                    struct App;
                ),
                "unknown argument `kind`",
            ),
            (
                quote!(sessions),
                quote!(
                    fn main() {}
                ),
                "goes on a struct",
            ),
        ] {
            let out = expand(args, item).to_string();
            assert!(out.contains(text) && out.contains("fn main ()"), "{out}");
        }
    }
}
