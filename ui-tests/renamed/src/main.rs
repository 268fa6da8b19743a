//! The README's program, with the library under another name. Written by `tests/readme.rs`: do not edit.
#![forbid(unsafe_code)]
#![deny(warnings, missing_docs, unreachable_pub, unused_qualifications, clippy::pedantic)]

use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir::prelude::*;

const IDLE: Duration = Duration::from_mins(30);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Click {
    page: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Session {
    clicks: u64,
    last: String,
}

impl Session {
    fn add(&mut self, click: &Click) {
        self.clicks += 1;
        self.last.clone_from(&click.page);
    }
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Utf8, crate = weir)]
struct UserId(String);

#[source(topic = "clicks", key = UserId, value = Click, value_codec = Json, crate = weir)]
struct Clicks;

#[sink(topic = "sessions", key = UserId, value = Session, value_codec = Json, crate = weir)]
struct Sessions;

#[processor(input = (UserId, Click), output = Session, crate = weir)]
struct Sessionize {
    #[state]
    open: Keyed<Session>,
    #[timer]
    idle: Timer,
}

#[handlers(crate = weir)]
impl Sessionize {
    #[process]
    fn on_click(&mut self, click: Record<UserId, Click>, cx: &mut Context<Self>) -> Result<()> {
        self.open.update(Session::default, |s| s.add(&click.value))?;
        self.idle.set(click.timestamp + IDLE)
    }

    #[on_timer(idle)]
    fn close(&mut self, fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(session) = self.open.take()? {
            cx.forward(session)?;
        }
        Ok(())
    }
}

#[topology(crate = weir)]
fn sessions(t: &mut Topology) {
    let clicks = t.source::<Clicks>();
    let closed = clicks.process::<Sessionize>();
    closed.sink::<Sessions>();
}

#[weir::main(sessions, crate = weir)]
struct App;
