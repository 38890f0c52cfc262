//! [`Link`]: a connection to one node or to a cluster, and what its errors mean.
//!
//! The crate `redis` reconnects, and learns anew where the slots are; what is asked again, and with
//! which words, is decided here. **Retried unconditionally**: requests that certainly were not
//! executed (connection refused, slot moved, server still loading). **Retried under the same
//! number**: those that may have been executed, with the reply lost (`groups.rs`); the script then
//! returns the reply that it has kept, or executes them. So the client of a cluster must not repeat
//! anything by itself, and is told so.
//!
//! **A connection that does not answer in time is replaced** ([`Renewed`]). One that broke without
//! a word (its machine has gone, its address moved) looks to the system as if it stood, for a
//! quarter of an hour. And the client of a cluster may wait for itself for ever, when a node was
//! away and several calls have connected to it anew. That client is replaced, too, when it has lost
//! its way: it lets each node answer as a replica, so that from a master which has become one it
//! hears that nothing can be written there, and not who is master now. So is the connection to a
//! single node that has become a replica: its address may lead to the new master by now.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use crate::panics::ignore_poison;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, Script, ScriptInvocation,
    ServerErrorKind, Value, cmd,
};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(2);

/// The first and the longest wait before something is asked again.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// What is said of a right that is missing within a script, by Redis 7.0 and later ones.
const DENIED: [&str; 2] = ["The user executing the script can't", "ACL failure in script"];

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Somebody who wants to know after a while that there is none.
    Caller,
    /// A worker, which has nothing better to do.
    Worker,
    /// A worker, which can do without.
    Page,
}

/// How long a caller waits.
pub(super) const CALLER: Duration = Duration::from_secs(5);

impl Patience {
    /// How long it lasts.
    pub(super) fn limit(self) -> Option<Duration> {
        match self {
            Self::Caller => Some(CALLER),
            Self::Page => Some(ANSWER),
            Self::Worker => None,
        }
    }
}

/// How long a new connection to a cluster is kept at least.
const RENEWAL: Duration = Duration::from_millis(100);

/// A connection, shared by its clones, and how to get another.
#[derive(Clone)]
pub(super) struct Link(Arc<Renewed>);

struct Renewed {
    source: Source,
    current: Mutex<Current>,
}

enum Source {
    Node(Client),
    Cluster(Box<ClusterClient>),
}

#[derive(Clone)]
enum Connection {
    Node(ConnectionManager),
    Cluster(ClusterConnection),
}

struct Current {
    connection: Connection,
    /// How many there have been before.
    number: u64,
    /// Whether another is being made, or has just been.
    renewing: bool,
}

/// Why there is no answer.
pub(super) enum Fault {
    Final(DurableError),
    /// It was surely not done, and may be once somebody has seen to the server: a worker waits.
    Refused(DurableError),
    /// It was surely not done.
    Undone(String),
    /// It may have been done.
    Unknown(String),
}

impl Link {
    pub(super) async fn node(client: Client) -> Result<Self, DurableError> {
        Self::new(Source::Node(client)).await
    }

    pub(super) async fn cluster(nodes: Vec<String>) -> Result<Self, DurableError> {
        let client = ClusterClientBuilder::new(nodes)
            .retries(0)
            .connection_timeout(ANSWER)
            .response_timeout(ANSWER)
            .build();
        let client = client.map_err(|error| last(fault(&error, true)))?;
        Self::new(Source::Cluster(Box::new(client))).await
    }

    async fn new(source: Source) -> Result<Self, DurableError> {
        let connection = source.connect().await?;
        let current = Mutex::new(Current { connection, number: 0, renewing: false });
        Ok(Self(Arc::new(Renewed { source, current })))
    }

