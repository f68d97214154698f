#![doc = include_str!("../README.md")]
#![warn(missing_docs)]
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::todo, clippy::indexing_slicing)]
#![deny(unsafe_code)]

// The macro names this crate; inside it, and in its tests and examples, that is this crate itself.
extern crate self as turnmill;

// The documentation's code is compiled, too.
#[cfg(doctest)]
#[doc = include_str!("../docs/tools.md")]
struct Tools;
#[cfg(doctest)]
#[doc = include_str!("../docs/agents.md")]
struct Agents;

mod admin;
pub mod agent;
mod app;
mod cli;
pub mod config;
mod health;
mod http;
mod journal;
mod kafka;
mod metrics;
pub mod model;
pub mod record;
mod retry;
mod telemetry;
pub mod testing;
pub mod tool;
pub mod turn;
mod worker;

pub use agent::{Agent, AgentContext, AgentError};
pub use app::App;
pub use config::AgentSpec;
pub use tool::{ToolContext, ToolError};
pub use turnmill_macros::tool;
