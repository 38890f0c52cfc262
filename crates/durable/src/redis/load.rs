//! The requests of a worker for its heartbeat, its partitions, and their keys.

#![forbid(unsafe_code)]

use super::operations::{Operations, text};
use super::pages::{PartitionPage, merged, share};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::key::{Key, Page, first_from};
use crate::store::remote::retry::RetryPolicy;
use futures_util::future::{join_all, select_ok};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How far ahead of now keys are loaded at most. Scripts publish changes further ahead, so that
/// every key added after a page is published.
const AHEAD: Millis = 15_000;

/// The owner of a timer has certainly failed to deliver it after this delay.
const LATE: Millis = 5000;

/// The number of another worker's timers that are taken over at a time.
const TAKEN_ON: usize = 64;

/// The number of partitions that are asked for the time, if the first does not reply.
const ASKED: usize = 8;

/// The head start of each partition over the next.
const HEAD_START: Duration = Duration::from_millis(100);

/// The layout, the number of partitions, the number and the pause in the description of a store.
type Described = (Option<u64>, Option<u64>, Option<u64>, Option<Vec<u8>>);

/// Marks a partition as slow to reply to a worker until it is dropped.
pub(super) struct Stall {
    operations: Arc<Operations>,
    worker: u64,
    partition: u64,
}

impl Drop for Stall {
    fn drop(&mut self) {
        self.operations.ownership.unstall(self.worker, self.partition);
    }
}

fn unreachable<T>(said: &Result<T, DurableError>) -> bool {
    matches!(said, Err(DurableError::Unreachable(_)))
}

impl Operations {
    /// Sends a heartbeat. Updates the partitions that the worker owns, and returns the time.
    async fn heartbeat(&self, worker: u64) -> Result<Millis, DurableError> {
        let more = vec![text(worker), text(self.keys.partitions())];
        let [workers, owners] = self.keys.workers();
        let keys = [workers, owners, self.keys.description()];
        let known = self.identity.number();
        let beat = self.run(&self.scripts.beat, &keys, "", &more, RetryPolicy::Probe).await;
        let (now, owned, described, count): (Millis, BTreeSet<u64>, Described, u64) = beat?;
        // A heartbeat writes, so the server can.
        self.link.connection(&keys[0]).node.trouble.succeeded(true);
        self.ownership.set_owned(worker, &owned);
        let spare = owned.is_empty() && count > self.keys.partitions();
        self.ownership.set_spare(worker, spare);
        let (layout, partitions, number, paused) = described;
        self.ownership.set_paused(worker, paused.is_some());
        // Otherwise the server was emptied, and `keep_open` will open the store again.
        if let (Some(layout), Some(partitions), Some(number)) = (layout, partitions, number) {
            self.identity.set_checked();
            self.check_identity(known, (layout, partitions, number));
        }
        Ok(now)
    }

    /// Sends a heartbeat and returns the time, or returns the time of the first node that replies.
    /// The list of workers is on one master. While that master cannot be reached, no worker can
    /// take over a partition either, and each keeps its own.
    async fn heartbeat_or_time(self: &Arc<Self>, worker: u64) -> Result<Millis, DurableError> {
        loop {
            let owned = self.ownership.readable(worker);
            // A worker that owns nothing cannot continue without a heartbeat.
            if owned.is_empty() || !self.ownership.has_lost_heartbeat(worker) {
                let said = self.heartbeat(worker).await;
                if !unreachable(&said) {
                    return said;
                }
                self.go_on_without_heartbeat(worker);
            }
            let said = self.time_by(owned).await;
            if !unreachable(&said) {
                return said;
            }
        }
    }

    /// Lets a worker load its keys without heartbeats until the master with the list of workers
    /// replies.
    fn go_on_without_heartbeat(self: &Arc<Self>, worker: u64) {
        if !self.ownership.heartbeat_lost(worker) {
            return;
        }
        let operations = Arc::clone(self);
        tokio::spawn(async move {
            let (script, keys) = (&operations.scripts.now, operations.keys.workers());
            // The task ends when the worker has left.
            while operations.ownership.has_lost_heartbeat(worker) {
                let said =
                    operations.run::<Millis>(script, &keys, "", &[], RetryPolicy::Page).await;
                if !unreachable(&said) {
                    return operations.ownership.heartbeat_answered(worker);
                }
            }
        });
    }

    /// Returns the time of one of the first partitions.
    pub(super) async fn now(&self) -> Result<Millis, DurableError> {
        self.time_by(0..self.keys.partitions().min(3)).await
    }