    /// Asks until there is an answer for something that changes nothing.
    pub(super) async fn ask<T, F: Future<Output = RedisResult<T>>>(
        &self,
        patience: Patience,
        ask: impl Fn(Self) -> F,
    ) -> Result<T, DurableError> {
        let (mut pause, mut why) = (PAUSES[0], String::new());
        let asked = async {
            loop {
                let number = self.number();
                let error = match ask(self.clone()).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                };
                match self.fault(number, &error) {
                    Fault::Refused(error) if !matches!(patience, Patience::Caller) => {
                        why = error.to_string();
                    }
                    Fault::Final(error) | Fault::Refused(error) => return Err(error),
                    Fault::Undone(error) | Fault::Unknown(error) => why = error,
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES[1]);
            }
        };
        match patience.limit() {
            None => asked.await,
            Some(limit) => match tokio::time::timeout(limit, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(DurableError::Unreachable(why)),
            },
        }
    }

    /// Which connection it is now.
    pub(super) fn number(&self) -> u64 {
        self.0.lock().number
    }

    /// How often the address of a single node may have led elsewhere.
    pub(super) fn moves(&self) -> u64 {
        if self.of_cluster() { 0 } else { self.number() }
    }

    fn of_cluster(&self) -> bool {
        matches!(self.0.source, Source::Cluster(_))
    }

    /// Sees to another connection if that one has lost its way.
    fn check(&self, number: u64, error: &RedisError) {
        let lost = error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly);
        if error.is_timeout() || lost {
            self.0.renew(number);
        }
    }

    pub(super) async fn script<T: FromRedisValue>(
        self,
        script: &ScriptInvocation<'_>,
    ) -> RedisResult<T> {
        match self.0.connection() {
            Connection::Node(mut node) => script.invoke_async(&mut node).await,
            Connection::Cluster(mut cluster) => script.invoke_async(&mut cluster).await,
        }
    }

    pub(super) async fn command<T: FromRedisValue>(self, command: Cmd) -> RedisResult<T> {
        self.query(&command).await
    }

    /// What a node tells of itself, or each master of a cluster.
    pub(super) async fn info(self, section: &str) -> RedisResult<Vec<String>> {
        let mut command = cmd("INFO");
        command.arg(section);
        match self.0.connection() {
            Connection::Node(mut node) => each(command.query_async(&mut node).await?),
            Connection::Cluster(mut cluster) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                each(cluster.route_command(command, masters).await?)
            }
        }
    }

    /// Runs a script by a command that names its hash, and loads it first if it is not known.
    pub(super) async fn evaluate(self, script: &Script, command: Cmd) -> RedisResult<Value> {
        let asked = self.query(&command).await;
        match asked.as_ref().map_err(RedisError::kind) {
            Err(ErrorKind::Server(ServerErrorKind::NoScript)) => {}
            _ => return asked,
        }
        match self.0.connection() {
            Connection::Node(mut node) => script.load_async(&mut node).await?,
            Connection::Cluster(mut cluster) => script.load_async(&mut cluster).await?,
        };
        self.query(&command).await
    }

    async fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        match self.0.connection() {
            Connection::Node(mut node) => command.query_async(&mut node).await,
            Connection::Cluster(mut cluster) => command.query_async(&mut cluster).await,
        }
    }

    /// What an error on the connection of that number means.
    pub(super) fn fault(&self, number: u64, error: &RedisError) -> Fault {
        self.check(number, error);
        fault(error, self.of_cluster())
    }
}

impl Renewed {
    fn lock(&self) -> MutexGuard<'_, Current> {
        ignore_poison(self.current.lock())
    }

    fn connection(&self) -> Connection {
        self.lock().connection.clone()
    }

    /// Puts another connection in the place of that number, unless somebody does or has done so. In
    /// a task of its own, as whoever asks may give up.
    fn renew(self: &Arc<Self>, number: u64) {
        let mut current = self.lock();
        if current.renewing || current.number != number {
            return;
        }
        current.renewing = true;
        drop(current);
        let link = Arc::clone(self);
        tokio::spawn(async move {
            if let Ok(connection) = link.source.connect().await {
                let mut current = link.lock();
                current.connection = connection;
                current.number += 1;
            }
            // The nodes may not agree yet: not one connection after another.
            tokio::time::sleep(RENEWAL).await;
            link.lock().renewing = false;
        });
    }
}

impl Source {
    /// A connection, if there is one in time.
    async fn connect(&self) -> Result<Connection, DurableError> {
        let connected = async {
            match self {
                Self::Node(client) => node(client.clone()).await.map(Connection::Node),
                Self::Cluster(client) => {
                    client.get_async_connection().await.map(Connection::Cluster)
                }
            }
        };
        let cluster = matches!(self, Self::Cluster(_));
        match tokio::time::timeout(CALLER, connected).await {
            Ok(connection) => connection.map_err(|error| last(fault(&error, cluster))),
            Err(_) => Err(DurableError::Unreachable("no connection in time".to_owned())),
        }
    }
}

