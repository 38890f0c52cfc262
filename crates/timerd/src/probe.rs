//! [`check_health`], which asks a running service for its health. It is for images without an HTTP
//! client, whose health check is `timerd health`.

#![forbid(unsafe_code)]

use bytes::Bytes;
use http::header::HOST;
use http::{Request, StatusCode};
use http_body_util::Empty;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use std::error::Error;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;

/// How long the service may take to reply. It never waits for its store to do so.
const REPLY_TIMEOUT: Duration = Duration::from_secs(3);

/// The reason why a service is not healthy.
#[derive(Debug)]
#[non_exhaustive]
pub enum HealthError {
    /// The service accepts no connections at this address.
    Connect(String, io::Error),
    /// The reply is not HTTP, or the connection broke before it.
    Http(hyper::Error),
    /// The service has not replied in time.
    Silent,
    /// The service cannot use its store, or something else listens on the address.
    Status(StatusCode),
}

impl fmt::Display for HealthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(address, error) => write!(f, "could not connect to {address}: {error}"),
            Self::Http(error) => write!(f, "the service did not reply: {error}"),
            Self::Silent => write!(f, "the service did not reply within {REPLY_TIMEOUT:?}"),
            Self::Status(status) => write!(f, "the service replied {status} (expected 200 OK)"),
        }
    }
}

impl Error for HealthError {}

impl From<hyper::Error> for HealthError {
    fn from(error: hyper::Error) -> Self {
        Self::Http(error)
    }
}

/// Asks the service that listens on `HOST:PORT` for its health.
///
/// # Errors
///
/// Fails if the service does not reply within three seconds, or cannot use its store.
pub async fn check_health(listen: &str) -> Result<(), HealthError> {
    let address = reachable(listen);
    match tokio::time::timeout(REPLY_TIMEOUT, ask(&address)).await {
        Ok(Ok(StatusCode::OK)) => Ok(()),
        Ok(Ok(status)) => Err(HealthError::Status(status)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(HealthError::Silent),
    }
}

/// Returns an address that leads to a listener, which may listen on all addresses of the machine.
fn reachable(listen: &str) -> String {
    match listen.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_unspecified() => {
            let loopback = match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            };
            SocketAddr::new(loopback, address.port()).to_string()
        }
        _ => listen.to_owned(),
    }
}

async fn ask(address: &str) -> Result<StatusCode, HealthError> {
    let failed = |error| HealthError::Connect(address.to_owned(), error);
    let stream = TcpStream::connect(address).await.map_err(failed)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the sender.
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.uri_mut() = http::Uri::from_static("/healthz");
    request.headers_mut().insert(HOST, http::HeaderValue::from_static("localhost"));
    Ok(sender.send_request(request).await?.status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_this_machine() {
        for (listen, reached) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:80", "[::1]:80"),
            ("10.0.0.7:8080", "10.0.0.7:8080"),
            ("localhost:8080", "localhost:8080"),
        ] {
            assert_eq!(reachable(listen), reached);
        }
    }
}
