//! A body as text.

use encoding_rs::{Encoding, UTF_8};
use mime::Mime;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap};

/// What a response says about its body.
pub(super) struct Content {
    mime: Option<Mime>,
    /// How it is packed, where it is.
    packed: Option<String>,
}

impl Content {
    /// As the headers say.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
        let packed = text(CONTENT_ENCODING).map(str::trim);
        let packed = packed.filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("identity"));
        Self { mime: text(CONTENT_TYPE).and_then(mime), packed: packed.map(Into::into) }
    }

    /// `application/json` and all that end in `+json`.
    pub(super) fn is_json(&self) -> bool {
        self.mime.as_ref().is_some_and(|mime| {
            mime.suffix() == Some(mime::JSON)
                || (mime.type_() == mime::APPLICATION && mime.subtype() == mime::JSON)
        })
    }

    /// Whether it is written to be read.
    pub(super) fn is_readable(&self) -> bool {
        self.packed.is_none()
            && (self.is_json() || self.mime.as_ref().is_some_and(|mime| mime.type_() == mime::TEXT))
    }

    /// The whole body. What a byte order mark says goes before what the headers say.
    ///
    /// # Errors
    /// It is not text in its charset, or that is not known.
    pub(super) fn decode(&self, body: &[u8]) -> Result<String, String> {
        if let Some(packed) = &self.packed {
            return Err(format!("the body has the encoding {packed:?}, which was not asked for"));
        }
        let (encoding, body) = match Encoding::for_bom(body) {
            Some((encoding, mark)) => (encoding, body.get(mark..).unwrap_or_default()),
            None => (self.charset()?, body),
        };
        match encoding.decode_without_bom_handling_and_without_replacement(body) {
            Some(text) => Ok(text.into_owned()),
            None => Err(format!("the body is not valid {} text", encoding.name())),
        }
    }

    /// The start of a body for a person to read, whatever it is.
    pub(super) fn glance(&self, start: &[u8]) -> String {
        self.charset().unwrap_or(UTF_8).decode(start).0.into_owned()
    }

    fn charset(&self) -> Result<&'static Encoding, String> {
        let Some(label) = self.mime.as_ref().and_then(|mime| mime.get_param(mime::CHARSET)) else {
            return Ok(UTF_8);
        };
        Encoding::for_label_no_replacement(label.as_str().as_bytes())
            .ok_or_else(|| format!("the charset {:?} of the body is not known", label.as_str()))
    }
}

/// Where the parameters are malformed the type itself still counts.
fn mime(value: &str) -> Option<Mime> {
    let bare = || value.split(';').next().unwrap_or_default().trim().parse().ok();
    value.trim().parse().ok().or_else(bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(headers: &[(&'static str, &str)]) -> Content {
        Content::of(
            &headers.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect(),
        )
    }

    fn decoded(content_type: &str, body: &[u8]) -> Result<String, String> {
        content(&[("content-type", content_type)]).decode(body)
    }

    #[test]
    fn json_is_known_by_its_type() {
        for json in [
            "application/json",
            "Application/JSON; charset=utf-8",
            "application/problem+json",
            "application/json; odd=a b",
        ] {
            assert!(content(&[("content-type", json)]).is_json(), "{json}");
        }
        for other in ["text/json", "application/xml", "application/jsonp", "json", ""] {
            assert!(!content(&[("content-type", other)]).is_json(), "{other}");
        }
    }

    #[test]
    fn the_charset_is_the_one_of_the_headers_or_of_the_byte_order_mark() {
        assert_eq!(decoded("text/plain", "größe\0".as_bytes()).unwrap(), "größe\0");
        assert_eq!(decoded("text/plain", b"\xef\xbb\xbfa").unwrap(), "a");
        assert_eq!(decoded("text/plain; charset=ISO-8859-1", b"gr\xf6\xdfe").unwrap(), "größe");
        assert_eq!(decoded("text/plain; charset=\"utf-16le\"", b"g\0\xf6\0").unwrap(), "gö");
        assert_eq!(decoded("text/plain; charset=utf-16be", b"\0g\0\xf6").unwrap(), "gö");
        assert_eq!(decoded("text/plain; charset=utf-16", b"\xfe\xff\0g").unwrap(), "g");
    }

    #[test]
    fn what_is_not_valid_is_an_error_and_never_replaced() {
        assert_eq!(decoded("text/plain", b"gr\xf6\xdfe").unwrap_err(), "the body is not valid UTF-8 text");
        let odd = decoded("text/plain; charset=utf-16le", b"g\0\xf6").unwrap_err();
        assert_eq!(odd, "the body is not valid UTF-16LE text");
        assert!(decoded("text/plain; charset=utf-16le", b"\0\xd8").is_err(), "a lone surrogate");
        assert!(
            decoded("text/plain; charset=klingon", b"a").unwrap_err().contains("\"klingon\" of the body")
        );
        let packed = content(&[("content-type", "text/plain"), ("content-encoding", "gzip")]);
        assert!(packed.decode(b"\x1f\x8b").unwrap_err().contains("gzip") && !packed.is_readable());
    }
}
