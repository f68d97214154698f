//! What the `#[tool]` attribute makes of a function.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use turnmill::tool::{
    Decimal, Deps, Effect, ErrorKind, Output, Retry, RetryWait, Tool, ToolContext, ToolError,
};
use turnmill::turn::{ExternalIoMode, Position, SessionId, TurnId};

/// An alias, as many programs have one.
type Result<T, E = ToolError> = std::result::Result<T, E>;

struct Shop {
    currency: &'static str,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Address {
    /// With the house number.
    street: String,
    zip: Option<String>,
}

#[derive(Serialize, JsonSchema)]
struct Quote {
    price: String,
    attempt: u32,
    key: String,
}

/// Quote a delivery.
///
///   - indented
/// The last line.
#[turnmill::tool(retry = 3, timeout = "1m 30s", read_only)]
async fn quote_delivery(
    /// Not part of the schema.
    ctx: &ToolContext,
    /// Where it goes.
    /// Within the country.
    address: Address,
    #[serde(rename = "kg")]
    #[schemars(range(min = 1))]
    mut weight: u32,
    /// Sooner is dearer.
    express: Option<bool>,
    #[serde(default = "one")]
    #[allow(unused_variables)]
    count: u32,
) -> Result<Quote> {
    let shop: &Shop = ctx.deps()?;
    weight *= count;
    let express = if express.unwrap_or_default() { " express" } else { "" };
    Ok(Quote {
        price: format!("{weight} {} to {}{express}", shop.currency, address.street),
        attempt: ctx.attempt(),
        key: ctx.idempotency_key().to_owned(),
    })
}

fn one() -> u32 {
    1
}

/// This one is not for the model.
#[turnmill::tool(name = "Cancel-2", description = "Cancel it.", writes, requires_approval)]
fn cancel(ctx: &ToolContext, number: String) -> Result<u64, std::num::ParseIntError> {
    assert_ne!(number, "13", "unlucky");
    Ok(number.parse::<u64>()? + u64::from(ctx.attempt()))
}

/// Say which thread runs it.
#[turnmill::tool]
fn plain() -> Result<String> {
    Ok(format!("{:?}", std::thread::current().id()))
}

fn context() -> ToolContext {
    let session = SessionId::new("s-1").unwrap();
    let turn = TurnId::new("t-1").unwrap();
    ToolContext::builder(session, turn, &Position::call(0, 1))
        .attempt(2)
        .deps(Deps::new(Shop { currency: "EUR" }))
        .build()
}

async fn call(tool: impl Tool, arguments: Value) -> Result<Value> {
    let tool: Box<dyn Tool> = Box::new(tool);
    let output = tool.call(&context(), arguments).await?;
    Ok(serde_json::from_str(output.as_json()).unwrap())
}

#[test]
fn the_signature_becomes_the_schema() {
    let schema = QuoteDelivery.spec().parameters;
    let expected = json!({
        "type": "object",
        "properties": {
            "address": {
                "description": "Where it goes.\nWithin the country.",
                "$ref": "#/$defs/Address",
            },
            "kg": {"type": "integer", "format": "uint32", "minimum": 1},
            "express": {"description": "Sooner is dearer.", "type": ["boolean", "null"], "default": null},
            "count": {"type": "integer", "format": "uint32", "minimum": 0, "default": 1},
        },
        "required": ["address", "kg"],
        "additionalProperties": false,
        "$defs": {
            "Address": {
                "type": "object",
                "properties": {
                    "street": {"description": "With the house number.", "type": "string"},
                    "zip": {"type": ["string", "null"]},
                },
                "required": ["street"],
                "additionalProperties": false,
            },
        },
    });
    assert_eq!(schema, expected);
    let none = json!({"type": "object", "properties": {}, "additionalProperties": false});
    assert_eq!(Plain.spec().parameters, none);
}

/// Ask the warehouse.
#[turnmill::tool(retry(max = 4, initial = "1s", max_delay = "1m"))]
async fn ask() -> Result<(), ToolError> {
    Ok(())
}

