//! [`Cluster`], the nodes of a cluster, and the master of each slot.
//!
//! **Each node has its own connection**, so that an unresponsive node delays no request to another.
//! (The cluster client of the crate `redis` connects to all nodes in one step, serves no request
//! meanwhile, and repeats the step whenever the node of a slot is missing.)
//!
//! **The topology is refreshed** with `CLUSTER SLOTS` when a request fails because the slot has
//! moved, the connection broke, or there was no reply in time. The node that reported the move is
//! asked first, then the known masters, then every node that was ever named by `connect` or by the
//! cluster. A cluster is therefore still found after all nodes passed to `connect` were replaced.

#![forbid(unsafe_code)]

use super::node::{Node, Origin, RENEWAL};
use crate::panics::ignore_poison;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::cluster_routing::Slot;
use redis::{
    Client, ConnectionAddr, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value, cmd,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A host and a port.
type Address = (String, u16);

pub(super) struct Cluster {
    /// The nodes that were passed to `connect`.
    named: Vec<Arc<Node>>,
    topology: Mutex<Topology>,
}

struct Topology {
    masters: HashMap<Slot, Arc<Node>>,
    /// All nodes that the cluster has listed, including replicas.
    nodes: BTreeMap<Address, Arc<Node>>,
    /// The node that has listed them. It rejects requests for a slot without a node.
    source: Arc<Node>,
    /// Set during a refresh, and for a moment after it.
    learning: bool,
}

impl Cluster {
    /// Connects to a cluster through some of its nodes.
    pub(super) async fn connect(origins: Vec<Origin>) -> RedisResult<Self> {
        let named = origins.into_iter().map(|origin| Node::lazy(origin).map(Arc::new));
        let named: Vec<Arc<Node>> = named.collect::<RedisResult<_>>()?;
        let (source, shards) = first_description(&named).await?;
        let (masters, nodes, first) = (HashMap::new(), BTreeMap::new(), Arc::clone(&source));
        let topology = Mutex::new(Topology { masters, nodes, source: first, learning: false });
        let cluster = Self { named, topology };
        cluster.learn(source, shards);
        Ok(cluster)
    }

    /// Returns how long a call is retried.
    pub(super) fn call_timeout(&self) -> Duration {
        self.lock().source.origin().call_timeout
    }

    /// Returns the master of the slot of a key, as far as it is known.
    pub(super) fn master(&self, key: &str) -> Arc<Node> {
        let topology = self.lock();
        Arc::clone(topology.masters.get(&Slot::for_key(key)).unwrap_or(&topology.source))
    }

    /// Returns the masters of all slots.
    pub(super) fn masters(&self) -> Vec<Arc<Node>> {
        distinct(self.lock().masters.values())
    }

    /// Returns all nodes that were ever named, starting with the nodes passed to `connect`.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        distinct(self.named.iter().chain(self.lock().nodes.values()))
    }

    /// Refreshes the topology if an error of a node indicates that it may have changed.
    pub(super) fn check(self: &Arc<Self>, node: &Arc<Node>, error: &RedisError) {
        use ServerErrorKind::{ClusterDown, MasterDown, Moved, ReadOnly};
        let first = match error.kind() {
            ErrorKind::Server(Moved) => Some(Arc::clone(node)),
            ErrorKind::Io | ErrorKind::Server(ClusterDown | MasterDown | ReadOnly) => None,
            _ => return,
        };
        if std::mem::replace(&mut self.lock().learning, true) {
            return;
        }
        let cluster = Arc::clone(self);
        tokio::spawn(async move {
            for some in [first.into_iter().collect(), cluster.masters(), cluster.nodes()] {
                if let Ok((source, shards)) = first_description(&some).await {
                    cluster.learn(source, shards);
                    break;
                }
            }
            // The nodes may not agree yet.
            tokio::time::sleep(RENEWAL).await;
            cluster.lock().learning = false;
        });
    }

    /// Adopts the nodes that a node has listed. Known nodes keep their connections.
    fn learn(&self, source: Arc<Node>, shards: Vec<Shard>) {
        let mut topology = self.lock();
        let old = std::mem::take(&mut topology.nodes);
        let before = self.named.iter().filter_map(|node| Some((address(&node.client())?, node)));
        let before: BTreeMap<Address, &Arc<Node>> =
            before.chain(old.iter().map(|(address, node)| (address.clone(), node))).collect();
        topology.masters.clear();
        for Shard { slots, nodes } in shards {
            let mut master = None;
            for address in nodes {
                let node = topology.nodes.get(&address).or(before.get(&address).copied()).cloned();
                let node = node.or_else(|| at(&address, &source).ok().map(Arc::new));
                let Some(node) = node else { continue };
                topology.nodes.insert(address, Arc::clone(&node));
                master.get_or_insert(node);
            }
            let Some(master) = master else { continue };
            let slots = slots.filter_map(Slot::new);
            topology.masters.extend(slots.map(|slot| (slot, Arc::clone(&master))));
        }
        topology.source = source;
    }

    fn lock(&self) -> MutexGuard<'_, Topology> {
        ignore_poison(self.topology.lock())
    }
}

