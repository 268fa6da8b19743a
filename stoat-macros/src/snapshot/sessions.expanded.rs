// Written by the test of snapshot/mod.rs: do not edit.

struct Clicks;
#[automatically_derived]
#[allow(unused_qualifications)]
impl ::stoat_core::source::Source for Clicks {
    type Key = UserId;
    type Value = Click;
    type KeyCodec = <::stoat_core::__private::Checked<
        { <UserId as ::stoat_core::__private::HasCodec>::CHECKED },
        UserId,
    > as ::stoat_core::key::Key>::Codec;
    type ValueCodec = ::stoat_core::__private::Checked<
        { <Json as ::stoat_core::__private::SourceCodec<Click>>::CHECKED },
        Json,
    >;
    const TOPIC: &'static str = "clicks";
    const NAME: &'static str = "Clicks";
    type Lane = ::stoat_core::topology::lane_state::Lane<
        <Self as ::stoat_core::source::Source>::KeyCodec,
    >;
    fn watermark() -> ::stoat_core::time::WatermarkStrategy {
        ::stoat_core::time::WatermarkStrategy {
            out_of_orderness: ::core::time::Duration::from_millis(10000u64),
            ..<::stoat_core::time::WatermarkStrategy as ::core::default::Default>::default()
        }
    }
}
struct Sessions;
#[automatically_derived]
#[allow(unused_qualifications)]
impl ::stoat_core::sink::Sink for Sessions {
    type Key = UserId;
    type Value = Session;
    type KeyCodec = <::stoat_core::__private::Checked<
        { <UserId as ::stoat_core::__private::HasCodec>::CHECKED },
        UserId,
    > as ::stoat_core::key::Key>::Codec;
    type ValueCodec = ::stoat_core::__private::Checked<
        { <Json as ::stoat_core::__private::SinkCodec<Session>>::CHECKED },
        Json,
    >;
    const TOPIC: &'static str = "sessions";
    const NAME: &'static str = "Sessions";
}
struct Sessionize {
    open: __Sessionize_open,
    idle: __Sessionize_idle,
}
#[doc(hidden)]
#[allow(non_camel_case_types, unused_qualifications)]
type __Sessionize_open = ::stoat_core::__private::Checked<
    {
        <::stoat_core::codec::Json as ::stoat_core::__private::FieldCodec<
            Session,
        >>::CHECKED
    },
    Keyed<Session>,
>;
#[doc(hidden)]
#[allow(non_camel_case_types, unused_qualifications)]
type __Sessionize_idle = Timer<
    ::stoat_core::__private::Checked<
        { <UserId as ::stoat_core::__private::HasCodec>::CHECKED },
        UserId,
    >,