async fn node(client: Client) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_number_of_retries(1)
        .set_max_delay(PAUSES[1])
        .set_connection_timeout(Some(ANSWER))
        .set_response_timeout(Some(ANSWER));
    ConnectionManager::new_with_config(client, config).await
}

/// What an error of a connection that cannot be made means.
pub(super) fn refused(error: &RedisError) -> DurableError {
    last(fault(error, false))
}

/// What each of several nodes has said, or the first error among them.
fn each(said: Value) -> RedisResult<Vec<String>> {
    let nodes = match said {
        Value::Map(nodes) => nodes.into_iter().map(|(_, said)| said).collect(),
        one => vec![one],
    };
    let text = |said: Value| Ok(redis::from_redis_value(said.extract_error()?)?);
    nodes.into_iter().map(text).collect()
}

fn last(fault: Fault) -> DurableError {
    match fault {
        Fault::Final(error) | Fault::Refused(error) => error,
        Fault::Undone(what) | Fault::Unknown(what) => DurableError::Unreachable(what),
    }
}

fn fault(error: &RedisError, cluster: bool) -> Fault {
    use ServerErrorKind as Server;
    let what = error.to_string();
    match error.kind() {
        ErrorKind::Server(Server::Moved | Server::Ask) if !cluster => {
            let advice = "a node of a cluster: `Redis::connect_cluster` is for it";
            Fault::Final(DurableError::Address(format!("{advice} ({what})")))
        }
        ErrorKind::Server(
            Server::Moved
            | Server::Ask
            | Server::TryAgain
            | Server::ClusterDown
            | Server::BusyLoading
            | Server::MasterDown
            | Server::NoScript,
        )
        | ErrorKind::ClusterConnectionNotFound => Fault::Undone(what),
        // A master that has just become a replica: the next connection learns who is master.
        ErrorKind::Server(Server::ReadOnly) if cluster => Fault::Undone(what),
        // The next connection may lead to the new one.
        ErrorKind::Server(Server::ReadOnly) => Fault::Refused(DurableError::ReadOnly(what)),
        ErrorKind::Server(Server::NoPerm) | ErrorKind::AuthenticationFailed => {
            Fault::Final(DurableError::Denied(what))
        }
        ErrorKind::Server(Server::ResponseError) if what.contains("non local key") => {
            Fault::Undone(what)
        }
        ErrorKind::Server(Server::ResponseError)
            if DENIED.iter().any(|said| what.contains(said)) =>
        {
            Fault::Final(DurableError::Denied(what))
        }
        ErrorKind::Extension => extension(error.code().unwrap_or_default(), what),
        ErrorKind::Io if error.is_connection_refusal() => Fault::Undone(what),
        ErrorKind::Io | ErrorKind::Parse => Fault::Unknown(what),
        ErrorKind::InvalidClientConfig => Fault::Final(DurableError::Address(what)),
        _ => Fault::Final(DurableError::Io(what)),
    }
}

fn extension(code: &str, what: String) -> Fault {
    Fault::Final(match code {
        "NOAUTH" | "WRONGPASS" => DurableError::Denied(what),
        "MISCONF" | "NOREPLICAS" | "OOM" => return Fault::Refused(DurableError::ReadOnly(what)),
        "TBCORRUPT" => DurableError::corrupt(what),
        // Another script runs for long.
        "BUSY" => return Fault::Undone(what),
        _ => DurableError::Io(what),
    })
}

#[cfg(test)]
mod tests {
    use super::{DurableError, Fault, fault};
    use redis::{ErrorKind, RedisError, ServerErrorKind};

    #[test]
    fn a_master_that_has_become_a_replica_is_left_for_another() {
        let read_only = ErrorKind::Server(ServerErrorKind::ReadOnly);
        let said = RedisError::from((read_only, "a replica takes no writes"));
        assert!(matches!(fault(&said, true), Fault::Undone(_)), "the cluster has another");
        let alone = fault(&said, false);
        assert!(matches!(alone, Fault::Refused(DurableError::ReadOnly(_))), "it may have none");
    }
}
