//! The only thing generated code may call, and what each macro must generate.
//!
//! `stoat_core` below is the path of the crate; `__private` is this module. Types of the user are emitted with the user's
//! spans. [`tests/typed_api.rs`](../../tests/typed_api.rs) has the whole program of DESIGN.md §1 expanded by hand; it is
//! the reference where this text is unclear.
//!
//! # What a type must fulfil
//! A key without a codec, or a value that its codec cannot take, would be an error wherever it is used. So generated code
//! writes [`Checked`]`<{ <Json as FieldCodec<Session>>::CHECKED }, Keyed<Session>>` for the type of the field (and likewise for the
//! key of a timer or store, for `InKey`, for the codecs of sources, sinks and keys): the error is there, once, on the user's type,
//! and what depends on it is silent. Below it is left out. What depends on a parameter cannot be asked so, and is not.
//!
//! # `#[derive(Key)]` with `#[key(codec = C)]`
//! ```text
//! impl stoat_core::key::Key for UserId { type Codec = stoat_core::codec::Utf8; }
//! impl stoat_core::key::KeyField for UserId {}
//! impl Encode<UserId> for Utf8 { .. }   // not for `Json`, which encodes whatever serde does: there nothing more
//! impl Decode<UserId> for Utf8 { .. }
//! ```
//! For `Utf8`, `Be` and `Bytes` the key is a struct of one field, whose type `T` the codec takes: both impls delegate,
//! `<C as Encode<T>>::encode(&value.0, out)` and `<C as Decode<T>>::decode(bytes).map(UserId)`. (`Utf8` is foreign to the
//! user's crate and `UserId` is local, so the impl is allowed.) For each field: `const _: fn() = || { __private::key_field::<T>() };`.
//! A codec of the user (`codec = Legacy`) gets no impl, only the check that comes with `type Codec`.
//!
//! # `#[source(topic = "clicks", key = K, value = V, ..)] struct Clicks;`
//! ```text
//! impl stoat_core::source::Source for Clicks {
//!     type Key = K;                               // as written, `Option<T>` too
//!     type Value = V;
//!     type KeyCodec = KC;                         // `key_codec = X`: X. Else `<K as Key>::Codec`
//!     type ValueCodec = VC;                       // `value_codec = X`: X. Else Json
//!     type Lane = stoat_core::topology::lane_state::Lane<KC>;   // with `decode_only`: DecodeOnly<KC>
//!     const TOPIC: &'static str = "clicks";
//!     const NAME: &'static str = "Clicks";
//!     fn watermark() -> WatermarkStrategy { .. }  // only where the attribute says something about it
//! }
//! ```
//! Where the key is written `Option<T>`: `Nullable<KC of T>` for both `KeyCodec` and `Lane`; a value `Option<T>` likewise.
//! `#[sink(..)]` the same with [`Sink`](crate::sink::Sink) (no `Lane`, no `watermark`).
//!
//! # `#[processor(input = (K, V), output = W)] struct P { .. }`
//! The struct is emitted with completed field types: `Timer` → `Timer<K>`, `Timers` → `Timers<K>`; with
//! `#[timer(foreign)]`: `Timer<K, <K as Key>::Codec, __private::Foreign>` (a codec that is written stays);
//! `#[state(codec = X)] Keyed<V>` → `Keyed<V, X>`; `#[store] KeyValueStore<K, V>` stays as written, with `codec = X` it gets
//! `X` as its third parameter. Attributes of fields are removed.
//! ```text
//! impl Processor for P {
//!     type InKey = K;              // where P is not generic: Checked<{ Input::<P>::TAKEN.checked::<K, V>() }, K>,
//!     type InValue = V;            // so that a handler of other records is one error, on the input; V likewise
//!     type OutKey = K;             // `output = (K2, V2)`: K2. Without `output`: K
//!     type OutValue = W;           // without `output`: core::convert::Infallible
//!     type Mode = __private::Keep; // `output = (K2, V2)`: Rekey. Without `output`: End
//!     const NAME: &'static str = "P";
//!     const FIELDS: &'static [FieldDecl] = &[  // marked fields only, in order; local and configuration fields are not here
//!         FieldDecl::of::<Keyed<Session>>("open", FieldOptions { name: None, clock: TimeDomain::Event }),
//!         FieldDecl::of::<Timer<K>>("idle", FieldOptions { name: Some("idle-2"), clock: TimeDomain::Wall }),
//!     ];
//!     fn visit_fields<F: FieldVisitor<Self>>(&mut self, visitor: &mut F) {
//!         visitor.visit(&mut self.open);       // the same fields in the same order; the span of each is its field's:
//!         visitor.visit(&mut self.idle);       // key types are checked here
//!     }
//! }
//! impl<__K, __L> FitsLane<__K, __L> for P      // generic over the key, so that a wrong key is one error
//! where
//!     P: Handlers,                             // only where P is generic; else leave it out
//!     __L: FitsField<P, Keyed<Session>>,       // one line per field of FIELDS, on the field's span
//!     __L: FitsField<P, Timer<K>>,
//! {}
//! impl P {
//!     pub(crate) fn init(limit: u64) -> Init<Self> {        // configuration fields in order; visibility of the struct
//!         Init::new(move |build| P { open: build.field(0), idle: build.field(1), limit, seen: Default::default() })
//!     }
//! }
//! impl Unconfigured for P { fn init() -> Init<Self> { P::init() } }   // only without configuration fields; with them
//! impl<__L: NeedsValues> Unconfigured<__L> for P { .. }               // a trait that nothing implements has the message
//! ```
//! Parameters of `init` need `Send + 'static`. `#[local]` fields are `Default::default()`, `#[local(expr)]` are `expr`.
//! Timers without a handler: a const assertion per timer field over `<P as Handlers>::ON_TIMER` with
//! [`contains`]. Duplicate names across processors are found by `#[topology]` (const) or `Topology::build`.
//!
//! # `#[handlers] impl P { .. }`
//! The impl is emitted unchanged (attributes removed, lints allowed), and:
//! ```text
//! impl Takes for P { type Pair = (K, V); }      // of the handler's `Record<K, V>`; not where P is generic
//! impl Handlers for P {
//!     const ON_TIMER: &'static [&'static str] = &["idle"];
//!     const PUNCTUATORS: &'static [Punctuator] = &[Punctuator {
//!         every: core::time::Duration::from_millis(10_000),
//!         domain: TimeDomain::Wall,                         // default: Event
//!         over: __private::over(<P as Processor>::FIELDS, "open"),   // without `over`: None
//!     }];
//!     fn process(&mut self, record: Record<Self::InKey, Self::InValue>, cx: &mut Context<Self>) -> Result<()> {
//!         __private::done::<Self, _>(P::on_click(
//!             self,
//!             __private::give::<Self, Record<K, V>, RecordTypeAsTheUserWroteIt>(record),
//!             __private::give_mut::<Self, Context<Self>, ContextTypeAsTheUserWroteIt>(cx),
//!         ))
//!     }
//!     fn fire(&mut self, field: usize, fired: Fired<Self::InKey>, cx: &mut Context<Self>) -> Result<()> {
//!         if field == const { __private::index(<P as Processor>::FIELDS, "idle") } {
//!             __private::is_timer(&self.idle);              // the span of the user's `idle`
//!             return __private::done::<Self, _>(P::close(self, give(fired), give_mut(cx)));
//!         }
//!         __private::no_handler::<Self>(field)
//!     }
//!     fn punctuate(&mut self, which: usize, cx: &mut Context<Self>) -> Result<()> {   // only with punctuators
//!         match which {
//!             0 => __private::done::<Self, _>(P::report(self, give_mut(cx))),          // with `over`
//!             1 => cx.ended(|cx| __private::done::<Self, _>(P::tick(self, cx))),       // without: `Context<Self, End>`
//!             _ => __private::no_handler::<Self>(which),
//!         }
//!     }
//! }
//! ```
//! A punctuator without `over` takes `&mut Context<Self, End>`; the macro rewrites a plain `Context<Self>` in its signature
//! to that, or says so. `over = f` names a `Keyed`, store or timer field; emit `let _ = &self.f;` on its span.
//! Where a handler is an `async fn`, `ASYNC` is true and `call` has all of them, each by `waits(handler, into_result)` or, for
//! those that do not wait, `ready(result)`; `process`, `fire` and `punctuate` only check types.
//!
//! # `#[topology] fn sessions(t: &mut Topology) { .. }`
//! The function is kept, each `let` is wrapped (it names the node and forgets the stateless steps), and a hidden struct
//! carries the rest, by an alias that has the function's name:
//! ```text
//! fn sessions(t: &mut Topology) {
//!     let clicks = __private::bind(t.source::<Clicks>(), "clicks");
//!     let [a, b] = __private::bind_each(clicks.fan_out(), ["a", "b"]);   // arrays from `fan_out` and `split`
//!     ..
//! }
//! #[doc(hidden)] #[allow(non_camel_case_types)] struct __topology_sessions {}
//! #[doc(hidden)] #[allow(non_camel_case_types)] type sessions = __topology_sessions;
//! impl TopologyFn for __topology_sessions {
//!     const NAME: &'static str = "sessions";
//!     const GRAPH: StaticGraph = StaticGraph { name: "sessions", nodes: &[..] };
//!     fn declare(t: &mut Topology) { sessions(t) }
//! }
//! ```
//! `build()` is provided by the trait. [`Bind`](crate::topology::Bind) is implemented for streams, tables, groups and `()`;
//! wrap only what is bound to a name.

