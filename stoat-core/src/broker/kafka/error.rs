//! What each error code means for the engine: one table.

use rdkafka_sys::rd_kafka_resp_err_t as Raw;

use super::ffi::{self, Failure};
use crate::broker::{BrokerError, BrokerErrorKind as Kind};

/// An error code of librdkafka (negative) or of the broker (positive), known to us or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Code(pub(super) i32);

macro_rules! codes {
    ($($name:ident = $raw:ident),* $(,)?) => {
        impl Code {
            $(pub(super) const $name: Self = Self(Raw::$raw as i32);)*
        }
    };
}

codes! {
    NONE = RD_KAFKA_RESP_ERR_NO_ERROR,
    PARTITION_EOF = RD_KAFKA_RESP_ERR__PARTITION_EOF,
    QUEUE_FULL = RD_KAFKA_RESP_ERR__QUEUE_FULL,
    STATE = RD_KAFKA_RESP_ERR__STATE,
    TIMED_OUT = RD_KAFKA_RESP_ERR__TIMED_OUT,
    ALL_BROKERS_DOWN = RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN,
    PURGE_QUEUE = RD_KAFKA_RESP_ERR__PURGE_QUEUE,
    PURGE_INFLIGHT = RD_KAFKA_RESP_ERR__PURGE_INFLIGHT,
    INVALID_DIFFERENT_RECORD = RD_KAFKA_RESP_ERR__INVALID_DIFFERENT_RECORD,
    AUTHENTICATION = RD_KAFKA_RESP_ERR__AUTHENTICATION,
    SSL = RD_KAFKA_RESP_ERR__SSL,
    RESOLVE = RD_KAFKA_RESP_ERR__RESOLVE,
    FATAL = RD_KAFKA_RESP_ERR__FATAL,
    UNKNOWN_PARTITION = RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
    LEADER_NOT_AVAILABLE = RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE,
    INVALID_TOPIC = RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION,
    TOPIC_ALREADY_EXISTS = RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS,
    NOT_FOUND = RD_KAFKA_RESP_ERR__NOENT,
    GROUP_ID_NOT_FOUND = RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND,
}

const fn at(raw: Raw) -> i32 {
    raw as i32
}

