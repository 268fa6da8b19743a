//! Attribute macros of `stoat-core`, which re-exports and documents them.

mod endpoint;
mod handlers;
mod main_fn;
mod processor;
#[cfg(test)]
mod rules;
#[cfg(test)]
mod snapshot;
mod topology;

use proc_macro::TokenStream;

use endpoint::Kind;

/// Declares a topic that is read.
///
/// ```ignore
/// #[source(topic = "clicks", key = UserId, value = Click, out_of_orderness = "10s")]
/// struct Clicks;
/// ```
///
/// | argument | meaning | default |
/// |---|---|---|
/// | `topic = ".."` | the topic's name | must be given |
/// | `value = V` | the type of the values; `Option<V>` where a record may be a tombstone | must be given |
/// | `key = K` | the type of the keys; `Option<K>` where a record may have none | `Option<Vec<u8>>`, bytes as they are |
/// | `key_codec = C` | how keys are read | the codec that `K` names (`#[derive(Key)]`) |
/// | `value_codec = C` | how values are read | `Json` |
/// | `decode_only` | `key_codec` can read keys and not write them: state and timers are then refused | |
/// | `name = ".."` | the name of the source in messages and in the graph | the struct's name |
/// | `out_of_orderness = "10s"` | how far behind the largest timestamp the watermark stays | 10 s |
/// | `monotonic` | timestamps only rise: `out_of_orderness = "0s"` | |
/// | `watermark = G` | `G` derives the watermark: a `WatermarkGenerator` with `Default` | `out_of_orderness` |
/// | `timestamp = f` | `f` takes the time from the record: from `&Record<K, V>` to `Timestamp` or `Option<Timestamp>` | Kafka's |
/// | `no_timestamp = skip` | a record without a time is dropped and counted; `fail`: it ends the application | `fail` |
/// | `idleness = "5m"` | when a partition without records stops holding the watermark back; `"0s"`: never | 300 s |
/// | `close_on_idle = "1m"` | after so long a silence of all partitions event time goes on with the wall clock | never |
/// | `future_bound = "1h"` | how far ahead of the wall clock a record may move the watermark | 1 h |
/// | `crate = path` | the runtime, where it has another name | `::stoat_core` |
///
/// Durations are a whole number and a unit: `ms`, `s`, `m`, `h`, `d`. At most one of `out_of_orderness`, `monotonic` and
/// `watermark` is given.
#[proc_macro_attribute]
pub fn source(args: TokenStream, item: TokenStream) -> TokenStream {
    endpoint::expand(Kind::Source, args.into(), item.into()).into()
}

/// Declares a topic that is written.
///
/// ```ignore
/// #[sink(topic = "sessions", key = UserId, value = Session)]
/// struct Sessions;
/// ```
///
/// Takes `topic`, `value`, `key`, `key_codec`, `value_codec`, `name` and `crate`, as [`macro@source`] does. A value `None` of
/// `value = Option<V>` is written as a tombstone.
#[proc_macro_attribute]
pub fn sink(args: TokenStream, item: TokenStream) -> TokenStream {
    endpoint::expand(Kind::Sink, args.into(), item.into()).into()
}

/// Declares a processor: a struct that owns state and timers. Its handlers stand in an impl under [`macro@handlers`].
///
/// ```ignore
/// #[processor(input = (UserId, Click), output = Session)]
/// struct Sessionize {
///     #[state] open: Keyed<Session>,
///     #[timer] idle: Timer,
///     limit: u32,
/// }
/// ```
///
/// - `input = (K, V)`: the records that it takes.
/// - `output = W`: the key is kept, `cx.forward(value)`. `output = (J, W)`: each forward names a key,
///   `cx.forward(key, value)`. Without `output` nothing is forwarded.
///
/// Fields:
///
/// | mark | field | arguments |
/// |---|---|---|
/// | `#[state]` | `Keyed<V>`: the value of the current key | `name = ".."`, `codec = C` (of values; `Json`) |
/// | `#[timer]` | `Timer` (one pending time per key) or `Timers` (many); the key's type is filled in | `name`, `clock = wall` (else event time), `foreign` (may be set for other keys), `codec` (of keys) |
/// | `#[store]` | `KeyValueStore<K, V>`: explicit keys, scans | `name`, `codec` (of values) |
/// | `#[local]`, `#[local(expr)]` | anything, per lane, *not restored*: `Default::default()` or `expr` | |
/// | none | configuration: a parameter of the generated `P::init(..)` | |
///
/// The field's name names its store and its changelog topic, unless `name` says otherwise: renaming a field without it
/// starts with empty state. A value kept in a `#[local]` field from one key to the next makes results depend on the number
/// of lanes.
///
/// A processor without configuration runs by `.process::<P>()`, else by `.process_with(move || P::init(limit))`.
#[proc_macro_attribute]
pub fn processor(args: TokenStream, item: TokenStream) -> TokenStream {
    processor::expand(args.into(), item.into()).into()
}

