//! The crowd, whose clients send requests, then none, and record when they are closed.
//!
//! They send a few requests each, or go on until the window has passed. Of those that go on, one
//! falls silent now and then.
//!
//! A connection is *early* if it is closed before the idle timeout has passed since the instant
//! *before* the last request or reply was sent, because any activity that the server saw came after
//! that. Its *lateness* counts from the instant *after* the last answer was read, or the last reply
//! was sent. For a client that never sends, both count from before and after it connected. A
//! connection without an answer to its last request is *lost*.

use crate::Failure;
use crate::busy::Answers;
use crate::client::{self, Client, Target};
use crate::measure::{Load, Window};
use crate::servers::Habit;
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

/// Of clients that go on, one in this many falls silent after each answer in the window.
const SILENT_OF: u32 = 50;

/// A client of the crowd.
struct Idle {
    /// `None` if the server has closed it.
    client: Option<Client>,
    /// The number of requests that it will still send.
    requests: u32,
    /// The instant before the last request or reply, or before connecting.
    before: Instant,
    /// The instant after the last answer or reply, or after connecting.
    after: Instant,
    /// The instant before the request that has no answer yet.
    asked: Option<Instant>,
}

/// The answers that the crowd counted in the window, if it went on until then, and the closes.
pub(crate) struct Closings {
    pub(crate) answers: Answers,
    pub(crate) early: u64,
    pub(crate) lost: u64,
    pub(crate) latest: Duration,
}

/// All clients, on one thread.
pub(crate) struct Crowd {
    target: Target,
    size: usize,
    habit: Habit,
    load: Load,
    /// The window, once all connections are open, if they go on until it has passed.
    window: Option<Window>,
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
    pub(crate) fn new(
        target: Target,
        size: usize,
        habit: Habit,
        load: &Load,
    ) -> Result<Self, Failure> {
        let answers = Answers::none()?;
        Ok(Self {
            target,
            size,
            habit,
            load: *load,
            window: None,
            poll: Poll::new()?,
            clients: Vec::with_capacity(size),
            open: 0,
            plan: BinaryHeap::new(),
            last: Instant::now(),
            closings: Closings { answers, early: 0, lost: 0, latest: Duration::ZERO },
        })
    }

    /// Opens all connections, reports the window, and watches them until they are closed.
    pub(crate) fn run(mut self, opened: &Sender<Window>) -> Result<Closings, Failure> {
        let mut events = Events::with_capacity(1024);
        loop {
            let opening = self.clients.len() < self.size;
            if opening {
                self.open_some()?;
            }
            let all = self.clients.len() == self.size;
            if opening && all {
                let window = Window::after(self.load.timeout / 2, self.load.window);
                self.window = (self.habit == Habit::Steady).then_some(window);
                opened.send(window)?;
            }
            self.send_due()?;
            let end = self.last + self.load.timeout + PATIENCE;
            if all && (self.open == 0 || Instant::now() >= end) {
                self.closings.lost += self.open as u64;
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
            let requests = match self.habit {
                // Of ten, one sends nothing, six send once, and three up to four times.
                Habit::Few => [0, 1, 1, 1, 1, 1, 1, 2, 3, 4][fastrand::usize(..10)],
                Habit::Steady => u32::MAX,
            };
            let client = Some(client);
            self.clients.push(Idle { client, requests, before, after, asked: None });
            self.open += 1;
            self.last = after;
            self.plan_request(number, after);
        }
        Ok(())
    }

    /// Plans the next request, if there is one, well before the idle timeout.
    fn plan_request(&mut self, number: usize, now: Instant) {
        if self.habit == Habit::Steady {
            let falls_silent = |window: Window| {
                now >= window.end() || window.contains(now) && fastrand::u32(..SILENT_OF) == 0
            };
            if self.window.is_some_and(falls_silent) {
                self.clients[number].requests = 0;
            }
        }
        if self.clients[number].requests > 0 {
            let pause = self.load.timeout.mul_f64(fastrand::f64() * LATEST_PLANNED);
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
            if before >= idle.after + self.load.timeout.mul_f64(LATEST_REQUEST) {
                // This thread was held up. The server may rightly be closing the connection at this
                // moment.
                idle.requests = 0;
            } else if client.send()? {
                idle.before = before;
                idle.asked = Some(before);
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
        let before = Instant::now();
        // A silent client does not even reply.
        let heard = client.hear(idle.requests > 0 || idle.asked.is_some())?;
        let now = Instant::now();
        if heard.replied {
            idle.before = before;
        }
        if heard.replied || heard.answer {
            (idle.after, self.last) = (now, now);
        }
        if heard.answer {
            let asked = idle.asked.take().ok_or("an answer without a request")?;
            if self.window.is_some_and(|window| window.contains(now)) {
                let nanos = u64::try_from((now - asked).as_nanos())?;
                self.closings.answers.latencies.saturating_record(nanos.max(1));
            }
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
        self.closings.lost += u64::from(idle.asked.is_some());
        if now < idle.before + self.load.timeout {
            self.closings.early += 1;
        }
        let late = now.saturating_duration_since(idle.after + self.load.timeout);
        self.closings.latest = self.closings.latest.max(late);
    }
}
