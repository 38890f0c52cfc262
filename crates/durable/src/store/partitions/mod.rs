//! [`Partitioned`], a store whose keys are divided into partitions that workers own.
//!
//! A worker sends heartbeats, which assign partitions to it, and loads the keys of its partitions
//! ([`load`](load::load)). It follows the notices of its partitions ([`channels`]), and asks a
//! partition only if something may be due there ([`idle`]).
//! [`Ownership`](crate::store::ownership::Ownership) has what the workers of this process know
//! about their partitions.

pub(crate) mod channels;
pub(crate) mod idle;
pub(crate) mod load;
pub(crate) mod pages;

use self::idle::{IdleHints, NOTIFY_AHEAD};
use self::pages::PartitionPage;
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::{Change, Key};
use crate::store::ownership::Round;
use crate::store::remote::notices::Listener;
use crate::store::remote::retry::RetryPolicy;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A store whose servers have a list of workers, and partitions of keys.
pub(crate) trait Partitioned: Listener {
    /// Returns the number of partitions.
    fn partitions(&self) -> u64;

    /// Returns what is known about partitions without due keys.
    fn idle(&self) -> &IdleHints;

    /// Returns the number of the partition that has a timer.
    fn partition_of(&self, id: &str) -> u64;

    /// Notifies the owner of a key, if it is a worker of this process.
    fn notify(&self, id: &str, due: Millis) {
        let partition = self.partition_of(id);
        self.idle().notice(partition, due);
        let change = Change { removed: None, added: Some((due, Arc::from(id))) };
        self.ownership().notify(partition, change);
    }

    /// Notifies the owner of a key if it is due so soon that the server publishes it as well.
    fn notify_if_near(&self, id: &str, due: Millis, now: Millis) {
        if due <= now + NOTIFY_AHEAD {
            self.notify(id, due);
        }
    }

    /// Adds a worker to the list of workers, or shows that it is alive, and assigns partitions to
    /// it, unless the assignment of a known round is still the same. Gives up after half a reply
    /// timeout.
    fn beat(
        &self,
        worker: u64,
        known: Option<&Round>,
    ) -> impl Future<Output = Result<Heartbeat, DurableError>> + Send;

    /// Waits until the server with the list of workers replies. Fails after a reply timeout.
    fn reach_workers(&self) -> impl Future<Output = Result<(), DurableError>> + Send;

    /// Returns the time of the server that has a partition.
    fn now_of(
        &self,
        partition: u64,
        retry: RetryPolicy,
    ) -> impl Future<Output = Result<Millis, DurableError>> + Send;

    /// Reads up to `limit` keys of a partition, in order.
    fn read_keys(
        &self,
        partition: u64,
        from: &Key,
        until: Millis,
        limit: usize,
        retry: RetryPolicy,
    ) -> impl Future<Output = Result<PartitionPage, DurableError>> + Send;
}

/// The reply to a heartbeat.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    /// The time of the server with the list of workers.
    pub(crate) now: Millis,
    /// The assignment. `None` if it is still the same.
    pub(crate) assigned: Option<Assignment>,
    /// Set if the store is paused.
    pub(crate) paused: bool,
}

/// The partitions that a heartbeat assigns to a worker.
#[derive(Debug)]
pub(crate) struct Assignment {
    /// The partitions of the worker.
    pub(crate) owned: BTreeSet<u64>,
    /// The number of workers.
    pub(crate) workers: u64,
    /// The round of the assignment. `None` if the server was emptied.
    pub(crate) round: Option<String>,
}
