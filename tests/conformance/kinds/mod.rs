//! The same tools, of each kind. Each tells the outside under which key it was called, before anything else.

mod attribute;
mod closure;
mod endpoint;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use turnmill::tool::{Tool, ToolContext, ToolError};

/// What a tool is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A function under `#[tool]`.
    Attribute,
    /// A closure and a `Spec`.
    Closure,
    /// An HTTP endpoint of the configuration.
    Endpoint,
}

/// Runs each test once for each kind.
macro_rules! each_kind {
    ($(async fn $name:ident($kind:ident) $body:block)*) => {
        mod attribute {
            use super::*;
            $(#[tokio::test] async fn $name() { let $kind = Kind::Attribute; $body })*
        }
        mod closure {
            use super::*;
            $(#[tokio::test] async fn $name() { let $kind = Kind::Closure; $body })*
        }
        mod endpoint {
            use super::*;
            $(#[tokio::test] async fn $name() { let $kind = Kind::Endpoint; $body })*
        }
    };
}
pub(crate) use each_kind;

/// The tools, in the order of their registration.
pub const NAMES: [&str; 9] =
    ["greet", "price", "book", "flaky", "refuse", "down", "broken", "slow", "outside"];

pub async fn tools(kind: Kind, outside: &Arc<Outside>) -> Vec<Arc<dyn Tool>> {
    match kind {
        Kind::Attribute => attribute::tools(),
        Kind::Closure => closure::tools(),
        Kind::Endpoint => endpoint::tools(outside).await,
    }
}

/// What the tools' calls come to.
#[derive(Default)]
pub struct Outside(Mutex<HashMap<String, Vec<String>>>);

impl Outside {
    /// A call came in; says which of its tool's it is, from 1.
    pub fn heard(&self, tool: &str, key: &str) -> usize {
        let mut calls = self.0.lock().unwrap();
        let calls = calls.entry(tool.into()).or_default();
        calls.push(key.into());
        calls.len()
    }

    /// The keys of a tool's calls so far.
    pub fn keys(&self, tool: &str) -> Vec<String> {
        self.0.lock().unwrap().get(tool).cloned().unwrap_or_default()
    }
}

/// A call of a tool that runs in this process.
fn enter(ctx: &ToolContext) -> Result<usize, ToolError> {
    Ok(ctx.deps::<Arc<Outside>>()?.heard(ctx.tool(), ctx.idempotency_key()))
}

fn down() -> ToolError {
    ToolError::retryable("db-3 does not answer").for_model("It is down.")
}

#[derive(Serialize, JsonSchema)]
struct Price {
    unit: f64,
    item: String,
    cents: u64,
}

fn price(item: String) -> Price {
    // More than a double can tell from its neighbours.
    Price { unit: 1.0, item, cents: (1 << 53) + 1 }
}

#[derive(Serialize, JsonSchema)]
struct Count {
    #[schemars(range(min = 1))]
    count: u32,
}

/// It says that it is a count, and need not be one.
#[derive(Serialize)]
#[serde(transparent)]
struct Claimed(Option<Count>);

impl JsonSchema for Claimed {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Claimed".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Count::json_schema(generator)
    }
}

fn claimed(how: &str) -> Claimed {
    Claimed(match how {
        "null" => None,
        "zero" => Some(Count { count: 0 }),
        _ => Some(Count { count: 1 }),
    })
}
