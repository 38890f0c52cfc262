//! Counting the timers of a store.

#![forbid(unsafe_code)]

use super::operations::{Operations, text};
use crate::error::DurableError;
use crate::model::clock::Millis;
use crate::model::stats::Counts;
use crate::store::remote::retry::RetryPolicy;
use futures_util::future::try_join_all;

/// The reply of a partition.
type Counted = (Millis, u64, u64, u64, i64, u64, u64);

impl Operations {
    /// Returns the numbers of all partitions. Each partition is asked once.
    pub(super) async fn stats(&self) -> Result<Counts, DurableError> {
        let paused = self.is_paused().await?;
        let each = (0..self.keys.partitions()).map(|partition| async move {
            let counted: Counted =
                self.call(&self.scripts.stats, partition, &[], RetryPolicy::Caller).await?;
            let (now, timers, leased, overdue, oldest, parked, dead) = counted;
            let (oldest, next) = (Millis::try_from(oldest).ok(), None);
            Ok::<_, DurableError>(Counts {
                now,
                timers,
                leased,
                parked,
                overdue,
                oldest,
                dead,
                paused,
                next,
            })
        });
        let parts = try_join_all(each).await?;
        Ok(parts.into_iter().fold(Counts::default(), Counts::add))
    }
    /// Returns the number of keys in each range of due times, up to a number.
    pub(super) async fn due_counts(
        &self,
        ranges: Vec<(Millis, Millis)>,
        most: u64,
    ) -> Result<Vec<u64>, DurableError> {
        let mut args = vec![text(most)];
        args.extend(ranges.iter().flat_map(|(from, beyond)| [text(from), text(beyond)]));
        let each = (0..self.keys.partitions()).map(|partition| {
            self.call::<Vec<u64>>(&self.scripts.due, partition, &args, RetryPolicy::Caller)
        });
        let mut counts = vec![0; ranges.len()];
        for part in try_join_all(each).await? {
            for (count, more) in counts.iter_mut().zip(part) {
                *count = most.min(*count + more);
            }
        }
        Ok(counts)
    }
}
