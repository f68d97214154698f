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
    use std::ffi::{CStr, c_void};
    use std::time::Duration;

    use rdkafka::ClientConfig;
    use rdkafka::bindings::{
        rd_kafka_produceva, rd_kafka_vtype_t, rd_kafka_vu_s__bindgen_ty_1,
        rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2, rd_kafka_vu_t,
    };
    use rdkafka::consumer::{BaseConsumer, Consumer as _};
    use rdkafka::error::KafkaResult;
    use rdkafka::producer::{BaseProducer, Producer as _};
    use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

    use crate::config::Topics;
    use crate::kafka::embedded::Embedded;

    /// A header as no safe call would write it.
    fn header(name: &CStr, value: Option<&[u8]>) -> rd_kafka_vu_t {
        let mut u = rd_kafka_vu_s__bindgen_ty_1 { _pad: [0; 64] };
        u.header = rd_kafka_vu_s__bindgen_ty_1__bindgen_ty_2 {
            name: name.as_ptr(),
            val: value.map_or(std::ptr::null(), |value| value.as_ptr().cast::<c_void>()),
            size: value.map_or(0, |value| value.len().cast_signed()),
        };
        rd_kafka_vu_t { vtype: rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADER, u }
    }

    #[test]
    fn every_header_is_read_whatever_its_bytes() -> KafkaResult<()> {
        let broker = Embedded::start(&Topics::default(), 1).unwrap();
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", broker.bootstrap_servers()).set("group.id", "test");
        let producer: BaseProducer = config.create()?;
        let mut topic = rd_kafka_vu_s__bindgen_ty_1 { _pad: [0; 64] };
        topic.cstr = c"agent.turns".as_ptr();
        let record = [
            rd_kafka_vu_t { vtype: rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC, u: topic },
            header(c"a", Some(b"1")),
            header(c"\xff\xfe", Some(b"2")),
            header(c"a", None),
            header(c"a", Some(b"")),
        ];
        // SAFETY: the client is alive and everything that the record points to outlives the call, which
        // copies it.
        let refused =
            unsafe { rd_kafka_produceva(producer.client().native_ptr(), record.as_ptr(), record.len()) };
        assert!(refused.is_null());
        producer.flush(Duration::from_secs(5))?;

        let consumer: BaseConsumer = config.create()?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset("agent.turns", 0, Offset::Beginning)?;
        consumer.assign(&list)?;
        let message = consumer.poll(Duration::from_secs(5)).unwrap()?;
        let value = |value: &[u8]| Some(value.to_vec());
        let expected: Vec<super::Header> = vec![
            ("a".into(), value(b"1")),
            ("\u{fffd}\u{fffd}".into(), value(b"2")),
            ("a".into(), None),
            ("a".into(), value(b"")),
        ];
        assert_eq!(super::of(&message), expected);
        Ok(())
    }
}
