//! What the engine does about a call of the broker that failed: one table. `docs/errors.md` shows it.

use crate::broker::BrokerErrorKind as Kind;
use crate::error::ErrorKind;

/// A call, by what is at stake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// A start or a recovery asks or prepares: topics, offsets, the group, what to read.
    Ask,
    /// The transactional producer is initialised.
    Init,
    /// The transaction of a claim, or of a probe.
    Claim,
    /// The transaction of an epoch, its commit included.
    Epoch,
    /// An input or the epoch topic is read while records are processed.
    Read,
    /// A changelog or the epoch topic is read before that.
    Restore,
}

/// What is done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// The same call again after a pause. A start gives up after `stoat.kafka.connect-timeout`, a recovery never does.
    Again,
    /// As [`Remedy::Again`], but first the producer is initialised and the epoch record is read.
    InitAndAgain,
    /// Initialise and look who owns the application, after a pause that grows; at most five times (I-10).
    LookAgain,
    /// Ask for the same commit again, at most five times, then recover (I-9).
    CommitAgain,
    /// Drop the open epochs, restart in place from the last committed one.
    Recover {
        /// Read the epoch record before the producer is initialised (I-10).
        look_first: bool,
        /// Whether it spends the fault budget.
        counts: bool,
    },
    /// The produce gate decides about the record.
    Gate,
    /// The process ends.
    End(ErrorKind),
}

impl Call {
    /// All calls.
    pub const ALL: [Self; 6] = [Self::Ask, Self::Init, Self::Claim, Self::Epoch, Self::Read, Self::Restore];
}

/// The table.
#[expect(clippy::match_same_arms, reason = "rows of a table, each with its own reason")]
pub fn remedy(call: Call, kind: Kind) -> Remedy {
    let lost = Remedy::Recover { look_first: false, counts: true };
    match (call, kind) {
        // Nothing that is waited for makes these right.
        (Call::Epoch, Kind::Refused(_)) => Remedy::Gate,
        (Call::Epoch, Kind::OutOfRange) => lost,
        (_, Kind::UnknownTopic | Kind::OutOfRange | Kind::Unauthorized) => Remedy::End(ErrorKind::Topic),

        // The client makes what it needs anew.
        (Call::Ask | Call::Init, Kind::Retriable | Kind::Abort | Kind::Fatal) | (Call::Ask, Kind::Fenced) => {
            Remedy::Again
        }
        (Call::Claim, Kind::Retriable | Kind::Abort | Kind::Fatal | Kind::Unknown) => Remedy::InitAndAgain,
        (Call::Init | Call::Claim, Kind::Fenced) => Remedy::LookAgain,
        (Call::Ask | Call::Init, Kind::Unknown) => Remedy::End(ErrorKind::Unavailable),
        (Call::Ask | Call::Init | Call::Claim, Kind::Refused(_)) => Remedy::End(ErrorKind::Refused),

        (Call::Epoch, Kind::Unknown) => Remedy::CommitAgain,
        (Call::Epoch, Kind::Fenced) => Remedy::Recover { look_first: true, counts: true },
        // An outage is nobody's fault; each try waits as long as a transaction may last.
        (Call::Epoch, Kind::Retriable) => Remedy::Recover { look_first: false, counts: false },
        (Call::Epoch, Kind::Abort | Kind::Fatal) => lost,

        // Outages do not come here: the client reads on by itself once it can.
        (Call::Read, _) => lost,
        (Call::Restore, Kind::Refused(_)) => Remedy::End(ErrorKind::Refused),
        (Call::Restore, Kind::Fenced) => Remedy::End(ErrorKind::Fenced),
        (Call::Restore, _) => Remedy::End(ErrorKind::Unavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 9] = [
        Kind::Retriable,
        Kind::Unknown,
        Kind::Abort,
        Kind::Refused(None),
        Kind::Fenced,
        Kind::UnknownTopic,
        Kind::OutOfRange,
        Kind::Unauthorized,
        Kind::Fatal,
    ];

    fn cell(remedy: Remedy) -> String {
        match remedy {
            Remedy::Again => "again".to_owned(),
            Remedy::InitAndAgain => "init, again".to_owned(),
            Remedy::LookAgain => "look again".to_owned(),
            Remedy::CommitAgain => "commit again".to_owned(),
            Remedy::Recover { look_first, counts } => {
                let first = if look_first { "look, " } else { "" };
                format!("{first}recover{}", if counts { " (fault)" } else { "" })
            }
            Remedy::Gate => "gate".to_owned(),
            Remedy::End(kind) => format!("end: {kind:?}"),
        }
    }

    #[test]
    fn the_table_in_the_docs_is_the_one_that_holds() {
        let docs = include_str!("../../../docs/errors.md");
        for kind in KINDS {
            let name = format!("{kind:?}").replace("(None)", "");
            let cells: Vec<String> = Call::ALL.iter().map(|call| cell(remedy(*call, kind))).collect();
            let row = format!("| `{name}` | {} |", cells.join(" | "));
            assert!(docs.contains(&row), "docs/errors.md lacks the row\n{row}");
        }
    }

    #[test]
    fn i09_i10_what_has_no_known_outcome_and_what_looks_like_fencing_is_never_taken_for_an_end() {
        assert_eq!(remedy(Call::Epoch, Kind::Unknown), Remedy::CommitAgain);
        assert_eq!(remedy(Call::Claim, Kind::Unknown), Remedy::InitAndAgain);
        for call in [Call::Ask, Call::Init, Call::Claim, Call::Epoch] {
            assert!(!matches!(remedy(call, Kind::Fenced), Remedy::End(_)), "{call:?}");
            assert!(!matches!(remedy(call, Kind::Retriable), Remedy::End(_)), "{call:?}");
        }
    }
}
