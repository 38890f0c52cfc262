//! QUIC over loopback with quinn's timers on the wheel. The runtime below it counts the uses of its
//! own timers, and can lose datagrams.

use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::PrivatePkcs8KeyDer;
use quinn::udp::{RecvMeta, Transmit};
use quinn::{
    AsyncTimer, AsyncUdpSocket, ClientConfig, Connection, ConnectionError, Endpoint,
    EndpointConfig, Runtime, ServerConfig, TokioRuntime, TransportConfig, UdpPoller,
};
use std::io::{self, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tourbillon::future::Timer;
use tourbillon::quinn::WheelRuntime;
use tourbillon::{Builder, ManualClock};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
/// The time limit of every wait of a test.
const PATIENCE: Duration = Duration::from_secs(60);

/// The uses of the runtime below.
#[derive(Debug, Default)]
struct Counts {
    timers: AtomicUsize,
    polls: AtomicUsize,
    /// The number of datagrams to lose next.
    lose: AtomicUsize,
}

/// Tokio's runtime, with counters.
#[derive(Debug)]
struct Below(Arc<Counts>);

impl Runtime for Below {
    fn new_timer(&self, deadline: Instant) -> Pin<Box<dyn AsyncTimer>> {
        self.0.timers.fetch_add(1, SeqCst);
        Box::pin(Counted { timer: TokioRuntime.new_timer(deadline), counts: Arc::clone(&self.0) })
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        TokioRuntime.spawn(future);
    }

    fn wrap_udp_socket(&self, socket: UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        let socket = TokioRuntime.wrap_udp_socket(socket)?;
        Ok(Arc::new(Lossy { socket, counts: Arc::clone(&self.0) }))
    }
}

/// A timer of tokio's whose polls are counted.
#[derive(Debug)]
struct Counted {
    timer: Pin<Box<dyn AsyncTimer>>,
    counts: Arc<Counts>,
}

impl AsyncTimer for Counted {
    fn reset(mut self: Pin<&mut Self>, deadline: Instant) {
        self.timer.as_mut().reset(deadline);
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.counts.polls.fetch_add(1, SeqCst);
        self.timer.as_mut().poll(context)
    }
}

/// A socket that loses some of the datagrams that it sends.
#[derive(Debug)]
struct Lossy {
    socket: Arc<dyn AsyncUdpSocket>,
    counts: Arc<Counts>,
}

impl AsyncUdpSocket for Lossy {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.socket).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let lose = |left: usize| left.checked_sub(1);
        match self.counts.lose.fetch_update(SeqCst, SeqCst, lose) {
            Ok(_) => Ok(()),
            Err(_) => self.socket.try_send(transmit),
        }
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_recv(context, buffers, meta)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn may_fragment(&self) -> bool {
        self.socket.may_fragment()
    }
}

/// An echo server and a client.
struct Loopback {
    server: Endpoint,
    client: Endpoint,
    counts: Arc<Counts>,
}

impl Loopback {
    /// Creates both, within a tokio runtime.
    fn new(timer: &Timer, idle: Duration) -> Self {
        let counts = Arc::new(Counts::default());
        let runtime = WheelRuntime::new(timer.clone(), Arc::new(Below(Arc::clone(&counts))));
        let endpoint = |server: Option<ServerConfig>| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            let runtime = Arc::new(runtime.clone());
            Endpoint::new(EndpointConfig::default(), server, socket, runtime).unwrap()
        };
        let mut transport = TransportConfig::default();
        transport.max_idle_timeout(Some(idle.try_into().unwrap())).initial_rtt(10 * MS);
        let transport = Arc::new(transport);

        let names = vec![String::from("localhost")];
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(names).unwrap();
        let key = PrivatePkcs8KeyDer::from(signing_key.serialize_der()).into();
        let certificates = vec![cert.der().clone()];
        let mut config = ServerConfig::with_single_cert(certificates, key).unwrap();
        config.transport_config(Arc::clone(&transport));
        let server = endpoint(Some(config));

        let mut roots = RootCertStore::empty();
        roots.add(cert.der().clone()).unwrap();
        let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).unwrap();
        config.transport_config(transport);
        let mut client = endpoint(None);
        client.set_default_client_config(config);

        tokio::spawn(serve(server.clone()));
        Self { server, client, counts }
    }

    async fn connect(&self) -> Connection {
        let address = self.server.local_addr().unwrap();
        let connecting = self.client.connect(address, "localhost").unwrap();
        in_time(connecting).await.unwrap()
    }

    /// Asserts that idle connections were not polled.
    fn assert_calm(&self) {
        let polls = self.counts.polls.load(SeqCst);
        assert!(polls < 200, "{polls} polls while nothing happened");
    }

    /// Closes both, waits for the end, and returns the number of timers of the runtime below.
    async fn close(self, timer: &Timer) -> usize {
        for endpoint in [&self.client, &self.server] {
            endpoint.close(0_u32.into(), b"");
            in_time(endpoint.wait_idle()).await;
        }
        // The tasks of the connections end a little later, and with them the timers.
        in_time(async {
            while !timer.wheel().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        self.counts.timers.load(SeqCst)
    }
}

async fn serve(server: Endpoint) {
    while let Some(incoming) = server.accept().await {
        tokio::spawn(async move {
            let connection = incoming.await?;
            loop {
                let (mut send, mut receive) = connection.accept_bi().await?;
                tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut receive, &mut send).await;
                    let _ = send.finish();
                });
            }
            #[allow(unreachable_code, reason = "says of which type the error is")]
            Ok::<(), ConnectionError>(())
        });
    }
}

