use std::fmt;
use std::marker::PhantomData;

use super::Processor;
use crate::error::{Error, Result};
use crate::record::{Headers, Record};
use crate::time::{Now, Timestamp, Watermark};
use crate::topology::lane_state::KeyChanged;

/// What a processor does with the key of the records that it forwards.
pub trait Mode<P: Processor>: 'static {
    /// The lane state behind the processor.
    type Lane<L>;
    /// The processor itself. What is asked of it by this name is not asked where it is no processor: one mistake, one error.
    type This;
    /// Whether the processor forwards nothing, so that nobody needs to consume its stream.
    const ENDS: bool;
    /// The key of what is forwarded without a key of its own.
    fn kept(key: P::InKey) -> Option<P::OutKey>;
}

/// `output = V`: the key is kept, the stream keeps its lane.
#[derive(Debug)]
pub struct Keep;

/// `output = (K, V)`: each forward names a key, the stream is [`KeyChanged`].
#[derive(Debug)]
pub struct Rekey;

/// No `output`: nothing is forwarded.
#[derive(Debug)]
pub struct End;

impl<K, P: Processor<InKey = K, OutKey = K>> Mode<P> for Keep {
    type Lane<L> = L;
    type This = P;
    const ENDS: bool = false;
    fn kept(key: K) -> Option<K> {
        Some(key)
    }
}

impl<P: Processor> Mode<P> for Rekey {
    type Lane<L> = KeyChanged;
    type This = P;
    const ENDS: bool = false;
    fn kept(_: P::InKey) -> Option<P::OutKey> {
        None
    }
}

impl<P: Processor> Mode<P> for End {
    type Lane<L> = L;
    type This = P;
    const ENDS: bool = true;
    fn kept(_: P::InKey) -> Option<P::OutKey> {
        None
    }
}

/// A timer that fires.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fired<K> {
    /// The key it was set for.
    pub key: K,
    /// The time it was set for.
    pub time: Timestamp,
}

impl<K> Fired<K> {
    /// For tests of handlers by hand.
    pub fn new(key: K, time: Timestamp) -> Self {
        Self { key, time }
    }
}

/// A record that a handler forwarded, before it has returned.
pub struct Forwarded<P: Processor> {
    /// `None`: the current key.
    pub(crate) key: Option<P::OutKey>,
    pub(crate) value: P::OutValue,
    pub(crate) timestamp: Timestamp,
    pub(crate) headers: Headers,
}

/// What a handler may do beside using its fields: forward records, ask for the time.
///
/// What is forwarded leaves when the handler has returned `Ok`.
pub struct Context<P: Processor, M = <P as Processor>::Mode> {
    pub(crate) forwards: Vec<Forwarded<P>>,
    pub(crate) timestamp: Timestamp,
    pub(crate) headers: Headers,
    pub(crate) now: Now,
    /// Only while a punctuator with `over` runs; elsewhere the record or the timer has the key.
    pub(crate) key: Option<P::InKey>,
    mode: PhantomData<fn() -> M>,
}

impl<P: Processor, M> Context<P, M> {
    pub(crate) fn new() -> Self {
        Self {
            forwards: Vec::new(),
            timestamp: Timestamp::MIN,
            headers: Headers::default(),
            now: Now { watermark: Timestamp::MIN, wall: Timestamp::MIN },
            key: None,
            mode: PhantomData,
        }
    }

    /// The time of the record or timer that is handled: what is forwarded gets it, unless it names another.
    pub fn timestamp(&self) -> Timestamp {
        self.timestamp
    }

    /// The headers of the record that is handled; what is forwarded gets them.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The headers of the record that is handled, to change what is forwarded from here on.
    pub fn headers_mut(&mut self) -> &mut Headers {
        &mut self.headers
    }

    /// The watermark: no earlier record is expected.
    pub fn watermark(&self) -> Watermark {
        self.now.watermark
    }

    /// Whether the record that is handled is older than the watermark.
    pub fn is_late(&self) -> bool {
        self.timestamp < self.now.watermark
    }

    /// The wall clock of the last tick. (Reading a clock in a handler would give another result on each run.)
    pub fn wall_clock(&self) -> Timestamp {
        self.now.wall
    }

    /// The key that a punctuator with `over` runs for.
    ///
    /// # Errors
    /// In other handlers: there the record or the timer has the key.
    pub fn key(&self) -> Result<&P::InKey> {
        self.key.as_ref().ok_or_else(|| {
            Error::handler(format!(
                "`cx.key()` of `{}` is for punctuators with `over`: use the key of the record or of the timer",
                P::NAME
            ))
        })
    }