/// Ask it in the usual way.
#[turnmill::tool(retry(max = 2))]
async fn ask_as_usual() -> Result<(), ToolError> {
    Ok(())
}

#[test]
fn a_policy_of_retries_becomes_the_spec() {
    let wait = |initial, max_delay| Some(RetryWait { initial, max_delay });
    let (millis, seconds) = (Duration::from_millis, Duration::from_secs);
    assert_eq!(Ask.spec().retry, Retry { max: 4, wait: wait(seconds(1), seconds(60)) });
    assert_eq!(AskAsUsual.spec().retry, Retry { max: 2, wait: wait(millis(200), seconds(10)) });
}

#[test]
fn the_options_become_the_spec() {
    let spec = QuoteDelivery.spec();
    assert_eq!(spec.name, "quote_delivery");
    assert_eq!(spec.description, "Quote a delivery.\n\n  - indented\nThe last line.");
    assert_eq!(spec.retry, 3.into());
    assert_eq!(spec.timeout, Duration::from_secs(90));
    assert_eq!(spec.effect, Effect::ReadOnly);
    assert!(!spec.requires_approval.is_gated());
    assert!(!spec.blocking);

    let spec = Cancel.spec();
    assert_eq!(spec.name, "Cancel-2");
    assert_eq!(spec.description, "Cancel it.");
    assert_eq!(spec.effect, Effect::Writes);
    assert!(spec.requires_approval.is_gated());
    assert!(spec.blocking);

    let spec = Plain.spec();
    assert_eq!(spec.description, "Say which thread runs it.");
    assert_eq!(spec.retry, Retry::default());
    assert_eq!(spec.timeout, Duration::from_secs(30));
    assert_eq!(spec.effect, Effect::Unmarked);
    assert!(!spec.requires_approval.is_gated());
}

/// Pay some money back.
#[turnmill::tool(
    writes,
    cache_ttl = "1m",
    requires_approval = |arguments| arguments["cents"].as_u64() > Some(10_000),
    approval_timeout = "1h",
    cost_per_call = "0.0020",
    deterministic,
    schema = r#"{"type": "object", "properties": {"cents": {"type": "integer", "maximum": 50000}}}"#,
)]
async fn pay_back(cents: u32) -> Result<Option<Paid>> {
    Ok((cents > 0).then_some(Paid { cents }))
}

#[derive(Debug, Serialize, JsonSchema)]
struct Paid {
    #[schemars(range(min = 1))]
    cents: u32,
}

/// No type says what this takes or gives.
#[turnmill::tool(schema = json!({"type": "object", "required": ["any"]}), requires_approval = always)]
async fn anything(any: Unschemed) -> Result<Output> {
    Output::of(&any.0.len())
}

/// It has no schema.
#[derive(Deserialize)]
struct Unschemed(String);

fn always(_: &Value) -> Result<bool> {
    Err(ToolError::fatal("it cannot say"))
}

#[test]
fn the_options_of_calls_and_results_become_the_spec() {
    let spec = PayBack.spec();
    assert_eq!(spec.cache_ttl, Some(Duration::from_secs(60)));
    assert_eq!(spec.requires_approval.as_str(), "predicate");
    assert!(spec.requires_approval.asks(&json!({"cents": 10_001})));
    assert!(!spec.requires_approval.asks(&json!({"cents": 10_000})));
    assert_eq!(spec.approval_timeout, Some(Duration::from_secs(3600)));
    assert_eq!(spec.cost_per_call.to_string(), "0.0020");
    assert!(spec.deterministic);
    let schema = json!({"type": "object", "properties": {"cents": {"type": "integer", "maximum": 50000}}});
    assert_eq!(spec.parameters, schema);

    let spec = Anything.spec();
    assert_eq!(spec.parameters, json!({"type": "object", "required": ["any"]}));
    assert!(spec.requires_approval.asks(&json!({})), "what cannot say asks");
    assert_eq!(spec.output, None);

    let spec = Plain.spec();
    assert_eq!(spec.cache_ttl, None);
    assert_eq!(spec.approval_timeout, None);
    assert_eq!(spec.cost_per_call, Decimal::ZERO);
    assert!(!spec.deterministic);
}

