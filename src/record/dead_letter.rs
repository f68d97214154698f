//! The headers of a dead letter. Key, value and the original headers stay as they were received, unless the
//! dead-letter topic does not take a record of that size: then the value is left out, and if that is not enough
//! the key and the original headers too.

/// The code: why the record cannot be run.
pub const CODE: &str = "turnmill.error.code";
/// The text of it, for the operator.
pub const MESSAGE: &str = "turnmill.error.message";
/// The topic that the record came from.
pub const TOPIC: &str = "turnmill.original.topic";
/// Its partition, in decimal.
pub const PARTITION: &str = "turnmill.original.partition";
/// Its offset, in decimal.
pub const OFFSET: &str = "turnmill.original.offset";
/// Its timestamp in milliseconds since 1970 UTC, in decimal; absent where it had none.
pub const TIMESTAMP: &str = "turnmill.original.timestamp";
/// The SHA-256 of its value, hex; only where the value is too large for the dead-letter topic and was
/// left out.
pub const VALUE_SHA256: &str = "turnmill.original.value.sha256";
/// The size of its value in bytes, in decimal; goes with [`VALUE_SHA256`].
pub const VALUE_SIZE: &str = "turnmill.original.value.size";
