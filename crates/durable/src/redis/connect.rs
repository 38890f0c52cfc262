//! The constructors of [`Redis`].

#![forbid(unsafe_code)]

use super::damaged::Damaged;
use super::errors::refused;
use super::identity::Identity;
use super::keys::Keys;
use super::link::Link;
use super::node::Origin;
use super::operations::Operations;
use super::pubsub::subscribe;
use super::scripts::Scripts;
use super::sentinel::Sentinels;
use super::{Redis, RedisOptions, server};
use crate::error::{DurableError, scheme_of};
use crate::store::options::StoreOptions;
use crate::store::ownership::Ownership;
use crate::store::partitions::idle::IdleHints;
use crate::store::remote::host::runtime;
use crate::store::remote::notices::listen;
use crate::store::remote::sender::Engine;
use crate::store::remote::store::RemoteStore;
use futures_util::future::{BoxFuture, join};
use redis::{Client, ErrorKind};
use std::collections::BTreeSet;
use std::sync::Arc;

impl Redis {
    /// Connects to a store on one node, `redis://user:password@host:port/database`, by its name or
    /// with options. `rediss://` connects by TLS (feature `redis-tls`), with the
    /// certificates of [`RedisOptions`].
    ///
    /// # Errors
    ///
    /// - [`Address`](DurableError::Address) or [`Option`](DurableError::Option) if the address or
    ///   an option is invalid, or the call is outside of a tokio runtime.
    /// - [`Unreachable`](DurableError::Unreachable), [`Tls`](DurableError::Tls) or
    ///   [`Denied`](DurableError::Denied) if the node does not reply, a certificate is refused, or
    ///   access is denied.
    /// - [`Version`](DurableError::Version) if the server is older than Redis 7.0.
    /// - [`Evicts`](DurableError::Evicts) if the server may evict timers.
    /// - [`Format`](DurableError::Format) if the store has another layout.
    pub async fn connect(
        url: &str,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        let client = options.client(url)?;
        Self::with_client(client, options).await
    }

