//! What each rule is worth that is no line of a macro but a bound, a signature, a constant or a message: taken out of a copy
//! of the sources, one after another, the cases of `ui-tests` that it refuses must notice.
//!
//! (The rules that macros report are switched off by their codes: `cargo test -p stoat-macros rules`.)
//! What is replaced must be there exactly once: a change that moves it has to move it here too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::mutants;
use crate::sh::{Context as _, Result, Steps, cargo, root, tail};

/// A rule, and how it is lost.
struct Rule {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// Cases of `ui-tests/ui` that it refuses, as `group/name`.
    cases: &'static [&'static str],
}

const LANE_STATE: &str = "stoat-core/src/topology/lane_state.rs";
const FIELD: &str = "stoat-core/src/processor/field.rs";
const PROCESSOR: &str = "stoat-core/src/processor/mod.rs";
const CONTEXT: &str = "stoat-core/src/processor/context.rs";
const FRAGMENT: &str = "stoat-core/src/topology/fragment.rs";
const PRIVATE: &str = "stoat-core/src/private.rs";
const HANDLERS: &str = "stoat-macros/src/handlers/expand.rs";

const RULES: &[Rule] = &[
    Rule {
        name: "a processor's key type is the stream's",
        file: LANE_STATE,
        from: "impl<P, T> InputKey<P, T> for T {\n    type On<L> = L;\n\n    fn same(self) -> T {\n        self\n    }\n    \
               fn of(want: &T) -> &T {\n        want\n    }\n}",
        to: "impl<P, W, T> InputKey<P, W> for T {\n    type On<L> = L;\n\n    fn same(self) -> W {\n        unreachable!()\n    }\n    \
             fn of(_: &W) -> &T {\n        unreachable!()\n    }\n}",
        cases: &["topology/input-key"],
    },
    Rule {
        name: "a processor's value type is the stream's",
        file: LANE_STATE,
        from: "impl<P, T> InputValue<P, T> for T {}",
        to: "impl<P, W, T> InputValue<P, W> for T {}",
        cases: &["topology/input-value"],
    },
    Rule {
        name: "a sink's key type is the stream's",
        file: LANE_STATE,
        from: "impl<S, T> SinkKey<S, T> for T {}",
        to: "impl<S, W, T> SinkKey<S, W> for T {}",
        cases: &["topology/sink-key"],
    },
    Rule {
        name: "a sink's value type is the stream's",
        file: LANE_STATE,
        from: "impl<S, T> SinkValue<S, T> for T {}",
        to: "impl<S, W, T> SinkValue<S, W> for T {}",
        cases: &["topology/sink-value"],
    },
    Rule {
        name: "no state or timer behind a decode-only source",
        file: LANE_STATE,
        from: "impl<P: Processor, F, D: EncodesKey<P::InKey>> FitsField<P, F> for DecodeOnly<D> {}",
        to: "impl<P: Processor, F, D> FitsField<P, F> for DecodeOnly<D> {}",
        cases: &["topology/decode-only-timer"],
    },
    Rule {
        name: "no aggregation behind a decode-only source",
        file: LANE_STATE,
        from: "impl<K: Key, C: Decode<K>> GroupLane<K> for DecodeOnly<C>\nwhere\n    C: EncodesKey<K>,\n{",
        to: "impl<K: Key, C: Decode<K>> GroupLane<K> for DecodeOnly<C> {",
        cases: &["topology/decode-only-aggregate"],
    },
    Rule {
        name: "no state or timer behind a changed key",
        file: LANE_STATE,
        from: "impl<P: Processor, F> FitsField<P, F> for KeyChanged where KeyChanged: OnItsLane<P::InKey> {}",
        to: "impl<P: Processor, F> FitsField<P, F> for KeyChanged {}",
        cases: &["topology/timer-after-key-change"],
    },
    Rule {
        name: "a timer's codec is the lane's",
        file: LANE_STATE,
        from: "impl<P, D> TimerLane<P, D> for D {}",
        to: "impl<P, D, C> TimerLane<P, D> for C {}",
        cases: &["topology/timer-codec-differs", "topology/timers-codec-differs", "topology/lane-split"],
    },
    Rule {
        name: "a store's codec is the lane's",
        file: LANE_STATE,
        from: "impl<P, D> StoreLane<P, D> for D {}",
        to: "impl<P, D, C> StoreLane<P, D> for C {}",
        cases: &["topology/store-codec-differs"],
    },
    Rule {
        name: "a timer's key type is the input's",
        file: FIELD,
        from: "impl<P, T> TimerKey<P, T> for T {}",
        to: "impl<P, W, T> TimerKey<P, W> for T {}",
        cases: &["processor/timer-key-type"],
    },
    Rule {
        name: "a store's key type is the input's",
        file: FIELD,
        from: "impl<P, T> StoreKey<P, T> for T {}",
        to: "impl<P, W, T> StoreKey<P, W> for T {}",
        cases: &["processor/store-key-type"],
    },
    Rule {
        name: "what is not a processor is called so",
        file: PROCESSOR,
        from: "    message = \"`{Self}` is not a processor [S524]\",\n",
        to: "",
        cases: &["topology/not-a-processor"],
    },
    Rule {
        name: "a processor without handlers is called so",
        file: PROCESSOR,
        from: "    message = \"processor `{Self}` has no handlers [S324]\",\n",
        to: "",
        cases: &["handlers/no-handlers"],
    },
    Rule {
        name: "a processor with configuration is called so, and its field named",
        file: "stoat-macros/src/processor/expand.rs",
        from: "            #[diagnostic::on_unimplemented(message = #message, label = \"needs configuration\", note = #call, note = #local)]\n",
        to: "",
        cases: &["topology/configured"],
    },
    Rule {
        name: "a handler takes what it is given",
        file: PROCESSOR,
        from: "impl<P, T> HandlerArg<P, T> for T {\n    fn from_given(got: T) -> T {\n        got\n    }\n}",
        to: "impl<P, G, T> HandlerArg<P, G> for T {\n    fn from_given(_: G) -> T {\n        unreachable!()\n    }\n}",
        cases: &["handlers/generic-process-types", "handlers/timer-types"],
    },
    Rule {
        name: "a handler's context is that of its processor",
        file: PROCESSOR,
        from: "impl<P, T> HandlerContext<P, T> for T {\n    fn from_given_mut(got: &mut T) -> &mut T {\n        got\n    }\n}",
        to: "impl<P, G, T> HandlerContext<P, G> for T {\n    fn from_given_mut(_: &mut G) -> &mut T {\n        unreachable!()\n    }\n}",
        cases: &["handlers/process-context"],
    },
    Rule {
        name: "a handler's record is the input of its processor",
        file: PRIVATE,
        from: "impl<P, K, V, T: IsPair<(K, V)>> Taken<P, K, V> for T {}",
        to: "impl<P, K, V, T> Taken<P, K, V> for T {}",
        cases: &["processor/input-of-another-key", "handlers/process-types", "handlers/async-types"],
    },
    Rule {
        name: "a processor whose handler takes something else is one error",
        file: "stoat-macros/src/processor/checked.rs",
        from: "    checked(krate, &constant, part)\n",
        to: "    let _ = constant;\n    part.clone()\n",
        cases: &["processor/input-of-another-key"],
    },
    Rule {
        name: "a program without the prelude is told so",
        file: PRIVATE,
        from: "    message = \"`use stoat_core::prelude::*;` is missing, which has `#[topology]` and what else stands in a topology [S603]\",\n",
        to: "",
        cases: &["main/no-prelude"],
    },
    Rule {
        name: "the prelude is looked for",
        file: "stoat-macros/src/main_fn.rs",
        from: "    let here = module.is_empty();\n",
        to: "    let here = false;\n    if module.is_empty() {\n        module.push(syn::parse_quote!(self));\n        module.push_punct(Default::default());\n    }\n",
        cases: &["main/no-prelude"],
    },
    Rule {
        name: "a table is no stream, and goes into no sink",
        file: "stoat-core/src/topology/table.rs",
        from: "    pub fn sink<S>(self)\n",
        to: "    pub fn another<S>(self)\n",
        cases: &["topology/table-into-a-sink"],
    },
    Rule {
        name: "a timer that two processors own is called a timer",
        file: PRIVATE,
        from: "                            StoreKind::Timer | StoreKind::Timers => (\"timer\", \"`#[timer(name = \\\"..\\\")]`\"),\n",
        to: "",
        cases: &["topology/timer-name-of-two-processors"],
    },
    Rule {
        name: "of two fields of one name only the compiler speaks",
        file: "stoat-macros/src/processor/parse.rs",
        from: "    let fields = declared_once(fields);\n",
        to: "    let _ = declared_once;\n",
        cases: &["processor/field-twice"],
    },
    Rule {
        name: "only aggregations need a name",
        file: "stoat-macros/src/topology/read.rs",
        from: "                if !AGGREGATIONS.contains(&&*method) {\n",
        to: "                if AGGREGATIONS.is_empty() {\n",
        cases: &["topology/group-has-no-such-step"],
    },
    Rule {
        name: "a key that may be missing is told of `.with_key()`",
        file: LANE_STATE,
        from: "    note = \"an `Option<..>` is no key of a processor: `.with_key()` drops the records without one and keeps the rest on its lane\"\n",
        to: "",
        cases: &["topology/input-key-optional"],
    },
    Rule {
        name: "a handler returns `Result<()>`",
        file: PROCESSOR,
        from: "impl<P> HandlerResult<P> for Result<()> {\n    fn into_result(self) -> Result<()> {\n        self\n    }\n}",
        to: "impl<P, R> HandlerResult<P> for R {\n    fn into_result(self) -> Result<()> {\n        unreachable!()\n    }\n}",
        cases: &["handlers/process-return", "handlers/async-return"],
    },
    Rule {
        name: "a forwarded value has the type of the output",
        file: CONTEXT,
        from: "    pub fn forward(&mut self, value: P::OutValue) -> Result<()> { // `output = V` keeps the key\n        \
               self.push(None, value, self.timestamp);\n",
        to: "    pub fn forward<V>(&mut self, _: V) -> Result<()> { // `output = V` keeps the key\n",
        cases: &["handlers/forward-value"],
    },
    Rule {
        name: "that the key is kept is said",
        file: CONTEXT,
        from: "    pub fn forward(&mut self, value: P::OutValue) -> Result<()> { // `output = V` keeps the key\n",
        to: "    pub fn forward(&mut self, value: P::OutValue) -> Result<()> {\n",
        cases: &["handlers/forward-with-a-key-though-kept"],
    },
    Rule {
        name: "that the key is changed is said",
        file: CONTEXT,
        from: "    pub fn forward(&mut self, key: P::OutKey, value: P::OutValue) -> Result<()> { // `output = (K, V)` names the key\n",
        to: "    pub fn forward(&mut self, key: P::OutKey, value: P::OutValue) -> Result<()> {\n",
        cases: &["handlers/forward-without-a-key-though-changed"],
    },
    Rule {
        name: "without an output nothing is forwarded",
        file: CONTEXT,
        from: "    where\n        V: Forwards<P, P::Mode>,\n        V::Here: HasKey<P>,\n    {\n        unreachable!(",
        to: "    {\n        unreachable!(",
        cases: &["handlers/forward-without-output", "handlers/punctuate-over-nothing-forwards"],
    },
    Rule {
        name: "whether an output or a key is missing is said",
        file: CONTEXT,
        from: "impl<P, V> Forwards<P, Keep> for V {\n    type Here = End;\n}\nimpl<P, V> Forwards<P, Rekey> for V {",
        to: "impl<P, V, M> Forwards<P, M> for V {",
        cases: &["handlers/forward-without-output"],
    },
    Rule {
        name: "that a processor without output carries nothing is said",
        file: LANE_STATE,
        from: "    note = \"values of type `Infallible` come from a processor without an output: declare `output = {Want}` on it\"\n",
        to: "",
        cases: &["topology/sink-of-nothing"],
    },
    Rule {
        name: "a stream is grouped before it is counted",
        file: LANE_STATE,
        from: "pub trait IsGrouped<C> {}",
        to: "pub trait IsGrouped<C> {}\nimpl<L> IsGrouped<crate::codec::Be> for L {}",
        cases: &["topology/count-without-group"],
    },
    Rule {
        name: "a table is no stream",
        file: LANE_STATE,
        from: "pub trait IsStream {}",
        to: "pub trait IsStream {}\nimpl<T> IsStream for T {}",
        cases: &["topology/table-as-a-stream"],
    },
    Rule {
        name: "a processor that is used twice is called so",
        file: PRIVATE,
        from: "                        if same(a.name, b.name) {\n",
        to: "                        if false {\n",
        cases: &["topology/processor-twice"],
    },
    Rule {
        name: "a function without `#[topology]` is called so",
        file: PRIVATE,
        from: "    message = \"this function is not a topology: it has no `#[topology]` [S603]\",\n",
        to: "",
        cases: &["main/no-topology-attribute"],
    },
    Rule {
        name: "a timer of other keys is declared so",
        file: "stoat-core/src/timer/mod.rs",
        from: "impl SetsOthers for Foreign {}",
        to: "impl<S: Reach> SetsOthers for S {}",
        cases: &["handlers/set-for-undeclared"],
    },
    Rule {
        name: "a timer of another key takes the timer's key type",
        file: "stoat-core/src/timer/one.rs",
        from: "    pub fn set_for(&mut self, key: &K, at: Timestamp) -> Result<()>\n    where\n        S: SetsOthers,\n    {\n        \
               self.write_for(key, Some(at))\n",
        to: "    pub fn set_for<J>(&mut self, _: &J, _: Timestamp) -> Result<()>\n    where\n        S: SetsOthers,\n    {\n        \
             unreachable!()\n",
        cases: &["handlers/set-for-key-type"],
    },
    Rule {
        name: "a state's value has the state's type",
        file: "stoat-core/src/store/keyed.rs",
        from: "    pub fn put(&mut self, value: V) -> Result<()> { // of the",
        to: "    pub fn put<W>(&mut self, _: W) -> Result<()> {\n        let value: V = unreachable!(); // of the",
        cases: &["handlers/body-type"],
    },
    Rule {
        name: "that a state is of the current key is said",
        file: "stoat-core/src/store/keyed.rs",
        from: "{ // of the current key; for keys that are named: a `#[store]` field\n",
        to: "{\n",
        cases: &["handlers/state-of-another-key"],
    },
    Rule {
        name: "`#[on_timer]` names a timer",
        file: PRIVATE,
        from: "pub fn is_timer<T: TimerField>(_: &T) {}",
        to: "pub fn is_timer<T>(_: &T) {}",
        cases: &["handlers/on-timer-names-state"],
    },
    Rule {
        name: "`#[on_timer]` names a field",
        file: HANDLERS,
        from: "        quote!(#(#cfgs)* #check;)\n",
        to: "        let _ = check;\n        quote!(#(#cfgs)* ();)\n",
        cases: &["handlers/on-timer-no-field", "handlers/on-timer-names-state"],
    },
    Rule {
        name: "`over` names a field",
        file: HANDLERS,
        from: "        let check = quote_spanned!(field.span()=> &self.#field);\n",
        to: "        let check = quote_spanned!(field.span()=> ());\n",
        cases: &["handlers/punctuate-over-no-field"],
    },
    Rule {
        name: "each timer has a handler",
        file: PRIVATE,
        from: "pub const fn handled(on_timer: &[&str], fields: &[FieldDecl], timer: &str) -> bool {\n",
        to: "pub const fn handled(on_timer: &[&str], fields: &[FieldDecl], timer: &str) -> bool {\n    \
             if !timer.is_empty() {\n        return true;\n    }\n",
        cases: &["handlers/timer-without-handler"],
    },
    Rule {
        name: "an `async` handler's future is `Send`",
        file: PRIVATE,
        from: "    handler: impl Future<Output = R> + Send + 'a,\n    into_result: fn(R) -> Result<()>,\n) -> CallFuture<'a> {\n    \
               Box::pin(async move { into_result(handler.await) })\n",
        to: "    _: impl Future<Output = R> + 'a,\n    _: fn(R) -> Result<()>,\n) -> CallFuture<'a> {\n    unreachable!()\n",
        cases: &["handlers/async-not-send"],
    },
    Rule {
        name: "what a processor forwards is consumed",
        file: PRIVATE,
        from: "impl NothingForwarded for std::convert::Infallible {}",
        to: "impl<V> NothingForwarded for V {}",
        cases: &["topology/processor-not-consumed"],
    },
    Rule {
        name: "a topic has one source",
        file: PRIVATE,
        from: "            && same(a.topic, b.topic)\n",
        to: "            && same(a.topic, b.topic)\n            && i > earlier.len()\n",
        cases: &["topology/topic-twice", "topology/topic-two-codecs"],
    },
    Rule {
        name: "a store has a name of its own",
        file: PRIVATE,
        from: "                    if same(a.fields[m].name, b.fields[n].name) {\n",
        to: "                    if same(a.fields[m].name, b.fields[n].name) && i > earlier.len() {\n",
        cases: &["topology/store-name-of-two-processors"],
    },
    Rule {
        name: "what stands in a key has stable bytes",
        file: PRIVATE,
        from: "pub fn key_field<T: KeyField>() {}",
        to: "pub fn key_field<T>() {}",
        cases: &["key/alias", "key/foreign"],
    },
    Rule {
        name: "a key's codec takes its field",
        file: PRIVATE,
        from: "impl<T, C: Encode<T> + Decode<T>> Codes<T> for C {\n    \
               fn encode_field(field: &T, out: &mut Vec<u8>) -> std::result::Result<(), CodecError> {\n        \
               C::encode(field, out)\n    }\n    \
               fn decode_field(bytes: &[u8]) -> std::result::Result<T, CodecError> {\n        C::decode(bytes)\n    }\n",
        to: "impl<T, C> Codes<T> for C {\n    \
             fn encode_field(_: &T, _: &mut Vec<u8>) -> std::result::Result<(), CodecError> {\n        \
             unreachable!()\n    }\n    \
             fn decode_field(_: &[u8]) -> std::result::Result<T, CodecError> {\n        unreachable!()\n    }\n",
        cases: &["key/codec-cannot"],
    },
    Rule {
        name: "a source whose codec cannot encode keys says so",
        file: "stoat-macros/src/endpoint/expand.rs",
        from: "            let state = if e.decode_only { quote!(DecodeOnly) } else { quote!(Lane) };\n",
        to: "            let state = quote!(DecodeOnly);\n",
        cases: &["source/decode-only-undeclared"],
    },
    Rule {
        name: "a codec that cannot decode the keys of a source is called so",
        file: "stoat-core/src/codec/mod.rs",
        from: "    message = \"codec `{Self}` cannot decode `{T}` [S110]\",\n",
        to: "",
        cases: &["source/key-codec-cannot"],
    },
    Rule {
        name: "a codec that cannot decode the values of a source is called so",
        file: PRIVATE,
        from: "impl<T, C: Decode<T>> SourceCodec<T> for C {}",
        to: "impl<T, C> SourceCodec<T> for C {}",
        cases: &["source/value-codec-cannot", "source/value-not-serde"],
    },
    Rule {
        name: "a codec that cannot encode the values of a sink is called so",
        file: PRIVATE,
        from: "impl<T, C: Encode<T>> SinkCodec<T> for C {}",
        to: "impl<T, C> SinkCodec<T> for C {}",
        cases: &["sink/value-codec-cannot", "sink/value-not-serde"],
    },
    Rule {
        name: "a codec that cannot take the values of a field is called so",
        file: PRIVATE,
        from: "impl<T, C: Encode<T> + Decode<T>> FieldCodec<T> for C {}",
        to: "impl<T, C> FieldCodec<T> for C {}",
        cases: &["processor/state-not-serde", "processor/store-codec-cannot"],
    },
    Rule {
        name: "a codec that cannot take a key is called so",
        file: PRIVATE,
        from: "impl<T, C: Encode<T> + Decode<T>> KeyCodec<T> for C {}",
        to: "impl<T, C> KeyCodec<T> for C {}",
        cases: &["key/json-without-serde"],
    },
    Rule {
        name: "what stands behind the value of a `Keyed` is a codec",
        file: PRIVATE,
        from: "impl<C: Codec> KeyedCodec for C {}",
        to: "impl<C> KeyedCodec for C {}",
        cases: &["processor/keyed-by-key"],
    },
    Rule {
        name: "a key without a codec is one error",
        file: PRIVATE,
        from: "impl<K: Key> HasCodec for K {}",
        to: "impl<K> HasCodec for K {}",
        cases: &["source/key-without-codec", "processor/key-without-codec"],
    },
    Rule {
        name: "a codec that cannot encode is called so",
        file: "stoat-core/src/codec/mod.rs",
        from: "    message = \"codec `{Self}` cannot encode `{T}` [S110]\",\n",
        to: "",
        cases: &["source/decode-only-undeclared"],
    },
    Rule {
        name: "a key without a codec is called so",
        file: "stoat-core/src/key.rs",
        from: "    message = \"the key type `{Self}` has no declared codec [S111]\",\n",
        to: "",
        cases: &["topology/aggregate-without-codec", "topology/group-by-without-codec"],
    },
    Rule {
        name: "a watermark that nothing derives is called so",
        file: "stoat-core/src/time/watermark.rs",
        from: "    message = \"`{Self}` does not say how a watermark follows the records of a partition [S109]\",\n",
        to: "",
        cases: &["source/watermark-type"],
    },
    Rule {
        name: "what is not the time of a record is called so",
        file: "stoat-core/src/time/watermark.rs",
        from: "    message = \"`{Self}` is not the time of a record [S112]\",\n",
        to: "",
        cases: &["source/timestamp-type"],
    },
    Rule {
        name: "what is not a source is called so",
        file: "stoat-core/src/source.rs",
        from: "    message = \"`{Self}` is not a source [S530]\",\n",
        to: "",
        cases: &["topology/not-a-source"],
    },
    Rule {
        name: "what is not a sink is called so",
        file: "stoat-core/src/sink.rs",
        from: "    message = \"`{Self}` is not a sink [S530]\",\n",
        to: "",
        cases: &["topology/not-a-sink"],
    },
    Rule {
        name: "a function that takes streams is a fragment",
        file: FRAGMENT,
        from: "impl<T: Labelled> FromFragment for Fragment<T> {",
        to: "impl FromFragment for () {\n    type Out = ();\n    fn out(self, _: &str) {}\n}\n\n\
             impl<T: Labelled> FromFragment for Fragment<T> {",
        cases: &["topology/unknown-function", "topology/unknown-builder-function"],
    },
    Rule {
        name: "a fragment returns streams",
        file: FRAGMENT,
        from: "impl<S: Streams, const N: usize> Streams for [S; N] {",
        to: "impl Streams for i32 {\n    type Erased = ();\n    fn erased(self) {}\n}\n\n\
             impl<S: Streams, const N: usize> Streams for [S; N] {",
        cases: &["fragment/returns-a-value"],
    },
];

