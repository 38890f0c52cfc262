//! [`Credentials`], a user and a password that can change while a store is open.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use redis::ConnectionInfo;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// A user and a password that can change while a store is open, for passwords that are rotated and
/// for tokens that expire. Clones share their values.
///
/// Pass it to [`RedisOptions::credentials`](super::RedisOptions::credentials), and call
/// [`set`](Self::set) when there is a new password. A worker that runs continues.
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
#[derive(Clone)]
pub struct Credentials(Arc<Mutex<Values>>);

struct Values {
    user: String,
    password: String,
    /// The number of changes so far.
    version: u64,
}

impl Credentials {
    /// Creates credentials of a user. An empty name stands for the default user.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Credentials;
    ///
    /// let credentials = Credentials::new("clerk", "secret");
    /// assert!(!format!("{credentials:?}").contains("secret"));
    /// ```
    #[must_use]
    pub fn new(user: &str, password: &str) -> Self {
        let (user, password) = (user.to_owned(), password.to_owned());
        Self(Arc::new(Mutex::new(Values { user, password, version: 0 })))
    }

    /// Sets another user or password. New connections use them from now on. Each existing
    /// connection is replaced with the next request, and used until its successor is established.
    ///
    /// Set a new password once the server accepts it, and before the server rejects the old one.
    /// (In Redis a user can have several passwords at a time.) If the old one is rejected first,
    /// workers wait and callers get [`Denied`](crate::DurableError::Denied) only if a connection
    /// breaks in the meantime.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Credentials;
    ///
    /// let credentials = Credentials::new("", "yesterday's");
    /// credentials.set("", "today's");
    /// ```
    pub fn set(&self, user: &str, password: &str) {
        let mut values = self.lock();
        values.user = user.to_owned();
        values.password = password.to_owned();
        values.version += 1;
    }

    /// Returns the number of changes so far.
    pub(super) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Returns connection information with these credentials, and their version.
    pub(super) fn of(&self, info: ConnectionInfo) -> (ConnectionInfo, u64) {
        let values = self.lock();
        // Without a name the one of the address would be used.
        let user = if values.user.is_empty() { "default" } else { &values.user };
        let settings = info.redis_settings().clone();
        let settings = settings.set_username(user).set_password(&values.password);
        (info.set_redis_settings(settings), values.version)
    }

    fn lock(&self) -> MutexGuard<'_, Values> {
        ignore_poison(self.0.lock())
    }
}

/// Shows the user only.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.lock().user).finish_non_exhaustive()
    }
}