    fn push(&mut self, key: Option<P::OutKey>, value: P::OutValue, timestamp: Timestamp) {
        self.forwards.push(Forwarded { key, value, timestamp, headers: self.headers.clone() });
    }

    /// For generated code: the context that a punctuator without `over` sees, where it is `async`.
    #[doc(hidden)]
    pub fn without_key(&self) -> Context<P, End> {
        Context {
            forwards: Vec::new(),
            timestamp: self.timestamp,
            headers: Headers::default(),
            now: self.now,
            key: None,
            mode: PhantomData,
        }
    }

    /// For generated code: the same context as a punctuator without `over` sees it.
    #[doc(hidden)]
    pub fn ended<R>(&mut self, call: impl FnOnce(&mut Context<P, End>) -> R) -> R {
        call(&mut self.without_key())
    }
}

#[rustfmt::skip] // The comment behind a signature is part of what rustc shows.
impl<P: Processor> Context<P, Keep> {
    /// Forwards a value under the current key, with the time of the record or timer that is handled.
    ///
    /// # Errors
    /// None today.
    pub fn forward(&mut self, value: P::OutValue) -> Result<()> { // `output = V` keeps the key
        self.push(None, value, self.timestamp);
        Ok(())
    }

    /// Forwards a value under the current key, with a time of its own.
    ///
    /// # Errors
    /// None today.
    pub fn forward_at(&mut self, timestamp: Timestamp, value: P::OutValue) -> Result<()> { // `output = V` keeps the key
        self.push(None, value, timestamp);
        Ok(())
    }
}

#[rustfmt::skip] // The comment behind a signature is part of what rustc shows.
impl<P: Processor> Context<P, Rekey> {
    /// Forwards a value under a key, with the time of the record or timer that is handled.
    ///
    /// # Errors
    /// None today.
    pub fn forward(&mut self, key: P::OutKey, value: P::OutValue) -> Result<()> { // `output = (K, V)` names the key
        self.push(Some(key), value, self.timestamp);
        Ok(())
    }

    /// Forwards a value under a key, with a time of its own.
    ///
    /// # Errors
    /// None today.
    pub fn forward_at(&mut self, timestamp: Timestamp, key: P::OutKey, value: P::OutValue) -> Result<()> {
        self.push(Some(key), value, timestamp);
        Ok(())
    }
}

/// Owns the message of [`Context::forward`] where the processor has no output.
#[diagnostic::on_unimplemented(
    message = "`{P}` forwards values of type `{Self}` and declares no output [S423]",
    label = "forwards",
    note = "declare it: `#[processor(input = .., output = {Self})]`"
)]
pub trait Forwards<P, M> {
    /// Where it forwards from. What is asked of it by this name is not asked without an output: one mistake, one error.
    type Here;
}
impl<P, V> Forwards<P, Keep> for V {
    type Here = End;
}
impl<P, V> Forwards<P, Rekey> for V {
    type Here = End;
}

/// Owns the message of [`Context::forward`] where there is no key; nothing implements it.
#[diagnostic::on_unimplemented(
    message = "nothing can be forwarded here: this punctuator of `{P}` has no `over`, so there is no key [S423]",
    label = "forwards",
    note = "let it run once per key of a field: `#[punctuate(.., over = field)]`"
)]
pub trait HasKey<P> {}

impl<P: Processor> Context<P, End> {
    /// Does not compile, and says why: nothing can be forwarded from here.
    ///
    /// # Errors
    /// None: it cannot be called.
    pub fn forward<V>(&mut self, _value: V) -> Result<()>
    where
        V: Forwards<P, P::Mode>,
        V::Here: HasKey<P>,
    {
        unreachable!("nothing implements `HasKey`")
    }
}

impl<P: Processor, M> fmt::Debug for Context<P, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("processor", &P::NAME)
            .field("timestamp", &self.timestamp)
            .field("forwards", &self.forwards.len())
            .finish_non_exhaustive()
    }
}

impl<P: Processor> Forwarded<P> {
    /// The record, with `kept` as its key where it names none.
    pub(crate) fn into_record(
        self,
        kept: impl FnOnce() -> Result<P::OutKey>,
    ) -> Result<Record<P::OutKey, P::OutValue>> {
        Ok(Record {
            key: match self.key {
                Some(k) => k,
                None => kept()?,
            },
            value: self.value,
            timestamp: self.timestamp,
            headers: self.headers,
        })
    }
}
