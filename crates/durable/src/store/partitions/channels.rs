//! [`follow`], which forwards the notices of the partitions that the workers of this process own.
//!
//! Each partition has a channel, on which its server publishes added keys. The store has another
//! channel for notices to all workers. Each process subscribes to the channel of the store, and to
//! the channels of the partitions that its workers own. The cost of a change therefore does not
//! depend on the number of processes.
//!
//! **A partition that a worker gains** has keys that were published before this process was
//! subscribed. The worker loads its window as soon as it has gained the partition, and once more
//! when the server has confirmed the channel. A key that was added between the first page and the
//! confirmation is on the second page, and late by at most the time between them. Until then the
//! previous owner, if it is alive, may still be notified and deliver the timer.
//!
//! **The channel of a partition that a worker loses** is left, unless another worker of this
//! process owns it. The same happens when a worker ends. If a worker loses a partition and gains it
//! again before the task has noticed, the channel was never left and no notice was lost. Otherwise
//! the partition is treated as a new one.
//!
//! **A request that is not confirmed in time** ends the subscription, and so does a ping without a
//! reply. Then [`listen`](crate::store::remote::notices::listen) makes all windows load again each
//! second, until another subscription has been established with all channels at once.
//!
//! **Hints** that a partition is idle rely on its notices. They are recorded only while its channel
//! is confirmed, and dropped before it is left ([`idle`](super::idle)).
//!
//! **In a cluster** every node forwards the notices of all nodes, so one connection is enough.

#![forbid(unsafe_code)]

use super::Partitioned;
use crate::model::key::Key;
use crate::store::remote::host::Host;
use crate::store::remote::notices::{PING, beside};
use futures_util::future::{Either, select};
use futures_util::{Stream, StreamExt};
use std::collections::BTreeSet;
use std::pin::pin;

/// A message that a server publishes.
#[derive(Clone, Debug)]
pub(crate) enum Notice {
    /// A key was added to a partition.
    Added(Key),
    /// A worker has left, or the store was paused or resumed.
    Heartbeat,
}

/// The requests to the server of a subscription. Each returns `false` if the server has rejected it
/// or the connection has broken.
pub(crate) trait Channels: Send {
    /// Subscribes to the channels of some partitions.
    fn join(&mut self, partitions: &BTreeSet<u64>) -> impl Future<Output = bool> + Send;

    /// Leaves the channels of some partitions.
    fn leave(&mut self, partitions: &BTreeSet<u64>) -> impl Future<Output = bool> + Send;

    /// Asks whether the server still replies.
    fn ping(&mut self) -> impl Future<Output = bool> + Send;
}

/// A subscription to the channel of the store and to the channels of some partitions.
pub(crate) struct Subscription<C, N> {
    pub(crate) channels: C,
    /// The notices that arrive until the connection ends.
    pub(crate) notices: N,
    pub(crate) partitions: BTreeSet<u64>,
}

/// Forwards notices to the workers, and subscribes to the channels of the partitions that they own,
/// until the subscription ends or a request is not confirmed in time.
pub(crate) async fn follow<P: Partitioned, C: Channels, N: Stream<Item = Notice> + Unpin + Send>(
    store: &P,
    subscription: Subscription<C, N>,
) {
    store.idle().follow(&subscription.partitions);
    let mut follower = Follower { store, subscription, changes: None };
    while follower.step().await {}
    store.idle().unfollow(&follower.subscription.partitions);
}

struct Follower<'a, P, C, N> {
    store: &'a P,
    subscription: Subscription<C, N>,
    /// The change count of `Ownership` up to which channels were joined and left.
    changes: Option<u64>,
}

impl<P: Partitioned, C: Channels, N: Stream<Item = Notice> + Unpin + Send> Follower<'_, P, C, N> {
    /// Waits for a notice or a change of the owned partitions. Returns `false` if the subscription
    /// has ended.
    async fn step(&mut self) -> bool {
        let (ownership, host) = (self.store.ownership(), &self.store.engine().host);
        let (changed, silence) = (pin!(ownership.changed(self.changes)), pin!(host.sleep(PING)));
        let arrives = select(self.subscription.notices.next(), silence);
        match select(changed, arrives).await {
            Either::Left(((changes, owned), _)) => {
                self.changes = Some(changes);
                self.join(&owned).await && self.leave(&owned).await
            }
            Either::Right((Either::Left((Some(notice), _)), _)) => {
                take(self.store, notice);
                true
            }
            Either::Right((Either::Left((None, _)), _)) => false,
            Either::Right((Either::Right(_), _)) => {
                let Subscription { channels, notices, .. } = &mut self.subscription;
                confirmed(self.store, notices, channels.ping()).await
            }
        }
    }

    /// Subscribes to partitions that are owned, and reloads the windows of their owners.
    async fn join(&mut self, owned: &BTreeSet<u64>) -> bool {
        let Subscription { channels, notices, partitions } = &mut self.subscription;
        let gained = owned - partitions;
        if gained.is_empty() {
            return true;
        }
        if !confirmed(self.store, notices, channels.join(&gained)).await {
            return false;
        }
        self.store.idle().follow(&gained);
        self.store.ownership().reload_owners(&gained);
        partitions.extend(gained);
        true
    }

    /// Leaves the channels of partitions that are not owned.
    async fn leave(&mut self, owned: &BTreeSet<u64>) -> bool {
        let Subscription { channels, notices, partitions } = &mut self.subscription;
        let lost = &*partitions - owned;
        if lost.is_empty() {
            return true;
        }
        self.store.idle().unfollow(&lost);
        partitions.retain(|partition| owned.contains(partition));
        confirmed(self.store, notices, channels.leave(&lost)).await
    }
}

/// Waits for the confirmation of a request, and forwards notices meanwhile.
async fn confirmed(
    store: &impl Partitioned,
    notices: &mut (impl Stream<Item = Notice> + Unpin + Send),
    request: impl Future<Output = bool> + Send,
) -> bool {
    let reply = beside(notices, request, |notice| take(store, notice));
    let late = store.engine().host.sleep(PING);
    matches!(select(pin!(reply), pin!(late)).await, Either::Left((Some(true), _)))
}

fn take(store: &impl Partitioned, notice: Notice) {
    match notice {
        Notice::Added((due, id)) => store.notify(&id, due),
        Notice::Heartbeat => store.ownership().request_checks(),
    }
}
