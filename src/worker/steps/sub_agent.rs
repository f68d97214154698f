//! The step of a call of another agent: its own steps stand inside it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use serde::Deserialize;
use serde_json::json;

use super::Interrupt;
use super::activity::{Activity, Signal};
use super::conduct::{conduct, offered};
use super::scope::{Callee, Frame, Scope};
use crate::agent::Asked;
use crate::model::SCRIPT;
use crate::record::{EventType, Status};
use crate::tool::Output;
use crate::turn::{Arguments, Call, Definition, Failure, Message, code};
use crate::worker::bind::BoundAgent;
use crate::worker::driver::{elapsed_ms, millis};
use crate::worker::outbox::short;

/// What another agent is called with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubAgentArguments {
    input: String,
}

impl Scope {
    /// What a direct call of another agent is, at its position; and the agent.
    pub(super) fn direct_agent(&self, asked: &Asked) -> (Call, Option<Callee>) {
        let position = self.counters().direct(&asked.name, asked.id.as_deref());
        let agents = &self.steps().shared.agents;
        let agent = agents.get(&asked.name);
        let arguments = json!({"input": asked.input}).to_string();
        let definition = agent.map(|agent| &*agent.definition);
        let mut call =
            Call::direct(self.at(&position), &asked.name, Ok(arguments), definition, std::iter::empty());
        if agent.is_none() {
            let name: String = asked.name.chars().take(64).collect();
            let failure = Failure::new(code::UNKNOWN_AGENT, format!("this worker has no agent {name:?}"));
            call.plan = crate::turn::CallPlan::Answer(failure);
        }
        (call, agent.cloned().map(Callee::Agent))
    }

    /// Runs the agent that a call calls.
    pub(super) async fn run_agent(
        &self,
        call: &Call,
        agent: &Arc<BoundAgent>,
        arguments: &Arguments,
        attempt: u32,
        pinned: bool,
    ) -> Result<Result<String, Failure>, Interrupt> {
        let input = match serde_json::from_str(&arguments.canonical) {
            Ok(SubAgentArguments { input }) => input,
            Err(error) => {
                let message = format!("invalid arguments for {}: {error}", call.name);
                return self.refuse(call, Failure::new(code::INVALID_ARGUMENTS, message)).await;
            }
        };
        let steps = self.steps();
        // What has begun goes on: its steps are for its end.
        if attempt == 1 && steps.shared.switches.agent(&agent.name).is_some() {
            let message = format!("agent {:?} is turned off", agent.name);
            return self.refuse(call, Failure::new(code::AGENT_DISABLED, message)).await;
        }
        let now = (steps.shared.clock)();
        let began = steps.began_at(&call.position).unwrap_or(now);
        let mut start = self.call_event(EventType::ToolStart, call);
        start.attempt = Some(attempt);
        start.started_at_ms = Some(began);
        self.start(start, pinned).await?;

        let clock = Instant::now();
        let frame = self.frame_of(call, agent, input, began);
        let result = conduct(&frame).await?.map_err(|failure| short(&failure));
        self.count(&call.name, result.is_ok());
        let output = result.as_ref().map_err(Clone::clone).and_then(|text| {
            Output::of(text).map_err(|error| Failure::new(code::INVALID_RESULT, error.message()))
        });
        let mut end = self.call_event(EventType::ToolResult, call);
        end.started_at_ms = Some(began);
        end.attempts = Some(attempt);
        end.usage = self.used_inside(&call.position);
        end.latency_ms = Some(elapsed_ms(clock));
        end.status = Some(if output.is_ok() { Status::Ok } else { Status::Error });
        end.output = output.as_ref().ok().and_then(Output::to_raw);
        end.error = output.as_ref().err().cloned();
        // What it was made from is on the log before it.
        steps.writer.settle_content().await?;
        self.end(end, output.map(Output::into_json), &format!("agent {}", call.name)).await
    }

    /// The agent that is called, which runs inside the call.
    fn frame_of(&self, call: &Call, agent: &Arc<BoundAgent>, input: String, began: i64) -> Arc<Frame> {
        let (steps, caller) = (self.steps(), &self.frame);
        let limit = agent.max_run_time.map(|most| {
            let message = format!(
                "agent {:?} has run for {}, which is as long as it may",
                agent.name,
                humantime::format_duration(most)
            );
            (began.saturating_add(millis(most)), Failure::new(code::RUN_TIME_LIMIT, message))
        });
        let account = {
            let mut ledger = steps.ledger();
            let outer = self.account(&mut ledger);
            let account = ledger.open(outer, &call.position);
            ledger.limit(account, agent.limits, format!("agent {:?}", agent.name));
            account
        };
        Arc::new(Frame {
            steps: Arc::clone(steps),
            bound: Arc::clone(agent),
            tools: offered(agent.tools.clone(), steps.shared.sub_agents(agent)),
            input: vec![Message::User { content: input }],
            metadata: metadata_of(&caller.metadata),
            position: Some(call.position.clone()),
            limit,
            account,
            again: self.keeps() || call.position.has_id(),
            strayed: AtomicBool::new(false),
            depth: self.depth() + 1,
            caller: Some(Arc::clone(caller)),
            activity: Activity::new(Some(Arc::clone(&caller.activity))),
            closed: self.closed().child_token(),
            failed: Signal::default(),
            cancelled: caller.cancelled.child_token(),
        })
    }
}

/// What is asked of it, as a call says it.
pub(in crate::worker) fn definition(name: &str, description: Option<&str>) -> Definition {
    let own = format!("Hand a task to the agent {name}.");
    let parameters = json!({
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The task, with everything that is needed for it."}},
        "required": ["input"],
        "additionalProperties": false,
    });
    Definition::new(name, description.unwrap_or(&own), parameters)
}

/// The turn's script is that of its own agent.
fn metadata_of(caller: &Arc<BTreeMap<String, String>>) -> Arc<BTreeMap<String, String>> {
    match caller.contains_key(SCRIPT) {
        false => Arc::clone(caller),
        true => {
            let rest = caller.iter().filter(|(name, _)| *name != SCRIPT);
            Arc::new(rest.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
    }
}
