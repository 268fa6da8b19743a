//! What the lanes of a stream's records follow, as a type: [`Lane`], [`KeyChanged`] or [`DecodeOnly`].
//!
//! The traits of this module are implemented for these three only; most of them exist to own a message.

use std::marker::PhantomData;

use crate::affinity::Reencode;
use crate::codec::{Codec, CodecError, Decode, Encode};
use crate::key::Key;
use crate::operator::CurrentKey;
use crate::processor::Processor;
use crate::store::{KeyValueStore, Keyed};
use crate::timer::{Timer, Timers};
use crate::topology::graph::LaneKey;

/// Records run on the lane of the hash of their key as the codec `C` writes it.
#[derive(Debug)]
pub struct Lane<C>(PhantomData<fn() -> C>);

/// The key was changed, and the records still run on the lane of the old key. The next operator that needs the key's
/// lane opens a boundary; [`repartition`](crate::topology::Stream::repartition) does so at once.
#[derive(Debug)]
pub struct KeyChanged;

/// The source's codec `C` can decode keys and not encode them.
#[derive(Debug)]
pub struct DecodeOnly<C>(PhantomData<fn() -> C>);

mod sealed {
    pub trait Sealed {}
    impl<C> Sealed for super::Lane<C> {}
    impl Sealed for super::KeyChanged {}
    impl<C> Sealed for super::DecodeOnly<C> {}
}

/// How a stateless or stateful operator gets the current key back from its lane. Holds for every stream.
pub trait LaneState<K>: sealed::Sealed + 'static {
    /// Whether the lane's current key is the key of the records.
    const KEEPS_KEY: bool;

    /// The lane codec's identity; empty where the key was changed.
    fn codec() -> String;

    /// Decodes the current key.
    ///
    /// # Errors
    /// When the codec refuses its own bytes, or where the key was changed.
    fn decode(key: &CurrentKey) -> Result<K, CodecError>;

    /// The lane codec, as the checks of [`affinity`](crate::affinity) use it; `None`: they have nothing to look at.
    fn key_writer() -> Option<KeyWriter> {
        None
    }

    /// Appends a key as the lane codec writes it; `false`: it is null, or there is no [`LaneState::key_writer`].
    ///
    /// # Errors
    /// When the codec cannot write it.
    fn encode(_key: &K, _out: &mut Vec<u8>) -> Result<bool, CodecError> {
        Ok(false)
    }
}

/// See [`LaneState::key_writer`].
#[derive(Clone, Copy, Debug)]
pub struct KeyWriter {
    /// The codec's name.
    pub codec: &'static str,
    /// Decodes bytes and encodes them again; `None` where the result is known to be on the same lane.
    pub(crate) reencode: Option<Reencode>,
}

fn decode_current<K, C: Decode<K>>(key: &CurrentKey) -> Result<K, CodecError> {
    if key.present { C::decode(&key.bytes) } else { C::decode_null() }
}

impl<K, C: Encode<K> + Decode<K>> LaneState<K> for Lane<C> {
    const KEEPS_KEY: bool = true;
    fn codec() -> String {
        crate::codec::codec_id::<C>()
    }
    fn decode(key: &CurrentKey) -> Result<K, CodecError> {
        decode_current::<K, C>(key)
    }
    fn key_writer() -> Option<KeyWriter> {
        Some(KeyWriter {
            codec: C::NAME,
            // Keys of another codec are laned by what it writes, so there is nothing to compare.
            reencode: (C::CANONICAL && !C::PROVEN).then_some(reencode::<K, C> as _),
        })
    }
    fn encode(key: &K, out: &mut Vec<u8>) -> Result<bool, CodecError> {
        if C::is_null(key) {
            return Ok(false);
        }
        C::encode(key, out).map(|()| true)
    }
}

impl<K, C: Decode<K>> LaneState<K> for DecodeOnly<C> {
    const KEEPS_KEY: bool = true;
    fn codec() -> String {
        crate::codec::codec_id::<C>()
    }
    fn decode(key: &CurrentKey) -> Result<K, CodecError> {
        decode_current::<K, C>(key)
    }
}

