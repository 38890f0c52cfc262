//! [`Resolver`], which finds the addresses of a host, and [`system_resolver`].
//!
//! The system's resolver blocks a thread until it has an answer, even if the call no longer waits
//! for it. Calls to one host therefore share a lookup ([`Lookups`]), and the number of lookups is
//! bounded.

#![forbid(unsafe_code)]

use dns_lookup::{AddrInfoHints, LookupError, LookupErrorKind, SockType, getaddrinfo};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::panic::catch_unwind;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// The maximum number of lookups in progress. It leaves half of the runtime's blocking threads to
/// other work.
const MAX_LOOKUPS: usize = 256;

/// Resolves the name of a host.
pub type Resolver = Arc<dyn Fn(String) -> Resolving + Send + Sync>;

/// The addresses of a host.
pub type Resolving = Pin<Box<dyn Future<Output = Result<Vec<IpAddr>, ResolveError>> + Send>>;

/// The reason why a resolver has no address for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The name does not exist or has no address, according to its own servers.
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
    let lookups = Arc::new(Lookups::default());
    Arc::new(move |host| Box::pin(Arc::clone(&lookups).addresses(host, lookup)))
}

/// The result of a lookup.
type Found = Result<Vec<IpAddr>, ResolveError>;

/// The lookups in progress, each for all calls to its host.
#[derive(Default)]
struct Lookups(Mutex<HashMap<String, watch::Receiver<Option<Found>>>>);

impl Lookups {
    /// Returns the addresses of a host, from its lookup in progress or from a new lookup.
    async fn addresses(self: Arc<Self>, host: String, lookup: fn(&str) -> Found) -> Found {
        let mut found = self.begin(host, lookup)?;
        let failed = || ResolveError::Away("the lookup has failed".to_owned());
        let found = found.wait_for(Option::is_some).await.map_err(|_| failed())?;
        found.clone().unwrap_or_else(|| Err(failed()))
    }

    fn begin(
        self: Arc<Self>,
        host: String,
        lookup: fn(&str) -> Found,
    ) -> Result<watch::Receiver<Option<Found>>, ResolveError> {
        let mut all = self.lock();
        if let Some(begun) = all.get(&host) {
            return Ok(begun.clone());
        }
        if all.len() >= MAX_LOOKUPS {
            return Err(ResolveError::Away(format!("{MAX_LOOKUPS} lookups are not answered")));
        }
        let (send, found) = watch::channel(None);
        all.insert(host.clone(), found.clone());
        drop(all);
        tokio::task::spawn_blocking(move || {
            // However the lookup ends, the next call begins a new lookup.
            let found = catch_unwind(|| lookup(&host));
            self.lock().remove(&host);
            if let Ok(found) = found {
                send.send_replace(Some(found));
            }
        });
        Ok(found)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Option<Found>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lookup(host: &str) -> Found {
    // Each address is returned once, and not once for each type of socket.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::time::Duration;
    use tokio::time::timeout;

    static ANSWERS: Mutex<()> = Mutex::new(());

    /// Finds an address at once, except for hosts of `away.example`, whose server is silent while
    /// the test holds the lock.
    fn found(host: &str) -> Found {
        if host.ends_with("away.example") {
            drop(ANSWERS.lock());
        }
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }

    #[tokio::test]
    async fn lookups_are_bounded_although_their_calls_have_ended() {
        let lookups = Arc::new(Lookups::default());
        let resolve = |host: String| {
            let found = Arc::clone(&lookups).addresses(host, found);
            timeout(Duration::from_millis(1), found)
        };
        let silent = ANSWERS.lock();
        for _ in 0..1000 {
            resolve("away.example".to_owned()).await.expect_err("no answer in time");
        }
        assert_eq!(lookups.lock().len(), 1);
        for number in 0..2 * MAX_LOOKUPS {
            let found = resolve(format!("{number}.away.example")).await;
            assert!(found.is_err() || matches!(found, Ok(Err(ResolveError::Away(_)))));
        }
        assert_eq!(lookups.lock().len(), MAX_LOOKUPS);
        drop(silent);
        let here = Ok(vec![Ipv4Addr::LOCALHOST.into()]);
        let last = Arc::clone(&lookups).addresses("away.example".to_owned(), found).await;
        assert_eq!(last, here);
        while !lookups.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        let other = Arc::clone(&lookups).addresses("here.example".to_owned(), found).await;
        assert_eq!(other, here);
    }
}
