//! Parts of a topology that are functions of their own.

use super::builder::Shared;
use super::stream::Stream;
use super::{Grouped, Table, Topology};
use crate::operator::stateless::Pipe;

/// What a `#[fragment]` function returns: its streams, which only a `#[topology]` or another fragment can take out.
#[must_use = "nobody consumes what this fragment returns"]
#[derive(Debug)]
pub struct Fragment<T>(T);

impl<T> Fragment<T> {
    /// For generated code: ends the chains of what the function's body returns.
    #[doc(hidden)]
    pub fn new<S: Streams<Erased = T>>(streams: S) -> Self {
        Self(streams.erased())
    }
}

/// What a fragment may return: a stream, several, or nothing.
#[diagnostic::on_unimplemented(
    message = "a fragment returns streams, not `{Self}` [S702]",
    label = "not a stream",
    note = "return a `Stream<K, V, L>`, an array or a tuple of them, or nothing; a table becomes a stream by `.to_stream()`"
)]
pub trait Streams {
    /// The same, without the steps in its type.
    type Erased;
    /// Makes nodes of the steps that are none yet.
    fn erased(self) -> Self::Erased;
}

/// What comes out of a fragment, called by its place in the topology.
#[doc(hidden)]
pub trait Labelled {
    /// Lets derived names begin with this.
    #[must_use]
    fn labelled(self, label: &str) -> Self;
}

impl<K: 'static, V: 'static, L: 'static, P: Pipe<K, V>> Streams for Stream<K, V, L, P> {
    type Erased = Stream<K, V, L>;
    fn erased(self) -> Self::Erased {
        self.erase()
    }
}

impl<K: 'static, V: 'static, L> Labelled for Stream<K, V, L> {
    fn labelled(self, label: &str) -> Self {
        self.with_label(label)
    }
}

impl<S: Streams, const N: usize> Streams for [S; N] {
    type Erased = [S::Erased; N];
    fn erased(self) -> Self::Erased {
        self.map(S::erased)
    }
}

impl<S: Labelled, const N: usize> Labelled for [S; N] {
    fn labelled(self, label: &str) -> Self {
        self.map(|s| s.labelled(label))
    }
}

macro_rules! tuples {
    ($(($($t:ident $i:tt),*))*) => {$(
        impl<$($t: Streams),*> Streams for ($($t,)*) {
            type Erased = ($($t::Erased,)*);
            #[allow(clippy::unused_unit)]
            fn erased(self) -> Self::Erased {
                ($(self.$i.erased(),)*)
            }
        }
        impl<$($t: Labelled),*> Labelled for ($($t,)*) {
            #[allow(unused_variables, clippy::unused_unit)]
            fn labelled(self, label: &str) -> Self {
                ($(self.$i.labelled(label),)*)
            }
        }
    )*};
}
tuples! { () (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) }

/// What leads to the draft of a topology.
#[doc(hidden)]
pub trait Drafted {
    /// The draft.
    fn draft(&self) -> Place;
}

/// A place in a draft; while it lives, nodes belong to a fragment.
#[doc(hidden)]
#[derive(Debug)]
pub struct Place(Shared);

impl Place {
    pub(crate) fn of(draft: &Shared) -> Self {
        Self(draft.clone())
    }
}

impl<K, V, L, P> Drafted for Stream<K, V, L, P> {
    fn draft(&self) -> Place {
        self.place()
    }
}

impl<K, V, C> Drafted for Table<K, V, C> {
    fn draft(&self) -> Place {
        self.place()
    }
}

impl<K, V, C, VC> Drafted for Grouped<K, V, C, VC> {
    fn draft(&self) -> Place {
        self.place()
    }
}

impl Drafted for &mut Topology {
    fn draft(&self) -> Place {
        Place::of(&self.draft)
    }
}

/// What a call in a topology's body returns must come from a fragment.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "this function is not read, so the graph would have a gap [S508]",
    label = "not a `#[fragment]`",
    note = "write its steps here, as methods of the stream; or make the function a part of the topology: `#[fragment]` on it, streams in and out"
)]
pub trait FromFragment {
    /// What it returns.
    type Out;
    /// Takes it out, called by its place.
    fn out(self, label: &str) -> Self::Out;
}

impl<T: Labelled> FromFragment for Fragment<T> {
    type Out = T;
    fn out(self, label: &str) -> T {
        self.0.labelled(label)
    }
}

/// For generated code: what is declared from here on belongs to the fragment of this name.
#[doc(hidden)]
pub fn enter(at: &impl Drafted, name: &'static str) -> Place {
    let place = at.draft();
    place.0.borrow_mut().enter(name);
    place
}

/// For generated code: the fragment has been declared.
#[doc(hidden)]
pub fn leave<F: FromFragment>(place: Place, name: &'static str, fragment: F) -> F::Out {
    place.0.borrow_mut().leave();
    drop(place);
    fragment.out(name)
}
