//! Calls that code makes itself: from an agent, or from inside another tool.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde::Serialize;
use serde_json::Value;

use super::{Output, Registry, Tool, ToolContext, execute};
use crate::turn::{Counters, Failure, Position, code};

/// What runs direct calls: the turn around the code that makes them.
pub(crate) trait Caller: Send + Sync + 'static {
    /// For another attempt of the same code, which makes the same calls at the same positions.
    fn again(&self) -> Arc<dyn Caller>;

    /// The call has its position when this returns.
    fn call(&self, call: DirectArguments) -> BoxFuture<'static, Result<Output, Failure>>;
}

/// What a direct call says.
pub(crate) struct DirectArguments {
    /// What the code is that makes it, where it is a tool.
    pub from: Option<ToolContext>,
    pub name: String,
    /// The tool itself, where the code has it.
    pub tool: Option<Arc<dyn Tool>>,
    pub id: Option<String>,
    /// As JSON, or why they have none.
    pub arguments: Result<String, Failure>,
}

/// A tool that code calls: the name of one, or the tool itself, such as the type that [`macro@crate::tool`] makes.
pub trait Callee {
    /// Its name, and the tool where it is one.
    #[doc(hidden)]
    fn into_callee(self) -> (String, Option<Arc<dyn Tool>>);
}

impl Callee for &str {
    fn into_callee(self) -> (String, Option<Arc<dyn Tool>>) {
        (self.to_owned(), None)
    }
}

impl Callee for String {
    fn into_callee(self) -> (String, Option<Arc<dyn Tool>>) {
        (self, None)
    }
}

impl Callee for &String {
    fn into_callee(self) -> (String, Option<Arc<dyn Tool>>) {
        (self.clone(), None)
    }
}

impl<T: Tool> Callee for T {
    fn into_callee(self) -> (String, Option<Arc<dyn Tool>>) {
        (self.name(), Some(Arc::new(self)))
    }
}

/// A direct call of a tool, begun by [`AgentContext::call`](crate::AgentContext::call) or [`ToolContext::call`]. It takes
/// its position, and begins, when it is awaited or turned into a future.
#[must_use = "the call is made when this is awaited"]
pub struct DirectCall {
    caller: Arc<dyn Caller>,
    asked: DirectArguments,
}

impl DirectCall {
    pub(crate) fn new(
        caller: Arc<dyn Caller>,
        from: Option<ToolContext>,
        callee: impl Callee,
        arguments: impl Serialize,
    ) -> Self {
        let (name, tool) = callee.into_callee();
        let arguments = Output::of(&arguments).map(Output::into_json).map_err(|error| {
            let message = format!("the arguments for {name} cannot be written as JSON: {}", error.message());
            Failure::new(code::INVALID_ARGUMENTS, message)
        });
        Self { caller, asked: DirectArguments { from, name, tool, id: None, arguments } }
    }

    /// The call stands at this id and not at the number of calls of its tool before it, so that it keeps its place, and
    /// its idempotency key, whatever the code calls before it. The same id again is the same call: it returns what was
    /// recorded, and other arguments fail the turn with `replay_input_changed`.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.asked.id = Some(id.into());
        self
    }
}

impl IntoFuture for DirectCall {
    type Output = Result<Output, Failure>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.caller.call(self.asked)
    }
}

/// No turn is around the code: the tools just run (specification P, "Approval").
#[derive(Default)]
pub(super) struct Alone {
    counters: Mutex<Counters>,
}

impl Caller for Alone {
    fn again(&self) -> Arc<dyn Caller> {
        Arc::new(Self::default())
    }

    fn call(&self, call: DirectArguments) -> BoxFuture<'static, Result<Output, Failure>> {
        let DirectArguments { from, name, tool, id, arguments } = call;
        let position = {
            let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
            counters.direct(&name, id.as_deref())
        };
        let context = from.map(|from| from.inside(&name, &position));
        Box::pin(async move {
            let unknown = || {
                let message = format!(
                    "no turn is around this context, so the tool {name:?} is not known by its name: call the tool itself"
                );
                Failure::new(code::UNKNOWN_TOOL, message)
            };
            let (tool, context) = tool.zip(context).ok_or_else(unknown)?;
            let mut registry = Registry::new();
            let unusable = |error| Failure::new(code::TOOL_REGISTRATION_ERROR, format!("{error}"));
            registry.register(tool).map_err(unusable)?;
            let tool = registry.get(&name).ok_or_else(unknown)?;
            let arguments: Value = crate::turn::Arguments::parse(&arguments?)?.to_value()?;
            tool.check(&arguments)?;
            execute(tool, &context, arguments, 1).await.result
        })
    }
}

impl ToolContext {
    /// Calls another tool: by its name, or the tool itself. The call is a step of its own inside this one: it has an
    /// idempotency key, events and a declaration of its own, and a rerun of this call returns what it returned. It takes
    /// part in this call's `timeout`.
    ///
    /// ```
    /// use serde_json::json;
    /// use turnmill::{ToolContext, ToolError};
    ///
    /// /// The rate of a currency.
    /// #[turnmill::tool(read_only)]
    /// async fn rate(currency: String) -> Result<f64, ToolError> {
    ///     Ok(if currency == "EUR" { 1.0 } else { 2.0 })
    /// }
    ///
    /// /// The price of an order.
    /// #[turnmill::tool(read_only)]
    /// async fn price(ctx: &ToolContext, order_id: String) -> Result<f64, ToolError> {
    ///     let rate: f64 = ctx.call(Rate, json!({"currency": "EUR"})).await?.read()?;
    ///     Ok(rate * order_id.len() as f64)
    /// }
    /// ```
    ///
    /// Called outside of any turn, from a context that was built by hand, it runs the tool and records nothing.
    ///
    /// # Errors
    /// The call's: `?` makes a fatal error of a fatal one, and one that is not retried of every other, because a call that
    /// is recorded as failed has failed for this call's next attempt too.
    pub fn call(&self, tool: impl Callee, arguments: impl Serialize) -> DirectCall {
        DirectCall::new(self.caller(), Some(self.clone()), tool, arguments)
    }

    /// The context of a call that this one makes outside of any turn.
    fn inside(&self, tool: &str, position: &Position) -> Self {
        let (session, turn) = (self.session().clone(), self.turn().clone());
        Self::builder(session, turn, &self.at().child(position))
            .names(self.agent(), tool)
            .cancelled(self.cancellation())
            .environment(self.environment().clone())
            .build()
    }
}
