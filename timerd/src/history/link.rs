//! [`Link`], the way to a node, a cluster or the master that sentinels know.

#![forbid(unsafe_code)]

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, ErrorKind,
    IntoConnectionInfo, Pipeline, RedisError, RedisResult, TlsCertificates, TlsMode, Value,
};
use std::sync::Arc;
use std::time::Duration;
use timers::{Certificates, Servers};
use tokio::sync::Mutex;

/// The time in which the server must reply to a batch. By default it is half a second, which a busy
/// server may need for a thousand runs.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that can be shared.
#[derive(Clone)]
pub(super) enum Link {
    Node(ConnectionManager),
    Cluster(ClusterConnection),
    /// Connects anew for each command, so that it always leads to the present master. The history
    /// needs no more than a few commands per second.
    Sentinel(Arc<Mutex<SentinelClient>>),
}

impl Link {
    pub(super) async fn connect(
        servers: &Servers,
        certificates: Option<Certificates>,
    ) -> RedisResult<Self> {
        let tls = certificates.map(|Certificates { authority, client }| TlsCertificates {
            client_tls: client
                .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key }),
            root_cert: authority,
        });
        Ok(match servers {
            Servers::Node(url) => {
                let client = match tls {
                    Some(tls) => Client::build_with_tls(&**url, tls),
                    None => Client::open(&**url),
                };
                let config = ConnectionManagerConfig::new().set_response_timeout(Some(PATIENCE));
                Self::Node(client?.get_connection_manager_with_config(config).await?)
            }
            Servers::Cluster(urls) => {
                let urls = urls.iter().map(String::as_str);
                let mut builder = ClusterClientBuilder::new(urls).response_timeout(PATIENCE);
                if let Some(tls) = tls {
                    builder = builder.certs(tls);
                }
                Self::Cluster(builder.build()?.get_async_connection().await?)
            }
            Servers::Sentinel { master, sentinels } => {
                let client = sentinel_client(master, sentinels, tls)?;
                Self::Sentinel(Arc::new(Mutex::new(client)))
            }
        })
    }

    /// Sends commands, and returns their replies.
    pub(super) async fn send(&mut self, commands: &Pipeline) -> RedisResult<Vec<Value>> {
        match self {
            Self::Node(connection) => commands.query_async(connection).await,
            Self::Cluster(connection) => commands.query_async(connection).await,
            Self::Sentinel(client) => {
                let config = AsyncConnectionConfig::new().set_response_timeout(Some(PATIENCE));
                let mut client = client.lock().await;
                let mut connection = client.get_async_connection_with_config(&config).await?;
                drop(client);
                commands.query_async(&mut connection).await
            }
        }
    }
}

/// Returns a client of a master. Its name is in place of the host in its address, and the
/// credentials of the first sentinel are those of all.
fn sentinel_client(
    master: &str,
    sentinels: &[String],
    tls: Option<TlsCertificates>,
) -> RedisResult<SentinelClient> {
    let info = master.into_connection_info()?;
    let (name, is_tls) = match info.addr() {
        ConnectionAddr::Tcp(name, _) => (name.clone(), false),
        ConnectionAddr::TcpTls { host, .. } => (host.clone(), true),
        _ => return Err(RedisError::from((ErrorKind::InvalidClientConfig, "not a master"))),
    };
    let infos: Vec<_> = sentinels
        .iter()
        .map(|url| url.as_str().into_connection_info())
        .collect::<Result<_, _>>()?;
    let addresses = infos.iter().map(|info| info.addr().clone());
    let mut builder = SentinelClientBuilder::new(addresses, &name, SentinelServerType::Master)?;
    if let Some(settings) = infos.first().map(ConnectionInfo::redis_settings) {
        if let Some(user) = settings.username() {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = settings.password() {
            builder = builder.set_client_to_sentinel_password(password);
        }
    }
    let settings = info.redis_settings();
    builder = builder.set_client_to_redis_db(settings.db());
    if let Some(user) = settings.username() {
        builder = builder.set_client_to_redis_username(user);
    }
    if let Some(password) = settings.password() {
        builder = builder.set_client_to_redis_password(password);
    }
    if is_tls {
        builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
        if let Some(tls) = tls {
            builder = builder.set_client_to_redis_certificates(tls);
        }
    }
    builder.build()
}
