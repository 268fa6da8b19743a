//! What the macro crates of Stoat share: an error collector, keyword arguments, the path of the runtime crate.
//!
//! An ordinary crate, so that one copy serves attribute and derive macros and can be tested as ordinary code.

mod args;
mod duration;
mod errors;
mod items;
mod names;
mod paths;
#[cfg(test)]
mod tests;

pub use args::{Arg, Args, Wanted};
pub use duration::parse_duration;
pub use errors::Errors;
#[cfg(any(test, feature = "mutants"))]
pub use errors::off;
pub use items::{RawBodies, body, wrong_item};
pub use names::{closest, plain, shown};
pub use paths::{Codec, asks, at, checked, checked_key, krate, nullable, option_inner, same_tokens};