impl<K> LaneState<K> for KeyChanged {
    const KEEPS_KEY: bool = false;
    fn codec() -> String {
        String::new()
    }
    fn decode(_: &CurrentKey) -> Result<K, CodecError> {
        Err(CodecError::new("the key was changed: the lane does not know it"))
    }
}

/// The lane state of a source.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the lane state of a source with keys of type `{K}`",
    note = "a source has `Lane<C>`, or `DecodeOnly<C>` where `C` cannot encode"
)]
pub trait SourceLane<K>: LaneState<K> {
    /// Which bytes pick the lane.
    fn lane_key() -> LaneKey;
}

fn reencode<K, C: Encode<K> + Decode<K>>(bytes: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
    C::encode(&C::decode(bytes)?, out)
}

impl<K, C: Encode<K> + Decode<K>> SourceLane<K> for Lane<C> {
    fn lane_key() -> LaneKey {
        if C::CANONICAL { LaneKey::Raw } else { LaneKey::Reencoded(reencode::<K, C>) }
    }
}

impl<K, C: Decode<K>> SourceLane<K> for DecodeOnly<C> {
    fn lane_key() -> LaneKey {
        LaneKey::Raw
    }
}

/// The lane state that an aggregation, a join or a boundary begins with.
#[diagnostic::on_unimplemented(message = "records of this stream cannot be grouped by `{K}`")]
pub trait GroupLane<K>: LaneState<K> {
    /// The codec that the key is laned by from here on.
    type Codec: Encode<K> + Decode<K>;
    /// Whether the records must be handed over to other lanes first.
    const HANDS_OVER: bool;
}

impl<K: Key, C: Encode<K> + Decode<K>> GroupLane<K> for Lane<C> {
    type Codec = C;
    const HANDS_OVER: bool = false;
}

impl<K: Key> GroupLane<K> for KeyChanged {
    type Codec = K::Codec;
    const HANDS_OVER: bool = true;
}

impl<K: Key, C: Decode<K>> GroupLane<K> for DecodeOnly<C>
where
    C: EncodesKey<K>,
{
    type Codec = K::Codec;
    const HANDS_OVER: bool = false;
}

/// Owns the message for a decode-only source; nothing implements it.
#[diagnostic::on_unimplemented(
    message = "the source is decode-only: `{Self}` can decode the key `{K}` but not encode it [S526]",
    label = "needs the key's bytes",
    note = "implement `Encode<{K}>` for `{Self}` and drop `decode_only` from the source, or change the key with `.select_key(..)` to a type that derives `Key`"
)]
pub trait EncodesKey<K> {}

/// Owns the message for a changed key; nothing implements it.
#[diagnostic::on_unimplemented(
    message = "the key of this stream was changed to `{K}`, but its records still run on the lane of the old key [S527]",
    label = "needs the lane of `{K}`",
    note = "bind `.repartition()` to a name first, `let name = ..;`: it hands the records over to the lanes of their new key"
)]
pub trait OnItsLane<K> {}

/// Owns the message for a stream that is counted; nothing implements it.
#[diagnostic::on_unimplemented(
    message = "a stream is counted by its key: group it first [S533]",
    label = "not grouped",
    note = "write `.group_by_key().count()`, or `.group_by(|key, value| ..).count()` to count by something else"
)]
pub trait IsGrouped<C> {}

/// Owns the message for a table that is used as a stream; nothing implements it.
#[diagnostic::on_unimplemented(
    message = "a table is no stream [S534]",
    label = "not a stream",
    note = "its changes are one: write `.to_stream()` in front of this step"
)]
pub trait IsStream {}

/// Whether a processor's field may stand on this lane: one where-clause per field of `#[processor]`.
#[diagnostic::on_unimplemented(
    message = "this field of `{P}` cannot stand on the lane `{Self}`",
    note = "a field is a `Keyed<..>`, `KeyValueStore<..>`, `Timer` or `Timers`"
)]
pub trait FitsField<P, F> {}

