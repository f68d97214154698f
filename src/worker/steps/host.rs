//! What agents and tools see of a turn.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use super::Interrupt;
use super::own::read;
use super::reply::Question;
use super::scope::Scope;
use crate::agent::{Asked, Finished, Host, StepKind, StepRun};
use crate::tool::{Caller, DirectArguments, Environment, Output};
use crate::turn::{Failure, Message, Reply, SessionId, TurnId, code, transcript_hash};

impl Caller for Scope {
    fn again(&self) -> Arc<dyn Caller> {
        Arc::new(Self::new(Arc::clone(&self.frame), self.around.clone()))
    }

    fn call(&self, asked: DirectArguments) -> BoxFuture<'static, Result<Output, Failure>> {
        let (has_id, unsettled) = (asked.id.is_some(), self.is_unsettled());
        let (call, callee) = self.direct(asked);
        let scope = self.clone();
        Box::pin(async move {
            read(scope.step(Box::pin(scope.direct_call(call, callee, has_id, unsettled))).await)
        })
    }
}

impl Host for Scope {
    fn session(&self) -> &SessionId {
        &self.steps().identity.session
    }

    fn turn(&self) -> &TurnId {
        &self.steps().identity.turn
    }

    fn agent(&self) -> &str {
        self.frame.name()
    }

    fn system(&self) -> Option<&str> {
        self.frame.bound.system.as_deref()
    }

    fn input(&self) -> &[Message] {
        &self.frame.input
    }

    fn metadata(&self) -> &BTreeMap<String, String> {
        &self.frame.metadata
    }

    fn environment(&self) -> &Environment {
        &self.steps().shared.environment
    }

    fn is_cancelled(&self) -> bool {
        self.frame.cancelled.is_cancelled()
    }

    fn sub_agent(&self, asked: Asked) -> BoxFuture<'static, Result<String, Failure>> {
        let (has_id, unsettled) = (asked.id.is_some(), self.is_unsettled());
        let (call, callee) = self.direct_agent(&asked);
        let scope = self.clone();
        Box::pin(async move {
            let output =
                read(scope.step(Box::pin(scope.direct_call(call, callee, has_id, unsettled))).await)?;
            output.read().map_err(|error| Failure::new(code::INVALID_RESULT, error.to_string()))
        })
    }

    fn ask(&self, messages: Vec<Message>, tools: bool) -> BoxFuture<'static, Result<Reply, Failure>> {
        let number = self.counters().reply();
        let scope = self.clone();
        Box::pin(async move {
            let tools = if tools { scope.definitions() } else { Vec::new() };
            let input = transcript_hash(&messages);
            let question = Question { number, messages: &messages, tools: &tools, input };
            scope.step(Box::pin(scope.reply(question))).await
        })
    }

    fn run_loop(&self, messages: Vec<Message>) -> BoxFuture<'static, Result<Finished, Failure>> {
        let scope = self.clone();
        Box::pin(async move { scope.step(Box::pin(scope.run_loop(messages))).await })
    }

    fn step<'a>(&self, kind: StepKind, run: StepRun<'a>) -> BoxFuture<'a, Result<Output, Failure>> {
        let (place, unsettled) = (self.place(&kind), self.is_unsettled());
        let scope = self.clone();
        Box::pin(async move { scope.step(Box::pin(scope.own_step(kind, place, unsettled, run))).await })
    }

    fn interrupt(&self, question: String) -> BoxFuture<'static, Result<String, Failure>> {
        let scope = self.clone();
        let question: String = question.chars().take(200).collect();
        let message = format!(
            "agent {:?} asks a person ({question:?}), and a worker cannot wait for one",
            self.frame.name()
        );
        let refused = Interrupt::Turn(Failure::new(code::TOOL_REGISTRATION_ERROR, message));
        Box::pin(async move { scope.step(Box::pin(async { Err(refused) })).await })
    }

    fn now_ms(&self) -> i64 {
        (self.steps().shared.clock)()
    }
}
