//! What a team's tests see of their agents and tools through the kit.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use turnmill::record::{EventType, Turn, TurnStatus};
use turnmill::testing::{Kit, calls, every_crash, says, turn};
use turnmill::{AgentSpec, App, ToolContext, ToolError};

/// A payment provider that honours the key, or does not.
#[derive(Clone, Default)]
struct Payments {
    paid: Arc<Mutex<HashMap<String, u64>>>,
    forgets_keys: bool,
}

impl Payments {
    fn pay(&self, key: &str, cents: u64) {
        let mut paid = self.paid.lock().unwrap();
        let key = if self.forgets_keys { format!("{key} again {}", paid.len()) } else { key.to_owned() };
        paid.insert(key, cents);
    }

    fn total(&self) -> u64 {
        self.paid.lock().unwrap().values().sum()
    }
}

/// Give money back.
#[turnmill::tool(writes)]
async fn refund(ctx: &ToolContext, cents: u64) -> Result<String, ToolError> {
    let payments: &Payments = ctx.deps()?;
    payments.pay(ctx.idempotency_key(), cents);
    Ok(format!("{cents} cents"))
}

/// Answer at the third try, an hour apart.
#[turnmill::tool(read_only, retry(max = 2, initial = "1h", max_delay = "1h"), timeout = "1h")]
async fn patient(ctx: &ToolContext) -> Result<u32, ToolError> {
    tokio::time::sleep(Duration::from_secs(1800)).await;
    if ctx.attempt() < 3 { Err(ToolError::retryable("not yet")) } else { Ok(ctx.attempt()) }
}

/// Pay somebody.
#[turnmill::tool(writes, requires_approval)]
async fn pay_out() -> Result<(), ToolError> {
    Ok(())
}

fn app(payments: &Payments) -> App {
    let agent =
        AgentSpec::new("support", "scripted").system("You help.").tools(["refund", "patient", "echo"]);
    App::new().deps(payments.clone()).tool(Refund).tool(Patient).agent(agent)
}

fn refunds() -> Turn {
    let both = [("refund", json!({"cents": 100})), ("refund", json!({"cents": 25}))];
    turn("support", "My money!", [calls(both), calls([("echo", json!({"text": "so"}))]), says("Done.")])
}

