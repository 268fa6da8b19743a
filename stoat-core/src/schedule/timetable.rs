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

        /// The clocks go forward on 2026-03-29 at 01:00 UTC (02:00 becomes 03:00), and back on 2026-10-25 at 01:00 UTC (03:00
        /// becomes 02:00).
        const FORWARD: (&str, &str) = ("2026-03-28T12:00:00Z", "2026-03-30T12:00:00Z");
        const BACK: (&str, &str) = ("2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z");

        fn berlin(text: &str) -> Timetable {
            Timetable::new(&When::cron(text).zone("Europe/Berlin"), Missed::Once).unwrap()
        }

        fn between(table: &Timetable, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
            let mut last = from;
            std::iter::from_fn(|| {
                last = table.next(last).filter(|t| *t <= to)?;
                Some(last)
            })
            .collect()
        }

        fn utc(ticks: &[Timestamp]) -> Vec<String> {
            ticks.iter().map(|t| jiff::Timestamp::from_millisecond(t.0).unwrap().to_string()).collect()
        }

        fn ticks(text: &str, (from, to): (&str, &str)) -> Vec<String> {
            utc(&between(&berlin(text), at(from), at(to)))
        }

        #[test]
        fn a_single_time_of_day_ticks_once_whichever_way_the_clocks_change() {
            // There is no 02:30 on the 29th: the tick comes when the clocks have changed.
            assert_eq!(ticks("30 2 * * *", FORWARD), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]);
            // 02:30 comes twice on the 25th, at 00:30 UTC and at 01:30 UTC: the first counts.
            assert_eq!(ticks("30 2 * * *", BACK), ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]);
            assert_eq!(ticks("15 30 2 * * *", FORWARD), ["2026-03-29T01:00:00Z", "2026-03-30T00:30:15Z"]);
            assert_eq!(ticks("15 30 2 * * *", BACK), ["2026-10-25T00:30:15Z", "2026-10-26T01:30:15Z"]);
        }

        #[test]
        fn several_times_of_day_go_by_the_clock_on_the_wall_skipped_times_do_not_come_and_repeated_ones_come_twice() {
            let skipped = ["2026-03-28T13:30:00Z", "2026-03-29T12:30:00Z", "2026-03-30T00:30:00Z"];
            assert_eq!(ticks("30 2,14 * * *", FORWARD), skipped);
            let twice =
                ["2026-10-24T12:30:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-25T13:30:00Z"];
            assert_eq!(ticks("30 2,14 * * *", BACK)[..4], twice);
            assert_eq!(ticks("0,30 2 * * *", FORWARD), ["2026-03-30T00:00:00Z", "2026-03-30T00:30:00Z"]);
            let twice =
                ["2026-10-25T00:00:00Z", "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z", "2026-10-25T01:30:00Z"];
            assert_eq!(ticks("0,30 2 * * *", BACK)[..4], twice);
        }

        #[test]
        fn an_interval_goes_on_evenly_over_a_change_of_the_clocks() {
            for (text, every) in [("30 * * * *", 3_600_000), ("*/20 * * * *", 1_200_000), ("*/15 * * * * *", 15_000)] {
                for (from, to) in [FORWARD, BACK] {
                    let ticks = between(&berlin(text), at(from), at(to));
                    assert_eq!(ticks.len() as i64, 48 * 3_600_000 / every, "{text}");
                    assert!(ticks.windows(2).all(|w| w[1].0 - w[0].0 == every), "{text}: {:?}", utc(&ticks));
                }
            }
        }

        #[test]
        fn the_newest_tick_is_the_last_that_came_at_any_moment_around_a_change_of_the_clocks() {
            let texts = [
                "30 2 * * *",
                "0 3 * * *",
                "59 1 * * *",
                "30 2,14 * * *",
                "0,30 2 * * *",
                "30 * * * *",
                "7 30 2 * * *",
            ];
            for text in texts {
                let table = berlin(text);
                for (from, to) in [FORWARD, BACK] {
                    // The first of these ticks is before each moment.
                    let ticks = between(&table, Timestamp(at(from).0 - 86_400_000), at(to));
                    let minutes = (at(from).0..at(to).0).step_by(60_000);
                    for moment in minutes.flat_map(|m| [m - 1, m, m + 1, m + 29_500]).map(Timestamp) {
                        let came = ticks.partition_point(|t| *t <= moment);
                        let when = utc(&[moment]);
                        assert_eq!(table.newest(moment), came.checked_sub(1).map(|i| ticks[i]), "{text} at {when:?}");
                        if let Some(next) = ticks.get(came) {
                            assert_eq!(table.next(moment), Some(*next), "{text} after {when:?}");
                        }
                    }
                }
            }
        }

        #[test]
        fn what_was_missed_over_a_change_of_the_clocks_is_skipped_or_comes_once_or_each() {
            let turn = |missed, last, now| {
                let table = Timetable::new(&When::cron("30 2 * * *").zone("Europe/Berlin"), missed).unwrap();
                let turn = table.turn(Some(at(last)), at(now), at(now));
                (utc(&turn.fire), utc(&[turn.last.unwrap()]))
            };
            for (last, now, missed) in [
                ("2026-03-28T01:30:00Z", FORWARD.1, ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]),
                ("2026-10-24T00:30:00Z", BACK.1, ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
            ] {
                let newest = missed[1].to_owned();
                assert_eq!(turn(Missed::Skip, last, now), (vec![], vec![newest.clone()]));
                assert_eq!(turn(Missed::Once, last, now), (vec![newest.clone()], vec![newest.clone()]));
                assert_eq!(turn(Missed::Each, last, now), (missed.map(str::to_owned).to_vec(), vec![newest]));
            }
            // Down within the hour that comes twice: the tick of its first half is missed once, and not again in the second.
            let (fire, last) = turn(Missed::Once, "2026-10-24T00:30:00Z", "2026-10-25T00:45:00Z");
            assert_eq!((fire.len(), &*last[0]), (1, "2026-10-25T00:30:00Z"));
            assert_eq!(turn(Missed::Each, "2026-10-25T00:30:00Z", "2026-10-25T01:45:00Z").0, [""; 0]);
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
