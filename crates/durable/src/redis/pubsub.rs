//! The notices of a store in Redis ([`Listener`]).
//!
//! Each script that adds a key within the next 45 s publishes it (`due:id`) on the channel of its
//! partition. Leaves of workers, pauses and resumptions are published on the channel of the store.
//! A task subscribes to the channel of the store and to the channels of the partitions that workers
//! of this process own, and notifies the workers ([`follow`]). Notices may be late or out of order.
//! A ping detects a subscription that broke silently. Two nodes of a cluster may lose a notice
//! without an error. The regular load bounds the delay that this causes.
//!
//! Every node of a cluster forwards the notices of all nodes. The subscription is made with the
//! first node that replies, among the nodes that were passed to `connect` or listed by the cluster
//! since. Sharded channels would need a connection to each master, and would move with their slots.

#![forbid(unsafe_code)]

use super::keys::Keys;
use super::link::Link;
use super::operations::Operations;
use crate::store::ownership::Ownership;
use crate::store::partitions::channels::{Channels, Notice, Subscription, follow};
use crate::store::remote::notices::Listener;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use redis::aio::{PubSub, PubSubSink};
use redis::{Msg, RedisResult, Value};
use std::collections::BTreeSet;
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The timeout for a node to accept a subscription, before the next node is tried.
const BEGINS: Duration = Duration::from_secs(2);

/// A connection with subscriptions, and its notices.
pub(super) type Subscribed = Subscription<ChannelSink, BoxStream<'static, Notice>>;

/// The requests of a connection with subscriptions.
pub(super) struct ChannelSink {
    sink: PubSubSink,
    keys: Keys,
    link: Link,
    /// The value of `Link::moves` when the connection was made.
    moves: u64,
}

/// Subscribes to the channels of the store and of some partitions, at the first known node that
/// accepts it.
pub(super) async fn subscribe(
    link: &Link,
    keys: &Keys,
    partitions: BTreeSet<u64>,
) -> RedisResult<Subscribed> {
    let moves = link.moves();
    let channels: Vec<String> =
        std::iter::once(keys.channel()).chain(channels_of(keys, &partitions)).collect();
    let connection = connect(link, &channels).await?;
    let (sink, messages) = connection.split();
    let notices = messages.filter_map(|message| ready(notice(&message))).boxed();
    let (keys, link) = (keys.clone(), link.clone());
    Ok(Subscription { channels: ChannelSink { sink, keys, link, moves }, notices, partitions })
}

async fn connect(link: &Link, channels: &[String]) -> RedisResult<PubSub> {
    let mut last = Err((redis::ErrorKind::InvalidClientConfig, "no address").into());
    for node in link.clients() {
        let begun = async {
            let mut connection = node.get_async_pubsub().await?;
            connection.subscribe(channels).await?;
            Ok(connection)
        };
        let late = || Err((redis::ErrorKind::Io, "subscribing timed out").into());
        last = timeout(BEGINS, begun).await.unwrap_or_else(|_| late());
        if last.is_ok() {
            break;
        }
    }
    last
}

fn channels_of(keys: &Keys, partitions: &BTreeSet<u64>) -> impl Iterator<Item = String> {
    partitions.iter().map(|partition| keys.channel_of(*partition))
}

/// Parses a notice. A text without a colon requests heartbeats, and any other message is ignored.
fn notice(message: &Msg) -> Option<Notice> {
    let text = std::str::from_utf8(message.get_payload_bytes()).ok()?;
    match text.split_once(':') {
        Some((due, id)) => Some(Notice::Added((due.parse().ok()?, Arc::from(id)))),
        None => Some(Notice::Heartbeat),
    }
}

impl ChannelSink {
    fn channels(&self, partitions: &BTreeSet<u64>) -> Vec<String> {
        channels_of(&self.keys, partitions).collect()
    }
}

impl Channels for ChannelSink {
    async fn join(&mut self, partitions: &BTreeSet<u64>) -> bool {
        let channels = self.channels(partitions);
        self.sink.subscribe(channels).await.is_ok()
    }

    async fn leave(&mut self, partitions: &BTreeSet<u64>) -> bool {
        let channels = self.channels(partitions);
        self.sink.unsubscribe(channels).await.is_ok()
    }

    /// Also returns `false` if the address may lead to another node now.
    async fn ping(&mut self) -> bool {
        self.link.moves() == self.moves && self.sink.ping::<Value>().await.is_ok()
    }
}

impl Listener for Operations {
    type Subscription = Subscribed;

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    fn forget(&self) {
        self.idle.forget();
    }

    async fn subscribe(&self) -> Option<Subscribed> {
        subscribe(&self.link, &self.keys, self.ownership.owned()).await.ok()
    }

    async fn follow(&self, subscription: Subscribed) -> bool {
        follow(self, subscription).await;
        true
    }
}
