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
mod stream;

use super::config::Webhooks;
use filter::canonical;
use http::Uri;
use ipnet::IpNet;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use stream::Stream;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The time for one of several addresses.
const PATIENCE: Duration = Duration::from_secs(3);

/// Resolves the name of a host.
pub type Resolver = Arc<dyn Fn(String) -> Resolving + Send + Sync>;

/// The addresses of a host.
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Returns the resolver of the system.
#[must_use]
pub fn system_resolver() -> Resolver {
    Arc::new(|host| {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    })
}

pub(crate) struct Guard {
    resolver: Resolver,
    allowed: Vec<IpNet>,
    ports: Vec<u16>,
    tls: TlsConnector,
}

/// The reason for which there is no connection.
#[derive(Debug)]
pub(crate) enum GuardError {
    /// The address has no host.
    Host,
    /// The port is not allowed.
    Port(u16),
    /// The name cannot be resolved.
    Resolve(String, io::Error),
    /// All addresses of the host are internal.
    Internal(String),
    /// The connection has failed.
    Connect(String, io::Error),
}

impl fmt::Display for GuardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the address has no host"),
            Self::Port(port) => write!(f, "port {port} is not allowed"),
            Self::Resolve(host, error) => write!(f, "could not resolve {host}: {error}"),
            Self::Internal(host) => write!(f, "{host} has no address that is global or allowed"),
            Self::Connect(host, error) => write!(f, "could not connect to {host}: {error}"),
        }
    }
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
    fn of(uri: &'a Uri) -> Result<Self, GuardError> {
        let host = uri.host().ok_or(GuardError::Host)?;
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
            let wrong = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
            for certificate in CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))? {
                let certificate = certificate.map_err(|error| wrong(&error))?;
                roots.add(certificate).map_err(|error| wrong(&error))?;
            }
        }
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
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    /// Checks what is known of an address before its name is resolved.
    pub(crate) fn check(&self, uri: &Uri) -> Result<(), GuardError> {
        let route = Route::of(uri)?;
        if !self.ports.contains(&route.port) {
            return Err(GuardError::Port(route.port));
        }
        match route.host.parse::<IpAddr>() {
            Ok(literal) if self.permitted(literal).is_none() => {
                Err(GuardError::Internal(route.host.to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Resolves the host of an address, and returns where connections are allowed.
    pub(crate) async fn route<'a>(&self, uri: &'a Uri) -> Result<Route<'a>, GuardError> {
        self.check(uri)?;
        let route = Route::of(uri)?;
        let addresses = self.addresses(route.host).await?;
        Ok(Route { addresses, ..route })
    }

    /// Connects to one of the addresses of a route.
    pub(crate) async fn connect(
        &self,
        route: &Route<'_>,
    ) -> Result<(Stream, SocketAddr), GuardError> {
        let failed = |error| GuardError::Connect(route.host.to_owned(), error);
        let (stream, address) = first_of(&route.addresses, route.port).await.map_err(failed)?;
        // The connection is used for one request after another.
        stream.set_nodelay(true).map_err(failed)?;
        if !route.is_tls {
            return Ok((Stream::Plain(stream), address));
        }
        let name = ServerName::try_from(route.host.to_owned())
            .map_err(|error| failed(io::Error::other(error)))?;
        let stream = self.tls.connect(name, stream).await.map_err(failed)?;
        Ok((Stream::Tls(Box::new(stream)), address))
    }

    /// Returns the addresses of a host to which connections are allowed.
    async fn addresses(&self, host: &str) -> Result<Vec<IpAddr>, GuardError> {
        let found = match host.parse() {
            Ok(literal) => vec![literal],
            Err(_) => {
                let resolved = (self.resolver)(host.to_owned()).await;
                resolved.map_err(|error| GuardError::Resolve(host.to_owned(), error))?
            }
        };
        let allowed: Vec<IpAddr> =
            found.into_iter().filter_map(|address| self.permitted(address)).collect();
        match allowed.is_empty() {
            true => Err(GuardError::Internal(host.to_owned())),
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
