//! What the brokers grant whoever asks: which operations on topics and on a group.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::client::{Client, ClientContext};
use rdkafka::error::RDKafkaErrorCode;

use super::access::Operation;
use sys::rd_kafka_AclOperation_t as AclOperation;

/// The operations that are granted; none where the brokers do not tell.
pub(super) type Granted = Option<Vec<AclOperation>>;

/// Whether an operation is granted, as far as the brokers tell.
pub(super) fn allows(granted: &Granted, operation: Operation) -> bool {
    let wanted = match operation {
        Operation::Read => AclOperation::RD_KAFKA_ACL_OPERATION_READ,
        Operation::Write => AclOperation::RD_KAFKA_ACL_OPERATION_WRITE,
        Operation::Create => AclOperation::RD_KAFKA_ACL_OPERATION_CREATE,
        Operation::Alter => AclOperation::RD_KAFKA_ACL_OPERATION_ALTER,
        Operation::Describe => AclOperation::RD_KAFKA_ACL_OPERATION_DESCRIBE,
        Operation::AlterConfigs => AclOperation::RD_KAFKA_ACL_OPERATION_ALTER_CONFIGS,
    };
    granted.as_ref().is_none_or(|granted| granted.contains(&wanted))
}

/// What is granted on these topics; one that is not there, or is in trouble, is left out. Blocks.
pub(super) fn on_topics<C: ClientContext>(
    client: &Client<C>,
    topics: &[&str],
    patience: Duration,
) -> Result<BTreeMap<String, Granted>, RDKafkaErrorCode> {
    let names: Vec<CString> = topics.iter().filter_map(|name| CString::new(*name).ok()).collect();
    let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let request = |rk, options, queue| {
        // SAFETY: the request copies the names; the collection is destroyed after its last use.
        unsafe {
            let all = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
            sys::rd_kafka_DescribeTopics(rk, all, options, queue);
            sys::rd_kafka_TopicCollection_destroy(all);
        }
    };
    let read = |event| {
        let mut found = BTreeMap::new();
        // SAFETY: the event is alive, and so is what it shows; each pointer is looked at before it is followed.
        unsafe {
            let result = sys::rd_kafka_event_DescribeTopics_result(event);
            let mut count = 0;
            if result.is_null() {
                return found;
            }
            let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
            for index in 0..if topics.is_null() { 0 } else { count } {
                let topic = *topics.add(index);
                let name = CStr::from_ptr(sys::rd_kafka_TopicDescription_name(topic)).to_string_lossy();
                let granted = match code(sys::rd_kafka_TopicDescription_error(topic)) {
                    RDKafkaErrorCode::NoError => {
                        let mut count = 0;
                        let first = sys::rd_kafka_TopicDescription_authorized_operations(topic, &mut count);
                        operations(first, count)
                    }
                    RDKafkaErrorCode::TopicAuthorizationFailed => Some(Vec::new()),
                    _ => continue,
                };
                found.insert(name.into_owned(), granted);
            }
        }
        found
    };
    let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS;
    ask(client, operation, patience, request, read)
}

/// What is granted on a group, which need not be there. Blocks.
pub(super) fn on_group<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    patience: Duration,
) -> Result<Granted, RDKafkaErrorCode> {
    let name = CString::new(group).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    let mut names = [name.as_ptr()];
    // SAFETY: the request copies the names.
    let request = |rk, options, queue| unsafe {
        sys::rd_kafka_DescribeConsumerGroups(rk, names.as_mut_ptr(), names.len(), options, queue);
    };
    let read = |event| {
        // SAFETY: the event is alive, and so is what it shows; each pointer is looked at before it is followed.
        unsafe {
            let result = sys::rd_kafka_event_DescribeConsumerGroups_result(event);
            let mut count = 0;
            if result.is_null() {
                return None;
            }
            let groups = sys::rd_kafka_DescribeConsumerGroups_result_groups(result, &mut count);
            if groups.is_null() || count == 0 {
                return None;
            }
            match code(sys::rd_kafka_ConsumerGroupDescription_error(*groups)) {
                RDKafkaErrorCode::NoError => {
                    let mut count = 0;
                    let first =
                        sys::rd_kafka_ConsumerGroupDescription_authorized_operations(*groups, &mut count);
                    operations(first, count)
                }
                RDKafkaErrorCode::GroupAuthorizationFailed => Some(Vec::new()),
                _ => None,
            }
        }
    };
    let operation = sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS;
    ask(client, operation, patience, request, read)
}

fn ask<C: ClientContext, T>(
    client: &Client<C>,
    operation: sys::rd_kafka_admin_op_t,
    patience: Duration,
    request: impl FnOnce(*mut sys::rd_kafka_t, *const sys::rd_kafka_AdminOptions_t, *mut sys::rd_kafka_queue_t),
    read: impl FnOnce(*mut sys::rd_kafka_event_t) -> T,
) -> Result<T, RDKafkaErrorCode> {
    let rk = client.native_ptr();
    let patience = i32::try_from(patience.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: the client outlives the call; what is made here is destroyed here, after its last use.
    unsafe {
        let queue = sys::rd_kafka_queue_new(rk);
        let options = sys::rd_kafka_AdminOptions_new(rk, operation);
        sys::rd_kafka_AdminOptions_set_request_timeout(options, patience, ptr::null_mut(), 0);
        let refused = sys::rd_kafka_AdminOptions_set_include_authorized_operations(options, 1);
        if !refused.is_null() {
            sys::rd_kafka_error_destroy(refused);
        }
        request(rk, options, queue);
        let event = sys::rd_kafka_queue_poll(queue, patience.saturating_add(2_000));
        let answer = if event.is_null() {
            Err(RDKafkaErrorCode::OperationTimedOut)
        } else {
            let answer = match RDKafkaErrorCode::from(sys::rd_kafka_event_error(event)) {
                RDKafkaErrorCode::NoError => Ok(read(event)),
                code => Err(code),
            };
            sys::rd_kafka_event_destroy(event);
            answer
        };
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_queue_destroy(queue);
        answer
    }
}

/// # Safety
/// The error is null or alive.
unsafe fn code(error: *const sys::rd_kafka_error_t) -> RDKafkaErrorCode {
    if error.is_null() {
        return RDKafkaErrorCode::NoError;
    }
    // SAFETY: as the caller promises.
    RDKafkaErrorCode::from(unsafe { sys::rd_kafka_error_code(error) })
}

/// Who is answered at all may at least describe: where nothing is granted, the brokers have not looked.
///
/// # Safety
/// There are so many operations at `first`, unless it is null.
unsafe fn operations(first: *const AclOperation, count: usize) -> Granted {
    // SAFETY: as the caller promises.
    (!first.is_null() && count > 0).then(|| unsafe { std::slice::from_raw_parts(first, count) }.to_vec())
}
