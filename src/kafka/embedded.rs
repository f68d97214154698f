//! A broker in this process, for `turnmill dev` and tests: librdkafka's mock cluster.
//!
//! It compacts nothing, knows no topic settings, keeps 5 MB or 100,000 batches of a partition and drops
//! the rest silently, and forgets everything when it goes. Clients outside this process may use it.

#![allow(unsafe_code)]

use rdkafka::bindings::{rd_kafka_handle_mock_cluster, rd_kafka_mock_group_initial_rebalance_delay_ms};
use rdkafka::client::{Client, DefaultClientContext};
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaType;

use super::topics;
use crate::config::Topics;

/// The embedded broker cannot be started.
#[derive(Debug, thiserror::Error)]
#[error("the embedded broker cannot be started: {0}")]
pub(crate) struct Error(String);

impl From<KafkaError> for Error {
    fn from(error: KafkaError) -> Self {
        Self(error.to_string())
    }
}

/// A running embedded broker; it ends when this is dropped.
pub(crate) struct Embedded {
    /// Owns the cluster: librdkafka destroys it with the client.
    _client: Client,
    bootstrap: String,
}

impl Embedded {
    /// Starts the broker on a free port of the loopback address, with the topics. All but the control
    /// topic get this many partitions. Blocks for some milliseconds.
    ///
    /// # Errors
    /// No port can be bound, or a topic name is refused.
    pub(crate) fn start(names: &Topics, partitions: u32) -> Result<Self, Error> {
        let mut config = ClientConfig::new();
        config.set("test.mock.num.brokers", "1").set("client.id", "turnmill-embedded");
        // Nobody reads its log, and what happens to a real client is logged by that client.
        config.set_log_level(RDKafkaLogLevel::Emerg);
        let client = Client::new(
            &config,
            config.create_native_config()?,
            RDKafkaType::RD_KAFKA_PRODUCER,
            DefaultClientContext,
        )?;
        let cluster =
            (client.mock_cluster()).ok_or_else(|| Error("librdkafka made no mock cluster".into()))?;
        let bootstrap = cluster.bootstrap_servers();
        for plan in topics::desired(names, partitions, 1) {
            cluster.create_topic(&plan.name, plan.partitions.cast_signed(), 1)?;
        }
        drop(cluster);
        join_at_once(&client);
        Ok(Self { _client: client, bootstrap })
    }

    /// Its address, for `kafka.brokers`.
    pub(crate) fn bootstrap_servers(&self) -> &str {
        &self.bootstrap
    }
}

/// A new group would wait three seconds for more members.
fn join_at_once(client: &Client) {
    // SAFETY: the client is alive for both calls. The cluster is the client's own and lives as long as
    // the client; librdkafka locks it inside.
    unsafe {
        let cluster = rd_kafka_handle_mock_cluster(client.native_ptr());
        if !cluster.is_null() {
            rd_kafka_mock_group_initial_rebalance_delay_ms(cluster, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::message::Message as _;
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};

    use super::*;
    use crate::config::Kafka;
    use crate::kafka::client;

    #[test]
    fn a_producer_and_a_group_work_on_it_within_moments() {
        let topics = Topics::default();
        let broker = Embedded::start(&topics, 3).unwrap();
        let kafka = Kafka { brokers: broker.bootstrap_servers().into(), ..Kafka::default() };
        let begin = Instant::now();

        let producer: BaseProducer = client::producer(&kafka).create().unwrap();
        for number in 0..10 {
            let key = format!("s-{number}");
            producer.send(BaseRecord::to(&topics.turns).key(&key).payload("{}")).unwrap();
        }
        producer.flush(Duration::from_secs(5)).unwrap();

        let consumer: BaseConsumer = client::turns_consumer(&kafka).create().unwrap();
        consumer.subscribe(&[&topics.turns]).unwrap();
        let mut seen = 0;
        while seen < 10 && begin.elapsed() < Duration::from_secs(20) {
            if let Some(message) = consumer.poll(Duration::from_millis(100)) {
                assert_eq!(message.unwrap().payload(), Some(&b"{}"[..]));
                seen += 1;
            }
        }
        assert_eq!(seen, 10);
        assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    }
}
