//! The thin layer over librdkafka: owned handles whose order of destruction is right by construction, and every
//! `unsafe` block of the crate.
//!
//! Error codes are read as plain integers: a broker may answer codes that the bindings' enum does not know, and such
//! a value must never become a Rust enum.

mod admin;

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::size_of;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka_sys as sys;
use sys::rd_kafka_vtype_t as Vtype;

pub(super) use admin::TopicFacts;

use super::error::Code;
use crate::id::{NextOffset, TopicPartition};
use crate::record::Headers;
use crate::time::Timestamp;

// The same functions as in the bindings, with error codes as integers (see above).
#[allow(clashing_extern_declarations, reason = "an enum of the bindings is an int in C")]
unsafe extern "C" {
    fn rd_kafka_error_code(error: *const sys::rd_kafka_error_t) -> c_int;
    fn rd_kafka_event_error(event: *mut sys::rd_kafka_event_t) -> c_int;
    fn rd_kafka_metadata(
        rk: *mut sys::rd_kafka_t,
        all_topics: c_int,
        only_rkt: *mut sys::rd_kafka_topic_t,
        metadatap: *mut *const sys::rd_kafka_metadata,
        timeout_ms: c_int,
    ) -> c_int;
    fn rd_kafka_flush(rk: *mut sys::rd_kafka_t, timeout_ms: c_int) -> c_int;
    fn rd_kafka_err2str(code: c_int) -> *const c_char;
    fn rd_kafka_err2name(code: c_int) -> *const c_char;
    fn rd_kafka_message_headers(
        message: *const sys::rd_kafka_message_t,
        headers: *mut *mut sys::rd_kafka_headers_t,
    ) -> c_int;
    fn rd_kafka_header_get_all(
        headers: *const sys::rd_kafka_headers_t,
        idx: usize,
        name: *mut *const c_char,
        value: *mut *const c_void,
        size: *mut usize,
    ) -> c_int;
    fn rd_kafka_header_add(
        headers: *mut sys::rd_kafka_headers_t,
        name: *const c_char,
        name_size: isize,
        value: *const c_void,
        value_size: isize,
    ) -> c_int;
    fn rd_kafka_conf_interceptor_add_on_new(
        conf: *mut sys::rd_kafka_conf_t,
        name: *const c_char,
        on_new: extern "C" fn(
            *mut sys::rd_kafka_t,
            *const sys::rd_kafka_conf_t,
            *mut c_void,
            *mut c_char,
            usize,
        ) -> c_int,
        opaque: *mut c_void,
    ) -> c_int;
    fn rd_kafka_interceptor_add_on_response_received(
        rk: *mut sys::rd_kafka_t,
        name: *const c_char,
        callback: extern "C" fn(
            *mut sys::rd_kafka_t,
            c_int,
            *const c_char,
            i32,
            i16,
            i16,
            i32,
            usize,
            i64,
            c_int,
            *mut c_void,
        ) -> c_int,
        opaque: *mut c_void,
    ) -> c_int;
}

/// What librdkafka says of a code.
pub(super) fn describe(code: Code) -> String {
    // SAFETY: both return static, NUL-terminated text for every integer.
    unsafe { text(rd_kafka_err2str(code.0)) }
}

/// The code's short name, such as `TOPIC_AUTHORIZATION_FAILED`.
pub(super) fn name(code: Code) -> String {
    // SAFETY: as in `describe`.
    unsafe { text(rd_kafka_err2name(code.0)) }
}

/// # Safety
/// `p` is null or a NUL-terminated text that lives during the call.
unsafe fn text(p: *const c_char) -> String {
    if p.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned()
}

fn c_text(s: &str) -> CString {
    // No name or setting of Kafka holds a NUL; what is behind one is cut rather than refused here, the broker refuses the rest.
    CString::new(s).unwrap_or_else(|e| {
        let at = e.nul_position();
        CString::new(&s.as_bytes()[..at]).expect("cut before the first NUL")
    })
}

fn millis(d: Duration) -> c_int {
    c_int::try_from(d.as_millis()).unwrap_or(c_int::MAX)
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) code: Code,
    pub(super) fatal: bool,
    pub(super) retriable: bool,
    pub(super) abort: bool,
    pub(super) text: String,
}

impl Failure {
    pub(super) fn plain(code: Code) -> Self {
        Self { code, fatal: false, retriable: false, abort: false, text: describe(code) }
    }
}

