//! Notices: how a worker learns of near timers that somebody else has scheduled.
//!
//! Each script that puts a key within half a minute publishes it (`due:id`), and one that ends a
//! worker that it has left. A task subscribes, and tells the workers. A notice is a hint: one that
//! is doubled, late or out of order costs a refused lease at most. A lost notice would make a timer
//! late. Therefore **all near keys are loaded again when the subscription breaks, each second until
//! another one is established, and once more then**. A ping detects a subscription that broke
//! silently. Once a minute all near keys are loaded again in any case, which bounds the delay by a
//! notice that is lost without a trace (between two nodes of a cluster).
//!
//! Every node of a cluster forwards the notices of all nodes. The subscription is made with the
//! first node that answers, of those that were passed to `connect` and those that the cluster has
//! listed since.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::link::Link;
use futures_util::StreamExt;
use redis::RedisResult;
use redis::aio::PubSub;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How often the subscription is tried, and how long that may take. Notices that come meanwhile are
/// late by as much if the node has fallen silent.
const PING: Duration = Duration::from_secs(1);

/// How long one node has to let a subscription begin: the next may be there when it is not.
const BEGINS: Duration = Duration::from_secs(2);

/// How long to wait before another attempt to subscribe.
const PAUSE: Duration = Duration::from_millis(200);

/// How often all that is near is loaded again while no subscription stands.
const UNSUBSCRIBED: Duration = Duration::from_secs(1);

/// How often all that is near is loaded again.
const AGAIN: Duration = Duration::from_secs(60);

/// Where notices go.
pub(super) trait Subscriber: Send + Sync {
    /// A key is here.
    fn key_added(&self, due: Millis, id: &str);

    /// A worker has left.
    fn worker_left(&self);

    /// Notices may have been lost.
    fn notices_lost(&self);

    /// Notices are being lost.
    fn unsubscribed(&self);
}

/// Subscribes at the first of the known nodes that lets it.
pub(super) async fn subscribe(link: &Link, channel: &str) -> RedisResult<PubSub> {
    let mut last = Err((redis::ErrorKind::InvalidClientConfig, "no address").into());
    for node in link.clients() {
        let begun = async {
            let mut subscription = node.get_async_pubsub().await?;
            subscription.subscribe(channel).await?;
            Ok(subscription)
        };
        let late = || Err((redis::ErrorKind::Io, "no subscription in time").into());
        last = tokio::time::timeout(BEGINS, begun).await.unwrap_or_else(|_| late());
        if last.is_ok() {
            break;
        }
    }
    last
}

/// Tells of notices, for ever.
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
        subscriber.notices_lost();
        let mut next = pin!(next(link, channel));
        subscription = loop {
            match tokio::time::timeout(UNSUBSCRIBED, &mut next).await {
                Ok(subscription) => break subscription,
                Err(_) => subscriber.unsubscribed(),
            }
        };
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

/// Tells of notices until the subscription ends, or its node may have gone from its address.
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