pub use crate::codec::{Codec, Decode, Encode, Json, Nullable};
pub use crate::error::{Error, ErrorKind, Result};
pub use crate::key::{Key, KeyField};
pub use crate::operator::Punctuator;
pub use crate::processor::{
    Context, End, FieldBuild, FieldDecl, FieldOptions, FieldVisitor, Fired, FitsLane, Handlers, Init, Keep, Processor,
    Rekey, Unconfigured,
};
pub use crate::record::Record;
pub use crate::sink::Sink;
pub use crate::source::Source;
pub use crate::store::{KeyValueStore, Keyed};
pub use crate::time::{IntoTimestamp, TimeDomain, Timestamp, TimestampExtractor, WatermarkStrategy};
pub use crate::timer::{Foreign, Own, Timer, Timers};
pub use crate::topology::lane_state::{DecodeOnly, FitsField, KeyChanged, Lane};
pub use crate::topology::{Bind, StaticGraph, StaticNode, Stream, Table, Topology, TopologyFn, bind_each};

use crate::codec::CodecError;
use crate::processor::{CallFuture, HandlerArg, HandlerContext, HandlerResult, TimerField};
use crate::store::StoreKind;

/// Gives a handler its argument: `Given` is what it gets, `Want` the type that its user wrote.
pub fn give<P, Given, Want: HandlerArg<P, Given>>(given: Given) -> Want {
    Want::from_given(given)
}

