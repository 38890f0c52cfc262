//! The busy clients. Each sends a request, waits for the answer, and sends the next.

use crate::Failure;
use crate::client::{self, Client, Target};
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};
use std::ops::Range;
use std::time::{Duration, Instant};

/// A busy client, and the instant of its last request.
struct Busy {
    client: Client,
    sent: Instant,
}

/// The busy clients of one thread.
pub(crate) struct Crew {
    poll: Poll,
    clients: Vec<Busy>,
}

/// The results of a crew.
pub(crate) struct Answers {
    /// Nanoseconds from a request to its answer.
    pub(crate) latencies: Histogram<u64>,
    /// The number of requests that the server cut off.
    pub(crate) cut: u64,
}

impl Answers {
    pub(crate) fn none() -> Result<Self, Failure> {
        // Up to a minute, to three digits.
        Ok(Self { latencies: Histogram::new_with_bounds(1, 60_000_000_000, 3)?, cut: 0 })
    }

    pub(crate) fn add(&mut self, other: &Self) -> Result<(), Failure> {
        self.cut += other.cut;
        Ok(self.latencies.add(&other.latencies)?)
    }
}

impl Crew {
    /// Connects the clients with these numbers.
    pub(crate) fn connect(target: Target, numbers: Range<usize>) -> Result<Self, Failure> {
        let (poll, mut clients) = (Poll::new()?, Vec::new());
        for number in numbers {
            let mut client = Client::connect(target, number)?;
            let token = Token(clients.len());
            poll.registry().register(&mut client.stream, token, Interest::READABLE)?;
            clients.push(Busy { client, sent: Instant::now() });
        }
        Ok(Self { poll, clients })
    }

    /// Keeps the server busy for `window`.
    pub(crate) fn run(mut self, window: Duration) -> Result<Answers, Failure> {
        let (mut events, mut answers) = (Events::with_capacity(1024), Answers::none()?);
        let end = Instant::now() + window;
        for busy in &mut self.clients {
            answers.cut += u64::from(!busy.send()?);
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(answers);
            }
            client::wait(&mut self.poll, &mut events, left)?;
            for event in &events {
                self.clients[event.token().0].event(&mut answers)?;
            }
        }
    }
}

impl Busy {
    fn send(&mut self) -> Result<bool, Failure> {
        self.sent = Instant::now();
        self.client.send()
    }

    /// Handles an event of the client.
    fn event(&mut self, answers: &mut Answers) -> Result<(), Failure> {
        let heard = self.client.hear(true)?;
        if heard.answer {
            let nanos = u64::try_from(self.sent.elapsed().as_nanos())?;
            answers.latencies.saturating_record(nanos.max(1));
        }
        let cut = heard.closed || (heard.answer && !self.send()?);
        answers.cut += u64::from(cut);
        Ok(())
    }
}
