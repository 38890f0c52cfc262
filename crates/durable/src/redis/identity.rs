//! [`Identity`], which checks that the store is still the store that was opened.
//!
//! A server may be emptied while it is in use, by `FLUSHALL`, a restart without persisted data, or
//! a failover to an empty replica. The opened store is then gone, and the next process that
//! connects creates it again, possibly with another number of partitions. Two processes that
//! disagree about that number would have two stores with one name. Therefore **each process checks
//! the store every second or two**. A worker's heartbeat reads the description of the store, and a
//! process without workers opens the store again, with the same script. If there is no store, the
//! script creates it as it was but with a new number, so that the other processes notice. If there
//! is another store, its layout and its partitions are compared, and a process that does not match
//! them stops using the store.

#![forbid(unsafe_code)]

use super::bytes::LAYOUT;
use super::keys::Keys;
use super::link::{self, Link};
use super::node::Connection;
use crate::error::DurableError;
use crate::panics::ignore_poison;
use crate::store::remote::retry::RetryPolicy;
use redis::Script;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// The properties that identify a store, besides its name.
pub(super) struct Identity {
    name: String,
    pub(super) partitions: u64,
    /// The number that the store was given when it was created.
    number: Mutex<u64>,
    /// The time of the last check.
    checked: Mutex<Instant>,
    /// The reason why the store is no longer used.
    pub(super) unusable: OnceLock<DurableError>,
}

impl Identity {
    /// Opens a store, or creates it with `partitions` partitions.
    pub(super) async fn open(
        link: &Link,
        script: &Script,
        name: String,
        partitions: u64,
    ) -> Result<Self, DurableError> {
        let (number, checked) = (Mutex::new(0), Mutex::new(now()));
        let mut opened = Self { name, partitions, number, checked, unusable: OnceLock::new() };
        let (layout, partitions, number) = opened.ask(link, script, RetryPolicy::Caller).await?;
        if layout != u64::from(LAYOUT) {
            return Err(format(layout));
        }
        (opened.partitions, opened.number) = (partitions, Mutex::new(number));
        Ok(opened)
    }

    pub(super) async fn ask(
        &self,
        link: &Link,
        script: &Script,
        retry: RetryPolicy,
    ) -> Result<(u64, u64, u64), DurableError> {
        let keys = [Keys::store(&self.name)];
        let number = fastrand::u64(..);
        let ask = |connection: Connection| {
            let mut call = link::call(script, &keys);
            call.arg(LAYOUT).arg(self.partitions).arg(number);
            connection.evaluate(script, call)
        };
        link.ask(&keys[0], retry, ask).await
    }

    /// Returns the number of the store.
    pub(super) fn number(&self) -> u64 {
        *ignore_poison(self.number.lock())
    }

    /// Changes the number of the store. Returns `false` if `found` is that number, or if the reply
    /// to a later request has changed it from `known` before.
    pub(super) fn renumber(&self, known: u64, found: u64) -> bool {
        let mut number = ignore_poison(self.number.lock());
        let new = *number == known && *number != found;
        if new {
            *number = found;
        }
        new
    }

    /// Returns the time left until the store must be checked `after` the last check.
    pub(super) fn due(&self, after: Duration) -> Duration {
        let checked = *ignore_poison(self.checked.lock());
        after.saturating_sub(now().saturating_duration_since(checked))
    }

    /// Notes that the store was checked now.
    pub(super) fn set_checked(&self) {
        *ignore_poison(self.checked.lock()) = now();
    }

    pub(super) fn partitions(&self) -> u64 {
        self.partitions
    }

    /// Fails if the opened store may no longer be used.
    pub(super) fn check_usable(&self) -> Result<(), DurableError> {
        self.unusable.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

#[allow(clippy::disallowed_methods, reason = "emptied servers are noticed in real time")]
fn now() -> Instant {
    Instant::now()
}

pub(super) fn format(found: u64) -> DurableError {
    DurableError::Format { found, known: u64::from(LAYOUT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_that_was_overtaken_does_not_count() {
        let identity = Identity {
            name: "timers".to_owned(),
            partitions: 1,
            number: Mutex::new(1),
            checked: Mutex::new(now()),
            unusable: OnceLock::new(),
        };
        assert!(!identity.renumber(1, 1));
        assert!(identity.renumber(1, 2), "it was emptied");
        assert!(!identity.renumber(1, 1), "an earlier request");
        assert_eq!(identity.number(), 2);
        assert!(identity.renumber(2, 3));
    }
}