/// Takes over an error of librdkafka; null is success.
///
/// # Safety
/// `error` is null or an owned error that nobody else destroys.
unsafe fn check(error: *mut sys::rd_kafka_error_t) -> Result<(), Failure> {
    if error.is_null() {
        return Ok(());
    }
    // SAFETY: not null, owned by us until destroyed below.
    unsafe {
        let failure = Failure {
            code: Code(rd_kafka_error_code(error)),
            fatal: sys::rd_kafka_error_is_fatal(error) != 0,
            retriable: sys::rd_kafka_error_is_retriable(error) != 0,
            abort: sys::rd_kafka_error_txn_requires_abort(error) != 0,
            text: text(sys::rd_kafka_error_string(error)),
        };
        sys::rd_kafka_error_destroy(error);
        Err(failure)
    }
}

/// Reads an error that librdkafka keeps; null and code 0 are none.
///
/// # Safety
/// `error` is null or lives during the call.
unsafe fn peek(error: *const sys::rd_kafka_error_t) -> Option<(Code, String)> {
    if error.is_null() {
        return None;
    }
    // SAFETY: promised by the caller.
    unsafe {
        let code = Code(rd_kafka_error_code(error));
        (code != Code::NONE).then(|| (code, text(sys::rd_kafka_error_string(error))))
    }
}

/// Notices a request to end a transaction that got no answer: the client repeats it by itself, and the lost one may
/// still arrive.
#[derive(Debug, Default)]
pub(super) struct EndTxnWatch(AtomicBool);

impl EndTxnWatch {
    const API_KEY: i16 = 26;

    pub(super) fn reset(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    /// Whether a request was lost since the reset.
    pub(super) fn lost(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

extern "C" fn on_new(
    rk: *mut sys::rd_kafka_t,
    _conf: *const sys::rd_kafka_conf_t,
    opaque: *mut c_void,
    _errstr: *mut c_char,
    _size: usize,
) -> c_int {
    // SAFETY: called within rd_kafka_new with the client under construction; the opaque is the watch, see `Client::new`.
    unsafe { rd_kafka_interceptor_add_on_response_received(rk, c"stoat".as_ptr(), on_response_received, opaque) }
}

extern "C" fn on_response_received(
    _rk: *mut sys::rd_kafka_t,
    _socket: c_int,
    _broker: *const c_char,
    _broker_id: i32,
    api_key: i16,
    _version: i16,
    _correlation: i32,
    _size: usize,
    _rtt: i64,
    error: c_int,
    opaque: *mut c_void,
) -> c_int {
    if api_key == EndTxnWatch::API_KEY && error != 0 {
        // SAFETY: the opaque is the `EndTxnWatch` that `Client` keeps until the client is destroyed.
        unsafe { &*opaque.cast::<EndTxnWatch>() }.0.store(true, Ordering::SeqCst);
    }
    0
}

/// Whether the same line, its numbers aside, was told within the last minutes: while a broker or a topic is away librdkafka
/// says so for each connection and partition, again and again.
fn repeated(line: &str) -> bool {
    const SILENCE: Duration = Duration::from_mins(5);
    const REMEMBERED: usize = 64;
    static TOLD: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());
    // What librdkafka puts into parentheses says how long and how often.
    let shape: String = line.split(" (after ").next().unwrap_or(line).chars().filter(|c| !c.is_ascii_digit()).collect();
    let now = Instant::now();
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    told.retain(|(_, at)| now.duration_since(*at) < SILENCE);
    if told.iter().any(|(s, _)| *s == shape) {
        return true;
    }
    if told.len() == REMEMBERED {
        told.remove(0);
    }
    told.push((shape, now));
    false
}

extern "C" fn on_log(_rk: *const sys::rd_kafka_t, level: c_int, facility: *const c_char, line: *const c_char) {
    // SAFETY: librdkafka passes NUL-terminated texts that live during the call.
    let (facility, line) = unsafe { (text(facility), text(line)) };
    if repeated(&line) {
        tracing::debug!(target: "stoat::kafka", facility, "{line}");
        return;
    }
    // syslog levels: what librdkafka calls an error is for us news of a connection, which the engine reports by itself.
    match level {
        // Settings of ours that the library has an opinion on.
        _ if facility == "CONFWARN" => tracing::debug!(target: "stoat::kafka", facility, "{line}"),
        ..=3 => tracing::warn!(target: "stoat::kafka", facility, "{line}"),
        4..=5 => tracing::info!(target: "stoat::kafka", facility, "{line}"),
        _ => tracing::debug!(target: "stoat::kafka", facility, "{line}"),
    }
}

/// Which kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Producer,
    Consumer,
}

/// Why a setting is not taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Setting {
    Unknown,
    Invalid,
}

