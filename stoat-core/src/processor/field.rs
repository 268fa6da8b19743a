//! Fields of a processor that own state or timers.

use std::sync::Arc;

use super::Processor;
use crate::affinity::{Affinity, Reencode};
use crate::error::Result;
use crate::id::StoreId;
use crate::key::Key;
use crate::operator::{CurrentKey, Field};
use crate::store::{ByteStore, KeyValueStore, Keyed, StoreKind};
use crate::time::{TimeDomain, Timestamp};
use crate::timer::{Timer, Timers};
use crate::topology::graph::ValueDecl;

/// A field as declared: what the graph says about it.
#[derive(Clone, Copy, Debug)]
pub struct FieldDecl {
    /// The field's name.
    pub field: &'static str,
    /// The store's name: the field's, or the one given with `name = ".."`.
    pub name: &'static str,
    /// The store's layout.
    pub kind: StoreKind,
    /// The clock of a timer.
    pub clock: TimeDomain,
    /// Whether timers of other keys are written.
    pub foreign: bool,
    /// Whether other keys than the current one are read.
    pub peeks: bool,
    /// The identity of the field's own key codec; `None`: the lane's.
    pub key_codec: fn() -> Option<String>,
    /// What its values are; `None`: it holds timers.
    pub value: fn() -> Option<ValueDecl>,
}

/// The arguments of a field's attribute.
#[derive(Clone, Copy, Debug)]
pub struct FieldOptions {
    /// `name = ".."`.
    pub name: Option<&'static str>,
    /// `clock = ..`.
    pub clock: TimeDomain,
}

impl FieldDecl {
    /// Declares a field of type `F`.
    pub const fn of<F: StateField>(field: &'static str, options: FieldOptions) -> Self {
        Self {
            field,
            name: match options.name {
                Some(n) => n,
                None => field,
            },
            kind: F::KIND,
            clock: options.clock,
            foreign: F::FOREIGN,
            peeks: F::PEEKS,
            key_codec: F::key_codec,
            value: F::value,
        }
    }
}

/// What a field is made of, for one lane.
#[derive(Clone)]
pub struct FieldSeed {
    /// The declaration.
    pub decl: FieldDecl,
    /// The owner's name, for messages.
    pub owner: Arc<str>,
    /// Its place among its owner's fields.
    pub index: usize,
    /// The store.
    pub store: StoreId,
    /// The store's bytes.
    pub bytes: Arc<dyn ByteStore>,
    /// The lane.
    pub lane: u32,
    /// The number of lanes.
    pub lanes: u32,
    /// Bytes that the lane may keep in memory beside what is not committed.
    pub cache: usize,
    /// The checks of lane affinity; `None`: the only lane.
    pub(crate) affinity: Option<Affinity>,
    /// See [`KeyWriter::reencode`](crate::topology::lane_state::KeyWriter::reencode).
    pub(crate) reencode: Option<Reencode>,
}

impl std::fmt::Debug for FieldSeed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FieldSeed").field("decl", &self.decl).field("store", &self.store).finish_non_exhaustive()
    }
}

/// Hands a processor's fields out while it is made.
#[derive(Debug)]
pub struct FieldBuild<'a> {
    pub(crate) seeds: &'a [FieldSeed],
}

impl FieldBuild<'_> {
    /// Makes the field number `index` of [`Processor::FIELDS`].
    ///
    /// # Panics
    /// When there is no such field: generated code counts as `FIELDS` does.
    pub fn field<F: StateField>(&mut self, index: usize) -> F {
        F::make(self.seeds[index].clone())
    }
}

/// What a field learns before a handler runs.
#[derive(Clone, Copy, Debug)]
pub struct Entered<'a> {
    /// The current key.
    pub key: &'a CurrentKey,
    /// The time of the record or timer.
    pub timestamp: Timestamp,
    /// The ingest number.
    pub number: u64,
    /// The path of emission.
    pub path: &'a crate::engine::tag::Path,
    /// Whether what the handler overwrites is kept until it has ended, for [`StateField::undo`].
    pub undo: bool,
}

/// A field that can be declared in a processor.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no state and no timer",
    note = "a field is a `Keyed<..>`, `KeyValueStore<..>`, `Timer` or `Timers`"
)]
pub trait StateField: Sized + Send + 'static {
    /// The layout of its store.
    const KIND: StoreKind;
    /// Whether it writes timers of other keys.
    const FOREIGN: bool = false;
    /// Whether it reads other keys than the current one.
    const PEEKS: bool = false;

    /// The identity of its own key codec; `None`: it uses the lane's bytes.
    fn key_codec() -> Option<String>;

    /// What its values are; `None`: it holds timers.
    fn value() -> Option<ValueDecl> {
        None
    }

    /// Makes one lane's field.
    fn make(seed: FieldSeed) -> Self;

    /// The field as its lane sees it.
    fn as_field(&mut self) -> &mut dyn Field;

    /// A handler begins.
    fn enter(&mut self, at: &Entered<'_>);

    /// Takes back what the handler that ends now wrote; called before [`StateField::leave`], where [`Entered::undo`] was set.
    ///
    /// # Errors
    /// When local state cannot be read or decoded.
    fn undo(&mut self) -> Result<()>;

    /// The handler has ended.
    ///
    /// # Errors
    /// When this is not the field number `index`: the handler exchanged two fields. What no handler may swallow, where
    /// this one did.
    fn leave(&mut self, index: usize) -> Result<()>;
}

/// A field that fits the types of processor `P`.
pub trait FieldOf<P>: StateField {}

/// Visits a processor's fields, each with its type.
pub trait FieldVisitor<P> {
    /// Takes the next field.
    fn visit<F: FieldOf<P>>(&mut self, field: &mut F);
}

/// A timer field: what `#[on_timer(..)]` may name.
#[diagnostic::on_unimplemented(
    message = "this field of type `{Self}` is not a timer [S422]",
    label = "not a timer",
    note = "`#[on_timer(..)]` names a `#[timer]` field: a `Timer` or `Timers`"
)]
pub trait TimerField: StateField {}

/// A timer's key type is that of the processor's input.
#[diagnostic::on_unimplemented(
    message = "timer of `{P}` is keyed by `{Self}`, but the input of `{P}` is keyed by `{Want}` [S320]",
    label = "expected `Timer<{Want}>`"
)]
pub trait TimerKey<P, Want> {}
#[diagnostic::do_not_recommend]
impl<P, T> TimerKey<P, T> for T {}

/// A store's key type is that of the processor's input.
#[diagnostic::on_unimplemented(
    message = "store of `{P}` is keyed by `{Self}`, but the input of `{P}` is keyed by `{Want}` [S321]",
    label = "expected a key of type `{Want}`"
)]
pub trait StoreKey<P, Want> {}
#[diagnostic::do_not_recommend]
impl<P, T> StoreKey<P, T> for T {}

impl<P: Processor, K: Key + TimerKey<P, P::InKey>, C, S> FieldOf<P> for Timer<K, C, S> where Self: StateField {}
impl<P: Processor, K: Key + TimerKey<P, P::InKey>, C, S> FieldOf<P> for Timers<K, C, S> where Self: StateField {}
impl<P: Processor<InKey: Key>, V, C> FieldOf<P> for Keyed<V, C> where Self: StateField {}
impl<P: Processor, K: Key + StoreKey<P, P::InKey>, V, C, KC> FieldOf<P> for KeyValueStore<K, V, C, KC> where
    Self: StateField
{
}
