//! [`OwnFaults`] and [`put_off`], which give back deliveries that could not be attempted.

#![forbid(unsafe_code)]

use crate::fault::OwnFault;
use crate::metrics::NOT_MADE;
use metrics::counter;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;
use tourbillon_durable::{Delivery, Verdict};

/// The shortest pause of a delivery that was given back.
const MIN_PAUSE: Duration = Duration::from_secs(1);

/// The longest pause. A delivery is attempted at most this long after the fault has ended.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// The minimum time between two log entries of a fault. A fault usually affects many timers.
const QUIET: Duration = Duration::from_secs(60);

/// The label of calls that were not made because there was no place.
const PLACES: &str = "places";

/// The faults of this machine that have prevented calls.
pub(crate) struct OwnFaults {
    /// The time when each fault was last logged, by name.
    logged: Mutex<HashMap<&'static str, Instant>>,
}

impl Default for OwnFaults {
    fn default() -> Self {
        for name in OwnFault::NAMES.into_iter().chain([PLACES]) {
            counter!(NOT_MADE, "reason" => name).increment(0);
        }
        Self { logged: Mutex::default() }
    }
}

impl OwnFaults {
    /// Counts and logs a fault, and gives the delivery back. The later the delivery is, the longer
    /// it pauses.
    pub(crate) fn give_back(
        &self,
        fault: &OwnFault,
        delivery: &Delivery,
        now: SystemTime,
    ) -> Verdict {
        counter!(NOT_MADE, "reason" => fault.name()).increment(1);
        if self.is_news(fault.name()) {
            let (id, name) = (&delivery.id, fault.name());
            tracing::warn!(fault = name, id, error = %fault, "a webhook could not be called");
        }
        let late = now.duration_since(delivery.planned).unwrap_or_default();
        Verdict::GiveBack { after: pause(late), error: Some(fault.to_string()) }
    }

    /// Returns `true` if a fault was not logged recently.
    fn is_news(&self, name: &'static str) -> bool {
        let mut logged = self.logged.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_news = logged.get(name).is_none_or(|since| now - *since >= QUIET);
        if is_news {
            logged.insert(name, now);
        }
        is_news
    }
}

/// Gives a delivery back because its receiver has no free place. The timer keeps its last error.
pub(crate) fn put_off(after: Duration) -> Verdict {
    counter!(NOT_MADE, "reason" => PLACES).increment(1);
    Verdict::GiveBack { after, error: None }
}

/// Returns the pause of a delivery that is late by `late`. Each pause is longer than the last, and
/// no record of earlier pauses is needed.
fn pause(late: Duration) -> Duration {
    (late / 2).clamp(MIN_PAUSE, MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_minute() {
        let (mut late, mut pauses) = (Duration::ZERO, Vec::new());
        for _ in 0..16 {
            pauses.push(pause(late));
            late += pause(late);
        }
        assert!(pauses.is_sorted(), "{pauses:?}");
        assert_eq!((pauses[0], pauses[15]), (MIN_PAUSE, MAX_PAUSE));
    }

    #[tokio::test(start_paused = true)]
    async fn a_fault_is_logged_once_in_a_minute() {
        let faults = OwnFaults::default();
        assert!(faults.is_news("network") && faults.is_news("resolver"));
        assert!(!faults.is_news("network"));
        tokio::time::advance(QUIET).await;
        assert!(faults.is_news("network"));
    }
}