/// As [`give`], by unique reference; the types stand without the reference.
pub fn give_mut<P, Given, Want: HandlerContext<P, Given>>(given: &mut Given) -> &mut Want {
    Want::from_given_mut(given)
}

/// Takes what a handler returned.
///
/// # Errors
/// What it returned.
pub fn done<P, R: HandlerResult<P>>(result: R) -> Result<()> {
    result.into_result()
}

/// Takes the time of a source's records from the records.
pub fn timestamps<S: Source, T: IntoTimestamp>(
    extract: impl Fn(&Record<S::Key, S::Value>) -> T + Send + Sync + 'static,
) -> TimestampExtractor {
    TimestampExtractor::of::<S, T>(extract)
}

/// A handler that may wait.
pub fn waits<'a, R: 'a>(
    handler: impl Future<Output = R> + Send + 'a,
    into_result: fn(R) -> Result<()>,
) -> CallFuture<'a> {
    Box::pin(async move { into_result(handler.await) })
}

/// A handler that does not wait, beside others that may.
pub fn ready<'a>(result: Result<()>) -> CallFuture<'a> {
    Box::pin(std::future::ready(result))
}

/// Names a `let`.
pub fn bind<S: Bind>(stream: S, name: &'static str) -> S::Bound {
    stream.bound_to(name)
}

/// Says that a field is a timer.
pub fn is_timer<T: TimerField>(_: &T) {}

/// Says that a type may stand in a key.
pub fn key_field<T: KeyField>() {}

pub(crate) const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

