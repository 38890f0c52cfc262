//! [`Connection`]: one client's socket, and the answers that wait for it to read.
//!
//! An answer is written at once; what the socket does not take waits, and is bounded: while
//! [`MOST_UNSENT`] bytes wait, nothing is read, and TCP slows the client down. So a client that
//! never reads is soon not read from either, and its idle timeout closes it. *Activity* is every
//! byte that the client moved: one read from it, or one of those that waited and that it made
//! room for.

use super::config::Handler;
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// How many bytes may wait to be sent before no more are read. What is read at once by then is
/// still answered.
pub(crate) const MOST_UNSENT: usize = 64 * 1024;

/// How many bytes are read at once.
const READ: usize = 16 * 1024;

/// How often a connection is read in one turn of its loop, so that none keeps the others waiting.
const READS: usize = 16;

/// One client.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    unsent: VecDeque<u8>,
    /// The client sends no more. It is closed once it has all answers.
    ended: bool,
}

/// What a turn came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// Whether the client moved a byte.
    pub(crate) active: bool,
    pub(crate) next: Next,
}

/// What should become of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// The poll will tell when there is more to do.
    Wait,
    /// There may be more to do; the poll will not tell.
    Again,
    /// The client has gone.
    Close,
    /// The handler has panicked.
    Panicked,
}

/// What the connections of a loop share.
pub(crate) struct Tools {
    input: Box<[u8]>,
    answer: Vec<u8>,
    handler: Handler,
}

impl Tools {
    pub(crate) fn new(handler: Handler) -> Self {
        Self { input: vec![0; READ].into(), answer: Vec::new(), handler }
    }
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self { stream, unsent: VecDeque::new(), ended: false }
    }

    pub(crate) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Sends, reads and answers what can be without waiting.
    pub(crate) fn turn(&mut self, tools: &mut Tools) -> Turn {
        let mut active = false;
        for _ in 0..READS {
            let step = self.flush().and_then(|sent| {
                active |= sent;
                self.read(tools)
            });
            let next = match step {
                Ok(Step::Answer(length)) => {
                    active = true;
                    match self.answer(length, tools) {
                        Ok(true) => continue,
                        Ok(false) => Next::Panicked,
                        Err(_) => Next::Close,
                    }
                }
                Ok(Step::Full) => Next::Wait,
                Err(error) if error.kind() == ErrorKind::WouldBlock => Next::Wait,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(Step::End) | Err(_) => Next::Close,
            };
            return Turn { active, next };
        }
        Turn { active, next: Next::Again }
    }

    /// Sends what waits, as much as the socket takes. Whether it took any.
    fn flush(&mut self) -> io::Result<bool> {
        let waited = self.unsent.len();
        while !self.unsent.is_empty() {
            match self.stream.write(self.unsent.as_slices().0) {
                Ok(sent) => drop(self.unsent.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if waited > 0 && self.unsent.is_empty() {
            // Most connections never have anything waiting.
            self.unsent = VecDeque::new();
        }
        Ok(self.unsent.len() < waited)
    }

    /// Reads once, if there is room for the answer.
    fn read(&mut self, tools: &mut Tools) -> io::Result<Step> {
        if !self.ended && self.unsent.len() < MOST_UNSENT {
            match self.stream.read(&mut tools.input)? {
                0 => self.ended = true,
                length => return Ok(Step::Answer(length)),
            }
        }
        let done = self.ended && self.unsent.is_empty();
        Ok(if done { Step::End } else { Step::Full })
    }

    /// Answers what was read. `false`: the handler has panicked.
    fn answer(&mut self, length: usize, tools: &mut Tools) -> io::Result<bool> {
        let Tools { input, answer, handler } = tools;
        answer.clear();
        if catch_unwind(AssertUnwindSafe(|| handler(&input[..length], answer))).is_err() {
            return Ok(false);
        }
        let sent = if self.unsent.is_empty() { self.send(answer)? } else { 0 };
        self.unsent.extend(&answer[sent..]);
        Ok(true)
    }

    /// How many of these bytes the socket has taken.
    fn send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.stream.write(bytes) {
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(0)
            }
            sent => sent,
        }
    }
}

/// What a read came to.
enum Step {
    /// So many bytes are to be answered.
    Answer(usize),
    /// The client must take answers first.
    Full,
    /// The client has sent and has been sent all.
    End,
}
