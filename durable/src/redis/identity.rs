//! [`Identity`], which checks that the store is still the one that was opened.
//!
//! A server may be emptied while it is in use, by `FLUSHALL`, a restart without persisted data, or
//! a failover to an empty replica. The opened store is then gone, and the next process that
//! connects creates it again, possibly with another number of partitions. Two processes that
//! disagree about that number would have two stores of one name. Therefore **each process opens the
//! store again once a second**, with the same script. If there is no store, the script creates it
//! as it was but with a new number, by which the other processes notice. If there is another store,
//! its layout and its partitions are compared, and a process that does not match them stops using
//! the store.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::bytes::LAYOUT;
use super::keys::Keys;
use super::link::{self, Link, RetryPolicy};
use super::node::Connection;
use redis::Script;
use std::sync::{Mutex, OnceLock};

/// The properties that identify a store, besides its name.
pub(super) struct Identity {
    name: String,
    pub(super) partitions: u64,
    /// The number that the store was given when it was created.
    pub(super) number: Mutex<u64>,
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
        let (number, unusable) = (Mutex::new(0), OnceLock::new());
        let mut opened = Self { name, partitions, number, unusable };
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

    pub(super) fn partitions(&self) -> u64 {
        self.partitions
    }

    /// Fails if the opened store may no longer be used.
    pub(super) fn check_usable(&self) -> Result<(), DurableError> {
        self.unusable.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

pub(super) fn format(found: u64) -> DurableError {
    DurableError::Format { found, known: u64::from(LAYOUT) }
}
