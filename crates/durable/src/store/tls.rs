//! [`Tls`], the certificates of connections by TLS, for all servers.

#![forbid(unsafe_code)]

use rustls::crypto::{CryptoProvider, ring};
use std::fmt;

/// The certificates of connections by TLS. By default the authorities of the platform are trusted,
/// and no client certificate is sent.
///
/// The cryptography comes from the process's default provider of `rustls`. If there is none when a
/// store is connected by TLS, `ring` becomes the default. To use another provider, install it
/// before that.
///
/// # Examples
///
/// ```no_run
/// use tourbillon_durable::{Redis, RedisOptions, Tls};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let read = |name: &str| std::fs::read(format!("/etc/reminders/{name}.pem"));
/// let tls = Tls::new()
///     .authority(read("authority")?)
///     .client_certificate(read("certificate")?, read("key")?);
/// let options = RedisOptions::new("reminders").tls(tls);
/// let store = Redis::connect("rediss://redis.internal:6380/", options).await?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Tls {
    /// The authorities that are trusted instead of the platform's, in PEM.
    pub(crate) authority: Option<Vec<u8>>,
    /// The client certificate and its private key, in PEM.
    pub(crate) client: Option<[Vec<u8>; 2]>,
}

impl Tls {
    /// Trusts the authorities of the platform.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::Tls;
    ///
    /// let tls = Tls::new();
    /// assert_eq!(format!("{tls:?}"), "Tls { authority: false, client_certificate: false }");
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts these authorities instead of the platform's, one certificate or several in PEM.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tourbillon_durable::Tls;
    ///
    /// let tls = Tls::new().authority(std::fs::read("authority.pem")?);
    /// # let _ = tls;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn authority(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.authority = Some(certificates.into());
        self
    }

    /// Sends a client certificate, with the certificates between it and its authority, and signs
    /// with its private key. Both are in PEM. With `clientcert=verify-full`, PostgreSQL demands
    /// that the common name of the certificate is the name of the user.
    ///
    /// # Examples
    ///
    /// The key is not shown:
    ///
    /// ```
    /// use tourbillon_durable::Tls;
    ///
    /// let (certificate, key) = ("-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----");
    /// let tls = Tls::new().client_certificate(certificate, key);
    /// assert!(!format!("{tls:?}").contains("KEY"));
    /// ```
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.client = Some([certificates.into(), key.into()]);
        self
    }
}

/// Shows what is set, without the contents.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("authority", &self.authority.is_some())
            .field("client_certificate", &self.client.is_some())
            .finish()
    }
}

/// Chooses a provider of cryptography if the program has chosen none. Without a default, `rustls`
/// panics if several are compiled in.
pub(crate) fn provide() {
    if CryptoProvider::get_default().is_none() {
        // Another thread may have done it.
        let _ = ring::default_provider().install_default();
    }
}
