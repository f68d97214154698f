//! What goes wrong with topics and readers.

use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use super::access::Denied;

/// What went wrong with a topic or a reader, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The settings make no client. Trying again changes nothing.
    #[error("{0}")]
    Config(String),
    /// No broker answered in time. Worth another try.
    #[error("no broker at {brokers} can be talked to: {reason}")]
    Unreachable {
        /// What was tried.
        brokers: String,
        /// The last thing librdkafka said.
        reason: String,
    },
    /// There is no such topic.
    #[error("topic {topic} does not exist")]
    NoTopic {
        /// Its name.
        topic: String,
    },
    /// The topic has no such partition.
    #[error("topic {topic} has no partition {partition}: it has {count}, counted from 0")]
    NoPartition {
        /// The topic.
        topic: String,
        /// The partition asked for.
        partition: i32,
        /// How many it has.
        count: u32,
    },
    /// The brokers refuse: somebody has to grant it first.
    #[error("{0}")]
    Denied(Denied),
    /// Something else happened.
    #[error("{place}: {what}: {why}")]
    Failed {
        /// The topic, and the partition where there is one.
        place: String,
        /// What was tried.
        what: &'static str,
        /// What librdkafka says.
        why: String,
    },
}

impl Error {
    /// What librdkafka says about `what` at a topic or partition.
    pub(super) fn failed(place: impl Into<String>, what: &'static str, why: &KafkaError) -> Self {
        Self::Failed { place: place.into(), what, why: why.to_string() }
    }
}

/// Whether a code means that no broker could be asked, so that it may pass by itself.
pub(super) fn is_transport(code: RDKafkaErrorCode) -> bool {
    use RDKafkaErrorCode as Code;
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::OperationTimedOut
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::RequestTimedOut
            | Code::NetworkException
            | Code::Authentication
            | Code::SSL
            | Code::WaitingForCoordinator
            | Code::BrokerNotAvailable
    )
}

/// Names a partition in a text.
pub(super) fn place(topic: &str, partition: i32) -> String {
    format!("topic {topic}, partition {partition}")
}
