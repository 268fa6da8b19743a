//! Durations as users write them.

use std::time::Duration;

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// Reads `"10s"`, `"500ms"`, `"5m"`, `"1h"`, `"7d"`.
///
/// # Errors
/// A text that says what is expected.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim().trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text.trim()[digits.len()..];
    let expected =
        || format!("`{text}` is not a duration: write a whole number and a unit (ms, s, m, h, d), as in \"10s\"");
    let millis = UNITS.iter().find(|(u, _)| *u == unit).map(|(_, n)| *n).ok_or_else(expected)?;
    let n: u64 = digits.trim().parse().map_err(|_| expected())?;
    n.checked_mul(millis).map(Duration::from_millis).ok_or_else(expected)
}
