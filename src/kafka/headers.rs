//! The headers of a record, read without the panic that rdkafka's own access has on a name that is
//! not UTF-8: anyone can send such a record.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::ptr;

use rdkafka::bindings::{
    rd_kafka_header_cnt, rd_kafka_header_get_all, rd_kafka_message_headers, rd_kafka_resp_err_t,
};
use rdkafka::message::BorrowedMessage;

use super::Header;

const OK: rd_kafka_resp_err_t = rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;

/// The headers in order. A name that is not UTF-8 has its bad bytes replaced.
pub(super) fn of(message: &BorrowedMessage<'_>) -> Vec<Header> {
    let mut headers = ptr::null_mut();
    // SAFETY: the message is alive for the call and its headers live as long as it does; librdkafka
    // writes the pointer only where it returns no error.
    let found = unsafe { rd_kafka_message_headers(message.ptr(), &mut headers) };
    if found != OK || headers.is_null() {
        return Vec::new();
    }
    // SAFETY: the list was just returned for a message that is still borrowed.
    let count = unsafe { rd_kafka_header_cnt(headers) };
    let mut owned = Vec::with_capacity(count);
    for index in 0..count {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: as above; the three are written where no error is returned.
        let got = unsafe { rd_kafka_header_get_all(headers, index, &mut name, &mut value, &mut size) };
        if got != OK || name.is_null() {
            continue;
        }
        // SAFETY: librdkafka ends every name with a zero byte.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
        let value = (!value.is_null()).then(|| {
            // SAFETY: a value that is not null has `size` bytes, owned by the message.
            unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size) }.to_vec()
        });
        owned.push((name, value));
    }
    owned
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rdkafka::ClientConfig;
    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::error::KafkaResult;
    use rdkafka::message::{Header as Borrowed, OwnedHeaders};
    use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
    use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

    use crate::config::Topics;
    use crate::kafka::embedded::Embedded;

    #[test]
    fn every_header_is_read_a_null_and_an_empty_one_too() -> KafkaResult<()> {
        let broker = Embedded::start(&Topics::default(), 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", broker.bootstrap_servers()).set("group.id", "test");
        let producer: BaseProducer = config.create()?;
        let headers = OwnedHeaders::new()
            .insert(Borrowed { key: "a", value: Some("1") })
            .insert(Borrowed { key: "ü", value: None::<&str> })
            .insert(Borrowed { key: "a", value: Some("") });
        let record = BaseRecord::<str, str>::to("agent.turns").payload("x").headers(headers);
        producer.send(record).map_err(|(error, _)| error)?;
        producer.flush(Duration::from_secs(5))?;

        let consumer: BaseConsumer = config.create()?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("agent.turns", 0, Offset::Beginning)?;
        consumer.assign(&list)?;
        let message = consumer.poll(Duration::from_secs(5)).unwrap()?;
        let expected: Vec<super::Header> =
            vec![("a".into(), Some(b"1".into())), ("ü".into(), None), ("a".into(), Some(b"".into()))];
        assert_eq!(super::of(&message), expected);
        Ok(())
    }
}
