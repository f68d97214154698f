//! The settings of each kind of client.
//!
//! The user's properties come first. A default of ours fills a gap; a setting that a guarantee rests on
//! is always ours. Each kind of client gets only the properties that mean something to it, because
//! librdkafka warns about every other.

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;

use super::openssl;
use crate::config::Kafka;

/// librdkafka's default of `message.max.bytes`.
const MAX_RECORD_BYTES: usize = 1_000_000;

/// What librdkafka calls a consumer property.
const CONSUMER_ONLY: &[&str] = &[
    "auto.commit.enable",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "check.crcs",
    "consume.callback.max.messages",
    "coordinator.query.interval.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.partition.eof",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.protocol.type",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "isolation.level",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "offset.store.method",
    "offset.store.path",
    "offset.store.sync.interval.ms",
    "partition.assignment.strategy",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "session.timeout.ms",
];

/// What librdkafka calls a producer property.
const PRODUCER_ONLY: &[&str] = &[
    "acks",
    "batch.num.messages",
    "batch.size",
    "compression.codec",
    "compression.level",
    "compression.type",
    "delivery.report.only.error",
    "delivery.timeout.ms",
    "enable.gapless.guarantee",
    "enable.idempotence",
    "linger.ms",
    "message.send.max.retries",
    "message.timeout.ms",
    "msg_order_cmp",
    "partitioner",
    "produce.offset.report",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queuing.strategy",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "sticky.partitioning.linger.ms",
    "transaction.timeout.ms",
    "transactional.id",
];

/// Properties of one meaning: setting two of them leaves it to chance which one wins.
const ALIASES: &[&[&str]] = &[
    &["bootstrap.servers", "metadata.broker.list"],
    &["enable.auto.commit", "auto.commit.enable"],
    &["acks", "request.required.acks"],
    &["linger.ms", "queue.buffering.max.ms"],
    &["message.timeout.ms", "delivery.timeout.ms"],
];

/// What a reader sees of transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Isolation {
    /// Records of committed transactions and records outside of any.
    ReadCommitted,
    /// Everything, records of aborted transactions too.
    ReadUncommitted,
}

/// TLS is asked for, and this program was built without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "kafka.properties: security.protocol = {0:?} needs TLS, and this program was built without it: \
     build it with the cargo feature `tls`, which is on by default"
)]
pub(crate) struct NoTls(String);

/// Checks that this program can speak the security protocol that is asked for.
///
/// # Errors
/// TLS is asked for and not built in.
pub(crate) fn check_tls(kafka: &Kafka) -> Result<(), NoTls> {
    let protocol = kafka.properties.get("security.protocol").map_or("", String::as_str);
    let tls = ["ssl", "sasl_ssl"].iter().any(|name| protocol.eq_ignore_ascii_case(name));
    if tls && !cfg!(feature = "tls") {
        return Err(NoTls(protocol.to_owned()));
    }
    Ok(())
}

/// How long records wait for each other that are to go together, in milliseconds.
const TOGETHER: &str = "5";

/// How often a client of the worker tells of itself, in milliseconds: for metrics.
const STATISTICS: &str = "5000";

/// A client that creates and describes topics.
pub(crate) fn admin(kafka: &Kafka) -> ClientConfig {
    let mut config = base(kafka, "turnmill-admin");
    keep_out(&mut config, CONSUMER_ONLY);
    keep_out(&mut config, PRODUCER_ONLY);
    config
}

/// The consumer of turns: a member of the group that commits by hand.
pub(crate) fn turns_consumer(kafka: &Kafka) -> ClientConfig {
    let mut config = base(kafka, "turnmill-turns");
    keep_out(&mut config, PRODUCER_ONLY);
    force(&mut config, "group.id", &kafka.group_id);
    force(&mut config, "enable.auto.commit", "false");
    force(&mut config, "enable.auto.offset.store", "false");
    force(&mut config, "isolation.level", "read_committed");
    force(&mut config, "enable.partition.eof", "false");
    // The brokers assign under the newer protocol, and librdkafka refuses a strategy beside it.
    if config.get("group.protocol").is_none_or(|protocol| !protocol.eq_ignore_ascii_case("consumer")) {
        default(&mut config, "partition.assignment.strategy", "cooperative-sticky");
    }
    default(&mut config, "auto.offset.reset", "earliest");
    default(&mut config, "statistics.interval.ms", STATISTICS);
    bound_prefetch(&mut config);
    config
}

