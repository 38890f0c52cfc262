//! The meaning of a response.

#![forbid(unsafe_code)]

use http::header::{HeaderMap, RETRY_AFTER};
use http::{Response, StatusCode};
use std::time::{Duration, SystemTime};
use tourbillon_durable::Verdict;

/// The shortest wait, so that a receiver that always asks for none is not called without a pause.
/// Attempts that do not count have no end either.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait that a receiver may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Returns the verdict on an attempt with this response.
///
/// | response | verdict |
/// |---|---|
/// | 2xx | done |
/// | 429 or 503 with `Retry-After` | again after that time, a second to a day, and the attempt does not count |
/// | 429 without it, other 5xx, and everything else, redirects too | retried |
/// | other 4xx | failed for good |
pub(super) fn of<B>(response: &Response<B>, now: SystemTime) -> Verdict {
    let status = response.status();
    if status.is_success() {
        return Verdict::Done;
    }
    let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    if let (true, Some(after)) = (is_busy, retry_after(response.headers(), now)) {
        return Verdict::Again { after: after.clamp(SHORTEST_WAIT, LONGEST_WAIT), counted: false };
    }
    let error = format!("the receiver responded with {status}");
    match status.is_client_error() && !is_busy {
        true => Verdict::Fail(error),
        false => Verdict::Retry(error),
    }
}

/// Returns the wait that a receiver asks for, in seconds or until a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::UNIX_EPOCH;

    /// Sunday, 6 November 1994, 08:49:37.
    const NOW: Duration = Duration::from_secs(784_111_777);

    fn verdict(status: u16, retry_after: Option<&str>) -> Verdict {
        let mut response = Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header(RETRY_AFTER, value);
        }
        of(&response.body(()).expect("a response"), UNIX_EPOCH + NOW)
    }

    fn again(seconds: u64) -> Verdict {
        Verdict::Again { after: Duration::from_secs(seconds), counted: false }
    }

    #[test]
    fn each_status_has_its_verdict() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status, Some("7")), Verdict::Done);
        }
        for status in [400, 401, 403, 404, 408, 410, 422, 499] {
            assert!(matches!(verdict(status, Some("7")), Verdict::Fail(_)), "{status}");
        }
        for status in [301, 302, 307, 308, 500, 502, 504, 599] {
            assert!(matches!(verdict(status, Some("7")), Verdict::Retry(_)), "{status}");
        }
        for status in [429, 503] {
            assert_eq!(verdict(status, Some("7")), again(7));
            assert!(matches!(verdict(status, None), Verdict::Retry(_)), "{status}");
        }
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_or_a_date() {
        for (value, seconds) in [
            ("0", 1),
            (" 120 ", 120),
            ("Sun, 06 Nov 1994 08:50:37 GMT", 60),
            ("Sunday, 06-Nov-94 08:50:37 GMT", 60),
            ("Sun Nov  6 08:50:37 1994", 60),
            ("Sun, 06 Nov 1994 08:00:00 GMT", 1),
            ("999999999", 86_400),
            ("Thu, 01 Jan 2099 00:00:00 GMT", 86_400),
        ] {
            assert_eq!(verdict(503, Some(value)), again(seconds), "{value}");
        }
        for value in ["soon", "-1", "1.5", "", "99999999999999999999"] {
            assert!(matches!(verdict(503, Some(value)), Verdict::Retry(_)), "{value}");
        }
    }
}
