//! [`Mailbox`] holds the messages of other threads to an event loop, and the waker of its poll.

use super::timers::Token;
use mio::net::TcpStream;
use mio::{Poll, Waker};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The token that the poll of a loop reports mail with.
pub(crate) const MAIL: mio::Token = mio::Token(usize::MAX);

/// A message to an event loop.
#[derive(Debug)]
pub(crate) enum Message {
    /// A connection was accepted, and belongs to the loop.
    Open(TcpStream),
    /// The timer that the loop armed under this token was due.
    Idle(Token),
    /// The loop should close everything and end.
    Stop,
}

/// Messages for one loop. Only the first message wakes the loop.
#[derive(Debug)]
pub(crate) struct Mailbox {
    messages: Mutex<Vec<Message>>,
    waker: Waker,
}

impl Mailbox {
    /// Creates the mailbox of the loop that owns `poll`.
    pub(crate) fn new(poll: &Poll) -> io::Result<Self> {
        Ok(Self { messages: Mutex::default(), waker: Waker::new(poll.registry(), MAIL)? })
    }

    /// Posts a message from any thread.
    pub(crate) fn post(&self, message: Message) {
        let mut messages = self.lock();
        messages.push(message);
        let first = messages.len() == 1;
        drop(messages);
        if first {
            // It fails only after the poll was dropped, and its reader with it.
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
