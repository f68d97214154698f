//! Where a provider is, and how it is spoken to: what all its models share.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use serde::Deserialize;

use super::draft::Reader;
use super::gate::Gate;
use super::{Asking, anthropic, openai};
use crate::model::Request;

/// The shape of a provider's requests and streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Api {
    /// Anthropic's Messages.
    Anthropic,
    /// OpenAI's Chat Completions, and every server that follows them.
    OpenAi,
}

impl Api {
    /// Where it is served by who made it.
    pub(crate) fn base_url(self) -> &'static str {
        match self {
            Self::Anthropic => "https://api.anthropic.com/v1",
            Self::OpenAi => "https://api.openai.com/v1",
        }
    }

    /// Below the base URL.
    fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "messages",
            Self::OpenAi => "chat/completions",
        }
    }

    /// The header of a response that names it where somebody asks its provider about it.
    pub(super) fn request_id(self) -> &'static str {
        match self {
            Self::Anthropic => "request-id",
            Self::OpenAi => "x-request-id",
        }
    }

    pub(super) fn body(self, asking: &Asking<'_>, request: &Request<'_>) -> serde_json::Result<Vec<u8>> {
        match self {
            Self::Anthropic => anthropic::body(asking, request),
            Self::OpenAi => openai::body(asking, request),
        }
    }

    pub(super) fn reader(self, provider: &str) -> Box<dyn Reader> {
        match self {
            Self::Anthropic => Box::new(anthropic::Events::new(provider)),
            Self::OpenAi => Box::new(openai::Chunks::new(provider)),
        }
    }
}

/// The fields of a request that are set by something else than an agent's `model_options`.
pub(crate) const RESERVED: &[&str] =
    &["model", "messages", "system", "tools", "stream", "temperature", "max_tokens", "n"];

/// What is needed to reach a provider.
pub(crate) struct Settings<'a> {
    pub name: &'a str,
    pub api: Api,
    pub base_url: &'a str,
    pub api_key: Option<&'a str>,
    pub headers: HeaderMap,
    pub max_retries: u32,
    pub max_retry_after: Duration,
    pub idle_timeout: Duration,
}

/// A provider that can be asked.
pub(crate) struct Endpoint {
    pub(super) name: String,
    pub(super) api: Api,
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    /// What no text may have.
    secrets: Vec<String>,
    pub(super) client: Client,
    pub(super) gate: Gate,
    pub(super) max_retries: u32,
    pub(super) max_retry_after: Duration,
    pub(super) idle_timeout: Duration,
}

impl Endpoint {
    /// The provider; nothing is connected yet.
    ///
    /// # Errors
    /// The base URL is none, the key cannot be a header, or no client can be made here.
    pub(crate) fn new(settings: Settings<'_>) -> Result<Self, String> {
        let Settings { api, mut headers, .. } = settings;
        let url = url(settings.base_url, api)?;
        // Each part too: who quotes a key may leave out what stands before it.
        let of_headers = headers.values().filter_map(|value| value.to_str().ok());
        let mut secrets: Vec<String> =
            of_headers.flat_map(|value| value.split_whitespace().chain([value])).map(str::to_owned).collect();
        secrets.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
        headers.entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        if api == Api::Anthropic {
            headers.entry("anthropic-version").or_insert(HeaderValue::from_static("2023-06-01"));
        }
        if let Some(key) = settings.api_key {
            let (name, value) = match api {
                Api::Anthropic => (HeaderName::from_static("x-api-key"), key.to_owned()),
                Api::OpenAi => (AUTHORIZATION, format!("Bearer {key}")),
            };
            let value = HeaderValue::from_str(&value);
            let mut value = value.map_err(|_| "the key has characters that no header can have".to_owned())?;
            value.set_sensitive(true);
            // A header that is set by hand is meant.
            headers.entry(name).or_insert(value);
            secrets.push(key.to_owned());
        }
        // A short one is in many texts by chance, and is no secret.
        secrets.retain(|secret| secret.len() >= 8);
        // The longest first: another may be a part of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Ok(Self {
            name: settings.name.to_owned(),
            api,
            url,
            headers,
            secrets,
            client: client()?,
            gate: Gate::default(),
            max_retries: settings.max_retries,
            max_retry_after: settings.max_retry_after,
            idle_timeout: settings.idle_timeout,
        })
    }

    /// The text without what is secret: a provider may quote it.
    pub(super) fn scrub(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "[secret]"))
    }
}

/// Where requests go.
///
/// # Errors
/// The base URL is none of HTTP.
pub(crate) fn url(base: &str, api: Api) -> Result<Url, String> {
    let mut url = Url::parse(base).map_err(|error| format!("is not a URL: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("is not a URL of HTTP, such as https://api.example.com/v1".into());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user or a password; use api_key or headers".into());
    }
    let path = format!("{}/{}", url.path().trim_end_matches('/'), api.path());
    url.set_path(&path);
    Ok(url)
}

/// A client for one provider. It follows no redirect: its owner is nobody that a transcript and a key are for.
fn client() -> Result<Client, String> {
    let client = crate::http::builder().redirect(reqwest::redirect::Policy::none()).build();
    client.map_err(|error| format!("no HTTP client can be made: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_below_the_base_url() {
        let at = |base, api| url(base, api).map(|url| url.to_string());
        assert_eq!(at("https://h/v1", Api::OpenAi).unwrap(), "https://h/v1/chat/completions");
        assert_eq!(at("http://h:1/a/b/?v=2", Api::Anthropic).unwrap(), "http://h:1/a/b/messages?v=2");
        for bad in ["", "h/v1", "ftp://h", "file:///etc", "https://user:key@h"] {
            assert!(at(bad, Api::OpenAi).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_secret_is_in_no_text() {
        let mut headers = HeaderMap::new();
        headers.insert("x-tenant", HeaderValue::from_static("Token tenant-secret"));
        let endpoint = Endpoint::new(Settings {
            name: "p",
            api: Api::OpenAi,
            base_url: "http://h/v1?token=query-secret",
            api_key: Some("sk-123456789"),
            headers,
            max_retries: 0,
            max_retry_after: Duration::ZERO,
            idle_timeout: Duration::ZERO,
        });
        let endpoint = endpoint.unwrap();
        let text = "key sk-123456789 of tenant-secret, Token tenant-secret and query-secret";
        assert_eq!(endpoint.scrub(text), "key [secret] of [secret], [secret] and [secret]");
    }
}
