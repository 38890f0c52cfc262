//! Loads a server with flows of datagrams, and audits the retransmissions.
//!
//! The client acknowledges the segments of all flows in turn, and has a limited number of
//! acknowledgements under way. It ignores one segment in a hundred, which the server must then
//! repeat. A repetition is *early* if it arrives before the timeout has passed since the instant
//! *before* the acknowledgement that asked for the segment was sent. Its *lateness* counts from the
//! arrival of the segment.

use crate::Failure;
use crate::busy::Answers;
use crate::child::Child;
use crate::measure::{Load, Outcome, Window, joined};
use nix::sys::socket::SockaddrIn;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};
use tourbillon_servers::datagrams::{BATCH, Batches, Datagram};

/// The maximum number of acknowledgements without an answer. The buffers of both sockets hold more.
const UNDER_WAY: usize = 3 * BATCH;

/// One in this many segments is ignored.
const IGNORED_OF: u32 = 100;

/// The time without an answer before flows that have not begun are opened again.
const SILENCE: Duration = Duration::from_millis(50);

/// The lateness that makes a repetition count as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// A flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The number of the last segment.
    segment: u32,
    state: State,
    /// The timeout that the segment stated.
    timeout: Duration,
    /// Nanoseconds from the start until the segment was asked for, and until it arrived.
    asked: u64,
    arrived: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// The segment will be acknowledged in its turn.
    #[default]
    Waiting,
    /// The segment has been acknowledged.
    Acknowledged,
    /// The segment is ignored until it is repeated.
    Ignored,
}

/// All flows.
struct Client {
    socket: UdpSocket,
    server: SockaddrIn,
    batches: Batches,
    start: Instant,
    flows: Vec<Flow>,
    /// The flows that wait to be acknowledged.
    turns: VecDeque<u32>,
    pause: Duration,
    opened: usize,
    under_way: usize,
    ignored: u64,
    /// The latest instant of the second repetition of the segment that was ignored last.
    last_due: Instant,
    early: u64,
    latest: Duration,
    answers: Answers,
    received: Vec<(Datagram, SockaddrIn)>,
    sent: Vec<(Datagram, SockaddrIn)>,
}

/// Loads the server, and stops it once all ignored segments have been repeated.
pub(crate) fn load(child: Child, load: &Load) -> Result<Outcome, Failure> {
    let mut client = Client::new(child.address(), load)?;
    client.open()?;
    let window = Window::after(load.timeout, load.window);
    let (client, cpu) = thread::scope(|scope| {
        let cpu = scope.spawn(|| window.cpu(&child));
        Ok::<_, Failure>((client.run(&window)?, joined(cpu)?))
    })?;
    Ok(Outcome {
        answers: client.answers,
        cpu,
        early: client.early,
        latest: client.latest,
        lost: client.ignored,
        report: child.stop()?,
    })
}