/// The table: which codes are of which kind. A code that is not in it is [`Kind::Fatal`]: nothing is known about it,
/// so nothing but a new client and a look at the log can be right.
#[rustfmt::skip]
pub(super) const TABLE: &[(Kind, &[i32])] = &[
    // The broker is away, busy, or just changing its mind about who leads: the same call may work later.
    (Kind::Retriable, &[
        at(Raw::RD_KAFKA_RESP_ERR__TRANSPORT),
        at(Raw::RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN),
        at(Raw::RD_KAFKA_RESP_ERR__RESOLVE),
        at(Raw::RD_KAFKA_RESP_ERR__SSL),
        at(Raw::RD_KAFKA_RESP_ERR__TIMED_OUT),
        at(Raw::RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE),
        at(Raw::RD_KAFKA_RESP_ERR__MSG_TIMED_OUT),
        at(Raw::RD_KAFKA_RESP_ERR__WAIT_COORD),
        at(Raw::RD_KAFKA_RESP_ERR__WAIT_CACHE),
        at(Raw::RD_KAFKA_RESP_ERR__NODE_UPDATE),
        at(Raw::RD_KAFKA_RESP_ERR__QUEUE_FULL),
        at(Raw::RD_KAFKA_RESP_ERR__IN_PROGRESS),
        at(Raw::RD_KAFKA_RESP_ERR__PREV_IN_PROGRESS),
        at(Raw::RD_KAFKA_RESP_ERR__CONFLICT),
        at(Raw::RD_KAFKA_RESP_ERR__RETRY),
        at(Raw::RD_KAFKA_RESP_ERR__PURGE_QUEUE),
        at(Raw::RD_KAFKA_RESP_ERR__PURGE_INFLIGHT),
        at(Raw::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE),
        at(Raw::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION),
        at(Raw::RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT),
        at(Raw::RD_KAFKA_RESP_ERR_BROKER_NOT_AVAILABLE),
        at(Raw::RD_KAFKA_RESP_ERR_REPLICA_NOT_AVAILABLE),
        at(Raw::RD_KAFKA_RESP_ERR_NETWORK_EXCEPTION),
        at(Raw::RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS),
        at(Raw::RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE),
        at(Raw::RD_KAFKA_RESP_ERR_NOT_COORDINATOR),
        at(Raw::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS),
        at(Raw::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        at(Raw::RD_KAFKA_RESP_ERR_NOT_CONTROLLER),
        at(Raw::RD_KAFKA_RESP_ERR_CONCURRENT_TRANSACTIONS),
        at(Raw::RD_KAFKA_RESP_ERR_TRANSACTION_COORDINATOR_FENCED),
        at(Raw::RD_KAFKA_RESP_ERR_KAFKA_STORAGE_ERROR),
        at(Raw::RD_KAFKA_RESP_ERR_FENCED_LEADER_EPOCH),
        at(Raw::RD_KAFKA_RESP_ERR_UNKNOWN_LEADER_EPOCH),
        at(Raw::RD_KAFKA_RESP_ERR_OFFSET_NOT_AVAILABLE),
        at(Raw::RD_KAFKA_RESP_ERR_UNSTABLE_OFFSET_COMMIT),
        at(Raw::RD_KAFKA_RESP_ERR_THROTTLING_QUOTA_EXCEEDED),
    ]),
    // The transaction cannot be committed; the next one may.
    (Kind::Abort, &[
        at(Raw::RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION),
        at(Raw::RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID),
        at(Raw::RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS),
        at(Raw::RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID),
        at(Raw::RD_KAFKA_RESP_ERR_OFFSET_METADATA_TOO_LARGE),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_MSG),
        TRANSACTION_ABORTABLE,
    ]),
    // The broker looked at the record and will say the same each time.
    (Kind::Refused(None), &[
        at(Raw::RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE),
        at(Raw::RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_RECORD),
        at(Raw::RD_KAFKA_RESP_ERR_UNSUPPORTED_FOR_MESSAGE_FORMAT),
        at(Raw::RD_KAFKA_RESP_ERR_POLICY_VIOLATION),
    ]),
    // Says something about this producer, nothing about who owns the application (I-10).
    (Kind::Fenced, &[
        at(Raw::RD_KAFKA_RESP_ERR__FENCED),
        at(Raw::RD_KAFKA_RESP_ERR_PRODUCER_FENCED),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_EPOCH),
        at(Raw::RD_KAFKA_RESP_ERR_UNKNOWN_PRODUCER_ID),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_PRODUCER_ID_MAPPING),
    ]),
    (Kind::UnknownTopic, &[
        at(Raw::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART),
        at(Raw::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_ID),
        INCONSISTENT_TOPIC_ID,
        at(Raw::RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION),
        at(Raw::RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC),
        at(Raw::RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION),
    ]),
    (Kind::OutOfRange, &[
        at(Raw::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE),
        at(Raw::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET),
    ]),
    (Kind::Unauthorized, &[
        at(Raw::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED),
        at(Raw::RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED),
        at(Raw::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED),
        at(Raw::RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        at(Raw::RD_KAFKA_RESP_ERR_DELEGATION_TOKEN_AUTHORIZATION_FAILED),
        at(Raw::RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED),
        at(Raw::RD_KAFKA_RESP_ERR__AUTHENTICATION),
    ]),
    // The client's own state is broken, or what was asked makes no sense.
    (Kind::Fatal, &[
        at(Raw::RD_KAFKA_RESP_ERR__FATAL),
        at(Raw::RD_KAFKA_RESP_ERR__STATE),
        at(Raw::RD_KAFKA_RESP_ERR__INCONSISTENT),
        at(Raw::RD_KAFKA_RESP_ERR__DESTROY),
        at(Raw::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_TXN_STATE),
        at(Raw::RD_KAFKA_RESP_ERR_INVALID_TRANSACTION_TIMEOUT),
        at(Raw::RD_KAFKA_RESP_ERR_UNSUPPORTED_VERSION),
    ]),
];

/// Newer than the client library: Kafka 4 answers it when a transaction has to be aborted.
const TRANSACTION_ABORTABLE: i32 = 120;
/// Missing in the bindings.
const INCONSISTENT_TOPIC_ID: i32 = 103;

/// The kind of a code by the table.
pub(super) fn kind(code: Code) -> Kind {
    TABLE.iter().find(|(_, codes)| codes.contains(&code.0)).map_or(Kind::Fatal, |(kind, _)| *kind)
}

/// The kind of a failed call of the transactional producer: the client's own flags say more than the code.
pub(super) fn transactional(failure: &Failure) -> Kind {
    let by_code = kind(failure.code);
    match by_code {
        Kind::Fenced | Kind::Unauthorized => by_code,
        _ if failure.fatal => Kind::Fatal,
        Kind::Refused(_) | Kind::UnknownTopic => by_code,
        _ if failure.abort => Kind::Abort,
        _ if failure.retriable => Kind::Retriable,
        _ => by_code,
    }
}

/// An error of `what` with the broker's own words and the code's name.
pub(super) fn broker_error(kind: Kind, what: &str, code: Code, text: &str) -> BrokerError {
    let text = if text.is_empty() { ffi::describe(code) } else { text.to_owned() };
    BrokerError::new(kind, format!("{what}: {text} ({})", ffi::name(code)))
}
