//! Notices that the server of a store was emptied. The heartbeats of workers check the identity of
//! the store. A process whose workers send no heartbeats opens the store again.

#![forbid(unsafe_code)]

use super::bytes::LAYOUT;
use super::identity::format;
use super::operations::Operations;
use crate::error::DurableError;
use crate::store::remote::retry::RetryPolicy;
use std::time::Duration;

/// The interval between two checks. It exceeds the interval between two heartbeats, so that a
/// process whose workers send heartbeats does not open the store again.
const AGAIN: Duration = Duration::from_millis(1500);

impl Operations {
    /// Opens the store whenever it was not checked for a while, forever.
    pub(super) async fn keep_open(&self) {
        let Self { identity, link, scripts, .. } = self;
        loop {
            let due = identity.due(AGAIN);
            if !due.is_zero() {
                tokio::time::sleep(due).await;
                continue;
            }
            let known = identity.number();
            let found = identity.ask(link, &scripts.open, RetryPolicy::Page).await;
            identity.set_checked();
            // Without a reply, no change is known.
            if let Ok(found) = found {
                self.check_identity(known, found);
            }
        }
    }

    /// Checks the properties of a store that were requested while its number was `known`.
    pub(super) fn check_identity(&self, known: u64, (layout, partitions, number): (u64, u64, u64)) {
        let identity = &self.identity;
        let unusable = match (layout, partitions) {
            _ if layout != u64::from(LAYOUT) => format(layout),
            _ if partitions != identity.partitions => DurableError::Remade { partitions },
            _ => {
                if identity.renumber(known, number) {
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
