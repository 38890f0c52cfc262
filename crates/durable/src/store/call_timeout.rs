//! How long calls to a server are retried.

#![forbid(unsafe_code)]

use std::time::Duration;

pub(crate) const DEFAULT: Duration = Duration::from_secs(5);

/// A shorter timeout would have a call give up before a reply can come.
const MIN: Duration = Duration::from_millis(10);

/// A server recognises an operation that is sent again for an hour.
const MAX: Duration = Duration::from_secs(600);

/// Returns the nearest timeout that is allowed.
pub(crate) fn bounded(timeout: Duration) -> Duration {
    timeout.clamp(MIN, MAX)
}
