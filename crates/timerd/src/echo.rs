//! The receiver of `--echo`, which prints the webhooks that it gets.

#![forbid(unsafe_code)]

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use timerd::StartError;
use tokio::net::TcpListener;

/// Starts a receiver on a port of this machine, and returns its address.
///
/// # Errors
///
/// Fails if the receiver cannot listen on the port.
pub(crate) async fn start(port: u16) -> Result<SocketAddr, StartError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let failed = |error| StartError::Listen(address.to_string(), error);
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    let router = Router::new().fallback(any(receive));
    // It serves until the program ends.
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(address)
}

/// Prints a request, and accepts it.
async fn receive(method: Method, uri: Uri, headers: HeaderMap, body: Bytes) -> StatusCode {
    let mut text = format!("{method} {uri}\n");
    for (name, value) in &headers {
        let _ = writeln!(text, "{name}: {}", String::from_utf8_lossy(value.as_bytes()));
    }
    text.push('\n');
    // A terminal would obey control characters.
    for line in String::from_utf8_lossy(&body).lines() {
        text.extend(line.chars().filter(|character| !character.is_control()));
        text.push('\n');
    }
    // Nothing is lost if the reader of the output has gone.
    let _ = writeln!(io::stdout(), "{text}");
    StatusCode::NO_CONTENT
}
