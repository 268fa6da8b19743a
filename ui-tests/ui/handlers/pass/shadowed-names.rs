//! Generated code meets a crate that has taken the usual names.

#![allow(dead_code, unused_imports)]

mod core {}
mod std {}
mod alloc {}
mod stoat {}

struct Option;
struct Some;
struct None;
struct Ok;
struct Err;
struct Vec;
struct String;
struct Box;
struct Default;
struct Clone;
struct Send;
struct Self_;
type Result<T> = ::std::vec::Vec<T>;

trait Same {
    fn same(self) -> u8;
    fn visit(&self) {}
    fn process(&self) {}
    fn from_given(&self) {}
    fn into_result(&self) {}
    fn field(&self) {}
    fn init() {}
}

impl<T> Same for T {
    fn same(self) -> u8 {
        0
    }
}

#[derive(::stoat_core::prelude::Key, ::std::clone::Clone, PartialEq, Eq, Hash)]
#[key(codec = ::stoat_core::codec::Utf8)]
struct User(::std::string::String);

#[::stoat_core::source(topic = "in", key = User, value = ::std::string::String, idleness = "1m")]
struct In;

#[::stoat_core::sink(topic = "out", key = ::std::option::Option<User>, value = ::std::string::String)]
struct Out;

#[::stoat_core::processor(input = (User, ::std::string::String), output = (::std::option::Option<User>, ::std::string::String))]
struct P {
    #[state]
    last: ::stoat_core::prelude::Keyed<::std::string::String>,
    #[timer]
    idle: ::stoat_core::prelude::Timer,
    #[local]
    seen: u64,
    limit: u64,
}

type Done = ::stoat_core::Result<()>;

#[::stoat_core::handlers]
impl P {
    #[process]
    fn on_record(
        &mut self,
        r: ::stoat_core::prelude::Record<User, ::std::string::String>,
        cx: &mut ::stoat_core::prelude::Context<Self>,
    ) -> Done {
        self.idle.set(r.timestamp)?;
        self.last.put(r.value)
    }

    #[on_timer(idle)]
    fn close(
        &mut self,
        fired: ::stoat_core::prelude::Fired<User>,
        cx: &mut ::stoat_core::prelude::Context<Self>,
    ) -> Done {
        if let ::std::option::Option::Some(v) = self.last.take()? {
            cx.forward(::std::option::Option::Some(fired.key), v)?;
        }
        ::std::result::Result::Ok(())
    }

    #[punctuate(every = "1s", over = last)]
    fn tick(&mut self, cx: &mut ::stoat_core::prelude::Context<Self>) -> Done {
        ::std::result::Result::Ok(())
    }
}

#[::stoat_core::topology]
fn pipeline(t: &mut ::stoat_core::prelude::Topology) {
    let records = t.source::<In>();
    let out = records.process_with(|| P::init(3));
    out.sink::<Out>();
}

fn main() {
    ::std::assert!(pipeline::build().is_ok());
}
