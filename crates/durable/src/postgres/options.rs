//! [`PostgresOptions`], the name of a store and how to connect to its server.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::store::call_timeout;
use crate::store::credentials::Credentials;
use crate::store::options::StoreOptions;
#[cfg(feature = "postgres-tls")]
use crate::store::tls::Tls;
use std::time::Duration;

/// The schemas that a store must not have.
const RESERVED: [&str; 2] = ["public", "information_schema"];

/// The name of a store in PostgreSQL, with its settings.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::PostgresOptions;
///
/// let options = PostgresOptions::new("reminders").connections(4);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct PostgresOptions {
    pub(super) name: String,
    pub(super) connections: u16,
    pub(super) call_timeout: Duration,
    pub(super) polls: bool,
    pub(super) store: StoreOptions,
    pub(super) credentials: Option<Credentials>,
    pub(super) owner: Option<String>,
    #[cfg(feature = "postgres-tls")]
    pub(super) tls: Option<Tls>,
}

impl PostgresOptions {
    /// Creates options for a store in the schema with this name, up to 8 connections besides the
    /// listening connection, the server's clock, and no bounds on dead letters. A name has 1 to 48
    /// characters of `a-z A-Z 0-9 _ . -`, does not begin with `pg_`, and is neither `public` nor
    /// `information_schema`.
    ///
    /// One database can hold several stores. All processes that use the same name share a store,
    /// and each of their workers gets all of its timers, so choose a name for each kind of work.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            connections: 8,
            call_timeout: call_timeout::DEFAULT,
            polls: false,
            store: StoreOptions::new(),
            credentials: None,
            owner: None,
            #[cfg(feature = "postgres-tls")]
            tls: None,
        }
    }

    /// Sets the maximum number of connections to the server at a time, at least 2. One more
    /// connection listens, unless the store [only polls](Self::poll_only).
    #[must_use]
    pub fn connections(mut self, connections: u16) -> Self {
        self.connections = connections.max(2);
        self
    }

    /// Sets how long a call is retried while the server cannot be reached or does not reply, 10 ms
    /// to ten minutes, by default 5 s. The call then fails with [`DurableError::Unreachable`].
    /// Calls that read many rows are retried for two minutes, or for this time if it is longer.
    /// Workers retry until they succeed.
    ///
    /// To give up earlier on one call, drop its future.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::PostgresOptions;
    ///
    /// // A failover takes up to half a minute.
    /// let options = PostgresOptions::new("reminders").call_timeout(Duration::from_secs(45));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = call_timeout::bounded(timeout);
        self
    }

    /// Does not listen for notices, so that the address may lead to a transaction pooler, such as
    /// PgBouncer with `pool_mode = transaction`. Workers then read the keys of their window once a
    /// second, instead of once a minute. Timers that are inserted more than a second before they
    /// are due are as punctual as otherwise. Other timers may be late by a second.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::PostgresOptions;
    ///
    /// let options = PostgresOptions::new("reminders").poll_only();
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn poll_only(mut self) -> Self {
        self.polls = true;
        self
    }

    /// Sets the bounds of the dead letters, and the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{PostgresOptions, StoreOptions};
    ///
    /// let letters = StoreOptions::new().max_dead_letters(10_000);
    /// let options = PostgresOptions::new("reminders").store(letters);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn store(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Sets credentials that can change while the store is open. They replace the credentials of
    /// the address.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{Credentials, PostgresOptions};
    ///
    /// let credentials = Credentials::new("clerk", "today's");
    /// let options = PostgresOptions::new("reminders").credentials(&credentials);
    /// credentials.set("clerk", "tomorrow's"); // after `ALTER ROLE clerk PASSWORD …`
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn credentials(mut self, credentials: &Credentials) -> Self {
        self.credentials = Some(credentials.clone());
        self
    }

    /// Names the role that owns the store, if it is neither the connected role, nor a role that the
    /// connected role is a member of, nor a superuser. The owner can have the users of a store
    /// execute any statement with their own rights, because it can replace the functions that they
    /// call. A store of another role is refused ([`ForeignOwner`](DurableError::ForeignOwner)).
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::PostgresOptions;
    ///
    /// // One role runs the migrations and creates the store. The role of the service uses it.
    /// let options = PostgresOptions::new("reminders").owner("shop_migrations");
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn owner(mut self, role: &str) -> Self {
        self.owner = Some(role.to_owned());
        self
    }

    /// Sets the certificates of connections by TLS, and demands TLS. The `sslmode` of the address
    /// must then be `require`, or `prefer`, which becomes `require`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{PostgresOptions, Tls};
    ///
    /// // The authority that signed the server's certificate. A program reads it from a file.
    /// let authority = "-----BEGIN CERTIFICATE-----";
    /// let tls = Tls::new().authority(authority);
    /// let options = PostgresOptions::new("reminders").tls(tls);
    /// # let _ = options;
    /// ```
    #[cfg(feature = "postgres-tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(super) fn check(&self) -> Result<(), DurableError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        let Self { name, owner, .. } = self;
        let is_named = (1..=48).contains(&name.len()) && name.bytes().all(plain);
        // Other programs have objects in these schemas.
        let is_system = name.starts_with("pg_") || RESERVED.contains(&&**name);
        if !is_named || is_system {
            return Err(DurableError::Option(
                "the store name must have 1 to 48 of a-z A-Z 0-9 _ . - and be neither public, \
                 information_schema nor pg_…",
            ));
        }
        if owner.as_ref().is_some_and(|owner| owner.contains('\0')) {
            return Err(DurableError::Option("the name of a role cannot contain U+0000"));
        }
        Ok(())
    }
}

impl From<&str> for PostgresOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}
