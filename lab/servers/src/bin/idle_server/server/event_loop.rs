//! [`EventLoop`] is a thread with a poll, its connections, and their idle timeouts.
//!
//! A turn of the loop has four steps.
//!
//! 1. Wait for events, mail, or the next deadline.
//! 2. Send, read and answer on every ready connection, and accept new ones. Only *record* the
//!    timers to arm, push back or cancel.
//! 3. [Settle](EventLoop::settle) all of them under one guard, after prefetching them. The guard
//!    reads the clock after the last byte was read, so no timeout counts from before its byte.
//! 4. Sweep, and check each connection whose timer has fired once more. If bytes have arrived after
//!    step 2, it is not idle and gets a new timer. Otherwise it is closed.
//!
//! If another thread sweeps, a timer may fire while its connection is being read. The reset in step
//! 3 then returns `false`, a new timer is armed, and the message about the old timer carries a
//! token that is no longer valid.

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

/// The number of events, and of due timers, that one turn takes, so that a burst of either does not
/// delay the other.
const AT_ONCE: usize = 512;

/// The number of a loop, and the mailboxes of all loops.
pub(crate) struct Place {
    pub(crate) number: usize,
    pub(crate) mailboxes: Arc<[Mailbox]>,
}

/// A connection, and its timer.
struct Entry<Id> {
    connection: Connection,
    /// `None` if the timer is not armed yet, or has fired.
    timer: Option<Id>,
    /// The token of the timer, if there is one.
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
    /// The number of timers armed so far.
    armings: u64,
    /// Connections that were active, or are new, since the timers were last settled.
    active: Vec<usize>,
    /// Timers of connections that have ended since then.
    ended: Vec<T::Id>,
    /// Connections that have more to do without an event.
    again: Vec<usize>,
    /// Tokens of timers that have fired.
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

    /// Serves until a message stops the loop, and then closes all connections.
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
            // After the events, because events of a connection that has ended must not reach a new
            // one in its place.
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

    /// The maximum time to wait for events.
    fn rest(&mut self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let deadline = self.timers.next_deadline()?;
        Some(deadline.saturating_duration_since(Instant::now()))
    }

    /// Reads the mail, and returns `false` if the loop should stop.
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

    /// Makes progress on a connection without waiting, and returns `true` if it was active.
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

    /// Closes an open connection.
    fn close(&mut self, key: usize) {
        let entry = self.connections.remove(key);
        self.ended.extend(entry.timer);
        self.counts.live.fetch_sub(1, Relaxed);
    }

    /// Arms, pushes back and cancels the timers that the turn recorded.
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

    /// Closes the connections whose timers have fired, except those that turn out to be active.
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
