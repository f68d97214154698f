//! Whether a tool may reach out, and who keeps what comes of it.

use serde::{Deserialize, Serialize};

/// Whether a call may do I/O outside the process, and whether its result is recorded (specification A, "The context of
/// a call").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalIoMode {
    /// It may not: nobody has said that it may.
    #[default]
    Forbid,
    /// It may, and its result is recorded: a worker runs the call.
    RuntimeRecorded,
    /// It may, around the record, because somebody asked for just that.
    LiveUnrecorded,
}

impl ExternalIoMode {
    /// Whether the call may reach out.
    pub fn allows_io(self) -> bool {
        self != Self::Forbid
    }

    /// The mode as it is on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Forbid => "forbid",
            Self::RuntimeRecorded => "runtime_recorded",
            Self::LiveUnrecorded => "live_unrecorded",
        }
    }
}
