//! Which headers an endpoint may be sent beside those of the client.

use reqwest::header::{HeaderName, HeaderValue};

/// The header that a second run of a call is known by.
pub(super) const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What each request carries anyway, what the connection needs for itself, and what asks for an answer that nothing
/// here unpacks.
const OWNED: &[&str] = &[
    IDEMPOTENCY_KEY,
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "accept-encoding",
];

/// A header. Its value is a secret: no error and no `Debug` shows it.
///
/// # Errors
/// The name or the value is not one of a header, or the header is not the tool's to set.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::from_bytes(name.as_bytes())
        .map_err(|_| "is not the name of a header: letters, digits, and - _ . make one".to_owned())?;
    if OWNED.contains(&name.as_str()) {
        return Err("cannot be set here: the client sets it itself, or must not send it; remove it".into());
    }
    let refused = || "its value is not one of a header: visible ASCII characters, spaces and tabs".to_owned();
    let mut value = HeaderValue::from_str(value).ok().filter(|_| value.is_ascii()).ok_or_else(refused)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Whether a text can stand in a header's value.
pub(crate) fn is_value(text: &str) -> bool {
    text.is_ascii() && HeaderValue::from_str(text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_never_shown() {
        let (name, value) = header("Authorization", "Bearer secret").unwrap();
        assert_eq!((name.as_str(), value.as_bytes()), ("authorization", b"Bearer secret".as_slice()));
        assert!(!format!("{value:?}").contains("secret"));
        for bad in ["secret\nX: 1", "secret\u{0}", "sécret"] {
            let error = header("X-Key", bad).unwrap_err();
            assert!(error.contains("visible ASCII") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn what_the_client_sets_and_what_is_no_name_are_refused() {
        for owned in
            ["Idempotency-Key", "HOST", "content-length", "Content-Type", "Transfer-Encoding", "Connection"]
        {
            assert!(header(owned, "x").unwrap_err().starts_with("cannot be set here"), "{owned}");
        }
        for bad in ["", "a b", "a:b", "größe", "a\n"] {
            assert!(header(bad, "x").unwrap_err().starts_with("is not the name"), "{bad:?}");
        }
        for good in ["X-Api-Key", "accept", "User-Agent"] {
            assert!(header(good, "").is_ok(), "{good}");
        }
    }
}