    /// Connects to a store on one node by a client of the crate `redis`, whose address, credentials
    /// and certificates are used.
    ///
    /// # Errors
    ///
    /// Fails like [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use redis::Client;
    /// use tourbillon_durable::Redis;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::open("redis+unix:///run/redis.sock")?;
    /// let store = Redis::with_client(client, "reminders").await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_client(
        client: Client,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        let origin = options.origin(&client);
        Self::open(Link::node(origin), options).await
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
        let clients = urls.into_iter().map(|url| options.client(url));
        let clients: Vec<Client> = clients.collect::<Result<_, _>>()?;
        Self::with_cluster_clients(clients, options).await
    }

    /// Connects to a cluster by clients of the crate `redis` for some of its nodes. The credentials
    /// and certificates of the node that lists the others are used for all nodes.
    ///
    /// # Errors
    ///
    /// Fails like [`connect`](Self::connect).
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_durable::Redis;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let clients = [redis::Client::open("redis://10.0.0.1:6379/")?];
    /// let store = Redis::with_cluster_clients(clients, "reminders").await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn with_cluster_clients(
        clients: impl IntoIterator<Item = Client>,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        let origins = clients.into_iter().map(|client| options.origin(&client)).collect();
        Self::open(Link::cluster(origins), options).await
    }

    /// Connects to the master that sentinels know by a name. In the address of the master,
    /// `redis://user:password@name/database`, the name is in place of the host.
    ///
    /// The sentinels are asked again whenever a connection to the master breaks, does not reply, or
    /// leads to a replica. After a failover workers continue on the new master. The credentials in
    /// the address of the first sentinel are used for all sentinels.
    ///
    /// # Errors
    ///
    /// Fails like [`connect`](Self::connect), and with
    /// [`Unreachable`](DurableError::Unreachable) if the sentinels do not know the name.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_durable::Redis;
    ///
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let sentinels = ["redis://10.0.0.1:26379/", "redis://10.0.0.2:26379/"];
    /// let store = Redis::connect_sentinel("redis://mymaster/", sentinels, "reminders").await?;
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect_sentinel<'a>(
        master: &str,
        sentinels: impl IntoIterator<Item = &'a str>,
        options: impl Into<RedisOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        let clients = sentinels.into_iter().map(|url| options.client(url));
        let clients: Vec<Client> = clients.collect::<Result<_, _>>()?;
        let master = options.client(master)?;
        let sentinels = Sentinels::new(
            &clients,
            master.get_connection_info(),
            #[cfg(feature = "redis-tls")]
            options.tls.clone(),
        )?;
        let origin = Origin { sentinels: Some(Arc::new(sentinels)), ..options.origin(&master) };
        Self::open(Link::node(origin), options).await
    }

    /// Opens a store on a link. Both futures are boxed, because the compiler follows the futures of
    /// the crate `redis` through many levels, and callers have one limit for their own futures and
    /// these.
    fn open(
        link: BoxFuture<'static, Result<Link, DurableError>>,
        options: RedisOptions,
    ) -> BoxFuture<'static, Result<Self, DurableError>> {
        Box::pin(Self::opened(link, options))
    }

    async fn opened(
        link: BoxFuture<'static, Result<Link, DurableError>>,
        options: RedisOptions,
    ) -> Result<Self, DurableError> {
        options.check()?;
        let (runtime, link) = (runtime()?, link.await?);
        let RedisOptions { name, partitions, may_evict, call_timeout, store, .. } = options;
        let StoreOptions { bounds, clock } = store;
        server::check(&link, may_evict).await?;
        let scripts = Scripts::new();
        let identity =
            Identity::open(&link, &scripts.open, name.clone(), partitions.into()).await?;
        let partitions = identity.partitions();
        let (keys, idle) = (Keys::new(&name, partitions), IdleHints::new(partitions));
        // Includes partition 0, to find out whether the server permits its channel.
        let subscription = subscribe(&link, &keys, BTreeSet::from([0])).await;
        let subscription = subscription.map_err(|error| refused(&error))?;
        let queues = usize::try_from(partitions).unwrap_or(usize::MAX);
        let engine = Engine::new(runtime, call_timeout, queues);
        let ownership = Ownership::default();
        let damaged = Damaged::default();
        let operations = Arc::new(Operations {
            link,
            keys,
            clock,
            scripts,
            bounds,
            ownership,
            idle,
            engine,
            identity,
            damaged,
            #[cfg(feature = "log")]
            log: Default::default(),
        });
        let (opened, listens) =
            (Arc::clone(&operations), listen(Arc::clone(&operations), Some(subscription)));
        let listening = async move {
            join(listens, opened.keep_open()).await;
        };
        Ok(Self(RemoteStore::new(operations, listening)))
    }
}

impl RedisOptions {
    /// Returns a client for an address.
    fn client(&self, url: &str) -> Result<Client, DurableError> {
        let client = Client::open(url).map_err(|error| {
            let lacks = error.kind() == ErrorKind::InvalidClientConfig && url.starts_with("rediss");
            match refused(&error) {
                DurableError::Address(what) if lacks && cfg!(not(feature = "redis-tls")) => {
                    DurableError::Address(format!("{what} (TLS needs the feature `redis-tls`)"))
                }
                error => error,
            }
            .at(&scheme_of(url))
        })?;
        #[cfg(feature = "redis-tls")]
        if let Some(tls) = &self.tls {
            let info = client.get_connection_info().clone();
            let shown = info.addr().to_string();
            return super::tls::client(tls, info).map_err(|error| error.at(&shown));
        }
        Ok(client)
    }

    fn origin(&self, client: &Client) -> Origin {
        let info = client.get_connection_info().clone();
        #[cfg(feature = "redis-tls")]
        if let redis::ConnectionAddr::TcpTls { .. } = info.addr() {
            crate::store::tls::provide();
        }
        let (credentials, call_timeout) = (self.credentials.clone(), self.call_timeout);
        Origin { info, sentinels: None, credentials, call_timeout }
    }
}
