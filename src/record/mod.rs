//! The contracts on the wire: what producers send, what consumers and auditors read.
//!
//! | file | holds |
//! | --- | --- |
//! | `turn` | `Turn`, the input, and how its ids are found |
//! | `event` | `StepEvent`, one record of the journal, and its record key |
//! | `result` | `TurnResult`, what comes out |
//! | `control` | `Control`: what workers are asked for while they run |
//! | `status` | `StatusUpdate`: how a call is getting on |
//! | `dead_letter` | the headers of a dead letter |
//!
//! A reader ignores fields that it does not know; a field's meaning never changes.

mod control;
pub mod dead_letter;
mod event;
mod result;
mod status;
mod turn;

pub use control::Control;
pub use event::{Claim, EventType, Status, StepEvent, TurnStatus};
pub use result::{EventSpan, ResultUsage, TurnResult};
pub use status::{StatusType, StatusUpdate};
pub use turn::{Identity, Input, Turn, Unreadable, read_turn};
