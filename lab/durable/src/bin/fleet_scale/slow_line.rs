//! [`slow_line`], which forwards connections to a server and holds everything back for a while.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, sleep_until};

/// Forwards connections to a port on this machine, with a latency in each direction. Returns the
/// port to connect to.
pub(crate) async fn slow_line(port: u16, latency: Duration) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
            client.set_nodelay(true).unwrap();
            server.set_nodelay(true).unwrap();
            let (from_client, to_client) = client.into_split();
            let (from_server, to_server) = server.into_split();
            hold_back(from_client, to_server, latency);
            hold_back(from_server, to_client, latency);
        }
    });
    here
}

/// Forwards one direction of a connection, until it ends.
fn hold_back(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin + Send + 'static,
    latency: Duration,
) {
    let (pieces, mut held) = unbounded_channel::<(Instant, Vec<u8>)>();
    tokio::spawn(async move {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let piece = (Instant::now() + latency, buffer[..length].to_vec());
            if pieces.send(piece).is_err() {
                return;
            }
        }
    });
    tokio::spawn(async move {
        while let Some((time, piece)) = held.recv().await {
            sleep_until(time).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
}
