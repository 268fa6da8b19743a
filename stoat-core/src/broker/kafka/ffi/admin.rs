//! Admin requests: what librdkafka's admin interface answers, as plain values.

use std::ffi::{CString, c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka_sys as sys;
use sys::rd_kafka_admin_op_t as AdminOp;

use super::{Client, PartitionList, Queue, c_text, check, describe, millis, peek, slice, text};
use crate::broker::kafka::error::Code;
use crate::broker::{Bounds, NewTopic};
use crate::id::{NextOffset, TopicPartition};

// As in the bindings, with error codes as integers: see the module above.
#[allow(clashing_extern_declarations, reason = "an enum of the bindings is an int in C")]
unsafe extern "C" {
    fn rd_kafka_topic_result_error(result: *const sys::rd_kafka_topic_result_t) -> c_int;
    fn rd_kafka_ConfigResource_error(resource: *const sys::rd_kafka_ConfigResource_t) -> c_int;
    fn rd_kafka_committed(
        rk: *mut sys::rd_kafka_t,
        partitions: *mut sys::rd_kafka_topic_partition_list_t,
        timeout: c_int,
    ) -> c_int;
    fn rd_kafka_list_groups(
        rk: *mut sys::rd_kafka_t,
        group: *const c_char,
        list: *mut *const sys::rd_kafka_group_list,
        timeout: c_int,
    ) -> c_int;
}

/// A topic as the broker describes it.
#[derive(Debug)]
pub(in crate::broker::kafka) struct TopicFacts {
    pub(in crate::broker::kafka) name: String,
    pub(in crate::broker::kafka) id: String,
    pub(in crate::broker::kafka) partitions: i32,
    /// Whether every partition has a leader.
    pub(in crate::broker::kafka) led: bool,
    pub(in crate::broker::kafka) error: Option<(Code, String)>,
}

struct AdminOptions(*mut sys::rd_kafka_AdminOptions_t);

impl AdminOptions {
    fn new(client: &Client, op: AdminOp, timeout: Duration) -> Self {
        let mut buffer = [0 as c_char; 256];
        // SAFETY: the client lives; the options are ours; a refused time-out leaves the client's default.
        unsafe {
            let options = sys::rd_kafka_AdminOptions_new(client.rk(), op);
            sys::rd_kafka_AdminOptions_set_request_timeout(options, millis(timeout), buffer.as_mut_ptr(), buffer.len());
            Self(options)
        }
    }
}

impl Drop for AdminOptions {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { sys::rd_kafka_AdminOptions_destroy(self.0) }
    }
}

/// Waits for the answer to an admin request; librdkafka answers within the request's time-out by itself.
fn answer<R>(
    queue: &Queue,
    timeout: Duration,
    read: impl FnOnce(*mut sys::rd_kafka_event_t) -> R,
) -> Result<R, (Code, String)> {
    let late = || Err((Code::TIMED_OUT, "no answer from the broker within the time-out".into()));
    answer_within(queue, timeout + Duration::from_secs(1), read).unwrap_or_else(late)
}

/// Waits so long for the answer; `None`: there was none.
fn answer_within<R>(
    queue: &Queue,
    wait: Duration,
    read: impl FnOnce(*mut sys::rd_kafka_event_t) -> R,
) -> Option<Result<R, (Code, String)>> {
    let deadline = Instant::now() + wait;
    let event = loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if let Some(event) = queue.poll(left.min(Duration::from_millis(100))) {
            break event;
        }
        if left.is_zero() || queue.client.stop.load(Ordering::SeqCst) {
            return None;
        }
    };
    Some(match event.error() {
        Some(e) => Err(e),
        None => Ok(read(event.raw())),
    })
}

type AdminResult<T> = Result<T, (Code, String)>;
/// Names with values.
type Pairs = Vec<(String, String)>;
/// What was answered about each topic.
type ByTopic<T> = Vec<(String, T)>;

fn c_texts<'a>(names: impl Iterator<Item = &'a str>) -> (Vec<CString>, Vec<*const c_char>) {
    let owned: Vec<CString> = names.map(c_text).collect();
    let raw = owned.iter().map(|n| n.as_ptr()).collect();
    (owned, raw)
}