>;
#[automatically_derived]
#[allow(unused_qualifications)]
impl ::stoat_core::processor::Processor for Sessionize {
    type InKey = ::stoat_core::__private::Checked<
        {
            #[allow(unused_imports)]
            use ::stoat_core::__private::InputUnknown as _;
            ::stoat_core::__private::Input::<Sessionize>::TAKEN
                .checked::<UserId, Click>()
        },
        ::stoat_core::__private::Checked<
            { <UserId as ::stoat_core::__private::HasCodec>::CHECKED },
            UserId,
        >,
    >;
    type InValue = ::stoat_core::__private::Checked<
        {
            #[allow(unused_imports)]
            use ::stoat_core::__private::InputUnknown as _;
            ::stoat_core::__private::Input::<Sessionize>::TAKEN
                .checked::<UserId, Click>()
        },
        Click,
    >;
    type OutKey = <Self as ::stoat_core::processor::Processor>::InKey;
    type OutValue = Session;
    type Mode = ::stoat_core::processor::Keep;
    const NAME: &'static str = "Sessionize";
    const FIELDS: &'static [::stoat_core::processor::FieldDecl] = &[
        ::stoat_core::processor::FieldDecl::of::<
            __Sessionize_open,
        >(
            "open",
            ::stoat_core::processor::FieldOptions {
                name: ::core::option::Option::None,
                clock: ::stoat_core::time::TimeDomain::Event,
            },
        ),
        ::stoat_core::processor::FieldDecl::of::<
            __Sessionize_idle,
        >(
            "idle",
            ::stoat_core::processor::FieldOptions {
                name: ::core::option::Option::None,
                clock: ::stoat_core::time::TimeDomain::Event,
            },
        ),
    ];
    fn visit_fields<__V: ::stoat_core::processor::FieldVisitor<Self>>(
        &mut self,
        visitor: &mut __V,
    ) {
        ::stoat_core::processor::FieldVisitor::<
            Self,
        >::visit::<__Sessionize_open>(visitor, &mut self.open);
        ::stoat_core::processor::FieldVisitor::<
            Self,
        >::visit::<__Sessionize_idle>(visitor, &mut self.idle);
    }
}
#[automatically_derived]
#[allow(unused_qualifications)]
impl<__K, __L> ::stoat_core::processor::FitsLane<__K, __L> for Sessionize
where
    __L: ::stoat_core::topology::lane_state::FitsField<Self, __Sessionize_open>,
    __L: ::stoat_core::topology::lane_state::FitsField<Self, __Sessionize_idle>,
{}
#[automatically_derived]
#[allow(unused_qualifications, dead_code, private_interfaces, clippy::pedantic)]
impl Sessionize {
    ///Makes one lane's instance.
    fn init() -> ::stoat_core::processor::Init<Self> {
        ::stoat_core::processor::Init::new(move |
            __build: &mut ::stoat_core::processor::FieldBuild<'_>|
        {
            Self {
                open: ::stoat_core::processor::FieldBuild::field::<
                    __Sessionize_open,
                >(__build, 0usize),
                idle: ::stoat_core::processor::FieldBuild::field::<
                    __Sessionize_idle,
                >(__build, 1usize),
            }
        })
    }
}
#[automatically_derived]
#[allow(unused_qualifications)]
impl ::stoat_core::processor::Unconfigured for Sessionize {
    fn init() -> ::stoat_core::processor::Init<Self> {
        Self::init()
    }
}
const _: () = ::core::assert!(
    ::stoat_core::__private::handled(< Sessionize as ::stoat_core::processor::Handlers >
    ::ON_TIMER, < Sessionize as ::stoat_core::processor::Processor > ::FIELDS, "idle",),
    "timer `idle` of `Sessionize` has no handler: add `#[on_timer(idle)] fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()>` to `#[handlers] impl Sessionize` [S322]"
);
impl Sessionize {
    #[allow(
        clippy::needless_pass_by_value,
        clippy::needless_pass_by_ref_mut,
        clippy::unused_self,
        clippy::unnecessary_wraps,
        clippy::unused_async
    )]
    fn on_click(
        &mut self,
        #[allow(unused_variables)]
        click: Record<UserId, Click>,
        #[allow(unused_variables)]
        cx: &mut Context<Self>,
    ) -> Result<()> {
        self.open.update(Session::default, |s| s.add(&click.value))?;
        self.idle.set(click.timestamp + IDLE)
    }
    #[allow(
        clippy::needless_pass_by_value,
        clippy::needless_pass_by_ref_mut,
        clippy::unused_self,
        clippy::unnecessary_wraps,
        clippy::unused_async
    )]
    fn close(
        &mut self,
        #[allow(unused_variables)]
        fired: Fired<UserId>,
        #[allow(unused_variables)]
        cx: &mut Context<Self>,
    ) -> Result<()> {
        if let Some(session) = self.open.take()? {
            cx.forward(session)?;
        }
        Ok(())
    }
    #[allow(
        clippy::needless_pass_by_value,
        clippy::needless_pass_by_ref_mut,
        clippy::unused_self,
        clippy::unnecessary_wraps,
        clippy::unused_async
    )]
    fn report(
        &mut self,
        #[allow(unused_variables)]
        cx: &mut Context<Self>,
    ) -> Result<()> {
        Ok(())
    }
}
#[automatically_derived]
#[allow(unused_qualifications)]
impl ::stoat_core::__private::Takes for Sessionize {
    type Pair = (UserId, Click);
}
#[automatically_derived]
#[allow(unused_qualifications)]
impl ::stoat_core::processor::Handlers for Sessionize {
    const ON_TIMER: &'static [&'static str] = &["idle"];
    fn process(
        &mut self,
        record: ::stoat_core::record::Record<
            <Self as ::stoat_core::processor::Processor>::InKey,
            <Self as ::stoat_core::processor::Processor>::InValue,
        >,
        cx: &mut ::stoat_core::processor::Context<Self>,
    ) -> ::stoat_core::Result<()> {
        <Result<
            (),
        > as ::stoat_core::processor::HandlerResult<
            Self,
        >>::into_result(
            Self::on_click(
                self,
                <Record<
                    UserId,
                    Click,
                > as ::stoat_core::processor::HandlerArg<
                    Self,
                    ::stoat_core::record::Record<
                        <Self as ::stoat_core::processor::Processor>::InKey,
                        <Self as ::stoat_core::processor::Processor>::InValue,
                    >,
                >>::from_given(record),
                <Context<
                    Self,
                > as ::stoat_core::processor::HandlerContext<
                    Self,
                    ::stoat_core::processor::Context<Self>,
                >>::from_given_mut(cx),
            ),
        )
    }
    fn fire(
        &mut self,
        field: usize,
        fired: ::stoat_core::processor::Fired<
            <Self as ::stoat_core::processor::Processor>::InKey,
        >,
        cx: &mut ::stoat_core::processor::Context<Self>,
    ) -> ::stoat_core::Result<()> {
        ::stoat_core::__private::is_timer(&self.idle);
        let _ = &self.open;
        if field
            == const {
                ::stoat_core::__private::index(
                    <Self as ::stoat_core::processor::Processor>::FIELDS,
                    "idle",
                )
            }
        {
            return <Result<
                (),
            > as ::stoat_core::processor::HandlerResult<
                Self,
            >>::into_result(
                Self::close(
                    self,
                    <Fired<
                        UserId,
                    > as ::stoat_core::processor::HandlerArg<
                        Self,
                        ::stoat_core::processor::Fired<
                            <Self as ::stoat_core::processor::Processor>::InKey,
                        >,
                    >>::from_given(fired),
                    <Context<
                        Self,
                    > as ::stoat_core::processor::HandlerContext<
                        Self,
                        ::stoat_core::processor::Context<Self>,
                    >>::from_given_mut(cx),
                ),
            );
        }
        ::stoat_core::__private::no_handler::<Self>(field)
    }
    const PUNCTUATORS: &'static [::stoat_core::operator::Punctuator] = &[
        ::stoat_core::operator::Punctuator {
            every: ::core::time::Duration::from_millis(10000u64),
            domain: ::stoat_core::time::TimeDomain::Wall,
            over: ::core::option::Option::Some(const {
                ::stoat_core::__private::index(
                    <Self as ::stoat_core::processor::Processor>::FIELDS,
                    "open",
                )
            }),
        },
    ];
    #[allow(unused_variables)]
    fn punctuate(
        &mut self,
        which: usize,
        cx: &mut ::stoat_core::processor::Context<Self>,
    ) -> ::stoat_core::Result<()> {
        let nth = 0_usize;
        if which == nth {
            return <Result<
                (),
            > as ::stoat_core::processor::HandlerResult<
                Self,
            >>::into_result(
                Self::report(
                    self,
                    <Context<
                        Self,
                    > as ::stoat_core::processor::HandlerContext<
                        Self,
                        ::stoat_core::processor::Context<Self>,
                    >>::from_given_mut(cx),
                ),
            );
        }
        let nth = nth + 1;
        ::stoat_core::__private::no_handler::<Self>(which)
    }
}
fn sessions(t: &mut Topology) {
    let clicks = ::stoat_core::__private::bind(t.source::<Clicks>(), "clicks");
    let closed = ::stoat_core::__private::bind(clicks.process::<Sessionize>(), "closed");
    closed.sink::<Sessions>();
}
#[doc(hidden)]
#[allow(non_camel_case_types, dead_code)]
struct __topology_sessions {}
#[doc(hidden)]
#[allow(non_camel_case_types, dead_code)]
type sessions = __topology_sessions;
#[automatically_derived]
#[allow(dead_code)]
impl __topology_sessions {
    /// What the text of the function shows.
    const GRAPH: ::stoat_core::topology::StaticGraph = <Self as ::stoat_core::topology::TopologyFn>::GRAPH;
    /// Runs the function and checks the result.
    fn build() -> ::stoat_core::Result<::stoat_core::topology::graph::Graph> {
        <Self as ::stoat_core::topology::TopologyFn>::build()
    }
    /// The topology as an application.
    fn app() -> ::stoat_core::app::App {
        ::stoat_core::__private::app::<Self>()
    }
}
#[automatically_derived]
impl ::stoat_core::topology::TopologyFn for __topology_sessions {
    const NAME: &'static str = "sessions";
    const GRAPH: ::stoat_core::topology::StaticGraph = ::stoat_core::topology::StaticGraph {
        name: "sessions",
        nodes: &[
            ::stoat_core::topology::StaticNode {
                name: "clicks",
                step: "source",
                of: "Clicks",
                inputs: &[],
            },
            ::stoat_core::topology::StaticNode {
                name: "closed",
                step: "process",
                of: "Sessionize",
                inputs: &["clicks"],
            },
            ::stoat_core::topology::StaticNode {
                name: "Sessions",
                step: "sink",
                of: "Sessions",
                inputs: &["closed"],
            },
        ],
    };
    fn declare(t: &mut ::stoat_core::topology::Topology) {
        sessions(t);
    }
}
#[allow(dead_code)]
struct App;
fn main() -> ::std::process::ExitCode {
    let function = sessions;
    {
        mod no_topology {
            #[allow(non_camel_case_types)]
            pub struct sessions {}
        }
        #[allow(unused_imports)]
        use no_topology::*;
        #[allow(unused_imports)]
        use ::stoat_core::__private::main_without_prelude as __stoat_main;
        {
            #[allow(unused_imports)]
            use self::*;
            __stoat_main::<_, sessions>(function)
        }
    }
}
