//! Tools that are made at run time: a [`Spec`] and a closure.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Output, Spec, Tool, ToolContext, ToolError, macro_support};

type Call = dyn Fn(&ToolContext, Value) -> futures_util::future::BoxFuture<'static, Result<Output, ToolError>>
    + Send
    + Sync;

/// A tool that was made at run time, by [`Spec::tool`] or [`Spec::blocking_tool`].
pub struct FunctionTool {
    spec: Spec,
    call: Arc<Call>,
}

impl Spec {
    /// The tool that runs this function. Its arguments are a `serde_json::Value`, or any type that they can be read
    /// into; what holds against the schema and not against the type is `invalid_arguments`.
    ///
    /// ```
    /// use serde::Deserialize;
    /// use serde_json::json;
    /// use turnmill::tool::{Spec, ToolError};
    ///
    /// #[derive(Deserialize)]
    /// struct Greeting {
    ///     name: String,
    /// }
    ///
    /// let schema = json!({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]});
    /// let tool = Spec::new("greet", "Greet somebody.", schema).read_only().tool(
    ///     |ctx, greeting: Greeting| async move { Ok::<_, ToolError>(format!("hello, {}", greeting.name)) },
    /// );
    /// turnmill::App::new().tool(tool);
    /// ```
    pub fn tool<A, T, E, F>(self, run: impl Fn(ToolContext, A) -> F + Send + Sync + 'static) -> FunctionTool
    where
        A: DeserializeOwned + Send,
        T: Serialize,
        E: Into<ToolError>,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let call =
            move |context: &ToolContext, arguments: Value| -> futures_util::future::BoxFuture<'static, _> {
                match macro_support::arguments(arguments) {
                    Ok(arguments) => {
                        let running = run(context.clone(), arguments);
                        Box::pin(async move { Output::take(running.await.map_err(Into::into)?) })
                    }
                    Err(error) => Box::pin(std::future::ready(Err(error))),
                }
            };
        FunctionTool { spec: self, call: Arc::new(call) }
    }

    /// The tool that runs this function on a blocking thread; else like [`Spec::tool`].
    pub fn blocking_tool<A, T, E>(
        mut self,
        run: impl Fn(ToolContext, A) -> Result<T, E> + Send + Sync + 'static,
    ) -> FunctionTool
    where
        A: DeserializeOwned + Send + 'static,
        T: Serialize,
        E: Into<ToolError>,
    {
        self.blocking = true;
        let run = Arc::new(run);
        let call = move |context: &ToolContext,
                         arguments: Value|
              -> futures_util::future::BoxFuture<'static, _> {
            let (run, context) = (Arc::clone(&run), context.clone());
            Box::pin(async move {
                let arguments = macro_support::arguments::<A>(arguments)?;
                macro_support::blocking(move || Output::take(run(context, arguments).map_err(Into::into)?))
                    .await
            })
        };
        FunctionTool { spec: self, call: Arc::new(call) }
    }
}

#[async_trait]
impl Tool for FunctionTool {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }

    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError> {
        (self.call)(context, arguments).await
    }
}
