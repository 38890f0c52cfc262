//! Keys that expire, by the protocol of Redis. All connections share one map in one lock, with the
//! expiries in a delay queue, and a task removes the keys that are due.

use super::super::time::{DelayQueue, Instant, delay_queue};
use super::server::Connection;
use crate::audit::Audit;
use redis_protocol::bytes::Bytes;
use redis_protocol::resp2::types::BytesFrame;
use std::collections::HashMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tourbillon_servers::command::{self, Command};
use tourbillon_servers::process::Failure;

/// The keys.
#[derive(Default)]
pub(crate) struct Store(Mutex<Keys>);

#[derive(Default)]
struct Keys {
    live: HashMap<Bytes, Live>,
    expiries: DelayQueue<Bytes>,
}

/// A key that has not expired.
struct Live {
    value: Bytes,
    expires_at: Instant,
    expiry: delay_queue::Key,
}

impl Store {
    /// Answers the commands of one connection until it ends.
    pub(crate) async fn answer(self: Arc<Self>, stream: impl Connection) -> Result<(), Failure> {
        Ok(command::answer(stream, |command| self.keys().apply(command)).await?)
    }

    fn keys(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes keys when they expire, until it is dropped.
    pub(crate) async fn expire(&self, audit: &Audit) {
        poll_fn(|context| self.keys().poll_expire(context, audit)).await;
    }
}

impl Keys {
    /// Executes a command and returns the answer.
    fn apply(&mut self, command: Command) -> BytesFrame {
        match command {
            Command::Set(key, value, life) => {
                // Copied, because both are parts of the buffer that was read.
                let (key, value) = (Bytes::copy_from_slice(&key), Bytes::copy_from_slice(&value));
                self.set(key, value, life);
                BytesFrame::SimpleString(Bytes::from_static(b"OK"))
            }
            Command::Expire(key, life) => BytesFrame::Integer(self.expire_after(&key, life).into()),
            Command::Get(key) => match self.live.get(&key) {
                Some(live) => BytesFrame::BulkString(live.value.clone()),
                None => BytesFrame::Null,
            },
            Command::Size => {
                BytesFrame::Integer(i64::try_from(self.live.len()).unwrap_or(i64::MAX))
            }
        }
    }

    fn set(&mut self, key: Bytes, value: Bytes, life: Duration) {
        if self.expire_after(&key, life) {
            if let Some(live) = self.live.get_mut(&key) {
                live.value = value;
            }
            return;
        }
        let expires_at = Instant::now() + life;
        let expiry = self.expiries.insert_at(key.clone(), expires_at);
        self.live.insert(key, Live { value, expires_at, expiry });
    }

    /// Changes when a key expires, and returns `true` if there is such a key.
    fn expire_after(&mut self, key: &Bytes, life: Duration) -> bool {
        let Some(live) = self.live.get_mut(key) else {
            return false;
        };
        live.expires_at = Instant::now() + life;
        self.expiries.reset_at(&live.expiry, live.expires_at);
        true
    }

    /// Removes keys that have expired, and is never ready.
    fn poll_expire(&mut self, context: &mut Context<'_>, audit: &Audit) -> Poll<()> {
        // An empty queue keeps the waker too.
        while let Poll::Ready(Some(expired)) = self.expiries.poll_expired(context) {
            if let Some(live) = self.live.remove(expired.get_ref()) {
                audit.fire(live.expires_at);
            }
        }
        Poll::Pending
    }
}
