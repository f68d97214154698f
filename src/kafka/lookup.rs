//! Questions to the brokers: which partitions a topic has, and where they begin and end. Blocks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::access::{Denied, Operation, Resource};
use super::client::{self, Isolation};
use super::error::{Error, is_transport, place};
use super::grants;
use crate::config::Kafka;

/// How long a broker may take to answer, connecting included.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long it takes to be told, usually, that a broker does not let us in.
const REFUSAL: Duration = Duration::from_secs(1);
/// How long to wait before asking again for what is about to be there.
const PAUSE: Duration = Duration::from_millis(200);

/// What librdkafka says of a broker that took the connection and ended it.
const HUNG_UP: &[&str] = &["Disconnected", "Send failed", "Receive failed", "ApiVersionRequest failed"];

/// Remembers the last thing that went wrong, which says more than "timed out".
#[derive(Default)]
pub(super) struct Listener {
    last: Mutex<Option<String>>,
    /// How a broker did not let us in, if one did not.
    refusal: Mutex<Option<RDKafkaErrorCode>>,
}

impl Listener {
    fn remember(&self, text: &str) {
        // It begins with the name of a thread of librdkafka's.
        let text = match text.strip_prefix("[thrd:").and_then(|rest| rest.split_once("]: ")) {
            Some((_, rest)) => rest,
            None => text,
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(text.to_owned());
    }

    /// The last thing that went wrong, if anything did.
    pub(super) fn last(&self) -> Option<String> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn refused(&self, error: &KafkaError) {
        if let Some(code @ (RDKafkaErrorCode::Authentication | RDKafkaErrorCode::SSL)) =
            error.rdkafka_error_code()
        {
            *self.refusal.lock().unwrap_or_else(PoisonError::into_inner) = Some(code);
        }
    }

    fn refusal(&self) -> Option<RDKafkaErrorCode> {
        *self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientContext for Listener {
    // Whoever uses the client reports what comes of it, so these are details.
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        // How a connection ended is said less loudly: brokers end those that nobody uses, too.
        if (level as i32) <= (RDKafkaLogLevel::Error as i32) || facility == "FAIL" {
            self.remember(text);
        }
        tracing::debug!(target: "librdkafka", facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // It follows the reason why the last of them is down, and hides it.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            self.remember(reason);
        }
        tracing::debug!(target: "librdkafka", %error, reason);
    }
}

impl ConsumerContext for Listener {}

/// A client that asks.
pub(super) struct Lookup {
    consumer: BaseConsumer<Listener>,
    config: ClientConfig,
    brokers: String,
    /// What the topics are asked about for: who may do this may ask.
    purpose: Operation,
}

/// Where a partition begins and ends, as a reader of its isolation sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Bounds {
    pub begin: i64,
    pub end: i64,
}

impl Lookup {
    /// Connects in the background.
    pub(super) fn new(kafka: &Kafka, isolation: Isolation, purpose: Operation) -> Result<Self, Error> {
        client::check_tls(kafka).map_err(|e| Error::Config(e.to_string()))?;
        let mut config = client::reader(kafka, isolation);
        // It is heard, whatever is shown.
        config.set_log_level(RDKafkaLogLevel::Info);
        let brokers = config.get("bootstrap.servers").unwrap_or(&kafka.brokers).to_owned();
        let consumer = (config.create_with_context(Listener::default()))
            .map_err(|e| Error::Config(client::explain(&e)))?;
        Ok(Self { consumer, config, brokers, purpose })
    }

