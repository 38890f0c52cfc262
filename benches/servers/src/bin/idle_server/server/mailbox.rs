//! [`Mailbox`]: what other threads have to tell an event loop, and the waker of its poll.

use super::timers::Token;
use mio::net::TcpStream;
use mio::{Poll, Waker};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The token by which a loop's poll tells that there is mail.
pub(crate) const MAIL: mio::Token = mio::Token(usize::MAX);

/// What an event loop is told.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection was accepted: it is yours.
    Open(TcpStream),
    /// The timer that you armed under this token was due.
    Idle(Token),
    /// Close everything, and end.
    Stop,
}

/// Messages for one loop. Whoever posts the first wakes the loop, those after it need not.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

impl Mailbox {
    /// The mailbox of the loop that owns `poll`.
    pub(crate) fn new(poll: &Poll) -> io::Result<Self> {
        Ok(Self { messages: Mutex::default(), waker: Waker::new(poll.registry(), MAIL)? })
    }

    /// May be called from any thread.
    pub(crate) fn post(&self, message: Message) {
        let mut messages = self.lock();
        messages.push(message);
        let first = messages.len() == 1;
        drop(messages);
        if first {
            // It fails only once the poll has gone, and with it whoever would read.
            let _ = self.waker.wake();
        }
    }

    /// Moves all messages into `taken`, which must be empty.
    pub(crate) fn take(&self, taken: &mut Vec<Message>) {
        std::mem::swap(&mut *self.lock(), taken);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Message>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
