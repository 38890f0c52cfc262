//! [`EventLoop`]: a thread with a poll, its connections, and their idle timeouts.
//!
//! A turn of the loop:
//!
//! 1. Wait for events, mail, or the next deadline.
//! 2. Send, read and answer on every connection that is ready; take over new ones. Only *note*
//!    whose timers are to be armed, pushed back or cancelled.
//! 3. [Settle](EventLoop::settle): do so for all of them under one guard, after beginning to fetch
//!    them all. The guard reads the clock after the last byte was read, so no timeout is counted
//!    from before its byte.
//! 4. Sweep, and look once more at each connection whose timer has fired: if bytes have come that
//!    step 2 did not get to, it is not idle, and has a new timer. Else it is closed.
//!
//! If another thread sweeps, a timer may fire while its connection is being read. The reset in step
//! 3 then answers `false`, a new timer is armed, and the message that comes about the old one
//! carries a token that is not in force any more.

use super::config::Handler;
use super::connection::{Connection, Next, Tools};
use super::counts::Counts;
use super::mailbox::{MAIL, Mailbox, Message};
use super::timers::{Batch, Timers, Token};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll};
use slab::Slab;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How many events are asked for, and how many timers taken, in one turn: a herd of either does
/// not keep the other waiting.
const AT_ONCE: usize = 512;

/// Which loop this is, and the mailboxes of all.
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) mailboxes: Arc<[Mailbox]>,
}

/// A connection, and its timer.
struct Entry<Id> {
    connection: Connection,
    /// `None`: not armed yet, or it has fired.
    timer: Option<Id>,
    /// What the timer stands for, while there is one.
    token: Token,
}

/// One loop.
pub(crate) struct EventLoop<T: Timers> {
    place: Place,
    poll: Poll,
    timers: T,
    idle: Duration,
    counts: Arc<Counts>,
    tools: Tools,
    connections: Slab<Entry<T::Id>>,
    /// How often a timer was armed.
    armings: u64,
    /// Connections that have been active, or are new, since the last settling.
    active: Vec<usize>,
    /// Timers of connections that have ended since.
    ended: Vec<T::Id>,
    /// Connections that have more to do though no event will say so.
    again: Vec<usize>,
    /// What timers that have fired stood for.
    due: Vec<Token>,
}

impl<T: Timers> EventLoop<T> {
    pub(crate) fn new(
        place: Place,
        poll: Poll,
        timers: T,
        idle: Duration,
        counts: Arc<Counts>,
        handler: Handler,
    ) -> Self {
        Self {
            place,
            poll,
            timers,
            idle,
            counts,
            tools: Tools::new(handler),
            connections: Slab::new(),
            armings: 0,
            active: Vec::new(),
            ended: Vec::new(),
            again: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Serves until it is told to stop; then closes all connections.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(AT_ONCE);
        let mut mail = Vec::new();
        loop {
            let rest = self.rest();
            match self.poll.poll(&mut events, rest) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            for key in std::mem::take(&mut self.again) {
                self.advance(key);
            }
            for event in events.iter().filter(|event| event.token() != MAIL) {
                self.advance(event.token().0);
            }
            // After the events: those of a connection that has ended must not meet a new one in
            // its place.
            if !self.read(&mut mail) {
                self.close_all();
                return Ok(());
            }
            self.settle();
            self.timers.sweep(AT_ONCE, &mut self.due);
            self.expire();
            self.settle();
        }
    }

    /// How long to wait for events at most.
    fn rest(&mut self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadline = self.timers.next_deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Reads the mail. `false`: it is time to stop.
    fn read(&mut self, mail: &mut Vec<Message>) -> bool {
        self.place.mailboxes[self.place.number].take(mail);
        let mut goes_on = true;
        for message in mail.drain(..) {
            match message {
                Message::Open(stream) => self.open(stream),
                Message::Idle(token) => self.due.push(token),
                Message::Stop => goes_on = false,
            }
        }
        goes_on
    }

    fn open(&mut self, stream: TcpStream) {
        let vacant = self.connections.vacant_entry();
        let key = vacant.key();
        let mut connection = Connection::new(stream);
        let _ = connection.stream().set_nodelay(true);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let place = mio::Token(key);
        if self.poll.registry().register(connection.stream(), place, interest).is_err() {
            self.counts.live.fetch_sub(1, Relaxed);
            return;
        }
        let token = Token { owner: self.place.number, key, number: 0 };
        vacant.insert(Entry { connection, timer: None, token });
        self.active.push(key);
    }

    /// Does what can be done on a connection without waiting. Whether it was active.
    fn advance(&mut self, key: usize) -> bool {
        let Some(entry) = self.connections.get_mut(key) else {
            return false;
        };
        let turn = entry.connection.turn(&mut self.tools);
        if turn.active {
            self.active.push(key);
        }
        match turn.next {
            Next::Wait => {}
            Next::Again => self.again.push(key),
            Next::Close => self.close(key),
            Next::Panicked => {
                self.counts.panicked.fetch_add(1, Relaxed);
                self.close(key);
            }
        }
        turn.active
    }

    /// Closes a connection that is there.
    fn close(&mut self, key: usize) {
        let entry = self.connections.remove(key);
        self.ended.extend(entry.timer);
        self.counts.live.fetch_sub(1, Relaxed);
    }

    /// Arms, pushes back and cancels what the turn has noted.
    fn settle(&mut self) {
        if self.active.is_empty() && self.ended.is_empty() {
            return;
        }
        let mut refused = Vec::new();
        let mut batch = self.timers.batch();
        let noted = self.active.iter().filter_map(|&key| self.connections.get(key)?.timer);
        for id in noted.chain(self.ended.iter().copied()) {
            batch.prefetch(id);
        }
        for id in self.ended.drain(..) {
            batch.cancel(id);
        }
        for key in self.active.drain(..) {
            let Some(entry) = self.connections.get_mut(key) else {
                continue; // it has ended
            };
            let armed = entry.timer.as_mut().is_some_and(|id| batch.reset(id, self.idle));
            if !armed {
                self.armings += 1;
                entry.token.number = self.armings;
                entry.timer = batch.insert(entry.token, self.idle);
                refused.extend(entry.timer.is_none().then_some(key));
            }
        }
        drop(batch);
        for key in refused {
            // No connection is without a timeout.
            self.close(key);
        }
    }

    /// Closes the connections whose timers have fired, unless one shows that it is not idle.
    fn expire(&mut self) {
        for token in std::mem::take(&mut self.due) {
            self.counts.fired.fetch_add(1, Relaxed);
            let Some(entry) = self.connections.get_mut(token.key) else {
                continue; // it has ended
            };
            if entry.token != token || entry.timer.take().is_none() {
                continue; // another is in its place, or it was active meanwhile
            }
            if !self.advance(token.key) && self.connections.contains(token.key) {
                self.counts.closed_idle.fetch_add(1, Relaxed);
                self.close(token.key);
            }
        }
    }

    fn close_all(&mut self) {
        let keys: Vec<_> = self.connections.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close(key);
        }
        self.settle();
    }
}
