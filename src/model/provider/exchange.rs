//! One request, and the stream that answers it.

use std::time::{Duration, SystemTime};

use reqwest::Response;
use tokio::time::Instant;

use super::endpoint::Endpoint;
use super::fault::{Fault, Kind};
use super::sse::{Decoder, Invalid};
use crate::turn::Reply;
use crate::{http, retry};

/// The largest event of a stream, and the largest reply that comes whole, in bytes: a reply may be one event, and JSON needs
/// up to six bytes for one.
const MAX_EVENT: usize = 6 * super::draft::MAX_REPLY;

/// How much of an error's body is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// What a request came to.
pub(super) struct Answer {
    pub(super) outcome: Result<Reply, Fault>,
    /// What the provider calls it.
    pub(super) request_id: Option<String>,
}

/// How long text may wait until it is told, with what has come meanwhile: a record for each word would be too many.
const GATHERED: Duration = Duration::from_millis(100);

/// The largest piece that is told, in bytes: as much as a status takes.
const MAX_PIECE: usize = 16 << 10;

/// Tells the text of a reply piece by piece.
struct Teller<'a> {
    tell: &'a (dyn Fn(&str) + Send + Sync),
    told: usize,
    last: Option<Instant>,
}

impl Teller<'_> {
    /// Tells what is new, if it is time.
    fn hear(&mut self, text: &str) {
        if self.told < text.len() && self.last.is_none_or(|last| last.elapsed() >= GATHERED) {
            self.last = Some(Instant::now());
            self.rest(text);
        }
    }

    /// Tells what is left.
    fn rest(&mut self, text: &str) {
        while let Some(rest) = text.get(self.told..).filter(|rest| !rest.is_empty()) {
            let (piece, _) = rest.split_at(rest.floor_char_boundary(MAX_PIECE));
            (self.tell)(piece);
            self.told += piece.len();
        }
    }
}

/// Asks once, and tells the text as it comes. Cancel safe: dropping it ends the request.
pub(super) async fn ask(endpoint: &Endpoint, body: Vec<u8>, tell: &(dyn Fn(&str) + Send + Sync)) -> Answer {
    let request = endpoint.client.post(endpoint.url.clone()).headers(endpoint.headers.clone()).body(body);
    let response = match within(endpoint, request.send()).await {
        Ok(response) => response,
        Err(fault) => return Answer { outcome: Err(fault), request_id: None },
    };
    let request_id = response.headers().get(endpoint.api.request_id()).and_then(|id| id.to_str().ok());
    let request_id = request_id.map(|id| id.chars().take(200).collect());
    let outcome = match response.status().is_success() {
        true => read(endpoint, response, Teller { tell, told: 0, last: None }).await,
        false => Err(refused(response).await),
    };
    Answer { outcome: outcome.map_err(|fault| fault.shown(|text| endpoint.scrub(text))), request_id }
}

/// Waits no longer for the next of something than the provider may be silent.
async fn within<T>(
    endpoint: &Endpoint,
    something: impl Future<Output = Result<T, reqwest::Error>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(endpoint.idle_timeout, something).await {
        Ok(Ok(something)) => Ok(something),
        // Without the URL: its query may have a key.
        Ok(Err(error)) => Err(Fault::new(Kind::Network, causes(&error.without_url()))),
        Err(_) => {
            let silent = humantime::format_duration(endpoint.idle_timeout);
            Err(Fault::new(Kind::Network, format!("nothing came for {silent} (idle_timeout)")))
        }
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

async fn read(endpoint: &Endpoint, mut response: Response, mut teller: Teller<'_>) -> Result<Reply, Fault> {
    let mut reader = endpoint.api.reader(&endpoint.name);
    let mut events = Decoder::new(MAX_EVENT);
    let mut has_begun = false;
    while let Some(chunk) = within(endpoint, response.chunk()).await? {
        let first = chunk.iter().find(|byte| !byte.is_ascii_whitespace());
        if !has_begun && first == Some(&b'{') {
            // No stream begins so, whatever the response says that it is.
            let body = whole(endpoint, &chunk, &mut response).await?;
            reader.event(std::str::from_utf8(&body).map_err(|_| invalid(Invalid::NotText))?)?;
            teller.rest(reader.text());
            return reader.end();
        }
        has_begun |= first.is_some();
        for event in events.feed(&chunk).map_err(invalid)? {
            if reader.event(&event)? {
                teller.rest(reader.text());
                return reader.end();
            }
        }
        teller.hear(reader.text());
    }
    if let Some(last) = events.end().map_err(invalid)? {
        reader.event(&last)?;
    }
    teller.rest(reader.text());
    reader.end()
}

fn invalid(why: Invalid) -> Fault {
    Fault::stream(match why {
        Invalid::TooLarge(limit) => format!("an event is larger than {limit} bytes"),
        Invalid::NotText => "an event is not UTF-8 text".into(),
    })
}

/// The body of a server that does not stream.
async fn whole(endpoint: &Endpoint, begin: &[u8], response: &mut Response) -> Result<Vec<u8>, Fault> {
    let mut body = begin.to_vec();
    while let Some(chunk) = within(endpoint, response.chunk()).await? {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_EVENT {
            return Err(invalid(Invalid::TooLarge(MAX_EVENT)));
        }
    }
    Ok(body)
}

async fn refused(mut response: Response) -> Fault {
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = http::start_of(&mut response, MAX_ERROR).await;
    let mut fault = Fault::said(status, &String::from_utf8_lossy(&body));
    fault.retry_after = retry::asked_for(&headers, SystemTime::now());
    fault
}
