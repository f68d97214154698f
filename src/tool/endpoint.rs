//! Tools that are HTTP endpoints: a call is a request.
//!
//! | file | holds |
//! | --- | --- |
//! | this one | the tool: from arguments to a request |
//! | `url` | the URL, filled with encoded arguments |
//! | `headers` | which headers a tool may send |
//! | `client` | the client, which leaves a host for no other |
//! | `answer` | from a response to a result, or to the two texts of an error |
//! | `text` | a body as text, in the charset that it says it is in |

mod answer;
mod client;
mod headers;
mod text;
mod url;

#[cfg(test)]
mod tests;

pub(crate) use client::unavailable;
pub(crate) use headers::{header, is_value};
pub(crate) use reqwest::Method;
pub(crate) use reqwest::header::HeaderMap;
pub(crate) use url::Template;

use async_trait::async_trait;
use bytesize::ByteSize;
use reqwest::header::CONTENT_TYPE;
use serde_json::Value;

use super::{Output, Spec, Tool, ToolContext, ToolError, http};

/// A tool that is an HTTP endpoint.
pub(crate) struct Endpoint {
    pub spec: Spec,
    pub method: Method,
    pub url: Template,
    /// What the configuration adds; secrets.
    pub headers: HeaderMap,
    /// The largest body that is a result.
    pub max_response: ByteSize,
}

impl Endpoint {
    /// Whether arguments that are not in the URL are sent as the body.
    fn has_body(&self) -> bool {
        [Method::POST, Method::PUT, Method::PATCH].contains(&self.method)
    }
}

#[async_trait]
impl Tool for Endpoint {
    fn spec(&self) -> Spec {
        self.spec.clone()
    }

    async fn call(&self, context: &ToolContext, arguments: Value) -> Result<Output, ToolError> {
        let Value::Object(arguments) = arguments else {
            return Err(ToolError::invalid_arguments("they are not an object"));
        };
        let (url, rest) = self.url.fill(arguments, !self.has_body())?;
        http::check(context.external_io_mode())?;
        let asked = answer::Asked::new(&self.method, &url);
        let mut request =
            client::get(&self.method)?.request(self.method.clone(), url).headers(self.headers.clone());
        request = request.header(headers::IDEMPOTENCY_KEY, context.idempotency_key());
        if self.has_body() {
            request = request.header(CONTENT_TYPE, "application/json").body(Value::Object(rest).to_string());
        }
        match request.send().await {
            Ok(response) => answer::read(&asked, response, self.max_response).await,
            Err(error) => Err(answer::no_answer(&asked, error)),
        }
    }
}
