//! Waiting longer and longer between tries.
//!
//! The only user of the `backoff` crate, which is no longer maintained (see `deny.toml`): what replaces
//! it, replaces it here.

use std::time::{Duration, SystemTime};

use backoff::ExponentialBackoff;
use backoff::backoff::Backoff as _;
use reqwest::header::{HeaderMap, RETRY_AFTER};

/// Waits that double, each spread at random so that many workers do not come at once.
pub(crate) struct Backoff(ExponentialBackoff);

impl Backoff {
    /// Waits from 200 ms to 10 s, without an end.
    pub(crate) fn forever() -> Self {
        Self::between(Duration::from_millis(200), Duration::from_secs(10))
    }

    /// Waits that begin at about `initial`, none longer than `max`, without an end.
    pub(crate) fn between(initial: Duration, max: Duration) -> Self {
        Self(ExponentialBackoff {
            initial_interval: initial.min(max),
            current_interval: initial.min(max),
            max_interval: max,
            multiplier: 2.0,
            max_elapsed_time: None,
            ..ExponentialBackoff::default()
        })
    }

    /// How long to wait for the next try.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.0.next_backoff().unwrap_or(self.0.max_interval);
        // Spreading may go beyond.
        pause.min(self.0.max_interval)
    }

    /// Waits for the next try. Cancel safe: a wait that is cut short counts as one.
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.pause()).await;
    }
}

/// How long a server asks to wait: milliseconds, which some providers of models say, else seconds or until a date (RFC 9110,
/// section 10.2.3).
pub(crate) fn asked_for(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    // Fractions too, which some send.
    let seconds = |text: &str, unit: f64| {
        let number: f64 = text.parse().ok()?;
        Duration::try_from_secs_f64(number / unit).ok()
    };
    if let Some(wait) = text("retry-after-ms").and_then(|text| seconds(text, 1000.0)) {
        return Some(wait);
    }
    let text = text(RETRY_AFTER.as_str())?;
    if let Some(wait) = seconds(text, 1.0) {
        return Some(wait);
    }
    let until = httpdate::parse_http_date(text).ok()?;
    Some(until.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_for_seconds_or_until_a_date_or_for_milliseconds() {
        let now = httpdate::parse_http_date("Fri, 15 May 2026 15:34:21 GMT").unwrap();
        let asked = |text: &str| {
            asked_for(&HeaderMap::from_iter([(RETRY_AFTER, text.parse().unwrap())]), now)
                .map(|wait| wait.as_secs())
        };
        assert_eq!(asked("120"), Some(120));
        assert_eq!(asked(" 0 "), Some(0));
        assert_eq!(asked("Fri, 15 May 2026 15:34:51 GMT"), Some(30));
        assert_eq!(asked("Fri, 15 May 2026 15:34:20 GMT"), Some(0));
        assert_eq!(asked("1.5"), Some(1));
        for none in ["", "-1", "soon", "nan", "inf", "99999999999999999999"] {
            assert_eq!(asked(none), None, "{none:?}");
        }
        assert_eq!(asked_for(&HeaderMap::new(), now), None);
        let mut headers = HeaderMap::from_iter([(RETRY_AFTER, "2".parse().unwrap())]);
        headers.insert("retry-after-ms", "1500".parse().unwrap());
        assert_eq!(asked_for(&headers, now), Some(Duration::from_millis(1500)));
    }
}
