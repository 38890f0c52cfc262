//! [`PostgresTls`], the certificates of connections by TLS.

#![forbid(unsafe_code)]

use super::super::error::DurableError;
use super::super::tls::{Certificates, provide};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The certificates of connections by TLS. By default the authorities of the platform are trusted,
/// and no client certificate is sent.
///
/// The cryptography is that of the process's default provider of `rustls`. If there is none when a
/// store is connected by TLS, `ring` becomes the default. Install another one before that.
///
/// # Examples
///
/// ```no_run
/// use tourbillon_durable::{Postgres, PostgresOptions, PostgresTls};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let read = |name: &str| std::fs::read(format!("/etc/reminders/{name}.pem"));
/// let tls = PostgresTls::new()
///     .authority(read("authority")?)
///     .client_certificate(read("certificate")?, read("key")?);
/// let options = PostgresOptions::new("reminders").tls(tls);
/// let store = Postgres::connect("postgres://shop@postgres.internal/shop", options).await?;
/// # drop(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct PostgresTls(Certificates);

impl PostgresTls {
    /// Trusts the authorities of the platform.
    ///
    /// # Examples
    ///
    /// ```
    /// use tourbillon_durable::PostgresTls;
    ///
    /// let tls = PostgresTls::new();
    /// let shown = "PostgresTls { authority: false, client_certificate: false }";
    /// assert_eq!(format!("{tls:?}"), shown);
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
    /// use tourbillon_durable::PostgresTls;
    ///
    /// let tls = PostgresTls::new().authority(std::fs::read("authority.pem")?);
    /// # let _ = tls;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn authority(mut self, certificates: impl Into<Vec<u8>>) -> Self {
        self.0.authority = Some(certificates.into());
        self
    }

    /// Sends a client certificate, with the certificates between it and its authority, and signs
    /// with its private key. Both are in PEM. With `clientcert=verify-full` the server demands that
    /// the common name of the certificate is that of the user.
    ///
    /// # Examples
    ///
    /// The key is not shown:
    ///
    /// ```
    /// use tourbillon_durable::PostgresTls;
    ///
    /// let (certificate, key) = ("-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----");
    /// let tls = PostgresTls::new().client_certificate(certificate, key);
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

    /// Returns the connector that uses the certificates.
    pub(super) fn connector(&self) -> Result<MakeRustlsConnect, DurableError> {
        provide();
        let Certificates { authority, client } = &self.0;
        let builder = ClientConfig::builder().with_root_certificates(match authority {
            Some(authority) => given(authority)?,
            None => of_the_platform(),
        });
        let mut config = match client {
            None => builder.with_no_client_auth(),
            Some([certificates, key]) => {
                let what = "the client certificate";
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|error| invalid("the key of the client certificate", error))?;
                let signed = builder.with_client_auth_cert(parsed(certificates, what)?, key);
                signed.map_err(|error| invalid(what, error))?
            }
        };
        // Demanded by servers that are asked for TLS without a request (`sslnegotiation=direct`).
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(MakeRustlsConnect::new(config))
    }
}

/// Shows what is set, without the contents.
impl fmt::Debug for PostgresTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show("PostgresTls", f)
    }
}

fn invalid(what: &str, error: impl fmt::Display) -> DurableError {
    DurableError::Tls(format!("{what} is invalid: {error}"))
}

/// Returns the authorities of the platform, without those that `rustls` cannot read.
fn of_the_platform() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    roots
}

fn given(authority: &[u8]) -> Result<RootCertStore, DurableError> {
    let what = "the authority";
    let mut roots = RootCertStore::empty();
    for certificate in parsed(authority, what)? {
        roots.add(certificate).map_err(|error| invalid(what, error))?;
    }
    Ok(roots)
}

/// Returns the certificates in a text, at least one.
fn parsed(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, DurableError> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let certificates = certificates.map_err(|error| invalid(what, error))?;
    if certificates.is_empty() {
        return Err(invalid(what, "it has no certificate in PEM"));
    }
    Ok(certificates)
}
