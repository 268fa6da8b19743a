//! The mended programs of `docs/errors`: written by `tests/errors.rs`, do not edit.
#![allow(dead_code, unused_imports, unused_variables, unused_mut)]

/// something in an attribute is no argument
mod s001 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// an attribute does not know this argument
mod s002 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// an argument is given twice
mod s003 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// an argument has another kind of value
mod s004 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// an argument takes one of a few words
mod s005 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer(clock = wall)]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// this is not a duration
mod s006 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event, out_of_orderness = "10s")]
    struct Clicks;

    fn main() {}
}

/// `#[source]` or `#[sink]` on something that is not a struct
mod s101 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// a generic source or sink
mod s102 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// Kafka does not allow this name of a topic
mod s103 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "my-clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// a source or sink without a topic or without a type of values
mod s104 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// `decode_only` without a codec
mod s105 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, key_codec = Legacy, value = Event, decode_only)]
    struct Clicks;

    fn main() {}
}

/// a codec of keys without a type of keys
mod s106 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// two ways for the watermark to follow the records
mod s107 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event, out_of_orderness = "10s")]
    struct Clicks;

    fn main() {}
}

/// no pause is long enough to close what is open
mod s108 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event, close_on_idle = "30s")]
    struct Clicks;

    fn main() {}
}

/// the type of `watermark = ..` derives none
mod s109 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[derive(Default)]
    struct ByHour;

    impl stoat_core::time::WatermarkGenerator for ByHour {
        fn on_record(&mut self, timestamp: Timestamp, _: &stoat_core::record::RawRecord<'_>) -> Timestamp {
            Timestamp(timestamp.0 / 3_600_000 * 3_600_000)
        }
    }

    #[source(topic = "clicks", key = UserId, value = Event, watermark = ByHour)]
    struct Clicks;

    fn main() {}
}

/// a codec cannot write (or read) this type
mod s110 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, key_codec = Legacy, value = Event, decode_only)]
    struct Clicks;

    fn main() {}
}

/// a type is used as a key and declares no codec
mod s111 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event)]
    struct Clicks;

    fn main() {}
}

/// what `timestamp = ..` gives is not a time
mod s112 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "clicks", key = UserId, value = Event, timestamp = |r| Timestamp::from_millis(i64::from(r.value.count)))]
    struct Clicks;

    fn main() {}
}

/// a codec cannot take these values or keys
mod s113 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[derive(Default, serde::Serialize, serde::Deserialize)]
    struct Open {
        clicks: u64,
    }

    #[processor(input = (UserId, Event))]
    struct P {
        #[state]
        open: Keyed<Open>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            self.open.update(Open::default, |o| o.clicks += 1)
        }
    }

    fn main() {}
}

/// a key that names no codec
mod s201 {
    use serde::{Deserialize, Serialize};
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[key(codec = Utf8)]
    struct UserId(String);

    fn main() {}
}

/// a key with two `#[key(..)]`
mod s202 {
    use serde::{Deserialize, Serialize};
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[key(codec = Utf8)]
    struct UserId(String);

    fn main() {}
}

/// a union as a key
mod s203 {
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
    #[key(codec = Json)]
    enum Id {
        Number(u32),
        Bytes([u8; 4]),
    }

    fn main() {}
}

/// a type in a key has no stable bytes
mod s204 {
    use serde::{Deserialize, Serialize};
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[key(codec = Json)]
    struct Price {
        cents: i64,
    }

    fn main() {}
}

/// an attribute of serde makes unequal keys alike
mod s205 {
    use serde::{Deserialize, Serialize};
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[key(codec = Json)]
    struct Place {
        city: String,
        street: String,
    }

    fn main() {}
}

/// a codec that writes one value, and a key of several fields
mod s206 {
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
    #[key(codec = Json)]
    struct Place {
        city: String,
        street: String,
    }

    fn main() {}
}

/// a codec that does not write this type
mod s207 {
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash)]
    #[key(codec = Be)]
    struct OrderId(u64);

    fn main() {}
}

/// a type in a key is not known to have stable bytes
mod s208 {
    use serde::{Deserialize, Serialize};
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[key(codec = Json)]
    struct Gap(u64);

    fn main() {}
}

/// a codec cannot write the one field of a key
mod s209 {
    use stoat_core::prelude::*;

    #[derive(Key, Clone, PartialEq, Eq, Hash)]
    #[key(codec = Utf8)]
    struct Gap(String);

    fn main() {}
}

/// `#[processor]` on something that is not a struct
mod s301 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a processor without `input`
mod s302 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// an `input` without a key
mod s303 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a processor that borrows
mod s304 {
    use stoat_core::prelude::*;

    #[processor(input = (String, u64), output = u64)]
    struct P {
        name: String,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_record(&mut self, record: Record<String, u64>, cx: &mut Context<Self>) -> Result<()> {
            cx.forward(record.value)
        }
    }

