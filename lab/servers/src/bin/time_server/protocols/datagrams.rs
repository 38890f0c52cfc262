//! Segments over UDP with a task for each flow, which repeats a segment that is not acknowledged in
//! time. The timeout is one and a half times the measured round trip, and doubled by a repetition.

use super::super::time::{self, Instant};
use super::server::Server;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{self, Receiver, Sender};
use tourbillon_servers::datagrams::{Datagram, LENGTH, enlarge_buffer};
use tourbillon_servers::process::Failure;

/// The longest timeout.
const LONGEST: Duration = Duration::from_secs(60);

/// The timeout of a flow before its round trip is known, as a multiple of the shortest timeout.
const AT_FIRST: u32 = 4;

/// The number of acknowledgements that may wait for the task of a flow. Others are lost.
const WAITING: usize = 4;

/// Serves flows until it is dropped.
pub(crate) async fn serve(server: Arc<Server>, socket: UdpSocket) -> Result<(), Failure> {
    enlarge_buffer(&socket);
    let socket = Arc::new(socket);
    let mut flows: HashMap<u32, Sender<u32>> = HashMap::new();
    let mut buffer = [0; LENGTH];
    loop {
        let (length, peer) = socket.recv_from(&mut buffer).await?;
        let Some(datagram) = Datagram::parse(&buffer[..length]) else {
            continue;
        };
        let acknowledgements = flows.entry(datagram.flow).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(WAITING);
            let flow = Flow::new(datagram.flow, peer, &socket, server.idle);
            tokio::spawn(flow.run(Arc::clone(&server), receiver));
            sender
        });
        let _ = acknowledgements.try_send(datagram.segment);
    }
}

/// A flow.
struct Flow {
    number: u32,
    peer: SocketAddr,
    socket: Arc<UdpSocket>,
    /// The number of the segment that is not acknowledged yet.
    segment: u32,
    shortest: Duration,
    /// The time until the segment is repeated.
    timeout: Duration,
}

impl Flow {
    fn new(number: u32, peer: SocketAddr, socket: &Arc<UdpSocket>, shortest: Duration) -> Self {
        let (socket, timeout) = (Arc::clone(socket), shortest * AT_FIRST);
        Self { number, peer, socket, segment: 0, shortest, timeout }
    }

    /// Sends segments, each after the acknowledgement of the last one.
    async fn run(mut self, server: Arc<Server>, mut heard: Receiver<u32>) -> io::Result<()> {
        // The first one opens the flow.
        let mut goes_on = is_acknowledged(0, &mut heard).await;
        while goes_on {
            self.segment += 1;
            goes_on = self.deliver(&server, &mut heard).await?;
        }
        Ok(())
    }

    /// Sends the segment until it is acknowledged. Returns `false` if that can never be.
    async fn deliver(&mut self, server: &Server, heard: &mut Receiver<u32>) -> io::Result<bool> {
        let first_sent = Instant::now();
        let mut sent = first_sent;
        loop {
            self.send().await?;
            let deadline = sent + self.timeout;
            let acknowledgement = is_acknowledged(self.segment, heard);
            if let Ok(goes_on) = time::timeout_at(deadline, acknowledgement).await {
                if sent == first_sent {
                    let round_trip = sent.elapsed();
                    self.timeout = (round_trip * 3 / 2).clamp(self.shortest, LONGEST);
                }
                return Ok(goes_on);
            }
            server.audit.fire(deadline);
            self.timeout = (self.timeout * 2).min(LONGEST);
            sent = Instant::now();
        }
    }

    async fn send(&self) -> io::Result<()> {
        let timeout = u32::try_from(self.timeout.as_micros()).unwrap_or(u32::MAX);
        let datagram = Datagram { flow: self.number, segment: self.segment, timeout };
        self.socket.send_to(&datagram.bytes(), self.peer).await.map(drop)
    }
}

/// Waits for the acknowledgement of a segment. Returns `false` if there are no more of them.
async fn is_acknowledged(segment: u32, heard: &mut Receiver<u32>) -> bool {
    while let Some(acknowledged) = heard.recv().await {
        // Others are of a segment that was repeated.
        if acknowledged == segment {
            return true;
        }
    }
    false
}
