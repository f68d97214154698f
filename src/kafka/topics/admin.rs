//! What is asked of the brokers about topics, and what they are told to do. Blocks: for a thread that
//! may.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, ConfigSource, NewPartitions, NewTopic, OwnedResourceSpecifier,
    ResourceSpecifier, TopicReplication, TopicResult,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use tokio::runtime::Handle;

use super::plan::{Found, Setting, Settings, TopicPlan, Wrong};
use crate::config::Kafka;
use crate::kafka::access::{Denied, Operation, Resource};
use crate::kafka::client::{self, Isolation};
use crate::kafka::error::Error;
use crate::kafka::lookup::Lookup;

/// How long a broker may take over a request.
const REQUEST: Duration = Duration::from_secs(15);
/// How long a change may take to reach all brokers.
const SETTLE: Duration = Duration::from_secs(10);
/// How long to wait before looking again.
const PAUSE: Duration = Duration::from_millis(100);

/// The brokers, as far as topics go.
pub(super) struct Admin {
    lookup: Lookup,
    client: AdminClient<DefaultClientContext>,
    runtime: Handle,
}

impl Admin {
    /// Connects in the background.
    pub(super) fn new(kafka: &Kafka, runtime: Handle) -> Result<Self, Error> {
        let lookup = Lookup::new(kafka, Isolation::ReadCommitted, Operation::Describe)?;
        let client = (client::admin(kafka).create()).map_err(|e| Error::Config(client::explain(&e)))?;
        Ok(Self { lookup, client, runtime })
    }

    /// The topics of the plans as they are, in the same order.
    pub(super) fn survey(&self, plans: &[TopicPlan]) -> Result<Vec<Option<Found>>, Error> {
        let mut counts = Vec::with_capacity(plans.len());
        for plan in plans {
            counts.push(self.partitions(&plan.name)?);
        }
        let there = plans.iter().zip(&counts).filter(|(_, count)| count.is_some());
        let names: Vec<&str> = there.map(|(plan, _)| plan.name.as_str()).collect();
        let mut settings = self.describe(&names);
        let found = plans.iter().zip(counts).map(|(plan, count)| {
            count.map(|partitions| Found { partitions, settings: settings.remove(&plan.name) })
        });
        Ok(found.collect())
    }

