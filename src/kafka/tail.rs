//! Reading the events partitions that are ours, from where each restore begins and on, for as long as they are
//! ours.

use std::collections::HashMap;
use std::sync::mpsc as sync_mpsc;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::{ClientConfig, Statistics};
use tokio::sync::oneshot;

use super::{access, stats};

/// How long a poll waits for a record; also how late a request may be noticed when nothing comes.
const POLL: Duration = Duration::from_millis(10);
/// Takes in a record: its offset, key and value. False: no more of them. On the thread of all tails: it does not wait.
pub(crate) type Visit = Box<dyn FnMut(i64, &[u8], &[u8]) -> bool + Send>;

struct Request {
    partition: i32,
    from: i64,
    tail: Tail,
}

/// A partition that is read on.
struct Tail {
    visit: Visit,
    /// Says why it is over; closed when nobody wants it any more.
    over: oneshot::Sender<String>,
}

/// The thread that reads all tails of a topic with one client. It ends when this is dropped.
pub(crate) struct Tails {
    /// Until it is dropped.
    requests: Option<sync_mpsc::Sender<Request>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Tails {
    /// Waits until the thread has closed its client, some milliseconds.
    fn drop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Tails {
    /// Starts the thread.
    ///
    /// # Errors
    /// The client or the thread cannot be made.
    pub(crate) fn start(client: &ClientConfig, topic: &str) -> Result<Self, String> {
        let consumer = client.create_with_context(Context).map_err(|e| super::client::explain(&e))?;
        let (requests, incoming) = sync_mpsc::channel();
        let (config, topic) = (client.clone(), topic.to_owned());
        let reader = Reader { consumer, config, topic, tails: HashMap::new() };
        let thread = std::thread::Builder::new()
            .name("turnmill-tail".into())
            .spawn(move || reader.run(&incoming))
            .map_err(|e| format!("the tail thread cannot be started: {e}"))?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Whether the thread has ended, which it does by itself only where it panicked: nothing is read on any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(std::thread::JoinHandle::is_finished)
    }

    /// Reads a partition from `from` on, until what is returned is dropped, or says why it is over. A tail that was open
    /// for the same partition ends.
    pub(crate) fn open(&self, partition: i32, from: i64, visit: Visit) -> oneshot::Receiver<String> {
        let (over, ended) = oneshot::channel();
        // A thread that has ended drops the sender, which the receiver hears of.
        if let Some(requests) = &self.requests {
            let _ = requests.send(Request { partition, from, tail: Tail { visit, over } });
        }
        ended
    }
}

struct Context;

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "kafka client error");
    }

    fn stats(&self, stats: Statistics) {
        stats::observe("tail", &stats);
    }
}

impl ConsumerContext for Context {}

struct Reader {
    consumer: BaseConsumer<Context>,
    config: ClientConfig,
    topic: String,
    tails: HashMap<i32, Tail>,
}

impl Reader {
    fn run(mut self, requests: &sync_mpsc::Receiver<Request>) {
        loop {
            loop {
                match requests.try_recv() {
                    Ok(request) => self.begin(request),
                    Err(sync_mpsc::TryRecvError::Empty) => break,
                    Err(sync_mpsc::TryRecvError::Disconnected) => return,
                }
            }
            self.drop_abandoned();
            self.poll();
        }
    }

    fn begin(&mut self, request: Request) {
        let Request { partition, from, tail } = request;
        if self.tails.remove(&partition).is_some() {
            self.unassign(partition);
        }
        let mut list = TopicPartitionList::new();
        let begun = (list.add_partition_offset(&self.topic, partition, Offset::Offset(from)))
            .and_then(|()| self.consumer.incremental_assign(&list));
        match begun {
            Ok(()) => {
                self.tails.insert(partition, tail);
            }
            Err(error) => {
                let _ = tail.over.send(error.to_string());
            }
        }
    }

    fn drop_abandoned(&mut self) {
        let abandoned: Vec<i32> =
            self.tails.iter().filter(|(_, tail)| tail.over.is_closed()).map(|(p, _)| *p).collect();
        for partition in abandoned {
            self.tails.remove(&partition);
            self.unassign(partition);
        }
    }

