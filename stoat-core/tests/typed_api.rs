//! The program of DESIGN.md §1 with its macros expanded by hand: this is what the macros generate.

#![allow(unused_qualifications, reason = "generated code spells its paths out")]

#[path = "../src/operator/harness.rs"]
mod harness;

use stoat_core::prelude::*;

const IDLE: Duration = Duration::from_mins(30);

// #[derive(Key, ..)] #[key(codec = Utf8)]
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct UserId(String);

impl stoat_core::key::Key for UserId {
    type Codec = Utf8;
}
impl stoat_core::key::KeyField for UserId {}
impl Encode<UserId> for Utf8 {
    fn encode(value: &UserId, out: &mut Vec<u8>) -> std::result::Result<(), CodecError> {
        <Utf8 as Encode<String>>::encode(&value.0, out)
    }
}
impl Decode<UserId> for Utf8 {
    fn decode(bytes: &[u8]) -> std::result::Result<UserId, CodecError> {
        <Utf8 as Decode<String>>::decode(bytes).map(UserId)
    }
}
const _: fn() = || stoat_core::__private::key_field::<String>();

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Click {
    page: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Session {
    clicks: u64,
}

impl Session {
    fn add(&mut self, _click: &Click) {
        self.clicks += 1;
    }
}

// #[source(topic = "clicks", key = UserId, value = Click, value_codec = Json)]
struct Clicks;
impl stoat_core::__private::Source for Clicks {
    type Key = UserId;
    type Value = Click;
    type KeyCodec = <UserId as stoat_core::__private::Key>::Codec;
    type ValueCodec = Json;
    type Lane = stoat_core::__private::Lane<<UserId as stoat_core::__private::Key>::Codec>;
    const TOPIC: &'static str = "clicks";
    const NAME: &'static str = "Clicks";
}

// #[sink(topic = "sessions", key = UserId, value = Session, value_codec = Json)]
struct Sessions;
impl stoat_core::__private::Sink for Sessions {
    type Key = UserId;
    type Value = Session;
    type KeyCodec = <UserId as stoat_core::__private::Key>::Codec;
    type ValueCodec = Json;
    const TOPIC: &'static str = "sessions";
    const NAME: &'static str = "Sessions";
}

// #[processor(input = (UserId, Click), output = Session)]
struct Sessionize {
    open: Keyed<Session>,
    idle: Timer<UserId>,
}

const _: () = {
    use stoat_core::__private;

    impl __private::Processor for Sessionize {
        type InKey = UserId;
        type InValue = Click;
        type OutKey = <Self as __private::Processor>::InKey;
        type OutValue = Session;
        type Mode = __private::Keep;
        const NAME: &'static str = "Sessionize";
        const FIELDS: &'static [__private::FieldDecl] = &[
            __private::FieldDecl::of::<Keyed<Session>>(
                "open",
                __private::FieldOptions { name: None, clock: __private::TimeDomain::Event },
            ),
            __private::FieldDecl::of::<Timer<UserId>>(
                "idle",
                __private::FieldOptions { name: None, clock: __private::TimeDomain::Event },
            ),
        ];
        fn visit_fields<V: __private::FieldVisitor<Self>>(&mut self, visitor: &mut V) {
            visitor.visit(&mut self.open);
            visitor.visit(&mut self.idle);
        }
    }

    impl<__K, __L> __private::FitsLane<__K, __L> for Sessionize
    where
        __L: __private::FitsField<Sessionize, Keyed<Session>>,
        __L: __private::FitsField<Sessionize, Timer<UserId>>,
    {
    }

    impl Sessionize {
        fn init() -> __private::Init<Self> {
            __private::Init::new(move |build| Sessionize { open: build.field(0), idle: build.field(1) })
        }
    }

    impl __private::Unconfigured for Sessionize {
        fn init() -> __private::Init<Self> {
            Sessionize::init()
        }
    }

    assert!(
        __private::contains(<Sessionize as __private::Handlers>::ON_TIMER, "idle"),
        "timer `idle` of `Sessionize` has no handler"
    );
};

// #[handlers]
impl Sessionize {
    // #[process]
    fn on_click(&mut self, click: Record<UserId, Click>, _cx: &mut Context<Self>) -> Result<()> {
        self.open.update(Session::default, |s| s.add(&click.value))?;
        self.idle.set(click.timestamp + IDLE)
    }

    // #[on_timer(idle)]
    fn close(&mut self, _fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(session) = self.open.take()? {
            cx.forward(session)?;
        }
        Ok(())
    }

    // #[punctuate(every = "10s", clock = wall, over = open)]
    fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
        if let Some(session) = self.open.get()? {
            cx.forward(session.clone())?;
        }
        Ok(())
    }
}