/// The producer of steps.
pub(crate) fn step_producer(kafka: &Kafka) -> ClientConfig {
    idempotent(kafka, "turnmill-steps")
}

/// The producer of everything else: results, dead letters, submitted turns.
pub(crate) fn producer(kafka: &Kafka) -> ClientConfig {
    idempotent(kafka, "turnmill-producer")
}

/// A producer like this one, for records that are to go together. None: the user has said how long records wait for
/// others.
pub(crate) fn together(kafka: &Kafka, producer: &ClientConfig) -> Option<ClientConfig> {
    if same_meaning("linger.ms").any(|name| kafka.properties.contains_key(name)) {
        return None;
    }
    let mut config = producer.clone();
    force(&mut config, "linger.ms", TOGETHER);
    Some(config)
}

/// The producer of status, which may be lost and must not pile up.
pub(crate) fn status_producer(kafka: &Kafka) -> ClientConfig {
    let mut config = idempotent(kafka, "turnmill-status");
    force(&mut config, "enable.idempotence", "false");
    force(&mut config, "acks", "1");
    force(&mut config, "statistics.interval.ms", "0");
    force(&mut config, "linger.ms", "20");
    config.remove("delivery.timeout.ms");
    force(&mut config, "message.timeout.ms", "5000");
    force(&mut config, "queue.buffering.max.messages", "10000");
    force(&mut config, "queue.buffering.max.kbytes", "16384");
    config
}

/// The producer of ends of turns, where they are promised exactly once. What a worker that died left open holds
/// readers up for as long as `transaction.timeout.ms`, unless the partition is taken over before.
pub(crate) fn transactional(kafka: &Kafka) -> ClientConfig {
    let mut config = idempotent(kafka, "turnmill-ends");
    // One of these for each partition: too many to tell of themselves.
    force(&mut config, "statistics.interval.ms", "0");
    default(&mut config, "transaction.timeout.ms", "15000");
    // librdkafka wants every message to be given up before its transaction is.
    let timeout = config.get("transaction.timeout.ms").unwrap_or("15000").to_owned();
    config.remove("delivery.timeout.ms");
    force(&mut config, "message.timeout.ms", &timeout);
    config
}

/// A reader that joins no group and commits nothing, and is told where a partition ends.
pub(crate) fn reader(kafka: &Kafka, isolation: Isolation) -> ClientConfig {
    let mut config = base(kafka, "turnmill-reader");
    keep_out(&mut config, PRODUCER_ONLY);
    // Membership settings of the worker: a static id or a protocol is not for us.
    config.remove("group.instance.id");
    config.remove("group.protocol");
    config.remove("group.remote.assignor");
    // librdkafka assigns nothing without one. It is never joined, and it is not the worker's, so that
    // nothing that is done here can touch the worker's offsets.
    force(&mut config, "group.id", "turnmill-reader");
    force(&mut config, "enable.auto.commit", "false");
    force(&mut config, "enable.auto.offset.store", "false");
    force(&mut config, "enable.partition.eof", "true");
    force(&mut config, "auto.offset.reset", "earliest");
    force(&mut config, "allow.auto.create.topics", "false");
    let isolation = match isolation {
        Isolation::ReadCommitted => "read_committed",
        Isolation::ReadUncommitted => "read_uncommitted",
    };
    force(&mut config, "isolation.level", isolation);
    // An end behind a transaction marker is seen only when a fetch comes back with nothing.
    default(&mut config, "fetch.wait.max.ms", "100");
    bound_prefetch(&mut config);
    config
}