    fn unassign(&self, partition: i32) {
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.topic, partition);
        if let Err(error) = self.consumer.incremental_unassign(&list) {
            tracing::warn!(topic = self.topic, partition, %error, "a tail cannot be ended");
        }
    }

    fn poll(&mut self) {
        let mut wait = POLL;
        // A bounded batch, so that requests are heard while much comes in.
        for _ in 0..1_024 {
            match self.consumer.poll(wait) {
                None => return,
                Some(Ok(message)) => {
                    let partition = message.partition();
                    let (key, value) =
                        (message.key().unwrap_or_default(), message.payload().unwrap_or_default());
                    let tail = self.tails.get_mut(&partition);
                    if tail.is_some_and(|tail| !(tail.visit)(message.offset(), key, value)) {
                        self.tails.remove(&partition);
                        self.unassign(partition);
                    }
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {}
                Some(Err(error)) if access::is_no_matter(&error) => {}
                Some(Err(error)) => self.failed(&error),
            }
            wait = Duration::ZERO;
        }
    }

    /// The log no longer has where a tail reads, or is gone, or may not be read: nobody can know what was there.
    /// librdkafka does not say of which partition, so all tails end; each is opened again.
    fn failed(&mut self, error: &KafkaError) {
        use RDKafkaErrorCode as Code;
        let over = matches!(
            error.rdkafka_error_code(),
            Some(
                Code::AutoOffsetReset
                    | Code::OffsetOutOfRange
                    | Code::UnknownTopic
                    | Code::UnknownTopicOrPartition
                    | Code::UnknownPartition
                    | Code::TopicAuthorizationFailed
            )
        );
        let error = access::explain(&self.config, &self.topic, error);
        if over {
            for (partition, tail) in std::mem::take(&mut self.tails) {
                let _ = tail.over.send(format!("the tail cannot go on: {error}"));
                self.unassign(partition);
            }
        } else {
            tracing::warn!(topic = self.topic, error, "reading the journal");
        }
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

    use super::*;
    use crate::config::{Kafka, Topics};
    use crate::kafka::client;
    use crate::kafka::embedded::Embedded;

    fn with_a_record() -> (Embedded, Tails) {
        let topics = Topics::default();
        let broker = Embedded::start(&topics, 1).unwrap();
        let kafka = Kafka { brokers: broker.bootstrap_servers().into(), ..Kafka::default() };
        let producer: BaseProducer = client::producer(&kafka).create().unwrap();
        producer.send(BaseRecord::to(&topics.events).partition(0).key("key").payload("value")).unwrap();
        producer.flush(Duration::from_secs(10)).unwrap();
        let tails = Tails::start(&client::tail(&kafka), &topics.events).unwrap();
        (broker, tails)
    }

    #[tokio::test]
    async fn a_tail_hands_records_over_until_it_is_told_that_it_is_enough() {
        let (_broker, tails) = with_a_record();
        let (seen, mut saw) = tokio::sync::mpsc::unbounded_channel();
        let visit = move |offset, key: &[u8], value: &[u8]| {
            seen.send((offset, key.to_vec(), value.to_vec())).is_err()
        };
        assert!(tails.open(0, 0, Box::new(visit)).await.is_err(), "nothing to say");
        assert_eq!(saw.recv().await, Some((0, b"key".to_vec(), b"value".to_vec())));
        assert!(!tails.has_ended());
    }

    #[tokio::test]
    async fn a_thread_that_panics_is_known_to_have_ended() {
        let (_broker, tails) = with_a_record();
        let over = tails.open(0, 0, Box::new(|_, _, _| panic!("as a test wants it"))).await;
        assert!(over.is_err());
        // What it held was dropped just before.
        while !tails.has_ended() {
            tokio::task::yield_now().await;
        }
        assert!(tails.open(0, 0, Box::new(|_, _, _| true)).await.is_err());
    }
}
