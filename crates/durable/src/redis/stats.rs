//! Counting the timers of a store.

#![forbid(unsafe_code)]

use super::operations::Operations;
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
}
