//! [`Guard`], the only way to the network. It connects only to addresses that it has checked and
//! that are global or allowed.
//!
//! ```text
//!   host ──► resolve (a literal is itself) ──► drop what is not global ──► connect to what is left
//! ```
//!
//! A name is resolved once for each attempt. The attempt uses a connection to one of the checked
//! addresses, so a name whose addresses change in between leads nowhere else.

#![forbid(unsafe_code)]

mod filter;
mod resolver;
mod stream;

use super::config::{Ports, Webhooks};
use super::fault::{Fault, OwnFault, ReceiverFault, Refusal};
use super::target::Target;
use filter::canonical;
use ipnet::IpNet;
pub use resolver::{ResolveError, Resolver, Resolving, system_resolver};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::{self, PemObject};
use rustls::{ClientConfig, RootCertStore};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
pub(crate) use stream::{Heard, Stream};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use url::Host;

/// How long an address is tried alone before the next one is tried in parallel (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// The maximum number of addresses of a host that are tried.
const MAX_ADDRESSES: usize = 8;

pub(crate) struct Guard {
    resolver: Resolver,
    allowed: Vec<IpNet>,
    ports: Ports,
    /// Addresses that are allowed with one port each.
    receivers: Vec<SocketAddr>,
    /// `None` if no authority is known, because then no certificate can be trusted.
    tls: Option<TlsConnector>,
}

/// A target, and the addresses of its host that may be called.
pub(crate) struct Route<'a> {
    pub(crate) target: &'a Target,
    pub(crate) addresses: Vec<IpAddr>,
}

/// The reason why no calls by TLS can be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// The file of authorities cannot be read, or is not PEM.
    Pem(PathBuf, pem::Error),
    /// A certificate in the file is not an authority.
    Authority(PathBuf, rustls::Error),
    /// The cryptography lacks the versions of TLS.
    Versions(rustls::Error),
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pem(file, error) => write!(f, "{}: {error}", file.display()),
            Self::Authority(file, error) => write!(f, "{}: {error}", file.display()),
            Self::Versions(error) => error.fmt(f),
        }
    }
}

impl Error for TlsError {}

