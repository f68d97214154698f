//! What the code that [`macro@crate::tool`] writes needs; not part of the public interface.

pub use async_trait::async_trait;
pub use schemars;
pub use serde;
pub use serde_json;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Output, ToolError};

/// What a tool function may return: a trait rather than `Result` itself, so that an alias will do.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "not a `Result`",
    note = "a tool returns `Result<T, E>`, where `T` implements `serde::Serialize` and `schemars::JsonSchema` and `E` \
            is `ToolError` or any error"
)]
pub trait ToolResult {
    /// The schema of a result; none where anything will do.
    fn schema() -> Option<Value>;

    /// The result as a call's outcome.
    ///
    /// # Errors
    /// The tool's own, or the value cannot be written as JSON.
    fn into_output(self) -> Result<Output, ToolError>;
}

impl<T: Returns, E: Failure> ToolResult for Result<T, E> {
    fn schema() -> Option<Value> {
        let settings = schemars::generate::SchemaSettings::draft2020_12()
            .with(|settings| settings.meta_schema = None)
            .for_serialize();
        let mut schema = settings.into_generator().into_root_schema_for::<T>();
        schema.remove("title");
        let schema = schema.to_value();
        (schema != json!(true) && schema != json!({})).then_some(schema)
    }

    fn into_output(self) -> Result<Output, ToolError> {
        Output::take(self.map_err(Into::into)?)
    }
}

/// The value of a tool function, with a better explanation where it is none.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value that a tool can return",
    label = "not both `serde::Serialize` and `schemars::JsonSchema`",
    note = "results are written as JSON and held against the schema of their type: derive both; what has no schema can \
            be returned as a `turnmill::tool::Output` or a `serde_json::Value`"
)]
pub trait Returns: Serialize + schemars::JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + schemars::JsonSchema> Returns for T {}

/// The error of a tool function: `Into<ToolError>`, with a better explanation where it is not.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an error that a tool can return",
    label = "neither `ToolError` nor a `std::error::Error` that is `Send + Sync + 'static`",
    note = "let `?` turn errors into `ToolError`; what is no `std::error::Error`, like a text, becomes one by \
            `.map_err(ToolError::retryable)`"
)]
pub trait Failure: Into<ToolError> {}

#[diagnostic::do_not_recommend]
impl<E: Into<ToolError>> Failure for E {}

/// The JSON Schema of a struct of arguments, as a model is told it: without `$schema` and `title`.
pub fn parameters<T: schemars::JsonSchema>() -> Value {
    let mut schema = schemars::generate::SchemaSettings::draft2020_12()
        .with(|settings| settings.meta_schema = None)
        .into_generator()
        .into_root_schema_for::<T>();
    schema.remove("title");
    // Some providers refuse an object schema without it.
    schema.ensure_object().entry("properties").or_insert_with(|| json!({}));
    schema.to_value()
}

/// The value of a text that the macro has seen to be JSON.
pub fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_default()
}

/// The arguments as the struct that the macro wrote for them.
///
/// # Errors
/// They hold against the schema but not against the Rust types, whose rules can be stricter.
pub fn arguments<T: DeserializeOwned>(arguments: Value) -> Result<T, ToolError> {
    serde_path_to_error::deserialize(arguments).map_err(|e| ToolError::invalid_arguments(e.to_string()))
}

/// Runs a tool that is not async on a blocking thread, inside the caller's span.
///
/// # Errors
/// The tool's own; a panic is passed on.
pub async fn blocking<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, ToolError> + Send + 'static,
) -> Result<T, ToolError> {
    let span = tracing::Span::current();
    match tokio::task::spawn_blocking(move || span.in_scope(run)).await {
        Ok(result) => result,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_) => Err(ToolError::retryable("the worker is shutting down")),
        },
    }
}
