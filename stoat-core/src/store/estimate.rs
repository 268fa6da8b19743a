/// What a value takes, roughly, when it is encoded.
///
/// Without it a new value's weight, and that of one that grows, would be known only when the epoch ends, which may be what
/// the weight is to bring about. So what was written is measured now and then on the way. Measuring is encoding once more,
/// so long values are measured ever less often as the epoch gets longer; short ones cost next to nothing, and one is measured
/// on each occasion, so that it is seen at once when long ones come.
#[derive(Debug)]
pub(super) struct Estimate {
    typical: usize,
    /// Which value was measured last.
    turn: usize,
    /// Occasions since the last freeze, and at which of them a value is measured next.
    calls: usize,
    due: usize,
    /// How many values there were when one was measured last.
    seen: usize,
    /// Values in a row, since the last freeze, that were not what was expected.
    surprises: u32,
}

/// A value of so many bytes is measured whenever there is an occasion.
const SHORT: usize = 64;
/// Values of another length than expected that are followed by another look at once, in one epoch: where lengths differ much
/// anyway, each is a surprise.
const SURPRISES: u32 = 32;

impl Estimate {
    /// `typical`: where nothing is known.
    pub(super) fn new(typical: usize) -> Self {
        Self { typical, turn: 0, calls: 0, due: 0, seen: 0, surprises: 0 }
    }

    /// The length of a value of which nothing is known.
    pub(super) fn typical(&self) -> usize {
        self.typical
    }

    /// Moves what is typical an eighth of the way to what was seen.
    pub(super) fn learn(&mut self, seen: usize) {
        self.typical = (self.typical * 7 + seen).div_ceil(8);
    }

    /// All values were encoded, and what is written next is counted from 0.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.typical);
    }

    /// An occasion to measure one of so many values: which, if any.
    pub(super) fn look(&mut self, values: usize) -> Option<usize> {
        let last = values.checked_sub(1)?;
        self.calls += 1;
        if self.calls < self.due {
            return None;
        }
        // What is new tells how long new ones are; where nothing is, what is there may have grown.
        self.turn = if values > self.seen { last } else { (self.turn + 1) % values };
        self.seen = values;
        Some(self.turn)
    }

    /// The value that was looked at has so many bytes.
    pub(super) fn measured(&mut self, expected: usize, seen: usize) {
        let far = |a: usize, b: usize| a > 2 * b + SHORT;
        if (far(seen, expected) || far(expected, seen)) && self.surprises < SURPRISES {
            self.surprises += 1;
            self.typical = self.typical.midpoint(seen);
            self.due = self.calls + 1;
        } else {
            self.learn(seen);
            self.due = self.calls + (self.calls / 8).min(seen / SHORT).max(1);
        }
    }
}