/// The place of a field; `usize::MAX` where there is none (another message says so).
pub const fn index(fields: &[FieldDecl], field: &str) -> usize {
    let mut i = 0;
    while i < fields.len() {
        if same(fields[i].field, field) {
            return i;
        }
        i += 1;
    }
    usize::MAX
}

/// As [`index`], for a punctuator's `over`.
pub const fn over(fields: &[FieldDecl], field: &str) -> Option<usize> {
    match index(fields, field) {
        usize::MAX => None,
        i => Some(i),
    }
}

/// Whether a name is among these.
pub const fn contains(names: &[&str], name: &str) -> bool {
    let mut i = 0;
    while i < names.len() {
        if same(names[i], name) {
            return true;
        }
        i += 1;
    }
    false
}

/// What `fire` and `punctuate` return for a number without a handler.
///
/// # Errors
/// Always.
pub fn no_handler<P: Processor>(number: usize) -> Result<()> {
    Err(Error::new(
        ErrorKind::Internal,
        format!("`{}` has no handler for timer or punctuator number {number}", P::NAME),
    ))
}

/// What `#[topology]` and `#[stoat_core::main(..)]` make of a topology.
pub fn app<T: TopologyFn>() -> crate::app::App {
    crate::app::App::new(T::NAME, T::declare)
}

/// What `#[stoat_core::main(..)]` runs: the topology `T`, which was made of the function.
pub fn main<F: FunctionOf<T>, T>(_: F) -> std::process::ExitCode {
    crate::app::main(F::app())
}

/// As [`main`], where the prelude is not in scope.
pub fn main_without_prelude<F: FunctionWithoutPrelude<T>, T>(_: F) -> std::process::ExitCode {
    crate::app::main(F::app())
}

/// As [`FunctionOf`].
#[diagnostic::on_unimplemented(
    message = "`use stoat_core::prelude::*;` is missing, which has `#[topology]` and what else stands in a topology [S603]",
    label = "not a topology",
    note = "write `use stoat_core::prelude::*;` at the top of this file, and `#[topology]` above `fn name(t: &mut Topology)`"
)]
pub trait FunctionWithoutPrelude<T> {
    /// As an application.
    fn app() -> crate::app::App;
}
#[diagnostic::do_not_recommend]
impl<F, T: TopologyFn> FunctionWithoutPrelude<T> for F {
    fn app() -> crate::app::App {
        app::<T>()
    }
}

/// The function that a topology was made of.
#[diagnostic::on_unimplemented(
    message = "this function is not a topology: it has no `#[topology]` [S603]",
    label = "not a topology",
    note = "write `#[topology]` above `fn name(t: &mut Topology)`"
)]
pub trait FunctionOf<T> {
    /// As an application.
    fn app() -> crate::app::App;
}
#[diagnostic::do_not_recommend]
impl<F, T: TopologyFn> FunctionOf<T> for F {
    fn app() -> crate::app::App {
        app::<T>()
    }
}

/// Ends a chain whose last step is a processor: fine where that forwards nothing.
pub fn ended<K, V: NothingForwarded, L, P>(stream: Stream<K, V, L, P>) {
    drop(stream);
}

/// The value type of a processor without `output`.
#[diagnostic::on_unimplemented(
    message = "nobody consumes the values of type `{Self}` that this processor forwards: end the chain with `.sink::<S>()`, `.for_each(..)` or `.discard()` [S529]",
    label = "its result is dropped"
)]
pub trait NothingForwarded {}
impl NothingForwarded for std::convert::Infallible {}

/// A codec that takes the one field of a derived key. Both of the derive's impls ask for it, so a wrong codec is one error.
#[diagnostic::on_unimplemented(
    message = "codec `{Self}` cannot encode and decode `{T}` [S209]",
    label = "the key is written as its one field",
    note = "use a codec that takes this type, such as `Json` for a type with `Serialize` and `Deserialize`"
)]
pub trait Codes<T> {
    /// Writes the field.
    ///
    /// # Errors
    /// As [`Encode::encode`].
    fn encode_field(field: &T, out: &mut Vec<u8>) -> std::result::Result<(), CodecError>;

