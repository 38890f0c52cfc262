//! The notices of a store in PostgreSQL ([`Listener`]).
//!
//! Each transaction that adds a key within the next twelve seconds notifies the listeners when it
//! commits (`process:part:due:id`, or `from:due` for the rest of many keys), unless all listeners
//! are in the process that adds it. A worker that leaves, and a store that is paused, are announced
//! as well. A task listens on its own connection and notifies the workers. A key whose notice was
//! lost is late by a second (`sql/load.sql`). A statement detects a connection that broke silently.
//!
//! **A pooler may lose all notices without an error.** The task therefore sends a notice to itself
//! (`echo:number`) by another connection, when it begins to listen and once a minute. If the notice
//! does not arrive, the task reports that, and has windows loaded again each second until a notice
//! arrives.

#![forbid(unsafe_code)]

use super::link::Link;
use super::operations::Operations;
use super::params::params;
use crate::model::key::Change;
use crate::store::ownership::Ownership;
use crate::store::remote::notices::{Listener, PING, beside};
use crate::store::remote::retry::RetryPolicy;
use futures_util::StreamExt;
use futures_util::stream;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_postgres::{AsyncMessage, Client};
use tourbillon::{Clock, MonotonicClock};

/// The timeout for a server to accept a connection.
const BEGINS: Duration = Duration::from_secs(10);

/// How often the task sends a notice to itself.
const ECHO: Duration = Duration::from_secs(60);

/// How long the notice may take to arrive.
const ECHOES: Duration = Duration::from_secs(2);

/// A connection that listens, until its messages end.
pub(super) struct Subscription {
    client: Client,
    messages: stream::BoxStream<'static, String>,
}

impl Listener for Operations {
    type Subscription = Subscription;

    fn ownership(&self) -> &Ownership {
        &self.ownership
    }

    async fn subscribe(&self) -> Option<Subscription> {
        timeout(BEGINS, subscribe(&self.link, &self.schema.channel())).await.ok()?
    }

    async fn follow(&self, Subscription { client, mut messages }: Subscription) -> bool {
        let mut echo = Echo::new();
        loop {
            let mut notices = Vec::new();
            let mut stands = true;
            if echo.is_due() {
                let channel = self.schema.channel();
                let sending = echo.send(&self.link, &channel);
                let sent = beside(&mut messages, sending, |notice| notices.push(notice)).await;
                stands = sent.is_some();
            } else {
                match timeout(PING, messages.next()).await {
                    Ok(Some(notice)) => notices.push(notice),
                    Ok(None) => stands = false,
                    Err(_) => {
                        let ping = client.batch_execute("");
                        let ping = beside(&mut messages, ping, |notice| notices.push(notice));
                        stands = matches!(timeout(PING, ping).await, Ok(Some(Ok(()))));
                    }
                }
            }
            for notice in &notices {
                if !echo.take(notice) {
                    self.forward(notice);
                }
            }
            match echo.change() {
                Some(arrives) => {
                    self.report(arrives);
                    self.notices_lost();
                }
                None if echo.is_lost => self.unsubscribed(),
                None => {}
            }
            if !stands {
                return !echo.is_lost;
            }
        }
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
    // A reply arrives only while the messages are read.
    let listens = beside(&mut messages, client.batch_execute(&statement), |_| {}).await;
    listens?.ok()?;
    Some(Subscription { client, messages })
}

/// The notices that a task sends to itself.
struct Echo {
    /// The number of the notice that has not arrived yet, and when it was sent.
    pending: Option<(u64, Instant)>,
    /// Set if it has arrived since the last call of [`change`](Self::change).
    has_arrived: bool,
    /// The time of the next notice.
    next: Instant,
    /// Set if the last notice has not arrived in time.
    is_lost: bool,
}

impl Echo {
    fn new() -> Self {
        Self { pending: None, has_arrived: false, next: MonotonicClock.now(), is_lost: false }
    }

    fn is_due(&self) -> bool {
        MonotonicClock.now() >= self.next
    }

    /// Sends a notice. It may arrive before the reply. If the server cannot be reached, that shows
    /// nothing about notices.
    async fn send(&mut self, link: &Link, channel: &str) {
        let number = fastrand::u64(..);
        let payload = format!("echo:{number}");
        let params = params![channel, payload];
        let sql = "SELECT pg_catalog.pg_notify($1, $2)";
        let sent = timeout(ECHOES, link.query(RetryPolicy::Caller, sql, &params)).await;
        let now = MonotonicClock.now();
        let is_sent = matches!(sent, Ok(Ok(_)));
        self.pending = is_sent.then_some((number, now));
        self.next = now + if is_sent && !self.is_lost { ECHO } else { ECHOES * 2 };
    }

    /// Returns `true` if a notice was sent by a task to itself.
    fn take(&mut self, notice: &str) -> bool {
        let Some(number) = notice.strip_prefix("echo:") else { return false };
        if self.pending.is_some_and(|(pending, _)| number == pending.to_string()) {
            self.pending = None;
            self.has_arrived = true;
        }
        true
    }

    /// Returns whether notices arrive, if that has changed.
    fn change(&mut self) -> Option<bool> {
        let is_overdue = |(_, sent): (u64, Instant)| {
            MonotonicClock.now().saturating_duration_since(sent) > ECHOES
        };
        let is_lost = match std::mem::take(&mut self.has_arrived) {
            true => false,
            false => self.is_lost || self.pending.is_some_and(is_overdue),
        };
        (std::mem::replace(&mut self.is_lost, is_lost) != is_lost).then_some(!is_lost)
    }
}

impl Operations {
    fn forward(&self, notice: &str) {
        let key = || {
            let mut parts = notice.splitn(4, ':');
            let process: i64 = parts.next()?.parse().ok()?;
            let part = parts.next()?.parse().ok()?;
            let due = parts.next()?.parse().ok()?;
            Some((process, part, due, parts.next()?))
        };
        let from = || notice.strip_prefix("from:")?.parse().ok();
        if let Some((process, part, due, id)) = key() {
            // The workers of this process were notified with the reply.
            if process != self.process {
                let change = Change { removed: None, added: Some((due, Arc::from(id))) };
                self.ownership.notify(part, change);
            }
        } else if let Some(from) = from() {
            self.floors.lower(from);
            self.ownership.reload();
        } else {
            // A worker has left, or the store was paused or resumed.
            self.ownership.request_checks();
        }
    }
}
