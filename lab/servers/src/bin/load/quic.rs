//! Loads a QUIC server, and audits the end of its idle connections.
//!
//! All connections are open, and a limited number of them have a request under way. Then the client
//! vanishes without closing them, as on a network that fails. Until then it pings on connections
//! without requests. A connection is closed *early* if that happens before the idle timeout has
//! passed since the oldest of their last requests. *Lateness* counts from the instant when the
//! client had vanished.

use crate::Failure;
use crate::busy::Answers;
use crate::child::Child;
use crate::measure::{Load, Outcome, Window};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::CertificateDer;
use quinn::{ClientConfig, Connection, Endpoint, TransportConfig};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

/// The number of requests under way.
const UNDER_WAY: usize = 64;

/// The number of pings in an idle timeout.
const PINGS: u32 = 3;

const REQUEST: [u8; 64] = *b"sixty-four bytes go to the server, and the same ones come back.\n";

/// The time for the runtime of the client to end.
const ENDING: Duration = Duration::from_secs(1);

/// The connections of a task.
struct Client {
    /// Each with the instant before its last request.
    connections: Vec<(Connection, Instant)>,
    answers: Answers,
}

/// Loads the server, and stops it once all connections are closed.
pub(crate) fn load(mut child: Child, load: &Load) -> Result<Outcome, Failure> {
    let certificate = bytes(child.line()?.trim())?;
    let config = configure(certificate, load.timeout)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (clients, cpu) = runtime.block_on(keep_busy(&child, config, load))?;
    runtime.shutdown_timeout(ENDING);
    let vanished = Instant::now();
    // Only now, because a connection that is dropped by its user is closed.
    let mut answers = Answers::none()?;
    let mut opened = 0;
    let mut oldest = vanished;
    for client in clients {
        answers.add(&client.answers)?;
        opened += client.connections.len() as u64;
        oldest = client.connections.iter().map(|&(_, asked)| asked).fold(oldest, Instant::min);
    }
    let report = child.stop()?;
    let now = Instant::now();
    let closed = |which: &str| Some(now - Duration::from_micros(report[which].as_u64()?));
    let (first, last) = (closed("first_us"), closed("last_us"));
    Ok(Outcome {
        answers,
        cpu,
        early: u64::from(first.is_some_and(|first| first < oldest + load.timeout)),
        latest: last
            .map_or(Duration::ZERO, |last| last.saturating_duration_since(vanished + load.timeout)),
        lost: opened.saturating_sub(report["idle"].as_u64().unwrap_or(0)),
        report,
    })
}

/// Parses hexadecimal digits.
fn bytes(digits: &str) -> Result<Vec<u8>, Failure> {
    let digit = |place| digits.get(place..place + 2).ok_or("an odd number of digits");
    let byte = |place| Ok::<_, Failure>(u8::from_str_radix(digit(place)?, 16)?);
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn configure(certificate: Vec<u8>, timeout: Duration) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    let mut transport = TransportConfig::default();
    transport.keep_alive_interval(Some(timeout / PINGS));
    config.transport_config(Arc::new(transport));
    Ok(config)
}

/// Opens all connections and sends requests until the window has passed. Returns the clients, with
/// their connections, and the CPU time that the server used in the window.
async fn keep_busy(
    child: &Child,
    config: ClientConfig,
    load: &Load,
) -> Result<(Vec<Client>, Duration), Failure> {
    let tasks = UNDER_WAY.min(load.quic);
    let opened = Arc::new(Barrier::new(tasks + 1));
    let mut clients = JoinSet::new();
    let (warm_up, length) = (load.window / 4, load.window);
    let mut endpoint = Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    endpoint.set_default_client_config(config);
    for task in 0..tasks {
        let share = load.quic * (task + 1) / tasks - load.quic * task / tasks;
        let (endpoint, opened, address) = (endpoint.clone(), Arc::clone(&opened), child.address());
        clients.spawn(async move {
            let client = Client::connect(&endpoint, address, share).await;
            opened.wait().await;
            client?.run(&Window::after(warm_up, length)).await
        });
    }
    opened.wait().await;
    let window = Window::after(warm_up, length);
    let cpu = tokio::task::block_in_place(|| window.cpu(child))?;
    let clients = clients.join_all().await.into_iter().collect::<Result<_, _>>()?;
    Ok((clients, cpu))
}

impl Client {
    async fn connect(
        endpoint: &Endpoint,
        address: SocketAddr,
        share: usize,
    ) -> Result<Self, Failure> {
        let mut connections = Vec::with_capacity(share);
        for _ in 0..share {
            let asked = Instant::now();
            connections.push((endpoint.connect(address, "localhost")?.await?, asked));
        }
        Ok(Self { connections, answers: Answers::none()? })
    }

    /// Sends one request after another, on all connections in turn, until the window has passed.
    async fn run(mut self, window: &Window) -> Result<Self, Failure> {
        let turns = 0..self.connections.len();
        for turn in turns.cycle() {
            let sent = Instant::now();
            if sent >= window.end() {
                break;
            }
            let (connection, asked) = &mut self.connections[turn];
            *asked = sent;
            let answer = request(connection).await;
            let now = Instant::now();
            if answer.is_err() {
                self.answers.cut += 1;
            } else if window.contains(now) {
                let nanos = u64::try_from((now - sent).as_nanos())?;
                self.answers.latencies.saturating_record(nanos.max(1));
            }
        }
        Ok(self)
    }
}

async fn request(connection: &Connection) -> Result<(), Failure> {
    let (mut send, mut receive) = connection.open_bi().await?;
    send.write_all(&REQUEST).await?;
    send.finish()?;
    let answer = receive.read_to_end(REQUEST.len()).await?;
    if answer == REQUEST { Ok(()) } else { Err("the answer is not what was sent".into()) }
}