    /// How many partitions a topic has.
    ///
    /// # Errors
    /// There is no such topic, or no broker answered within seconds.
    pub(super) fn partitions(&self, topic: &str) -> Result<u32, Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let metadata = (self.consumer.fetch_metadata(Some(topic), REFUSAL))
                .or_else(|error| {
                    let left = deadline.saturating_duration_since(Instant::now());
                    let refused = self.heard().refusal().is_some();
                    if refused { Err(error) } else { self.consumer.fetch_metadata(Some(topic), left) }
                })
                .map_err(|error| self.unanswered(topic, "its metadata", &error))?;
            let Some(found) = metadata.topics().first() else {
                return Err(Error::NoTopic { topic: topic.into() });
            };
            match found.error().map(RDKafkaErrorCode::from) {
                None => return Ok(u32::try_from(found.partitions().len()).unwrap_or(u32::MAX)),
                Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
                    return Err(Error::NoTopic { topic: topic.into() });
                }
                Some(RDKafkaErrorCode::LeaderNotAvailable) if Instant::now() + PAUSE < deadline => {
                    std::thread::sleep(PAUSE);
                }
                Some(code) => {
                    let error = KafkaError::MetadataFetch(code);
                    return Err(self.failed(topic, None, "its metadata", &error));
                }
            }
        }
    }

    /// Where these partitions of a topic begin and end now.
    ///
    /// # Errors
    /// A partition has no leader, or its leader did not answer within seconds.
    pub(super) fn bounds(&self, topic: &str, partitions: &[i32]) -> Result<BTreeMap<i32, Bounds>, Error> {
        let begins = self.offsets(topic, partitions, Offset::Beginning)?;
        let ends = self.offsets(topic, partitions, Offset::End)?;
        let bounds = begins.into_iter().filter_map(|(partition, begin)| {
            let end = ends.get(&partition)?;
            Some((partition, Bounds { begin, end: *end }))
        });
        Ok(bounds.collect())
    }

    fn offsets(&self, topic: &str, partitions: &[i32], which: Offset) -> Result<BTreeMap<i32, i64>, Error> {
        const WHAT: &str = "where it begins and ends";
        let failed = |error: &KafkaError| self.unanswered(topic, WHAT, error);
        if partitions.is_empty() {
            return Ok(BTreeMap::new());
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut list = TopicPartitionList::with_capacity(partitions.len());
            for partition in partitions {
                list.add_partition_offset(topic, *partition, which).map_err(|e| failed(&e))?;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            // The call is for timestamps; these two, negative, stand for both ends of the log.
            let bad = match self.consumer.offsets_for_times(list, left) {
                Ok(found) => {
                    let elements = found.elements();
                    let bad = elements.iter().find_map(|e| Some((e.partition(), e.error().err()?)));
                    let Some((partition, error)) = bad else {
                        return Ok(elements.iter().filter_map(known).collect());
                    };
                    self.failed(topic, Some(partition), WHAT, &error)
                }
                Err(error) => failed(&error),
            };
            // A new partition, or one whose broker has just gone, has a leader in a moment.
            let lasting = matches!(bad, Error::Unreachable { .. } | Error::Denied(_));
            if lasting || Instant::now() + PAUSE >= deadline {
                return Err(bad);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn unanswered(&self, topic: &str, what: &'static str, error: &KafkaError) -> Error {
        match error.rdkafka_error_code() {
            Some(code) if is_transport(code) => self.unreachable(error),
            _ => self.failed(topic, None, what, error),
        }
    }

    fn failed(&self, topic: &str, partition: Option<i32>, what: &'static str, error: &KafkaError) -> Error {
        self.denied(error, self.purpose, Resource::Topic(topic.into())).unwrap_or_else(|| {
            let place = partition.map_or_else(|| format!("topic {topic}"), |p| place(topic, p));
            Error::failed(place, what, error)
        })
    }

    /// The error for an operation that the brokers refuse, if this says that they do.
    pub(super) fn denied(
        &self,
        error: &KafkaError,
        operation: Operation,
        resource: Resource,
    ) -> Option<Error> {
        let code = match error {
            KafkaError::AdminOp(code) => Some(*code),
            other => other.rdkafka_error_code(),
        };
        Denied::of(&self.config, code, operation, resource).map(Error::Denied)
    }

    /// Which of these the brokers do not grant, as far as they tell: not every broker does, and none of
    /// transactional ids.
    pub(super) fn not_granted(&self, needs: &[(Operation, Resource)]) -> Vec<Denied> {
        let client = self.consumer.client();
        let unknown =
            |error: RDKafkaErrorCode| tracing::debug!(%error, "the brokers do not tell what they grant");
        let names: BTreeSet<&str> = (needs.iter())
            .filter_map(|(_, resource)| match resource {
                Resource::Topic(name) => Some(name.as_str()),
                Resource::Group(_) | Resource::Transactions(_) => None,
            })
            .collect();
        let names: Vec<&str> = names.into_iter().collect();
        let topics = grants::on_topics(client, &names, PATIENCE).map_err(unknown).unwrap_or_default();
        let granted = |operation, resource: &Resource| match resource {
            Resource::Topic(name) => {
                topics.get(name).is_none_or(|granted| grants::allows(granted, operation))
            }
            Resource::Group(name) => {
                let granted = grants::on_group(client, name, PATIENCE).map_err(unknown).unwrap_or_default();
                grants::allows(&granted, operation)
            }
            Resource::Transactions(_) => true,
        };
        let missing = needs.iter().filter(|(operation, resource)| !granted(*operation, resource));
        missing.map(|(operation, resource)| Denied::new(&self.config, *operation, resource.clone())).collect()
    }

    /// The error for brokers that cannot be reached, with what librdkafka said last.
    pub(super) fn unreachable(&self, error: &KafkaError) -> Error {
        let heard = self.heard();
        let mut reason = heard.last().unwrap_or_else(|| error.to_string());
        reason.push_str(match heard.refusal() {
            Some(RDKafkaErrorCode::Authentication) => {
                ": check sasl.mechanism, sasl.username and sasl.password of kafka.properties"
            }
            // OpenSSL's own words: not all that is wrong with TLS has a code.
            refusal if refusal.is_some() || reason.contains("SSL routines") => {
                ": check the ssl. settings of kafka.properties, such as ssl.ca.location"
            }
            // A broker hangs up when it is spoken to in another way than it expects.
            _ if HUNG_UP.iter().any(|text| reason.contains(text)) => {
                ": check that security.protocol of kafka.properties is what the brokers expect at this address"
            }
            _ => "",
        });
        Error::Unreachable { brokers: self.brokers.clone(), reason }
    }

    /// What went wrong so far: librdkafka tells it with a poll, and a poll that tells something may return nothing.
    fn heard(&self) -> &Listener {
        let (listener, mut silent) = (self.consumer.context(), 0);
        while silent < 10 {
            match self.consumer.poll(Duration::ZERO) {
                Some(Err(error)) => listener.refused(&error),
                Some(Ok(_)) => {}
                None => silent += 1,
            }
        }
        listener
    }

    /// Whether the broker is an embedded one, which knows neither settings nor how to change them, and
    /// leaves who asks without an answer.
    pub(super) fn is_embedded(&self) -> bool {
        let id = self.consumer.client().fetch_cluster_id(PATIENCE);
        id.is_some_and(|id| id.starts_with("mockCluster"))
    }

    /// The client itself, to be read from.
    pub(super) fn consumer(&self) -> &BaseConsumer<Listener> {
        &self.consumer
    }
}

fn known(element: &rdkafka::topic_partition_list::TopicPartitionListElem<'_>) -> Option<(i32, i64)> {
    match element.offset() {
        Offset::Offset(offset) => Some((element.partition(), offset)),
        _ => None,
    }
}
