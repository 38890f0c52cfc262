//! [`Link`]: a connection to one node or to a cluster, and what its errors mean.
//!
//! The crate `redis` reconnects, and learns anew where the slots are; what is asked again, and with
//! which words, is decided here. **Asked again without a thought** is what surely was not done: the
//! connection was refused, the slot has moved, the server still loads. **Asked again under the same
//! number** is what may have been done, the answer being lost (`groups.rs`): the script then gives
//! the answer it has kept, or does what was not done. So the client of a cluster must not repeat
//! anything by itself, and is told so.
//!
//! **The client of a cluster is replaced when it has lost its way** ([`Cluster`]). It lets each
//! node answer as a replica too, so that from a master which has become one it hears that nothing
//! can be written there, and not who is master now. And it may wait for itself for ever, when a
//! node was away and several calls have connected to it anew.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::{
    Client, Cmd, ErrorKind, FromRedisValue, RedisError, RedisResult, Script, ScriptInvocation,
    ServerErrorKind, Value,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long an answer is waited for.
const ANSWER: Duration = Duration::from_secs(2);

/// The first and the longest wait before something is asked again.
pub(super) const PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];

/// Who waits for an answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Patience {
    /// Somebody who wants to know after a while that there is none.
    Caller,
    /// A worker, which has nothing better to do.
    Worker,
}

/// How long a caller waits.
pub(super) const CALLER: Duration = Duration::from_secs(5);

/// How long a new connection to a cluster is kept at least.
const RENEWAL: Duration = Duration::from_millis(100);

/// A connection, shared by its clones.
#[derive(Clone)]
pub(super) enum Link {
    Node(ConnectionManager),
    Cluster(Arc<Cluster>),
}

/// The connection to a cluster, and how to get another.
pub(super) struct Cluster {
    client: ClusterClient,
    current: Mutex<Current>,
}

struct Current {
    connection: ClusterConnection,
    /// How many there have been before.
    number: u64,
    /// Whether another is being made, or has just been.
    renewing: bool,
}

/// Why there is no answer.
pub(super) enum Fault {
    Final(DurableError),
    /// It was surely not done.
    Undone(String),
    /// It may have been done.
    Unknown(String),
}

impl Link {
    pub(super) async fn node(client: Client) -> Result<Self, DurableError> {
        let config = ConnectionManagerConfig::new()
            .set_number_of_retries(1)
            .set_max_delay(PAUSES[1])
            .set_connection_timeout(Some(ANSWER))
            .set_response_timeout(Some(ANSWER));
        let manager = ConnectionManager::new_with_config(client, config).await;
        manager.map(Self::Node).map_err(|error| last(fault(&error, false)))
    }

    pub(super) async fn cluster(nodes: Vec<String>) -> Result<Self, DurableError> {
        let client = ClusterClientBuilder::new(nodes)
            .retries(0)
            .connection_timeout(ANSWER)
            .response_timeout(ANSWER)
            .build();
        let client = client.map_err(|error| last(fault(&error, true)))?;
        let connection = connect(&client).await?;
        let current = Mutex::new(Current { connection, number: 0, renewing: false });
        Ok(Self::Cluster(Arc::new(Cluster { client, current })))
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
                let error = match ask(self.clone()).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) => error,
                };
                match self.fault(&error) {
                    Fault::Final(error) => return Err(error),
                    Fault::Undone(error) | Fault::Unknown(error) => why = error,
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES[1]);
            }
        };
        match patience {
            Patience::Worker => asked.await,
            Patience::Caller => match tokio::time::timeout(CALLER, asked).await {
                Ok(answer) => answer,
                Err(_) => Err(DurableError::Unreachable(why)),
            },
        }
    }

    pub(super) async fn script<T: FromRedisValue>(
        self,
        script: &ScriptInvocation<'_>,
    ) -> RedisResult<T> {
        match self {
            Self::Node(mut node) => script.invoke_async(&mut node).await,
            Self::Cluster(cluster) => {
                let (mut connection, number) = cluster.connection();
                cluster.checked(number, script.invoke_async(&mut connection).await)
            }
        }
    }

    pub(super) async fn command<T: FromRedisValue>(mut self, command: Cmd) -> RedisResult<T> {
        self.query(&command).await
    }

    /// Runs a script by a command that names its hash, and loads it first if it is not known.
    pub(super) async fn evaluate(mut self, script: &Script, command: Cmd) -> RedisResult<Value> {
        let asked = self.query(&command).await;
        match asked.as_ref().map_err(RedisError::kind) {
            Err(ErrorKind::Server(ServerErrorKind::NoScript)) => {}
            _ => return asked,
        }
        match &mut self {
            Self::Node(node) => script.load_async(node).await?,
            Self::Cluster(cluster) => {
                let (mut connection, number) = cluster.connection();
                cluster.checked(number, script.load_async(&mut connection).await)?
            }
        };
        self.query(&command).await
    }

    async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self {
            Self::Node(node) => command.query_async(node).await,
            Self::Cluster(cluster) => {
                let (mut connection, number) = cluster.connection();
                cluster.checked(number, command.query_async(&mut connection).await)
            }
        }
    }

    /// What an error means.
    pub(super) fn fault(&self, error: &RedisError) -> Fault {
        fault(error, matches!(self, Self::Cluster(_)))
    }
}