#[tokio::test(start_paused = true)]
async fn a_turn_runs_as_a_worker_runs_it() {
    let payments = Payments::default();
    let mut kit = Kit::new(app(&payments));
    let result = kit.run(&refunds()).await;
    assert_eq!((result.status, result.output.as_deref()), (TurnStatus::Completed, Some("Done.")));
    assert_eq!((result.usage.model_calls, result.usage.tool_calls), (3, 3));
    assert_eq!(payments.total(), 125);
    let runs = kit.runs();
    assert_eq!((runs[1].tool.as_str(), runs[1].key.as_str()), ("refund", "session/turn/m0.c1"));
    assert_eq!((&runs[1].arguments, runs[1].attempt), (&json!({"cents": 25}), 1));
    assert_eq!(runs[1].result, Some(Ok(json!("25 cents"))));
    // The same record again.
    assert_eq!(kit.run(&refunds()).await, result);
    assert_eq!((kit.runs().len(), kit.results().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_had_begun_when_it_died_runs_again_under_its_key() {
    let payments = Payments::default();
    let mut kit = Kit::new(app(&payments));
    assert!(kit.crash_before(&refunds(), EventType::ToolResult, Some("m0.c1")).await);
    assert!(kit.results().is_empty());
    let result = kit.run(&refunds()).await;
    assert_eq!(result.output.as_deref(), Some("Done."));
    let runs: Vec<_> = kit.runs().into_iter().map(|run| (run.key, run.attempt)).collect();
    let expected = [("m0.c0", 1), ("m0.c1", 1), ("m0.c1", 2), ("m1.c0", 1)]
        .map(|(at, n)| (format!("session/turn/{at}"), n));
    assert_eq!(runs, expected);
    assert_eq!(payments.total(), 125);
    assert!(!kit.crash_before(&refunds(), EventType::ToolResult, None).await, "it has ended");
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_honours_the_key_pays_once_whatever_record_a_worker_dies_before() {
    let last = Mutex::new(Payments::default());
    let (mut crashes, mut lost) = (0, 0);
    let fresh = || {
        let payments = Payments::default();
        *last.lock().unwrap() = payments.clone();
        app(&payments)
    };
    every_crash(fresh, &refunds(), |kit, result| {
        crashes += 1;
        // It ran, and its next run cannot know that.
        lost += kit
            .runs()
            .iter()
            .enumerate()
            .filter(|(at, run)| {
                run.attempt == 1 && kit.runs()[..*at].iter().any(|before| before.key == run.key)
            })
            .count();
        assert_eq!(result.output.as_deref(), Some("Done."));
        assert_eq!(last.lock().unwrap().total(), 125, "{:?}", kit.runs());
    })
    .await;
    // The claim, the start, three replies, three starts, three results, the answer and the end; two deaths for each.
    assert_eq!(crashes, 26);
    assert!(lost > 0, "a run whose start nobody finds");
}

#[tokio::test(start_paused = true)]
#[should_panic = "assertion `left == right` failed: paid twice"]
async fn a_provider_that_forgets_keys_is_found_out() {
    let last = Mutex::new(Payments::default());
    let fresh = || {
        let payments = Payments { forgets_keys: true, ..Payments::default() };
        *last.lock().unwrap() = payments.clone();
        app(&payments)
    };
    every_crash(fresh, &refunds(), |_, _| assert_eq!(last.lock().unwrap().total(), 125, "paid twice")).await;
}

#[tokio::test(start_paused = true)]
async fn hours_of_waits_take_no_time() {
    let began = tokio::time::Instant::now();
    let mut kit = Kit::new(app(&Payments::default()));
    let result = kit.run(&turn("support", "?", [calls([("patient", json!({}))]), says("3")])).await;
    assert_eq!(result.output.as_deref(), Some("3"));
    assert_eq!(kit.runs().last().unwrap().result, Some(Ok(json!(3))));
    // Three half hours of work, and two waits of at least as long, on a clock that stands still otherwise.
    assert!(began.elapsed() >= Duration::from_secs(5 * 1800), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn time_that_stands_still_runs_out_all_the_same() {
    let slow = json!({"text": "too late", "delay_ms": 600_000});
    for (limit, code) in [("seconds", "run_time_limit"), ("deadline_ms", "deadline_exceeded")] {
        let mut late = turn("support", "?", [slow.clone()]);
        let mut kit = Kit::new(app(&Payments::default()));
        if limit == "seconds" {
            late.budget = Some(serde_json::from_value(json!({"seconds": 60})).unwrap());
        } else {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
            late.deadline_ms = Some(i64::try_from(now.as_millis()).unwrap() + 60_000);
        }
        assert_eq!(kit.run(&late).await.error.unwrap().code, code);
    }
}

/// Say what the day's rates are.
#[turnmill::tool(read_only, cache_ttl = "1h", cost_per_call = "0.50")]
async fn rates() -> Result<u32, ToolError> {
    Ok(7)
}

fn dear(price: &str, limit: &str) -> App {
    let agent =
        AgentSpec::new("support", "scripted").tools(["rates", "refund"]).max_cost(limit.parse().unwrap());
    let mut app = App::new().deps(Payments::default()).tool(Refund).agent(agent);
    app = match price {
        "0.50" => app.tool(Rates),
        _ => {
            let schema = json!({"type": "object", "properties": {}, "additionalProperties": false});
            let spec = turnmill::tool::Spec::new("rates", "Say what the day's rates are.", schema);
            app.tool(
                spec.cost_per_call(price.parse().unwrap())
                    .tool(|_, _: Value| async { Ok::<_, ToolError>(7) }),
            )
        }
    };
    app
}

#[tokio::test(start_paused = true)]
async fn what_was_recorded_counts_whatever_limits_prices_and_clocks_say_now() {
    let twice = [("rates", json!({})), ("refund", json!({"cents": 1}))];
    let mut paid = turn("support", "?", [calls(twice), says("7")]);
    paid.budget = Some(serde_json::from_value(json!({"seconds": 60})).unwrap());
    let mut kit = Kit::new(dear("0.50", "0.60"));
    assert!(kit.crash_before(&paid, EventType::TurnOutput, None).await);
    // An hour without a worker, a higher price and a lower limit.
    tokio::time::sleep(Duration::from_secs(3600)).await;
    kit.deploy(dear("0.90", "0.10"));
    let result = kit.run(&paid).await;
    assert_eq!((result.output.as_deref(), result.usage.cost.to_string()), (Some("7"), "0.50".into()));

    // What had begun goes on too; what had not is within today's limits.
    let mut kit = Kit::new(dear("0.50", "0.60"));
    assert!(kit.crash_before(&paid, EventType::ToolResult, Some("m0.c1")).await);
    kit.deploy(dear("0.90", "0.10"));
    assert_eq!(kit.run(&paid).await.status, TurnStatus::Completed);
    let mut kit = Kit::new(dear("0.50", "0.60"));
    assert!(kit.crash_before(&paid, EventType::ToolStart, Some("m0.c0")).await);
    kit.deploy(dear("0.50", "0.10"));
    assert_eq!(kit.run(&paid).await.error.unwrap().code, "cost_limit");
    assert!(kit.runs().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_a_worker_kept_in_memory_dies_with_it() {
    let mut kit = Kit::new(dear("0.50", "9"));
    let asks = turn("support", "?", [calls([("rates", json!({}))]), says("7")]);
    assert!(kit.crash_before(&asks, EventType::ToolResult, Some("m0.c0")).await);
    assert_eq!(kit.run(&asks).await.output.as_deref(), Some("7"));
    assert_eq!(kit.runs().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn turns_without_ids_are_told_apart_by_their_records() {
    let without =
        |text: &str| Turn { turn_id: None, session_id: None, ..turn("support", text, [says(text)]) };
    let mut kit = Kit::new(app(&Payments::default()));
    for text in ["one", "two", "one"] {
        assert_eq!(kit.run(&without(text)).await.output.as_deref(), Some(text));
    }
    assert_eq!(kit.results().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_log_is_the_same_lines_in_every_run() {
    let calls =
        calls([("refund", json!({"cents": 5})), ("nope", json!({})), ("echo", Value::String("{".into()))]);
    let turn = turn("support", "?", [calls, says("ok")]);
    let mut kit = Kit::new(app(&Payments::default()));
    kit.run(&turn).await;
    let expected = "turn/ turn:start attempt 1
turn/m0 model:reply
turn/m0.c0 tool:start refund attempt 1 {\"cents\":5}
turn/m0.c1 tool:result nope \"{}\" unknown_tool: unknown tool 'nope'; available: refund, patient, echo
turn/m0.c2 tool:result echo \"{\" invalid_arguments: invalid arguments: EOF while parsing an object at line 1 column 1
turn/m0.c0 tool:result refund attempts 1 {\"cents\":5} \"5 cents\"
turn/m1 model:reply
turn/ turn:output \"ok\"
turn/ turn:end
";
    assert_eq!(kit.golden(), expected);
}

#[tokio::test(start_paused = true)]
#[should_panic = "agent \"support\" is offered the tool \"pay_out\""]
async fn what_a_worker_refuses_a_kit_refuses() {
    Kit::new(App::new().tool(PayOut).agent(AgentSpec::new("support", "scripted").tools(["pay_out"])));
}

#[tokio::test(start_paused = true)]
#[should_panic = "turn turn of session session has no result; the dead letters are [\"turn_id_reused\"]"]
async fn another_turn_under_the_same_id_has_no_result() {
    let mut kit = Kit::new(app(&Payments::default()));
    assert_eq!(kit.run(&refunds()).await.status, TurnStatus::Completed);
    kit.run(&turn("support", "Something else.", [says("No.")])).await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_not_there_fails_the_turn_as_it_does_in_a_worker() {
    let mut kit = Kit::new(app(&Payments::default()));
    let result = kit.run(&turn("nobody", "?", [says("No.")])).await;
    assert_eq!(result.error.unwrap().code, "unknown_agent");
    assert_eq!(kit.dead_letters(), ["unknown_agent"]);
}
