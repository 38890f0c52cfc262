//! [`Sentinels`], which know the address of the present master.
//!
//! The client of the crate `redis` asks several of them at a time, and connects to the node that
//! they name to see that it is a master. A store asks them when it connects, and again whenever a
//! connection breaks, does not reply, or turns out to lead to a replica
//! ([`Connection::check`](super::node::Connection::check)).

#![forbid(unsafe_code)]

use crate::error::DurableError;
use redis::sentinel::{SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisResult, TlsMode};

/// The sentinels of a master.
pub(super) struct Sentinels {
    addresses: Vec<ConnectionAddr>,
    user: Option<String>,
    password: Option<String>,
    /// The name of the master.
    pub(super) name: String,
    #[cfg(feature = "redis-tls")]
    tls: Option<crate::store::tls::Tls>,
}

impl Sentinels {
    /// Describes the sentinels at these addresses. They share the user and password of the first
    /// address. The name of the master is in place of the host in its address.
    pub(super) fn new(
        clients: &[Client],
        master: &ConnectionInfo,
        #[cfg(feature = "redis-tls")] tls: Option<crate::store::tls::Tls>,
    ) -> Result<Self, DurableError> {
        let name = match master.addr() {
            ConnectionAddr::Tcp(name, _) | ConnectionAddr::TcpTls { host: name, .. } => {
                name.clone()
            }
            other => return Err(DurableError::Address(format!("{other} has no name of a master"))),
        };
        let infos = clients.iter().map(Client::get_connection_info);
        let settings = clients.first().map(|client| client.get_connection_info().redis_settings());
        Ok(Self {
            addresses: infos.map(|info| info.addr().clone()).collect(),
            user: settings.and_then(|settings| Some(settings.username()?.to_owned())),
            password: settings.and_then(|settings| Some(settings.password()?.to_owned())),
            name,
            #[cfg(feature = "redis-tls")]
            tls,
        })
    }

    /// Returns a client of the present master, with the database, the credentials and the
    /// certificates of `info`.
    pub(super) async fn master(&self, info: &ConnectionInfo) -> RedisResult<Client> {
        let mut builder = SentinelClientBuilder::new(
            self.addresses.iter().cloned(),
            &self.name,
            SentinelServerType::Master,
        )?;
        if let Some(user) = &self.user {
            builder = builder.set_client_to_sentinel_username(user);
        }
        if let Some(password) = &self.password {
            builder = builder.set_client_to_sentinel_password(password);
        }
        let settings = info.redis_settings();
        builder = builder.set_client_to_redis_db(settings.db());
        if let Some(user) = settings.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = settings.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if let ConnectionAddr::TcpTls { .. } = info.addr() {
            builder = builder.set_client_to_redis_tls_mode(TlsMode::Secure);
            #[cfg(feature = "redis-tls")]
            if let Some(tls) = &self.tls {
                builder = builder.set_client_to_redis_certificates(super::tls::certificates(tls));
            }
        }
        let found = builder.build()?.async_get_client().await?;
        // The protocol and all else that the builder does not take come from `info`.
        Client::open(info.clone().set_addr(found.get_connection_info().addr().clone()))
    }
}
