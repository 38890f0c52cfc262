//! [`Resolver`], which finds the addresses of a host, and [`system_resolver`].

#![forbid(unsafe_code)]

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

/// Resolves the name of a host.
pub type Resolver = Arc<dyn Fn(String) -> Resolving + Send + Sync>;

/// The addresses of a host.
pub type Resolving = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send>>;

/// The reason why a resolver has no address for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The name does not exist, or has no address, as its own servers say.
    NoSuchName,
    /// The resolver could not answer, for this reason.
    Away(String),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchName => f.write_str("there is no such name"),
            Self::Away(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ResolveError {}

/// Returns the resolver of the system.
#[must_use]
pub fn system_resolver() -> Resolver {
    Arc::new(|host| {
        Box::pin(async move {
            let lookup = tokio::task::spawn_blocking(move || lookup(&host));
            lookup.await.unwrap_or_else(|error| Err(ResolveError::Away(error.to_string())))
        })
    })
}

fn lookup(host: &str) -> Result<Vec<IpAddr>, ResolveError> {
    // Each address comes once, and not once for each type of socket.
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let found = getaddrinfo(Some(host), None, Some(hints)).map_err(ResolveError::from)?;
    let away = |error: std::io::Error| ResolveError::Away(error.to_string());
    found.map(|info| info.map(|info| info.sockaddr.ip()).map_err(away)).collect()
}

impl From<LookupError> for ResolveError {
    fn from(error: LookupError) -> Self {
        match error.kind() {
            LookupErrorKind::NoName | LookupErrorKind::NoData => Self::NoSuchName,
            _ => Self::Away(std::io::Error::from(error).to_string()),
        }
    }
}