/// Admin requests. Each waits for its answer, at most `timeout` and a second.
impl Client {
    pub(in crate::broker::kafka) fn describe_topics(
        self: &Arc<Self>,
        names: &[&str],
        timeout: Duration,
    ) -> AdminResult<Vec<TopicFacts>> {
        let queue = self.new_queue();
        let options = AdminOptions::new(self, AdminOp::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS, timeout);
        let (_owned, mut raw) = c_texts(names.iter().copied());
        // SAFETY: all arguments live during the call, which copies them.
        unsafe {
            let topics = sys::rd_kafka_TopicCollection_of_topic_names(raw.as_mut_ptr(), raw.len());
            sys::rd_kafka_DescribeTopics(self.rk(), topics, options.0, queue.raw());
            sys::rd_kafka_TopicCollection_destroy(topics);
        }
        // SAFETY: the event is of this request's type and lives during the closure, as does all that it holds.
        answer(&queue, timeout, |event| unsafe {
            let mut n = 0;
            let result = sys::rd_kafka_event_DescribeTopics_result(event);
            let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut n);
            slice(topics, n)
                .iter()
                .map(|&t| {
                    let error = peek(sys::rd_kafka_TopicDescription_error(t));
                    let mut n = 0;
                    let partitions = sys::rd_kafka_TopicDescription_partitions(t, &raw mut n);
                    let led =
                        slice(partitions, n).iter().all(|&p| !sys::rd_kafka_TopicPartitionInfo_leader(p).is_null());
                    let id = sys::rd_kafka_TopicDescription_topic_id(t);
                    TopicFacts {
                        name: text(sys::rd_kafka_TopicDescription_name(t)),
                        id: if id.is_null() { String::new() } else { text(sys::rd_kafka_Uuid_base64str(id)) },
                        partitions: n as i32,
                        led,
                        error,
                    }
                })
                .collect()
        })
    }

    /// The settings of topics, in the order that the broker answers.
    pub(in crate::broker::kafka) fn describe_configs(
        self: &Arc<Self>,
        names: &[&str],
        timeout: Duration,
    ) -> AdminResult<ByTopic<AdminResult<Pairs>>> {
        let queue = self.new_queue();
        let options = AdminOptions::new(self, AdminOp::RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS, timeout);
        // SAFETY: all arguments live during the call, which copies them; the resources are ours.
        unsafe {
            let mut resources: Vec<_> = names
                .iter()
                .map(|n| {
                    let n = c_text(n);
                    sys::rd_kafka_ConfigResource_new(sys::rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC, n.as_ptr())
                })
                .collect();
            sys::rd_kafka_DescribeConfigs(self.rk(), resources.as_mut_ptr(), resources.len(), options.0, queue.raw());
            sys::rd_kafka_ConfigResource_destroy_array(resources.as_mut_ptr(), resources.len());
        }
        // SAFETY: as in `describe_topics`.
        answer(&queue, timeout, |event| unsafe {
            let mut n = 0;
            let result = sys::rd_kafka_event_DescribeConfigs_result(event);
            let resources = sys::rd_kafka_DescribeConfigs_result_resources(result, &raw mut n);
            slice(resources, n)
                .iter()
                .map(|&r| {
                    let code = Code(rd_kafka_ConfigResource_error(r));
                    let settings = if code == Code::NONE {
                        let mut n = 0;
                        let entries = sys::rd_kafka_ConfigResource_configs(r, &raw mut n);
                        Ok(slice(entries, n)
                            .iter()
                            .filter_map(|&e| {
                                let value = sys::rd_kafka_ConfigEntry_value(e);
                                (!value.is_null()).then(|| (text(sys::rd_kafka_ConfigEntry_name(e)), text(value)))
                            })
                            .collect())
                    } else {
                        Err((code, text(sys::rd_kafka_ConfigResource_error_string(r))))
                    };
                    (text(sys::rd_kafka_ConfigResource_name(r)), settings)
                })
                .collect()
        })
    }

    /// Creates topics; the answer has one entry for each, with its error.
    pub(in crate::broker::kafka) fn create_topics(
        self: &Arc<Self>,
        topics: &[NewTopic],
        timeout: Duration,
    ) -> AdminResult<ByTopic<Option<(Code, String)>>> {
        let queue = self.new_queue();
        let options = AdminOptions::new(self, AdminOp::RD_KAFKA_ADMIN_OP_CREATETOPICS, timeout);
        let mut buffer = [0 as c_char; 256];
        let mut raw = Vec::with_capacity(topics.len());
        for topic in topics {
            let name = c_text(&topic.name);
            // SAFETY: texts are NUL-terminated, the buffer's length is given; a topic that cannot be made is null.
            let new = unsafe {
                sys::rd_kafka_NewTopic_new(
                    name.as_ptr(),
                    topic.partitions,
                    topic.replication,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                )
            };
            if new.is_null() {
                // SAFETY: the buffer was written by the failed call; those made before are ours.
                let why = unsafe {
                    sys::rd_kafka_NewTopic_destroy_array(raw.as_mut_ptr(), raw.len());
                    text(buffer.as_ptr())
                };
                return Err((Code::INVALID_TOPIC, format!("topic `{}`: {why}", topic.name)));
            }
            for (key, value) in &topic.config {
                let (key, value) = (c_text(key), c_text(value));
                // SAFETY: the topic is ours; the texts are copied.
                unsafe {
                    sys::rd_kafka_NewTopic_set_config(new, key.as_ptr(), value.as_ptr());
                }
            }
            raw.push(new);
        }
        // SAFETY: all arguments live during the call, which copies them; the topics are ours.
        unsafe {
            let mut at = [0 as c_char; 256];
            sys::rd_kafka_AdminOptions_set_operation_timeout(options.0, millis(timeout), at.as_mut_ptr(), at.len());
            sys::rd_kafka_CreateTopics(self.rk(), raw.as_mut_ptr(), raw.len(), options.0, queue.raw());
            sys::rd_kafka_NewTopic_destroy_array(raw.as_mut_ptr(), raw.len());
        }
        // SAFETY: as in `describe_topics`.
        answer(&queue, timeout, |event| unsafe {
            let mut n = 0;
            let result = sys::rd_kafka_event_CreateTopics_result(event);
            let topics = sys::rd_kafka_CreateTopics_result_topics(result, &raw mut n);
            slice(topics, n)
                .iter()
                .map(|&t| {
                    let code = Code(rd_kafka_topic_result_error(t));
                    let error = (code != Code::NONE).then(|| (code, text(sys::rd_kafka_topic_result_error_string(t))));
                    (text(sys::rd_kafka_topic_result_name(t)), error)
                })
                .collect()
        })
    }

    /// For tests: deletes topics, whatever becomes of them.
    #[cfg(test)]
    pub(in crate::broker::kafka) fn delete_topic(self: &Arc<Self>, topic: &str, timeout: Duration) -> AdminResult<()> {
        let queue = self.new_queue();
        let name = c_text(topic);
        // SAFETY: all arguments live during the call, which copies them; the topic is ours.
        unsafe {
            let mut one = [sys::rd_kafka_DeleteTopic_new(name.as_ptr())];
            sys::rd_kafka_DeleteTopics(self.rk(), one.as_mut_ptr(), 1, std::ptr::null(), queue.raw());
            sys::rd_kafka_DeleteTopic_destroy(one[0]);
        }
        answer(&queue, timeout, |_| ())
    }

    /// Log bounds as a `read_committed` reader sees them.
    pub(in crate::broker::kafka) fn bounds(
        self: &Arc<Self>,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> AdminResult<Vec<Bounds>> {
        let starts =
            self.list_offsets(partitions, sys::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_EARLIEST, timeout)?;
        let ends = self.list_offsets(partitions, sys::rd_kafka_OffsetSpec_t::RD_KAFKA_OFFSET_SPEC_LATEST, timeout)?;
        Ok(starts.into_iter().zip(ends).map(|(start, end)| Bounds { start, end }).collect())
    }

    fn list_offsets(
        self: &Arc<Self>,
        partitions: &[TopicPartition],
        spec: sys::rd_kafka_OffsetSpec_t,
        timeout: Duration,
    ) -> AdminResult<Vec<NextOffset>> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let queue = self.new_queue();
        let options = AdminOptions::new(self, AdminOp::RD_KAFKA_ADMIN_OP_LISTOFFSETS, timeout);
        let mut distinct: Vec<&TopicPartition> = partitions.iter().collect();
        distinct.sort();
        distinct.dedup();
        let list = PartitionList::new(distinct.into_iter().map(|p| (p, spec as i64)));
        // SAFETY: all arguments live during the call, which copies them; the error is owned by us.
        unsafe {
            let level = sys::rd_kafka_IsolationLevel_t::RD_KAFKA_ISOLATION_LEVEL_READ_COMMITTED;
            check(sys::rd_kafka_AdminOptions_set_isolation_level(options.0, level)).map_err(|f| (f.code, f.text))?;
            sys::rd_kafka_ListOffsets(self.rk(), list.0, options.0, queue.raw());
        }
        // SAFETY: as in `describe_topics`.
        let found = answer(&queue, timeout, |event| unsafe {
            let mut n = 0;
            let result = sys::rd_kafka_event_ListOffsets_result(event);
            let infos = sys::rd_kafka_ListOffsets_result_infos(result, &raw mut n);
            slice(infos, n)
                .iter()
                .map(|&i| read_partition(sys::rd_kafka_ListOffsetsResultInfo_topic_partition(i)))
                .collect::<Vec<_>>()
        })?;
        partitions.iter().map(|p| pick(&found, p).and_then(|o| bound(p, o))).collect()
    }

    /// Has the client find a group's coordinator and wait for an answer of it, so long; `None`: there was none, and the
    /// client has to be given up.
    ///
    /// For librdkafka 2.12 touches a question that it has timed out once more when the coordinator can be reached again, and
    /// fails an assertion (`eonce->refcnt > 0`), which ends the process. So the question itself gets far longer than the client
    /// lives that has not heard an answer.
    pub(in crate::broker::kafka) fn find_coordinator(
        self: &Arc<Self>,
        group: &str,
        wait: Duration,
    ) -> Option<AdminResult<()>> {
        let queue = self.new_queue();
        let options = AdminOptions::new(self, AdminOp::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS, LONGEST);
        let (_owned, mut raw) = c_texts(std::iter::once(group));
        // SAFETY: all arguments live during the call, which copies them.
        unsafe {
            sys::rd_kafka_DescribeConsumerGroups(self.rk(), raw.as_mut_ptr(), raw.len(), options.0, queue.raw());
        }
        // SAFETY: as in `describe_topics`.
        let answered = answer_within(&queue, wait, |event| unsafe {
            let mut n = 0;
            let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event);
            let groups = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &raw mut n);
            let Some(&g) = slice(groups, n).first() else {
                return Ok(());
            };
            peek(sys::rd_kafka_ConsumerGroupDescription_error(g)).map_or(Ok(()), Err)
        });
        answered.map(Result::flatten)
    }

    /// The live members of a group. Waits at most `timeout`.
    ///
    /// Not by librdkafka's admin interface: see `find_coordinator`.
    pub(in crate::broker::kafka) fn group_members(&self, group: &str, timeout: Duration) -> AdminResult<Vec<String>> {
        let name = c_text(group);
        let mut list = std::ptr::null();
        // SAFETY: the client lives; the name is NUL-terminated; where there is an answer the list is ours.
        let code = unsafe { rd_kafka_list_groups(self.rk(), name.as_ptr(), &raw mut list, millis(timeout.min(STEP))) };
        if code == PARTIAL {
            // SAFETY: as above.
            unsafe { sys::rd_kafka_group_list_destroy(list) };
            return Err((Code::TIMED_OUT, "not every broker has answered".to_owned()));
        }
        if Code(code) != Code::NONE {
            return Err((Code(code), describe(Code(code))));
        }
        // SAFETY: the list was given to us and lives until it is destroyed below; error fields are C ints, read as such.
        unsafe {
            let mut result = Ok(Vec::new());
            for g in slice((*list).groups, (*list).group_cnt as usize).iter().filter(|g| text(g.group) == group) {
                let code = Code((&raw const g.err).cast::<c_int>().read());
                if code != Code::NONE && code != Code::GROUP_ID_NOT_FOUND {
                    result = Err((code, describe(code)));
                    break;
                }
                let members = slice(g.members, g.member_cnt as usize).iter();
                let shown =
                    members.map(|m| format!("{} ({}{})", text(m.member_id), text(m.client_id), text(m.client_host)));
                result = Ok(shown.collect());
            }
            sys::rd_kafka_group_list_destroy(list);
            result
        }
    }

    /// The committed offsets of the client's own group; a commit that is part of an open transaction counts as an error to
    /// try again. Waits at most `timeout`. Not by the admin interface, as above.
    pub(in crate::broker::kafka) fn group_offsets(
        &self,
        partitions: &[TopicPartition],
        timeout: Duration,
    ) -> AdminResult<Vec<Option<NextOffset>>> {
        if partitions.is_empty() {
            return Ok(Vec::new());
        }
        let list = PartitionList::new(partitions.iter().map(|p| (p, -1001)));
        // SAFETY: the client lives, and the list during the call, which writes the offsets into it.
        let (code, found) = unsafe {
            let code = Code(rd_kafka_committed(self.rk(), list.0, millis(timeout.min(STEP))));
            let found = slice((*list.0).elems, (*list.0).cnt as usize).iter().map(|p| read_partition(p));
            (code, found.collect::<Vec<_>>())
        };
        if code != Code::NONE {
            return Err((code, describe(code)));
        }
        partitions.iter().map(|p| pick(&found, p).map(|o| (o >= 0).then_some(o))).collect()
    }
}

