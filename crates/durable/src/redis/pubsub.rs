//! Notices, which tell a worker of timers in its window that another process has inserted.
//!
//! Each script that adds a key within the next 45 s publishes it (`due:id`), and so does a worker
//! that leaves. A task subscribes and notifies the workers. Notices are hints, so a duplicated,
//! late or misordered notice costs at most a rejected lease. A lost notice would make a timer late.
//! Therefore **all windows are loaded again when the subscription breaks, each second until another
//! is established, and once more then**. A ping detects a subscription that broke silently. Once a
//! minute all windows are loaded again in any case, which bounds the delay by a notice that is lost
//! without a trace (between two nodes of a cluster).
//!
//! Every node of a cluster forwards the notices of all nodes. The subscription is made with the
//! first node that replies, among the nodes that were passed to `connect` or listed by the cluster
//! since.

#![forbid(unsafe_code)]

use super::link::Link;
use crate::model::clock::Millis;
use futures_util::StreamExt;
use redis::RedisResult;
use redis::aio::PubSub;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// The interval between pings, and the timeout of each. If the node has become unresponsive,
/// notices are late by at most both.
const PING: Duration = Duration::from_secs(1);

/// The timeout for a node to accept a subscription, before the next node is tried.
const BEGINS: Duration = Duration::from_secs(2);

/// The wait before another attempt to subscribe.
const PAUSE: Duration = Duration::from_millis(200);

/// How often windows are loaded again while there is no subscription.
const UNSUBSCRIBED: Duration = Duration::from_secs(1);

/// How often windows are loaded again.
const AGAIN: Duration = Duration::from_secs(60);

/// A receiver of notices.
pub(super) trait Subscriber: Send + Sync {
    /// A key was added.
    fn key_added(&self, due: Millis, id: &str);

    /// A worker has left.
    fn worker_left(&self);

    /// The subscription has broken, or stands again.
    fn subscription(&self, stands: bool);

    /// Notices may have been lost.
    fn notices_lost(&self);

    /// Notices are being lost.
    fn unsubscribed(&self);
}

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
        last = tokio::time::timeout(BEGINS, begun).await.unwrap_or_else(|_| late());
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Forwards notices forever.
pub(super) async fn listen(
    link: Link,
    channel: String,
    first: PubSub,
    subscriber: Arc<dyn Subscriber>,
) {
    let regularly = async {
        loop {
            tokio::time::sleep(AGAIN).await;
            subscriber.notices_lost();
        }
    };
    futures_util::future::join(regularly, resume(&link, &channel, first, &*subscriber)).await;
}

async fn resume(link: &Link, channel: &str, first: PubSub, subscriber: &dyn Subscriber) {
    let mut subscription = first;
    loop {
        follow(subscription, subscriber, link).await;
        subscriber.subscription(false);
        subscriber.notices_lost();
        let mut next = pin!(next(link, channel));
        subscription = loop {
            match tokio::time::timeout(UNSUBSCRIBED, &mut next).await {
                Ok(subscription) => break subscription,
                Err(_) => subscriber.unsubscribed(),
            }
        };
        subscriber.subscription(true);
        subscriber.notices_lost();
    }
}

async fn next(link: &Link, channel: &str) -> PubSub {
    loop {
        tokio::time::sleep(PAUSE).await;
        if let Ok(subscription) = subscribe(link, channel).await {
            return subscription;
        }
    }
}

/// Forwards notices until the subscription ends, or its address may lead to another node.
async fn follow(subscription: PubSub, subscriber: &dyn Subscriber, link: &Link) {
    let moves = link.moves();
    let (mut sink, mut notices) = subscription.split();
    loop {
        match tokio::time::timeout(PING, notices.next()).await {
            Ok(None) => return,
            Ok(Some(notice)) => {
                let text = std::str::from_utf8(notice.get_payload_bytes()).unwrap_or_default();
                if let Some((due, id)) = text.split_once(':') {
                    if let Ok(due) = due.parse() {
                        subscriber.key_added(due, id);
                    }
                } else {
                    subscriber.worker_left();
                }
            }
            Err(_) => {
                if link.moves() != moves {
                    return;
                }
                let ping = tokio::time::timeout(PING, sink.ping::<redis::Value>());
                if !matches!(ping.await, Ok(Ok(_))) {
                    return;
                }
            }
        }
    }
}