    fn main() {}
}

/// a processor with fields without names
mod s305 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a field has an attribute that is almost one of ours
mod s306 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a field with two roles
mod s307 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a state, timer or store without its mark
mod s308 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a `#[state]` field of another type
mod s309 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a `#[timer]` field of another type
mod s310 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a `#[store]` field of another type
mod s311 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[store]
        open: KeyValueStore<UserId, Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a codec is named twice
mod s312 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session, Json>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// two fields with one stable name
mod s313 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        r#type: Keyed<u32>,
        #[state(name = "open")]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a mark is written in another form
mod s314 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state(name = "sessions")]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a `Keyed` with something else than a codec behind its value
mod s315 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event))]
    struct P {
        #[state]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            self.open.update(Session::default, |s| s.count += 1)
        }
    }

    fn main() {}
}

/// a timer with another type of keys
mod s320 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a store with another type of keys
mod s321 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[store]
        by_order: KeyValueStore<UserId, Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a timer that nobody handles
mod s322 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a processor without handlers
mod s324 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct Bare;

    #[handlers]
    impl Bare {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            cx.forward(Session { count: event.value.count })
        }
    }

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().process::<Bare>().sink::<Sessions>();
    }

    fn main() {}
}

/// `#[handlers]` on something that is not `impl P`
mod s401 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a processor that takes no records
mod s402 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a method has an attribute that is almost one of ours
mod s403 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a method that handles two things
mod s404 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[punctuate(every = "10s", over = open)]
        fn close(&mut self, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// `#[process]` with arguments
mod s405 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// two handlers for records
mod s406 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// `#[on_timer]` without the timer
mod s407 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn fired(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a timer with two handlers
mod s408 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a punctuator without an interval
mod s409 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[punctuate(every = "10s", over = open)]
        fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a handler of another shape
mod s410 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a handler with other types than the processor declares
mod s420 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Event)]
    struct P {
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
        #[on_timer(idle)]
        fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[topology]
    fn events(t: &mut Topology) {
        t.source::<Events>().process::<P>().discard();
    }

    fn main() {}
}

/// a handler that returns something else
mod s421 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// `#[on_timer]` names a field that is no timer
mod s422 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[state]
        open: Keyed<Session>,
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn on_open(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// a processor without `output` forwards something
mod s423 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P;

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            cx.forward(Session::default())
        }
    }

    fn main() {}
}

/// a timer is set for another key without being declared so
mod s424 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer(foreign)]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            self.idle.set_for(&UserId("other".to_owned()), event.timestamp)
        }

        #[on_timer(idle)]
        fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    fn main() {}
}

/// `#[topology]` on something that is not a function
mod s501 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().discard();
    }

    fn main() {}
}

/// a topology function of another shape
mod s502 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().discard();
    }

    fn main() {}
}

/// a stream under control flow
mod s503 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let events = t.source::<Events>();
        events.filter(|_, e| e.count > 0).discard();
    }

    fn main() {}
}

/// a step under `#[cfg(..)]`
mod s504 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().discard();
        t.source::<Orders>().discard();
    }

    fn main() {}
}

/// a stream that nobody consumes
mod s505 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().map_values(|e| e.count).discard();
    }

    fn main() {}
}

/// a stream that is used twice
mod s506 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let input = t.source::<Events>();
        let [events, rest] = input.fan_out();
        events.process::<Sessionize>().sink::<Sessions>();
        rest.discard();
    }

    fn main() {}
}

/// two streams with one name
mod s507 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let events = t.source::<Events>();
        let counts = events.map_values(|e| e.count);
        counts.discard();
    }

    fn main() {}
}

/// a stream goes into a function that is no fragment
mod s508 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[fragment]
    fn helper<L: 'static>(events: Stream<UserId, Event, L>) {
        events.discard();
    }

    #[topology]
    fn pipeline(t: &mut Topology) {
        let events = t.source::<Events>();
        helper(events);
    }

    fn main() {}
}

/// a stream goes into a macro
mod s509 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let events = t.source::<Events>();
        events.discard();
    }

    fn main() {}
}

/// a stream is used by something else than its methods
mod s510 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let events = t.source::<Events>();
        events.discard();
    }

    fn main() {}
}

/// several streams in one name
mod s511 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let [a, b] = t.source::<Events>().fan_out();
        a.discard();
        b.discard();
    }

    fn main() {}
}

/// an aggregation or a boundary without a name
mod s512 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[sink(topic = "counts", key = UserId, value = u64)]
    struct Counts;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let counts = t.source::<Events>().group_by_key().count();
        counts.to_stream().sink::<Counts>();
    }

    fn main() {}
}

/// a source, a processor or a sink is given as a value
mod s513 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn events(t: &mut Topology) {
        let events = t.source::<Events>();
        let sessions = events.process::<Sessionize>();
        sessions.sink::<Sessions>();
    }

    fn main() {}
}

