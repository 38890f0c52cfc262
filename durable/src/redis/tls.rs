//! [`RedisTls`], the certificates of connections by TLS.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::super::tls::Certificates;
use redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};
use std::fmt;

/// The certificates of connections by TLS (`rediss://`). By default the authorities of the platform
/// are trusted, and no client certificate is sent.
///
/// The cryptography is that of the process's default provider of `rustls`. If there is none when a
/// store is connected by TLS, `ring` becomes the default. Install another one before that.
///
/// # Examples
///
/// ```no_run
/// use tourbillon_durable::{Redis, RedisOptions, RedisTls};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let read = |name: &str| std::fs::read(format!("/etc/reminders/{name}.pem"));
/// let tls = RedisTls::new()
///     .authority(read("authority")?)
///     .client_certificate(read("certificate")?, read("key")?);
/// let options = RedisOptions::new("reminders").tls(tls);
/// let store = Redis::connect("rediss://redis.internal:6380/", options).await?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct RedisTls(Certificates);

impl RedisTls {
    /// Trusts the authorities of the platform.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::RedisTls;
    ///
    /// let tls = RedisTls::new();
    /// assert_eq!(format!("{tls:?}"), "RedisTls { authority: false, client_certificate: false }");
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
    /// use tourbillon_durable::RedisTls;
    ///
    /// let tls = RedisTls::new().authority(std::fs::read("authority.pem")?);
    /// # let _ = tls;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn authority(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.0.authority = Some(certificates.into());
        self
    }

    /// Sends a client certificate, with the certificates between it and its authority, and signs
    /// with its private key. Both are in PEM.
    ///
    /// # Examples
    ///
    /// The key is not shown:
    ///
    /// ```
    /// use tourbillon_durable::RedisTls;
    ///
    /// let (certificate, key) = ("-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----");
    /// let tls = RedisTls::new().client_certificate(certificate, key);
    /// assert!(!format!("{tls:?}").contains("KEY"));
    /// ```
    #[must_use]
    pub fn client_certificate(
        mut self,
        certificates: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.0.client = Some([certificates.into(), key.into()]);
        self
    }

    pub(super) fn certificates(&self) -> TlsCertificates {
        let Certificates { authority, client } = self.0.clone();
        TlsCertificates {
            client_tls: client
                .map(|[client_cert, client_key]| ClientTlsConfig { client_cert, client_key }),
            root_cert: authority,
        }
    }

    /// Returns a client that uses the certificates.
    pub(super) fn client(&self, info: ConnectionInfo) -> Result<Client, DurableError> {
        Client::build_with_tls(info, self.certificates()).map_err(|error| match error.kind() {
            redis::ErrorKind::InvalidClientConfig => DurableError::Address(error.to_string()),
            _ => DurableError::Tls(error.to_string()),
        })
    }
}

/// Shows what is set, without the contents.
impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show("RedisTls", f)
    }
}
