//! The constructors of [`Redis`].

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::damaged::Damaged;
use super::fault::refused;
use super::identity::Identity;
use super::idle::IdleHints;
use super::keys::Keys;
use super::link::Link;
use super::operations::Operations;
use super::ownership::Ownership;
use super::pubsub::{Subscriber, listen, subscribe};
use super::queue::Queues;
use super::scripts::Scripts;
use super::{Redis, RedisOptions, policy};
use futures_util::future::join;
use redis::Client;
use std::sync::Arc;
use tokio::runtime::Handle;

impl Redis {
    /// Connects to a store on one node, `redis://user:password@host:port/database`, by its name or
    /// with options.
    ///
    /// # Errors
    ///
    /// - [`Address`](DurableError::Address) or [`Option`](DurableError::Option) if the address or
    ///   an option is invalid, or the call is outside of a tokio runtime.
    /// - [`Unreachable`](DurableError::Unreachable) or [`Denied`](DurableError::Denied) if the node
    ///   does not reply, or denies access.
    /// - [`Evicts`](DurableError::Evicts) if the node may evict timers.
    /// - [`Format`](DurableError::Format) if the store has another layout.
    pub async fn connect(
        url: &str,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        options.check()?;
        runtime()?;
        let client = client(url)?;
        Self::open(Link::node(client).await?, options).await
    }

    /// Connects to a cluster through some of its nodes.
    ///
    /// # Errors
    ///
    /// Fails like [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_durable::{Redis, RedisOptions};
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let nodes = ["redis://10.0.0.1:6379/", "redis://10.0.0.2:6379/"];
    /// let options = RedisOptions::new("reminders").partitions(64);
    /// let store = Redis::connect_cluster(nodes, options).await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_cluster<'a>(
        urls: impl IntoIterator<Item = &'a str>,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        options.check()?;
        runtime()?;
        let clients = urls.into_iter().map(client).collect::<Result<_, _>>()?;
        Self::open(Link::cluster(clients).await?, options).await
    }

    async fn open(link: Link, options: RedisOptions) -> Result<Self, DurableError> {
        let runtime = runtime()?;
        let RedisOptions { name, partitions, clock, may_evict } = options;
        if !may_evict {
            policy::check(&link).await?;
        }
        let scripts = Scripts::new();
        let identity =
            Identity::open(&link, &scripts.open, name.clone(), partitions.into()).await?;
        let partitions = identity.partitions();
        let (keys, idle) = (Keys::new(&name, partitions), IdleHints::new(partitions));
        let channel = keys.channel();
        let subscription = subscribe(&link, &channel).await.map_err(|error| refused(&error))?;
        let (ownership, queues) = (Ownership::default(), Queues::new(partitions, runtime.clone()));
        let follows = link.clone();
        let damaged = Damaged::default();
        let operations =
            Operations { link, keys, clock, scripts, ownership, idle, queues, identity, damaged };
        let operations = Arc::new(operations);
        let subscriber: Arc<dyn Subscriber> = Arc::<Operations>::clone(&operations);
        let (opened, listens) =
            (Arc::clone(&operations), listen(follows, channel, subscription, subscriber));
        let listening = runtime.spawn(async move { join(listens, opened.keep_open()).await });
        let listening = listening.abort_handle();
        Ok(Self { operations, runtime, listening })
    }
}

fn runtime() -> Result<Handle, DurableError> {
    Handle::try_current().map_err(|_| DurableError::Option("connect needs a tokio runtime"))
}

fn client(url: &str) -> Result<Client, DurableError> {
    Client::open(url).map_err(|error| refused(&error))
}
