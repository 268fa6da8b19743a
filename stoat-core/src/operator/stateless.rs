//! Stateless steps, fused: a chain of them is one operator, compiled as one function.
//!
//! A [`Pipe`] describes a chain from its first input to its last output; [`Pipe::attach`] builds it backwards around what
//! comes next. All links are named structs: closures that call closures cost the compiler minutes.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

use super::{Child, LaneCx, Operator, take};
use crate::error::Result;
use crate::gate::{Dropped, Gate};
use crate::record::Record;

/// Takes a record of known types.
pub trait Push<K, V>: Send + 'static {
    /// Takes it.
    ///
    /// # Errors
    /// What comes behind it returns.
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()>;
}

/// A chain of stateless steps that ends in records of keys `K` and values `V`.
pub trait Pipe<K, V>: Send + Sync + 'static {
    /// Whether there is no step.
    const EMPTY: bool;

    /// Builds the chain with `next` behind it.
    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator>;
}

/// The empty chain: the stream comes right out of a node.
pub struct Boxed<K, V>(PhantomData<fn(K, V)>);

impl<K, V> Boxed<K, V> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<K, V> std::fmt::Debug for Boxed<K, V> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Boxed")
    }
}

impl<K: 'static, V: 'static> Pipe<K, V> for Boxed<K, V> {
    const EMPTY: bool = true;

    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator> {
        Box::new(Fused { next, types: PhantomData })
    }
}

/// A whole chain.
struct Fused<K, V, N> {
    next: N,
    types: PhantomData<fn(K, V)>,
}

impl<K: 'static, V: 'static, N: Push<K, V>> Operator for Fused<K, V, N> {
    fn push(&mut self, record: &mut dyn Any, cx: &mut LaneCx<'_>) -> Result<()> {
        self.next.push(take(record), cx)
    }
}

/// The end of a chain that goes on in a child.
pub(crate) struct ToChild(pub(crate) Child);

impl<K: 'static, V: 'static> Push<K, V> for ToChild {
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        cx.forward(self.0, record)
    }
}

/// Declares a step: its part of the description (`$step`) and its link of the running chain (`$link`).
macro_rules! step {
    ($(#[$doc:meta])* $step:ident, $link:ident, <$($t:ident),*>) => {
        $(#[$doc])*
        pub struct $step<P, F, $($t),*> {
            up: P,
            f: Arc<F>,
            types: PhantomData<fn($($t),*)>,
        }

        impl<P, F, $($t),*> $step<P, F, $($t),*> {
            pub(crate) fn new(up: P, f: F) -> Self {
                Self { up, f: Arc::new(f), types: PhantomData }
            }
        }

        impl<P, F, $($t),*> std::fmt::Debug for $step<P, F, $($t),*> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(stringify!($step))
            }
        }

        struct $link<N, F, $($t),*> {
            next: N,
            f: Arc<F>,
            types: PhantomData<fn($($t),*)>,
        }

        impl<N, F, $($t),*> $link<N, F, $($t),*> {
            fn new(next: N, f: &Arc<F>) -> Self {
                Self { next, f: f.clone(), types: PhantomData }
            }
        }
    };
}

step!(
    /// Changes values.
    MapValues, MapValuesLink, <K, V>
);

impl<P, F, K: 'static, V: 'static, W: 'static> Pipe<K, W> for MapValues<P, F, K, V>
where
    P: Pipe<K, V>,
    F: Fn(V) -> W + Send + Sync + 'static,
{
    const EMPTY: bool = false;

    fn attach<N: Push<K, W>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(MapValuesLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static, W: 'static> Push<K, V> for MapValuesLink<N, F, K, V>
where
    N: Push<K, W>,
    F: Fn(V) -> W + Send + Sync + 'static,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = record;
        let value = (self.f)(value);
        self.next.push(Record { key, value, timestamp, headers }, cx)
    }
}

step!(
    /// Changes values, with a function that may fail.
    TryMapValues, TryMapValuesLink, <K, V>
);

impl<P, F, K: 'static, V: 'static, W: 'static> Pipe<K, W> for TryMapValues<P, F, K, V>
where
    P: Pipe<K, V>,
    F: Fn(V) -> Result<W> + Send + Sync + 'static,
{
    const EMPTY: bool = false;

    fn attach<N: Push<K, W>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(TryMapValuesLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static, W: 'static> Push<K, V> for TryMapValuesLink<N, F, K, V>
where
    N: Push<K, W>,
    F: Fn(V) -> Result<W> + Send + Sync + 'static,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = record;
        match (self.f)(value) {
            Ok(value) => self.next.push(Record { key, value, timestamp, headers }, cx),
            Err(e) => cx.gate(Gate::Process, "try_map_values", e),
        }
    }
}

