//! A QUIC server on quinn that returns each stream that it receives. The timers of its connections
//! (loss, pacing, acknowledgements and idleness) are on a wheel or tokio's.
//!
//! `--idle` is the time before a silent connection is closed. The second line of output is the
//! certificate. After the end of its input the server waits until idle connections are closed.
//!
//! ```text
//! cargo run --release -p tourbillon-servers --bin quic_server -- --help
//! ```

#![allow(clippy::disallowed_methods, reason = "a program in real time")]

use clap::Parser;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::{
    Connection, ConnectionError, Endpoint, EndpointConfig, Incoming, Runtime, ServerConfig,
    TokioRuntime, TransportConfig,
};
use rcgen::{CertifiedKey, KeyPair};
use serde_json::{Value, json};
use std::net::UdpSocket;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tourbillon::Builder;
use tourbillon::future::Timer;
use tourbillon::quinn::WheelRuntime;
use tourbillon_servers::process::{self, Failure, Options};
use tourbillon_servers::timers::Kind;

/// The number of streams that a connection may have open.
const STREAMS: u32 = 16;

/// The longest request.
const LONGEST: usize = 64 << 10;

/// The time before an idle connection that is still open counts as lost.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    process::finish(run(&Options::parse()))
}

fn run(options: &Options) -> Result<Value, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match options.timers {
        Kind::Tokio => runtime.block_on(serve(options, Arc::new(TokioRuntime))),
        Kind::Wheel => {
            let timer = Timer::spawn(Builder::new().driver())?;
            let on_wheel = WheelRuntime::new(timer.clone(), Arc::new(TokioRuntime));
            let mut counts = runtime.block_on(serve(options, Arc::new(on_wheel)))?;
            drop(runtime);
            counts["left"] = timer.wheel().len().into();
            Ok(counts)
        }
        _ => Err("quinn's timers are on the wheel or tokio's".into()),
    }
}

/// The connections that have ended.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    accepted: u64,
    /// Connections that were closed because they were idle.
    idle: u64,
    /// The first and the last instant when one was.
    first: Option<Instant>,
    last: Option<Instant>,
}

/// Serves until the standard input ends, and returns the counts.
async fn serve(options: &Options, runtime: Arc<dyn Runtime>) -> Result<Value, Failure> {
    let socket = UdpSocket::bind(options.listen)?;
    let signed = rcgen::generate_simple_self_signed(vec![String::from("localhost")])?;
    let config = Some(configure(options.idle, &signed)?);
    let endpoint = Endpoint::new(EndpointConfig::default(), config, socket, runtime)?;
    process::listens_on(endpoint.local_addr()?);
    process::presents(signed.cert.der());
    let ended = Arc::new(Mutex::new(Ended::default()));
    let tasks = TaskTracker::new();
    let (accepting, counted, serving) = (endpoint.clone(), Arc::clone(&ended), tasks.clone());
    tokio::spawn(async move {
        while let Some(incoming) = accepting.accept().await {
            let counted = Arc::clone(&counted);
            serving.spawn(async move { serve_connection(incoming, &counted).await });
        }
    });
    process::input_ends().await;
    let _ = timeout(options.idle + PATIENCE, endpoint.wait_idle()).await;
    let open = endpoint.open_connections();
    endpoint.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    // The endpoint forgets a connection before its task has counted it.
    tasks.close();
    tasks.wait().await;
    let ended = *ended.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(json!({
        "accepted": ended.accepted,
        "idle": ended.idle,
        "lost": open, // connections that should have been closed
        "left": 0,
        // The times since the first and the last idle connection were closed.
        "first_us": micros_since(ended.first),
        "last_us": micros_since(ended.last),
    }))
}

fn micros_since(instant: Option<Instant>) -> Option<u64> {
    u64::try_from(instant?.elapsed().as_micros()).ok()
}

fn configure(idle: Duration, signed: &CertifiedKey<KeyPair>) -> Result<ServerConfig, Failure> {
    let key = PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![signed.cert.der().clone()], key.into())?;
    let mut transport = TransportConfig::default();
    transport.max_idle_timeout(Some(idle.try_into()?)).max_concurrent_bidi_streams(STREAMS.into());
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Serves a connection and records its end.
async fn serve_connection(incoming: Incoming, ended: &Mutex<Ended>) {
    let Ok(connection) = incoming.await else {
        return;
    };
    let cause = echo(&connection).await;
    let mut ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    ended.accepted += 1;
    if cause == ConnectionError::TimedOut {
        ended.idle += 1;
        ended.last = Some(Instant::now());
        ended.first = ended.first.or(ended.last);
    }
}

/// Returns streams until the connection ends, and then the cause.
async fn echo(connection: &Connection) -> ConnectionError {
    loop {
        let (mut send, mut receive) = match connection.accept_bi().await {
            Ok(stream) => stream,
            Err(cause) => return cause,
        };
        // One at a time. A stream that breaks ends with its connection.
        if let Ok(request) = receive.read_to_end(LONGEST).await {
            if send.write_all(&request).await.is_ok() {
                let _ = send.finish();
            }
        }
    }
}