    /// Reads the field.
    ///
    /// # Errors
    /// As [`Decode::decode`].
    fn decode_field(bytes: &[u8]) -> std::result::Result<T, CodecError>;
}
#[diagnostic::do_not_recommend]
impl<T, C: Encode<T> + Decode<T>> Codes<T> for C {
    fn encode_field(field: &T, out: &mut Vec<u8>) -> std::result::Result<(), CodecError> {
        C::encode(field, out)
    }
    fn decode_field(bytes: &[u8]) -> std::result::Result<T, CodecError> {
        C::decode(bytes)
    }
}

/// `T`, where `N` could be computed. Generated code asks there, by a constant of a trait, for what `T` must fulfil: where it
/// does not, that is one error, and the type is one too, about which nobody complains again.
pub type Checked<const N: usize, T> = <[(); N] as Length<T>>::Type;

/// See [`Checked`].
pub trait Length<T> {
    /// `T`.
    type Type;
}
impl<T, const N: usize> Length<T> for [(); N] {
    type Type = T;
}

/// A key type. Asked by this name, it is not asked for the traits that every key has: where one is missing, its derive says so.
#[diagnostic::on_unimplemented(
    message = "the key type `{Self}` has no declared codec [S111]",
    label = "this key would have to pick a lane",
    note = "write `#[derive(Key)]` above `#[key(codec = Json)]` (or Utf8, Be, Bytes) on `{Self}`",
    note = "an `Option<..>` is no key: drop the records without one first, with `.with_key()`"
)]
pub trait HasCodec {
    /// For [`Checked`].
    const CHECKED: usize = 0;
}
impl<K: Key> HasCodec for K {}

/// A codec that takes the values of a processor's field.
#[diagnostic::on_unimplemented(
    message = "codec `{Self}` cannot encode and decode `{T}` [S113]",
    label = "values of type `{T}` are kept as bytes",
    note = "types with serde's `#[derive(serde::Serialize, serde::Deserialize)]` are taken by `Json`, the codec where none is named",
    note = "or name a codec that takes `{T}`, `#[state(codec = C)]` (of a store: `#[store(codec = C)]`): `Be` takes integers, `Utf8` text and `Bytes` bytes"
)]
pub trait FieldCodec<T> {
    /// For [`Checked`].
    const CHECKED: usize = 0;
}
#[diagnostic::do_not_recommend]
impl<T, C: Encode<T> + Decode<T>> FieldCodec<T> for C {}

/// A codec that takes the values of a source.
#[diagnostic::on_unimplemented(
    message = "codec `{Self}` cannot decode `{T}` [S113]",
    label = "values of type `{T}` are read from bytes",
    note = "types with serde's `#[derive(serde::Deserialize)]` are taken by `Json`, the codec where none is named",
    note = "or name a codec that takes `{T}`, `value_codec = C`: `Be` takes integers, `Utf8` text and `Bytes` bytes"
)]
pub trait SourceCodec<T> {
    /// For [`Checked`].
    const CHECKED: usize = 0;
}
#[diagnostic::do_not_recommend]
impl<T, C: Decode<T>> SourceCodec<T> for C {}

/// A codec that takes the values of a sink.
#[diagnostic::on_unimplemented(
    message = "codec `{Self}` cannot encode `{T}` [S113]",
    label = "values of type `{T}` are written as bytes",
    note = "types with serde's `#[derive(serde::Serialize)]` are taken by `Json`, the codec where none is named",
    note = "or name a codec that takes `{T}`, `value_codec = C`: `Be` takes integers, `Utf8` text and `Bytes` bytes"
)]
pub trait SinkCodec<T> {
    /// For [`Checked`].
    const CHECKED: usize = 0;
}
#[diagnostic::do_not_recommend]
impl<T, C: Encode<T>> SinkCodec<T> for C {}

/// A codec that takes a key.
#[diagnostic::on_unimplemented(
    message = "codec `{Self}` cannot encode and decode `{T}` [S113]",
    label = "keys of type `{T}` are kept as bytes",
    note = "types with serde's `#[derive(serde::Serialize, serde::Deserialize)]` are taken by `Json`",
    note = "or name a codec that takes `{T}`: a struct of one field can have `Utf8` (text), `Be` (an integer) or `Bytes`"
)]
pub trait KeyCodec<T> {
    /// For [`Checked`].
    const CHECKED: usize = 0;
}
#[diagnostic::do_not_recommend]
impl<T, C: Encode<T> + Decode<T>> KeyCodec<T> for C {}