#[tokio::test]
async fn the_return_type_becomes_the_schema_of_results() {
    let paid = json!({
        "anyOf": [{"$ref": "#/$defs/Paid"}, {"type": "null"}],
        "$defs": {
            "Paid": {
                "type": "object",
                "properties": {"cents": {"type": "integer", "format": "uint32", "minimum": 1}},
                "required": ["cents"],
            },
        },
    });
    assert_eq!(PayBack.spec().output, Some(paid));
    assert_eq!(Plain.spec().output, Some(json!({"type": "string"})));
    assert_eq!(Ask.spec().output, Some(json!({"type": "null"})));
    assert_eq!(call(Anything, json!({"any": "four"})).await, Ok(json!(4)));
}

#[tokio::test]
async fn an_async_tool_gets_context_and_arguments() {
    let arguments = json!({"address": {"street": "Rue 1"}, "kg": 5});
    let expected = json!({"price": "5 EUR to Rue 1", "attempt": 2, "key": "s-1/t-1/m0.c1"});
    assert_eq!(call(QuoteDelivery, arguments).await, Ok(expected));

    let arguments = json!({"address": {"street": "Rue 1"}, "kg": 5, "express": true, "count": 2});
    let result = call(QuoteDelivery, arguments).await.unwrap();
    assert_eq!(result["price"], "10 EUR to Rue 1 express");
}

#[tokio::test]
async fn the_function_itself_stays() {
    let address = Address { street: "Rue 1".into(), zip: None };
    assert_eq!(address.zip, None);
    let quote = quote_delivery(&context(), address, 5, None, 1).await.unwrap();
    assert_eq!(quote.price, "5 EUR to Rue 1");
    assert_eq!(cancel(&context(), "7".into()), Ok(9));
}

#[tokio::test]
async fn arguments_that_the_types_refuse_name_the_place() {
    let arguments = json!({"address": {"street": 1}, "kg": 5});
    let error = call(QuoteDelivery, arguments).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    assert!(error.message().starts_with("address.street: invalid type"), "{}", error.message());

    let error = call(Plain, json!({"much": 1})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArguments);
    assert!(error.message().contains("unknown field `much`"), "{}", error.message());
}

#[tokio::test]
async fn a_tool_that_is_not_async_runs_on_another_thread() {
    assert_eq!(call(Cancel, json!({"number": "7"})).await, Ok(json!(9)));
    let here = plain().unwrap();
    assert_ne!(call(Plain, json!({})).await, Ok(json!(here)));
}

#[tokio::test]
async fn any_error_becomes_a_retryable_one() {
    let error = call(Cancel, json!({"number": "x"})).await.unwrap_err();
    assert_eq!(error, ToolError::retryable("invalid digit found in string"));
}

/// Fail.
#[turnmill::tool]
async fn fail(how: String) -> Result<f64> {
    let number: f64 = how.parse()?;
    if number < 0.0 {
        return Err(ToolError::poison("negative"));
    }
    Ok(number)
}

#[tokio::test]
async fn a_tool_chooses_what_its_error_means() {
    assert_eq!(call(Fail, json!({"how": "-1"})).await, Err(ToolError::poison("negative")));
    let error = call(Fail, json!({"how": "x"})).await.unwrap_err();
    assert_eq!(error, ToolError::retryable("invalid float literal"));
    let error = call(Fail, json!({"how": "NaN"})).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidResult);
}

#[tokio::test]
async fn a_panic_on_the_blocking_thread_is_passed_on() {
    let task = tokio::spawn(call(Cancel, json!({"number": "13"})));
    let panic = task.await.unwrap_err().into_panic();
    let message = panic.downcast_ref::<String>().unwrap();
    assert!(message.contains("unlucky"), "{message}");
}

