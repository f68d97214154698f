//! Agents in code, through the test kit: what their authors are promised.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | the tools that the agents call, and what the outside has seen |
//! | `calls` | direct calls: positions, ids, failures |
//! | `steps` | steps of an agent's own, and recorded values |
//! | `models` | questions to the model, and the loop |
//! | `nested` | tools that call tools |
//! | `sub_agents` | agents that call agents |
//! | `budgets` | what ends an agent, and what was spent before a crash |
//! | `changed` | code that does not do the same again |
//! | `again` | steps that are dropped and begun again |
//! | `branches` | steps side by side, in an order that is chance |
//! | `ends` | what a step has ended is over |
//! | `programs` | generated programs, and every crash of each |
//! | `crashes` | every crash of agents of every kind |

mod again;
mod branches;
mod budgets;
mod calls;
mod changed;
mod crashes;
mod ends;
mod models;
mod nested;
mod programs;
mod steps;
mod sub_agents;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use turnmill::record::{EventType, StepEvent, Turn, TurnResult, TurnStatus};
use turnmill::testing::{Kit, turn};
use turnmill::{Agent, AgentContext, AgentError, AgentSpec, App, ToolContext, ToolError};

/// The outside: it outlives the workers, and never answers twice the same.
#[derive(Clone, Default)]
pub struct World {
    count: Arc<AtomicU64>,
    noted: Arc<Mutex<Vec<String>>>,
}

impl World {
    pub fn next(&self) -> u64 {
        self.count.fetch_add(1, Ordering::SeqCst)
    }

    pub fn note(&self, what: impl Into<String>) {
        self.noted.lock().unwrap().push(what.into());
    }

    pub fn noted(&self) -> Vec<String> {
        self.noted.lock().unwrap().clone()
    }
}

/// Draw a number that was never drawn before.
#[turnmill::tool(read_only)]
pub async fn draw(ctx: &ToolContext) -> Result<u64, ToolError> {
    Ok(ctx.deps::<World>()?.next())
}

/// Pay an amount.
#[turnmill::tool(writes, cost_per_call = "0.25")]
pub async fn pay(ctx: &ToolContext, cents: u64) -> Result<String, ToolError> {
    tokio::time::sleep(std::time::Duration::from_millis(3)).await;
    ctx.deps::<World>()?.note(format!("{} pays {cents}", ctx.idempotency_key()));
    Ok(format!("paid {cents}"))
}

/// Fail as it is told to.
#[turnmill::tool]
pub async fn fail(kind: String) -> Result<(), ToolError> {
    Err(match kind.as_str() {
        "fatal" => ToolError::fatal("it broke"),
        "poison" => ToolError::poison("it broke"),
        _ => ToolError::permanent("it broke"),
    })
}

/// Pay somebody who must be approved.
#[turnmill::tool(writes, requires_approval)]
pub async fn pay_out() -> Result<(), ToolError> {
    Ok(())
}

/// A program with an agent `a` in code and the tools above; its turn asks `go`.
pub fn app(code: impl Agent) -> App {
    app_with(&World::default(), code)
}

pub fn app_with(world: &World, code: impl Agent) -> App {
    let agent = AgentSpec::new("a", "scripted").system("You help.").tools(["draw", "pay", "fail"]);
    tools(world).agent(agent.code(code))
}

/// The tools above.
pub fn tools(world: &World) -> App {
    App::new().deps(world.clone()).tool(Draw).tool(Pay).tool(Fail).tool(PayOut)
}

pub fn go() -> Turn {
    turn("a", "go", [])
}

/// The result of one turn of this agent.
pub async fn run(code: impl Agent) -> (Kit, TurnResult) {
    let mut kit = Kit::new(app(code));
    let result = kit.run(&go()).await;
    (kit, result)
}

/// What a turn completed with.
#[track_caller]
pub fn output(result: &TurnResult) -> &str {
    assert_eq!(result.status, TurnStatus::Completed, "{result:?}");
    result.output.as_deref().unwrap()
}

/// The code that it failed with.
#[track_caller]
pub fn code(result: &TurnResult) -> &str {
    result.error.as_ref().unwrap_or_else(|| panic!("{result:?}")).code.as_ref()
}

/// Position, type and outcome of each step on the log.
pub fn steps(kit: &Kit) -> Vec<String> {
    let kinds = [EventType::ModelReply, EventType::ToolStart, EventType::ToolResult, EventType::Step];
    let step = |event: &StepEvent| {
        let outcome = match (&event.status, &event.error) {
            (None, _) => "begins".to_owned(),
            (Some(_), None) => "ok".to_owned(),
            (Some(_), Some(error)) => error.code.to_string(),
        };
        format!("{} {outcome}", event.position.as_ref().unwrap())
    };
    kit.events().iter().filter(|event| kinds.contains(&event.kind)).map(step).collect()
}

/// The positions at which tools ran, in their order.
pub fn ran(kit: &Kit) -> Vec<String> {
    kit.runs().into_iter().map(|run| run.position).collect()
}

pub fn cents(cents: u64) -> Value {
    json!({"cents": cents})
}

/// The events at a position.
pub fn at(kit: &Kit, position: &str) -> Vec<StepEvent> {
    let is = |event: &StepEvent| event.position.as_ref().is_some_and(|at| at.as_str() == position);
    kit.events().into_iter().filter(is).collect()
}

pub type Answer = Result<String, AgentError>;

/// Draws a number and pays it.
pub async fn draw_and_pay(ctx: AgentContext) -> Answer {
    let cents: u64 = ctx.call(Draw, json!({})).await?.read()?;
    Ok(ctx.call(Pay, json!({"cents": cents})).await?.read()?)
}
