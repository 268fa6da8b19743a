//! Items as they come while somebody types: a body need not parse for a macro to do its work.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use syn::{Block, Expr, ImplItem, ItemImpl, Stmt};

use crate::Errors;

/// Says that a macro stands on the wrong item; or, where it is the right kind and does not parse, what the parser says.
pub fn wrong_item(
    code: &'static str,
    keyword: &str,
    item: &TokenStream,
    error: syn::Error,
    text: &str,
    errors: &mut Errors,
) {
    let right = item.clone().into_iter().any(|t| matches!(t, TokenTree::Ident(i) if i == keyword));
    if right {
        errors.push(error);
    } else {
        errors.at(code, Span::call_site(), text);
    }
}

/// The bodies of an impl's methods, as the user wrote them.
///
/// A macro that only reads signatures takes them out first: it then works on what is half typed, and the compiler speaks
/// about the body, at its place. (It is also quicker.)
#[derive(Debug, Default)]
pub struct RawBodies {
    bodies: Vec<TokenStream>,
}

impl RawBodies {
    /// Takes the bodies out of an impl.
    pub fn take(item: TokenStream) -> (TokenStream, Self) {
        let mut bodies = Self::default();
        let mut tokens: Vec<TokenTree> = item.into_iter().collect();
        if let Some(TokenTree::Group(g)) = tokens.last_mut()
            && g.delimiter() == Delimiter::Brace
        {
            let mut in_fn = false;
            let inner = g.stream().into_iter().map(|t| match t {
                TokenTree::Group(body) if in_fn && body.delimiter() == Delimiter::Brace => {
                    in_fn = false;
                    bodies.bodies.push(body.stream());
                    emptied(&body)
                }
                t => {
                    match &t {
                        TokenTree::Ident(i) if i == "fn" => in_fn = true,
                        TokenTree::Punct(p) if p.as_char() == ';' => in_fn = false,
                        _ => {}
                    }
                    t
                }
            });
            let mut whole = Group::new(Delimiter::Brace, inner.collect());
            whole.set_span(g.span());
            *g = whole;
        }
        (tokens.into_iter().collect(), bodies)
    }

    /// Puts the bodies back.
    pub fn put(self, item: &mut ItemImpl) {
        let methods = item.items.iter_mut().filter_map(|i| match i {
            ImplItem::Fn(f) => Some(&mut f.block),
            _ => None,
        });
        for (block, body) in methods.zip(self.bodies) {
            set(block, body);
        }
    }
}

fn emptied(body: &Group) -> TokenTree {
    let mut empty = Group::new(Delimiter::Brace, TokenStream::new());
    empty.set_span(body.span());
    TokenTree::Group(empty)
}

/// Replaces a block's content by tokens that need not parse.
fn set(block: &mut Block, body: TokenStream) {
    block.stmts = vec![Stmt::Expr(Expr::Verbatim(body), None)];
}

/// A function with an empty body, where its body does not parse; `None`: something else does not. The second puts the body
/// back.
pub fn body(item: TokenStream) -> Option<(syn::ItemFn, impl FnOnce(&mut syn::ItemFn))> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let TokenTree::Group(body) = tokens.pop()? else { return None };
    if body.delimiter() != Delimiter::Brace {
        return None;
    }
    tokens.push(emptied(&body));
    let item = syn::parse2(tokens.into_iter().collect()).ok()?;
    Some((item, move |f: &mut syn::ItemFn| set(&mut f.block, body.stream())))
}
