use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Child, CurrentKey, Field, LaneCx, Operator, StateOperator, take};
use crate::codec::{Decode, Encode};
use crate::engine::tag::Path;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{StoreId, SubTopologyId};
use crate::record::{Headers, Record};
use crate::store::ByteStore;
use crate::store::overlay::{KeyBytes, Slot};
use crate::store::values::Values;
use crate::time::Timestamp;

/// How a value joins an aggregate.
pub(crate) trait Fold<K, V, A>: Send + Sync + 'static {
    /// Changes the aggregate; `None`: the key has none yet.
    fn fold(&self, aggregate: &mut Option<A>, key: &K, value: V);
}

/// Counts.
pub(crate) struct Count;

impl<K, V> Fold<K, V, u64> for Count {
    fn fold(&self, aggregate: &mut Option<u64>, _key: &K, _value: V) {
        *aggregate.get_or_insert(0) += 1;
    }
}

/// Combines values.
pub(crate) struct Reduce<F>(pub(crate) F);

impl<K, V, F: Fn(V, V) -> V + Send + Sync + 'static> Fold<K, V, V> for Reduce<F> {
    fn fold(&self, aggregate: &mut Option<V>, _key: &K, value: V) {
        *aggregate = Some(match aggregate.take() {
            None => value,
            Some(old) => (self.0)(old, value),
        });
    }
}

/// Adds values to an aggregate.
pub(crate) struct Aggregate<I, F> {
    pub(crate) init: I,
    pub(crate) add: F,
}

impl<K, V, A, I, F> Fold<K, V, A> for Aggregate<I, F>
where
    I: Fn() -> A + Send + Sync + 'static,
    F: Fn(&mut A, &K, V) + Send + Sync + 'static,
{
    fn fold(&self, aggregate: &mut Option<A>, key: &K, value: V) {
        (self.add)(aggregate.get_or_insert_with(&self.init), key, value);
    }
}

/// Keeps one aggregate per key and forwards each update, or at each barrier what has changed.
pub(crate) struct AggregateOperator<K, V, A, C, F> {
    /// The aggregates of the lane's keys, each with the largest timestamp that went into it.
    table: Values<A, C>,
    fold: Arc<F>,
    child: Option<Child>,
    /// Where updates are handed on at barriers: what waits for the next one.
    held: Option<Held<K>>,
    types: PhantomData<fn(K, V)>,
}

/// The keys that have changed since the last barrier.
struct Held<K> {
    changed: Vec<Change<K>>,
    /// By slot: one more than its place in `changed`; 0: it has not changed.
    places: Vec<u32>,
}

struct Change<K> {
    slot: Slot,
    bytes: KeyBytes,
    hash: u64,
    key: K,
    /// Those of the last record that changed it.
    headers: Headers,
}

impl<K> Held<K> {
    /// Slots are not used again before the epoch that has written them is applied, so one is one key here.
    fn note(&mut self, slot: Slot, current: &CurrentKey, key: K, headers: Headers) {
        let at = slot.index();
        if at >= self.places.len() {
            self.places.resize(at + 1, 0);
        }
        match self.places[at] {
            0 => {
                let bytes = KeyBytes::from_slice(&current.bytes);
                self.changed.push(Change { slot, bytes, hash: current.hash, key, headers });
                self.places[at] = self.changed.len() as u32;
            }
            n => self.changed[n as usize - 1].headers = headers,
        }
    }

    fn weight(&self) -> usize {
        self.changed.len() * (size_of::<Change<K>>() + size_of::<u32>())
    }

    /// What has changed, in the order of keys.
    fn take(&mut self) -> Vec<Change<K>> {
        let mut changed = std::mem::take(&mut self.changed);
        for c in &changed {
            self.places[c.slot.index()] = 0;
        }
        changed.sort_unstable_by(|a, b| a.bytes.cmp(&b.bytes));
        changed
    }
}

impl<K, V, A, C, F> AggregateOperator<K, V, A, C, F> {
    pub(crate) fn new(
        name: &str,
        store: StoreId,
        bytes: Arc<dyn ByteStore>,
        fold: Arc<F>,
        child: Option<Child>,
        on_barrier: bool,
    ) -> Self {
        Self {
            held: (on_barrier && child.is_some()).then(|| Held { changed: Vec::new(), places: Vec::new() }),
            table: Values::timestamped(format!("store {name}"), store, bytes),
            fold,
            child,
            types: PhantomData,
        }
    }
}

impl<K, V, A, C, F> Operator for AggregateOperator<K, V, A, C, F>
where
    K: Send + 'static,
    V: 'static,
    A: Clone + Send + 'static,
    C: Encode<A> + Decode<A>,
    F: Fold<K, V, A>,
{
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = take::<K, V>(record);
        let table = &mut self.table;
        let slot = table.entry(cx.key.hash, &cx.key.bytes, Timestamp::MIN)?;
        let timestamp =
            if table.overlay.value(slot).is_some() { timestamp.max(table.overlay.timestamp(slot)) } else { timestamp };
        let aggregate = table.overlay.write(slot, timestamp);
        self.fold.fold(aggregate, &key, value);
        if let Some(held) = &mut self.held {
            aggregate.take_if(|a| C::is_null(a));
            held.note(slot, &cx.key, key, headers);
            table.beside = held.weight();
            return Ok(());
        }
        // What the codec writes as null deletes the row, in the store and in its changelog.
        let new = match aggregate {
            Some(a) if C::is_null(a) => aggregate.take(),
            a => self.child.and(a.clone()),
        };
        match (self.child, new) {
            (Some(child), Some(value)) => cx.forward(child, Record { key, value, timestamp, headers }),
            _ => Ok(()),
        }
    }

    fn state(&mut self) -> Option<&mut dyn StateOperator> {
        Some(self)
    }
}

impl<K, V, A, C, F> StateOperator for AggregateOperator<K, V, A, C, F>
where
    K: Send + 'static,
    A: Clone + Send + 'static,
    C: Encode<A> + Decode<A>,
{
    fn fields(&mut self, visit: &mut dyn FnMut(&mut dyn Field)) {
        visit(&mut self.table);
    }

    fn fire(&mut self, _field: usize, _time: Timestamp, _cx: &mut LaneCx<'_>) -> Result<()> {
        Err(Error::new(ErrorKind::Internal, format!("{} has no timers, but one fired", self.table.place())))
    }

    fn emits_at_barriers(&self) -> bool {
        self.held.is_some()
    }

    fn barrier(&mut self, stage: SubTopologyId, place: u32, cx: &mut LaneCx<'_>) -> Result<()> {
        let (Some(held), Some(child)) = (&mut self.held, self.child) else { return Ok(()) };
        self.table.beside = 0;
        for Change { slot, bytes, hash, key, headers } in held.take() {
            // As with eager updates, what was deleted is not told.
            let Some(value) = self.table.overlay.value(slot).cloned() else { continue };
            let timestamp = self.table.overlay.timestamp(slot);
            cx.path = Path::on_barrier(stage, place, &bytes);
            cx.origin = None;
            cx.key.bytes.clear();
            cx.key.bytes.extend_from_slice(&bytes);
            (cx.key.hash, cx.key.present) = (hash, true);
            cx.forward(child, Record { key, value, timestamp, headers })?;
        }
        Ok(())
    }
}
