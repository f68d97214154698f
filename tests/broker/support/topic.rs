//! Topics, read and written without the code under test.

use std::ffi::CStr;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::bindings::{
    RD_KAFKA_MSG_F_COPY, rd_kafka_produceva, rd_kafka_vtype_t as Field, rd_kafka_vu_s__bindgen_ty_1,
    rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1, rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2, rd_kafka_vu_t,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _, ThreadedProducer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::until;

/// The fields of `[topics]`.
pub const NAMES: &[&str] = &["turns", "events", "results", "dead_letters", "status", "control"];

const TIMEOUT: Duration = Duration::from_secs(30);

/// A record to send; by its key where there is no partition.
#[derive(Default, Clone, Copy)]
pub struct Sent<'a> {
    pub partition: Option<i32>,
    pub key: Option<&'a [u8]>,
    pub value: Option<&'a [u8]>,
    pub headers: &'a [(&'a str, &'a str)],
    /// Its timestamp, where it is not that of now, in milliseconds since 1970 UTC.
    pub timestamp: Option<i64>,
}

/// The brokers.
pub struct Cluster {
    config: ClientConfig,
    producer: BaseProducer,
}

impl Cluster {
    pub(super) fn new(config: ClientConfig) -> Self {
        // Java's partitioner; and records as large as the broker takes.
        let mut producer = config.clone();
        producer.set("partitioner", "murmur2_random").set("message.max.bytes", "10000000");
        Self { config, producer: producer.create().unwrap() }
    }

    fn consumer(&self, group: &str) -> BaseConsumer {
        let mut config = self.config.clone();
        config.set("group.id", group).set("enable.auto.commit", "false").set("fetch.wait.max.ms", "50");
        config.set("isolation.level", "read_committed").set("enable.partition.eof", "true").create().unwrap()
    }

    pub fn produce(&self, topic: &str, record: Sent<'_>) {
        let mut base = BaseRecord::<[u8], [u8]>::to(topic);
        base.partition = record.partition;
        base.timestamp = record.timestamp;
        base.key = record.key;
        base.payload = record.value;
        base.headers = Some((record.headers.iter()).fold(OwnedHeaders::new(), |headers, (key, value)| {
            headers.insert(Header { key, value: Some(*value) })
        }));
        self.producer.send(base).map_err(|(error, _)| error).unwrap();
    }

    /// Sends a record with a header whose name may be any bytes, as no safe call does.
    pub fn produce_with_header(&self, topic: &CStr, name: &CStr, value: &[u8]) {
        let field = |vtype, fill: &dyn Fn(&mut rd_kafka_vu_s__bindgen_ty_1)| {
            let mut u = rd_kafka_vu_s__bindgen_ty_1 { _pad: [0; 64] };
            fill(&mut u);
            rd_kafka_vu_t { vtype, u }
        };
        let (ptr, size) = (value.as_ptr().cast_mut().cast(), value.len());
        let header = rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2 { name: name.as_ptr(), val: ptr, size: 1 };
        let record = [
            field(Field::RD_KAFKA_VTYPE_TOPIC, &|u| u.cstr = topic.as_ptr()),
            field(Field::RD_KAFKA_VTYPE_HEADER, &|u| u.header = header),
            field(Field::RD_KAFKA_VTYPE_VALUE, &|u| {
                u.mem = rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_1 { ptr, size }
            }),
            field(Field::RD_KAFKA_VTYPE_MSGFLAGS, &|u| u.i = RD_KAFKA_MSG_F_COPY),
        ];
        // SAFETY: the client is alive, and all that the record points to outlives the call, which copies it.
        let refused =
            unsafe { rd_kafka_produceva(self.producer.client().native_ptr(), record.as_ptr(), record.len()) };
        assert!(refused.is_null());
        self.flush();
    }

