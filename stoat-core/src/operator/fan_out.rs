use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Child, LaneCx, Operator, take};
use crate::error::Result;
use crate::record::Record;

/// Gives each record to all children, in the order of the branches.
pub(crate) struct FanOutOperator<K, V> {
    children: Vec<Child>,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> FanOutOperator<K, V> {
    pub(crate) fn new(children: Vec<Child>) -> Self {
        Self { children, types: PhantomData }
    }
}

impl<K: Clone + 'static, V: Clone + 'static> Operator for FanOutOperator<K, V> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let record: Record<K, V> = take(record);
        let Some((last, others)) = self.children.split_last() else {
            return Ok(());
        };
        for (i, child) in others.iter().enumerate() {
            cx.forward_nth(*child, i as u32, record.clone())?;
        }
        cx.forward_nth(*last, others.len() as u32, record)
    }
}

/// One branch of a [`split`](crate::topology::Stream::split): which records it takes.
pub struct Branch<K, V>(pub(crate) Arc<Predicate<K, V>>);

/// A condition on a record.
pub(crate) type Predicate<K, V> = dyn Fn(&K, &V) -> bool + Send + Sync;

impl<K, V> Branch<K, V> {
    /// Takes the records that this is true for and no earlier branch took.
    pub fn when(predicate: impl Fn(&K, &V) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(predicate))
    }

    /// Takes all records that no earlier branch took.
    pub fn rest() -> Self {
        Self(Arc::new(|_, _| true))
    }
}

impl<K, V> std::fmt::Debug for Branch<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Branch")
    }
}

/// Gives records that are older than the watermark to the second child, the others to the first.
pub(crate) struct LateOperator<K, V> {
    fresh: Child,
    late: Child,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> LateOperator<K, V> {
    pub(crate) fn new(fresh: Child, late: Child) -> Self {
        Self { fresh, late, types: PhantomData }
    }
}

impl<K: 'static, V: 'static> Operator for LateOperator<K, V> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let record: Record<K, V> = take(record);
        let child = if record.timestamp < cx.now.watermark { self.late } else { self.fresh };
        cx.forward(child, record)
    }
}

/// Gives each record to the first child whose branch takes it.
pub(crate) struct SplitOperator<K, V> {
    branches: Vec<(Arc<Predicate<K, V>>, Child)>,
}

impl<K, V> SplitOperator<K, V> {
    pub(crate) fn new(branches: Vec<(Arc<Predicate<K, V>>, Child)>) -> Self {
        Self { branches }
    }
}

impl<K: 'static, V: 'static> Operator for SplitOperator<K, V> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        let record: Record<K, V> = take(record);
        match self.branches.iter().find(|(p, _)| p(&record.key, &record.value)) {
            Some((_, child)) => cx.forward(*child, record),
            None => Ok(()),
        }
    }
}
