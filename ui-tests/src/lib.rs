//! The stage of the ui tests: types, sources, sinks and a processor that the cases share, so that each case shows its
//! one mistake.

use serde::{Deserialize, Serialize};
use stoat_core::codec::{Codec, CodecError, Decode};
use stoat_core::prelude::*;

/// A user; the key of most streams.
#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Utf8)]
pub struct UserId(pub String);

/// Another key.
#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Be)]
pub struct OrderId(pub u64);

/// No key: it declares no codec.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Region(pub String);

/// A value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Whose.
    pub region: String,
    /// How many.
    pub count: u32,
}

/// Another value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// How much.
    pub cents: i64,
}

/// What the processor makes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// How many.
    pub count: u32,
}

/// Events by user.
#[source(topic = "events", key = UserId, value = Event)]
pub struct Events;

/// Orders by their id.
#[source(topic = "orders", key = OrderId, value = Order)]
pub struct Orders;

/// Sessions by user.
#[sink(topic = "sessions", key = UserId, value = Session)]
pub struct Sessions;

/// Can read user ids and not write them.
#[derive(Debug)]
pub struct Legacy;

impl Codec for Legacy {
    const NAME: &'static str = "Legacy";
    const CANONICAL: bool = false;
}

impl Decode<UserId> for Legacy {
    fn decode(bytes: &[u8]) -> Result<UserId, CodecError> {
        Ok(UserId(String::from_utf8_lossy(bytes).into_owned()))
    }
}

/// Sessions out of events.
#[processor(input = (UserId, Event), output = Session)]
pub struct Sessionize {
    #[state]
    open: Keyed<Session>,
    #[timer]
    idle: Timer,
}

#[handlers]
impl Sessionize {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        self.open.update(Session::default, |s| s.count += event.value.count)?;
        self.idle.set(event.timestamp)
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(session) = self.open.take()? {
            cx.forward(session)?;
        }
        Ok(())
    }
}

/// Configured: a limit.
#[processor(input = (UserId, Event), output = Event)]
pub struct Limit {
    limit: u32,
}

#[handlers]
impl Limit {
    #[process]
    fn on_event(&mut self, event: Record<UserId, Event>, cx: &mut Context<Self>) -> Result<()> {
        if event.value.count <= self.limit {
            cx.forward(event.value)?;
        }
        Ok(())
    }
}

/// The runtime under another name.
pub mod renamed {
    pub use stoat_core::*;
}
