//! The constructors of [`Postgres`].

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::super::ownership::Ownership;
use super::floors::{Beats, Floors};
use super::link::Link;
use super::listen::{AsLink, listen, poll};
use super::operations::{Operations, Statements};
use super::queue::Lane;
use super::schema::Schema;
use super::{Postgres, PostgresOptions, server};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio_postgres::Config;

impl Postgres {
    /// Connects to a store by its name or with options. The address is a URL
    /// (`postgres://user:password@host:port/database`) or a list of settings
    /// (`host=… dbname=…`), as `psql` understands them.
    ///
    /// With several hosts, as in `postgres://10.0.0.1,10.0.0.2/shop`, the first one whose server
    /// can be written is used. After a failover, when connections break, that is the promoted
    /// standby.
    ///
    /// With `sslmode=require` connections use TLS (feature `postgres-tls`), with the certificates
    /// of [`PostgresOptions`]. With `prefer`, the default, they use it if the server offers it and
    /// its certificate is trusted.
    ///
    /// The tables and functions of the store are created if they do not exist. The user needs the
    /// permission to create the schema then, unless it exists and is empty, and to use it later.
    ///
    /// # Errors
    ///
    /// - [`Address`](DurableError::Address) or [`Option`](DurableError::Option) if the address or
    ///   an option is invalid, the database is not encoded in UTF-8, or the call is outside of a
    ///   tokio runtime.
    /// - [`Unreachable`](DurableError::Unreachable), [`Tls`](DurableError::Tls) or
    ///   [`Denied`](DurableError::Denied) if no server replies that can be written, a certificate
    ///   is refused, or access is denied.
    /// - [`Version`](DurableError::Version) if the server is older than PostgreSQL 13.
    /// - [`Format`](DurableError::Format) if the store has another layout.
    pub async fn connect(
        url: &str,
        options: impl Into<PostgresOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        options.check()?;
        let runtime = Handle::try_current()
            .map_err(|_| DurableError::Option("connect needs a tokio runtime"))?;
        let config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
            // Without the credentials.
            let shown = url.rsplit('@').next().unwrap_or_default();
            DurableError::Address(error.to_string()).at(shown)
        })?;
        let link = Link::new(config, &options)?;
        server::check(&link).await?;
        let PostgresOptions { name, polls, clock, bounds, .. } = options;
        let schema = Schema::new(&name);
        schema.open(&link).await?;
        let operations = Arc::new(Operations {
            link,
            statements: Statements::new(&schema),
            schema,
            clock,
            bounds,
            ownership: Ownership::default(),
            lanes: std::array::from_fn(|_| Lane::new()),
            process: RandomState::new().hash_one(std::process::id()).cast_signed(),
            listens: !polls,
            late: Default::default(),
            floors: Floors::default(),
            beats: Beats::default(),
        });
        let (channel, subscriber) = (operations.schema.channel(), Arc::clone(&operations));
        let listening = match polls {
            true => runtime.spawn(poll(subscriber)),
            false => runtime.spawn(listen(channel, subscriber)),
        };
        Ok(Self { operations, runtime, listening: listening.abort_handle(), bounds })
    }
}

impl AsLink for Operations {
    fn link(&self) -> &Link {
        &self.link
    }
}