fn distinct<'a>(nodes: impl Iterator<Item = &'a Arc<Node>>) -> Vec<Arc<Node>> {
    let mut all: Vec<Arc<Node>> = Vec::new();
    for node in nodes {
        if !all.iter().any(|one| Arc::ptr_eq(one, node)) {
            all.push(Arc::clone(node));
        }
    }
    all
}

/// A range of slots and its nodes, master first.
#[derive(Debug, PartialEq, Eq)]
struct Shard {
    slots: std::ops::RangeInclusive<u16>,
    nodes: Vec<Address>,
}

/// Returns the topology from the first node that replies, or the reason why no node does.
async fn first_description(nodes: &[Arc<Node>]) -> RedisResult<(Arc<Node>, Vec<Shard>)> {
    let mut asked: FuturesUnordered<_> = nodes
        .iter()
        .map(|node| async move {
            let mut command = cmd("CLUSTER");
            command.arg("SLOTS");
            let connection = node.connection();
            let error = match connection.clone().command(command).await {
                Ok(said) => match read(said, &node.client()) {
                    // The node was removed from the cluster, or has not been added yet.
                    none if none.is_empty() => (ErrorKind::Io, "the node has no slots").into(),
                    shards => return Ok((Arc::clone(node), shards)),
                },
                Err(error) => error,
            };
            connection.check(&error);
            Err(error)
        })
        .collect();
    let mut why = RedisError::from((ErrorKind::InvalidClientConfig, "no address"));
    while let Some(shards) = asked.next().await {
        match shards {
            Ok(shards) => return Ok(shards),
            // The error of a node that replied is more useful than a timeout of another.
            Err(error) if matches!(why.kind(), ErrorKind::InvalidClientConfig | ErrorKind::Io) => {
                why = error;
            }
            Err(_) => {}
        }
    }
    Err(why)
}

/// Parses the reply to `CLUSTER SLOTS`. A node without a host has the host of the source, and a
/// node whose host is unknown is left out.
fn read(said: Value, source: &Client) -> Vec<Shard> {
    let here = address(source).map_or(String::new(), |(host, _)| host);
    let Value::Array(said) = said else { return Vec::new() };
    let one = |part: Value| {
        let Value::Array(part) = part else { return None };
        let [Value::Int(first), Value::Int(last), nodes @ ..] = &part[..] else { return None };
        let node = |node: &Value| {
            let Value::Array(node) = node else { return None };
            let [host, Value::Int(port), ..] = &node[..] else { return None };
            let host = match host {
                Value::Nil => "",
                Value::BulkString(host) => std::str::from_utf8(host).ok()?,
                Value::SimpleString(host) => host,
                _ => return None,
            };
            let host = match host {
                "?" => return None,
                "" | "0.0.0.0" | "::" => &here,
                host => host,
            };
            Some((host.to_owned(), u16::try_from(*port).ok()?))
        };
        let slots = u16::try_from(*first).ok()?..=u16::try_from(*last).ok()?;
        Some(Shard { slots, nodes: nodes.iter().filter_map(node).collect() })
    };
    said.into_iter().filter_map(one).collect()
}

fn address(client: &Client) -> Option<Address> {
    match client.get_connection_info().addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Some((host.clone(), *port))
        }
        _ => None,
    }
}

/// Creates a node at this address with the connection options of another.
fn at((host, port): &Address, like: &Node) -> RedisResult<Node> {
    let origin = like.origin().clone();
    let mut there = origin.info.addr().clone();
    if let ConnectionAddr::Tcp(its_host, its_port)
    | ConnectionAddr::TcpTls { host: its_host, port: its_port, .. } = &mut there
    {
        (*its_host, *its_port) = (host.clone(), *port);
    }
    Node::lazy(Origin { info: origin.info.clone().set_addr(there), sentinels: None, ..origin })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_that_are_missing_are_those_of_the_source() {
        let source = Client::open("redis://:secret@source:7000/").expect("an address");
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("name")]);
        let nodes = [
            node(text("one"), 1),
            node(Value::Nil, 2),
            node(text(""), 3),
            node(text("?"), 4),
            node(text("::1"), 5),
        ];
        let said = [vec![Value::Int(0), Value::Int(5460)], nodes.to_vec()].concat();
        let shards = read(Value::Array(vec![Value::Array(said), Value::Nil]), &source);
        let nodes = [("one", 1), ("source", 2), ("source", 3), ("::1", 5)];
        let nodes = nodes.map(|(host, port)| (host.to_owned(), port)).to_vec();
        assert_eq!(shards, [Shard { slots: 0..=5460, nodes }]);
        assert_eq!(read(Value::Nil, &source), []);
    }
}
