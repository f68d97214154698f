//! Commits whose outcome is heard of.
//!
//! `BaseConsumer::commit` in its asynchronous mode never says how it went: librdkafka reports it to a
//! callback that rust-rdkafka does not set. So the request is made on librdkafka's own interface, with a
//! queue for the answer.

#![allow(unsafe_code)]

use std::ffi::CString;

use rdkafka::bindings as sys;
use rdkafka::client::Client;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::RDKafkaErrorCode;

/// The answers to a consumer's commits. Must not outlive the consumer.
pub(super) struct Commits {
    queue: *mut sys::rd_kafka_queue_t,
}

// SAFETY: librdkafka's queues may be used from any thread.
unsafe impl Send for Commits {}

impl Commits {
    /// A queue for the commits of this client.
    pub(super) fn new<C: ConsumerContext>(client: &Client<C>) -> Self {
        // SAFETY: the client is alive.
        let queue = unsafe { sys::rd_kafka_queue_new(client.native_ptr()) };
        Self { queue }
    }

    /// Asks for a commit of these offsets, each the next one to read of a partition. Does not block; the answer
    /// comes to [`Self::answer`].
    ///
    /// # Errors
    /// The client cannot even ask; no answer comes then.
    pub(super) fn request<C: ConsumerContext>(
        &self,
        client: &Client<C>,
        topic: &str,
        offsets: impl ExactSizeIterator<Item = (i32, i64)>,
    ) -> Result<(), RDKafkaErrorCode> {
        let topic = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
        let size = i32::try_from(offsets.len()).unwrap_or(0);
        // SAFETY: the list is ours until it is destroyed here; adding to it copies the topic's name and returns
        // an element of it; a commit copies the list. Client and queue are alive.
        let code = unsafe {
            let list = sys::rd_kafka_topic_partition_list_new(size);
            for (partition, offset) in offsets {
                let element = sys::rd_kafka_topic_partition_list_add(list, topic.as_ptr(), partition);
                (*element).offset = offset;
            }
            let code =
                sys::rd_kafka_commit_queue(client.native_ptr(), list, self.queue, None, std::ptr::null_mut());
            sys::rd_kafka_topic_partition_list_destroy(list);
            code
        };
        outcome(code)
    }

    /// How a commit went, if one has been answered: its error, or else the first of its partitions'.
    pub(super) fn answer(&self) -> Option<Result<(), RDKafkaErrorCode>> {
        // SAFETY: the queue is alive, a wait of 0 does not block, the event is ours until it is destroyed here,
        // and the list belongs to the event.
        unsafe {
            let event = sys::rd_kafka_queue_poll(self.queue, 0);
            if event.is_null() {
                return None;
            }
            let mut code = sys::rd_kafka_event_error(event);
            let list = sys::rd_kafka_event_topic_partition_list(event);
            if outcome(code).is_ok() && !list.is_null() {
                for index in 0..usize::try_from((*list).cnt).unwrap_or(0) {
                    let own = (*(*list).elems.add(index)).err;
                    if outcome(code).is_ok() && outcome(own).is_err() {
                        code = own;
                    }
                }
            }
            sys::rd_kafka_event_destroy(event);
            Some(outcome(code))
        }
    }
}

impl Drop for Commits {
    fn drop(&mut self) {
        // SAFETY: the queue is ours and not used after this.
        unsafe { sys::rd_kafka_queue_destroy(self.queue) };
    }
}

fn outcome(code: sys::rd_kafka_resp_err_t) -> Result<(), RDKafkaErrorCode> {
    match RDKafkaErrorCode::from(code) {
        RDKafkaErrorCode::NoError => Ok(()),
        code => Err(code),
    }
}
