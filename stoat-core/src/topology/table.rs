use std::marker::PhantomData;

use super::builder::{Outlet, Shared};
use super::fragment::Place;
use super::lane_state::{IsStream, Lane};
use super::stream::Stream;
use crate::key::Types;

/// The latest value of each key, in a store, on the lanes of codec `C`.
pub struct Table<K, V, C> {
    draft: Shared,
    at: Outlet,
    types: Types<(K, V, C)>,
}

impl<K, V, C> std::fmt::Debug for Table<K, V, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Table({})", self.draft.borrow().label(self.at.node))
    }
}

impl<K, V, C> Table<K, V, C> {
    pub(crate) fn place(&self) -> Place {
        Place::of(&self.draft)
    }
}

impl<K: 'static, V: 'static, C> Table<K, V, C> {
    pub(crate) fn at(draft: Shared, at: Outlet) -> Self {
        Self { draft, at, types: PhantomData }
    }

    pub(crate) fn with_name(self, name: &str, replace: bool) -> Self {
        self.draft.borrow_mut().name_node(self.at.node, name, replace);
        self
    }

    /// Names the table: its node, its store and its changelog topic.
    pub fn named(self, name: &str) -> Self {
        self.with_name(name, true)
    }

    /// The updates of the table, each with the new value.
    pub fn to_stream(self) -> Stream<K, V, Lane<C>> {
        Stream::at(self.draft, self.at)
    }

    /// Does not compile, and says why.
    #[doc(hidden)]
    pub fn discard(self)
    where
        // Not of the table: behind another mistake the codec is not known, and nothing more is said.
        C: IsStream,
    {
        unreachable!("nothing implements `IsStream`")
    }

    /// As [`Table::discard`].
    #[doc(hidden)]
    pub fn sink<S>(self)
    where
        C: IsStream,
    {
        unreachable!("nothing implements `IsStream`")
    }
}
