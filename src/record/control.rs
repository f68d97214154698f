//! `Control`: what workers are asked for while they run.

use serde::{Deserialize, Serialize};

use crate::turn::{SessionId, TurnId};

/// A record of the control topic, which every worker reads whole. Its key is the turn id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Control {
    /// Cancel a turn: one that runs at its next step boundary, one that waits or is still to come when its time
    /// comes. A finished turn stays as it is.
    Cancel {
        /// The turn.
        turn_id: TurnId,
        /// Its session; absent: the turn of this id in any session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session_id: Option<SessionId>,
    },
}
