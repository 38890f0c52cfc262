//! Notices, by which a worker learns of timers in its window that another process has inserted.
//!
//! Each transaction that adds a key within the next half minute notifies the listeners when it
//! commits (`process:part:due:id`), unless all of them are in the process that adds it. A worker
//! that leaves, and a store that is paused, are announced as well. A task listens on a connection
//! of its own and notifies the workers. Notices are hints, so one that is duplicated costs at most
//! a rejected lease, and a key whose notice was lost is late by a second (`sql/load.sql`). **All
//! windows are loaded again when the connection breaks, each second until another one listens, and
//! once more then.** A statement detects a connection that broke silently. Once a minute all
//! windows are loaded again in any case.

#![forbid(unsafe_code)]

use super::super::clock::Millis;
use super::link::Link;
use futures_util::StreamExt;
use futures_util::stream;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client};

/// The interval between statements that test the connection, and the time within which one must be
/// answered. If the server has become unresponsive, notices are late by at most both.
const PING: Duration = Duration::from_secs(1);

/// The time after which a server that does not accept a connection is given up.
const BEGINS: Duration = Duration::from_secs(10);

/// The wait before another attempt to listen.
const PAUSE: Duration = Duration::from_millis(200);

/// The interval at which windows are loaded again while nothing is listened to.
const UNSUBSCRIBED: Duration = Duration::from_secs(1);

/// The interval at which windows are loaded again.
const AGAIN: Duration = Duration::from_secs(60);

/// A receiver of notices.
pub(super) trait Subscriber: Send + Sync {
    /// A process has added a key.
    fn key_added(&self, process: i64, part: u64, due: Millis, id: &str);

    /// A worker has left, or the store was paused or resumed.
    fn workers_changed(&self);

    /// The connection has broken, or stands again.
    fn subscription(&self, stands: bool);

    /// Notices may have been lost.
    fn notices_lost(&self);

    /// Notices are being lost.
    fn unsubscribed(&self);
}

/// A connection that listens, until its messages end.
struct Subscription {
    client: Client,
    messages: stream::BoxStream<'static, String>,
}

/// Forwards notices forever.
pub(super) async fn listen<S: Subscriber + AsLink>(channel: String, subscriber: Arc<S>) {
    let regularly = async {
        loop {
            tokio::time::sleep(AGAIN).await;
            subscriber.notices_lost();
        }
    };
    futures_util::future::join(regularly, resume(&channel, &*subscriber)).await;
}

/// Has windows loaded once a second, forever.
pub(super) async fn poll(subscriber: Arc<impl Subscriber>) {
    loop {
        tokio::time::sleep(UNSUBSCRIBED).await;
        subscriber.unsubscribed();
    }
}

/// Something with connections to the server.
pub(super) trait AsLink: Send + Sync {
    fn link(&self) -> &Link;
}

async fn resume<S: Subscriber + AsLink>(channel: &str, subscriber: &S) {
    let mut first = true;
    loop {
        let mut next = pin!(next(subscriber.link(), channel));
        let subscription = loop {
            match timeout(UNSUBSCRIBED, &mut next).await {
                Ok(subscription) => break subscription,
                Err(_) => subscriber.unsubscribed(),
            }
        };
        if !std::mem::take(&mut first) {
            subscriber.subscription(true);
        }
        subscriber.notices_lost();
        follow(subscription, subscriber).await;
        subscriber.subscription(false);
        subscriber.notices_lost();
    }
}

async fn next(link: &Link, channel: &str) -> Subscription {
    loop {
        if let Ok(Some(subscription)) = timeout(BEGINS, subscribe(link, channel)).await {
            return subscription;
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn subscribe(link: &Link, channel: &str) -> Option<Subscription> {
    let (client, messages) = link.own().await.ok()?;
    let notices = messages.filter_map(|message| {
        std::future::ready(match message {
            AsyncMessage::Notification(notice) => Some(notice.payload().to_owned()),
            _ => None,
        })
    });
    let mut messages = notices.boxed();
    let statement = format!("LISTEN \"{channel}\"");
    let listens = beside(&mut messages, client.batch_execute(&statement), |_| {}).await;
    listens?.ok()?;
    Some(Subscription { client, messages })
}

/// Waits for a reply, which arrives only while the messages are read. Returns `None` if the
/// connection has ended.
async fn beside<T>(
    messages: &mut stream::BoxStream<'static, String>,
    reply: impl Future<Output = T>,
    mut notice: impl FnMut(String),
) -> Option<T> {
    let mut reply = pin!(reply);
    loop {
        match futures_util::future::select(&mut reply, messages.next()).await {
            futures_util::future::Either::Left((reply, _)) => return Some(reply),
            futures_util::future::Either::Right((Some(message), _)) => notice(message),
            futures_util::future::Either::Right((None, _)) => return None,
        }
    }
}

/// Forwards notices until the connection ends or is silent.
async fn follow(subscription: Subscription, subscriber: &impl Subscriber) {
    let Subscription { client, mut messages } = subscription;
    loop {
        match timeout(PING, messages.next()).await {
            Ok(None) => return,
            Ok(Some(notice)) => forward(&notice, subscriber),
            Err(_) => {
                let ping = client.batch_execute("");
                let ping = beside(&mut messages, ping, |notice| forward(&notice, subscriber));
                if !matches!(timeout(PING, ping).await, Ok(Some(Ok(())))) {
                    return;
                }
            }
        }
    }
}

fn forward(notice: &str, subscriber: &impl Subscriber) {
    let read = || {
        let mut parts = notice.splitn(4, ':');
        let process = parts.next()?.parse().ok()?;
        let part = parts.next()?.parse().ok()?;
        let due = parts.next()?.parse().ok()?;
        subscriber.key_added(process, part, due, parts.next()?);
        Some(())
    };
    if read().is_none() {
        subscriber.workers_changed();
    }
}
