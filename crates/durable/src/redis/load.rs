//! The requests of a worker for its heartbeat, its partitions, and their keys ([`Partitioned`]).

#![forbid(unsafe_code)]

use super::operations::{Operations, text};
use crate::error::DurableError;
use crate::model::clock::{Millis, present};
use crate::model::key::{Key, Page};
use crate::store::ownership::Round;
use crate::store::partitions::idle::IdleHints;
use crate::store::partitions::load::{load, time_by};
use crate::store::partitions::pages::PartitionPage;
use crate::store::partitions::{Assignment, Heartbeat, Partitioned};
use crate::store::remote::retry::RetryPolicy;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The layout, the number of partitions, the number, the pause and the round in the description of
/// a store.
type Described = (Option<u64>, Option<u64>, Option<u64>, Option<Vec<u8>>, Option<String>);

impl Partitioned for Operations {
    fn partitions(&self) -> u64 {
        self.keys.partitions()
    }

    fn idle(&self) -> &IdleHints {
        &self.idle
    }

    fn partition_of(&self, id: &str) -> u64 {
        self.keys.location(id).partition
    }

    async fn beat(&self, worker: u64, known: Option<&Round>) -> Result<Heartbeat, DurableError> {
        let round = known
            .map_or((Vec::new(), Vec::new()), |Round { name, last, .. }| (text(name), text(last)));
        let more = vec![text(worker), text(self.keys.partitions()), round.0, round.1];
        let [workers, owners] = self.keys.workers();
        let keys = [workers, owners, self.keys.description()];
        let known = self.identity.number();
        let beat = self.run(&self.scripts.beat, &keys, &more, RetryPolicy::Probe).await;
        let (now, described, owned, workers): (_, Described, Option<BTreeSet<u64>>, Option<u64>) =
            beat?;
        // A heartbeat writes, so the server can.
        self.link.connection(&keys[0]).node.trouble.succeeded(true);
        let (layout, partitions, number, paused, round) = described;
        // Otherwise the server was emptied, and `keep_open` will open the store again.
        if let (Some(layout), Some(partitions), Some(number)) = (layout, partitions, number) {
            self.identity.set_checked();
            self.check_identity(known, (layout, partitions, number));
        }
        let assigned = owned.zip(workers);
        let assigned = assigned.map(|(owned, workers)| Assignment { owned, workers, round });
        Ok(Heartbeat { now, assigned, paused: paused.is_some() })
    }

    async fn reach_workers(&self) -> Result<(), DurableError> {
        let (script, keys) = (&self.scripts.now, self.keys.workers());
        self.run::<Millis>(script, &keys, &[], RetryPolicy::Page).await.map(drop)
    }

    async fn now_of(&self, partition: u64, retry: RetryPolicy) -> Result<Millis, DurableError> {
        if let Some(clock) = &self.clock {
            return Ok(present(clock.now()));
        }
        self.call(&self.scripts.now, partition, &[], retry).await
    }

    async fn read_keys(
        &self,
        partition: u64,
        from: &Key,
        until: Millis,
        limit: usize,
        retry: RetryPolicy,
    ) -> Result<PartitionPage, DurableError> {
        let args = [text(from.0), from.1.as_bytes().to_vec(), text(until), text(limit)];
        let page = self.call(&self.scripts.load, partition, &args, retry).await?;
        let (now, more, beyond, keys): (Millis, u8, i64, Vec<(String, Millis)>) = page;
        let keys = keys.into_iter().map(|(id, due)| (due, Arc::from(id))).collect();
        Ok(PartitionPage { now, keys, more: more == 1, beyond: Millis::try_from(beyond).ok() })
    }
}

impl Operations {
    /// Returns the time of one of the first partitions.
    pub(super) async fn now(&self) -> Result<Millis, DurableError> {
        time_by(self, 0..self.keys.partitions().min(3)).await
    }

    /// Removes a worker.
    pub(super) async fn leave(&self, worker: u64) -> Result<(), DurableError> {
        let more = vec![text(worker)];
        let [workers, owners] = self.keys.workers();
        let keys = [workers, owners, self.keys.description()];
        let _: u64 = self.run(&self.scripts.leave, &keys, &more, RetryPolicy::Caller).await?;
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
        let page = load(self, worker, from, until, limit).await?;
        self.damaged.now(page.now);
        Ok(page)
    }
}