/// the stream has other keys than the processor takes
mod s520 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let orders = t.source::<Orders>().map_values(|o| Event { region: String::new(), count: o.cents as u32 });
        let by_user = orders.select_key(|_, e| UserId(e.region.clone())).repartition();
        by_user.process::<Sessionize>().discard();
    }

    fn main() {}
}

/// the stream carries other values than the processor takes
mod s521 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let events = t.source::<Events>().map_values(|_| Event { region: String::new(), count: 1 });
        events.process::<Sessionize>().sink::<Sessions>();
    }

    fn main() {}
}

/// the stream has other keys than the sink writes
mod s522 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Orders>().map_values(|_| Session::default()).select_key(|_, _| UserId(String::new())).sink::<Sessions>();
    }

    fn main() {}
}

/// the stream carries other values than the sink writes
mod s523 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().map_values(|e| Session { count: e.count }).sink::<Sessions>();
    }

    fn main() {}
}

/// a type that is not a processor
mod s524 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct Plain;

    #[handlers]
    impl Plain {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            cx.forward(Session { count: event.value.count })
        }
    }

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().process::<Plain>().sink::<Sessions>();
    }

    fn main() {}
}

/// a processor that needs values of its own
mod s525 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().process_with(|| Limit::init(10)).discard();
    }

    fn main() {}
}

/// state or a timer behind a source that can only decode keys
mod s526 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[source(topic = "old", key = UserId, key_codec = Legacy, value = Event, decode_only)]
    struct Old;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Old>().select_key(|key, _| key.clone()).repartition().named("again").process::<Sessionize>().sink::<Sessions>();
    }

    fn main() {}
}

/// state or a timer behind a changed key
mod s527 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let events = t.source::<Events>();
        let moved = events.select_key(|_, e| UserId(e.region.clone()));
        let moved_there = moved.repartition();
        moved_there.process::<Sessionize>().sink::<Sessions>();
    }

    fn main() {}
}

/// a timer or store writes keys with another codec than the lane
mod s528 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Session)]
    struct P {
        #[timer]
        idle: Timer,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }

        #[on_timer(idle)]
        fn on_idle(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().process::<P>().sink::<Sessions>();
    }

    fn main() {}
}

/// nobody consumes what a processor forwards
mod s529 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().process::<Sessionize>().sink::<Sessions>();
    }

    fn main() {}
}

/// a type that is not a source, or not a sink
mod s530 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().discard();
    }

    fn main() {}
}

/// two sources on one topic
mod s531 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let [a, b] = t.source::<Events>().fan_out();
        a.discard();
        b.discard();
    }

    fn main() {}
}

/// two processors with one name of a store
mod s532 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[processor(input = (UserId, Event), output = Event)]
    struct P {
        #[state(name = "open-2")]
        open: Keyed<Session>,
    }

    #[handlers]
    impl P {
        #[process]
        fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().process::<P>().process::<Sessionize>().sink::<Sessions>();
    }

    fn main() {}
}

/// a stream is counted that is not grouped
mod s533 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let counts = t.source::<Events>().group_by_key().count();
        counts.to_stream().discard();
    }

    fn main() {}
}

/// a table is used as a stream
mod s534 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        let counts = t.source::<Events>().group_by_key().count();
        counts.to_stream().discard();
    }

    fn main() {}
}

/// `#[fragment]` on something that is not a function
mod s701 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[fragment]
    fn valid<L: 'static>(events: Stream<UserId, Event, L>) -> Stream<UserId, Event, L> {
        events.filter(|_, e| e.count > 0)
    }

    fn main() {}
}

/// a fragment returns something that is no stream
mod s702 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[fragment]
    fn valid<L: 'static>(events: Stream<UserId, Event, L>) {
        events.discard();
    }

    fn main() {}
}

/// a fragment that takes no stream
mod s703 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[fragment]
    fn valid<L: 'static>(events: Stream<UserId, Event, L>, limit: u32) -> Stream<UserId, Event, L> {
        events.filter(move |_, e| e.count < limit)
    }

    fn main() {}
}

/// `#[stoat_core::main]` without a topology
mod s601 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().discard();
    }

    #[stoat_core::main(pipeline)]
    struct App;
}

/// `#[stoat_core::main(..)]` on something that is not a struct
mod s602 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().discard();
    }

    #[stoat_core::main(pipeline)]
    struct App;
}

/// `#[stoat_core::main(..)]` names a function without `#[topology]`
mod s603 {
    use stoat_core::prelude::*;
    use stoat_ui_tests::*;

    #[topology]
    fn pipeline(t: &mut Topology) {
        t.source::<Events>().discard();
    }

    #[stoat_core::main(pipeline)]
    struct App;
}

fn main() {}