impl Client {
    fn new(address: SocketAddr, load: &Load) -> Result<Self, Failure> {
        let SocketAddr::V4(server) = address else {
            return Err("the server has no address of version 4".into());
        };
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(SILENCE))?;
        let mut turns: Vec<_> = (0..load.timers).collect();
        fastrand::shuffle(&mut turns);
        Ok(Self {
            batches: Batches::new(&socket),
            socket,
            server: server.into(),
            start: Instant::now(),
            flows: vec![Flow::default(); load.timers as usize],
            turns: turns.into(),
            pause: load.pause,
            opened: 0,
            under_way: 0,
            ignored: 0,
            last_due: Instant::now(),
            early: 0,
            latest: Duration::ZERO,
            answers: Answers::none()?,
            received: Vec::new(),
            sent: Vec::new(),
        })
    }

    /// Opens all flows.
    fn open(&mut self) -> Result<(), Failure> {
        while self.opened < self.flows.len() {
            if !self.turn(None)? {
                let flows = self.flows.iter().zip(0..);
                let unopened = flows
                    .filter(|(flow, _)| (flow.segment, flow.state) == (0, State::Acknowledged));
                self.turns.extend(unopened.map(|(_, number)| number));
                self.under_way = 0;
            }
        }
        Ok(())
    }

    /// Acknowledges segments until the window has passed and all ignored ones have been repeated.
    fn run(mut self, window: &Window) -> Result<Self, Failure> {
        while Instant::now() < window.end() {
            self.turn(Some(window))?;
        }
        while self.ignored > 0 && Instant::now() < self.last_due + PATIENCE {
            self.turn(None)?;
        }
        Ok(self)
    }

    /// Sends a batch and receives another. Ignores segments and records answers if there is a
    /// window. Returns `false` if the server is silent.
    fn turn(&mut self, window: Option<&Window>) -> Result<bool, Failure> {
        let asked = self.nanos(Instant::now());
        // A whole batch or none, so that the server receives batches too.
        let sending = self.under_way + BATCH <= UNDER_WAY;
        let numbers = self.turns.len().min(if sending { BATCH } else { 0 });
        for number in self.turns.drain(..numbers).collect::<Vec<_>>() {
            self.under_way += 1;
            self.flows[number as usize].asked = asked;
            self.acknowledge(number);
        }
        self.batches.send(&self.socket, &self.sent)?;
        if !self.sent.is_empty() && window.is_some() {
            thread::sleep(self.pause);
        }
        self.sent.clear();
        match self.batches.receive(&self.socket, &mut self.received) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            received => received?,
        }
        let now = Instant::now();
        let mut received = std::mem::take(&mut self.received);
        for (datagram, _) in received.drain(..) {
            self.hear(datagram, now, window)?;
        }
        self.received = received;
        Ok(true)
    }

    fn acknowledge(&mut self, number: u32) {
        let flow = &mut self.flows[number as usize];
        flow.state = State::Acknowledged;
        let datagram = Datagram { flow: number, segment: flow.segment, timeout: 0 };
        self.sent.push((datagram, self.server));
    }

    /// Handles a segment.
    fn hear(
        &mut self,
        datagram: Datagram,
        now: Instant,
        window: Option<&Window>,
    ) -> Result<(), Failure> {
        let (number, nanos) = (datagram.flow, self.nanos(now));
        let flow = self.flows.get_mut(number as usize).ok_or("a segment of an unknown flow")?;
        let is_next = flow.state == State::Acknowledged && datagram.segment == flow.segment + 1;
        if is_next {
            let Datagram { segment, .. } = datagram;
            let (state, timeout) = (State::Waiting, datagram.timeout());
            *flow = Flow { segment, state, timeout, arrived: nanos, ..*flow };
            self.opened += usize::from(datagram.segment == 1);
            self.under_way = self.under_way.saturating_sub(1);
            if window.is_some_and(|window| window.contains(now)) {
                self.answers.latencies.saturating_record((nanos - flow.asked).max(1));
            }
            if window.is_some() && fastrand::u32(..IGNORED_OF) == 0 {
                flow.state = State::Ignored;
                self.ignored += 1;
                // The first repetition may be lost on the way. The second takes twice the time.
                self.last_due = now + flow.timeout * 3;
            } else {
                self.turns.push_back(number);
            }
        } else if datagram.segment == flow.segment {
            let since = |from| Duration::from_nanos(nanos - from);
            match flow.state {
                State::Acknowledged => {
                    // The acknowledgement was lost, or is on its way. The segment was asked for
                    // when the first was sent.
                    self.acknowledge(number);
                    return Ok(());
                }
                State::Waiting => {}
                State::Ignored => {
                    self.latest = self.latest.max(since(flow.arrived).saturating_sub(flow.timeout));
                    self.ignored -= 1;
                    flow.state = State::Waiting;
                    self.turns.push_back(number);
                }
            }
            self.early += u64::from(since(flow.asked) < flow.timeout);
        }
        Ok(())
    }

    fn nanos(&self, at: Instant) -> u64 {
        u64::try_from((at - self.start).as_nanos()).unwrap_or(u64::MAX)
    }
}