/// The longest time-out that librdkafka takes for a question.
const LONGEST: Duration = Duration::from_hours(1);
/// One question about a group takes no longer, so that a stop is heard; it is put again.
const STEP: Duration = Duration::from_secs(2);
/// Some brokers have answered.
const PARTIAL: c_int = -158;

type Found = (TopicPartition, NextOffset, Code);

/// # Safety
/// `p` lives during the call.
unsafe fn read_partition(p: *const sys::rd_kafka_topic_partition_t) -> Found {
    // SAFETY: promised by the caller; the error field is a C int and is read as one.
    unsafe {
        let code = Code((&raw const (*p).err).cast::<c_int>().read());
        (TopicPartition::new(text((*p).topic), (*p).partition), (*p).offset, code)
    }
}

/// A log's bound. Where a connection breaks while it is asked for, librdkafka says that all is well and leaves the place empty
/// (-1001): taken for an offset, it would be committed as the place where an application begins.
fn bound(partition: &TopicPartition, offset: NextOffset) -> AdminResult<NextOffset> {
    if offset < 0 {
        return Err((Code::TIMED_OUT, format!("{partition}: the broker did not say where its log begins or ends")));
    }
    Ok(offset)
}

fn pick(found: &[Found], partition: &TopicPartition) -> AdminResult<NextOffset> {
    match found.iter().find(|(p, ..)| p == partition) {
        Some((_, offset, Code::NONE)) => Ok(*offset),
        Some((_, _, code)) => Err((*code, format!("{partition}: {}", describe(*code)))),
        None => Err((Code::UNKNOWN_PARTITION, format!("{partition}: the broker did not answer about it"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n9_a_bound_that_was_not_answered_is_asked_for_again_and_never_an_offset() {
        let p = TopicPartition::new("in", 0);
        for empty in [-1001, -1] {
            let (code, text) = bound(&p, empty).unwrap_err();
            assert_eq!(crate::broker::kafka::error::kind(code), crate::broker::BrokerErrorKind::Retriable, "{text}");
        }
        assert_eq!(bound(&p, 0), Ok(0));
    }
}