impl Guard {
    pub(crate) fn new(
        settings: &Webhooks,
        receivers: &[SocketAddr],
        resolver: Resolver,
    ) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        // If the system has no root certificates, only `http://` and hosts under the configured
        // authority can be called.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(path) = &settings.authority {
            let wrong = |error| TlsError::Pem(path.clone(), error);
            for certificate in CertificateDer::pem_file_iter(path).map_err(wrong)? {
                let added = roots.add(certificate.map_err(wrong)?);
                added.map_err(|error| TlsError::Authority(path.clone(), error))?;
            }
        }
        if roots.is_empty() {
            tracing::warn!("this system has no certificate authorities: no https:// is called");
        }
        let is_trusting = !roots.is_empty();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Versions)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            resolver,
            allowed: settings.allow.clone(),
            ports: settings.ports.clone(),
            receivers: receivers.iter().map(|it| (canonical(it.ip()), it.port()).into()).collect(),
            tls: is_trusting.then(|| TlsConnector::from(Arc::new(config))),
        })
    }

    /// Checks a target's port, and its address if it is known without a lookup.
    pub(crate) fn check(&self, target: &Target) -> Result<(), Refusal> {
        self.known(target).map(drop)
    }

    /// Resolves the host of a target, and returns the addresses that may be called.
    pub(crate) async fn route<'a>(&self, target: &'a Target) -> Result<Route<'a>, Fault> {
        let addresses = match self.known(target)? {
            Some(address) => vec![address],
            None => self.resolve(target).await?,
        };
        Ok(Route { target, addresses })
    }

    /// Returns the address of a target that needs no lookup. Fails if its port or its addresses may
    /// not be called.
    fn known(&self, target: &Target) -> Result<Option<IpAddr>, Refusal> {
        let port = target.port;
        if !self.ports.contains(port) && !self.receivers.iter().any(|it| it.port() == port) {
            return Err(Refusal::Port(port));
        }
        let refusal = || self.refusal(target);
        let address: IpAddr = match &target.host {
            Host::Ipv4(address) => (*address).into(),
            Host::Ipv6(address) => (*address).into(),
            // Its names always resolve to these addresses (RFC 6761).
            Host::Domain(name) if is_localhost(name) => {
                let loopback = [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let is_permitted =
                    loopback.into_iter().any(|it| self.permitted(it, port).is_some());
                return is_permitted.then_some(None).ok_or_else(refusal);
            }
            Host::Domain(_) => return Ok(None),
        };
        self.permitted(address, port).map(Some).ok_or_else(refusal)
    }

    /// Connects to the first address of a route that accepts a connection. Each address has a head
    /// start before the next, which includes its TLS handshake.
    pub(crate) async fn connect(&self, route: &Route<'_>) -> Result<(Stream, SocketAddr), Fault> {
        let Target { host, port, .. } = route.target;
        let mut addresses = route.addresses.iter().take(MAX_ADDRESSES);
        let (mut connecting, mut fault) = (JoinSet::new(), None);
        loop {
            let next = addresses.next().map(|address| SocketAddr::new(*address, *port));
            if let Some(address) = next {
                connecting.spawn(self.open(route.target, address)?);
            }
            let ended = match next {
                None => connecting.join_next().await,
                Some(_) => match timeout(HEAD_START, connecting.join_next()).await {
                    Ok(ended) => ended,
                    Err(_) => continue,
                },
            };
            match ended {
                Some(Ok(Ok(opened))) => return Ok(opened),
                // If one of the addresses was reached, the receiver was reached.
                Some(Ok(Err(other))) if matches!(fault, Some(Fault::Receiver(_))) => drop(other),
                Some(Ok(Err(other))) => fault = Some(other),
                Some(Err(_)) => {}
                None => break,
            }
        }
        let none = || Fault::of_connecting(&host.to_string(), io::Error::other("no address"));
        Err(fault.unwrap_or_else(none))
    }

    /// Returns a future that connects to an address of a target.
    fn open(
        &self,
        target: &Target,
        address: SocketAddr,
    ) -> Result<impl Future<Output = Result<(Stream, SocketAddr), Fault>> + use<>, Fault> {
        let tls = match &target.tls {
            Some(name) => {
                let tls = self.tls.as_ref().ok_or(OwnFault::Authorities)?;
                Some((tls.clone(), name.clone()))
            }
            None => None,
        };
        let host = target.host.to_string();
        Ok(async move {
            let stream = TcpStream::connect(address).await;
            let stream = stream.map_err(|error| Fault::of_connecting(&host, error))?;
            // The connection is used for one request after another. It works without this, too.
            let _ = stream.set_nodelay(true);
            let Some((tls, name)) = tls else { return Ok((Stream::plain(stream), address)) };
            // The receiver has accepted the connection, so a failed handshake is its fault.
            let stream = tls.connect(name, stream).await;
            let failed = |error| ReceiverFault::Connection { host, error };
            Ok((Stream::tls(stream.map_err(failed)?), address))
        })
    }

    /// Resolves the name of a target's host, and returns the addresses that may be called.
    async fn resolve(&self, target: &Target) -> Result<Vec<IpAddr>, Fault> {
        let host = target.host.to_string();
        let found = (self.resolver)(host.clone()).await;
        let found = found.map_err(|error| unresolved(host.clone(), error))?;
        let permitted = |address| self.permitted(address, target.port);
        let allowed: Vec<IpAddr> = found.into_iter().filter_map(permitted).collect();
        match allowed.is_empty() {
            true => Err(self.refusal(target).into()),
            false => Ok(allowed),
        }
    }

    /// Returns the address in its plain form if connections to its port are allowed.
    fn permitted(&self, address: IpAddr, port: u16) -> Option<IpAddr> {
        let address = canonical(address);
        let is_allowed = self.receivers.contains(&(address, port).into())
            || self.ports.contains(port)
                && (self.allowed.iter().any(|network| network.contains(&address))
                    || filter::is_global(address));
        is_allowed.then_some(address)
    }

    /// Returns the reason why a target is refused whose addresses are all not permitted.
    fn refusal(&self, target: &Target) -> Refusal {
        match self.ports.contains(target.port) {
            true => Refusal::Internal(target.host.to_string()),
            false => Refusal::Port(target.port),
        }
    }
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

fn unresolved(host: String, error: ResolveError) -> Fault {
    match error {
        ResolveError::NoSuchName => ReceiverFault::NoSuchName(host).into(),
        ResolveError::Away(why) => OwnFault::Resolver { host, why }.into(),
    }
}
