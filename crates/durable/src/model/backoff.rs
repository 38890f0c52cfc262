//! [`Backoff`], the wait after a failed attempt.

#![forbid(unsafe_code)]

use crate::model::clock::{Millis, millis_up};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The wait after a failed attempt, which doubles up to a maximum.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use tourbillon_durable::Backoff;
///
/// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
/// let waits = [1, 2, 3, 9].map(|attempt| backoff.after(attempt).as_secs());
/// assert_eq!(waits, [1, 2, 4, 60]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub(crate) first: Millis,
    pub(crate) most: Millis,
    pub(crate) jitter: bool,
}

impl Backoff {
    /// Creates a backoff of `first` after the first attempt that doubles with each attempt, up to
    /// `most`.
    #[must_use]
    pub fn new(first: Duration, most: Duration) -> Self {
        Self { first: millis_up(first), most: millis_up(most), jitter: false }
    }

    /// Shortens each wait by up to half, by a different share for each timer and attempt, so that
    /// timers that failed together are not retried together.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::{Backoff, Options};
    ///
    /// let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60)).jitter();
    /// let options = Options::new().attempts(5).backoff(backoff);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn jitter(mut self) -> Self {
        self.jitter = true;
        self
    }

    /// Returns the wait after an attempt (the first is 1), without jitter.
    #[must_use]
    pub fn after(&self, attempt: u32) -> Duration {
        Duration::from_millis(self.full(attempt))
    }

    fn full(&self, attempt: u32) -> Millis {
        let doublings = attempt.saturating_sub(1).min(63);
        self.first.saturating_mul(1 << doublings).min(self.most)
    }

    /// Returns the wait after an attempt of a timer. The jitter is a hash of its identity, so it
    /// needs no source of randomness and repeats in tests.
    pub(crate) fn wait(&self, id: &str, planned: Millis, attempt: u32) -> Millis {
        let full = self.full(attempt);
        if !self.jitter {
            return full;
        }
        let mut hasher = DefaultHasher::new();
        (id, planned, attempt).hash(&mut hasher);
        full - hasher.finish() % (full / 2 + 1)
    }
}