/// A reader that follows partitions which are being written: it hears of an offset that is gone instead of
/// going on somewhere else, and of a partition that is added without waiting for what others bring.
pub(crate) fn tail(kafka: &Kafka) -> ClientConfig {
    let mut config = reader(kafka, Isolation::ReadUncommitted);
    force(&mut config, "enable.partition.eof", "false");
    force(&mut config, "auto.offset.reset", "error");
    default(&mut config, "fetch.wait.max.ms", "100");
    default(&mut config, "statistics.interval.ms", STATISTICS);
    config
}

/// The largest record that the client sends, key and value and headers, in bytes.
pub(crate) fn max_record_bytes(kafka: &Kafka) -> usize {
    (kafka.properties.get("message.max.bytes"))
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(MAX_RECORD_BYTES)
}

/// Why librdkafka does not take a configuration: names the property, and never shows its value, which
/// may be a password.
pub(crate) fn explain(error: &KafkaError) -> String {
    match error {
        KafkaError::ClientConfig(_, why, property, _) => {
            format!("kafka.properties: {property} is refused: {why}")
        }
        KafkaError::ClientCreation(why) => format!("kafka.properties: refused by librdkafka: {why}"),
        other => format!("kafka client: {other}"),
    }
}

/// What every client has: brokers, client id, the user's properties of whatever kind.
fn base(kafka: &Kafka, id: &str) -> ClientConfig {
    openssl::outlive_the_process();
    let mut config = ClientConfig::new();
    for (name, value) in &kafka.properties {
        config.set(name, value);
    }
    default(&mut config, "bootstrap.servers", &kafka.brokers);
    default(&mut config, "client.id", id);
    config
}

fn idempotent(kafka: &Kafka, id: &str) -> ClientConfig {
    let mut config = base(kafka, id);
    keep_out(&mut config, CONSUMER_ONLY);
    force(&mut config, "acks", "all");
    force(&mut config, "enable.idempotence", "true");
    default(&mut config, "statistics.interval.ms", STATISTICS);
    default(&mut config, "linger.ms", "0");
    default(&mut config, "message.timeout.ms", "30000");
    // Java's. Sessions keep their order only if all producers of a topic agree.
    default(&mut config, "partitioner", "murmur2_random");
    // A misspelt topic is an error, not a new topic with a broker's defaults.
    default(&mut config, "allow.auto.create.topics", "false");
    config
}

/// A prefetch of 64 MiB a client is librdkafka's default, and the pause of a second after it is full.
fn bound_prefetch(config: &mut ClientConfig) {
    default(config, "queued.min.messages", "1000");
    default(config, "queued.max.messages.kbytes", "16384");
    default(config, "fetch.queue.backoff.ms", "20");
}

fn keep_out(config: &mut ClientConfig, names: &[&str]) {
    for name in names {
        config.remove(name);
    }
}

fn same_meaning(name: &str) -> impl Iterator<Item = &'static str> {
    let group = ALIASES.iter().find(|group| group.contains(&name)).copied();
    group.unwrap_or_default().iter().copied()
}

fn default(config: &mut ClientConfig, name: &str, value: &str) {
    let given = config.get(name).is_some() || same_meaning(name).any(|n| config.get(n).is_some());
    if !given {
        config.set(name, value);
    }
}