    fn partitions(&self, topic: &str) -> Result<Option<u32>, Error> {
        match self.lookup.partitions(topic) {
            Ok(count) => Ok(Some(count)),
            Err(Error::NoTopic { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The settings of these topics, as far as the brokers tell: an embedded one has none, others tell
    /// only who may know.
    pub(super) fn describe(&self, topics: &[&str]) -> BTreeMap<String, Settings> {
        if topics.is_empty() || self.lookup.is_embedded() {
            return BTreeMap::new();
        }
        let resources: Vec<_> = topics.iter().map(|topic| ResourceSpecifier::Topic(topic)).collect();
        let described = self.runtime.block_on(self.client.describe_configs(&resources, &options()));
        let described = described.unwrap_or_else(|error| {
            tracing::debug!(%error, "the settings of topics cannot be read");
            Vec::new()
        });
        let mut all = BTreeMap::new();
        for resource in described.into_iter().flatten() {
            // rdkafka drops the error of a topic and leaves it without settings.
            if let OwnedResourceSpecifier::Topic(name) = resource.specifier
                && !resource.entries.is_empty()
            {
                let settings = resource.entries.into_iter().filter_map(|entry| {
                    let own = entry.source == ConfigSource::DynamicTopic;
                    Some((entry.name, Setting { value: entry.value?, own }))
                });
                all.insert(name, settings.collect());
            }
        }
        all
    }

    /// Which of these the brokers do not grant, as far as they tell.
    pub(super) fn not_granted(&self, needs: &[(Operation, Resource)]) -> Vec<Denied> {
        if self.lookup.is_embedded() { Vec::new() } else { self.lookup.not_granted(needs) }
    }

    /// Creates a topic. False if someone else just has.
    pub(super) fn create(&self, plan: &TopicPlan) -> Result<bool, Error> {
        const WHAT: &str = "it cannot be created";
        let mut topic = NewTopic::new(
            &plan.name,
            i32::try_from(plan.partitions).unwrap_or(i32::MAX),
            TopicReplication::Fixed(plan.replication),
        );
        for (name, value) in &plan.settings {
            topic = topic.set(name, value);
        }
        let result = self.runtime.block_on(self.client.create_topics([&topic], &options()));
        match outcome(result) {
            Ok(()) => {
                self.settle(&plan.name, plan.partitions)?;
                Ok(true)
            }
            Err(KafkaError::AdminOp(RDKafkaErrorCode::TopicAlreadyExists)) => Ok(false),
            Err(error) => Err(self.failed(&plan.name, Operation::Create, WHAT, &error)),
        }
    }

    /// Gives a topic more partitions.
    pub(super) fn widen(&self, topic: &str, partitions: u32) -> Result<(), Error> {
        let count = usize::try_from(partitions).unwrap_or(usize::MAX);
        let wider = NewPartitions::new(topic, count);
        let result = self.runtime.block_on(self.client.create_partitions([&wider], &options()));
        outcome(result)
            .map_err(|e| self.failed(topic, Operation::Alter, "it cannot be given more partitions", &e))?;
        self.settle(topic, partitions)
    }

    /// Sets what is wrong, and keeps every other setting that the topic has of its own: the request
    /// replaces them all.
    pub(super) fn repair(
        &self,
        topic: &str,
        settings: &Settings,
        wrong: &[Wrong],
        still_wrong: impl Fn(&Settings) -> Vec<Wrong>,
    ) -> Result<(), Error> {
        const WHAT: &str = "its settings cannot be changed";
        let own = settings.iter().filter(|(_, setting)| setting.own);
        let mut entries: HashMap<&str, &str> =
            own.map(|(name, setting)| (name.as_str(), setting.value.as_str())).collect();
        entries.extend(wrong.iter().map(|wrong| (wrong.name, wrong.should.as_str())));
        let change = AlterConfig { specifier: ResourceSpecifier::Topic(topic), entries };
        (self.runtime.block_on(self.client.alter_configs([&change], &options())))
            .map_err(|e| self.failed(topic, Operation::AlterConfigs, WHAT, &e))?;
        // rdkafka drops the answer about the topic itself: only a look shows what came of it.
        let deadline = Instant::now() + SETTLE;
        loop {
            let left = self.describe(&[topic]).remove(topic).map(|settings| still_wrong(&settings));
            match left {
                Some(left) if left.is_empty() => return Ok(()),
                _ if Instant::now() < deadline => std::thread::sleep(PAUSE),
                left => {
                    let names: Vec<_> = left.iter().flatten().map(|w| w.name).collect();
                    let need = (Operation::AlterConfigs, Resource::Topic(topic.into()));
                    if let Some(denied) = self.not_granted(&[need]).pop() {
                        return Err(Error::Denied(denied));
                    }
                    return Err(Error::Failed {
                        place: format!("topic {topic}"),
                        what: WHAT,
                        why: format!("the brokers did not take {}", names.join(", ")),
                    });
                }
            }
        }
    }

    /// Waits until a change is to be seen, so that whatever is run next sees it.
    fn settle(&self, topic: &str, partitions: u32) -> Result<(), Error> {
        let deadline = Instant::now() + SETTLE;
        while self.partitions(topic)?.is_none_or(|count| count < partitions) {
            if Instant::now() > deadline {
                tracing::warn!(topic, partitions, "the change is not to be seen yet");
                break;
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn failed(&self, topic: &str, operation: Operation, what: &'static str, error: &KafkaError) -> Error {
        if let Some(denied) = self.lookup.denied(error, operation, Resource::Topic(topic.into())) {
            return denied;
        }
        let why = match error {
            KafkaError::AdminOp(RDKafkaErrorCode::InvalidReplicationFactor) => {
                "there are fewer brokers than replicas asked for (--replication-factor)".into()
            }
            KafkaError::AdminOp(RDKafkaErrorCode::OperationTimedOut) => {
                return self.lookup.unreachable(error);
            }
            KafkaError::AdminOp(code) => code.to_string(),
            other => other.to_string(),
        };
        Error::Failed { place: format!("topic {topic}"), what, why }
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST)).operation_timeout(Some(SETTLE))
}

/// The one result of a request about one topic.
fn outcome(result: KafkaResult<Vec<TopicResult>>) -> KafkaResult<()> {
    match result?.into_iter().next() {
        Some(Err((_, code))) => Err(KafkaError::AdminOp(code)),
        Some(Ok(_)) | None => Ok(()),
    }
}