/// A timer's key codec and the lane's are the same.
#[diagnostic::on_unimplemented(
    message = "timer of `{P}` encodes its key with `{Self}`, but the records of this stream are laned by `{D}` [S528]",
    label = "the timer would fire on another lane than the records",
    note = "use one codec: drop the timer's own, or give the source `key_codec = {Self}`"
)]
pub trait TimerLane<P, D> {}
#[diagnostic::do_not_recommend]
impl<P, D> TimerLane<P, D> for D {}

/// A store's key codec and the lane's are the same.
#[diagnostic::on_unimplemented(
    message = "store of `{P}` encodes its key with `{Self}`, but the records of this stream are laned by `{D}` [S528]",
    label = "the state of one key would be split over lanes",
    note = "use one codec: drop the store's own, or give the source `key_codec = {Self}`"
)]
pub trait StoreLane<P, D> {}
#[diagnostic::do_not_recommend]
impl<P, D> StoreLane<P, D> for D {}

impl<P, K: Key, C: TimerLane<P, D>, S, D: Codec> FitsField<P, Timer<K, C, S>> for Lane<D> {}
impl<P, K: Key, C: TimerLane<P, D>, S, D: Codec> FitsField<P, Timers<K, C, S>> for Lane<D> {}
impl<P, V, C, D: Codec> FitsField<P, Keyed<V, C>> for Lane<D> {}
impl<P, K: Key, V, C, KC: StoreLane<P, D>, D: Codec> FitsField<P, KeyValueStore<K, V, C, KC>> for Lane<D> {}

impl<P: Processor, F> FitsField<P, F> for KeyChanged where KeyChanged: OnItsLane<P::InKey> {}
impl<P: Processor, F, D: EncodesKey<P::InKey>> FitsField<P, F> for DecodeOnly<D> {}

/// The stream's key type is the one that a processor takes.
#[diagnostic::on_unimplemented(
    message = "`{P}` takes keys of type `{Want}`, but this stream is keyed by `{Self}` [S520]",
    label = "keys of type `{Self}`",
    note = "change the key, `let name = stream.select_key(..).repartition();`, and go on from there; or declare `input = ({Self}, ..)` on `{P}`",
    note = "an `Option<..>` is no key of a processor: `.with_key()` drops the records without one and keeps the rest on its lane"
)]
pub trait InputKey<P, Want> {
    /// `L`. Where the key is wrong, nothing is asked of the lane by this name: one mistake, one error.
    type On<L>;

    /// The same key, as the type that is wanted.
    fn same(self) -> Want;
    /// And back.
    fn of(want: &Want) -> &Self;
}
#[diagnostic::do_not_recommend]
impl<P, T> InputKey<P, T> for T {
    type On<L> = L;

    fn same(self) -> T {
        self
    }
    fn of(want: &T) -> &T {
        want
    }
}

/// The stream's value type is the one that a processor takes.
#[diagnostic::on_unimplemented(
    message = "`{P}` takes values of type `{Want}`, but this stream carries `{Self}` [S521]",
    label = "values of type `{Self}`",
    note = "change the values with `.map_values(..)`, or declare `input = (.., {Self})` on `{P}`"
)]
pub trait InputValue<P, Want> {}
#[diagnostic::do_not_recommend]
impl<P, T> InputValue<P, T> for T {}

/// The stream's key type is the one that a sink writes.
#[diagnostic::on_unimplemented(
    message = "sink `{S}` writes keys of type `{Want}`, but this stream is keyed by `{Self}` [S522]",
    label = "keys of type `{Self}`",
    note = "change the key with `.select_key(..)`, or declare `key = {Self}` on `{S}`"
)]
pub trait SinkKey<S, Want> {}
#[diagnostic::do_not_recommend]
impl<S, T> SinkKey<S, T> for T {}

/// The stream's value type is the one that a sink writes.
#[diagnostic::on_unimplemented(
    message = "sink `{S}` writes values of type `{Want}`, but this stream carries `{Self}` [S523]",
    label = "values of type `{Self}`",
    note = "change the values with `.map_values(..)`, or the type that `{S}` declares, `value = ..`",
    note = "values of type `Infallible` come from a processor without an output: declare `output = {Want}` on it"
)]
pub trait SinkValue<S, Want> {}
#[diagnostic::do_not_recommend]
impl<S, T> SinkValue<S, T> for T {}