    /// Sends a value in a transaction, which is committed or not.
    pub fn produce_in_transaction(&self, topic: &str, value: &[u8], commit: bool) {
        let mut config = self.config.clone();
        let config = config.set("transactional.id", topic);
        let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
        producer.init_transactions(TIMEOUT).unwrap();
        producer.begin_transaction().unwrap();
        producer
            .send(BaseRecord::<[u8], [u8]>::to(topic).payload(value))
            .map_err(|(error, _)| error)
            .unwrap();
        producer.flush(TIMEOUT).unwrap();
        match commit {
            true => producer.commit_transaction(TIMEOUT).unwrap(),
            false => producer.abort_transaction(TIMEOUT).unwrap(),
        }
    }

    pub fn flush(&self) {
        self.producer.flush(TIMEOUT).unwrap();
    }

    fn partitions(&self, consumer: &BaseConsumer, topic: &str) -> i32 {
        let metadata = consumer.fetch_metadata(Some(topic), TIMEOUT).unwrap();
        i32::try_from(metadata.topics()[0].partitions().len()).unwrap()
    }

    /// The end of each partition.
    pub fn ends(&self, topic: &str) -> Vec<i64> {
        let consumer = self.consumer("it-reader");
        let end = |partition| consumer.fetch_watermarks(topic, partition, TIMEOUT).unwrap().1;
        (0..self.partitions(&consumer, topic)).map(end).collect()
    }

    /// What a group has committed; 0 where it has not, since nothing is where nothing was sent.
    pub fn committed(&self, group: &str, topic: &str) -> Vec<i64> {
        let consumer = self.consumer(group);
        let mut list = TopicPartitionList::new();
        list.add_partition_range(topic, 0, self.partitions(&consumer, topic) - 1);
        let committed = consumer.committed_offsets(list, TIMEOUT).unwrap();
        let offset = |offset| if let Offset::Offset(offset) = offset { offset } else { 0 };
        committed.elements().iter().map(|element| offset(element.offset())).collect()
    }

    /// Whether the brokers know this group.
    pub fn has_group(&self, group: &str) -> bool {
        let groups = self.consumer("it-reader").fetch_group_list(None, TIMEOUT).unwrap();
        groups.groups().iter().any(|known| known.name() == group)
    }

    /// Whether a group has members, as the brokers see it.
    pub fn has_members(&self, group: &str) -> bool {
        let groups = self.consumer("it-reader").fetch_group_list(Some(group), TIMEOUT).unwrap();
        groups.groups().iter().any(|known| known.name() == group && !known.members().is_empty())
    }

    /// Begins to transact under this id, and with it fences whoever does.
    pub fn fence(&self, transactional_id: &str) {
        let mut config = self.config.clone();
        let config = config.set("transactional.id", transactional_id);
        let producer: ThreadedProducer<DefaultProducerContext> = config.create().unwrap();
        producer.init_transactions(TIMEOUT).unwrap();
    }

    /// What a group has committed for a partition: offset and metadata.
    pub fn commit_of(&self, group: &str, topic: &str, partition: i32) -> (i64, String) {
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, partition);
        let committed = self.consumer(group).committed_offsets(list, TIMEOUT).unwrap();
        let element = &committed.elements()[0];
        let Offset::Offset(offset) = element.offset() else { panic!("{:?}", element.offset()) };
        (offset, element.metadata().to_owned())
    }

    /// Moves the offset of a group that has no members, as an admin does.
    pub fn move_offset(&self, group: &str, topic: &str, partition: i32, offset: i64, metadata: &str) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).unwrap();
        list.find_partition(topic, partition).unwrap().set_metadata(metadata);
        self.consumer(group).commit(&list, CommitMode::Sync).unwrap();
    }

    /// Deletes a group that has no members.
    pub fn delete_group(&self, group: &str) {
        let (runtime, admin) = self.admin();
        let deleted = runtime.block_on(admin.delete_groups(&[group], &AdminOptions::new())).unwrap();
        assert_eq!(deleted, [Ok(group.to_owned())]);
    }

    fn admin(&self) -> (Runtime, AdminClient<DefaultClientContext>) {
        (tokio::runtime::Builder::new_current_thread().build().unwrap(), self.config.create().unwrap())
    }

    pub(super) fn delete_topics(&self, names: impl Iterator<Item = String>) {
        let names: Vec<String> = names.collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (runtime, admin) = self.admin();
        // A topic that was never made, or a broker that has gone, is no matter.
        let _ = runtime.block_on(admin.delete_topics(&names, &AdminOptions::new()));
    }

    /// Deletes what a topic of one partition has.
    pub fn delete_records(&self, topic: &str) {
        let (runtime, admin) = self.admin();
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, 0, Offset::Offset(self.ends(topic)[0])).unwrap();
        let deleted = runtime.block_on(admin.delete_records(&list, &AdminOptions::new())).unwrap();
        deleted.elements()[0].error().unwrap();
    }

    /// Deletes a topic, and waits until it is gone.
    pub fn delete_topic(&self, name: &str) {
        self.delete_topics([name.to_owned()].into_iter());
        until(&format!("the end of topic {name}"), || {
            // Of all topics: asked for one, some brokers make it.
            let all = self.consumer("it-reader").fetch_metadata(None, TIMEOUT).unwrap();
            (!all.topics().iter().any(|topic| topic.name() == name)).then_some(())
        });
    }
}

