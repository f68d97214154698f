//! Tests of a team's agents and tools, without a broker.
//!
//! [`Kit`] runs turns as a worker does: the same driver, the same journal, on a log in memory. A worker can be made to die
//! before any record of the log, and the next one goes on. Under `#[tokio::test(start_paused = true)]` no time passes in
//! timeouts, retries, sleeps, deadlines and budgets of seconds.
//!
//! Not here: what only `turnmill.toml` says (agents and HTTP tools of it are not read), other partitions and sessions side
//! by side, results exactly once, drains and cancels, and status, which goes nowhere. `ToolContext::http` does reach out. A
//! blocking tool, and a task that a tool has spawned, live on when their worker dies.
//!
//! ```
//! use serde_json::json;
//! use turnmill::testing::{Kit, calls, every_crash, says, turn};
//! use turnmill::{AgentSpec, App, ToolContext, ToolError};
//!
//! /// Give the money for an order back.
//! #[turnmill::tool(writes)]
//! async fn refund(ctx: &ToolContext, order_id: String) -> Result<String, ToolError> {
//!     Ok(format!("paid back for {order_id} under {}", ctx.idempotency_key()))
//! }
//!
//! fn app() -> App {
//!     App::new().tool(Refund).agent(AgentSpec::new("support", "scripted").tools(["refund"]))
//! }
//!
//! # #[tokio::main(flavor = "current_thread", start_paused = true)]
//! # async fn main() {
//! let turn = turn("support", "I want my money back.", [calls([("refund", json!({"order_id": "A-7"}))]), says("Done.")]);
//! let mut kit = Kit::new(app());
//! let result = kit.run(&turn).await;
//! assert_eq!(result.output.as_deref(), Some("Done."));
//! assert_eq!(kit.runs()[0].key, "session/turn/m0.c0");
//!
//! // Whatever record a worker dies before, the refund has one key, and the turn ends as it did.
//! every_crash(app, &turn, |kit, result| {
//!     assert_eq!(result.output.as_deref(), Some("Done."));
//!     assert!(kit.runs().iter().all(|run| run.key == "session/turn/m0.c0"));
//! })
//! .await;
//! # }
//! ```
//!
//! | file | holds |
//! | --- | --- |
//! | this one | turns, and what a model says in them |
//! | `kit` | `Kit`: workers that run them, and die; `every_crash` |
//! | `spy` | what is noted of each run of a tool |
//! | `dying` | a log whose worker dies |

mod dying;
mod kit;
mod spy;

pub use kit::{Kit, every_crash};
pub use spy::Run;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::record::{Input, Turn};
use crate::turn::{SessionId, TurnId};

/// A turn `turn` of the session `session`, whose model is `scripted` and says this. Every field of it can be set.
///
/// # Panics
/// Never: its ids are well-formed.
pub fn turn(agent: &str, input: &str, replies: impl IntoIterator<Item = Value>) -> Turn {
    let replies: Vec<Value> = replies.into_iter().collect();
    Turn {
        turn_id: TurnId::new("turn").ok(),
        session_id: SessionId::new("session").ok(),
        agent: agent.into(),
        input: Input::Text(input.into()),
        tools: None,
        deadline_ms: None,
        budget: None,
        metadata: BTreeMap::from([("script".to_owned(), json!({"replies": replies}).to_string())]),
    }
}

/// A reply that calls tools. A text in place of the arguments is what the model wrote, as malformed as one likes.
pub fn calls<'a>(calls: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    let call = |(name, arguments)| json!({"name": name, "arguments": arguments});
    json!({"calls": calls.into_iter().map(call).collect::<Vec<_>>()})
}

/// The last reply. Other fields of a scripted reply, such as `usage`, can be set on it.
pub fn says(text: &str) -> Value {
    json!({"text": text})
}
