//! What every tool must do, whatever it is made of: each test runs once for each kind.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | the tests |
//! | `kinds` | the same tools as functions under `#[tool]`, as closures made at run time, and as HTTP endpoints |

mod kinds;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use turnmill::tool::{
    Decimal, Deps, Effect, Environment, Execution, Registered, Registry, Retry, RetryWait, ToolContext,
    UnknownOutcome, execute,
};
use turnmill::turn::{ExternalIoMode, Failure, Position, SessionId, TurnId, code};

use kinds::{Kind, Outside, each_kind};

/// The tools of a kind, and the outside that hears of their calls.
struct World {
    registry: Registry,
    outside: Arc<Outside>,
    environment: Environment,
}

impl World {
    async fn new(kind: Kind) -> Self {
        let outside = Arc::new(Outside::default());
        let mut registry = Registry::new();
        for tool in kinds::tools(kind, &outside).await {
            registry.register(tool).unwrap();
        }
        let environment = Environment {
            deps: Deps::new(Arc::clone(&outside)),
            external_io_mode: ExternalIoMode::RuntimeRecorded,
            ..Environment::new()
        };
        Self { registry, outside, environment }
    }

    fn tool(&self, name: &str) -> &Arc<Registered> {
        self.registry.get(name).unwrap()
    }

    fn context(&self, name: &str, call: usize) -> ToolContext {
        let (session, turn) = (SessionId::new("s-1").unwrap(), TurnId::new("t-1").unwrap());
        ToolContext::builder(session, turn, &Position::call(0, call))
            .names("agent", name)
            .timeout(self.tool(name).spec.timeout)
            .cancelled(CancellationToken::new())
            .environment(self.environment.clone())
            .build()
    }

    /// As a worker calls it: the arguments are checked first.
    async fn call_at(&self, call: usize, name: &str, arguments: Value) -> Execution {
        let tool = self.tool(name);
        match tool.check(&arguments) {
            Ok(()) => execute(tool, &self.context(name, call), arguments, 1).await,
            Err(failure) => Execution { result: Err(failure), attempts: 0, cache_hit: false },
        }
    }

    async fn call(&self, name: &str, arguments: Value) -> Execution {
        self.call_at(0, name, arguments).await
    }
}

fn output(execution: &Execution) -> Value {
    serde_json::from_str(execution.result.as_ref().unwrap().as_json()).unwrap()
}

fn failure(execution: &Execution) -> &Failure {
    execution.result.as_ref().unwrap_err()
}

