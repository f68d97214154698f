//! The id of a topic: another topic of the same name has another one.

#![allow(unsafe_code)]

use std::ffi::{CStr, CString};
use std::ptr;

use rdkafka::ClientConfig;
use rdkafka::bindings as sys;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, Producer as _};

/// How long the brokers may take to answer, in milliseconds.
const PATIENCE: i32 = 8_000;

/// Asks for a topic's id, as Kafka writes it: 22 characters of base 64. Blocks.
///
/// # Errors
/// The brokers did not answer, or do not tell; says why.
pub(crate) fn topic_id(client: &ClientConfig, topic: &str) -> Result<String, String> {
    // rust-rdkafka's admin client cannot describe topics; any client can ask.
    let client: BaseProducer = client.create().map_err(|e| e.to_string())?;
    let rk = client.client().native_ptr();
    let name = CString::new(topic).map_err(|e| e.to_string())?;
    let mut names = [name.as_ptr()];
    // SAFETY: the client outlives the call; what is made here is destroyed here, after its last use; what a result
    // shows lives as long as its event.
    unsafe {
        let queue = sys::rd_kafka_queue_new(rk);
        let topics = sys::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len());
        let options =
            sys::rd_kafka_AdminOptions_new(rk, sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS);
        sys::rd_kafka_AdminOptions_set_request_timeout(options, PATIENCE, ptr::null_mut(), 0);
        sys::rd_kafka_DescribeTopics(rk, topics, options, queue);
        let event = sys::rd_kafka_queue_poll(queue, PATIENCE + 2_000);
        let id = if event.is_null() { Err("no answer came".to_owned()) } else { read(event) };
        if !event.is_null() {
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_TopicCollection_destroy(topics);
        sys::rd_kafka_queue_destroy(queue);
        id
    }
}

/// # Safety
/// The event is a live answer to a request to describe one topic.
unsafe fn read(event: *mut sys::rd_kafka_event_t) -> Result<String, String> {
    // SAFETY: as the caller promises; every pointer is looked at before it is followed.
    unsafe {
        let code = RDKafkaErrorCode::from(sys::rd_kafka_event_error(event));
        if code != RDKafkaErrorCode::NoError {
            return Err(code.to_string());
        }
        let result = sys::rd_kafka_event_DescribeTopics_result(event);
        let mut count = 0;
        if result.is_null() {
            return Err("the answer is of another kind".into());
        }
        let topics = sys::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        if topics.is_null() || count == 0 {
            return Err("the answer names no topic".into());
        }
        let id = sys::rd_kafka_TopicDescription_topic_id(*topics);
        let text = if id.is_null() { ptr::null() } else { sys::rd_kafka_Uuid_base64str(id) };
        if text.is_null() {
            return Err("the answer has no id".into());
        }
        Ok(CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}
