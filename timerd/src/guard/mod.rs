//! [`Guard`], the only way to the network. It connects to addresses that it has checked, and to
//! nothing that is not global unless that was allowed.
//!
//! ```text
//!   host ──► resolve (a literal is itself) ──► drop what is not global ──► connect to what is left
//! ```
//!
//! A name is resolved once for each attempt. The attempt uses a connection to one of the checked
//! addresses, so a name that changes in between leads nowhere else.

#![forbid(unsafe_code)]

mod filter;
mod resolver;
mod stream;

use super::config::Webhooks;
use super::fault::{Fault, OwnFault, ReceiverFault, Refusal};
use filter::canonical;
use http::Uri;
use ipnet::IpNet;
pub use resolver::{ResolveError, Resolver, Resolving, system_resolver};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
pub(crate) use stream::Stream;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The time for one of several addresses.
const PATIENCE: Duration = Duration::from_secs(3);

pub(crate) struct Guard {
    resolver: Resolver,
    allowed: Vec<IpNet>,
    ports: Vec<u16>,
    /// `None` if no authority is known, so that no certificate could be trusted.
    tls: Option<TlsConnector>,
}

/// The host and port of an address, and the addresses of the host that may be called.
pub(crate) struct Route<'a> {
    pub(crate) host: &'a str,
    pub(crate) port: u16,
    pub(crate) is_tls: bool,
    pub(crate) addresses: Vec<IpAddr>,
}

impl<'a> Route<'a> {
    /// Returns a route without addresses.
    fn of(uri: &'a Uri) -> Result<Self, Refusal> {
        let host =
            uri.host().ok_or_else(|| Refusal::Webhook("the address has no host".to_owned()))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let is_tls = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        Ok(Self { host, port, is_tls, addresses: Vec::new() })
    }
}

impl Guard {
    pub(crate) fn new(settings: &Webhooks, resolver: Resolver) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        // A system without authorities can call `http://` and what has an authority of its own.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &settings.authority {
            let wrong = |error: &dyn Display| format!("{}: {error}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
        if roots.is_empty() {
            tracing::warn!("this system has no certificate authorities: no https:// is called");
        }
        let is_trusting = !roots.is_empty();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            resolver,
            allowed: settings.allow.clone(),
            ports: settings.ports.clone(),
            tls: is_trusting.then(|| TlsConnector::from(Arc::new(config))),
        })
    }

    /// Checks what is known of an address before its name is resolved.
    pub(crate) fn check(&self, uri: &Uri) -> Result<(), Refusal> {
        let route = Route::of(uri)?;
        if !self.ports.contains(&route.port) {
            return Err(Refusal::Port(route.port));
        }
        match route.host.parse::<IpAddr>() {
            Ok(literal) if self.permitted(literal).is_none() => {
                Err(Refusal::Internal(route.host.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Resolves the host of an address, and returns where connections are allowed.
    pub(crate) async fn route<'a>(&self, uri: &'a Uri) -> Result<Route<'a>, Fault> {
        self.check(uri)?;
        let route = Route::of(uri)?;
        let addresses = self.addresses(route.host).await?;
        Ok(Route { addresses, ..route })
    }

    /// Connects to one of the addresses of a route.
    pub(crate) async fn connect(&self, route: &Route<'_>) -> Result<(Stream, SocketAddr), Fault> {
        let failed = |error| Fault::of_connecting(route.host, error);
        let (stream, address) = first_of(&route.addresses, route.port).await.map_err(failed)?;
        // The connection is used for one request after another. It works without this, too.
        let _ = stream.set_nodelay(true);
        if !route.is_tls {
            return Ok((Stream::Plain(stream), address));
        }
        let tls = self.tls.as_ref().ok_or(OwnFault::Authorities)?;
        let name = ServerName::try_from(route.host.to_owned())
            .map_err(|error| Refusal::Webhook(format!("url: {error}")))?;
        // The receiver has accepted the connection, so it fails by what the receiver sends.
        let stream = tls
            .connect(name, stream)
            .await
            .map_err(|error| ReceiverFault::Connection { host: route.host.to_owned(), error })?;
        Ok((Stream::Tls(Box::new(stream)), address))
    }

    /// Returns the addresses of a host to which connections are allowed.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, Fault> {
        let found = match host.parse() {
            Ok(literal) => vec![literal],
            Err(_) => {
                let resolved = (self.resolver)(host.to_owned()).await;
                resolved.map_err(|error| unresolved(host, error))?
            }
        };
        let allowed: Vec<IpAddr> =
            found.into_iter().filter_map(|address| self.permitted(address)).collect();
        match allowed.is_empty() {
            true => Err(Refusal::Internal(host.to_owned()).into()),
            false => Ok(allowed),
        }
    }

    /// Returns the address in its plain form if connections to it are allowed.
    fn permitted(&self, address: IpAddr) -> Option<IpAddr> {
        let address = canonical(address);
        let allowed = self.allowed.iter().any(|network| network.contains(&address));
        (allowed || filter::is_global(address)).then_some(address)
    }
}

fn unresolved(host: &str, error: ResolveError) -> Fault {
    let host = host.to_owned();
    match error {
        ResolveError::NoSuchName => ReceiverFault::NoSuchName(host).into(),
        ResolveError::Away(why) => OwnFault::Resolver { host, why }.into(),
    }
}

/// Connects to the first address that accepts a connection.
async fn first_of(addresses: &[IpAddr], port: u16) -> io::Result<(TcpStream, SocketAddr)> {
    let mut last = io::Error::other("no address");
    for address in addresses {
        let address = SocketAddr::new(*address, port);
        match tokio::time::timeout(PATIENCE, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, address)),
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}
