//! `#[stoat_core::main(topology)]`.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote};
use stoat_macro_support::{Args, Errors, at, krate};
use syn::spanned::Spanned;
use syn::{ItemStruct, Path};

/// ```ignore
/// struct App;
/// fn main() -> ExitCode { let function = sessions; /* a type of that name */ { use self::*; __private::main::<_, sessions>(function) } }
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
    let body = topology.map_or_else(|| quote!(::std::process::ExitCode::FAILURE), |t| named(&krate, &t));
    quote! {
        #[allow(dead_code)]
        #item
        #errors
        fn main() -> ::std::process::ExitCode {
            #body
        }
    }
}

/// Runs the topology.
///
/// The name of a function alone is a value; what `#[topology]` puts beside it, under the same name, is a type. Where that is
/// missing, the name is found in the outer block, as a type that is no topology: so the message can say what is missing. And
/// where the function is missing too, its value is an error, which is the only one. In the same way the name `__stoat_main`, which
/// the prelude has, is found in the outer block where the prelude is missing: then that is what is said.
fn named(krate: &TokenStream, topology: &Path) -> TokenStream {
    let Some(last) = topology.segments.last() else { return TokenStream::new() };
    let name = &last.ident;
    let mut module = topology.segments.clone();
    module.pop();
    let here = module.is_empty();
    let module = if here { quote!(self::) } else { quote!(#module) };
    let (root, function) = (topology.leading_colon, at(&quote!(function), topology.span()));
    // What another module imports is not seen from here.
    let main = if here { quote!(__stoat_main) } else { quote!(#krate::__private::main) };
    let outside = here.then(|| quote!(use #krate::__private::main_without_prelude as __stoat_main;));
    let run = at(&quote!(#main::<_, #name>(#function)), topology.span());
    quote! {
        let #function = #topology;
        {
            mod no_topology {
                #[allow(non_camel_case_types)]
                pub struct #name {}
            }
            #[allow(unused_imports)]
            use no_topology::*;
            #[allow(unused_imports)]
            #outside
            {
                #[allow(unused_imports)]
                use #root #module *;
                #run
            }
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
            out.contains("stoat :: __private :: main :: < _ , sessions > (function)") && !out.contains("stoat_core"),
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
