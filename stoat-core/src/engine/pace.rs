//! How far ingest may be ahead of the lanes. A barrier waits for all that is before it, so where handlers are slow, what
//! memory and credits allow may take longer than a commit may. Pure: the clock is given.

/// Where nothing is known yet; doubled as long as lanes are quick.
const FIRST: u64 = 256;
/// No bound: memory and credits decide.
const MOST: u64 = 1 << 32;
/// Epochs that commit after a stall until more is done at once again.
const FORGIVEN: u32 = 100;
/// The longest pause between two looks at how far lanes are, in ms.
const LONGEST_LOOK: u64 = 50;

/// Something that was sent, by which it is measured how long lanes take.
#[derive(Clone, Copy, Debug)]
struct Probe {
    number: u64,
    sent: u64,
    /// It has taken too long already; `since`: when that was last found.
    late: bool,
    since: u64,
}

/// Learns from how long lanes took how many ingest numbers may be under way. Outlives generations: what made one stall is
/// known to the next.
#[derive(Clone, Debug)]
pub struct Pace {
    ahead: u64,
    /// How long the lanes may take for what is under way, in ms.
    target: u64,
    probe: Option<Probe>,
    /// Half of what may be under way was so since the probe was sent: more would be of use.
    used: bool,
    /// There was no room at the last look.
    full: bool,
    /// Barriers that were not reached in time, less those that are forgiven.
    stalls: u32,
    /// Epochs that committed since the last one, or the last was forgiven.
    commits: u32,
}

impl Pace {
    /// `limit`: how long a barrier may take, in ms.
    pub fn new(limit: u64) -> Self {
        // What a barrier itself takes, and what was sent before it was known how slow lanes have become, comes on top.
        Self { ahead: FIRST, target: (limit / 4).max(1), probe: None, used: false, full: false, stalls: 0, commits: 0 }
    }

    /// Begins anew with a new generation's numbers.
    pub fn restart(&mut self) {
        (self.probe, self.used) = (None, false);
    }

    /// A barrier was not reached in time.
    pub fn stalled(&mut self) {
        (self.stalls, self.commits) = (self.stalls + 1, 0);
        self.shrink();
    }

    /// An epoch is committed.
    pub fn committed(&mut self) {
        self.commits += 1;
        if self.commits >= FORGIVEN {
            (self.stalls, self.commits) = (self.stalls.saturating_sub(1), 0);
        }
    }

    /// How many of `most` things to do at once are to be done at once: an eighth for each stall.
    pub fn share(&self, most: usize) -> usize {
        (most >> (3 * self.stalls).min(usize::BITS - 1)).max(1)
    }

    /// Looks how far lanes are: all below `lowest` is worked off, `next` is the next number. Returns how many more may be
    /// sent.
    pub fn room(&mut self, now: u64, lowest: u64, next: u64) -> usize {
        if let Some(mut p) = self.probe {
            if p.number < lowest {
                let took = now.saturating_sub(p.sent);
                if took > self.target && !p.late {
                    self.shrink();
                } else if self.used && took * 2 < self.target {
                    self.ahead = (self.ahead * 2).min(MOST);
                }
                self.restart();
            } else if now.saturating_sub(p.since) > self.target {
                self.shrink();
                (p.late, p.since) = (true, now);
                self.probe = Some(p);
            }
        }
        if self.probe.is_none() && lowest < next {
            self.probe = Some(Probe { number: next - 1, sent: now, late: false, since: now });
        }
        let room = self.ahead.saturating_sub(next.saturating_sub(lowest));
        self.used |= room <= self.ahead / 2;
        self.full = room == 0;
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// When to look again, where there was no room; nobody tells how far lanes are.
    pub fn look(&self, now: u64) -> Option<u64> {
        let sent = self.probe.filter(|_| self.full)?.sent;
        Some(now + (now.saturating_sub(sent) / 8).clamp(1, LONGEST_LOOK))
    }

    fn shrink(&mut self) {
        self.ahead = (self.ahead / 2).max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lanes that take `each` ms for a number, for `ms` ms; how far ingest was ahead at most in the last half.
    fn run(pace: &mut Pace, each: u64, ms: u64) -> u64 {
        let (mut next, mut lowest, mut ahead, mut busy) = (1, 1, 0, 0);
        for now in 0..ms {
            next += pace.room(now, lowest, next).min(10_000) as u64;
            busy += 1;
            while busy >= each && lowest < next {
                (busy, lowest) = (busy - each, lowest + 1);
            }
            if now > ms / 2 {
                ahead = ahead.max(next - lowest);
            }
        }
        ahead
    }

    #[test]
    fn what_is_under_way_takes_lanes_no_longer_than_a_barrier_may() {
        for each in [1, 3, 10, 40, 300, 2_000] {
            let mut pace = Pace::new(10_000);
            let ahead = run(&mut pace, each, 4_000_000);
            let takes = ahead * each;
            assert!(takes <= 10_000 && (takes >= 1_000 || ahead == 1), "{each} ms each: {ahead} ahead take {takes} ms");
        }
    }

    #[test]
    fn lanes_that_are_quick_are_soon_left_to_credits() {
        let mut pace = Pace::new(60_000);
        let (mut next, mut sent) = (1, 0);
        for now in 0..40 {
            let room = pace.room(now, next, next) as u64;
            next += room;
            sent += room;
            // All of it is worked off before the next look; meanwhile there was no room.
            assert_eq!(pace.room(now, next - room, next), 0);
        }
        assert!(sent > 100_000_000, "{sent}");
    }

    #[test]
    fn lanes_that_become_slow_are_found_while_they_are() {
        let mut pace = Pace::new(400);
        pace.ahead = 1 << 20;
        for now in 0..2_000 {
            pace.room(now, 1, 1 << 20);
        }
        assert!(pace.ahead < 4, "{pace:?}");
    }

    #[test]
    fn after_stalls_less_is_done_at_once_and_something_always() {
        let mut pace = Pace::new(400);
        assert_eq!(pace.share(10_000), 10_000);
        pace.stalled();
        assert_eq!(pace.share(10_000), 1_250);
        for _ in 0..FORGIVEN {
            assert_eq!(pace.share(10_000), 1_250);
            pace.committed();
        }
        assert_eq!(pace.share(10_000), 10_000);
        for _ in 0..40 {
            pace.stalled();
        }
        assert_eq!((pace.share(10_000), pace.ahead), (1, 1));
    }
}
