//! Finds sessions: a keyed timer closes a user's session half an hour after the last click.
//!
//! Topic `clicks` (key: user, UTF-8; value: JSON `{"page": "..."}`; the record's timestamp is the time of the click) →
//! `user-sessions` (key: user; value: JSON `{"start": ms, "end": ms, "clicks": n}`), one record per closed session. A
//! session is a maximal run of a user's clicks with gaps of at most 30 minutes; clicks may come up to 10 seconds out of
//! order. The timer closes it; so does a click that comes later than the gap.
//!
//! ```mermaid
//! flowchart TD
//!   subgraph sub0["sub-topology 0"]
//!     n0(["clicks<br/>reads clicks"])
//!     n1[("closed<br/>open, idle")]
//!     n2(["UserSessions<br/>writes user-sessions"])
//!   end
//!   n0 --> n1
//!   n1 --> n2
//! ```

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stoat_core::broker::blocking::BlockingClient;
use stoat_core::codec::Decode;
use stoat_core::prelude::*;
use stoat_examples::{InputRecord, Story, say};

/// The gap that ends a session.
const IDLE: Duration = Duration::from_mins(30);

#[derive(Key, Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[key(codec = Utf8)]
struct UserId(String);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Click {
    page: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Session {
    start: Timestamp,
    end: Timestamp,
    clicks: u64,
}

#[source(topic = "clicks", key = UserId, value = Click, value_codec = Json, out_of_orderness = "10s")]
struct Clicks;

#[sink(topic = "user-sessions", key = UserId, value = Session, value_codec = Json)]
struct UserSessions;

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
        let at = click.timestamp;
        let mut session = match self.open.take()? {
            Some(open) if at > open.end + IDLE => {
                cx.forward(open)?;
                None
            }
            open => open,
        }
        .unwrap_or(Session { start: at, end: at, clicks: 0 });
        session.start = session.start.min(at);
        session.end = session.end.max(at);
        session.clicks += 1;
        // A gap of exactly half an hour belongs to the session, so it ends a millisecond later.
        self.idle.set(session.end + IDLE + Duration::from_millis(1))?;
        self.open.put(session)
    }

    #[on_timer(idle)]
    fn close(&mut self, _fired: Fired<UserId>, cx: &mut Context<Self>) -> Result<()> {
        if let Some(session) = self.open.take()? {
            cx.forward(session)?;
        }
        Ok(())
    }
}

#[topology]
fn sessions(t: &mut Topology) {
    let clicks = t.source::<Clicks>();
    let closed = clicks.process::<Sessionize>();
    closed.sink::<UserSessions>();
}

fn input() -> Vec<InputRecord> {
    let click = |line: &str| {
        let mut fields = line.splitn(3, ',');
        let timestamp = Timestamp::from_millis(fields.next()?.parse().ok()?);
        let (user, page) = (fields.next()?, fields.next()?);
        let value = format!("{{\"page\": \"{page}\"}}").into_bytes();
        Some(InputRecord { topic: "clicks", key: Some(user.as_bytes().to_vec()), value, timestamp })
    };
    include_str!("../../data/clicks.csv").lines().filter_map(click).collect()
}

fn result(client: &mut BlockingClient) -> Result<()> {
    let mut sessions: Vec<(String, Session)> = Vec::new();
    client.read_all("user-sessions", |_, r| {
        if let (Some(k), Some(Ok(s))) = (r.key, r.value.map(<Json as Decode<Session>>::decode)) {
            sessions.push((String::from_utf8_lossy(k).into_owned(), s));
        }
    })?;
    let clicks: u64 = sessions.iter().map(|(_, s)| s.clicks).sum();
    let users: BTreeMap<&str, u64> = sessions.iter().fold(BTreeMap::new(), |mut m, (u, _)| {
        *m.entry(u.as_str()).or_default() += 1;
        m
    });
    say!("\n{} sessions of {} users closed, {clicks} clicks in them", sessions.len(), users.len());
    say!("(a session is open until 30 minutes of event time have passed after its last click)");
    sessions.sort_by_key(|(user, s)| (std::cmp::Reverse(s.clicks), user.clone(), s.start));
    say!("the longest:\n{:>8}  {:>8}  {:>10}  user", "clicks", "minutes", "started");
    for (user, s) in sessions.iter().take(10) {
        let minutes = s.end.since(s.start).as_secs() / 60;
        let started = s.start.as_millis() / 1_000 % 86_400;
        say!("{:>8}  {minutes:>8}  {:>7}:{:02}  {user}", s.clicks, started / 3_600, started / 60 % 60);
    }
    Ok(())
}

fn main() -> ExitCode {
    Story { about: "Finds sessions: a user's clicks with gaps of at most half an hour become one record, closed by a keyed timer", app: sessions::app(), sources: &["clicks"], input, result }.main()
}

#[cfg(test)]
mod tests {
    use super::sessions;

    #[test]
    fn the_picture_in_the_documentation_is_this_topology() {
        let graph = sessions::build().unwrap();
        assert_eq!(stoat_examples::picture(include_str!("sessions.rs")), graph.mermaid());
        assert_eq!(sessions::GRAPH.difference(&graph), None);
    }
}