/// What the compiler says about one case.
#[derive(Clone, Debug, Default, PartialEq)]
struct Said {
    /// The first line of each error.
    errors: Vec<String>,
    /// All of them as they are shown, without the numbers of lines.
    shown: String,
}

/// Takes each rule out of a copy of the sources, and has its cases compiled.
pub(crate) fn run(only: Option<&str>) -> Result<()> {
    let copy = std::env::temp_dir().join(format!("stoat-rules-{}", std::process::id()));
    let result = mutants::copy(&copy).and_then(|()| lose_each(&copy, only));
    fs::remove_dir_all(&copy).context(|| format!("cannot remove {}", copy.display()))?;
    result
}

fn lose_each(copy: &Path, only: Option<&str>) -> Result<()> {
    let steps = Steps::new(1);
    let chosen: Vec<&Rule> = RULES.iter().filter(|r| only.is_none_or(|o| r.name.contains(o))).collect();
    // As examples of the package they see what they see in the tests.
    let examples = copy.join("ui-tests/examples");
    fs::create_dir_all(&examples).context(|| format!("cannot make {}", examples.display()))?;
    let mut all: Vec<&str> = chosen.iter().flat_map(|r| r.cases.iter().copied()).collect();
    all.sort_unstable();
    all.dedup();
    for case in &all {
        let (from, to) = (root().join(source(case)), examples.join(format!("{}.rs", example(case))));
        fs::copy(&from, &to).context(|| format!("cannot copy {}", from.display()))?;
    }
    let before = check(copy, &all)?;
    let (mut lost, mut table) = (Vec::new(), vec!["| rule | case | without the rule |\n|---|---|---|".to_owned()]);
    for rule in &chosen {
        let path = copy.join(rule.file);
        let text = fs::read_to_string(&path).context(|| format!("cannot read {}", rule.file))?;
        let write = |text: &str| fs::write(&path, text).context(|| format!("cannot write {}", rule.file));
        write(&text.replacen(rule.from, rule.to, 1))?;
        let after = check(copy, rule.cases).map_err(|e| format!("without \"{}\": {e}", rule.name));
        write(&text)?;
        let after = after?;
        for case in rule.cases {
            let (was, is) = (&before[*case], after.get(*case).cloned().unwrap_or_default());
            let verdict = if was.errors.is_empty() {
                return Err(format!("{case} compiles with all rules").into());
            } else if is.errors.is_empty() {
                "it compiles".to_owned()
            } else if is.errors != was.errors {
                format!("other words: {}", is.errors.join("; "))
            } else if is.shown != was.shown {
                "the same first line, other notes".to_owned()
            } else {
                lost.push(format!("{} ({case})", rule.name));
                "**nothing changes**".to_owned()
            };
            let line = format!("| {} | {case} | {} |", rule.name, verdict.replace('|', "\\|"));
            eprintln!("  {line}");
            table.push(line);
        }
    }
    println!("{}", table.join("\n"));
    eprintln!("  {} rules in {}", chosen.len(), steps.elapsed());
    if lost.is_empty() { Ok(()) } else { Err(format!("no case notices the loss of: {}", lost.join(", ")).into()) }
}

