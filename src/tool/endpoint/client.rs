//! The client of all HTTP endpoints: one pool, and no redirect to another host.

use std::error::Error as _;
use std::fmt;
use std::sync::LazyLock;

use reqwest::redirect::{Action, Attempt, Policy};
use reqwest::{Client, Url};

use crate::tool::{ToolError, http};

/// How many redirects are followed.
const MAX_REDIRECTS: usize = 5;

static CLIENT: LazyLock<Result<Client, String>> = LazyLock::new(|| {
    let client = http::builder().redirect(Policy::custom(follow)).build();
    client.map_err(|error| ToolError::from(error).message().to_owned())
});

/// The client.
///
/// # Errors
/// It cannot be made here. No other client will do: it would follow any redirect.
pub(super) fn get() -> Result<&'static Client, ToolError> {
    CLIENT.as_ref().map_err(|why| ToolError::fatal(format!("no HTTP client can be made: {why}")))
}

/// A redirect that is not followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Refused {
    /// To another scheme, host or port: its owner is nobody that the tool's headers and arguments are for.
    Elsewhere(String),
    /// One too many.
    TooMany,
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

fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}
