//! The constructors of [`Postgres`].

#![forbid(unsafe_code)]

use super::floors::{Beats, Floors};
use super::held::HeldIds;
use super::link::Link;
use super::operation::HELD;
use super::operations::Operations;
use super::rows::batch_statement;
use super::schema::Schema;
use super::{Postgres, PostgresOptions, server};
use crate::error::{DurableError, scheme_of};
use crate::store::options::StoreOptions;
use crate::store::ownership::Ownership;
use crate::store::remote::host::runtime;
use crate::store::remote::notices::{listen, poll};
use crate::store::remote::queue::process_number;
use crate::store::remote::sender::Engine;
use crate::store::remote::store::RemoteStore;
use std::sync::Arc;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

impl Postgres {
    /// Connects to a store by its name or with options. The address is a URL
    /// (`postgres://user:password@host:port/database`) or a list of settings
    /// (`host=… dbname=…`), as `psql` understands them.
    ///
    /// With several hosts, as in `postgres://10.0.0.1,10.0.0.2/shop`, the first host whose server
    /// can be written is used. After a failover, when connections break, that is the promoted
    /// standby.
    ///
    /// With `sslmode=require` connections use TLS (feature `postgres-tls`), with the certificates
    /// of [`PostgresOptions`]. With `prefer`, the default, they use it if the server offers it and
    /// its certificate is trusted.
    ///
    /// The tables and functions of the store are created if they do not exist, and upgraded if they
    /// are older than this version. The user then needs the permission to create the schema, unless
    /// it exists and is empty, or has to own the store. If users of a service must not have these
    /// permissions, run [`migration`](Self::migration) as another role, or `timers migrate`.
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
    /// - [`Outdated`](DurableError::Outdated) if the store has to be upgraded and the user does not
    ///   own it.
    /// - [`ForeignOwner`](DurableError::ForeignOwner) if a role that is not trusted
    ///   ([`owner`](PostgresOptions::owner)) owns the schema or an object in it.
    pub async fn connect(
        url: &str,
        options: impl Into<PostgresOptions>,
    ) -> Result<Self, DurableError> {
        let options = options.into();
        options.check()?;
        let runtime = runtime()?;
        let config = parse(url)?;
        let link = Link::new(config, &options)?;
        server::check(&link).await?;
        let schema = Schema::new(&options);
        let PostgresOptions { polls, call_timeout, store, .. } = options;
        let StoreOptions { bounds, clock } = store;
        schema.open(&link).await?;
        let operations = Arc::new(Operations {
            link,
            batch: schema.sql(&batch_statement()),
            schema,
            clock,
            bounds,
            ownership: Ownership::default(),
            engine: Engine::new(runtime, call_timeout, HELD + 1),
            held: HeldIds::default(),
            process: process_number().cast_signed(),
            listens: !polls,
            late: Default::default(),
            floors: Floors::default(),
            beats: Beats::default(),
            #[cfg(feature = "log")]
            log: Default::default(),
        });
        let listener = Arc::clone(&operations);
        Ok(Self(match polls {
            true => RemoteStore::new(operations, poll(listener)),
            false => RemoteStore::new(operations, listen(listener, None)),
        }))
    }
}

impl Postgres {
    /// Returns the SQL that creates or upgrades a store, for a role with more permissions than the
    /// users of the store. It needs no connection, is one transaction followed by a `VACUUM`, and
    /// does nothing to a store that is up to date.
    ///
    /// # Errors
    ///
    /// Fails with [`Option`](DurableError::Option) if the name of the store is not allowed.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Postgres;
    ///
    /// let sql = Postgres::migration("reminders")?; // for `psql`, or a tool for migrations
    /// assert!(sql.contains(r#"CREATE TABLE "reminders".timers"#));
    /// # Ok::<(), tourbillon_durable::DurableError>(())
    /// ```
    pub fn migration(options: impl Into<PostgresOptions>) -> Result<String, DurableError> {
        let options = options.into();
        options.check()?;
        let schema = Schema::new(&options);
        Ok(format!("{}{}\n", schema.migration(), schema.vacuum()))
    }
}

/// Parses an address. Errors show no part of the address, because a part of the password may stand
/// in place of an option or a host.
fn parse(url: &str) -> Result<Config, DurableError> {
    let wrong = |what: &str| DurableError::Address(what.to_owned()).at(&scheme_of(url));
    let config: Config =
        url.parse().map_err(|error: tokio_postgres::Error| match error.to_string() {
            what if what.contains("unknown option") => wrong("it has an unknown option"),
            what => wrong(&what),
        })?;
    let has_at = |host: &Host| matches!(host, Host::Tcp(name) if name.contains('@'));
    if config.get_hosts().iter().any(has_at) {
        return Err(wrong("a host contains @ (in a user or a password it is written %40)"));
    }
    Ok(config)
}
