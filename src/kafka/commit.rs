//! Committed offsets with their metadata: asked for, and written with an answer.
//!
//! `BaseConsumer::commit` in its asynchronous mode never says how it went: librdkafka reports it to a
//! callback that rust-rdkafka does not set. Its `committed_offsets` cannot show metadata that is not UTF-8,
//! which anyone can write. So both are done on librdkafka's own interface.

#![allow(unsafe_code)]

use std::ffi::CString;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::client::Client;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::RDKafkaErrorCode;

/// What is committed for a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Committed {
    pub partition: i32,
    /// The next offset to read; none where nothing was committed.
    pub offset: Option<i64>,
    /// What was written beside it; bad bytes replaced.
    pub metadata: String,
}

/// An offset to commit: the next one to read of a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Commit {
    pub partition: i32,
    pub offset: i64,
    pub metadata: String,
}

/// A list of partitions of one topic, of librdkafka's.
struct List(*mut sys::rd_kafka_topic_partition_list_t);

impl List {
    /// Fails where the topic's name has a NUL.
    fn new(topic: &str, partitions: impl Iterator<Item = i32>) -> Result<Self, RDKafkaErrorCode> {
        let topic = CString::new(topic).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
        // SAFETY: the list is ours; adding to it copies the topic's name.
        unsafe {
            let list = Self(sys::rd_kafka_topic_partition_list_new(8));
            for partition in partitions {
                sys::rd_kafka_topic_partition_list_add(list.0, topic.as_ptr(), partition);
            }
            Ok(list)
        }
    }

    fn elements(&mut self) -> &mut [sys::rd_kafka_topic_partition_t] {
        // SAFETY: librdkafka keeps `cnt` elements at `elems`, none where that is null, and they live as long as
        // the list, which we borrow.
        unsafe {
            let (elements, count) = ((*self.0).elems, usize::try_from((*self.0).cnt).unwrap_or(0));
            if elements.is_null() { &mut [] } else { std::slice::from_raw_parts_mut(elements, count) }
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: the list is ours and not used after this.
        unsafe { sys::rd_kafka_topic_partition_list_destroy(self.0) };
    }
}

/// What is committed for these partitions: offsets and metadata from one fetch (design rule 5). Blocks.
///
/// # Errors
/// The coordinator did not answer in time, or refused for any of the partitions.
pub(super) fn fetch<C: ConsumerContext>(
    client: &Client<C>,
    topic: &str,
    partitions: impl Iterator<Item = i32>,
    timeout: Duration,
) -> Result<Vec<Committed>, RDKafkaErrorCode> {
    let mut list = List::new(topic, partitions)?;
    let timeout = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: client and list are alive; the call fills the list in.
    outcome(unsafe { sys::rd_kafka_committed(client.native_ptr(), list.0, timeout) })?;
    let read = |element: &mut sys::rd_kafka_topic_partition_t| {
        outcome(element.err)?;
        let metadata = match element.metadata.is_null() {
            true => String::new(),
            // SAFETY: librdkafka keeps `metadata_size` bytes at `metadata` as long as the list lives.
            false => String::from_utf8_lossy(unsafe {
                std::slice::from_raw_parts(element.metadata.cast(), element.metadata_size)
            })
            .into_owned(),
        };
        let offset = (element.offset >= 0).then_some(element.offset);
        Ok(Committed { partition: element.partition, offset, metadata })
    };
    list.elements().iter_mut().map(read).collect()
}

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

    /// Asks for a commit. Does not block; the answer comes to [`Self::answer`].
    ///
    /// # Errors
    /// The client cannot even ask; no answer comes then.
    pub(super) fn request<C: ConsumerContext>(
        &self,
        client: &Client<C>,
        topic: &str,
        commits: &[Commit],
    ) -> Result<(), RDKafkaErrorCode> {
        let mut list = List::new(topic, commits.iter().map(|commit| commit.partition))?;
        for (element, commit) in list.elements().iter_mut().zip(commits) {
            element.offset = commit.offset;
            let bytes = commit.metadata.as_bytes();
            // SAFETY: the list frees its elements' metadata with librdkafka's allocator, which this is; the copy
            // is as long as what was allocated.
            unsafe {
                let copy = sys::rd_kafka_mem_malloc(client.native_ptr(), bytes.len().max(1));
                if copy.is_null() {
                    continue;
                }
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
                element.metadata = copy;
                element.metadata_size = bytes.len();
            }
        }
        // SAFETY: client, list and queue are alive; a commit copies the list.
        outcome(unsafe {
            sys::rd_kafka_commit_queue(client.native_ptr(), list.0, self.queue, None, std::ptr::null_mut())
        })
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