struct Conf(*mut sys::rd_kafka_conf_t);

impl Conf {
    fn new() -> Self {
        // SAFETY: no precondition; never null.
        Self(unsafe { sys::rd_kafka_conf_new() })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Setting> {
        let (key, value) = (c_text(key), c_text(value));
        let mut buffer = [0 as c_char; 256];
        // SAFETY: the conf is ours; texts are NUL-terminated; the buffer's length is given.
        let r =
            unsafe { sys::rd_kafka_conf_set(self.0, key.as_ptr(), value.as_ptr(), buffer.as_mut_ptr(), buffer.len()) };
        match r {
            sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_OK => Ok(()),
            sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_UNKNOWN => Err(Setting::Unknown),
            sys::rd_kafka_conf_res_t::RD_KAFKA_CONF_INVALID => Err(Setting::Invalid),
        }
    }
}

impl Drop for Conf {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: ours, not given to a client.
            unsafe { sys::rd_kafka_conf_destroy(self.0) }
        }
    }
}

/// Whether librdkafka takes a setting.
pub(super) fn try_setting(key: &str, value: &str) -> Result<(), Setting> {
    Conf::new().set(key, value)
}

/// One librdkafka client. Everything made from it keeps it alive; destroyed with the last of them.
pub(super) struct Client {
    rk: NonNull<sys::rd_kafka_t>,
    watch: Arc<EndTxnWatch>,
    /// Set when the broker is being dropped: no wait for an answer goes on.
    stop: Arc<AtomicBool>,
}

// SAFETY: librdkafka's clients are thread-safe; the calls that must not overlap (transactions) are made by one thread.
unsafe impl Send for Client {}
// SAFETY: as above.
unsafe impl Sync for Client {}

impl Client {
    /// Makes a client. Does not wait for a broker.
    ///
    /// Errors are librdkafka's own words; settings are named in them.
    pub(super) fn new(kind: Kind, settings: &[(String, String)], stop: Arc<AtomicBool>) -> Result<Arc<Self>, String> {
        let mut conf = Conf::new();
        for (key, value) in settings {
            conf.set(key, value).map_err(|e| match e {
                Setting::Unknown => format!("client setting `{key}` is unknown"),
                Setting::Invalid => format!("client setting `{key}` has a value that is not allowed"),
            })?;
        }
        let watch = Arc::new(EndTxnWatch::default());
        let events = sys::RD_KAFKA_EVENT_ERROR | if kind == Kind::Producer { sys::RD_KAFKA_EVENT_DR } else { 0 };
        let raw_kind = match kind {
            Kind::Producer => sys::rd_kafka_type_t::RD_KAFKA_PRODUCER,
            Kind::Consumer => sys::rd_kafka_type_t::RD_KAFKA_CONSUMER,
        };
        let mut buffer = [0 as c_char; 512];
        // SAFETY: the conf is ours and passes to the client on success only. The watch outlives the client: `Drop`
        // destroys the client before the field is dropped.
        unsafe {
            sys::rd_kafka_conf_set_events(conf.0, events);
            sys::rd_kafka_conf_set_log_cb(conf.0, Some(on_log));
            if kind == Kind::Producer {
                let opaque = Arc::as_ptr(&watch).cast_mut().cast::<c_void>();
                rd_kafka_conf_interceptor_add_on_new(conf.0, c"stoat".as_ptr(), on_new, opaque);
            }
            let rk = sys::rd_kafka_new(raw_kind, conf.0, buffer.as_mut_ptr(), buffer.len());
            let Some(rk) = NonNull::new(rk) else {
                return Err(text(buffer.as_ptr()));
            };
            conf.0 = ptr::null_mut();
            Ok(Arc::new(Self { rk, watch, stop }))
        }
    }

    fn rk(&self) -> *mut sys::rd_kafka_t {
        self.rk.as_ptr()
    }

    pub(super) fn watch(&self) -> &EndTxnWatch {
        &self.watch
    }

