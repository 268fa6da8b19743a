//! Processors: the user's own operators.
//!
//! A processor is a struct whose fields own its state and timers ([`Processor`], written by `#[processor]`), with handlers
//! ([`Handlers`], written by `#[handlers]`).

mod call;
mod context;
mod field;

pub use call::{Call, CallFuture};
pub use context::{Context, End, Fired, Forwarded, Keep, Mode, Rekey};
pub use field::{
    Entered, FieldBuild, FieldDecl, FieldOf, FieldOptions, FieldSeed, FieldVisitor, StateField, StoreKey, TimerField,
    TimerKey,
};

use crate::error::{Error, Result};
use crate::operator::Punctuator;
use crate::record::Record;

/// A processor's types and fields. Written by `#[processor(input = (K, V), output = W)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a processor [S524]",
    label = "not a processor",
    note = "write `#[processor(input = (K, V), output = W)]` on `{Self}`"
)]
pub trait Processor: Sized + Send + 'static {
    /// The key type of the records it takes.
    type InKey: Clone + Send + 'static;
    /// The value type of the records it takes.
    type InValue: Send + 'static;
    /// The key type of the records it forwards; [`Processor::InKey`] where the key is kept.
    type OutKey: Send + 'static;
    /// The value type of the records it forwards; [`Infallible`](std::convert::Infallible) where it forwards none.
    type OutValue: Send + 'static;
    /// [`Keep`], [`Rekey`] or [`End`].
    type Mode: Mode<Self>;
    /// The name, for nodes and messages.
    const NAME: &'static str;
    /// The fields that own state or timers, in the order of declaration.
    const FIELDS: &'static [FieldDecl];

    /// Visits the fields of [`Processor::FIELDS`] in this order.
    fn visit_fields<V: FieldVisitor<Self>>(&mut self, visitor: &mut V);
}

/// A processor's handlers. Written by `#[handlers]` on its impl.
#[diagnostic::on_unimplemented(
    message = "processor `{Self}` has no handlers [S324]",
    label = "no handlers",
    note = "write `#[handlers] impl {Self} {{ #[process] fn on_record(..) {{ .. }} }}`"
)]
pub trait Handlers: Processor {
    /// The names of the timer fields that have a handler.
    const ON_TIMER: &'static [&'static str];
    /// The punctuators, in the order of declaration.
    const PUNCTUATORS: &'static [Punctuator] = &[];
    /// Whether a handler is an `async fn`: then all calls go through [`Handlers::call`], and the processor begins a
    /// sub-topology, so that a lane that waits does so at its entry.
    const ASYNC: bool = false;

    /// Takes a record.
    ///
    /// # Errors
    /// What the user's handler returns.
    fn process(&mut self, record: Record<Self::InKey, Self::InValue>, cx: &mut Context<Self>) -> Result<()>;

    /// Takes a timer of the field number `field` of [`Processor::FIELDS`].
    ///
    /// # Errors
    /// What the user's handler returns.
    fn fire(&mut self, field: usize, fired: Fired<Self::InKey>, cx: &mut Context<Self>) -> Result<()>;

    /// Runs the punctuator number `which` of [`Handlers::PUNCTUATORS`].
    ///
    /// # Errors
    /// What the user's handler returns.
    fn punctuate(&mut self, which: usize, cx: &mut Context<Self>) -> Result<()> {
        let _ = cx;
        Err(Error::new(crate::ErrorKind::Internal, format!("`{}` has no punctuator number {which}", Self::NAME)))
    }

    /// Runs a handler that may wait.
    fn call<'a>(&'a mut self, call: Call<Self>, cx: &'a mut Context<Self>) -> CallFuture<'a> {
        Box::pin(std::future::ready(match call {
            Call::Record(record) => self.process(record, cx),
            Call::Fired(field, fired) => self.fire(field, fired, cx),
            Call::Punctuate(which) => self.punctuate(which, cx),
        }))
    }
}

/// Whether a processor's fields fit the lane state `L` of a stream with keys `K`. Written by `#[processor]`, with one
/// where-clause `L: FitsField<Self, FieldType>` per field.
#[diagnostic::on_unimplemented(message = "`{Self}` does not fit the lanes of this stream")]
pub trait FitsLane<K, L>: Handlers {}

/// A processor without fields of configuration: `process::<P>()` can make it. Written by `#[processor]` where all fields
/// are states, timers or `#[local]`. (Where they are not, it holds for no `L`, and a message of its own says which field needs
/// a value.)
#[diagnostic::on_unimplemented(
    message = "`{Self}` has fields of its own, so it needs their values [S525]",
    label = "needs configuration",
    note = "call `.process_with(move || {Self}::init(..))` with the values, in the order of the fields"
)]
pub trait Unconfigured<L = ()>: Processor {
    /// Makes one lane's instance.
    fn init() -> Init<Self>;
}

/// Makes one lane's instance of a processor: what `P::init(..)` returns.
pub struct Init<P> {
    make: Box<dyn FnOnce(&mut FieldBuild<'_>) -> P + Send>,
}

impl<P> Init<P> {
    /// For generated code.
    #[doc(hidden)]
    pub fn new(make: impl FnOnce(&mut FieldBuild<'_>) -> P + Send + 'static) -> Self {
        Self { make: Box::new(make) }
    }

    pub(crate) fn make(self, build: &mut FieldBuild<'_>) -> P {
        (self.make)(build)
    }
}

impl<P> std::fmt::Debug for Init<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Init")
    }
}

/// An argument of a handler has the type that the processor gives it.
#[diagnostic::on_unimplemented(
    message = "this handler of `{P}` takes `{Self}`, but it is given `{Got}` [S420]",
    label = "expected `{Got}`",
    note = "what a handler is given follows from `input = (K, V)` in `#[processor]`: a `Record<K, V>`, or the `Fired<K>` of a timer"
)]
pub trait HandlerArg<P, Got>: Sized {
    /// By value.
    fn from_given(got: Got) -> Self;
}
#[diagnostic::do_not_recommend]
impl<P, T> HandlerArg<P, T> for T {
    fn from_given(got: T) -> T {
        got
    }
}

/// The context of a handler is that of its processor.
#[diagnostic::on_unimplemented(
    message = "the context of a handler of `{P}` is another type here [S420]",
    label = "expected `&mut Context<Self>`",
    note = "write `cx: &mut Context<Self>`"
)]
pub trait HandlerContext<P, Got> {
    /// By unique reference.
    fn from_given_mut(got: &mut Got) -> &mut Self;
}
#[diagnostic::do_not_recommend]
impl<P, T> HandlerContext<P, T> for T {
    fn from_given_mut(got: &mut T) -> &mut T {
        got
    }
}

/// A handler returns `Result<()>`.
#[diagnostic::on_unimplemented(
    message = "a handler of `{P}` must return `Result<()>`, this one returns `{Self}` [S421]",
    label = "expected `Result<()>`",
    note = "write `-> Result<()>` with the `Result` of `stoat_core::prelude`, and end it with `Ok(())`"
)]
pub trait HandlerResult<P> {
    /// The result.
    ///
    /// # Errors
    /// What the handler returned.
    fn into_result(self) -> Result<()>;
}
impl<P> HandlerResult<P> for Result<()> {
    fn into_result(self) -> Result<()> {
        self
    }
}