impl Cluster {
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection of now, and its number.
    fn connection(&self) -> (ClusterConnection, u64) {
        let current = self.lock();
        (current.connection.clone(), current.number)
    }

    /// Sees to another connection if that one has lost its way, as its answer shows.
    fn checked<T>(self: &Arc<Self>, number: u64, answer: RedisResult<T>) -> RedisResult<T> {
        let replica = ErrorKind::Server(ServerErrorKind::ReadOnly);
        if answer.as_ref().is_err_and(|error| error.kind() == replica || error.is_timeout()) {
            self.renew(number);
        }
        answer
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
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            if let Ok(connection) = connect(&cluster.client).await {
                let mut current = cluster.lock();
                current.connection = connection;
                current.number += 1;
            }
            // The nodes may not agree yet: not one connection after another.
            tokio::time::sleep(RENEWAL).await;
            cluster.lock().renewing = false;
        });
    }
}

/// A connection to a cluster, if there is one in time.
async fn connect(client: &ClusterClient) -> Result<ClusterConnection, DurableError> {
    match tokio::time::timeout(CALLER, client.get_async_connection()).await {
        Ok(connection) => connection.map_err(|error| last(fault(&error, true))),
        Err(_) => Err(DurableError::Unreachable("no connection to the cluster".to_owned())),
    }
}

/// What an error of a connection that cannot be made means.
pub(super) fn refused(error: &RedisError) -> DurableError {
    last(fault(error, false))
}

fn last(fault: Fault) -> DurableError {
    match fault {
        Fault::Final(error) => error,
        Fault::Undone(what) | Fault::Unknown(what) => DurableError::Unreachable(what),
    }
}

fn fault(error: &RedisError, cluster: bool) -> Fault {
    use ServerErrorKind as Server;
    let what = error.to_string();
    match error.kind() {
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
        ErrorKind::Server(Server::ReadOnly) => Fault::Final(DurableError::ReadOnly(what)),
        ErrorKind::Server(Server::NoPerm) | ErrorKind::AuthenticationFailed => {
            Fault::Final(DurableError::Denied(what))
        }
        ErrorKind::Server(Server::ResponseError) if what.contains("non local key") => {
            Fault::Undone(what)
        }
        ErrorKind::Extension => extension(error.code().unwrap_or_default(), what),
        ErrorKind::Io if error.is_connection_refusal() => Fault::Undone(what),
        ErrorKind::Io | ErrorKind::Parse => Fault::Unknown(what),
        ErrorKind::InvalidClientConfig => Fault::Final(DurableError::Option("the address")),
        _ => Fault::Final(DurableError::Io(what)),
    }
}

fn extension(code: &str, what: String) -> Fault {
    Fault::Final(match code {
        "NOAUTH" | "WRONGPASS" => DurableError::Denied(what),
        "MISCONF" | "NOREPLICAS" | "OOM" => DurableError::ReadOnly(what),
        "TBCORRUPT" => DurableError::Corrupt(what),
        // Another script runs for long.
        "BUSY" => return Fault::Undone(what),
        _ => DurableError::Io(what),
    })
}
