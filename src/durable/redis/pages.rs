//! What a worker asks for: that it is heard, which partitions are its own, and their keys.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::super::error::DurableError;
use super::super::near::Near;
use super::super::store::{Key, Page};
use super::link::{Link, Patience};
use super::verbs::{Call, Verbs, text};
use futures_util::future::try_join_all;
use redis::{FromRedisValue, Script};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How far ahead keys are loaded at most. Less than the scripts tell of, so that what is put there
/// after a page is told.
const AHEAD: Millis = 15_000;

/// After how long nobody can have meant to deliver a timer later.
const LATE: Millis = 5000;

/// How many of the others' timers are taken on at a time.
const TAKEN_ON: usize = 64;

impl Verbs {
    /// A worker of this process, which owns nothing yet.
    pub(super) fn join(&self, near: &Arc<Near>) -> u64 {
        let worker = fastrand::u64(..);
        self.members.join(worker, near);
        worker
    }

    /// Says that a worker is there: the time, and which partitions are its own.
    async fn beat(&self, worker: u64) -> Result<(Millis, BTreeSet<u64>), DurableError> {
        let more = vec![text(worker), text(self.keys.partitions())];
        self.of_workers(&self.scripts.beat, &more, Patience::Worker).await
    }

    /// Says that a worker has ended.
    pub(super) async fn leave(&self, worker: u64) -> Result<(), DurableError> {
        let more = vec![text(worker)];
        let _: u64 = self.of_workers(&self.scripts.leave, &more, Patience::Caller).await?;
        Ok(())
    }

    /// Done twice these scripts do no harm: they have no token.
    async fn of_workers<T: FromRedisValue>(
        &self,
        script: &Script,
        more: &[Vec<u8>],
        patience: Patience,
    ) -> Result<T, DurableError> {
        let ask = |link: Link| {
            let mut script = script.prepare_invoke();
            for key in self.keys.workers() {
                script.key(key);
            }
            script.arg("").arg(self.time()).arg("").arg("").arg(self.keys.channel());
            for arg in more {
                script.arg(&arg[..]);
            }
            async move { link.script(&script).await }
        };
        self.link.ask(patience, ask).await
    }

    pub(super) async fn load(
        &self,
        worker: u64,
        from: Key,
        until: Millis,
        limit: usize,
    ) -> Result<Page, DurableError> {
        let (now, owned) = self.beat(worker).await?;
        self.members.owns(worker, &owned);
        let until = until.min(now + AHEAD);
        // More than its share of a page a partition gives only if it has more than its share.
        let share = (limit * 2 / owned.len().max(1) + 16).min(limit);
        let asked = owned.into_iter().filter_map(|partition| {
            let notices = self.quiet.asked(partition, now, from.0, until)?;
            Some(self.load_partition(partition, notices, &from, until, share))
        });
        let mut keys = Vec::new();
        let mut end: Option<Key> = None;
        for (some, more) in try_join_all(asked).await? {
            if more {
                // Beyond its last key this partition may have others before those of the rest.
                let last = some.last().cloned();
                end = if end.is_none() { last } else { end.min(last) };
            }
            keys.extend(some);
        }
        keys.sort_unstable();
        if let Some(end) = &end {
            keys.retain(|key| key <= end);
        }
        let more = end.is_some() || keys.len() > limit;
        keys.truncate(limit);
        if !more && limit > keys.len() + TAKEN_ON {
            keys.extend(self.stragglers(worker, now).await?);
        }
        Ok(Page { now, until, keys, more })
    }

    /// What another worker should have delivered long ago.
    async fn stragglers(&self, worker: u64, now: Millis) -> Result<Vec<Key>, DurableError> {
        let until = now.saturating_sub(LATE);
        let Some(partition) = self.members.strange(worker, self.keys.partitions(), now) else {
            return Ok(Vec::new());
        };
        let Some(notices) = self.quiet.asked(partition, now, 0, until) else {
            return Ok(Vec::new());
        };
        let all = (0, Arc::from(""));
        let (keys, _) = self.load_partition(partition, notices, &all, until, TAKEN_ON).await?;
        Ok(keys)
    }

    async fn load_partition(
        &self,
        partition: u64,
        notices: u64,
        from: &Key,
        until: Millis,
        limit: usize,
    ) -> Result<(Vec<Key>, bool), DurableError> {
        let args = vec![text(from.0), from.1.as_bytes().to_vec(), text(until), text(limit)];
        let (script, patience) = (&self.scripts.load, Patience::Worker);
        let call = Call { script, partition, keys: Vec::new(), args, patience };
        let answer: (Millis, u8, i64, Vec<(String, Millis)>) = self.call(call).await?;
        let (now, more, beyond, found) = answer;
        if more == 0 {
            self.quiet.page(partition, notices, now, until, Millis::try_from(beyond).ok());
        }
        let keys = found.into_iter().map(|(id, due)| (due, Arc::from(id))).collect();
        Ok((keys, more == 1))
    }
}
