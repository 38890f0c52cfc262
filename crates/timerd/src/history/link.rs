//! [`Link`], a connection to a node, a cluster or the master that sentinels know.

#![forbid(unsafe_code)]

use super::run::HistoryError;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo, Pipeline, RedisResult, Value,
};
use std::sync::Arc;
use std::time::Duration;
use tourbillon_durable::__internals::{Sentinels, certificates};
use tourbillon_durable::Tls;
use tourbillon_durable::text::Servers;

/// How long the server may take to reply to a batch. The client's default is half a second, which a
/// busy server may need for a thousand runs.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that can be shared.
#[derive(Clone)]
pub(super) enum Link {
    Node(ConnectionManager),
    Cluster(ClusterConnection),
    /// Connects again for each command, so that it always reaches the current master. The history
    /// needs no more than a few commands per second.
    Sentinel(Arc<(Sentinels, ConnectionInfo)>),
}

impl Link {
    pub(super) async fn connect(servers: &Servers, tls: Option<Tls>) -> Result<Self, HistoryError> {
        match servers {
            Servers::Sentinel { master, sentinels } => {
                let info = master.as_str().into_connection_info().map_err(HistoryError::of)?;
                let clients: RedisResult<Vec<Client>> =
                    sentinels.iter().map(|url| Client::open(url.as_str())).collect();
                let clients = clients.map_err(HistoryError::of)?;
                let sentinels = Sentinels::new(&clients, &info, tls).map_err(HistoryError::of)?;
                Ok(Self::Sentinel(Arc::new((sentinels, info))))
            }
            Servers::Node(url) => Self::node(url, tls.as_ref()).await.map_err(HistoryError::of),
            Servers::Cluster(urls) => {
                Self::cluster(urls, tls.as_ref()).await.map_err(HistoryError::of)
            }
        }
    }

    async fn node(url: &str, tls: Option<&Tls>) -> RedisResult<Self> {
        let client = match tls {
            Some(tls) => Client::build_with_tls(url, certificates(tls)),
            None => Client::open(url),
        };
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(REPLY_TIMEOUT));
        Ok(Self::Node(client?.get_connection_manager_with_config(config).await?))
    }

    async fn cluster(urls: &[String], tls: Option<&Tls>) -> RedisResult<Self> {
        let urls = urls.iter().map(String::as_str);
        let mut builder = ClusterClientBuilder::new(urls).response_timeout(REPLY_TIMEOUT);
        if let Some(tls) = tls {
            builder = builder.certs(certificates(tls));
        }
        Ok(Self::Cluster(builder.build()?.get_async_connection().await?))
    }

    /// Sends commands, and returns their replies.
    pub(super) async fn send(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Self::Node(connection) => commands.query_async(connection).await,
            Self::Cluster(connection) => commands.query_async(connection).await,
            Self::Sentinel(watched) => {
                let (sentinels, info) = &**watched;
                let client = sentinels.master(info).await?;
                let config = AsyncConnectionConfig::new().set_response_timeout(Some(REPLY_TIMEOUT));
                let connection = client.get_multiplexed_async_connection_with_config(&config);
                commands.query_async(&mut connection.await?).await
            }
        }
    }
}
