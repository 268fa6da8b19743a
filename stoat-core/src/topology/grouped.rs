use std::marker::PhantomData;
use std::sync::Arc;

use super::builder::{Name, NewNode, Outlet, Shared};
use super::fragment::Place;
use super::graph::{NodeKind, ValueDecl};
use super::stream::DefaultCodec;
use super::table::Table;
use crate::codec::{Be, Decode, Encode};
use crate::key::Types;
use crate::operator::aggregate::{Aggregate, AggregateOperator, Count, Fold, Reduce};
use crate::store::StoreKind;

/// Records grouped by key, on the lanes of codec `C`. What follows keeps one value per key, written with codec `VC`.
///
/// A result has the largest timestamp of the records that went into it, and the headers of the last one: of those that were
/// handed on as one (`stoat.emit.mode: on-barrier`) the last one wins, too. Headers are not kept with the value.
#[must_use = "a group alone does nothing: follow it with `.count()`, `.reduce(..)` or `.aggregate(..)`"]
pub struct Grouped<K, V, C, VC = DefaultCodec> {
    draft: Shared,
    at: Outlet,
    label: String,
    key_codec: String,
    types: Types<(K, V, C, VC)>,
}

impl<K, V, C, VC> std::fmt::Debug for Grouped<K, V, C, VC> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Grouped({})", self.label)
    }
}

impl<K, V, C, VC> Grouped<K, V, C, VC> {
    pub(crate) fn place(&self) -> Place {
        Place::of(&self.draft)
    }

    pub(crate) fn new(draft: Shared, at: Outlet, key_codec: String) -> Self {
        let label = draft.borrow().label(at.node);
        Self { draft, at, label, key_codec, types: PhantomData }
    }

    /// Names the codec that the aggregate's values are stored with; JSON when none is named.
    pub fn stored_as<D>(self) -> Grouped<K, V, C, D> {
        Grouped { draft: self.draft, at: self.at, label: self.label, key_codec: self.key_codec, types: PhantomData }
    }
}

impl<K: Send + 'static, V: 'static, C: 'static, VC> Grouped<K, V, C, VC> {
    fn fold<A, D, F>(self, step: &'static str, fold: F) -> Table<K, A, C>
    where
        A: Clone + Send + 'static,
        D: Encode<A> + Decode<A>,
        F: Fold<K, V, A>,
    {
        let fold = Arc::new(fold);
        let node = {
            let mut draft = self.draft.borrow_mut();
            let node = draft.add(NewNode {
                name: Name::Step(self.label, step),
                kind: NodeKind::Aggregate,
                parents: vec![self.at],
                branches: 1,
                ends: true,
                factory: Arc::new(move |b| {
                    let store = b.node.stores[0];
                    Ok(Box::new(AggregateOperator::<K, V, A, D, F>::new(
                        &b.node.name,
                        store,
                        b.stores[store.0 as usize].clone(),
                        fold.clone(),
                        b.children.first().copied(),
                        b.on_barrier,
                    )))
                }),
            });
            draft.add_store(
                node,
                "",
                StoreKind::TimestampedKeyValue,
                self.key_codec,
                Some(ValueDecl::of::<A, D>()),
                false,
            );
            node
        };
        Table::at(self.draft, Outlet { node, branch: 0 })
    }

    /// Counts the records of each key. Counts are stored as 8-byte big-endian integers.
    pub fn count(self) -> Table<K, u64, C> {
        self.fold::<u64, Be, _>("count", Count)
    }

    /// Combines the values of each key: `f` gets the result so far and the next value.
    pub fn reduce<F: Fn(V, V) -> V + Send + Sync + 'static>(self, f: F) -> Table<K, V, C>
    where
        V: Clone + Send,
        VC: Encode<V> + Decode<V>,
    {
        self.fold::<V, VC, _>("reduce", Reduce(f))
    }

    /// Adds the values of each key to an aggregate that `init` makes.
    pub fn aggregate<A, I, F>(self, init: I, add: F) -> Table<K, A, C>
    where
        A: Clone + Send + 'static,
        VC: Encode<A> + Decode<A>,
        I: Fn() -> A + Send + Sync + 'static,
        F: Fn(&mut A, &K, V) + Send + Sync + 'static,
    {
        self.fold::<A, VC, _>("aggregate", Aggregate { init, add })
    }
}