    /// The queue of a client's errors and a producer's delivery reports.
    pub(super) fn main_queue(self: &Arc<Self>) -> Queue {
        // SAFETY: the client lives.
        self.queue(unsafe { sys::rd_kafka_queue_get_main(self.rk()) }).expect("a client has a main queue")
    }

    /// The queue of a consumer's errors, its group's included.
    pub(super) fn consumer_queue(self: &Arc<Self>) -> Queue {
        // SAFETY: the client lives.
        unsafe { sys::rd_kafka_poll_set_consumer(self.rk()) };
        // SAFETY: the client lives.
        self.queue(unsafe { sys::rd_kafka_queue_get_consumer(self.rk()) })
            .expect("a client with a group has this queue")
    }

    /// A partition's own queue, split off the consumer's. To be called before the partition is assigned.
    pub(super) fn partition_queue(self: &Arc<Self>, partition: &TopicPartition) -> Option<Queue> {
        let topic = c_text(&partition.topic);
        // SAFETY: the client lives; the text is NUL-terminated; a null forward target only ends the forwarding.
        unsafe {
            let q = self.queue(sys::rd_kafka_queue_get_partition(self.rk(), topic.as_ptr(), partition.partition))?;
            sys::rd_kafka_queue_forward(q.raw(), ptr::null_mut());
            Some(q)
        }
    }

    fn new_queue(self: &Arc<Self>) -> Queue {
        // SAFETY: the client lives.
        self.queue(unsafe { sys::rd_kafka_queue_new(self.rk()) }).expect("a queue can be made")
    }

    fn queue(self: &Arc<Self>, q: *mut sys::rd_kafka_queue_t) -> Option<Queue> {
        NonNull::new(q).map(|q| Queue { q, signal: None, client: Arc::clone(self) })
    }

    /// A handle for producing to a topic.
    pub(super) fn topic(self: &Arc<Self>, name: &str) -> Result<Topic, Failure> {
        let name = c_text(name);
        // SAFETY: the client lives; a null conf means the client's defaults.
        let rkt = unsafe { sys::rd_kafka_topic_new(self.rk(), name.as_ptr(), ptr::null_mut()) };
        match NonNull::new(rkt) {
            Some(rkt) => Ok(Topic { rkt, client: Arc::clone(self) }),
            None => Err(Failure::plain(Code::INVALID_TOPIC)),
        }
    }

    /// Assigns (or unassigns) partitions at their offsets.
    pub(super) fn assign(&self, partitions: &[(TopicPartition, NextOffset)], add: bool) -> Result<(), Failure> {
        let list = PartitionList::new(partitions.iter().map(|(p, o)| (p, *o)));
        // SAFETY: client and list live; the list is copied.
        unsafe {
            check(if add {
                sys::rd_kafka_incremental_assign(self.rk(), list.0)
            } else {
                sys::rd_kafka_incremental_unassign(self.rk(), list.0)
            })
        }
    }

    pub(super) fn init_transactions(&self, timeout: Duration) -> Result<(), Failure> {
        // SAFETY: the client lives; the error is owned by us.
        unsafe { check(sys::rd_kafka_init_transactions(self.rk(), millis(timeout))) }
    }

    pub(super) fn begin_transaction(&self) -> Result<(), Failure> {
        // SAFETY: as above.
        unsafe { check(sys::rd_kafka_begin_transaction(self.rk())) }
    }

    pub(super) fn send_offsets(
        &self,
        offsets: &[(TopicPartition, NextOffset)],
        group: &str,
        timeout: Duration,
    ) -> Result<(), Failure> {
        let list = PartitionList::new(offsets.iter().map(|(p, o)| (p, *o)));
        let group = c_text(group);
        // SAFETY: all arguments live during the call, which copies what it keeps.
        unsafe {
            let metadata = sys::rd_kafka_consumer_group_metadata_new(group.as_ptr());
            let r = sys::rd_kafka_send_offsets_to_transaction(self.rk(), list.0, metadata, millis(timeout));
            sys::rd_kafka_consumer_group_metadata_destroy(metadata);
            check(r)
        }
    }

    pub(super) fn commit_transaction(&self, timeout: Duration) -> Result<(), Failure> {
        // SAFETY: as in `init_transactions`.
        unsafe { check(sys::rd_kafka_commit_transaction(self.rk(), millis(timeout))) }
    }

    pub(super) fn abort_transaction(&self, timeout: Duration) -> Result<(), Failure> {
        // SAFETY: as in `init_transactions`.
        unsafe { check(sys::rd_kafka_abort_transaction(self.rk(), millis(timeout))) }
    }

