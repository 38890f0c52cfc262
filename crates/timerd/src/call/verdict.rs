//! The verdict on a response.

#![forbid(unsafe_code)]

use bytes::Bytes;
use http::header::{HeaderMap, RETRY_AFTER};
use http::{Response, StatusCode};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};
use tourbillon_durable::Verdict;

/// The shortest wait. Without it, a receiver that always asks for no wait would be called forever
/// without a pause, because these attempts do not count.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The longest wait that a receiver may ask for.
const MAX_WAIT: Duration = Duration::from_secs(86_400);

/// Returns the verdict on an attempt with this response.
///
/// | response | verdict |
/// |---|---|
/// | 2xx | done |
/// | 410, if it is final | failed for good, and the timer no longer repeats |
/// | another final status | failed for good |
/// | 429 or 503 with `Retry-After` | again after that time, a second to a day, and the attempt does not count |
/// | everything else, including redirects | retried |
pub(super) fn of(
    response: &Response<Bytes>,
    final_statuses: &BTreeSet<u16>,
    now: SystemTime,
) -> Verdict {
    let status = response.status();
    if status.is_success() {
        return Verdict::Done;
    }
    let error = error(response);
    if final_statuses.contains(&status.as_u16()) {
        return match status {
            StatusCode::GONE => Verdict::Stop(error),
            _ => Verdict::Fail(error),
        };
    }
    let is_busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    if let (true, Some(after)) = (is_busy, retry_after(response.headers(), now)) {
        return Verdict::Again { after: after.clamp(MIN_WAIT, MAX_WAIT), counted: false };
    }
    Verdict::Retry(error)
}

/// Returns the error for a refusal, with its status and the beginning of its body on one line.
fn error(response: &Response<Bytes>) -> String {
    let text = String::from_utf8_lossy(response.body());
    let is_space = |character: char| character.is_whitespace() || character.is_control();
    let words: Vec<&str> = text.split(is_space).filter(|word| !word.is_empty()).collect();
    match (response.status(), words.is_empty()) {
        (status, true) => format!("the receiver responded with {status}"),
        (status, false) => format!("the receiver responded with {status}: {}", words.join(" ")),
    }
}

/// Returns the wait that a receiver asks for, in seconds or until a date.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that is too long to parse is still a number of seconds.
        return Some(value.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let date = httpdate::parse_http_date(value).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Webhooks;
    use std::time::UNIX_EPOCH;

    /// Sunday, 6 November 1994, 08:49:37.
    const NOW: Duration = Duration::from_secs(784_111_777);

    fn verdict(status: u16, retry_after: Option<&str>) -> Verdict {
        let mut response = Response::builder().status(status);
        if let Some(value) = retry_after {
            response = response.header(RETRY_AFTER, value);
        }
        let finals = Webhooks::default().final_statuses;
        of(&response.body(Bytes::new()).expect("a response"), &finals, UNIX_EPOCH + NOW)
    }

    fn again(seconds: u64) -> Verdict {
        Verdict::Again { after: Duration::from_secs(seconds), counted: false }
    }

    #[test]
    fn each_status_has_its_verdict() {
        for status in [200, 201, 202, 204, 299] {
            assert_eq!(verdict(status, Some("7")), Verdict::Done);
        }
        for status in [400, 405, 411, 413, 414, 415, 422, 431] {
            assert!(matches!(verdict(status, Some("7")), Verdict::Fail(_)), "{status}");
        }
        assert!(matches!(verdict(410, Some("7")), Verdict::Stop(_)));
        for status in [301, 302, 308, 401, 403, 404, 408, 409, 423, 425, 499, 500, 502, 504, 599] {
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
            ("99999999999999999999", 86_400),
            ("Thu, 01 Jan 2099 00:00:00 GMT", 86_400),
        ] {
            assert_eq!(verdict(503, Some(value)), again(seconds), "{value}");
        }
        for value in ["soon", "-1", "1.5", ""] {
            assert!(matches!(verdict(503, Some(value)), Verdict::Retry(_)), "{value}");
        }
    }
}