/// Waits for a future with a time limit.
async fn in_time<F: IntoFuture>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.unwrap()
}

async fn echo(connection: &Connection, data: &[u8]) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    let write = async {
        send.write_all(data).await.unwrap();
        send.finish().unwrap();
    };
    let (answer, ()) = in_time(async { tokio::join!(receive.read_to_end(1 << 22), write) }).await;
    assert!(answer.unwrap() == data, "the data came back changed");
}

fn timer() -> Timer {
    Timer::spawn(Builder::new().driver()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_arrives_and_no_timer_is_left() {
    let timer = timer();
    let net = Loopback::new(&timer, HOUR);
    let connection = net.connect().await;
    echo(&connection, &vec![7; 1 << 20]).await;
    let metrics = timer.wheel().metrics();
    assert!(metrics.inserted >= 2, "one for each end of the connection");
    assert!(metrics.reset > 0, "each end moves its own");
    assert!(metrics.armed >= 1);
    drop(connection);
    assert_eq!(net.close(&timer).await, 0, "all timers were the wheel's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_connection_times_out_and_not_early() {
    let timer = timer();
    let idle = 400 * MS;
    let net = Loopback::new(&timer, idle);
    let connection = net.connect().await;
    echo(&connection, b"data").await;
    let fired = timer.wheel().metrics().fired;
    // The last packet cannot have arrived before this one was sent.
    let began = timer.now();
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    send.write_all(b"the last").await.unwrap();
    assert_eq!(in_time(connection.closed()).await, ConnectionError::TimedOut);
    assert!(timer.now() - began >= idle, "early");
    assert!(timer.wheel().metrics().fired > fired);
    drop((connection, send, _receive));
    assert_eq!(net.close(&timer).await, 0, "all timers were the wheel's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_clock_of_connections_is_the_wheels() {
    let clock = ManualClock::new();
    let driver = Builder::new().clock(clock.clone()).driver();
    let timer = Timer::spawn(driver).unwrap();
    let net = Loopback::new(&timer, HOUR);
    let connection = net.connect().await;
    echo(&connection, &[7; 1000]).await;
    assert_eq!(connection.close_reason(), None);
    // Packets in flight restart the hour. The end that times out second may be notified by the
    // first.
    let passing = async {
        loop {
            clock.advance(HOUR);
            tokio::task::yield_now().await;
        }
    };
    let reason = tokio::select! {
        reason = in_time(connection.closed()) => reason,
        () = passing => unreachable!(),
    };
    let idle = matches!(reason, ConnectionError::TimedOut | ConnectionError::Reset);
    assert!(idle, "{reason:?}");
    drop(connection);
    assert_eq!(net.counts.timers.load(SeqCst), 0, "all timers were the wheel's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_datagrams_are_sent_again() {
    let timer = timer();
    let net = Loopback::new(&timer, HOUR);
    net.counts.lose.store(2, SeqCst);
    let connection = net.connect().await;
    assert_eq!(net.counts.lose.load(SeqCst), 0);
    // The first datagrams are lost, so only a timer can have made progress.
    assert!(timer.wheel().metrics().fired > 0);
    net.counts.lose.store(5, SeqCst);
    echo(&connection, &vec![7; 1 << 18]).await;
    drop(connection);
    assert_eq!(net.close(&timer).await, 0, "all timers were the wheel's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_shutdown_the_runtime_below_keeps_the_time() {
    let timer = timer();
    let idle = 400 * MS;
    let net = Loopback::new(&timer, idle);
    let connection = net.connect().await;
    echo(&connection, b"before").await;
    timer.shutdown();
    net.counts.lose.store(2, SeqCst);
    echo(&connection, b"after").await;
    assert!(net.counts.timers.load(SeqCst) > 0);

    // Connections end, including new ones, not early and without busy polling.
    let began = timer.now();
    let late = net.connect().await;
    net.counts.polls.store(0, SeqCst);
    assert_eq!(in_time(late.closed()).await, ConnectionError::TimedOut);
    assert!(timer.now() - began >= idle, "early");
    net.assert_calm();
    assert_eq!(in_time(connection.closed()).await, ConnectionError::TimedOut);
    drop((connection, late));
    net.close(&timer).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_capacity_the_runtime_below_keeps_the_time() {
    let driver = Builder::new().shards(1).capacity(1).driver();
    let timer = Timer::spawn(driver).unwrap();
    let idle = 400 * MS;
    let net = Loopback::new(&timer, idle);
    let connection = net.connect().await;
    echo(&connection, &vec![7; 1 << 18]).await;
    let began = timer.now();
    net.counts.polls.store(0, SeqCst);
    let (mut send, receive) = connection.open_bi().await.unwrap();
    send.write_all(b"the last").await.unwrap();
    assert_eq!(in_time(connection.closed()).await, ConnectionError::TimedOut);
    assert!(timer.now() - began >= idle, "early");
    net.assert_calm();
    drop((connection, send, receive));
    assert!(net.close(&timer).await > 0, "one of two timers found no room");
}
