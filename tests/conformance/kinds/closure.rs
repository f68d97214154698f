//! As closures that are made into tools at run time.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use turnmill::tool::{Retry, RetryWait, Spec, Tool, ToolContext, ToolError, UnknownOutcome};

use super::{claimed, down, enter, price};

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Deserialize)]
struct Item {
    item: String,
}

/// The schema of an object with these properties.
fn object(properties: Value, required: Value) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

pub fn tools() -> Vec<Arc<dyn Tool>> {
    let text = || json!({"type": "string"});
    let spec = Spec::new;
    let none = || object(json!({}), json!([]));
    let wait = RetryWait { initial: Duration::from_millis(1), max_delay: Duration::from_millis(5) };
    let count = json!({"type": "object", "properties": {"count": {"type": "integer", "minimum": 1}}});
    vec![
        Arc::new(
            spec("greet", "Greet somebody.", object(json!({"name": text()}), json!(["name"])))
                .read_only()
                .tool(|ctx, Name { name }| async move {
                    enter(&ctx)?;
                    Ok::<_, ToolError>(format!("hello, {name}"))
                }),
        ),
        Arc::new(
            spec(
                "price",
                "Say a price.",
                object(
                    json!({"item": text(), "currency": {"type": "string", "default": "EUR"}}),
                    json!(["item"]),
                ),
            )
            .cache_ttl(Duration::from_secs(3600))
            .cost_per_call("0.002".parse().unwrap())
            .deterministic()
            .tool(|ctx, Item { item }| async move {
                enter(&ctx)?;
                Ok::<_, ToolError>(price(item))
            }),
        ),
        Arc::new(
            spec("book", "Book something.", none())
                .writes()
                .requires_approval(true)
                .approval_timeout(Duration::from_secs(60))
                .on_unknown_outcome(UnknownOutcome::Report)
                .blocking_tool(|ctx, _: Value| enter(&ctx).map(drop)),
        ),
        Arc::new(
            spec(
                "flaky",
                "Fail as often as asked.",
                object(json!({"fail_times": {"type": "integer"}}), json!(["fail_times"])),
            )
            .retry(Retry { max: 3, wait: Some(wait) })
            .tool(|ctx, arguments: Value| async move {
                match enter(&ctx)? as u64 <= arguments["fail_times"].as_u64().unwrap() {
                    true => Err(ToolError::retryable("not yet")),
                    false => Ok("done"),
                }
            }),
        ),
        Arc::new(spec("refuse", "Refuse for good.", none()).retry(3).tool(|ctx, _: Value| async move {
            enter(&ctx)?;
            Err::<(), _>(ToolError::permanent("never"))
        })),
        Arc::new(spec("down", "Be down.", none()).blocking_tool(|ctx: ToolContext, _: Value| {
            enter(&ctx)?;
            Err::<(), _>(down())
        })),
        Arc::new(
            spec("broken", "Return what may be no result.", object(json!({"how": text()}), json!(["how"])))
                .output(count)
                .tool(|ctx, arguments: Value| async move {
                    enter(&ctx)?;
                    Ok::<_, ToolError>(claimed(arguments["how"].as_str().unwrap()))
                }),
        ),
        Arc::new(spec("slow", "Never answer.", none()).timeout(Duration::from_millis(50)).tool(
            |ctx, _: Value| async move {
                enter(&ctx)?;
                std::future::pending::<Result<(), ToolError>>().await
            },
        )),
        Arc::new(spec("outside", "Reach out.", none()).tool(|ctx, _: Value| async move {
            ctx.http()?;
            enter(&ctx)?;
            Ok::<_, ToolError>("out")
        })),
    ]
}