/// A record that was read.
pub struct Record {
    pub partition: i32,
    pub offset: i64,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Vec<u8>)>,
    pub timestamp: Option<i64>,
}

impl Record {
    pub fn json(&self) -> Value {
        serde_json::from_slice(self.value.as_deref().unwrap()).unwrap()
    }

    /// The session and turn that a result or an event is about.
    pub fn turn(&self) -> (String, String) {
        let value = self.json();
        let id = |field: &str| value[field].as_str().unwrap_or_default().to_owned();
        (id("session_id"), id("turn_id"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let (_, value) = self.headers.iter().find(|(other, _)| other == name)?;
        std::str::from_utf8(value).ok()
    }
}

/// Reads all of a topic, from its beginning.
pub struct Reader {
    consumer: BaseConsumer,
    topic: String,
    /// Whether the end that each partition had was read: marks of transactions are no records.
    ended: Vec<bool>,
    pub records: Vec<Record>,
}

impl Reader {
    pub(super) fn open(cluster: &Cluster, topic: &str) -> Self {
        let consumer = cluster.consumer("it-reader");
        let partitions = cluster.partitions(&consumer, topic);
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
        }
        consumer.assign(&list).unwrap();
        let ended = (0..partitions).map(|_| false).collect();
        Self { consumer, topic: topic.into(), ended, records: Vec::new() }
    }

    /// Takes what has come; false: nothing has.
    fn poll(&mut self) -> bool {
        let Some(message) = self.consumer.poll(Duration::from_millis(20)) else {
            return false;
        };
        let message = match message {
            Err(KafkaError::PartitionEOF(partition)) => {
                self.ended[usize::try_from(partition).unwrap()] = true;
                return true;
            }
            message => message.unwrap(),
        };
        let headers = message.headers().map(|headers| {
            headers.iter().map(|h| (h.key.to_owned(), h.value.unwrap_or_default().to_vec())).collect()
        });
        self.records.push(Record {
            partition: message.partition(),
            offset: message.offset(),
            key: message.key().map(<[u8]>::to_vec),
            value: message.payload().map(<[u8]>::to_vec),
            headers: headers.unwrap_or_default(),
            timestamp: message.timestamp().to_millis(),
        });
        true
    }

    /// Reads on until the records so far are enough.
    pub fn until(&mut self, what: &str, enough: impl Fn(&[Record]) -> bool) {
        until(&format!("{what} on topic {}", self.topic), || {
            while self.poll() {}
            enough(&self.records).then_some(())
        });
    }

    /// Reads what there was when this was opened, and maybe more.
    pub(super) fn read_to_end(&mut self) {
        until(&format!("the end of topic {}", self.topic), || {
            while self.poll() {}
            self.ended.iter().all(|ended| *ended).then_some(())
        });
    }
}