/// The program of a case.
fn source(case: &str) -> String {
    let (group, name) = case.split_once('/').unwrap_or((case, ""));
    format!("ui-tests/ui/{group}/fail/{name}.rs")
}

fn example(case: &str) -> String {
    case.replace('/', "-")
}

/// Compiles cases, and hears what is said about each.
fn check(copy: &Path, cases: &[&str]) -> Result<BTreeMap<String, Said>> {
    // A folder of its own: cargo tells two copies of a workspace apart by their times only, and would hand the tree what was
    // made of the copy.
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let mut cargo = cargo();
    cargo.current_dir(copy).env("CARGO_TARGET_DIR", target.join("rules"));
    cargo.args(["check", "--package", "stoat-ui-tests", "--keep-going", "--message-format", "json"]);
    for case in cases {
        cargo.args(["--example", &example(case)]);
    }
    let out = cargo.stdin(Stdio::null()).output().context(|| "cannot start cargo".to_owned())?;
    let mut said: BTreeMap<String, Said> = cases.iter().map(|c| ((*c).to_owned(), Said::default())).collect();
    let mut heard = false;
    for message in String::from_utf8_lossy(&out.stdout).lines().filter_map(|l| serde_json::from_str::<Value>(l).ok()) {
        heard |= message["reason"] == "build-finished";
        let text = &message["message"];
        if message["reason"] != "compiler-message"
            || text["level"] != "error"
            || text["spans"] == Value::Array(Vec::new())
        {
            continue;
        }
        let (first, shown) =
            (text["message"].as_str().unwrap_or_default(), text["rendered"].as_str().unwrap_or_default());
        let name = message["target"]["name"].as_str().unwrap_or_default();
        let Some(case) = cases.iter().find(|c| example(c) == name) else {
            return Err(format!("the sources do not compile:\n{shown}").into());
        };
        let said = said.entry((*case).to_owned()).or_default();
        said.errors.push(first.to_owned());
        said.shown.push_str(&without_numbers(shown));
    }
    if heard { Ok(said) } else { Err(tail(&String::from_utf8_lossy(&out.stderr), 30).into()) }
}