    /// Waits until no record is outstanding. Says whether that was reached.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        // SAFETY: the client lives.
        unsafe { rd_kafka_flush(self.rk(), millis(timeout)) == 0 }
    }

    /// Drops all records that are outstanding.
    pub(super) fn purge(&self) {
        let flags = sys::RD_KAFKA_PURGE_F_QUEUE | sys::RD_KAFKA_PURGE_F_INFLIGHT | sys::RD_KAFKA_PURGE_F_NON_BLOCKING;
        // SAFETY: the client lives.
        unsafe {
            sys::rd_kafka_purge(self.rk(), flags);
        }
    }

    /// The names of all topics, or of those that the client knows: asks the broker either way.
    pub(super) fn topic_names(&self, all: bool, timeout: Duration) -> Result<Vec<String>, Failure> {
        let mut metadata: *const sys::rd_kafka_metadata = ptr::null();
        // SAFETY: the client lives; the out parameter is valid; on success the metadata is ours and is destroyed below.
        unsafe {
            let code =
                rd_kafka_metadata(self.rk(), c_int::from(all), ptr::null_mut(), &raw mut metadata, millis(timeout));
            if code != 0 {
                return Err(Failure::plain(Code(code)));
            }
            let m = &*metadata;
            let names = slice(m.topics, m.topic_cnt as usize).iter().map(|t| text(t.topic)).collect();
            sys::rd_kafka_metadata_destroy(metadata);
            Ok(names)
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // A group consumer's close would wait for the coordinator; there is nothing to leave, it never joined.
        // SAFETY: the last owner; all that was made from the client is gone.
        unsafe { sys::rd_kafka_destroy_flags(self.rk(), sys::RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE as c_int) }
    }
}

/// Has glibc's allocator give each large block a mapping of its own, and return it to the system when it is freed.
///
/// By itself it learns from large blocks that are freed to take the next ones from its heaps. An epoch's output is such
/// a block, grown by one thread and freed by another: heaps then hold half as much again as is in use, and growing copies
/// instead of moving pages. Who has set the threshold in the environment keeps it.
pub(super) fn keep_large_blocks_apart() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        const M_MMAP_THRESHOLD: c_int = -3;
        const LARGE: c_int = 256 << 10;
        unsafe extern "C" {
            fn mallopt(parameter: c_int, value: c_int) -> c_int;
        }
        ONCE.call_once(|| {
            if std::env::var_os("MALLOC_MMAP_THRESHOLD_").is_none() {
                // SAFETY: takes and returns integers, and may be called at any time from any thread.
                unsafe { mallopt(M_MMAP_THRESHOLD, LARGE) };
            }
        });
    }
}

/// # Safety
/// `p` points to `n` values that live as long as the result is used, or `n` is 0.
unsafe fn slice<'a, T>(p: *const T, n: usize) -> &'a [T] {
    if n == 0 || p.is_null() {
        return &[];
    }
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(p, n) }
}

struct PartitionList(*mut sys::rd_kafka_topic_partition_list_t);

impl PartitionList {
    fn new<'a>(partitions: impl ExactSizeIterator<Item = (&'a TopicPartition, NextOffset)>) -> Self {
        // SAFETY: a new list is ours; `add` returns a valid entry of it.
        unsafe {
            let list = sys::rd_kafka_topic_partition_list_new(partitions.len() as c_int);
            for (partition, offset) in partitions {
                let topic = c_text(&partition.topic);
                let entry = sys::rd_kafka_topic_partition_list_add(list, topic.as_ptr(), partition.partition);
                (*entry).offset = offset;
            }
            Self(list)
        }
    }
}

impl Drop for PartitionList {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_topic_partition_list_destroy(self.0) }
    }
}

/// Told by librdkafka, on its own threads and under the queue's lock, that a queue is no longer empty.
/// Must return quickly and call nothing of librdkafka.
pub(super) trait Signal: Send + Sync {
    fn ready(&self);
}

extern "C" fn on_ready<S: Signal>(_rk: *mut sys::rd_kafka_t, opaque: *mut c_void) {
    // SAFETY: the opaque is the signal that the queue keeps until the callback is switched off.
    unsafe { &*opaque.cast::<S>() }.ready();
}

/// A queue of a client.
pub(super) struct Queue {
    q: NonNull<sys::rd_kafka_queue_t>,
    /// Keeps the callback's argument alive.
    signal: Option<Arc<dyn Signal>>,
    client: Arc<Client>,
}

