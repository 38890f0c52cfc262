//! Opens a store again each second, to notice that it was emptied or created again.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::bytes::LAYOUT;
use super::identity::format;
use super::link::RetryPolicy;
use super::operations::Operations;
use crate::panics::ignore_poison;
use std::time::Duration;

/// The interval between two openings.
const AGAIN: Duration = Duration::from_secs(1);

impl Operations {
    /// Opens the store again and again, forever.
    pub(super) async fn keep_open(&self) {
        loop {
            tokio::time::sleep(AGAIN).await;
            let Self { identity, link, scripts, .. } = self;
            // Without a reply, no change is known.
            if let Ok(found) = identity.ask(link, &scripts.open, RetryPolicy::Page).await {
                self.compare(found);
            }
        }
    }

    fn compare(&self, (layout, partitions, number): (u64, u64, u64)) {
        let identity = &self.identity;
        let unusable = match (layout, partitions) {
            _ if layout != u64::from(LAYOUT) => format(layout),
            _ if partitions != identity.partitions => DurableError::Remade { partitions },
            _ => {
                let before = std::mem::replace(&mut *ignore_poison(identity.number.lock()), number);
                if before != number {
                    self.idle.forget();
                    self.ownership.emptied();
                }
                return;
            }
        };
        // The first reason is kept.
        let _ = identity.unusable.set(unusable);
        self.ownership.invalidate();
    }
}
