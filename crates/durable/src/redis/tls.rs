//! The clients of a server that is connected by TLS.

#![forbid(unsafe_code)]

use crate::error::DurableError;
use crate::store::tls::Tls;
use redis::{Client, ClientTlsConfig, ConnectionInfo, TlsCertificates};

/// Returns the certificates as the client's crate takes them.
pub(super) fn certificates(tls: &Tls) -> TlsCertificates {
    let Tls { authority, client } = tls.clone();
    TlsCertificates {
        client_tls: client
            .map(|[client_cert, client_key]| ClientTlsConfig { client_cert, client_key }),
        root_cert: authority,
    }
}

/// Returns a client that uses the certificates.
pub(super) fn client(tls: &Tls, info: ConnectionInfo) -> Result<Client, DurableError> {
    Client::build_with_tls(info, certificates(tls)).map_err(|error| match error.kind() {
        redis::ErrorKind::InvalidClientConfig => DurableError::Address(error.to_string()),
        _ => DurableError::Tls(error.to_string()),
    })
}
