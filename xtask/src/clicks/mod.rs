//! Makes `examples/data/clicks.csv`: a day of clicks of about 2,000 users, the same bytes each time.

use std::fmt::Write as _;
use std::fs;

use crate::sh::{Context as _, Result, root};

#[cfg(test)]
mod tests;

const START_MS: u64 = 1_700_000_000_000;
const SECOND: u64 = 1_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const USERS: u64 = 2_000;
/// Clicks further apart belong to different sessions; generated gaps stay clear of it on both sides.
const SESSION_GAP: u64 = 30 * MINUTE;
/// The longest that a click is on its way: below the 10 s of disorder that the example allows for.
const MAX_DELAY: u64 = 9_500;
/// How busy each hour of the day is, relative to the others.
const BUSY: [u64; 24] = [6, 4, 2, 1, 1, 2, 4, 7, 10, 13, 14, 13, 12, 13, 14, 14, 13, 14, 16, 19, 20, 18, 14, 9];

/// A click, and when the log received it.
struct Click {
    arrival: u64,
    timestamp: u64,
    user: u64,
    page: String,
}

/// Writes the file and says what is in it.
pub(crate) fn write() -> Result<()> {
    let path = root().join("examples/data/clicks.csv");
    let (log, sessions) = generate(42);
    fs::write(&path, &log).context(|| format!("cannot write {}", path.display()))?;
    println!(
        "{}: {} clicks in {sessions} sessions of {USERS} users, {} KB",
        path.display(),
        log.lines().count(),
        log.len() / 1024
    );
    Ok(())
}

/// The log as CSV, in the order of arrival, and the number of sessions in it.
fn generate(seed: u64) -> (String, usize) {
    let mut random = Random(seed);
    let mut clicks = Vec::new();
    let mut sessions = 0;
    for user in 0..USERS {
        let mut starts: Vec<u64> = (0..random.between(1, 6)).map(|_| random.time_of_day()).collect();
        starts.sort_unstable();
        let mut free_from = 0;
        for start in starts {
            if start < free_from {
                continue;
            }
            sessions += 1;
            let last = session(&mut random, user, START_MS + start, &mut clicks);
            free_from = last - START_MS + SESSION_GAP + MINUTE;
        }
    }
    // The log begins on the dot, so that a reader can tell the first timestamp by heart.
    let first = clicks.iter().map(|click| click.timestamp).min().expect("every user has a session");
    for click in &mut clicks {
        click.timestamp -= first - START_MS;
        click.arrival -= first - START_MS;
    }
    clicks.sort_by_key(|click| (click.arrival, click.timestamp, click.user));
    let mut log = String::new();
    for click in clicks {
        writeln!(log, "{},u{:04},{}", click.timestamp, click.user, click.page).expect("a string takes all");
    }
    (log, sessions)
}

/// Adds the clicks of one session and returns the time of the last.
fn session(random: &mut Random, user: u64, start: u64, clicks: &mut Vec<Click>) -> u64 {
    let mut timestamp = start;
    let mut page = random.page(None);
    loop {
        let delay = match random.below(100) {
            0..88 => random.between(5, 60),
            88..97 => random.between(60, 2 * SECOND),
            _ => random.between(2 * SECOND, MAX_DELAY),
        };
        clicks.push(Click { arrival: timestamp + delay, timestamp, user, page: page.clone() });
        // One in eleven clicks is the last, and so is a checkout: about eight clicks a session.
        if random.below(11) == 0 || page == "/checkout" {
            return timestamp;
        }
        timestamp += match random.below(100) {
            0..70 => random.between(2 * SECOND, 45 * SECOND),
            70..96 => random.between(45 * SECOND, 5 * MINUTE),
            // Somebody makes tea: long, yet still the same session.
            _ => random.between(5 * MINUTE, 29 * MINUTE),
        };
        page = random.page(Some(&page));
    }
}

/// `SplitMix64`: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `n`. The bias of the remainder is far below what a log of clicks could show.
    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A time within the day, more often in a busy hour.
    fn time_of_day(&mut self) -> u64 {
        let mut ticket = self.below(BUSY.iter().sum());
        for (hour, busy) in (0..).zip(BUSY) {
            if ticket < busy {
                return hour * HOUR + self.below(HOUR);
            }
            ticket -= busy;
        }
        unreachable!("the ticket is below the sum of all hours")
    }

    /// Where a user goes next; few products draw most of the clicks.
    fn page(&mut self, from: Option<&str>) -> String {
        let product = |random: &mut Self| {
            let range = random.between(1, 60);
            format!("/products/{}", random.between(1, range))
        };
        match (from, self.below(100)) {
            (None, 0..45) => "/".to_owned(),
            (Some("/cart"), 0..40) => "/checkout".to_owned(),
            (Some(from), 0..12) if from.starts_with("/products") => "/cart".to_owned(),
            (None, 45..60) | (Some(_), 12..30) => "/search".to_owned(),
            (Some(_), 30..38) => format!("/blog/{}", self.between(1, 12)),
            (Some(_), 38..42) => "/help".to_owned(),
            _ => product(self),
        }
    }
}