/// What stands behind the value's type in a `Keyed`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no codec: a `Keyed` names the type of its value and, where it is not `Json`, the codec [S315]",
    label = "not a codec",
    note = "the key is that of the record: write `Keyed<{Self}>`",
    note = "for values of other keys too there is `#[store]` with a `KeyValueStore<K, V>`"
)]
pub trait KeyedCodec {
    /// For [`Checked`].
    const CHECKED: usize = 0;
}
#[diagnostic::do_not_recommend]
impl<C: Codec> KeyedCodec for C {}

/// Asks a type for constants of a trait that it may not implement: what is missing is reported elsewhere, once.
pub struct Probe<T>(std::marker::PhantomData<T>);

/// What a source says to the checks of `#[topology]`.
#[derive(Clone, Copy)]
pub struct SourceFacts {
    name: &'static str,
    topic: &'static str,
    key_codec: &'static str,
    value_codec: &'static str,
}

/// What a processor says to the checks of `#[topology]`.
#[derive(Clone, Copy)]
pub struct StoreFacts {
    name: &'static str,
    fields: &'static [FieldDecl],
}

impl<S: Source> Probe<S> {
    /// The source's.
    pub const SOURCE: Option<SourceFacts> = Some(SourceFacts {
        name: S::NAME,
        topic: S::TOPIC,
        key_codec: <S::KeyCodec as Codec>::NAME,
        value_codec: <S::ValueCodec as Codec>::NAME,
    });
}

impl<P: Processor> Probe<P> {
    /// The processor's.
    pub const STORES: Option<StoreFacts> = Some(StoreFacts { name: P::NAME, fields: P::FIELDS });
}

/// What [`Probe`] says where the trait is missing.
pub trait Unknown {
    /// Not a source.
    const SOURCE: Option<SourceFacts> = None;
    /// Not a processor.
    const STORES: Option<StoreFacts> = None;
}
impl<T> Unknown for Probe<T> {}

/// What the handler of a processor takes, as `#[handlers]` reads it: `(K, V)` of its `Record<K, V>`.
pub trait Takes {
    /// The pair.
    type Pair;
}

/// Asked by `#[processor]`, of its own type: [`Agrees`] where `#[handlers]` wrote what the handler takes, else [`NotKnown`].
/// Neither asks more than that: what is missing is reported elsewhere, once.
pub struct Input<P>(std::marker::PhantomData<P>);

impl<P: Takes> Input<P> {
    /// It is known what the handler takes.
    pub const TAKEN: Agrees<P> = Agrees(std::marker::PhantomData);
}

/// What [`Input`] says where nothing is known.
pub trait InputUnknown {
    /// It is not known.
    const TAKEN: NotKnown = NotKnown;
}
impl<P> InputUnknown for Input<P> {}

/// See [`Input`].
pub struct Agrees<P>(std::marker::PhantomData<P>);

impl<P: Takes> Agrees<P> {
    /// For [`Checked`].
    pub const fn checked<K, V>(&self) -> usize
    where
        P::Pair: Taken<P, K, V>,
    {
        0
    }
}

/// See [`Input`].
pub struct NotKnown;

impl NotKnown {
    /// For [`Checked`].
    pub const fn checked<K, V>(&self) -> usize {
        0
    }
}

/// What a handler takes is the input that its processor declares.
#[diagnostic::on_unimplemented(
    message = "`{P}` declares `input = ({K}, {V})`, but its `#[process]` handler takes records of `{Self}` [S420]",
    label = "the handler takes something else",
    note = "write `input = {Self}` in `#[processor]`, or let the handler take `Record<{K}, {V}>`"
)]
pub trait Taken<P, K, V> {}
// Through another trait: an impl for `(K, V)` would be shown as one that was meant.
#[diagnostic::do_not_recommend]
impl<P, K, V, T: IsPair<(K, V)>> Taken<P, K, V> for T {}

/// The same type.
pub trait IsPair<T> {}
#[diagnostic::do_not_recommend]
impl<T> IsPair<T> for T {}