/// Declares the handlers of a processor.
///
/// ```ignore
/// #[handlers]
/// impl Sessionize {
///     #[process]
///     fn on_click(&mut self, click: Record<UserId, Click>, cx: &mut Context<Self>) -> Result<()> { .. }
///
///     #[on_timer(idle)]
///     fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> { .. }
///
///     #[punctuate(every = "10s", clock = wall, over = open)]
///     fn report(&mut self, cx: &mut Context<Self>) -> Result<()> { .. }
/// }
/// ```
///
/// - `#[process]`: takes a record; each processor has one.
/// - `#[on_timer(field)]`: takes a timer of this field; each timer field has one.
/// - `#[punctuate(every = "..")]`: runs at intervals, of event time unless `clock = wall`. With `over = field` once per key
///   of that field, with the current key set; without it there is no current key, and nothing can be forwarded.
///
/// A handler may be an `async fn`: its lane waits, the records behind it wait in order, and other lanes go on. One call of a
/// lane runs at a time, so a wait of 10 ms is 100 records a second and lane. Its future must be `Send`; it runs on a tokio
/// runtime with timers and sockets, waits at most `stoat.handler.timeout`, and is called again when its epoch is replayed after
/// a fault: what it asks for elsewhere must bear that. The same question should get the same answer, or results depend on when
/// it was asked.
///
/// Other methods and attributes stay as they are. What a handler writes, sets and forwards takes effect when it returns `Ok`.
#[proc_macro_attribute]
pub fn handlers(args: TokenStream, item: TokenStream) -> TokenStream {
    handlers::expand(args.into(), item.into()).into()
}

/// Declares a topology: a function that wires sources, operators and sinks.
///
/// ```ignore
/// #[topology]
/// fn sessions(t: &mut Topology) {
///     let clicks = t.source::<Clicks>();
///     let closed = clicks.process::<Sessionize>();
///     closed.sink::<Sessions>();
/// }
///
/// fn main() -> Result<()> { sessions::app().run() }
/// ```
///
/// The body is ordinary Rust and is only read: the names of `let` bindings are the stable names of nodes and stores, so an
/// edit elsewhere renames nothing. What cannot be read is refused: a stream under control flow, inside a macro or given to
/// another function than a [`macro@fragment`]; a stream or table that nobody consumes, or that is used twice; an aggregation or
/// a `repartition()` without a name, under which something is stored; two streams of one name.
///
/// Beside the function it generates, under the same name in the namespace of types,
/// `sessions::app()` (an `App` to run), `sessions::build()` (the checked graph) and `sessions::GRAPH` (what the text shows,
/// for diagrams). The function's own name stays free for bindings. Beside a *module* of that name, write the function
/// inside it and `sessions::sessions::app()`.
///
/// Two sources on one topic and two processors with one store's name are found while the program is compiled.
#[proc_macro_attribute]
pub fn topology(args: TokenStream, item: TokenStream) -> TokenStream {
    topology::expand(args.into(), item.into()).into()
}

/// Declares a part of a topology that is a function of its own: it takes streams and returns streams.
///
/// ```ignore
/// #[fragment]
/// fn valid<L: 'static>(events: Stream<UserId, Event, L>) -> Stream<UserId, Event, L> {
///     events.filter(|_, e| e.count > 0)
/// }
///
/// #[topology]
/// fn pipeline(t: &mut Topology) {
///     let events = t.source::<Events>();
///     let good = valid(events);
///     good.sink::<Good>();
/// }
/// ```
///
/// It may also take `t: &mut Topology` and other values, and return an array, a tuple or nothing. Its body is read as that of
/// a [`macro@topology`]. In the description of the graph a call is one node; the names that it gives inside stand below the
/// name of that node (`good.kept`), so a fragment can be used more than once, unless a processor in it owns stores: a store is
/// called by its field. Only topologies and fragments can call it.
#[proc_macro_attribute]
pub fn fragment(args: TokenStream, item: TokenStream) -> TokenStream {
    topology::fragment::expand(args.into(), item.into()).into()
}

/// Writes `fn main()` for a topology: reads `stoat.yaml`, the environment and the command line, runs, handles signals.
///
/// ```ignore
/// #[stoat_core::main(sessions)]
/// struct App;
/// ```
///
/// The argument is the path of a [`macro@topology`] function.
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    main_fn::expand(args.into(), item.into()).into()
}