step!(
    /// Keeps some records.
    Filter, FilterLink, <K, V>
);

impl<P, F, K: 'static, V: 'static> Pipe<K, V> for Filter<P, F, K, V>
where
    P: Pipe<K, V>,
    F: Fn(&K, &V) -> bool + Send + Sync + 'static,
{
    const EMPTY: bool = false;

    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(FilterLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static> Push<K, V> for FilterLink<N, F, K, V>
where
    N: Push<K, V>,
    F: Fn(&K, &V) -> bool + Send + Sync + 'static,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        if (self.f)(&record.key, &record.value) { self.next.push(record, cx) } else { Ok(()) }
    }
}

step!(
    /// Drops some records.
    FilterNot, FilterNotLink, <K, V>
);

impl<P, F, K: 'static, V: 'static> Pipe<K, V> for FilterNot<P, F, K, V>
where
    P: Pipe<K, V>,
    F: Fn(&K, &V) -> bool + Send + Sync + 'static,
{
    const EMPTY: bool = false;

    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(FilterNotLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static> Push<K, V> for FilterNotLink<N, F, K, V>
where
    N: Push<K, V>,
    F: Fn(&K, &V) -> bool + Send + Sync + 'static,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        if (self.f)(&record.key, &record.value) { Ok(()) } else { self.next.push(record, cx) }
    }
}

step!(
    /// Looks at records.
    Peek, PeekLink, <K, V>
);

impl<P, F, K: 'static, V: 'static> Pipe<K, V> for Peek<P, F, K, V>
where
    P: Pipe<K, V>,
    F: Fn(&K, &V) + Send + Sync + 'static,
{
    const EMPTY: bool = false;

    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(PeekLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static> Push<K, V> for PeekLink<N, F, K, V>
where
    N: Push<K, V>,
    F: Fn(&K, &V) + Send + Sync + 'static,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        (self.f)(&record.key, &record.value);
        self.next.push(record, cx)
    }
}

step!(
    /// Changes keys.
    SelectKey, SelectKeyLink, <K, V>
);

impl<P, F, K: 'static, V: 'static, J: 'static> Pipe<J, V> for SelectKey<P, F, K, V>
where
    P: Pipe<K, V>,
    F: Fn(&K, &V) -> J + Send + Sync + 'static,
{
    const EMPTY: bool = false;

    fn attach<N: Push<J, V>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(SelectKeyLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static, J: 'static> Push<K, V> for SelectKeyLink<N, F, K, V>
where
    N: Push<J, V>,
    F: Fn(&K, &V) -> J + Send + Sync + 'static,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        let key = (self.f)(&record.key, &record.value);
        self.next.push(record.with_key(key), cx)
    }
}

step!(
    /// Changes keys and values.
    Map, MapLink, <K, V>
);

impl<P, F, K: 'static, V: 'static, J: 'static, W: 'static> Pipe<J, W> for Map<P, F, K, V>
where
    P: Pipe<K, V>,
    F: Fn(K, V) -> (J, W) + Send + Sync + 'static,
{
    const EMPTY: bool = false;

    fn attach<N: Push<J, W>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(MapLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static, J: 'static, W: 'static> Push<K, V> for MapLink<N, F, K, V>
where
    N: Push<J, W>,
    F: Fn(K, V) -> (J, W) + Send + Sync + 'static,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = record;
        let (key, value) = (self.f)(key, value);
        self.next.push(Record { key, value, timestamp, headers }, cx)
    }
}

step!(
    /// Makes several keys and values of one.
    FlatMap, FlatMapLink, <K, V, I>
);

impl<P, F, K: 'static, V: 'static, I: 'static, J: 'static, W: 'static> Pipe<J, W> for FlatMap<P, F, K, V, I>
where
    P: Pipe<K, V>,
    F: Fn(K, V) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = (J, W)>,
{
    const EMPTY: bool = false;

    fn attach<N: Push<J, W>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(FlatMapLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static, I: 'static, J: 'static, W: 'static> Push<K, V> for FlatMapLink<N, F, K, V, I>
where
    N: Push<J, W>,
    F: Fn(K, V) -> I + Send + Sync + 'static,
    I: IntoIterator<Item = (J, W)>,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = record;
        for (i, (key, value)) in (self.f)(key, value).into_iter().enumerate() {
            let headers = headers.clone();
            let len = cx.path.descend(i as u32);
            let result = self.next.push(Record { key, value, timestamp, headers }, cx);
            cx.path.truncate(len);
            result?;
        }
        Ok(())
    }
}

step!(
    /// Makes several values of one.
    FlatMapValues, FlatMapValuesLink, <K, V, I>
);