/// Tools whose names are also names inside the code that is written. Their structs, and some types more,
/// hide what a less careful path in that code would mean.
mod odd {
    pub(super) type Answer = std::result::Result<u32, turnmill::tool::ToolError>;
    #[allow(dead_code)]
    struct Result;
    #[allow(dead_code)]
    struct Tool;

    macro_rules! tools {
        ($($name:ident)*) => {$(
            /// Odd.
            #[turnmill::tool]
            pub(super) async fn $name(
                context: &turnmill::tool::ToolContext,
                arguments: u32,
                r#type: std::option::Option<u32>,
            ) -> Answer {
                std::result::Result::Ok(context.attempt() + arguments + r#type.unwrap_or(10))
            }
        )*};
    }
    tools! { call spec arguments context r#match string option none ok err send vec default tool_error _x_2 }

    /// With parameters that are called like a tool and like what the code is written with.
    #[turnmill::tool]
    pub(super) fn execute(
        _: &turnmill::tool::ToolContext,
        call: u32,
        execute: u32,
        _context: std::option::Option<u32>,
    ) -> Answer {
        std::result::Result::Ok(call + execute + _context.unwrap_or(100))
    }
}

#[tokio::test]
async fn any_name_will_do() {
    macro_rules! check {
        ($($tool:ident $name:literal;)*) => {$(
            assert_eq!(odd::$tool.spec().name, $name);
            assert_eq!(call(odd::$tool, json!({"arguments": 1, "type": 3})).await, Ok(json!(6)));
            assert_eq!(call(odd::$tool, json!({"arguments": 1})).await, Ok(json!(13)));
        )*};
    }
    check! {
        Call "call"; Spec "spec"; Arguments "arguments"; Context "context"; Match "match"; String "string";
        Option "option"; None "none"; Ok "ok"; Err "err"; Send "send"; Vec "vec";
        Default "default"; ToolError "tool_error"; X2 "_x_2";
    }
    let answer = call(odd::Execute, json!({"call": 1, "execute": 20})).await;
    assert_eq!(answer, Ok(json!(121)));
}

#[tokio::test]
async fn a_tool_may_stand_inside_a_function() {
    /// Local.
    #[turnmill::tool]
    async fn local_tool(list: Vec<(u8, std::borrow::Cow<'static, str>)>) -> Result<usize> {
        Ok(list.len())
    }
    assert_eq!(call(LocalTool, json!({"list": [[1, "x"]]})).await, Ok(json!(1)));
}

/// Ask somebody outside.
#[turnmill::tool]
async fn reach_out(ctx: &ToolContext) -> Result<bool> {
    ctx.emit_status("nobody listens");
    ctx.http().map(|_| true)
}

#[tokio::test]
async fn a_call_reaches_out_only_where_somebody_has_said_that_it_may() {
    let context = |mode: Option<ExternalIoMode>| {
        let (session, turn) = (SessionId::new("s").unwrap(), TurnId::new("t").unwrap());
        let context = ToolContext::builder(session, turn, &Position::call(0, 1)).names("a", "reach_out");
        match mode {
            Some(mode) => context.external_io_mode(mode),
            None => context,
        }
        .build()
    };
    for forbidden in [None, Some(ExternalIoMode::Forbid)] {
        let error = ReachOut.call(&context(forbidden), json!({})).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fatal);
        assert_eq!(error.message(), "the call may not reach out: its external I/O mode is `forbid`");
    }
    for allowed in [ExternalIoMode::RuntimeRecorded, ExternalIoMode::LiveUnrecorded] {
        assert_eq!(reach_out(&context(Some(allowed))).await, Ok(true));
    }
    assert_eq!(context(None).position(), "m0.c1");
    assert_eq!(context(None).cause(), Some("m0"));
}
