use std::collections::{BTreeMap, BTreeSet};

use super::{MINUTE, SESSION_GAP, START_MS, generate};

fn parse(log: &str) -> Vec<(u64, String)> {
    log.lines()
        .map(|line| {
            let mut fields = line.split(',');
            let timestamp = fields.next().and_then(|field| field.parse().ok()).expect("a number comes first");
            (timestamp, fields.next().expect("a user comes second").to_owned())
        })
        .collect()
}

#[test]
fn the_bundled_log_is_the_one_that_this_program_makes() {
    let path = crate::sh::root().join("examples/data/clicks.csv");
    let bundled = std::fs::read_to_string(path).expect("the log is bundled");
    assert!(bundled == generate(42).0, "run `cargo xtask clicks`");
}

#[test]
fn the_log_is_large_enough_and_small_enough_and_begins_on_the_dot() {
    let (log, _) = generate(42);
    let clicks = parse(&log);
    let users: BTreeSet<_> = clicks.iter().map(|(_, user)| user).collect();
    let (first, last) = (clicks.iter().min().expect("clicks").0, clicks.iter().max().expect("clicks").0);
    assert!(clicks.len() >= 50_000, "{} clicks", clicks.len());
    assert!(log.len() < 2_500_000, "{} bytes", log.len());
    assert_eq!(users.len(), 2_000);
    assert_eq!(first, START_MS);
    assert!((23 * 60..27 * 60).contains(&((last - first) / MINUTE)), "{} minutes", (last - first) / MINUTE);
}

#[test]
fn some_clicks_are_out_of_order_and_none_by_more_than_ten_seconds() {
    let (mut seen, mut late, mut worst) = (0, 0, 0);
    for (timestamp, _) in parse(&generate(42).0) {
        seen = seen.max(timestamp);
        late += usize::from(timestamp < seen);
        worst = worst.max(seen - timestamp);
    }
    assert!(late > 1_000, "only {late} clicks are out of order");
    assert!((8_000..=10_000).contains(&worst), "the worst is {worst} ms");
}

#[test]
fn the_gaps_tell_the_sessions_apart() {
    let (log, sessions) = generate(42);
    let mut users: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (timestamp, user) in parse(&log) {
        users.entry(user).or_default().push(timestamp);
    }
    let mut found = 0;
    for times in users.values_mut() {
        times.sort_unstable();
        found += 1 + times.windows(2).filter(|pair| pair[1] - pair[0] > SESSION_GAP).count();
    }
    assert_eq!(found, sessions);
}
