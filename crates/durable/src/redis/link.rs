//! [`Link`], the connection to the node of a key, with the retry policy.
//!
//! The crate `redis` provides the connections. This module and its neighbours decide which node has
//! a slot ([`cluster`](super::cluster)), when a connection is replaced ([`node`](super::node)), and
//! when a request is retried ([`errors`](super::errors)).

#![forbid(unsafe_code)]

use super::cluster::Cluster;
use super::errors::{Fault, Setting, refused};
use super::node::{CONNECT_TIMEOUT, Connection, Node, Origin, PAUSES, REPLY_TIMEOUT};
use crate::error::DurableError;
use futures_util::future::BoxFuture;
use redis::{Client, Cmd, FromRedisValue, RedisError, RedisResult, Value, cmd};
use std::sync::Arc;
use std::time::Duration;

/// How long a request is retried.
#[derive(Clone, Copy, Debug)]
pub(super) enum RetryPolicy {
    /// Gives up after the [call timeout](super::RedisOptions::call_timeout).
    Caller,
    /// Retries until it succeeds, for a worker.
    Worker,
    /// Gives up after one reply timeout and the longest pause, because the request is repeated
    /// later.
    Page,
    /// Gives up after half a reply timeout, for a worker with other partitions to load. A
    /// background task then keeps trying this partition.
    Probe,
}

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
            let refused = |error| Fault::of(&error, setting).into_error().at(&names.join(", "));
            let late = |_| DurableError::Unreachable("connecting timed out".to_owned());
            let cluster = tokio::time::timeout(CONNECT_TIMEOUT, Cluster::connect(nodes)).await;
            let cluster = cluster.map_err(late).map_err(|error| error.at(&names.join(", ")))?;
            Ok(Self::Cluster(Arc::new(cluster.map_err(refused)?)))
        })
    }

    /// Returns how long a call is retried.
    pub(super) fn call_timeout(&self) -> Duration {
        match self {
            Self::Node(node) => node.origin().call_timeout,
            Self::Cluster(cluster) => cluster.call_timeout(),
        }
    }

    /// Returns the maximum duration of a request.
    pub(super) fn limit(&self, retry: RetryPolicy) -> Option<Duration> {
        match retry {
            RetryPolicy::Caller => Some(self.call_timeout()),
            // Enough to find that the connection does not reply.
            RetryPolicy::Page => Some(REPLY_TIMEOUT + PAUSES[1]),
            RetryPolicy::Probe => Some(REPLY_TIMEOUT / 2),
            RetryPolicy::Worker => None,
        }
    }

    /// Returns the connection to the node of a key.
    pub(super) fn connection(&self, key: &str) -> Connection {
        match self {
            Self::Node(node) => node.connection(),
            Self::Cluster(cluster) => cluster.master(key).connection(),
        }
    }

    /// Sends a request without side effects to the node of a key until a reply arrives.
    pub(super) async fn ask<T: FromRedisValue, F: Future<Output = RedisResult<Value>>>(
        &self,
        key: &str,
        retry: RetryPolicy,
        ask: impl Fn(Connection) -> F,
    ) -> Result<T, DurableError> {
        let said = self.ask_by(|| self.connection(key), retry, ask).await?;
        understood(said, key).map_err(|error| error.at(&self.connection(key).node.address()))
    }

    async fn ask_by<F: Future<Output = RedisResult<Value>>>(
        &self,
        connection: impl Fn() -> Connection,
        retry: RetryPolicy,
        ask: impl Fn(Connection) -> F,
    ) -> Result<Value, DurableError> {
        let (mut pause, mut why) = (PAUSES[0], String::new());
        let asked = async {
            loop {
                let connection = connection();
                let error = match ask(connection.clone()).await {
                    Ok(answer) => {
                        connection.node.served(false);
                        return Ok(answer);
                    }
                    Err(error) => error,
                };
                match self.fault(&connection, &error) {
                    Fault::Rejected(error) if !matches!(retry, RetryPolicy::Caller) => {
                        why = error.to_string();
                    }
                    Fault::Fatal(error) | Fault::Rejected(error) => return Err(error),
                    Fault::NotExecuted(error) | Fault::Ambiguous(error) => why = error,
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSES[1]);
            }
        };
        match self.limit(retry) {
            None => asked.await,
            Some(limit) => match tokio::time::timeout(limit, asked).await {
                Ok(answer) => answer,
                Err(_) if why.is_empty() => Err(no_reply(&connection().node)),
                Err(_) => Err(DurableError::Unreachable(why)),
            },
        }
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
    pub(super) fn fault(&self, connection: &Connection, error: &RedisError) -> Fault {
        connection.check(error);
        if let Self::Cluster(cluster) = self {
            cluster.check(&connection.node, error);
        }
        let node = &connection.node;
        let fault = Fault::of(error, node.setting(matches!(self, Self::Cluster(_))));
        let fault = fault.at(&node.address());
        node.failed(fault.temporary());
        fault
    }

    /// Returns the last error of a master that requests are repeated for, or the error that the
    /// master that has been silent for longest does not reply.
    pub(super) fn trouble(&self) -> Option<DurableError> {
        let masters = self.masters();
        let silent = || {
            let since = masters.iter().filter_map(|node| Some((node.silent_since()?, node)));
            since.min_by_key(|(since, _)| *since).map(|(_, node)| no_reply(node))
        };
        masters.iter().find_map(|node| node.trouble()).or_else(silent)
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
pub(super) fn no_reply(node: &Node) -> DurableError {
    DurableError::Unreachable(format!("{}: no reply", node.address()))
}

/// Returns a command that calls a script by its hash.
pub(super) fn call(script: &redis::Script, keys: &[String]) -> Cmd {
    let mut command = cmd("EVALSHA");
    command.arg(script.get_hash()).arg(keys.len()).arg(keys);
    command
}