each_kind! {
    async fn declares_itself(kind) {
        let world = World::new(kind).await;
        let names: Vec<&str> = world.registry.iter().map(|tool| tool.spec.name.as_str()).collect();
        assert_eq!(names, kinds::NAMES);
        let greet = &world.tool("greet").spec;
        assert_eq!(greet.description, "Greet somebody.");
        assert_eq!(greet.parameters["type"], "object");
        assert_eq!(greet.parameters["properties"]["name"]["type"], "string");
        assert_eq!(greet.parameters["required"], json!(["name"]));
        assert_eq!(greet.effect, Effect::ReadOnly);
        assert_eq!(greet.timeout, Duration::from_secs(30));
        assert_eq!(greet.retry, Retry::default());
        assert!(!greet.requires_approval.is_gated() && greet.cache_ttl.is_none() && !greet.deterministic);
        let price = &world.tool("price").spec;
        assert_eq!(price.cache_ttl, Some(Duration::from_secs(3600)));
        assert_eq!(price.cost_per_call, "0.002".parse::<Decimal>().unwrap());
        assert!(price.deterministic);
        let book = &world.tool("book").spec;
        assert_eq!(book.effect, Effect::Writes);
        assert_eq!(book.on_unknown_outcome, UnknownOutcome::Report);
        assert!(book.requires_approval.is_gated());
        assert_eq!(book.approval_timeout, Some(Duration::from_secs(60)));
        let wait = RetryWait { initial: Duration::from_millis(1), max_delay: Duration::from_millis(5) };
        assert_eq!(world.tool("flaky").spec.retry, Retry { max: 3, wait: Some(wait) });
    }

    async fn gives_a_text_as_it_is_and_anything_else_as_canonical_json(kind) {
        let world = World::new(kind).await;
        let text = world.call("greet", json!({"name": "Zoë \u{0} 😀 a/b?c#d%20&e=f"})).await;
        assert_eq!(output(&text), "hello, Zoë \u{0} 😀 a/b?c#d%20&e=f");
        let price = world.call("price", json!({"item": "tea"})).await;
        assert_eq!(price.result.unwrap().as_json(), r#"{"cents":9007199254740993,"item":"tea","unit":1.0}"#);
    }

    async fn wrong_arguments_run_nothing(kind) {
        let world = World::new(kind).await;
        for wrong in [json!({}), json!({"name": 7}), json!({"name": "x", "more": 1})] {
            let execution = world.call("greet", wrong.clone()).await;
            assert_eq!(failure(&execution).code, code::INVALID_ARGUMENTS, "{wrong}");
            assert!(failure(&execution).message.starts_with("invalid arguments for greet: "), "{wrong}");
        }
        assert!(world.outside.keys("greet").is_empty());
    }

    async fn passes_the_same_key_on_with_every_attempt(kind) {
        let world = World::new(kind).await;
        let execution = world.call_at(3, "flaky", json!({"fail_times": 2})).await;
        assert_eq!((output(&execution), execution.attempts), (json!("done"), 3));
        assert_eq!(world.outside.keys("flaky"), ["s-1/t-1/m0.c3"; 3]);
    }

    async fn is_tried_again_as_often_as_it_says_and_no_more(kind) {
        let world = World::new(kind).await;
        let execution = world.call("flaky", json!({"fail_times": 9})).await;
        assert_eq!((failure(&execution).code.as_ref(), execution.attempts), (code::TOOL_ERROR, 4));
        let execution = world.call("refuse", json!({})).await;
        assert_eq!((failure(&execution).code.as_ref(), execution.attempts), (code::TOOL_ERROR, 1));
        assert_eq!(world.outside.keys("refuse").len(), 1);
    }

    async fn the_model_does_not_read_what_is_the_operators(kind) {
        let world = World::new(kind).await;
        let execution = world.call("down", json!({})).await;
        let failure = failure(&execution);
        assert_eq!(failure.code, code::TOOL_ERROR);
        assert!(!failure.message.contains("db-3"), "{failure:?}");
        assert!(failure.for_operator().contains("db-3"), "{failure:?}");
    }

    async fn a_result_that_breaks_its_schema_is_an_error(kind) {
        let world = World::new(kind).await;
        for wrong in ["null", "zero"] {
            let execution = world.call("broken", json!({"how": wrong})).await;
            assert_eq!(failure(&execution).code, code::INVALID_RESULT, "{wrong}");
        }
        assert_eq!(output(&world.call("broken", json!({"how": "not at all"})).await), json!({"count": 1}));
    }

    async fn takes_no_longer_than_it_may(kind) {
        let world = World::new(kind).await;
        let execution = world.call("slow", json!({})).await;
        assert_eq!(failure(&execution).code, code::TOOL_TIMEOUT);
        assert_eq!(failure(&execution).message, "tool slow did not answer within 50ms");
        assert_eq!(execution.attempts, 1);
    }

    async fn results_are_kept_by_what_the_arguments_mean(kind) {
        let world = World::new(kind).await;
        let first = world.call_at(0, "price", json!({"item": "tea"})).await;
        let second = world.call_at(1, "price", json!({"currency": "EUR", "item": "tea"})).await;
        assert!(!first.cache_hit && second.cache_hit);
        assert_eq!(output(&first), output(&second));
        assert_eq!(world.outside.keys("price"), ["s-1/t-1/m0.c0"]);
        assert!(!world.call_at(2, "price", json!({"currency": "CHF", "item": "tea"})).await.cache_hit);
    }

    async fn reaches_out_only_where_it_may(kind) {
        let mut world = World::new(kind).await;
        world.environment.external_io_mode = ExternalIoMode::Forbid;
        let execution = world.call("outside", json!({})).await;
        assert_eq!(failure(&execution).code, code::TOOL_FATAL);
        assert!(failure(&execution).message.contains("external I/O mode is `forbid`"), "{execution:?}");
        assert!(world.outside.keys("outside").is_empty());
        world.environment.external_io_mode = ExternalIoMode::RuntimeRecorded;
        assert_eq!(output(&world.call("outside", json!({})).await), "out");
    }
}
