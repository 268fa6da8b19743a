use std::fmt::{Debug, Write};

use crate::record::Record;

/// Asserts that these are the records, in this order: key, value and timestamp in ms. (Headers are not compared.)
///
/// # Panics
/// When they are not; the message shows all records, what is missing with `-` and what is too much with `+`.
///
/// # Examples
/// ```
/// use stoat_core::record::Record;
/// use stoat_core::testing::assert_records;
/// use stoat_core::time::Timestamp;
///
/// let got = [Record::new("ant".to_owned(), 1_u64, Timestamp(1_000))];
/// assert_records(&got, &[("ant", 1, 1_000)]);
/// ```
#[track_caller]
pub fn assert_records<K, V, J, W>(got: &[Record<K, V>], want: &[(J, W, i64)])
where
    K: Debug + PartialEq<J>,
    V: Debug + PartialEq<W>,
    J: Debug,
    W: Debug,
{
    let same = |g: &Record<K, V>, w: &(J, W, i64)| g.key == w.0 && g.value == w.1 && g.timestamp.as_millis() == w.2;
    if got.len() == want.len() && got.iter().zip(want).all(|(g, w)| same(g, w)) {
        return;
    }
    panic!("the records differ (- missing, + not expected):\n{}", difference(got, want, same));
}

/// The shortest way from one list to the other, a line per record.
fn difference<K: Debug, V: Debug, J: Debug, W: Debug>(
    got: &[Record<K, V>],
    want: &[(J, W, i64)],
    same: impl Fn(&Record<K, V>, &(J, W, i64)) -> bool,
) -> String {
    // common[g][w]: how many records the rests behind g and w can share.
    let mut common = vec![vec![0_usize; want.len() + 1]; got.len() + 1];
    for g in (0..got.len()).rev() {
        for w in (0..want.len()).rev() {
            common[g][w] =
                if same(&got[g], &want[w]) { common[g + 1][w + 1] + 1 } else { common[g + 1][w].max(common[g][w + 1]) };
        }
    }
    let (mut g, mut w, mut text) = (0, 0, String::new());
    while g < got.len() || w < want.len() {
        if g < got.len() && w < want.len() && same(&got[g], &want[w]) {
            line(&mut text, ' ', &got[g].key, &got[g].value, got[g].timestamp.as_millis());
            (g, w) = (g + 1, w + 1);
        } else if g == got.len() || w < want.len() && common[g][w + 1] >= common[g + 1][w] {
            line(&mut text, '-', &want[w].0, &want[w].1, want[w].2);
            w += 1;
        } else {
            line(&mut text, '+', &got[g].key, &got[g].value, got[g].timestamp.as_millis());
            g += 1;
        }
    }
    text
}

fn line(text: &mut String, mark: char, key: &impl Debug, value: &impl Debug, time: i64) {
    writeln!(text, "  {mark} {key:?} {value:?} @{time}").expect("a string takes everything");
}
