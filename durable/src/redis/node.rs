//! [`Node`], one server and the connection to it.
//!
//! The crate `redis` reconnects when a connection breaks. **A connection that does not reply in
//! time is replaced**, because one that broke silently (the machine is gone, or its address has
//! moved) appears intact to the system for a quarter of an hour. The connection is used until its
//! successor is established, because a server that is merely slow still replies on it.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, Cmd, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The reply timeout.
pub(super) const ANSWER: Duration = Duration::from_secs(2);

/// The first and the longest wait before a retry.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// The minimum time for which a new connection is kept.
pub(super) const RENEWAL: Duration = Duration::from_millis(100);

/// A server, shared by all requests to it.
pub(super) struct Node {
    client: Client,
    current: Mutex<Current>,
}

struct Current {
    connection: ConnectionManager,
    /// The number of earlier connections.
    number: u64,
    /// Set while another connection is being established, and for a moment after that.
    renewing: bool,
}

/// The connection to a node at some time.
#[derive(Clone)]
pub(super) struct Connection {
    pub(super) node: Arc<Node>,
    connection: ConnectionManager,
    number: u64,
}

impl Node {
    /// Connects to a node.
    pub(super) async fn connect(client: Client) -> RedisResult<Self> {
        let connection = ConnectionManager::new_with_config(client.clone(), config()).await?;
        Ok(Self::new(client, connection))
    }

    /// Returns a node to which the first request connects.
    pub(super) fn lazy(client: Client) -> RedisResult<Self> {
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config())?;
        Ok(Self::new(client, connection))
    }

    fn new(client: Client, connection: ConnectionManager) -> Self {
        let current = Mutex::new(Current { connection, number: 0, renewing: false });
        Self { client, current }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    pub(super) fn connection(self: &Arc<Self>) -> Connection {
        let current = self.lock();
        let (connection, number) = (current.connection.clone(), current.number);
        Connection { node: Arc::clone(self), connection, number }
    }

    /// Returns the number of times that the connection was replaced.
    pub(super) fn number(&self) -> u64 {
        self.lock().number
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        ignore_poison(self.current.lock())
    }

    /// Replaces the connection with this number, unless that has been done or is in progress. Runs
    /// in a separate task, because the caller may give up.
    fn renew(self: &Arc<Self>, number: u64) {
        let mut current = self.lock();
        if current.renewing || current.number != number {
            return;
        }
        current.renewing = true;
        drop(current);
        let node = Arc::clone(self);
        tokio::spawn(async move {
            let client = node.client.clone();
            if let Ok(connection) = ConnectionManager::new_with_config(client, config()).await {
                let mut current = node.lock();
                current.connection = connection;
                current.number += 1;
            }
            // Limits the rate of new connections.
            tokio::time::sleep(RENEWAL).await;
            node.lock().renewing = false;
        });
    }
}

impl Connection {
    /// Requests another connection if this one does not reply, or leads to a node that is not (or
    /// no longer) a master. The address may lead to another node by now.
    pub(super) fn check(&self, error: &RedisError) {
        let lost = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        if error.is_timeout() || lost {
            self.node.renew(self.number);
        }
    }

    /// Sends a command and waits for the reply, including the time to connect.
    pub(super) async fn command(mut self, command: Cmd) -> RedisResult<Value> {
        self.query(&command).await
    }

    /// Runs a script by its hash, and loads it first if the server does not know it.
    pub(super) async fn evaluate(mut self, script: &Script, command: Cmd) -> RedisResult<Value> {
        let asked = self.query(&command).await;
        match asked.as_ref().map_err(RedisError::kind) {
            Err(ErrorKind::Server(ServerErrorKind::NoScript)) => {}
            _ => return asked,
        }
        script.load_async(&mut self.connection).await?;
        self.query(&command).await
    }

    async fn query(&mut self, command: &Cmd) -> RedisResult<Value> {
        let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let answer = command.query_async(&mut self.connection);
        tokio::time::timeout(ANSWER, answer).await.unwrap_or_else(|_| late())
    }
}

fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_max_delay(PAUSES[1])
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER))
}