// SAFETY: librdkafka's queues are thread-safe.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Queue {
    fn raw(&self) -> *mut sys::rd_kafka_queue_t {
        self.q.as_ptr()
    }

    /// Waits for one event.
    pub(super) fn poll(&self, timeout: Duration) -> Option<QueueEvent<'_>> {
        // SAFETY: the queue lives; the event is ours.
        let event = unsafe { sys::rd_kafka_queue_poll(self.raw(), millis(timeout)) };
        NonNull::new(event).map(|event| QueueEvent { event, _queue: self })
    }

    /// Ends a [`Queue::poll`] that waits, or the next one.
    pub(super) fn wake(&self) {
        // SAFETY: the queue lives.
        unsafe { sys::rd_kafka_queue_yield(self.raw()) }
    }

    /// How many messages wait.
    pub(super) fn len(&self) -> usize {
        // SAFETY: the queue lives.
        unsafe { sys::rd_kafka_queue_length(self.raw()) }
    }

    /// Has `signal` told whenever the queue ceases to be empty.
    pub(super) fn signal<S: Signal + 'static>(&mut self, signal: Arc<S>) {
        let opaque = Arc::as_ptr(&signal).cast_mut().cast::<c_void>();
        // SAFETY: the queue lives, and keeps the signal until `Drop` has switched the callback off. librdkafka calls it
        // under the queue's lock, and switching takes that lock: no call can be under way afterwards.
        unsafe { sys::rd_kafka_queue_cb_event_enable(self.raw(), Some(on_ready::<S>), opaque) }
        self.signal = Some(signal);
    }

    /// Takes up to `max` messages that are there, without waiting, and hands each to `f`. Returns how many.
    pub(super) fn consume(&self, max: usize, scratch: &mut Scratch, mut f: impl FnMut(&Message<'_>)) -> usize {
        let messages = &mut scratch.0;
        messages.clear();
        messages.reserve(max);
        // SAFETY: room for `max` pointers is reserved; that many at most are written, each an owned message.
        let n = unsafe {
            let n = sys::rd_kafka_consume_batch_queue(self.raw(), 0, messages.as_mut_ptr().cast(), max);
            let n = usize::try_from(n).unwrap_or(0);
            messages.set_len(n);
            n
        };
        for m in messages.drain(..) {
            f(&Message(m.0, std::marker::PhantomData));
        }
        n
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: ours; see `signal` for the callback.
        unsafe {
            if self.signal.is_some() {
                sys::rd_kafka_queue_cb_event_enable(self.raw(), None, ptr::null_mut());
            }
            sys::rd_kafka_queue_destroy(self.raw());
        }
    }
}

#[repr(transparent)]
struct OwnedMessage(NonNull<sys::rd_kafka_message_t>);

impl Drop for OwnedMessage {
    fn drop(&mut self) {
        // SAFETY: owned, from a consume call.
        unsafe { sys::rd_kafka_message_destroy(self.0.as_ptr()) }
    }
}

/// Room for message pointers that is used again and again.
#[derive(Default)]
pub(super) struct Scratch(Vec<OwnedMessage>);

// SAFETY: empty outside of `Queue::consume`.
unsafe impl Send for Scratch {}

/// A message of a queue or of a delivery report, valid during the call that it is handed to.
pub(super) struct Message<'a>(NonNull<sys::rd_kafka_message_t>, std::marker::PhantomData<&'a ()>);

