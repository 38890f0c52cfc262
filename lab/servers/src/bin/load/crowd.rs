//! The crowd, whose clients send a few requests, then none, and record when they are closed.
//!
//! A connection is *early* if it is closed before the idle timeout has passed since the instant
//! *before* the last request was sent, because any activity that the server saw came after that.
//! Its *lateness* counts from the instant *after* the last answer was read. For a client that never
//! sends, both count from before and after it connected.

use crate::Failure;
use crate::client::{self, Client, Target};
use mio::{Events, Interest, Poll, Token};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The number of connections that are opened between two checks of the open ones.
const OPENED_AT_ONCE: usize = 64;

/// The lateness that makes an open connection count as lost.
const PATIENCE: Duration = Duration::from_secs(5);

/// The latest planned instant of another request, as a share of the idle timeout.
const LATEST_PLANNED: f64 = 0.5;

/// The latest instant of a request, as a share of the idle timeout.
const LATEST_REQUEST: f64 = 0.75;

/// A client of the crowd.
struct Idle {
    /// `None` if the server has closed it.
    client: Option<Client>,
    /// The number of requests that it will still send.
    requests: u32,
    /// The instant before the last request, or before connecting.
    before: Instant,
    /// The instant after the last answer, or after connecting.
    after: Instant,
}

/// The closes that the crowd saw.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Closings {
    pub(crate) early: u64,
    pub(crate) lost: u64,
    pub(crate) latest: Duration,
}

/// All clients, on one thread.
pub(crate) struct Crowd {
    target: Target,
    size: usize,
    timeout: Duration,
    poll: Poll,
    clients: Vec<Idle>,
    open: usize,
    /// The instant of each next request, and its client.
    plan: BinaryHeap<Reverse<(Instant, usize)>>,
    /// The instant of the last event on a connection.
    last: Instant,
    closings: Closings,
}

impl Crowd {
    pub(crate) fn new(target: Target, size: usize, timeout: Duration) -> Result<Self, Failure> {
        Ok(Self {
            target,
            size,
            timeout,
            poll: Poll::new()?,
            clients: Vec::with_capacity(size),
            open: 0,
            plan: BinaryHeap::new(),
            last: Instant::now(),
            closings: Closings::default(),
        })
    }

    /// Opens all connections, reports it, and watches them until they are closed.
    pub(crate) fn run(mut self, opened: &Sender<()>) -> Result<Closings, Failure> {
        let mut events = Events::with_capacity(1024);
        loop {
            let opening = self.clients.len() < self.size;
            if opening {
                self.open_some()?;
            }
            let all = self.clients.len() == self.size;
            if opening && all {
                opened.send(())?;
            }
            self.send_due()?;
            let end = self.last + self.timeout + PATIENCE;
            if all && (self.open == 0 || Instant::now() >= end) {
                self.closings.lost = self.open as u64;
                return Ok(self.closings);
            }
            let next = self.plan.peek().map_or(end, |&Reverse((when, _))| when.min(end));
            let rest =
                if all { next.saturating_duration_since(Instant::now()) } else { Duration::ZERO };
            client::wait(&mut self.poll, &mut events, rest)?;
            for event in &events {
                self.hear(event.token().0)?;
            }
        }
    }

    fn open_some(&mut self) -> Result<(), Failure> {
        for number in self.clients.len()..self.size.min(self.clients.len() + OPENED_AT_ONCE) {
            let before = Instant::now();
            let mut client = Client::connect(self.target, number)?;
            let after = Instant::now();
            let interest = Interest::READABLE;
            self.poll.registry().register(&mut client.stream, Token(number), interest)?;
            // Of ten, one sends nothing, six send once, and three up to four times.
            let requests = [0, 1, 1, 1, 1, 1, 1, 2, 3, 4][fastrand::usize(..10)];
            self.clients.push(Idle { client: Some(client), requests, before, after });
            self.open += 1;
            self.last = after;
            self.plan_request(number, after);
        }
        Ok(())
    }

    /// Plans the next request, if there is one, well before the idle timeout.
    fn plan_request(&mut self, number: usize, now: Instant) {
        if self.clients[number].requests > 0 {
            let pause = self.timeout.mul_f64(fastrand::f64() * LATEST_PLANNED);
            self.plan.push(Reverse((now + pause, number)));
        }
    }

    /// Sends the requests that are due.
    fn send_due(&mut self) -> Result<(), Failure> {
        while let Some(&Reverse((when, number))) = self.plan.peek() {
            if when > Instant::now() {
                break;
            }
            self.plan.pop();
            let idle = &mut self.clients[number];
            let Some(client) = &mut idle.client else {
                continue;
            };
            idle.requests -= 1;
            let before = Instant::now();
            if before >= idle.after + self.timeout.mul_f64(LATEST_REQUEST) {
                // This thread was held up. The server may rightly be closing the connection at this
                // moment.
                idle.requests = 0;
            } else if client.send()? {
                idle.before = before;
                self.last = before;
            } else {
                self.closed(number);
            }
        }
        Ok(())
    }

    /// Handles input of a client.
    fn hear(&mut self, number: usize) -> Result<(), Failure> {
        let idle = &mut self.clients[number];
        let Some(client) = &mut idle.client else {
            return Ok(());
        };
        let heard = client.hear()?;
        if heard.answer {
            let now = Instant::now();
            (idle.after, self.last) = (now, now);
            self.plan_request(number, now);
        }
        if heard.closed {
            self.closed(number);
        }
        Ok(())
    }

    /// Records that the server has closed a connection.
    fn closed(&mut self, number: usize) {
        let now = Instant::now();
        let idle = &mut self.clients[number];
        idle.client = None;
        self.open -= 1;
        if now < idle.before + self.timeout {
            self.closings.early += 1;
        }
        let late = now.saturating_duration_since(idle.after + self.timeout);
        self.closings.latest = self.closings.latest.max(late);
    }
}