    /// Returns the time of the first partition that replies. Each has a head start over the next,
    /// because the clocks of two masters differ and the same master should reply each time.
    async fn time_by(
        &self,
        partitions: impl IntoIterator<Item = u64>,
    ) -> Result<Millis, DurableError> {
        let mut start = Duration::ZERO;
        let asked: Vec<_> = partitions
            .into_iter()
            .take(ASKED)
            .map(|partition| {
                let wait = start;
                start += HEAD_START;
                Box::pin(async move {
                    tokio::time::sleep(wait).await;
                    self.now_of(partition, RetryPolicy::Page).await
                })
            })
            .collect();
        if asked.is_empty() {
            return Err(DurableError::Unreachable("no partition can be reached".to_owned()));
        }
        Ok(select_ok(asked).await?.0)
    }

    /// Removes a worker.
    pub(super) async fn leave(&self, worker: u64) -> Result<(), DurableError> {
        let more = vec![text(worker)];
        let (script, keys) = (&self.scripts.leave, self.keys.workers());
        let _: u64 = self.run(script, &keys, "", &more, RetryPolicy::Caller).await?;
        Ok(())
    }

    pub(super) async fn load(
        self: &Arc<Self>,
        worker: u64,
        from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Page, DurableError> {
        if self.ownership.take_emptied(worker) {
            return Err(DurableError::Emptied);
        }
        let now = self.heartbeat_or_time(worker).await?;
        self.damaged.now(now);
        let owned = self.ownership.readable(worker);
        let until = until.min(now + AHEAD);
        if self.ownership.is_paused(worker) {
            let keys = Vec::new();
            return Ok(Page { now, until, keys, more: false, paused: true, misplaced: None });
        }
        let share = share(limit, owned.len());
        let from = &from;
        let asked = owned.into_iter().map(|partition| async move {
            (partition, self.load_partition(partition, now, from, until, share).await)
        });
        let mut pages = Vec::new();
        for (partition, page) in join_all(asked).await {
            if unreachable(&page) {
                self.miss(worker, partition);
            } else {
                pages.extend(page?);
            }
        }
        let (mut keys, end) = merged(pages);
        let more = end.is_some() || keys.len() > limit;
        keys.truncate(limit);
        if !more && limit > keys.len() + TAKEN_ON {
            keys.extend(self.stragglers(worker, now).await?);
        }
        Ok(Page { now, until, keys, more, paused: false, misplaced: None })
    }

    /// Returns keys that another worker should have delivered long ago.
    async fn stragglers(&self, worker: u64, now: Millis) -> Result<Vec<Key>, DurableError> {
        let until = now.saturating_sub(LATE);
        let Some(partition) =
            self.ownership.next_foreign_partition(worker, self.keys.partitions(), now)
        else {
            return Ok(Vec::new());
        };
        let page = self.load_partition(partition, now, &first_from(0), until, TAKEN_ON).await;
        if unreachable(&page) {
            Ok(Vec::new())
        } else {
            Ok(page?.map_or(Vec::new(), |page| page.keys))
        }
    }

    /// Continues without a partition, and tries it until it can be read.
    fn miss(self: &Arc<Self>, worker: u64, partition: u64) {
        if !self.ownership.miss(worker, partition) {
            return;
        }
        let operations = Arc::clone(self);
        tokio::spawn(async move {
            // A worker that has left, as it does when its store is dropped, misses nothing.
            while operations.ownership.has_missed(worker, partition) {
                let first = first_from(0);
                let page = operations.read_keys(partition, &first, 0, 1, RetryPolicy::Page).await;
                // The next page reports any other error.
                if !unreachable(&page) {
                    return operations.ownership.found(worker, partition);
                }
            }
        });
    }

    /// Notes that a worker has waited long for a reply about a timer, until the result is dropped.
    pub(super) fn stalled(self: &Arc<Self>, worker: u64, id: &str) -> Stall {
        let partition = self.keys.location(id).partition;
        self.ownership.stall(worker, partition);
        Stall { operations: Arc::clone(self), worker, partition }
    }

    /// Returns `true` if the partition of a timer does not reply.
    pub(super) fn is_withheld(&self, worker: u64, id: &str) -> bool {
        self.ownership.is_withheld(worker, self.keys.location(id).partition)
    }

    /// Loads keys of a partition, or returns `None` if it can have none in this range.
    async fn load_partition(
        &self,
        partition: u64,
        now: Millis,
        from: &Key,
        until: Millis,
        limit: usize,
    ) -> Result<Option<PartitionPage>, DurableError> {
        let Some(notices) = self.idle.asked(partition, now, from.0, until) else { return Ok(None) };
        let page = self.read_keys(partition, from, until, limit, RetryPolicy::Probe).await?;
        if !page.more {
            self.idle.page(partition, notices, page.now, (from.0, until), page.beyond);
        }
        Ok(Some(page))
    }
}
