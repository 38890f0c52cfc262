//! [`Node`], one server and the connection to it.
//!
//! The crate `redis` reconnects when a connection breaks. **A connection that does not reply in
//! time is replaced**, because a connection that broke silently (the machine is gone, or its
//! address has moved) appears intact to the system for a quarter of an hour. The connection is used
//! until its successor is established, because a server that is merely slow still replies on it. It
//! is also replaced when the credentials have changed, and when the sentinels may know another
//! master.

#![forbid(unsafe_code)]

use super::errors::Setting;
use super::sentinel::Sentinels;
use crate::panics::ignore_poison;
use crate::store::credentials::{Credentials, Values};
use crate::store::remote::retry::{MAX_PAUSE, REPLY_TIMEOUT};
use crate::store::remote::trouble::Trouble;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, RedisError, RedisResult, Script, ServerErrorKind, Value,
};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tourbillon::{Clock, MonotonicClock};

/// The timeout of connecting to a server, including the requests to its sentinels or to the nodes
/// of its cluster. Workers need connections too, so this is not the timeout of a call.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The minimum time that a new connection is kept.
pub(super) const RENEWAL: Duration = Duration::from_millis(100);

/// The address of a server, and how to connect to it.
#[derive(Clone)]
pub(super) struct Origin {
    /// The address and the way to connect. The address is not used if there are sentinels.
    pub(super) info: ConnectionInfo,
    /// The sentinels that know the address.
    pub(super) sentinels: Option<Arc<Sentinels>>,
    /// The credentials that override `info`.
    pub(super) credentials: Option<Credentials>,
    /// How long a call is retried.
    pub(super) call_timeout: Duration,
}

impl Origin {
    /// Returns a name for messages.
    pub(super) fn name(&self) -> String {
        match &self.sentinels {
            Some(sentinels) => format!("master {:?} of the sentinels", sentinels.name),
            None => self.info.addr().to_string(),
        }
    }

    /// Returns the connection information with the present credentials, and their version.
    fn signed_in(&self) -> (ConnectionInfo, u64) {
        let info = self.info.clone();
        let Some(credentials) = &self.credentials else { return (info, 0) };
        let Values { user, password, version } = credentials.values();
        // Without a name, the name in the address would be used.
        let user = if user.is_empty() { "default" } else { &user };
        let settings = info.redis_settings().clone();
        let settings = settings.set_username(user).set_password(password);
        (info.set_redis_settings(settings), version)
    }

    fn version(&self) -> u64 {
        self.credentials.as_ref().map_or(0, Credentials::version)
    }
}

/// A server, shared by all requests to it.
pub(super) struct Node {
    origin: Origin,
    current: Mutex<Current>,
    pub(super) trouble: Trouble,
    /// The time of the first request since the last reply.
    silent_since: Mutex<Option<Instant>>,
}

struct Current {
    client: Client,
    connection: ConnectionManager,
    /// The version of its credentials.
    version: u64,
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
    pub(super) async fn connect(origin: Origin) -> RedisResult<Self> {
        let (client, connection, version) = connect(&origin).await?;
        Ok(Self::new(origin, client, connection, version))
    }

    /// Returns a node that connects with the first request.
    pub(super) fn lazy(origin: Origin) -> RedisResult<Self> {
        let (info, version) = origin.signed_in();
        let client = Client::open(info)?;
        let connection = ConnectionManager::new_lazy_with_config(client.clone(), config())?;
        Ok(Self::new(origin, client, connection, version))
    }

    fn new(origin: Origin, client: Client, connection: ConnectionManager, version: u64) -> Self {
        let current = Current { client, connection, version, number: 0, renewing: false };
        let (trouble, silent_since) = (Trouble::default(), Mutex::default());
        Self { origin, current: Mutex::new(current), trouble, silent_since }
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Returns a client of the server, as it is now known.
    pub(super) fn client(&self) -> Client {
        self.lock().client.clone()
    }

    /// Returns the address for messages.
    pub(super) fn address(&self) -> String {
        self.lock().client.get_connection_info().addr().to_string()
    }

    /// Returns the setting of the node.
    pub(super) fn setting(&self, is_cluster: bool) -> Setting {
        let Origin { sentinels, credentials, .. } = &self.origin;
        let (has_sentinels, credentials_change) = (sentinels.is_some(), credentials.is_some());
        Setting { is_cluster, has_sentinels, credentials_change }
    }

    pub(super) fn connection(self: &Arc<Self>) -> Connection {
        let current = self.lock();
        let (connection, number) = (current.connection.clone(), current.number);
        let outdated = current.version != self.origin.version();
        drop(current);
        if outdated {
            self.renew(number);
        }
        Connection { node: Arc::clone(self), connection, number }
    }

    /// Returns the number of times that the connection was replaced.
    pub(super) fn number(&self) -> u64 {
        self.lock().number
    }

    /// Returns the time of the first request since the last reply.
    pub(super) fn silent_since(&self) -> Option<Instant> {
        *ignore_poison(self.silent_since.lock())
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
            let mut pause = MAX_PAUSE;
            if let Ok((client, connection, version)) = connect(&node.origin).await {
                let mut current = node.lock();
                (current.client, current.connection) = (client, connection);
                (current.version, current.number) = (version, current.number + 1);
                pause = RENEWAL;
            }
            // Limits the rate of new connections.
            tokio::time::sleep(pause).await;
            node.lock().renewing = false;
        });
    }
}

impl Connection {
    /// Requests another connection if this connection does not reply, or leads to a node that is
    /// not (or no longer) a master. The address may lead to another node by now. A connection that
    /// could not be established because of its credentials is never established by itself. If there
    /// are sentinels, a broken connection may have a successor at another address.
    pub(super) fn check(&self, error: &RedisError) {
        let lost = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        let denied = error.kind() == ErrorKind::AuthenticationFailed;
        let broken = error.kind() == ErrorKind::Io && self.node.origin.sentinels.is_some();
        if error.is_timeout() || lost || denied || broken {
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
        let silent_since = || ignore_poison(self.node.silent_since.lock());
        silent_since().get_or_insert_with(|| MonotonicClock.now());
        let late = || Err(io::Error::from(io::ErrorKind::TimedOut).into());
        let answer = command.query_async(&mut self.connection);
        let answer = tokio::time::timeout(REPLY_TIMEOUT, answer).await.unwrap_or_else(|_| late());
        if answer.as_ref().map_or_else(|error| error.kind() != ErrorKind::Io, |_| true) {
            *silent_since() = None;
        }
        answer
    }
}

/// Connects with the present credentials, to the present master if there are sentinels. Returns the
/// version of the credentials as well.
async fn connect(origin: &Origin) -> RedisResult<(Client, ConnectionManager, u64)> {
    let (info, version) = origin.signed_in();
    let connected = async {
        let client = match &origin.sentinels {
            Some(sentinels) => sentinels.master(&info).await?,
            None => Client::open(info)?,
        };
        let connection = ConnectionManager::new_with_config(client.clone(), config()).await?;
        Ok((client, connection, version))
    };
    let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "connecting timed out").into());
    tokio::time::timeout(CONNECT_TIMEOUT, connected).await.unwrap_or_else(late)
}

fn config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_max_delay(MAX_PAUSE)
        .set_connection_timeout(Some(REPLY_TIMEOUT))
        .set_response_timeout(Some(REPLY_TIMEOUT))
}