impl Message<'_> {
    fn raw(&self) -> *const sys::rd_kafka_message_t {
        self.0.as_ptr()
    }

    pub(super) fn code(&self) -> Code {
        // SAFETY: the message lives; the field is a C int and is read as one.
        Code(unsafe { (&raw const (*self.raw()).err).cast::<c_int>().read() })
    }

    pub(super) fn offset(&self) -> i64 {
        // SAFETY: the message lives.
        unsafe { (*self.raw()).offset }
    }

    pub(super) fn partition(&self) -> i32 {
        // SAFETY: the message lives.
        unsafe { (*self.raw()).partition }
    }

    /// For a delivery report: the record's number.
    pub(super) fn ordinal(&self) -> usize {
        // SAFETY: the message lives; the opaque is the number that `Topic::produce` was given.
        unsafe { (*self.raw())._private as usize }
    }

    pub(super) fn value(&self) -> Option<&[u8]> {
        // SAFETY: the message lives and points to that many bytes.
        unsafe {
            let m = &raw const *self.raw();
            (!(*m).payload.is_null()).then(|| slice((*m).payload.cast::<u8>(), (*m).len))
        }
    }

    pub(super) fn key(&self) -> Option<&[u8]> {
        // SAFETY: the message lives and points to that many bytes.
        unsafe {
            let m = &raw const *self.raw();
            (!(*m).key.is_null()).then(|| slice((*m).key.cast::<u8>(), (*m).key_len))
        }
    }

    pub(super) fn timestamp(&self) -> Timestamp {
        // SAFETY: the message lives; the type of the timestamp is not asked for.
        Timestamp(unsafe { sys::rd_kafka_message_timestamp(self.raw(), ptr::null_mut()) })
    }

    pub(super) fn headers(&self) -> Headers {
        let mut out = Headers::default();
        let mut headers: *mut sys::rd_kafka_headers_t = ptr::null_mut();
        // SAFETY: the message lives and keeps its headers; the out parameters are valid; the texts are NUL-terminated.
        unsafe {
            if rd_kafka_message_headers(self.raw(), &raw mut headers) != 0 {
                return out;
            }
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            let mut i = 0;
            while rd_kafka_header_get_all(headers, i, &raw mut name, &raw mut value, &raw mut size) == 0 {
                let value = (!value.is_null()).then(|| slice(value.cast::<u8>(), size).to_vec());
                out.push(text(name), value);
                i += 1;
            }
        }
        out
    }

    /// The client's words about a partition that cannot be read.
    pub(super) fn read_error(&self) -> String {
        // SAFETY: the message lives; what its payload then is, is a text that does so too.
        unsafe { text(sys::rd_kafka_message_errstr(self.raw())) }
    }

    /// The broker's or the client's words about a record that was not written.
    ///
    /// Never `rd_kafka_message_errstr`: for such a message that is the record's value, which is nobody's business and has
    /// no NUL at its end.
    pub(super) fn write_error(&self) -> String {
        // SAFETY: the message lives, and was produced; the text does so too.
        let own = unsafe { text(sys::rd_kafka_message_produce_errstr(self.raw())) };
        if own.is_empty() { describe(self.code()) } else { own }
    }

    /// The topic's name.
    pub(super) fn topic(&self) -> &str {
        // SAFETY: the message lives and keeps its topic, whose name is static for that time.
        unsafe {
            let rkt = (*self.raw()).rkt;
            if rkt.is_null() {
                return "";
            }
            CStr::from_ptr(sys::rd_kafka_topic_name(rkt)).to_str().unwrap_or("")
        }
    }
}

/// An event of a queue.
pub(super) struct QueueEvent<'a> {
    event: NonNull<sys::rd_kafka_event_t>,
    _queue: &'a Queue,
}

impl QueueEvent<'_> {
    fn raw(&self) -> *mut sys::rd_kafka_event_t {
        self.event.as_ptr()
    }

    /// The error that the event is or carries.
    pub(super) fn error(&self) -> Option<(Code, String)> {
        // SAFETY: the event lives.
        unsafe {
            let code = Code(rd_kafka_event_error(self.raw()));
            (code != Code::NONE).then(|| (code, text(sys::rd_kafka_event_error_string(self.raw()))))
        }
    }

    pub(super) fn is_error(&self) -> bool {
        self.kind() == sys::RD_KAFKA_EVENT_ERROR
    }

    pub(super) fn is_delivery(&self) -> bool {
        self.kind() == sys::RD_KAFKA_EVENT_DR
    }

    fn kind(&self) -> i32 {
        // SAFETY: the event lives.
        unsafe { sys::rd_kafka_event_type(self.raw()) }
    }

    /// Hands each message of a delivery report to `f`.
    pub(super) fn deliveries(&self, mut f: impl FnMut(&Message<'_>)) {
        loop {
            // SAFETY: the event lives and keeps its messages.
            let m = unsafe { sys::rd_kafka_event_message_next(self.raw()) };
            let Some(m) = NonNull::new(m.cast_mut()) else { return };
            f(&Message(m, std::marker::PhantomData));
        }
    }
}

impl Drop for QueueEvent<'_> {
    fn drop(&mut self) {
        // SAFETY: owned.
        unsafe { sys::rd_kafka_event_destroy(self.raw()) }
    }
}

