//! [`Certificates`], the certificates of connections by TLS.

#![forbid(unsafe_code)]

use rustls::crypto::{CryptoProvider, ring};
use std::fmt;

/// The certificates of connections to a server, in PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// The authorities that are trusted instead of the platform's.
    pub(crate) authority: Option<Vec<u8>>,
    /// The client certificate, and its private key.
    pub(crate) client: Option<[Vec<u8>; 2]>,
}

impl Certificates {
    /// Shows what is set, without the contents.
    pub(crate) fn show(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
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
