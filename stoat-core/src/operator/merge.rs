use std::any::Any;
use std::marker::PhantomData;

use super::{Child, LaneCx, Operator, take};
use crate::error::Result;

/// Several inputs of one sub-topology become one.
pub(crate) struct MergeOperator<K, V> {
    child: Child,
    types: PhantomData<fn(K, V)>,
}

impl<K, V> MergeOperator<K, V> {
    pub(crate) fn new(child: Child) -> Self {
        Self { child, types: PhantomData }
    }
}

impl<K: 'static, V: 'static> Operator for MergeOperator<K, V> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        cx.forward(self.child, take::<K, V>(record))
    }
}
