//! A QUIC server and client over loopback. All timers of their connections (loss, pacing,
//! keep-alive and idle) are on one wheel, and are moved by its reset.
//!
//! A hundred connections send and then fall silent, and all of them end by their idle timeout. The
//! metrics of the wheel show the operations.
//!
//! ```text
//! cargo run -p tourbillon-integrations --example quic_echo
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{
    ClientConfig, Connection, ConnectionError, Endpoint, EndpointConfig, ServerConfig,
    TokioRuntime, TransportConfig,
};
use std::error::Error;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon::quinn::WheelRuntime;

const CONNECTIONS: usize = 100;
const IDLE: Duration = Duration::from_secs(1);

type AnyError = Box<dyn Error + Send + Sync>;

/// Echoes until the connection ends, and returns the cause.
async fn serve(connection: Connection) -> ConnectionError {
    loop {
        let (mut send, mut receive) = match connection.accept_bi().await {
            Ok(stream) => stream,
            Err(ended) => return ended,
        };
        tokio::spawn(async move {
            tokio::io::copy(&mut receive, &mut send).await?;
            send.finish()?;
            Ok::<(), AnyError>(())
        });
    }
}

/// The configurations of a server and of a client that trusts it.
fn configure() -> Result<(ServerConfig, ClientConfig), AnyError> {
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(IDLE.try_into()?));
    let transport = Arc::new(transport);

    let signed = rcgen::generate_simple_self_signed(vec![String::from("localhost")])?;
    let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let certificate = signed.cert.der().clone();
    let mut server = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    server.transport_config(Arc::clone(&transport));

    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let mut client = ClientConfig::with_root_certificates(Arc::new(roots))?;
    client.transport_config(transport);
    Ok((server, client))
}

#[tokio::main]
async fn main() -> Result<(), AnyError> {
    let timer = Timer::spawn(Builder::new().driver())?;
    let endpoint = |config: Option<ServerConfig>| {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let runtime = WheelRuntime::new(timer.clone(), Arc::new(TokioRuntime));
        Endpoint::new(EndpointConfig::default(), config, socket, Arc::new(runtime))
    };
    let (server_config, client_config) = configure()?;
    let server = endpoint(Some(server_config))?;
    let mut client = endpoint(None)?;
    client.set_default_client_config(client_config);
    let address = server.local_addr()?;

    let serving = server.clone();
    tokio::spawn(async move {
        while let Some(incoming) = serving.accept().await {
            tokio::spawn(async move { Ok::<_, ConnectionError>(serve(incoming.await?).await) });
        }
    });

    let mut connections = Vec::new();
    for number in 0..CONNECTIONS {
        let connection = client.connect(address, "localhost")?.await?;
        let (mut send, mut receive) = connection.open_bi().await?;
        let data = format!("connection {number}");
        send.write_all(data.as_bytes()).await?;
        send.finish()?;
        assert_eq!(receive.read_to_end(100).await?, data.as_bytes());
        connections.push(connection);
    }
    println!("{CONNECTIONS} connections: {} timers are armed", timer.wheel().len());

    for connection in connections {
        assert_eq!(connection.closed().await, ConnectionError::TimedOut);
    }
    for endpoint in [client, server] {
        endpoint.close(0_u32.into(), b"");
        endpoint.wait_idle().await;
    }
    let metrics = timer.wheel().metrics();
    println!("all were idle for {IDLE:?} and have ended; the wheel's timers:");
    println!("{} armed, {} moved on, {} fired", metrics.inserted, metrics.reset, metrics.fired);
    Ok(())
}
