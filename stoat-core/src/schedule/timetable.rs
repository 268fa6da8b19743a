//! Which ticks are due. Pure: the clock is given.

use super::{Kind, Missed, When};
use crate::error::{Error, ErrorKind, Result};
use crate::time::{TimeDomain, Timestamp};

/// Ticks that one turn takes at most; the next turn goes on.
const MOST: usize = 256;

/// A schedule's times, checked.
#[derive(Clone, Debug)]
pub struct Timetable {
    times: Times,
    clock: TimeDomain,
    missed: Missed,
}

#[derive(Clone, Debug)]
enum Times {
    /// Multiples of so many ms since 1970.
    Every(i64),
    #[cfg(feature = "cron")]
    Cron(Box<(croner::Cron, jiff::tz::TimeZone)>),
}

/// What is to be done now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// The ticks to handle, in order.
    pub fire: Vec<Timestamp>,
    /// The last tick then: handled, or passed over.
    pub last: Option<Timestamp>,
}

impl Timetable {
    /// Checks a schedule's times.
    ///
    /// # Errors
    /// An interval below a millisecond, a cron expression that cannot be read, or an unknown time zone.
    pub fn new(when: &When, missed: Missed) -> Result<Self> {
        let bad = |text: String| Error::new(ErrorKind::Topology, text);
        let (times, clock) = match &when.0 {
            Kind::Every(interval, clock) => {
                let every = i64::try_from(interval.as_millis()).unwrap_or(i64::MAX);
                if every == 0 {
                    return Err(bad(format!("an interval of {interval:?}: it is at least a millisecond")));
                }
                (Times::Every(every), *clock)
            }
            #[cfg(feature = "cron")]
            Kind::Cron { text, zone } => {
                let cron = croner::parser::CronParser::builder()
                    .seconds(croner::parser::Seconds::Optional)
                    .build()
                    .parse(text)
                    .map_err(|e| bad(format!("the cron expression `{text}` cannot be read: {e}")))?;
                let zone = match zone {
                    None => jiff::tz::TimeZone::UTC,
                    Some(name) => jiff::tz::TimeZone::get(name).map_err(|e| {
                        bad(format!(
                            "the time zone `{name}` is not known ({e}): give an IANA name such as `Europe/Berlin`"
                        ))
                    })?,
                };
                (Times::Cron(Box::new((cron, zone))), TimeDomain::Wall)
            }
        };
        Ok(Self { times, clock, missed })
    }

    /// Which clock it follows.
    pub fn clock(&self) -> TimeDomain {
        self.clock
    }

    /// The first tick after a time.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.times {
            Times::Every(every) => {
                let n = after.0.div_euclid(*every).checked_add(1)?;
                n.checked_mul(*every).map(Timestamp)
            }
            #[cfg(feature = "cron")]
            Times::Cron(c) => {
                let found = c.0.find_next_occurrence(&zoned(after, &c.1)?, false).ok()?;
                Some(Timestamp(found.timestamp().as_millisecond())).filter(|t| *t > after)
            }
        }
    }

    /// The last tick at or before a time.
    pub fn newest(&self, at: Timestamp) -> Option<Timestamp> {
        match &self.times {
            Times::Every(every) => Some(Timestamp(at.0.div_euclid(*every) * every)),
            #[cfg(feature = "cron")]
            Times::Cron(c) => {
                let found = c.0.find_previous_occurrence(&zoned(at, &c.1)?, true).ok()?;
                Some(Timestamp(found.timestamp().as_millisecond())).filter(|t| *t <= at)
            }
        }
    }

    /// What is to be done at `now`, where `last` is the last tick (`None`: the schedule is new) and the application runs
    /// since `started`.
    ///
    /// A new schedule begins with the first tick after it was first seen. Of ticks that become due at once while the
    /// application runs, because something held it up, only the last comes, unless each is asked for.
    pub fn turn(&self, last: Option<Timestamp>, now: Timestamp, started: Timestamp) -> Turn {
        let Some(newest) = (now > Timestamp::MIN).then(|| self.newest(now)).flatten() else {
            return Turn { fire: Vec::new(), last };
        };
        let Some(last) = last else {
            return Turn { fire: Vec::new(), last: Some(newest) };
        };
        if newest <= last {
            return Turn { fire: Vec::new(), last: Some(last) };
        }
        let fire = match self.missed {
            Missed::Skip if newest <= started => Vec::new(),
            Missed::Skip | Missed::Once => vec![newest],
            Missed::Each => {
                let mut at = last;
                let ticks = std::iter::from_fn(|| {
                    at = self.next(at)?;
                    (at <= newest).then_some(at)
                });
                ticks.take(MOST).collect()
            }
        };
        let last = if self.missed == Missed::Each { fire.last().copied().unwrap_or(newest) } else { newest };
        Turn { fire, last: Some(last) }
    }
}

