//! The program against a broker that asks who it is and what it may do: TLS, SASL, ACLs.
//!
//! | file | holds |
//! | --- | --- |
//! | `broker` | the broker of `KAFKA_SECURE=yes scripts/kafka`: its users and their rights |
//! | `roles` | a turn from end to end, by everyone who may do just what he must |
//! | `denied` | what is said, and what becomes of a turn, where one right is missing |
//! | `revoked` | the same where a running worker loses it |
//! | `login` | who is not let in at all |
//!
//! With `KAFKA_BOOTSTRAP_SERVERS` these tests are skipped: they make users and rights on a broker of their own.

mod broker;
mod denied;
mod login;
mod revoked;
mod roles;
#[allow(dead_code, reason = "of tests/broker, which needs more of it")]
#[path = "../broker/support/mod.rs"]
mod support;
