//! The only user of librdkafka.
//!
//! | file | holds |
//! | --- | --- |
//! | `client` | the settings of each kind of client |
//! | `commit` | commits whose outcome is heard of |
//! | `consumer` | the poll thread: intake of turns, rebalance, commits |
//! | `tracker` | which offsets are finished: the watermark |
//! | `producer` | records out, each with its own acknowledgement |
//! | `paced` | two producers: at once, or together |
//! | `status` | status out: handed over and forgotten |
//! | `transactions` | records that become visible together or not at all |
//! | `watchdog` | ends the process when a call does not come back |
//! | `reader` | reading topics without a group |
//! | `scan` | reading one partition between two offsets |
//! | `tail` | reading partitions on, for as long as they are ours |
//! | `stats` | what librdkafka says of itself, as metrics |
//! | `topic_id` | the id of a topic |
//! | `topics` | creating and checking topics |
//! | `lag` | how far partitions are behind |
//! | `error` | what goes wrong with topics and readers |
//! | `access`, `grants` | what is said where the brokers refuse; asking them what they grant |
//! | `headers`, `lookup` | of the readers: headers of records, bounds of partitions |
//! | `openssl` | what becomes of OpenSSL when the process ends |
//! | `embedded` | a broker in this process, for `turnmill dev` |

pub(crate) mod access;
pub(crate) mod client;
mod commit;
pub(crate) mod consumer;
pub(crate) mod embedded;
pub(crate) mod error;
mod grants;
mod headers;
pub(crate) mod lag;
mod lookup;
mod openssl;
pub(crate) mod paced;
pub(crate) mod producer;
pub(crate) mod reader;
pub(crate) mod scan;
mod stats;
pub(crate) mod status;
pub(crate) mod tail;
pub(crate) mod topic_id;
pub(crate) mod topics;
pub(crate) mod tracker;
pub(crate) mod transactions;
mod watchdog;

pub(crate) use rdkafka::ClientConfig;

/// A header of a record: a name and, where it has one, a value.
pub(crate) type Header = (String, Option<Vec<u8>>);