#[cfg(feature = "cron")]
fn zoned(at: Timestamp, zone: &jiff::tz::TimeZone) -> Option<jiff::Zoned> {
    Some(jiff::Timestamp::from_millisecond(at.0).ok()?.to_zoned(zone.clone()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn table(missed: Missed) -> Timetable {
        Timetable::new(&When::every(Duration::from_millis(10)), missed).unwrap()
    }

    fn turn(missed: Missed, last: Option<i64>, now: i64, started: i64) -> (Vec<i64>, Option<i64>) {
        let turn = table(missed).turn(last.map(Timestamp), Timestamp(now), Timestamp(started));
        (turn.fire.into_iter().map(|t| t.0).collect(), turn.last.map(|t| t.0))
    }

    #[test]
    fn a_schedule_begins_with_the_first_tick_after_it_was_first_seen() {
        for missed in [Missed::Skip, Missed::Once, Missed::Each] {
            assert_eq!(turn(missed, None, 57, 57), (vec![], Some(50)));
            assert_eq!(turn(missed, Some(50), 59, 57), (vec![], Some(50)));
            assert_eq!(turn(missed, Some(50), 60, 57), (vec![60], Some(60)));
            assert_eq!(turn(missed, Some(60), 60, 57), (vec![], Some(60)), "not twice");
            assert_eq!(turn(missed, Some(60), 40, 57), (vec![], Some(60)), "a clock that goes back brings none again");
        }
    }

    #[test]
    fn after_downtime_missed_ticks_are_skipped_or_come_once_or_each() {
        assert_eq!(turn(Missed::Skip, Some(50), 97, 97), (vec![], Some(90)));
        assert_eq!(turn(Missed::Skip, Some(90), 101, 97), (vec![100], Some(100)));
        assert_eq!(turn(Missed::Once, Some(50), 97, 97), (vec![90], Some(90)));
        assert_eq!(turn(Missed::Each, Some(50), 97, 97), (vec![60, 70, 80, 90], Some(90)));
    }

    #[test]
    fn what_was_held_up_while_it_ran_is_not_missed_by_downtime() {
        assert_eq!(turn(Missed::Skip, Some(50), 97, 20), (vec![90], Some(90)));
        assert_eq!(turn(Missed::Once, Some(50), 97, 20), (vec![90], Some(90)));
        assert_eq!(turn(Missed::Each, Some(50), 97, 20), (vec![60, 70, 80, 90], Some(90)));
    }

    #[test]
    fn each_of_many_comes_in_turns() {
        let (fire, last) = turn(Missed::Each, Some(0), 100_000, 100_000);
        assert_eq!((fire.len(), last), (MOST, Some(MOST as i64 * 10)));
        assert_eq!(turn(Missed::Each, last, 100_000, 100_000).0[0], MOST as i64 * 10 + 10);
    }

    #[test]
    fn times_before_1970_and_at_the_ends_of_time_do_no_harm() {
        assert_eq!(turn(Missed::Once, Some(-25), -11, 0), (vec![-20], Some(-20)));
        let t = table(Missed::Once);
        assert_eq!(t.turn(Some(Timestamp(0)), Timestamp::MIN, Timestamp(0)).fire, []);
        assert_eq!(t.next(Timestamp::MAX), None);
        assert!(Timetable::new(&When::every(Duration::from_micros(9)), Missed::Once).is_err());
    }

    #[cfg(feature = "cron")]
    mod cron {
        use super::*;

        fn at(text: &str) -> Timestamp {
            Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_millisecond())
        }

        fn daily(zone: &str) -> Timetable {
            Timetable::new(&When::cron("30 2 * * *").zone(zone), Missed::Once).unwrap()
        }

        #[test]
        fn a_cron_expression_goes_by_its_zone() {
            assert_eq!(daily("UTC").next(at("2026-07-01T02:29:59Z")), Some(at("2026-07-01T02:30:00Z")));
            assert_eq!(daily("Europe/Berlin").next(at("2026-07-01T00:00:00Z")), Some(at("2026-07-01T00:30:00Z")));
            assert_eq!(daily("Europe/Berlin").next(at("2026-01-01T01:00:00Z")), Some(at("2026-01-01T01:30:00Z")));
            assert_eq!(daily("Europe/Berlin").newest(at("2026-01-01T01:30:00Z")), Some(at("2026-01-01T01:30:00Z")));
            assert_eq!(daily("Europe/Berlin").newest(at("2026-01-01T01:29:59Z")), Some(at("2025-12-31T01:30:00Z")));
        }

        #[test]
        fn a_change_of_the_clocks_makes_one_tick_of_a_day() {
            for (from, to) in
                [("2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z"), ("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z")]
            {
                let (table, mut ticks, mut last) = (daily("Europe/Berlin"), Vec::new(), at(from));
                while let Some(next) = table.next(last).filter(|t| *t <= at(to)) {
                    ticks.push(next);
                    last = next;
                }
                assert_eq!(ticks.len(), 2, "{ticks:?}");
            }
        }

        #[test]
        fn seconds_are_a_sixth_field_in_front() {
            let t = Timetable::new(&When::cron("*/15 * * * * *"), Missed::Once).unwrap();
            assert_eq!(t.next(at("2026-01-01T00:00:01Z")), Some(at("2026-01-01T00:00:15Z")));
        }

        #[test]
        fn what_cannot_be_read_is_named() {
            let text = |w: When| Timetable::new(&w, Missed::Once).unwrap_err().to_string();
            assert!(text(When::cron("61 * * * *")).contains("`61 * * * *`"));
            assert!(text(When::cron("0 0 * * *").zone("Europe/Berlln")).contains("`Europe/Berlln` is not known"));
        }
    }
}