/// A topic to produce to.
pub(super) struct Topic {
    rkt: NonNull<sys::rd_kafka_topic_t>,
    client: Arc<Client>,
}

// SAFETY: librdkafka's topic handles are thread-safe.
unsafe impl Send for Topic {}

/// One record to produce.
pub(super) struct Outgoing<'a> {
    pub(super) partition: i32,
    pub(super) timestamp: Timestamp,
    pub(super) key: Option<&'a [u8]>,
    pub(super) value: Option<&'a [u8]>,
    pub(super) headers: &'a Headers,
    /// Comes back in the delivery report.
    pub(super) ordinal: usize,
}

/// The argument array of a produce call, written anew only where a record differs from the last.
pub(super) struct ProduceArgs([sys::rd_kafka_vu_t; 8]);

// SAFETY: the pointers in it are only followed during `Topic::produce`, which has set them.
unsafe impl Send for ProduceArgs {}

impl ProduceArgs {
    pub(super) fn new() -> Self {
        let blank = |vtype| {
            let mut u = sys::rd_kafka_vu_s__bindgen_ty_1 { _pad: [0; 64] };
            u.ptr = ptr::null_mut();
            sys::rd_kafka_vu_t { vtype, u }
        };
        let mut args = [
            blank(Vtype::RD_KAFKA_VTYPE_RKT),
            blank(Vtype::RD_KAFKA_VTYPE_PARTITION),
            blank(Vtype::RD_KAFKA_VTYPE_MSGFLAGS),
            blank(Vtype::RD_KAFKA_VTYPE_TIMESTAMP),
            blank(Vtype::RD_KAFKA_VTYPE_KEY),
            blank(Vtype::RD_KAFKA_VTYPE_VALUE),
            blank(Vtype::RD_KAFKA_VTYPE_OPAQUE),
            blank(Vtype::RD_KAFKA_VTYPE_HEADERS),
        ];
        args[2].u.i = sys::RD_KAFKA_MSG_F_COPY as c_int;
        Self(args)
    }
}

fn memory(bytes: Option<&[u8]>) -> sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 {
    // An empty slice's pointer is not null, so an empty value stays different from none.
    let (ptr, size) = bytes.map_or((ptr::null_mut(), 0), |b| (b.as_ptr().cast_mut().cast(), b.len()));
    sys::rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size }
}

impl Topic {
    /// Queues a record; its bytes are copied.
    pub(super) fn produce(&self, args: &mut ProduceArgs, record: &Outgoing<'_>) -> Result<(), Failure> {
        let a = &mut args.0;
        a[0].u.rkt = self.rkt.as_ptr();
        a[1].u.i32_ = record.partition;
        // librdkafka takes 0 for "now": one millisecond beside is nearer than that.
        a[3].u.i64_ = if record.timestamp.0 == 0 { 1 } else { record.timestamp.0 };
        a[4].u.mem = memory(record.key);
        a[5].u.mem = memory(record.value);
        a[6].u.ptr = record.ordinal as *mut c_void;
        let headers = if record.headers.is_empty() { ptr::null_mut() } else { raw_headers(record.headers) };
        a[7].u.headers = headers;
        let n = if headers.is_null() { 7 } else { 8 };
        // SAFETY: client, topic and the record's bytes live during the call, which copies them; the headers pass over
        // to librdkafka on success only.
        unsafe {
            let result = check(sys::rd_kafka_produceva(self.client.rk(), a.as_ptr(), n));
            if result.is_err() && !headers.is_null() {
                sys::rd_kafka_headers_destroy(headers);
            }
            result
        }
    }
}

fn raw_headers(headers: &Headers) -> *mut sys::rd_kafka_headers_t {
    // SAFETY: the new list is ours; name and value are copied, their lengths given. A null value is Kafka's null.
    unsafe {
        let list = sys::rd_kafka_headers_new(headers.len());
        for h in headers.iter() {
            let (value, size) = h.value.as_deref().map_or((ptr::null(), 0), |v| (v.as_ptr().cast(), v.len() as isize));
            rd_kafka_header_add(list, h.name.as_ptr().cast(), h.name.len() as isize, value, size);
        }
        list
    }
}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: ours; the client lives.
        unsafe { sys::rd_kafka_topic_destroy(self.rkt.as_ptr()) }
    }
}

const _: () = assert!(size_of::<c_int>() == size_of::<sys::rd_kafka_resp_err_t>(), "error codes are C ints");
