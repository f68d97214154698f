//! What a step of an agent's own does to the world.

use serde::{Deserialize, Serialize};

/// What a step does to the world (specification P, "Branches").
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEffect {
    /// It may change something.
    #[default]
    Write,
    /// It only reads.
    Read,
    /// It does not reach out of the process; its result is recorded because it may differ.
    Pure,
}