/// Whether a timer has a handler; also where some handler names no timer, which is another error and probably the cause.
pub const fn handled(on_timer: &[&str], fields: &[FieldDecl], timer: &str) -> bool {
    let mut i = 0;
    while i < on_timer.len() {
        if same(on_timer[i], timer) || index(fields, on_timer[i]) == usize::MAX {
            return true;
        }
        i += 1;
    }
    false
}

/// Refuses a topic that an earlier source reads, while the program is compiled.
///
/// # Panics
/// With the words of the mistake.
#[track_caller]
pub const fn one_source_per_topic(earlier: &[Option<SourceFacts>], this: Option<SourceFacts>) {
    let Some(b) = this else { return };
    let mut i = 0;
    while i < earlier.len() {
        if let Some(a) = earlier[i]
            && same(a.topic, b.topic)
        {
            let mut text = Text::new();
            text.push(&["topic `", a.topic, "` is read by "]);
            if !same(a.key_codec, b.key_codec) {
                text.push(&[
                    "`",
                    a.name,
                    "` with key codec ",
                    a.key_codec,
                    " and by `",
                    b.name,
                    "` with key codec ",
                    b.key_codec,
                ]);
                text.push(&[": use one `#[source]` for both, or give both the same `key_codec` [S531]"]);
            } else if !same(a.value_codec, b.value_codec) {
                text.push(&[
                    "`",
                    a.name,
                    "` with value codec ",
                    a.value_codec,
                    " and by `",
                    b.name,
                    "` with value codec ",
                ]);
                text.push(&[b.value_codec, ": use one `#[source]` for both [S531]"]);
            } else {
                text.push(&["two sources, `", a.name, "` and `", b.name, "`: keep one and use `.fan_out()` [S531]"]);
            }
            panic!("{}", text.as_str());
        }
        i += 1;
    }
}

/// Refuses a store's name that an earlier processor has, while the program is compiled.
///
/// # Panics
/// With the words of the mistake.
#[track_caller]
pub const fn one_store_per_name(earlier: &[Option<StoreFacts>], this: Option<StoreFacts>) {
    let Some(b) = this else { return };
    let mut i = 0;
    while i < earlier.len() {
        if let Some(a) = earlier[i] {
            let mut m = 0;
            while m < a.fields.len() {
                let mut n = 0;
                while n < b.fields.len() {
                    if same(a.fields[m].name, b.fields[n].name) {
                        let mut text = Text::new();
                        let store = a.fields[m].name;
                        let (what, mark) = match b.fields[n].kind {
                            StoreKind::Timer | StoreKind::Timers => ("timer", "`#[timer(name = \"..\")]`"),
                            _ => ("store", "`#[state(name = \"..\")]` (of a store: `#[store(..)]`)"),
                        };
                        if same(a.name, b.name) {
                            text.push(&[
                                "`",
                                a.name,
                                "` is used twice, and both uses would own the ",
                                what,
                                " named `",
                                store,
                            ]);
                            text.push(&[
                                "`: use it once, on merged streams, or write a second struct whose fields have ",
                            ]);
                            text.push(&["other names [S532]"]);
                        } else {
                            text.push(&["`", a.name, "` and `", b.name, "` both own a ", what, " named `", store]);
                            text.push(&["`: rename one with ", mark, " [S532]"]);
                        }
                        panic!("{}", text.as_str());
                    }
                    n += 1;
                }
                m += 1;
            }
        }
        i += 1;
    }
}

/// A message put together while the program is compiled; what does not fit is cut.
struct Text {
    bytes: [u8; 512],
    len: usize,
}

impl Text {
    const fn new() -> Self {
        Self { bytes: [0; 512], len: 0 }
    }

    const fn push(&mut self, parts: &[&str]) {
        let mut i = 0;
        while i < parts.len() {
            let part = parts[i].as_bytes();
            let mut j = 0;
            // Parts are cut whole, so what is there stays UTF-8.
            while j < part.len() && self.len + part.len() - j <= self.bytes.len() {
                self.bytes[self.len] = part[j];
                self.len += 1;
                j += 1;
            }
            i += 1;
        }
    }

    const fn as_str(&self) -> &str {
        match std::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(s) => s,
            Err(_) => "",
        }
    }
}
