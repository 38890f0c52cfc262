//! [`RedisOptions`], the name and the layout of a store, and how to connect to its server.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::store::call_timeout;
use crate::store::credentials::Credentials;
use crate::store::options::StoreOptions;
#[cfg(feature = "redis-tls")]
use crate::store::tls::Tls;
use std::time::Duration;

/// The name and the layout of a store in Redis.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::RedisOptions;
///
/// let options = RedisOptions::new("reminders").partitions(64);
/// # let _ = options;
/// ```
#[derive(Clone, Debug)]
pub struct RedisOptions {
    pub(super) name: String,
    pub(super) partitions: u16,
    pub(super) call_timeout: Duration,
    pub(super) store: StoreOptions,
    pub(super) may_evict: bool,
    pub(super) credentials: Option<Credentials>,
    #[cfg(feature = "redis-tls")]
    pub(super) tls: Option<Tls>,
}

impl RedisOptions {
    /// Creates options for a store with this name, 16 partitions, the server's clock, and no bounds
    /// on dead letters. A name has 1 to 64 characters of `a-z A-Z 0-9 _ . -`.
    ///
    /// One Redis can hold several stores. All processes that use the same name share a store, and
    /// each of their workers gets all of its timers, so choose a name for each kind of work.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            partitions: 16,
            call_timeout: call_timeout::DEFAULT,
            store: StoreOptions::new(),
            may_evict: false,
            credentials: None,
            #[cfg(feature = "redis-tls")]
            tls: None,
        }
    }

    /// Sets the number of partitions, 1 to 1024, of a store that is created now. An existing store
    /// keeps its number forever ([`Redis::partitions`](super::Redis::partitions)). Choose several
    /// for each worker that will ever run, in all processes, and for each master of a cluster. A
    /// partition belongs to one worker, so workers beyond the number of partitions deliver nothing.
    ///
    /// The default is only 16, because calls share a request only within a partition. With 64
    /// partitions, 64 concurrent callers inserted 8 to 47 % fewer timers per second, and an idle
    /// worker sent 17 commands per second instead of 10.
    #[must_use]
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets how long a call is retried while the server cannot be reached or does not reply, 10 ms
    /// to ten minutes, by default 5 s. The call then fails with [`DurableError::Unreachable`].
    /// Workers retry until they succeed.
    ///
    /// To give up earlier on one call, drop its future.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use tourbillon_durable::RedisOptions;
    ///
    /// // A failover takes up to half a minute.
    /// let options = RedisOptions::new("reminders").call_timeout(Duration::from_secs(45));
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = call_timeout::bounded(timeout);
        self
    }

    /// Sets the bounds of the dead letters, and the clock.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{RedisOptions, StoreOptions};
    ///
    /// let letters = StoreOptions::new().max_dead_letters(10_000);
    /// let options = RedisOptions::new("reminders").store(letters);
    /// # let _ = options;
    /// ```
    #[must_use]
    pub fn store(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Opens the store even on a server that may evict timers without notice (`maxmemory-policy
    /// allkeys-…`). The permission for `INFO` is then not needed.
    #[must_use]
    pub fn allow_eviction(mut self) -> Self {
        self.may_evict = true;
        self
    }

    /// Sets credentials that can change while the store is open. They replace the credentials of
    /// the address.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_durable::{Credentials, Redis, RedisOptions};
    ///
    /// # async fn new_password() -> String { String::new() }
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let credentials = Credentials::new("clerk", "today's");
    /// let options = RedisOptions::new("reminders").credentials(&credentials);
    /// let store = Redis::connect("redis://10.0.0.1/", options).await?;
    /// tokio::spawn(async move {
    ///     loop {
    ///         credentials.set("clerk", &new_password().await);
    ///     }
    /// });
    /// # drop(store);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn credentials(mut self, credentials: &Credentials) -> Self {
        self.credentials = Some(credentials.clone());
        self
    }

    /// Sets the certificates of connections by TLS. Every address must then begin with `rediss://`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::{RedisOptions, Tls};
    ///
    /// // The authority that signed the server's certificate. A program reads it from a file.
    /// let authority = "-----BEGIN CERTIFICATE-----";
    /// let options = RedisOptions::new("reminders").tls(Tls::new().authority(authority));
    /// # let _ = options;
    /// ```
    #[cfg(feature = "redis-tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    pub(super) fn check(&self) -> Result<(), DurableError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(plain) {
            return Err(DurableError::Option(
                "the store name must have 1 to 64 of a-z A-Z 0-9 _ . -",
            ));
        }
        if !(1..=1024).contains(&self.partitions) {
            return Err(DurableError::Option("the number of partitions must be 1 to 1024"));
        }
        Ok(())
    }
}

impl From<&str> for RedisOptions {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}
