//! [`Audit`]: when timers fired, relative to their deadlines.

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;
use tourbillon_servers::process::Failure;

/// The timers that have fired.
#[derive(Debug)]
pub(crate) struct Audit(Mutex<Fired>);

#[derive(Debug)]
struct Fired {
    /// Microseconds from a deadline until the code that waited for it ran.
    late: Histogram<u64>,
    /// The number of timers that fired before their deadlines.
    early: u64,
}

impl Audit {
    pub(crate) fn new() -> Result<Self, Failure> {
        // Up to a minute, to three digits.
        let late = Histogram::new_with_bounds(1, 60_000_000, 3)?;
        Ok(Self(Mutex::new(Fired { late, early: 0 })))
    }

    fn fired(&self) -> MutexGuard<'_, Fired> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that the code after a timer with this deadline runs now.
    pub(crate) fn fire(&self, deadline: Instant) {
        let now = Instant::now();
        let late = now.saturating_duration_since(deadline).as_micros();
        let mut fired = self.fired();
        fired.early += u64::from(now < deadline);
        fired.late.saturating_record(u64::try_from(late).unwrap_or(u64::MAX));
    }

    pub(crate) fn report(&self) -> Value {
        let fired = self.fired();
        let late = |quantile| fired.late.value_at_quantile(quantile);
        json!({
            "fired": fired.late.len(),
            "early": fired.early,
            "late_p50_us": late(0.5),
            "late_p99_us": late(0.99),
            "late_p999_us": late(0.999),
            "late_max_us": late(1.0),
        })
    }
}
