//! The notices of a store in Redis ([`Listener`]).
//!
//! Each script that adds a key within the next 45 s publishes it (`due:id`), and so does a worker
//! that leaves. A task subscribes and notifies the workers. A notice may be late or misordered. A
//! ping detects a subscription that broke silently. The regular load bounds the delay by a notice
//! that is lost without a trace (between two nodes of a cluster).
//!
//! Every node of a cluster forwards the notices of all nodes. The subscription is made with the
//! first node that replies, among the nodes that were passed to `connect` or listed by the cluster
//! since.

#![forbid(unsafe_code)]

use super::link::Link;
use super::operations::Operations;
use crate::store::ownership::Ownership;
use crate::store::remote::notices::{Listener, PING};
use futures_util::StreamExt;
use redis::RedisResult;
use redis::aio::PubSub;
use std::time::Duration;
use tokio::time::timeout;

/// The timeout for a node to accept a subscription, before the next node is tried.
const BEGINS: Duration = Duration::from_secs(2);

/// Subscribes at the first known node that accepts it.
pub(super) async fn subscribe(link: &Link, channel: &str) -> RedisResult<PubSub> {
    let mut last = Err((redis::ErrorKind::InvalidClientConfig, "no address").into());
    for node in link.clients() {
        let begun = async {
            let mut subscription = node.get_async_pubsub().await?;
            subscription.subscribe(channel).await?;
            Ok(subscription)
        };
        let late = || Err((redis::ErrorKind::Io, "subscribing timed out").into());
        last = timeout(BEGINS, begun).await.unwrap_or_else(|_| late());
        if last.is_ok() {
            break;
        }
    }
    last
}

impl Listener for Operations {
    type Subscription = PubSub;

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn forget(&self) {
        self.idle.forget();
    }

    async fn subscribe(&self) -> Option<PubSub> {
        subscribe(&self.link, &self.keys.channel()).await.ok()
    }

    /// Forwards notices until the subscription ends, or its address may lead to another node.
    async fn follow(&self, subscription: PubSub) -> bool {
        let moves = self.link.moves();
        let (mut sink, mut notices) = subscription.split();
        loop {
            match timeout(PING, notices.next()).await {
                Ok(None) => return true,
                Ok(Some(notice)) => {
                    let text = std::str::from_utf8(notice.get_payload_bytes()).unwrap_or_default();
                    match text.split_once(':').map(|(due, id)| (due.parse(), id)) {
                        Some((Ok(due), id)) => self.notify(id, due),
                        Some(_) => {}
                        // A worker has left.
                        None => self.ownership.request_checks(),
                    }
                }
                Err(_) if self.link.moves() != moves => return true,
                Err(_) => {
                    let ping = timeout(PING, sink.ping::<redis::Value>());
                    if !matches!(ping.await, Ok(Ok(_))) {
                        return true;
                    }
                }
            }
        }
    }
}
