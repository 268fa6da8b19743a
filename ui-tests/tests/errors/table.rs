//! What each code means: the case that shows it, how it is mended, and what would have happened at run time.

/// One page.
pub(crate) struct Page {
    /// The code that stands in the message.
    pub(crate) code: &'static str,
    /// What is wrong, in a few words.
    pub(crate) title: &'static str,
    /// The wrong program: a case below `ui/`.
    pub(crate) case: &'static str,
    /// The mended program: replacements in the wrong one, each applied once.
    pub(crate) mend: &'static [(&'static str, &'static str)],
    /// Why this is refused.
    pub(crate) why: &'static str,
}

macro_rules! pages {
    ($($code:ident $case:literal $title:literal { $($from:literal => $to:literal),+ $(,)? } $why:literal)*) => {
        &[$(Page {
            code: stringify!($code),
            title: $title,
            case: $case,
            mend: &[$(($from, $to)),+],
            why: $why,
        }),*]
    };
}

/// All pages, by code.
pub(crate) const PAGES: &[Page] = pages! {
    // --- arguments of attributes
    S001 "source/fail/not-an-argument" "something in an attribute is no argument" { "\"clicks\", " => "" }
        "Every argument has a name, so that an attribute reads the same years later. A value without one would be ignored, and the source would read the topic that another argument names."
    S002 "source/fail/typo" "an attribute does not know this argument" { "topik" => "topic" }
        "An ignored argument is a setting that you believe in and that is not there: a bound that is not applied, a name that is not stable."
    S003 "source/fail/argument-twice" "an argument is given twice" { ", topic = \"more\"" => "" }
        "One of the two would win, and which one is nobody's promise: after an update the source could read another topic."
    S004 "source/fail/type-as-a-string" "an argument has another kind of value" { "\"UserId\"" => "UserId" }
        "Types are written as types, so that the compiler knows them and an editor can follow them; names of topics and stores are strings, because they live outside of the program."
    S005 "processor/fail/clock-unknown" "an argument takes one of a few words" { "processing" => "wall" }
        "There are two clocks: `event` follows the timestamps of the records, `wall` the time of day. With a guess the timer would fire at another time than you meant."
    S006 "source/fail/duration" "this is not a duration" { "10 parsecs" => "10s" }
        "A duration is a whole number and a unit: `ms`, `s`, `m`, `h` or `d`. A number without a unit is read as one by some systems and as another by others."
    // --- sources and sinks
    S101 "source/fail/not-a-struct" "`#[source]` or `#[sink]` on something that is not a struct" { "enum Clicks {}" => "struct Clicks;", "use stoat_core::prelude::*;\n" => "use stoat_core::prelude::*;\nuse stoat_ui_tests::*;\n" }
        "The struct is the name by which topologies read the topic: `t.source::<Clicks>()`. It holds nothing."
    S102 "source/fail/generic" "a generic source or sink" { "struct Clicks<T>(T);" => "struct Clicks;" }
        "A topic holds one kind of records. A source that is generic would read the same bytes as several types, and all but one of them would fail at the first record."
    S103 "source/fail/name-of-topic" "Kafka does not allow this name of a topic" { "my clicks" => "my-clicks" }
        "The broker would refuse it at the start: names have up to 249 letters, digits, `.`, `_` and `-`."
    S104 "source/fail/no-topic" "a source or sink without a topic or without a type of values" { "#[source(" => "#[source(topic = \"clicks\", " }
        "The name of the struct is not taken for that of the topic: renaming a type would then read another topic."
    S105 "source/fail/decode-only-without-codec" "`decode_only` without a codec" { "key = UserId, " => "key = UserId, key_codec = Legacy, " }
        "`decode_only` is for a codec that can read keys and not write them. The codec that the key type names can do both, so there is nothing to declare."
    S106 "source/fail/key-codec-without-key" "a codec of keys without a type of keys" { "key_codec = Utf8" => "key = UserId" }
        "Without `key` the key is bytes, which no codec reads."
    S107 "source/fail/two-strategies" "two ways for the watermark to follow the records" { "monotonic, " => "" }
        "One of the two would win. With the stricter one records that are late by seconds would be dropped, with the other each window would stay open for longer than you meant."
    S108 "source/fail/close-on-idle-zero" "no pause is long enough to close what is open" { "\"0s\"" => "\"30s\"" }
        "Silence of that length ends windows and sessions. After none at all each record would end the one that it belongs to."
    S109 "source/fail/watermark-type" "the type of `watermark = ..` derives none" { "struct ByHour;\n" => "struct ByHour;\n\nimpl stoat_core::time::WatermarkGenerator for ByHour {\n    fn on_record(&mut self, timestamp: Timestamp, _: &stoat_core::record::RawRecord<'_>) -> Timestamp {\n        Timestamp(timestamp.0 / 3_600_000 * 3_600_000)\n    }\n}\n" }
        "The watermark says when windows close and timers fire. A type that does not derive it would leave both waiting for ever."
    S110 "source/fail/decode-only-undeclared" "a codec cannot write (or read) this type" { "key_codec = Legacy, value = Event" => "key_codec = Legacy, value = Event, decode_only" }
        "Records are put on lanes by the bytes of their key. Where a codec is not canonical these bytes come from writing the decoded key again, and this codec cannot write it."
    S111 "source/fail/key-without-codec" "a type is used as a key and declares no codec" { "key = Region" => "key = UserId" }
        "Each key type names one codec, so that the same key has the same bytes everywhere and so runs on the same lane. Without it, state of one key could end up on two lanes, and each would know half of it."
    S112 "source/fail/timestamp-type" "what `timestamp = ..` gives is not a time" { "i64::from(r.value.count)" => "Timestamp::from_millis(i64::from(r.value.count))" }
        "A bare number does not say whether it counts seconds, milliseconds or nanoseconds. Taken for another unit, each record would be far too old or far ahead, and nothing would close."
    S113 "processor/fail/state-not-serde" "a codec cannot take these values or keys" { "#[derive(Default)]" => "#[derive(Default, serde::Serialize, serde::Deserialize)]" }
        "State, records and keys are bytes on disk and in topics. A codec that does not know the type could neither keep a value nor bring it back after a restart."
    // --- keys
    S201 "key/fail/no-codec" "a key that names no codec" { "struct UserId" => "#[key(codec = Utf8)]\nstruct UserId" }
        "The codec decides the bytes of the key: lane, partition and stored state hang on them. A default would be fixed for ever by the first deployment."
    S202 "key/fail/two-key-attributes" "a key with two `#[key(..)]`" { "#[key(codec = Json)]\n" => "" }
        "A key has one codec. With two, a join or a restart could look for the state of a key under other bytes than those it was stored under."
    S203 "key/fail/union" "a union as a key" { "#[derive(Key, Clone, Copy)]" => "#[derive(Key, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]", "union" => "enum", "number: u32" => "Number(u32)", "bytes: [u8; 4]" => "Bytes([u8; 4])" }
        "Nobody knows which field of a union is meant, so nobody can write it twice in the same way."
    S204 "key/fail/float" "a type in a key has no stable bytes" { "amount: f64" => "cents: i64", "#[derive(Key, Clone, PartialEq, Serialize, Deserialize)]" => "#[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]", "impl Eq for Price {}\nimpl std::hash::Hash for Price {\n    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}\n}\n\n" => "" }
        "Two equal keys must have equal bytes. Floats have several encodings of one number, hash maps and sets have no order, `usize` has another width on another machine: state stored under one of them would not be found under the other."
    S205 "key/fail/serde-skip" "an attribute of serde makes unequal keys alike" { "    #[serde(skip)]\n" => "" }
        "Two keys that differ in the skipped field would get the same bytes: two customers would share one session, one timer and one row of state."
    S206 "key/fail/codec-takes-one-field" "a codec that writes one value, and a key of several fields" { "Utf8" => "Json", "Hash)]" => "Hash, serde::Serialize, serde::Deserialize)]" }
        "`Utf8`, `Be` and `Bytes` write exactly one value; the other fields would be lost."
    S207 "key/fail/codec-cannot-by-name" "a codec that does not write this type" { "Utf8" => "Be" }
        "`Utf8` writes text, `Be` integers of fixed width, `Bytes` bytes. Nothing else is guessed."
    S208 "key/fail/foreign" "a type in a key is not known to have stable bytes" { "struct Gap(std::time::Duration);" => "struct Gap(u64);" }
        "How a foreign type is written is its author's business and may change with an update of that crate; the state of all keys would then be lost. Implement `KeyField` for a type of your own that vouches for its bytes."
    S209 "key/fail/codec-cannot" "a codec cannot write the one field of a key" { "struct Gap(std::time::Duration);" => "struct Gap(String);" }
        "The key is written as its one field, so the codec must take the type of that field."
    // --- processors
    S301 "processor/fail/not-a-struct" "`#[processor]` on something that is not a struct" { "enum P {}" => "struct P;" }
        "The fields of a processor are its stores and timers; an enum or a function has none that are always there."
    S302 "processor/fail/no-input" "a processor without `input`" { "#[processor(output" => "#[processor(input = (UserId, Event), output" }
        "The types of key and value are those that the stream in front of it must have; they also complete `Timer` to `Timer<UserId>`."
    S303 "processor/fail/input-without-key" "an `input` without a key" { "input = Event" => "input = (UserId, Event)" }
        "A processor works per key: its state and its timers belong to the key of the record."
    S304 "processor/fail/borrow" "a processor that borrows" { "P<'a>" => "P", "&'a str" => "String", "fn main() {}" => "#[handlers]\nimpl P {\n    #[process]\n    fn on_record(&mut self, record: Record<String, u64>, cx: &mut Context<Self>) -> Result<()> {\n        cx.forward(record.value)\n    }\n}\n\nfn main() {}" }
        "A processor lives as long as its lane, which begins anew after a fault. What it borrows would be gone by then."
    S305 "processor/fail/unnamed-fields" "a processor with fields without names" { "struct P(Keyed<Session>);" => "struct P {\n    #[state]\n    open: Keyed<Session>,\n}" }
        "The name of a field names its store and its changelog topic. A number in its place would change with the order of the fields, and state would be found in the wrong one."
    S306 "processor/fail/mark-typo" "a field has an attribute that is almost one of ours" { "#[stat]" => "#[state]" }
        "Without its mark the field would be configuration, which somebody else has to fill in."
    S307 "processor/fail/two-roles" "a field with two roles" { "    #[local]\n" => "" }
        "A field is state, a timer, a store or local to its lane. What is local is not restored after a crash, what is state is."
    S308 "processor/fail/unmarked" "a state, timer or store without its mark" { "    open:" => "    #[state]\n    open:" }
        "Only the engine can make these fields, from what the changelog holds. Without a mark the field would be configuration."
    S309 "processor/fail/state-type" "a `#[state]` field of another type" { "open: Session" => "open: Keyed<Session>" }
        "A plain value in a processor is shared by all keys of a lane, and which keys share a lane depends on the number of lanes. `Keyed<V>` holds one value per key, in a changelog."
    S310 "processor/fail/timer-alias" "a `#[timer]` field of another type" { "idle: Idle" => "idle: Timer", "type Idle = Timer<UserId>;\n\n" => "" }
        "The key type is filled in by syntax, and an attribute cannot look through an alias. (Otherwise a timer could be set for a key of another type.)"
    S311 "processor/fail/store-type" "a `#[store]` field of another type" { "open: Vec<Session>" => "open: KeyValueStore<UserId, Session>" }
        "A store survives a crash because each write goes to its changelog; a plain collection would be empty after a restart."
    S312 "processor/fail/codec-twice" "a codec is named twice" { "#[state(codec = Json)]" => "#[state]" }
        "The attribute and the type both name it. If they differed later, half of the state could not be read."
    S313 "processor/fail/duplicate-store-names" "two fields with one stable name" { "name = \"type\"" => "name = \"open\"" }
        "Both would write into one changelog topic, and after a restart each would read what the other wrote."
    S314 "processor/fail/mark-with-a-value" "a mark is written in another form" { "#[state = \"sessions\"]" => "#[state(name = \"sessions\")]" }
        "Arguments of a mark stand in brackets."
    S315 "processor/fail/keyed-by-key" "a `Keyed` with something else than a codec behind its value" { "Keyed<UserId, Session>" => "Keyed<Session>" }
        "A `Keyed` is the value of the key that the record or the timer has, so the key is not named. What stands in its place would be taken for the value, and the value for the codec."
    S320 "processor/fail/timer-key-type" "a timer with another type of keys" { "Timer<OrderId>" => "Timer" }
        "A timer fires for the key that it was set for, on the lane of that key's records. With another type its bytes, and so its lane, would differ: state of one key would be touched by two lanes at once."
    S321 "processor/fail/store-key-type" "a store with another type of keys" { "KeyValueStore<OrderId, Session>" => "KeyValueStore<UserId, Session>" }
        "A write goes to the lane that works for the record's key. Under a key of another type it would belong to a lane that knows nothing of it, and one of two concurrent writes would be lost."
    S322 "handlers/fail/timer-without-handler" "a timer that nobody handles" { "        Ok(())\n    }\n}" => "        Ok(())\n    }\n\n    #[on_timer(idle)]\n    fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {\n        Ok(())\n    }\n}" }
        "It would fire and nothing would happen: sessions that never close, retries that never come."
    S324 "handlers/fail/no-handlers" "a processor without handlers" { "#[topology]" => "#[handlers]\nimpl Bare {\n    #[process]\n    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {\n        cx.forward(Session { count: event.value.count })\n    }\n}\n\n#[topology]" }
        "The struct declares what the processor owns; what it does stands in an impl under `#[handlers]`."
    // --- handlers
    S401 "handlers/fail/not-an-impl" "`#[handlers]` on something that is not `impl P`" { "struct P;" => "impl P {\n    #[process]\n    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {\n        Ok(())\n    }\n}", "#[handlers]" => "#[processor(input = (UserId, Event), output = Session)]\nstruct P;\n\n#[handlers]" }
        "Handlers are methods of the processor, in one inherent impl."
    S402 "handlers/fail/no-process" "a processor that takes no records" { "impl P {}" => "impl P {\n    #[process]\n    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {\n        Ok(())\n    }\n}" }
        "Every record that reaches it would be dropped without a trace."
    S403 "handlers/fail/mark-typo" "a method has an attribute that is almost one of ours" { "#[proces]" => "#[process]" }
        "The method would be an ordinary one that nobody calls."
    S404 "handlers/fail/two-marks" "a method that handles two things" { "    #[on_timer(idle)]\n" => "" }
        "A record, a timer and a punctuator bring different arguments. Let two handlers call one method."
    S405 "handlers/fail/process-with-arguments" "`#[process]` with arguments" { "#[process(every = \"10s\")]" => "#[process]" }
        "It is called for each record; what is called at intervals is a punctuator, `#[punctuate(every = \"10s\")]`."
    S406 "handlers/fail/two-process" "two handlers for records" { "\n    #[process]\n    fn again(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {\n        Ok(())\n    }\n" => "" }
        "A processor has one input. Two kinds of records are two processors, or one `enum` of values."
    S407 "handlers/fail/on-timer-without-field" "`#[on_timer]` without the timer" { "#[on_timer]" => "#[on_timer(idle)]", "\n    #[on_timer(idle)]\n    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {\n        Ok(())\n    }\n" => "" }
        "A processor may have several timers; the handler of one must not be called for another."
    S408 "handlers/fail/two-of-one-timer" "a timer with two handlers" { "\n    #[on_timer(idle)]\n    fn again(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {\n        Ok(())\n    }\n" => "" }
        "Which of the two comes first would be nobody's promise, and one may forward what the other has just removed."
    S409 "handlers/fail/punctuate-zero" "a punctuator without an interval" { "0s" => "10s" }
        "It would be called without end, and no record would ever be processed."
    S410 "handlers/fail/process-shape" "a handler of another shape" { "fn on_event(event: Record<UserId, Event>) {}" => "fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {\n        Ok(())\n    }" }
        "The engine calls it with the processor, the record and the context, and needs to know whether it went well: an error undoes what the handler did."
    S420 "processor/fail/input-of-another-key" "a handler with other types than the processor declares" { "input = (OrderId, Event)" => "input = (UserId, Event)" }
        "`#[processor(input = ..)]` says which records come; the handler cannot get others. Which of the two is wrong, only you know."
    S421 "handlers/fail/process-return" "a handler that returns something else" { "-> u64 {\n        1" => "-> Result<()> {\n        Ok(())" }
        "What is forwarded goes through `cx.forward(..)`; the result says whether the handler's effects count."
    S422 "handlers/fail/on-timer-names-state" "`#[on_timer]` names a field that is no timer" { "    open: Keyed<Session>,\n" => "    open: Keyed<Session>,\n    #[timer]\n    idle: Timer,\n", "#[on_timer(open)]" => "#[on_timer(idle)]" }
        "State does not fire. The handler would never be called."
    S423 "handlers/fail/forward-without-output" "a processor without `output` forwards something" { "input = (UserId, Event)" => "input = (UserId, Event), output = Session" }
        "Without `output` nobody is connected behind the processor, and the record would be dropped. A punctuator without `over` has no key under which it could forward."
    S424 "handlers/fail/set-for-undeclared" "a timer is set for another key without being declared so" { "    #[timer]" => "    #[timer(foreign)]" }
        "Another key may live on another lane, which runs at the same time. A timer set for it must wait for the end of the epoch, or two lanes would race for one key; `#[timer(foreign)]` says that you know."
    // --- topologies
    S501 "topology/fail/not-a-function" "`#[topology]` on something that is not a function" { "struct Pipeline;" => "fn pipeline(t: &mut Topology) {\n    t.source::<Events>().discard();\n}" }
        "A topology is a function that wires sources, operators and sinks."
    S502 "topology/fail/async" "a topology function of another shape" { "async fn" => "fn" }
        "The function only declares: it runs once, before anything is read, and the same types come out each time."
    S503 "topology/fail/control-flow" "a stream under control flow" { "    if cfg!(debug_assertions) {\n        events.discard();\n    } else {\n        events.for_each(|_, _| {});\n    }\n" => "    events.filter(|_, e| e.count > 0).discard();\n" }
        "The graph would depend on something that is only known at run time. Diagrams and checks could be wrong, and state could belong to a step that is not there after the next start."
    S504 "topology/fail/cfg" "a step under `#[cfg(..)]`" { "    #[cfg(debug_assertions)]\n" => "" }
        "Two builds of one program would have different stores under the same application id, and each start would find state that its plan does not know."
    S505 "topology/fail/never-consumed" "a stream that nobody consumes" { "e.count);" => "e.count).discard();" }
        "Every record would go through all steps and then nowhere. Mostly a sink was forgotten; where it is meant, `.discard()` says so."
    S506 "topology/fail/used-twice" "a stream that is used twice" { "    events.process" => "    let [events, rest] = events.fan_out();\n    events.process", "    events.discard()" => "    rest.discard()", "let events = t.source::<Events>();" => "let input = t.source::<Events>();", "= events.fan_out()" => "= input.fan_out()" }
        "A record goes to one consumer. Two need a place where it is copied, and the order of the copies is part of the result: `fan_out` is that place."
    S507 "topology/fail/duplicate-names" "two streams with one name" { "let events = events.map" => "let counts = events.map", "    events.discard" => "    counts.discard" }
        "A `let` names the node, its stores and its changelog topics. Two of one name would share a changelog, or one would get a number that changes with the order of the lines."
    S508 "topology/fail/unknown-function" "a stream goes into a function that is no fragment" { "fn helper<S>(_: S) {}" => "#[fragment]\nfn helper<L: 'static>(events: Stream<UserId, Event, L>) {\n    events.discard();\n}" }
        "The macro reads the text of this function only. What happens elsewhere would be missing in the graph: in diagrams, in checks of names and stores, and where a stream is used twice. A `#[fragment]` is read as well, and is one node here."
    S509 "topology/fail/in-a-macro" "a stream goes into a macro" { "let n = vec![events].len();" => "events.discard();" }
        "What the macro makes of it is not known here, so the graph would have a gap."
    S510 "topology/fail/assigned" "a stream is used by something else than its methods" { "    let later;\n    later = events;\n    later.discard();" => "    events.discard();" }
        "Only methods of a stream are steps that can be read; a stream in a variable that is assigned, in a collection or in a struct could be consumed anywhere."
    S511 "topology/fail/several-streams-in-one-name" "several streams in one name" { "let events = t.source::<Events>().fan_out::<2>();" => "let [a, b] = t.source::<Events>().fan_out();\n    a.discard();\n    b.discard();" }
        "Each stream needs a name of its own: it names the nodes and stores that follow, and its consumer is counted."
    S512 "topology/fail/aggregation-without-a-name" "an aggregation or a boundary without a name" { "    t.source::<Events>().group_by_key().count().to_stream()" => "    let counts = t.source::<Events>().group_by_key().count();\n    counts.to_stream()" }
        "Its result is kept in a store and in a changelog topic, which are called by this name. A name made of the place in the program would change with an edit elsewhere, and the state would start empty. So it is with a boundary: the time that the steps behind it have reached is committed under its name, and under another one what was late before a restart would be taken again."
    S513 "topology/fail/type-as-a-value" "a source, a processor or a sink is given as a value" { "source(Events)" => "source::<Events>()", "process(Sessionize)" => "process::<Sessionize>()", "sink(Sessions)" => "sink::<Sessions>()" }
        "The topology is a description: each lane of each partition makes its own instance of the processor, of which there is none yet. So it is named by its type, as a topic is."
    S520 "topology/fail/input-key" "the stream has other keys than the processor takes" { "orders.process" => "let by_user = orders.select_key(|_, e| UserId(e.region.clone())).repartition();\n    by_user.process" }
        "The processor's state and timers belong to its type of keys. Records with another key would be stored under bytes that no later record of that key finds."
    S521 "topology/fail/input-value" "the stream carries other values than the processor takes" { "Order { cents: 1 }" => "Event { region: String::new(), count: 1 }" }
        "The handler could not read the value."
    S522 "topology/fail/sink-key" "the stream has other keys than the sink writes" { ".sink" => ".select_key(|_, _| UserId(String::new())).sink" }
        "Readers of the topic expect keys of one type, and find records by the partition that its bytes choose."
    S523 "topology/fail/sink-value" "the stream carries other values than the sink writes" { ".sink" => ".map_values(|e| Session { count: e.count }).sink" }
        "Readers of the topic would fail at the first such record."
    S524 "topology/fail/not-a-processor" "a type that is not a processor" { "struct Plain;" => "#[processor(input = (UserId, Event), output = Session)]\nstruct Plain;\n\n#[handlers]\nimpl Plain {\n    #[process]\n    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {\n        cx.forward(Session { count: event.value.count })\n    }\n}" }
        "Without the attribute nobody knows its types, stores and handlers."
    S525 "topology/fail/configured" "a processor that needs values of its own" { "process::<Limit>()" => "process_with(|| Limit::init(10))" }
        "Fields without a mark are configuration. They have no default: a limit of zero would drop everything."
    S526 "topology/fail/decode-only-timer" "state or a timer behind a source that can only decode keys" { "t.source::<Old>()." => "t.source::<Old>().select_key(|key, _| key.clone()).repartition().named(\"again\")." }
        "A timer is stored under the bytes of its key, and so is state. The codec of this source cannot write them: after a restart nothing would be found."
    S527 "topology/fail/timer-after-key-change" "state or a timer behind a changed key" { "moved.process" => "let moved_there = moved.repartition();\n    moved_there.process" }
        "The records still run on the lane of their old key. State of the new key would be touched by several lanes at once: lost updates, and results that depend on the number of lanes."
    S528 "topology/fail/timer-codec-differs" "a timer or store writes keys with another codec than the lane" { "Timer<UserId, Json>" => "Timer" }
        "The bytes of a key choose its lane. With two codecs one key has two lanes: the timer would fire on another lane than the records of its key, at the same time as they do."
    S529 "topology/fail/processor-not-consumed" "nobody consumes what a processor forwards" { "process::<Sessionize>()" => "process::<Sessionize>().sink::<Sessions>()" }
        "What its handlers forward would go nowhere. A processor that is meant to end the stream declares no `output`."
    S530 "topology/fail/not-a-source" "a type that is not a source, or not a sink" { "Sessions" => "Events" }
        "A source says how a topic is read, a sink how it is written. One topic that is both read and written has one of each."
    S531 "topology/fail/topic-twice" "two sources on one topic" { "    t.source::<Events>().discard();\n    t.source::<Again>().discard();" => "    let [a, b] = t.source::<Events>().fan_out();\n    a.discard();\n    b.discard();", "#[source(topic = \"events\", key = UserId, value = Event)]\nstruct Again;\n\n" => "" }
        "Each partition has one offset per application. Two sources would share it, and after a restart one of them would miss what the other had read."
    S532 "topology/fail/store-name-of-two-processors" "two processors with one name of a store" { "    #[state]\n    open" => "    #[state(name = \"open-2\")]\n    open" }
        "Both would write into one changelog topic, and after a restart each would read what the other wrote."
    S533 "topology/fail/count-without-group" "a stream is counted that is not grouped" { "count()" => "group_by_key().count()" }
        "A count is kept for each key, in a store on the key's lane. Grouping says which key that is, and hands the records over to its lane where they are on another one."
    S534 "topology/fail/table-as-a-stream" "a table is used as a stream" { "counts.discard" => "counts.to_stream().discard" }
        "A table is the latest value of each key, a stream every change of it. Which of the two goes on is for you to say."
    // --- fragments
    S701 "fragment/fail/not-a-function" "`#[fragment]` on something that is not a function" { "struct Valid;" => "fn valid<L: 'static>(events: Stream<UserId, Event, L>) -> Stream<UserId, Event, L> {\n    events.filter(|_, e| e.count > 0)\n}" }
        "A fragment is a function that takes streams and returns streams."
    S702 "fragment/fail/returns-a-value" "a fragment returns something that is no stream" { "-> u32 {\n    events.discard();\n    1" => "{\n    events.discard();" }
        "What a topology declares is known when it is compiled; a value that comes out of declaring could change what follows."
    S703 "fragment/fail/no-stream" "a fragment that takes no stream" { "fn valid(limit: u32) -> u32 {\n    limit" => "fn valid<L: 'static>(events: Stream<UserId, Event, L>, limit: u32) -> Stream<UserId, Event, L> {\n    events.filter(move |_, e| e.count < limit)" }
        "Without a stream or the builder it has no place in the graph. A function that has nothing to do with streams needs no attribute."
    // --- main
    S601 "main/fail/no-topology" "`#[stoat_core::main]` without a topology" { "#[stoat_core::main]" => "use stoat_core::prelude::*;\nuse stoat_ui_tests::*;\n\n#[topology]\nfn pipeline(t: &mut Topology) {\n    t.source::<Events>().discard();\n}\n\n#[stoat_core::main(pipeline)]" }
        "A program may have several topologies; which one runs is yours to say."
    S602 "main/fail/not-a-struct" "`#[stoat_core::main(..)]` on something that is not a struct" { "fn main() {}" => "struct App;" }
        "The attribute writes `fn main()` itself: it reads the configuration, runs the topology and handles signals."
    S603 "main/fail/no-topology-attribute" "`#[stoat_core::main(..)]` names a function without `#[topology]`" { "fn pipeline" => "#[topology]\nfn pipeline" }
        "`#[topology]` gives each stream its stable name and checks the wiring while you type. Without it stores and changelog topics would be named by their order, and a later edit would lose state."
};