/// Numbers of lines and columns move with each change.
fn without_numbers(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_rule_can_still_be_taken_out() {
        for Rule { name, file, from, cases, .. } in RULES {
            let text = fs::read_to_string(root().join(file)).unwrap();
            assert_eq!(text.matches(from).count(), 1, "\"{name}\" in {file}:\n{from}");
            for case in *cases {
                assert!(root().join(source(case)).is_file(), "\"{name}\": there is no {case}");
            }
        }
    }

    /// The codes that do not go through the collector of the macros: their rules are here.
    #[test]
    fn each_code_of_a_bound_or_a_constant_has_its_rule() {
        fn visit(dir: &Path, found: &mut BTreeSet<String>) {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    visit(&path, found);
                } else if path.extension().is_some_and(|e| e == "rs") {
                    let text = fs::read_to_string(&path).unwrap();
                    let codes = text.split("[S").skip(1).filter_map(|rest| rest.get(..4));
                    let codes = codes.filter(|c| c.ends_with(']') && c[..3].bytes().all(|b| b.is_ascii_digit()));
                    found.extend(codes.map(|c| format!("S{}", &c[..3])));
                }
            }
        }
        let mut codes = BTreeSet::new();
        visit(&root().join("stoat-core/src"), &mut codes);
        codes.insert("S322".to_owned());
        assert!(codes.len() > 20, "{codes:?}");
        for case in RULES.iter().flat_map(|r| r.cases) {
            let kept = fs::read_to_string(root().join(source(case)).with_extension("stderr")).unwrap();
            codes.retain(|c| !kept.contains(&format!("[{c}]")));
        }
        assert!(codes.is_empty(), "no rule of this list has a case with {codes:?}");
    }
}
