//! [`Link`], the connection to the node of a key.
//!
//! The crate `redis` provides the connections. This module and its neighbours decide which node has
//! a slot ([`cluster`](super::cluster)), when a connection is replaced ([`node`](super::node)), and
//! when a request is retried ([`errors`](super::errors)).

#![forbid(unsafe_code)]

use super::cluster::Cluster;
use super::errors::{Setting, classified, refused};
use super::node::{CONNECT_TIMEOUT, Connection, Node, Origin};
use crate::error::DurableError;
#[cfg(feature = "log")]
use crate::store::remote::error::Kind;
use crate::store::remote::error::RequestError;
use crate::store::remote::retry::{RetryPolicy, retry};
use futures_util::future::BoxFuture;
use redis::{Client, Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// A single node or a cluster. Clones share the connections.
#[derive(Clone)]
pub(super) enum Link {
    Node(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Link {
    /// Connects to a single node.
    pub(super) fn node(origin: Origin) -> BoxFuture<'static, Result<Self, DurableError>> {
        Box::pin(async move {
            let name = origin.name();
            let node = Node::connect(origin).await;
            Ok(Self::Node(Arc::new(node.map_err(|error| refused(&error).at(&name))?)))
        })
    }

    /// Connects to a cluster through some of its nodes.
    pub(super) fn cluster(nodes: Vec<Origin>) -> BoxFuture<'static, Result<Self, DurableError>> {
        Box::pin(async move {
            let names: Vec<String> = nodes.iter().map(Origin::name).collect();
            let setting = Setting { is_cluster: true, ..Setting::default() };
            let refused = |error| classified(&error, setting).error.at(&names.join(", "));
            let late = |_| DurableError::Unreachable("connecting timed out".to_owned());
            let cluster = tokio::time::timeout(CONNECT_TIMEOUT, Cluster::connect(nodes)).await;
            let cluster = cluster.map_err(late).map_err(|error| error.at(&names.join(", ")))?;
            Ok(Self::Cluster(Arc::new(cluster.map_err(refused)?)))
        })
    }

    /// Connects to the same node or cluster once more.
    #[cfg(feature = "log")]
    pub(super) fn again(&self) -> BoxFuture<'static, Result<Self, DurableError>> {
        match self {
            Self::Node(node) => Self::node(node.origin().clone()),
            Self::Cluster(cluster) => {
                Self::cluster(cluster.nodes().iter().map(|node| node.origin().clone()).collect())
            }
        }
    }

    /// Returns how long a call is retried.
    fn call_timeout(&self) -> Duration {
        match self {
            Self::Node(node) => node.origin().call_timeout,
            Self::Cluster(cluster) => cluster.call_timeout(),
        }
    }

    /// Returns the connection to the node of a key.
    pub(super) fn connection(&self, key: &str) -> Connection {
        match self {
            Self::Node(node) => node.connection(),
            Self::Cluster(cluster) => cluster.master(key).connection(),
        }
    }

    /// Returns the error for a node of a key that has not replied so far.
    pub(super) fn silence(&self, key: &str) -> DurableError {
        no_reply(&self.connection(key).node)
    }

    /// Sends a request without side effects to the node of a key until a reply arrives.
    pub(super) async fn ask<T: FromRedisValue, F: Future<Output = RedisResult<Value>>>(
        &self,
        key: &str,
        policy: RetryPolicy,
        ask: impl Fn(Connection) -> F,
    ) -> Result<T, DurableError> {
        let said = self.ask_by(|| self.connection(key), policy, ask).await?;
        understood(said, key).map_err(|error| error.at(&self.connection(key).node.address()))
    }

    /// Calls a script on the node of a key, and executes it at most once. A read before the call
    /// finds out if the connection has broken, because a call whose reply is lost is not repeated.
    #[cfg(feature = "log")]
    pub(super) async fn call_once<T: FromRedisValue>(
        &self,
        key: &str,
        script: &redis::Script,
        call: &Cmd,
    ) -> Result<T, DurableError> {
        let once = |_| async {
            let connection = self.connection(key);
            let mut read = cmd("EXISTS");
            read.arg(key);
            let found = connection.clone().command(read).await;
            found.map_err(|error| self.failed(&connection, &error))?;
            let said = connection.clone().evaluate(script, call.clone()).await;
            said.map_err(|error| match self.failed(&connection, &error) {
                RequestError { kind: Kind::Ambiguous, error } => {
                    RequestError { kind: Kind::Fatal, error }
                }
                error => error,
            })
        };
        let policy = (RetryPolicy::Caller, self.call_timeout());
        let said = retry(&Handle::current(), policy, once, || self.silence(key)).await?;
        understood(said, key)
    }

    async fn ask_by<F: Future<Output = RedisResult<Value>>>(
        &self,
        connection: impl Fn() -> Connection,
        policy: RetryPolicy,
        ask: impl Fn(Connection) -> F,
    ) -> Result<Value, DurableError> {
        let once = |_| async {
            let connection = connection();
            let answer = ask(connection.clone()).await;
            let answer = answer.map_err(|error| self.failed(&connection, &error))?;
            connection.node.trouble.succeeded(false);
            Ok(answer)
        };
        let silence = || no_reply(&connection().node);
        retry(&Handle::current(), (policy, self.call_timeout()), once, silence).await
    }

    /// Sends a read-only command to the node, or to each master of a cluster. Returns the addresses
    /// with the replies.
    pub(super) async fn ask_masters(
        &self,
        command: &Cmd,
    ) -> Vec<(String, Result<Value, DurableError>)> {
        let nodes = self.masters();
        let each = nodes.iter().map(|node| async {
            let ask = |connection: Connection| connection.command(command.clone());
            let said = self.ask_by(|| node.connection(), RetryPolicy::Page, ask).await;
            (node.address(), said)
        });
        futures_util::future::join_all(each).await
    }

    /// Classifies an error of a connection. If necessary, requests another connection and refreshes
    /// the topology.
    pub(super) fn failed(&self, connection: &Connection, error: &RedisError) -> RequestError {
        connection.check(error);
        if let Self::Cluster(cluster) = self {
            cluster.check(&connection.node, error);
        }
        let node = &connection.node;
        let error = classified(error, node.setting(matches!(self, Self::Cluster(_))));
        let error = error.at(&node.address());
        node.trouble.failed(&error);
        error
    }

    /// Returns the last error of a master that requests are repeated for, or the error that the
    /// master that has been silent for longest does not reply.
    pub(super) fn trouble(&self) -> Option<DurableError> {
        let masters = self.masters();
        let silent = || {
            let since = masters.iter().filter_map(|node| Some((node.silent_since()?, node)));
            since.min_by_key(|(since, _)| *since).map(|(_, node)| no_reply(node))
        };
        masters.iter().find_map(|node| node.trouble.last()).or_else(silent)
    }

    fn masters(&self) -> Vec<Arc<Node>> {
        match self {
            Self::Node(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.masters(),
        }
    }

    /// Returns the clients of all known nodes.
    pub(super) fn clients(&self) -> Vec<Client> {
        let nodes = match self {
            Self::Node(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.nodes(),
        };
        nodes.iter().map(|node| node.client()).collect()
    }

    /// Returns the number of times that the address of a single node may have changed its target.
    pub(super) fn moves(&self) -> u64 {
        match self {
            Self::Node(node) => node.number(),
            Self::Cluster(_) => 0,
        }
    }
}

/// Converts a reply to its type. A reply of another type arrived completely, so another program
/// wrote to the store and the connection is intact.
pub(super) fn understood<T: FromRedisValue>(said: Value, about: &str) -> Result<T, DurableError> {
    let unexpected =
        |error| DurableError::corrupt(format!("unexpected reply about {about}: {error}"));
    redis::from_redis_value(said).map_err(unexpected)
}

/// Returns the error for a node that has not replied so far.
fn no_reply(node: &Node) -> DurableError {
    DurableError::Unreachable(format!("{}: no reply", node.address()))
}

/// Returns a command that calls a script by its hash.
pub(super) fn call(script: &redis::Script, keys: &[String]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(script.get_hash()).arg(keys.len()).arg(keys);
    command
}