const _: () = {
    use stoat_core::__private;

    impl __private::Handlers for Sessionize {
        const ON_TIMER: &'static [&'static str] = &["idle"];
        const PUNCTUATORS: &'static [__private::Punctuator] = &[__private::Punctuator {
            every: Duration::from_secs(10),
            domain: __private::TimeDomain::Wall,
            over: __private::over(<Sessionize as __private::Processor>::FIELDS, "open"),
        }];

        fn process(
            &mut self,
            record: __private::Record<UserId, Click>,
            cx: &mut __private::Context<Self>,
        ) -> __private::Result<()> {
            __private::done::<Self, _>(Sessionize::on_click(
                self,
                __private::give::<Self, __private::Record<UserId, Click>, Record<UserId, Click>>(record),
                __private::give_mut::<Self, __private::Context<Self>, Context<Self>>(cx),
            ))
        }

        fn fire(
            &mut self,
            field: usize,
            fired: __private::Fired<UserId>,
            cx: &mut __private::Context<Self>,
        ) -> __private::Result<()> {
            if field == const { __private::index(<Sessionize as __private::Processor>::FIELDS, "idle") } {
                __private::is_timer(&self.idle);
                return __private::done::<Self, _>(Sessionize::close(
                    self,
                    __private::give::<Self, __private::Fired<UserId>, Fired<UserId>>(fired),
                    __private::give_mut::<Self, __private::Context<Self>, Context<Self>>(cx),
                ));
            }
            __private::no_handler::<Self>(field)
        }

        fn punctuate(&mut self, which: usize, cx: &mut __private::Context<Self>) -> __private::Result<()> {
            match which {
                0 => __private::done::<Self, _>(Sessionize::report(
                    self,
                    __private::give_mut::<Self, __private::Context<Self>, Context<Self>>(cx),
                )),
                _ => __private::no_handler::<Self>(which),
            }
        }
    }
};

// #[topology]
fn sessions(t: &mut Topology) {
    let clicks = stoat_core::__private::bind(t.source::<Clicks>(), "clicks");
    let closed = stoat_core::__private::bind(clicks.process::<Sessionize>(), "closed");
    closed.sink::<Sessions>();
}

#[doc(hidden)]
#[allow(non_camel_case_types)]
struct sessions {}

impl stoat_core::__private::TopologyFn for sessions {
    const NAME: &'static str = "sessions";
    const GRAPH: stoat_core::__private::StaticGraph = stoat_core::__private::StaticGraph {
        name: "sessions",
        nodes: &[
            stoat_core::__private::StaticNode { name: "clicks", step: "source", of: "Clicks", inputs: &[] },
            stoat_core::__private::StaticNode {
                name: "closed",
                step: "process",
                of: "Sessionize",
                inputs: &["clicks"],
            },
            stoat_core::__private::StaticNode { name: "Sessions", step: "sink", of: "Sessions", inputs: &["closed"] },
        ],
    };
    fn declare(t: &mut Topology) {
        sessions(t);
    }
}

#[test]
fn the_first_program_of_the_contract_becomes_a_graph() {
    let graph = <sessions as stoat_core::__private::TopologyFn>::build().unwrap();
    let names: Vec<&str> = graph.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["clicks", "closed", "Sessions"]);
    let stores: Vec<&str> = graph.stores.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(stores, ["open", "idle"]);
    assert_eq!(graph.subs, 1);
}

#[test]
fn the_first_program_of_the_contract_closes_sessions_by_timer() {
    let graph = <sessions as stoat_core::__private::TopologyFn>::build().unwrap();
    let mut lane = harness::OneLane::new(graph);
    let click = |lane: &mut harness::OneLane, user: &str, minute: i64| {
        lane.pipe("clicks", Some(user.as_bytes()), Some(br#"{"page":"/"}"#), minute * 60_000).unwrap();
    };
    let shown = |lane: &mut harness::OneLane| -> Vec<String> {
        let outputs = lane.outputs().into_iter();
        outputs.map(|(topic, k, v, t)| format!("{topic} {k} {v} {}", t / 60_000)).collect()
    };
    click(&mut lane, "ann", 0);
    click(&mut lane, "bob", 1);
    click(&mut lane, "ann", 20);
    lane.advance(40 * 60_000).unwrap();
    assert_eq!(shown(&mut lane), [r#"sessions bob {"clicks":1} 31"#]);

    lane.tick(1_000).unwrap();
    let minute = 1_000 / 60_000;
    assert_eq!(
        shown(&mut lane),
        [format!(r#"sessions ann {{"clicks":2}} {minute}"#)],
        "the punctuator runs over open sessions"
    );
    lane.advance(50 * 60_000).unwrap();
    assert_eq!(shown(&mut lane), [r#"sessions ann {"clicks":2} 50"#]);

    let rows = lane.freeze();
    for store in ["open", "idle"] {
        let rows: Vec<_> = rows[store].iter().map(|r| (r.key.as_slice(), &r.value)).collect();
        assert_eq!(rows, [(b"ann".as_slice(), &None), (b"bob".as_slice(), &None)], "{store}");
    }
    lane.tick(2_000).unwrap();
    assert_eq!(shown(&mut lane), [] as [&str; 0]);
}

#[test]
fn the_static_description_agrees_with_the_built_graph() {
    use stoat_core::__private::TopologyFn;
    let graph = sessions::build().unwrap();
    for node in sessions::GRAPH.nodes {
        let built = graph.nodes.iter().find(|n| n.name == node.name).unwrap();
        let inputs: Vec<&str> = built.parents.iter().map(|p| graph.nodes[p.0 as usize].name.as_str()).collect();
        assert_eq!(inputs, node.inputs, "{}", node.name);
    }
}
