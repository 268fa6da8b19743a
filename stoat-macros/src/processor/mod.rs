//! `#[processor]`: a struct that owns state and timers.

mod checked;
mod expand;
mod parse;
#[cfg(test)]
mod tests;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote;
use stoat_macro_support::Errors;
use syn::{Attribute, Expr, ItemStruct, Path, Type};

/// What was read.
pub(crate) struct Processor {
    /// The user's struct: helper attributes are gone, field types are complete.
    item: ItemStruct,
    krate: TokenStream,
    input: Input,
    output: Output,
    fields: Vec<Field>,
}

/// What comes in.
pub(crate) enum Input {
    /// Key and value, and where the pair stands.
    Types(Box<(Type, Type, Span)>),
    /// An error. It stands where the key's type would: what depends on that type then complains no more.
    Error(TokenStream),
}

/// What goes out.
pub(crate) enum Output {
    /// Nothing.
    None,
    /// `output = V`: the key is kept.
    Keep(Box<Type>),
    /// `output = (K, V)`.
    Rekey(Box<(Type, Type)>),
}

/// A field.
pub(crate) struct Field {
    ident: Ident,
    /// As it stands in the struct that is emitted.
    ty: Type,
    /// `#[cfg(..)]`, repeated on whatever is generated for the field.
    cfgs: Vec<Attribute>,
    role: Role,
}

/// What a field is for.
pub(crate) enum Role {
    /// `#[state]`
    State { name: String },
    /// `#[timer]`
    Timer { name: String, wall: bool },
    /// `#[store]`
    Store { name: String },
    /// `#[local]`, `#[local(expr)]`
    Local(Option<Expr>),
    /// Not marked.
    Config,
}

impl Role {
    /// The stable name, where the field owns bytes.
    fn name(&self) -> Option<&str> {
        match self {
            Self::State { name } | Self::Timer { name, .. } | Self::Store { name } => Some(name),
            Self::Local(_) | Self::Config => None,
        }
    }
}

/// The codec that a field names for its values or, for a timer, its key.
type FieldCodec = Option<Path>;

pub(crate) fn expand(args: TokenStream, item: TokenStream) -> TokenStream {
    let mut errors = Errors::new();
    let Some(mut processor) = parse::parse(args.clone(), item.clone(), &mut errors) else {
        // Its handlers need not complain as well.
        let stub = parse::stub(args, &item).map(|p| expand::stub(&p));
        return quote!(#item #errors #stub);
    };
    let aliases = checked::complete(&mut processor);
    let item = &processor.item;
    // Whatever borrows cannot be a processor; the trait's own complaints would bury that.
    let code = item.generics.lifetimes().next().is_none().then(|| expand::expand(&processor));
    quote!(#item #errors #aliases #code)
}
