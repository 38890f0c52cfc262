//! [`Credentials`], a user and a password that can change while a store is open.

#![forbid(unsafe_code)]

use crate::panics::ignore_poison;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

/// A user and a password that can change while a store is open, for passwords that are rotated and
/// for tokens that expire. Clones share their values.
///
/// Pass it to `RedisOptions::credentials` or `PostgresOptions::credentials`, and call
/// [`set`](Self::set) when there is a new password. A worker that runs continues.
///
/// # Examples
///
/// ```
/// use tourbillon_durable::Credentials;
///
/// let credentials = Credentials::new("clerk", "today's");
/// let rotated = credentials.clone(); // for the code that learns of a new password
/// rotated.set("clerk", "tomorrow's");
/// ```
#[derive(Clone)]
pub struct Credentials(Arc<Mutex<Values>>);

/// The user and the password at some time.
#[derive(Clone)]
pub(crate) struct Values {
    /// The name of the user, which may be empty.
    pub(crate) user: String,
    pub(crate) password: String,
    /// The number of changes so far.
    #[cfg(feature = "redis")]
    pub(crate) version: u64,
}

impl Credentials {
    /// Creates credentials of a user. An empty name stands for the default user of Redis, or for
    /// the user in the address of a store in Postgres.
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
        Self(Arc::new(Mutex::new(Values {
            user,
            password,
            #[cfg(feature = "redis")]
            version: 0,
        })))
    }

    /// Sets another user or password. New connections use them from now on. Each connection to
    /// Redis is replaced with the next request, and used until its successor is established.
    /// Connections to Postgres are kept, because it does not check their password again.
    ///
    /// Set a new password once the server accepts it, and before the server rejects the old one.
    /// (In Redis a user can have several passwords at a time. In Postgres, use two roles in turn.)
    /// If the old one is rejected first, workers wait and callers get
    /// [`Denied`](crate::DurableError::Denied) only if they need a new connection in the meantime.
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
        #[cfg(feature = "redis")]
        {
            values.version += 1;
        }
    }

    /// Returns the number of changes so far.
    #[cfg(feature = "redis")]
    pub(crate) fn version(&self) -> u64 {
        self.lock().version
    }

    /// Returns the present user and password.
    pub(crate) fn values(&self) -> Values {
        self.lock().clone()
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
