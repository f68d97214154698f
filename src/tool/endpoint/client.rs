//! The clients of all HTTP endpoints, which follow no redirect to another host.

use std::error::Error as _;
use std::fmt;
use std::sync::LazyLock;

use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Method, StatusCode, Url};

use crate::http;
use crate::tool::ToolError;

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;

type Made = LazyLock<Result<Client, String>>;

static CLIENT: Made = LazyLock::new(|| make(follow));
/// For `POST`, which a redirect may turn into a `GET` that does nothing.
static CLIENT_FOR_POST: Made = LazyLock::new(|| make(follow_post));

fn make(follow: fn(Attempt<'_>) -> Action) -> Result<Client, String> {
    let client = http::builder().redirect(Policy::custom(follow)).build();
    client.map_err(|error| ToolError::from(error).message().to_owned())
}

/// The client for a method.
///
/// # Errors
/// It cannot be made here. No other client will do: it would follow any redirect.
pub(super) fn get(method: &Method) -> Result<&'static Client, ToolError> {
    let client = if *method == Method::POST { &CLIENT_FOR_POST } else { &CLIENT };
    client.as_ref().map_err(|why| ToolError::fatal(format!("no HTTP client can be made: {why}")))
}

/// Why no client can be made here, if that is so: there is no certificate to trust, for one.
pub(crate) fn unavailable() -> Option<String> {
    CLIENT.as_ref().err().map(|why| format!("no HTTP client can be made here: {why}"))
}

/// A redirect that is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// To another scheme, host or port: its owner is nobody that the tool's headers and arguments are for.
    Elsewhere(String),
    /// One too many.
    TooMany,
    /// One that would turn the request into another.
    Changed(StatusCode),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Elsewhere(origin) => {
                write!(
                    f,
                    "redirected to {origin}: only redirects to the same scheme, host and port are followed"
                )
            }
            Self::TooMany => write!(f, "redirected more than {MAX_REDIRECTS} times"),
            Self::Changed(status) => {
                write!(f, "redirected with {}, which would make a GET of the POST", status.as_u16())
            }
        }
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// The refusal that an error comes from, if one does.
    pub(super) fn of(error: &reqwest::Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

fn follow(attempt: Attempt<'_>) -> Action {
    let refused = match attempt.previous() {
        [first, ..] if first.origin() != attempt.url().origin() => Refused::Elsewhere(origin(attempt.url())),
        followed if followed.len() > MAX_REDIRECTS => Refused::TooMany,
        _ => return attempt.follow(),
    };
    attempt.error(refused)
}

fn follow_post(attempt: Attempt<'_>) -> Action {
    match attempt.status() {
        // See Other: what was posted is done, and its result is elsewhere.
        StatusCode::SEE_OTHER | StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => {
            follow(attempt)
        }
        status => attempt.error(Refused::Changed(status)),
    }
}

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}
