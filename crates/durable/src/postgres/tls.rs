//! The connector to a server by TLS.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::store::tls::{Tls, provide};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Returns the connector that uses the certificates.
pub(super) fn connector(tls: &Tls) -> Result<MakeRustlsConnect, DurableError> {
    provide();
    let Tls { authority, client } = tls;
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

fn invalid(what: &str, error: impl fmt::Display) -> DurableError {
    DurableError::Tls(format!("{what} is invalid: {error}"))
}

/// Returns the authorities of the platform, except authorities that `rustls` cannot read.
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
