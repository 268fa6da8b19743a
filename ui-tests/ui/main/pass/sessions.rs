//! The program of the design's first page.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use stoat_core::prelude::*;

const IDLE: Duration = Duration::from_secs(30 * 60);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Click {
    page: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Session {
    clicks: u32,
}

impl Session {
    fn add(&mut self, _: &Click) {
        self.clicks += 1;
    }
}

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Utf8)]
struct UserId(String);

#[source(topic = "clicks", key = UserId, value = Click, value_codec = Json)]
struct Clicks;

#[sink(topic = "sessions", key = UserId, value = Session, value_codec = Json)]
struct Sessions;

#[processor(input = (UserId, Click), output = Session)]
struct Sessionize {
    #[state]
    open: Keyed<Session>,
    #[timer]
    idle: Timer,
}

#[handlers]
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

    #[punctuate(every = "10s", clock = wall, over = open)]
    fn report(&mut self, cx: &mut Context<Self>) -> Result<()> {
        if let Some(session) = self.open.get()? {
            cx.forward(session.clone())?;
        }
        Ok(())
    }
}

#[topology]
fn sessions(t: &mut Topology) {
    let clicks = t.source::<Clicks>();
    let closed = clicks.process::<Sessionize>();
    closed.sink::<Sessions>();
}

mod program {
    use super::sessions;

    #[stoat_core::main(sessions)]
    struct App;

    // The crate of a ui test is run; an application would not end.
    pub(super) const MAIN: fn() -> std::process::ExitCode = main;
}

fn main() {
    let _ = program::MAIN;
    let _: stoat_core::app::App = sessions::app();
    let graph = sessions::build().expect("the topology is valid");
    assert_eq!(graph.name, "sessions");
    assert_eq!(sessions::GRAPH.nodes.len(), graph.nodes.len());
    for (said, built) in sessions::GRAPH.nodes.iter().zip(&graph.nodes) {
        assert_eq!(said.name, built.name);
    }
}
