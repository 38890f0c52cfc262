//! [`Connection`] is a client's socket with the answers that wait for the client to read.
//!
//! An answer is written at once. The rest that the socket does not accept waits, and is bounded.
//! While [`MAX_UNSENT`] bytes wait, the connection is not read, and TCP slows the client down. A
//! client that never reads is soon not read from either, and its idle timeout closes it. *Activity*
//! is every byte that the client moved, which is a byte that it sent, or a waiting byte that it
//! made room for.

use super::config::Handler;
use mio::net::TcpStream;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The number of unsent bytes that stops reading. The bytes of the read that passes it are still
/// answered.
pub(crate) const MAX_UNSENT: usize = 64 * 1024;

/// The number of bytes per read.
const READ: usize = 16 * 1024;

/// The number of reads of a connection in one turn of its loop, so that it does not delay others.
const READS: usize = 16;

/// One client.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    unsent: VecDeque<u8>,
    /// The client has finished sending. The connection is closed after all answers were sent.
    ended: bool,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// `true` if the client moved a byte.
    pub(crate) active: bool,
    pub(crate) next: Next,
}

/// The next step of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Next {
    /// The poll reports when there is more to do.
    Wait,
    /// There may be more to do, but the poll does not report it.
    Again,
    /// The client has disconnected.
    Close,
    /// The handler has panicked.
    Panicked,
}

/// State that the connections of a loop share.
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

    /// Sends, reads and answers as much as is possible without waiting.
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

    /// Sends as many waiting bytes as the socket accepts, and returns `true` if there were any.
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
            // Most connections never have a queue.
            self.unsent = VecDeque::new();
        }
        Ok(self.unsent.len() < waited)
    }

    /// Reads once, if there is room for the answer.
    fn read(&mut self, tools: &mut Tools) -> io::Result<Step> {
        if !self.ended && self.unsent.len() < MAX_UNSENT {
            match self.stream.read(&mut tools.input)? {
                0 => self.ended = true,
                length => return Ok(Step::Answer(length)),
            }
        }
        let done = self.ended && self.unsent.is_empty();
        Ok(if done { Step::End } else { Step::Full })
    }

    /// Answers the bytes that were read, and returns `false` if the handler panicked.
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

    /// The number of these bytes that the socket accepted.
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

/// The outcome of a read.
enum Step {
    /// This number of bytes should be answered.
    Answer(usize),
    /// The client must read answers first.
    Full,
    /// The client has sent and received everything.
    End,
}