fn force(config: &mut ClientConfig, name: &str, value: &str) {
    for alias in same_meaning(name) {
        config.remove(alias);
    }
    config.set(name, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kafka(properties: &[(&str, &str)]) -> Kafka {
        let properties = properties.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
        Kafka { properties, ..Kafka::default() }
    }

    #[test]
    fn the_user_wins_over_defaults_and_never_over_guarantees() {
        let kafka = kafka(&[
            ("acks", "1"),
            ("request.required.acks", "1"),
            ("queue.buffering.max.ms", "5"),
            ("delivery.timeout.ms", "9000"),
            ("client.id", "mine"),
            ("auto.offset.reset", "latest"),
            ("isolation.level", "read_uncommitted"),
            ("auto.commit.enable", "true"),
            ("enable.partition.eof", "true"),
        ]);
        let steps = step_producer(&kafka);
        assert_eq!((steps.get("acks"), steps.get("request.required.acks")), (Some("all"), None));
        assert_eq!((steps.get("linger.ms"), steps.get("queue.buffering.max.ms")), (None, Some("5")));
        assert_eq!(steps.get("message.timeout.ms"), None);
        assert_eq!(steps.get("client.id"), Some("mine"));

        let turns = turns_consumer(&kafka);
        assert_eq!(turns.get("auto.offset.reset"), Some("latest"));
        assert_eq!(turns.get("isolation.level"), Some("read_committed"));
        assert_eq!(turns.get("enable.auto.commit"), Some("false"));
        assert_eq!(turns.get("auto.commit.enable"), None);
        assert_eq!(turns.get("enable.partition.eof"), Some("false"));
        assert_eq!(reader(&kafka, Isolation::ReadUncommitted).get("auto.offset.reset"), Some("earliest"));
    }

    #[test]
    fn a_client_gets_no_property_of_the_other_kind() {
        let kafka = kafka(&[
            ("max.poll.interval.ms", "1000"),
            ("compression.type", "zstd"),
            ("socket.timeout.ms", "5000"),
            ("group.instance.id", "a"),
        ]);
        for config in [step_producer(&kafka), producer(&kafka)] {
            assert!(CONSUMER_ONLY.iter().all(|name| config.get(name).is_none()));
            assert_eq!(config.get("compression.type"), Some("zstd"));
            assert_eq!(config.get("socket.timeout.ms"), Some("5000"));
        }
        for config in [turns_consumer(&kafka), reader(&kafka, Isolation::ReadCommitted)] {
            assert!(PRODUCER_ONLY.iter().all(|name| config.get(name).is_none()));
            assert_eq!(config.get("max.poll.interval.ms"), Some("1000"));
        }
        assert_eq!(turns_consumer(&kafka).get("group.instance.id"), Some("a"));
        assert_eq!(reader(&kafka, Isolation::ReadCommitted).get("group.instance.id"), None);
    }

    #[test]
    fn librdkafka_takes_all_of_it() {
        let kafka = kafka(&[("compression.type", "zstd"), ("fetch.wait.max.ms", "10")]);
        let configs = [
            admin(&kafka),
            turns_consumer(&kafka),
            step_producer(&kafka),
            producer(&kafka),
            reader(&kafka, Isolation::ReadCommitted),
        ];
        for config in configs {
            config.create_native_config().unwrap();
        }
    }

    #[test]
    fn records_go_together_unless_the_user_says_how_long_they_wait() {
        let linger = |kafka: &Kafka| {
            let together = together(kafka, &step_producer(kafka));
            together.map(|config| config.get("linger.ms").map(ToOwned::to_owned))
        };
        assert_eq!(step_producer(&Kafka::default()).get("linger.ms"), Some("0"));
        assert_eq!(linger(&Kafka::default()), Some(Some(TOGETHER.into())));
        for name in ["linger.ms", "queue.buffering.max.ms"] {
            assert_eq!(linger(&kafka(&[(name, "1")])), None);
        }
    }

    #[test]
    fn the_size_of_a_record_is_the_clients() {
        assert_eq!(max_record_bytes(&Kafka::default()), 1_000_000);
        assert_eq!(max_record_bytes(&kafka(&[("message.max.bytes", "5000000")])), 5_000_000);
    }

    #[test]
    fn tls_without_tls_says_what_to_do() {
        let refused = check_tls(&kafka(&[("security.protocol", "SASL_SSL")]));
        assert_eq!(refused.is_ok(), cfg!(feature = "tls"));
        assert!(check_tls(&kafka(&[("security.protocol", "plaintext")])).is_ok());
    }
}