impl<P, F, K: 'static, V: 'static, I: 'static, W: 'static> Pipe<K, W> for FlatMapValues<P, F, K, V, I>
where
    P: Pipe<K, V>,
    F: Fn(V) -> I + Send + Sync + 'static,
    K: Clone,
    I: IntoIterator<Item = W>,
{
    const EMPTY: bool = false;

    fn attach<N: Push<K, W>>(&self, next: N) -> Box<dyn Operator> {
        self.up.attach(FlatMapValuesLink::new(next, &self.f))
    }
}

impl<N, F, K: 'static, V: 'static, I: 'static, W: 'static> Push<K, V> for FlatMapValuesLink<N, F, K, V, I>
where
    N: Push<K, W>,
    F: Fn(V) -> I + Send + Sync + 'static,
    K: Clone,
    I: IntoIterator<Item = W>,
{
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = record;
        for (i, value) in (self.f)(value).into_iter().enumerate() {
            let (key, headers) = (key.clone(), headers.clone());
            let len = cx.path.descend(i as u32);
            let result = self.next.push(Record { key, value, timestamp, headers }, cx);
            cx.path.truncate(len);
            result?;
        }
        Ok(())
    }
}

/// Drops records without a key.
pub struct WithKey<P>(P);

impl<P> WithKey<P> {
    pub(crate) fn new(up: P) -> Self {
        Self(up)
    }
}

impl<P> std::fmt::Debug for WithKey<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WithKey")
    }
}

struct WithKeyLink<N>(N);

impl<P: Pipe<Option<K>, V>, K: 'static, V: 'static> Pipe<K, V> for WithKey<P> {
    const EMPTY: bool = false;

    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator> {
        self.0.attach(WithKeyLink(next))
    }
}

impl<N: Push<K, V>, K: 'static, V: 'static> Push<Option<K>, V> for WithKeyLink<N> {
    #[inline]
    fn push(&mut self, record: Record<Option<K>, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = record;
        match key {
            None => cx.dropped(Dropped::NullKey),
            Some(key) => self.0.push(Record { key, value, timestamp, headers }, cx),
        }
    }
}

/// See [`Stream::with_value`](crate::topology::Stream::with_value).
pub struct WithValue<P>(P);

impl<P> WithValue<P> {
    pub(crate) fn new(up: P) -> Self {
        Self(up)
    }
}

impl<P> std::fmt::Debug for WithValue<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WithValue")
    }
}

struct WithValueLink<N>(N);

impl<P: Pipe<K, Option<V>>, K: 'static, V: 'static> Pipe<K, V> for WithValue<P> {
    const EMPTY: bool = false;

    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator> {
        self.0.attach(WithValueLink(next))
    }
}

impl<N: Push<K, V>, K: 'static, V: 'static> Push<K, Option<V>> for WithValueLink<N> {
    #[inline]
    fn push(&mut self, record: Record<K, Option<V>>, cx: &mut LaneCx<'_>) -> Result<()> {
        let Record { key, value, timestamp, headers } = record;
        match value {
            None => cx.dropped(Dropped::NullValue),
            Some(value) => self.0.push(Record { key, value, timestamp, headers }, cx),
        }
    }
}

/// See [`Stream::drop_late`](crate::topology::Stream::drop_late).
pub struct DropLate<P>(P);

impl<P> DropLate<P> {
    pub(crate) fn new(up: P) -> Self {
        Self(up)
    }
}

impl<P> std::fmt::Debug for DropLate<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DropLate")
    }
}

struct DropLateLink<N>(N);

impl<P: Pipe<K, V>, K: 'static, V: 'static> Pipe<K, V> for DropLate<P> {
    const EMPTY: bool = false;

    fn attach<N: Push<K, V>>(&self, next: N) -> Box<dyn Operator> {
        self.0.attach(DropLateLink(next))
    }
}

impl<N: Push<K, V>, K: 'static, V: 'static> Push<K, V> for DropLateLink<N> {
    #[inline]
    fn push(&mut self, record: Record<K, V>, cx: &mut LaneCx<'_>) -> Result<()> {
        if record.timestamp < cx.now.watermark { cx.dropped(Dropped::Late) } else { self.0.push(record, cx) }
    }
}

/// The end of a chain in user code.
pub(crate) struct ForEachEnd<F>(pub(crate) Arc<F>);

impl<K: 'static, V: 'static, F: Fn(&K, &V) + Send + Sync + 'static> Push<K, V> for ForEachEnd<F> {
    #[inline]
    fn push(&mut self, record: Record<K, V>, _cx: &mut LaneCx<'_>) -> Result<()> {
        (self.0)(&record.key, &record.value);
        Ok(())
    }
}
